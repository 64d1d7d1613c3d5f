#include <limits>

#include "daemon/worker/load/inspection.h"
#include "daemon/worker/tools/inspect/metadata_value.h"
#include "ipc/wire/json.h"

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
    out["kind"] = sliding ? "sliding" : "full";
    if (sliding) out["window"] = group.window;
    out["layers"] = group.num_layers;
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
  Json out = Json::object();
  out["context_length"] = model.context_length;
  out["vocab_size"] = model.vocab_size;
  out["width"] = model.width;
  out["layers"] = model.num_layers;
  out["heads"] = model.num_heads;
  out["kv"] = kv_of(model);
  return out;
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
  Json special = Json::array();
  for (const SpecialToken& token : tokenizer.special) {
    Json each = Json::object();
    each["role"] = token.role;
    each["id"] = token.id;
    each["entry"] = std::string(token.entry);
    special.push_back(std::move(each));
  }
  out["special"] = std::move(special);
  return out;
}

}  // namespace

std::string as_json(const Inspection& in, const InspectionFormat& format) {
  Json out = Json::object();
  out["file"] = in.file;
  out["name"] = in.gguf->name();
  out["gguf_version"] = in.gguf->version();
  out["file_bytes"] = in.gguf->content().size();
  out["architecture"] = in.architecture;
  if (!in.title.empty()) out["title"] = in.title;
  out["parameters"] = in.parameters;
  out["tensor_bytes"] = in.tensor_bytes;
  out["runs"] = in.refused.empty();
  if (!in.refused.empty()) out["refused"] = in.refused;
  if (in.model) out["model"] = model_of(*in.model);
  Json types = Json::array();
  for (const TypeShare& share : in.types) {
    Json each = Json::object();
    each["type"] = share.type;
    each["tensors"] = share.tensors;
    each["parameters"] = share.parameters;
    each["bytes"] = share.bytes;
    types.push_back(std::move(each));
  }
  out["types"] = std::move(types);
  if (!in.tokenizer.kind.empty()) out["tokenizer"] = tokenizer_of(in.tokenizer);
  Json templates = Json::array();
  for (const ChatTemplate& chat : in.templates) {
    Json each = Json::object();
    each["name"] = chat.name;
    each["bytes"] = chat.text.size();
    each["mentions"] = chat.mentions;
    templates.push_back(std::move(each));
  }
  out["chat_templates"] = std::move(templates);
  Json metadata = Json::array();
  for (const models::GgufEntry& entry : in.gguf->metadata()) {
    metadata.push_back(metadata_entry(entry, format.all));
  }
  out["metadata"] = std::move(metadata);
  Json tensors = Json::array();
  for (const models::GgufTensor& tensor : in.gguf->tensors()) {
    Json each = Json::object();
    each["name"] = std::string(tensor.name);
    each["type"] = tensor.type_name();
    Json shape = Json::array();
    for (uint32_t d = 0; d < tensor.num_dims; ++d) shape.push_back(tensor.dims[d]);
    each["shape"] = std::move(shape);
    each["bytes"] = tensor.bytes.size();
    tensors.push_back(std::move(each));
  }
  out["tensors"] = std::move(tensors);
  return ipc::dump_json(out) + "\n";
}

}  // namespace hearth::worker
