#include <limits>
#include <vector>

#include "daemon/worker/load/inspection.h"
#include "daemon/worker/tools/inspect/metadata_value.h"
#include "daemon/worker/tools/json_rows.h"
#include "ipc/wire/json.h"
#include "models/pooling_in_use.h"

namespace hearth::worker {
namespace {

using ipc::Json;

Json metadata_entry(const models::GgufEntry& entry, bool all) {
  Json out = Json::object();
  out["key"] = std::string(entry.key);
  const bool array = entry.type == models::GgufType::kArray;
  out["type"] = std::string(name(array ? entry.element_type : entry.type));
  Json values = Json::array();
  const uint64_t most = all ? std::numeric_limits<uint64_t>::max() : uint64_t{kShownElements};
  each_element(entry, most, [&values](const auto& value) { values.push_back(Json(value)); });
  if (array) {
    out["count"] = entry.count;
    out["values"] = std::move(values);
  } else {
    out["value"] = std::move(values[0]);
  }
  return out;
}

Json kv_of(const models::ModelInfo& model) {
  Json groups = Json::array();
  int64_t f16 = 0;
  for (const models::LayerGroup& group : model.groups) {
    Json out = Json::object();
    const bool sliding = group.kind == models::LayerGroup::Kind::kSliding;
    out["kind"] = group.recurrent() ? "state" : sliding ? "sliding" : "full";
    if (sliding) out["window"] = group.window;
    out["layers"] = group.num_layers;
    if (group.recurrent()) {
      out["state_bytes"] = state_bytes(group);
      groups.push_back(std::move(out));
      continue;
    }
    if (group.num_sharing > 0) out["sharing_layers"] = group.num_sharing;
    out["kv_heads"] = group.kv.num_kv_heads;
    out["k_dim"] = group.kv.k_dim;
    out["v_dim"] = group.kv.v_dim;
    out["v_in_k"] = group.kv.v_in_k;
    out["bytes_per_token_f16"] = kv_bytes_per_token(group, kernels::DType::kF16);
    out["bytes_per_token_f32"] = kv_bytes_per_token(group, kernels::DType::kF32);
    f16 += kv_bytes_per_token(group, kernels::DType::kF16);
    groups.push_back(std::move(out));
  }
  Json out = Json::object();
  out["bytes_per_token_f16"] = f16;
  out["groups"] = std::move(groups);
  return out;
}

Json model_of(const models::ModelInfo& model) {
  return {{"context_length", model.context_length},
          {"vocab_size", model.vocab_size},
          {"width", model.width},
          {"layers", model.num_layers},
          {"heads", model.num_heads},
          {"draft_layer", model.drafts},
          {"draft_layer_bytes", model.draft_weight_bytes},
          {"pooling", std::string(name(models::pooling_in_use(model.pooling)))},
          {"pooling_in_file", model.pooling != models::Pooling::kNone},
          {"kv", kv_of(model)}};
}

Json tokenizer_of(const TokenizerSummary& tokenizer) {
  Json out = Json::object();
  out["kind"] = tokenizer.kind;
  if (!tokenizer.pre.empty()) out["pre"] = tokenizer.pre;
  out["size"] = tokenizer.size;
  if (tokenizer.merges > 0) out["merges"] = tokenizer.merges;
  if (tokenizer.problem.empty()) {
    out["control"] = tokenizer.control;
    out["adds_bos"] = tokenizer.adds_bos;
  } else {
    out["problem"] = tokenizer.problem;
  }
  out["special"] = json_rows(tokenizer.special, [](const SpecialToken& token) {
    return Json{{"role", token.role}, {"id", token.id}, {"entry", std::string(token.entry)}};
  });
  return out;
}

Json tensor_of(const models::GgufTensor& tensor) {
  return {
      {"name", std::string(tensor.name)},
      {"type", tensor.type_name()},
      {"shape", std::vector<uint64_t>(tensor.dims.begin(), tensor.dims.begin() + tensor.num_dims)},
      {"bytes", tensor.bytes.size()}};
}

}  // namespace

std::string as_json(const Inspection& in, const InspectionFormat& format) {
  Json out = Json::object();
  out["file"] = in.file;
  out["name"] = in.gguf->name();
  out["gguf_version"] = in.gguf->version();
  out["file_bytes"] = in.gguf->file_bytes();
  out["files"] = in.gguf->parts().size();
  out["architecture"] = in.architecture;
  if (!in.title.empty()) out["title"] = in.title;
  out["parameters"] = in.parameters;
  out["tensor_bytes"] = in.tensor_bytes;
  out["runs"] = in.refused.empty();
  if (!in.refused.empty()) out["refused"] = in.refused;
  if (in.model) out["model"] = model_of(*in.model);
  out["types"] = json_rows(in.types, [](const TypeShare& share) {
    return Json{{"type", share.type},
                {"tensors", share.tensors},
                {"parameters", share.parameters},
                {"bytes", share.bytes}};
  });
  if (!in.tokenizer.kind.empty()) out["tokenizer"] = tokenizer_of(in.tokenizer);
  out["chat_templates"] = json_rows(in.templates, [](const ChatTemplate& chat) {
    return Json{{"name", chat.name}, {"bytes", chat.text.size()}, {"mentions", chat.mentions}};
  });
  out["metadata"] = json_rows(in.gguf->metadata(), [&](const models::GgufEntry& entry) {
    return metadata_entry(entry, format.all);
  });
  out["tensors"] = json_rows(in.gguf->tensors(), tensor_of);
  return ipc::dump_json(out) + "\n";
}

}  // namespace hearth::worker
