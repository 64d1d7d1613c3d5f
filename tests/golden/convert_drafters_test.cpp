// Published EAGLE-3 heads and DFlash drafters, converted: the file of the recordings, and what is
// refused.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "models/convert/convert.h"
#include "models/gguf/gguf_file.h"
#include "models/model.h"
#include "tests/golden/family_model.h"
#include "tests/golden/published_folder.h"
#include "tests/golden/random_llama.h"
#include "tests/temp_dir.h"

namespace hearth::golden {
namespace {

using nlohmann::json;
using tests::TempDir;

/// The names of a published head, by those of its file.
const std::map<std::string, std::string>& published_names() {
  static const std::map<std::string, std::string> names = {
      {"fc.weight", "fc.weight"},
      {"enc.output_norm.weight", "input_norm.weight"},
      {"blk.0.attn_norm.weight", "L.input_layernorm.weight"},
      {"blk.0.attn_norm_2.weight", "L.hidden_norm.weight"},
      {"blk.0.attn_q.weight", "L.self_attn.q_proj.weight"},
      {"blk.0.attn_k.weight", "L.self_attn.k_proj.weight"},
      {"blk.0.attn_v.weight", "L.self_attn.v_proj.weight"},
      {"blk.0.attn_output.weight", "L.self_attn.o_proj.weight"},
      {"blk.0.ffn_norm.weight", "L.post_attention_layernorm.weight"},
      {"blk.0.ffn_gate.weight", "L.mlp.gate_proj.weight"},
      {"blk.0.ffn_up.weight", "L.mlp.up_proj.weight"},
      {"blk.0.ffn_down.weight", "L.mlp.down_proj.weight"},
      {"output_norm.weight", "norm.weight"},
      {"output.weight", "lm_head.weight"},
      {"token_embd.weight", "embed_tokens.weight"},
  };
  return names;
}

struct PublishedHead {
  json config;
  json header;       ///< of the safetensors file
  std::string data;  ///< after it

  void add(const std::string& name, const char* type, const std::vector<uint64_t>& shape,
           std::span<const std::byte> bytes) {
    header[name] = {{"dtype", type},
                    {"shape", shape},
                    {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void write_to(const std::filesystem::path& folder) const {
    write(folder / "config.json", config.dump());
    const std::string text = header.dump();
    const uint64_t size = text.size();
    std::string length(sizeof size, '\0');
    std::memcpy(length.data(), &size, sizeof size);
    write(folder / "model.safetensors", length + text + data);
  }
};

/// Published weights rotate a head's first half with its second: row i of the file is row
/// i / 2 + (i odd ? half : 0) of the published one.
std::vector<float> as_halves(const std::vector<float>& rows, uint64_t cols, uint64_t head_dim) {
  std::vector<float> out(rows.size());
  for (uint64_t row = 0; row < rows.size() / cols; ++row) {
    const uint64_t lane = row % head_dim;
    const uint64_t to = row - lane + lane % 2 * (head_dim / 2) + lane / 2;
    std::copy_n(rows.begin() + static_cast<ptrdiff_t>(row * cols), cols,
                out.begin() + static_cast<ptrdiff_t>(to * cols));
  }
  return out;
}

/// What config.json of both kinds has.
json layer_config(const DrafterModel& head) {
  const auto at = [&](const char* key) {
    return head.model.metadata.at(head.model.architecture + "." + key);
  };
  return {{"hidden_act", "silu"},
          {"hidden_size", at("embedding_length")},
          {"num_hidden_layers", at("block_count")},
          {"num_attention_heads", at("attention.head_count")},
          {"num_key_value_heads", at("attention.head_count_kv")},
          {"head_dim", at("attention.key_length")},
          {"intermediate_size", at("feed_forward_length")},
          {"max_position_embeddings", at("context_length")},
          {"rms_norm_eps", at("attention.layer_norm_rms_epsilon")},
          {"rope_theta", at("rope.freq_base")},
          {"vocab_size", at("vocab_size")}};
}

PublishedHead published(const DrafterModel& head, const std::string& layer = "midlayer") {
  const json& keys = head.model.metadata;
  const auto at = [&](const char* key) { return keys.at(std::string("eagle3.") + key); };
  PublishedHead out;
  out.config = layer_config(head);
  out.config.update({{"architectures", {"LlamaForCausalLMEagle3"}},
                     {"target_hidden_size", at("target_hidden_size")},
                     {"norm_before_residual", at("norm_before_residual")},
                     {"norm_before_fc", at("norm_before_fc")},
                     {"eagle_aux_hidden_state_layer_ids", at("target_layers")}});
  for (const FamilyTensor& tensor : head.model.tensors) {
    std::vector<float> values = family_values(tensor, head.model.seed);
    if (tensor.name.ends_with("attn_q.weight") || tensor.name.ends_with("attn_k.weight")) {
      values = as_halves(values, tensor.dims[0], at("attention.key_length"));
    }
    std::string name = published_names().at(tensor.name);
    if (name.starts_with("L.")) name.replace(0, 1, layer);
    out.add(name, "F32", {tensor.dims.rbegin(), tensor.dims.rend()},
            std::as_bytes(std::span(values)));
  }
  if (head.tokens.empty()) return out;
  std::vector<int64_t> offsets;
  for (const int32_t token : head.tokens) {
    offsets.push_back(token - static_cast<int64_t>(offsets.size()));
  }
  out.add("d2t", "I64", {offsets.size()}, std::as_bytes(std::span(offsets)));
  const std::vector<std::byte> mask(at("vocab_size").get<size_t>());
  out.add("t2d", "BOOL", {mask.size()}, mask);
  return out;
}

/// The file that such a folder becomes is that of the recording, and its model takes it.
void check_becomes(const PublishedHead& folder, const DrafterModel& head) {
  const TempDir dir;
  folder.write_to(dir.path());
  const auto report = models::convert_folder(dir.path(), dir.path() / "out.gguf", {}, nullptr);
  REQUIRE_MESSAGE(report.ok(), report.error().message);
  CHECK(report->architecture == head.model.architecture);
  const OwnedFile want(head.file_bytes(kernels::DType::kF32));
  const models::GgufFile file = open_file(dir.path() / "out.gguf");
  CHECK(file.tensors().size() == want.file.tensors().size());
  for (const models::GgufTensor& tensor : want.file.tensors()) {
    INFO(tensor.name);
    const models::GgufTensor* met = file.find_tensor(tensor.name);
    REQUIRE(met != nullptr);
    CHECK(met->shape() == tensor.shape());
    CHECK(met->dtype == tensor.dtype);
    CHECK(std::ranges::equal(met->bytes, tensor.bytes));
  }
  for (const models::GgufEntry& entry : want.file.metadata()) {
    INFO(entry.key);
    const models::GgufEntry* met = file.find(entry.key);
    REQUIRE(met != nullptr);
    CHECK(std::ranges::equal(met->payload, entry.payload));
  }
  const OwnedFile model(read_family(head.target).file_bytes(kernels::DType::kF32));
  const auto loaded =
      models::load_model(model.file, kernels::reference_ops(), nullptr, {.heads = &file});
  CHECK_MESSAGE(loaded.ok(), loaded.error().message);
}

TEST_CASE("convert: an EAGLE-3 head becomes the file of its recording") {
  for (const DrafterModel& head : read_drafters("eagle3")) {
    for (const char* layer : {"midlayer", "layers.0", "model.layers.0"}) {
      INFO(head.model.name << ", " << layer);
      check_becomes(published(head, layer), head);
    }
  }
}

/// A tensor of a published drafter, by its name in the recording.
std::string published_dflash_name(const std::string& name) {
  static const std::map<std::string, std::string> parts = {{"fc", "fc"},
                                                           {"enc.output_norm", "hidden_norm"},
                                                           {"output_norm", "norm"},
                                                           {"token_embd", "embed_tokens"},
                                                           {"output", "lm_head"},
                                                           {"attn_norm", "input_layernorm"},
                                                           {"attn_q", "self_attn.q_proj"},
                                                           {"attn_k", "self_attn.k_proj"},
                                                           {"attn_v", "self_attn.v_proj"},
                                                           {"attn_q_norm", "self_attn.q_norm"},
                                                           {"attn_k_norm", "self_attn.k_norm"},
                                                           {"attn_output", "self_attn.o_proj"},
                                                           {"ffn_norm", "post_attention_layernorm"},
                                                           {"ffn_gate", "mlp.gate_proj"},
                                                           {"ffn_up", "mlp.up_proj"},
                                                           {"ffn_down", "mlp.down_proj"}};
  std::string part = name.substr(0, name.size() - std::string(".weight").size());
  std::string layer;
  if (part.starts_with("blk.")) {
    const size_t end = part.find('.', 4);
    layer = "layers." + part.substr(4, end - 4) + ".";
    part = part.substr(end + 1);
  }
  return layer + parts.at(part) + ".weight";
}

PublishedHead published_dflash(const DrafterModel& head, const std::string& prefix) {
  const json& keys = head.model.metadata;
  const auto at = [&](const char* key) { return keys.at(std::string("dflash.") + key); };
  json layers = json::array();
  for (const int32_t layer : at("target_layers")) layers.push_back(layer - 1);
  PublishedHead out;
  out.config = layer_config(head);
  out.config.update({{"architectures", {"DFlashDraftModel"}},
                     {"model_type", "qwen3"},
                     {"block_size", at("block_size")},
                     {"use_sliding_window", false},
                     {"is_causal", at("attention.causal")},
                     {"dflash_config",
                      {{"mask_token_id", keys.at("tokenizer.ggml.mask_token_id")},
                       {"target_layer_ids", layers}}}});
  for (const FamilyTensor& tensor : head.model.tensors) {
    const std::vector<float> values = family_values(tensor, head.model.seed);
    out.add(prefix + published_dflash_name(tensor.name), "F32",
            {tensor.dims.rbegin(), tensor.dims.rend()}, std::as_bytes(std::span(values)));
  }
  return out;
}

/// One without keys that published files lack.
DrafterModel usual_dflash() {
  for (const DrafterModel& head : read_drafters("dflash")) {
    if (head.model.name == "qwen35_causal") return head;
  }
  FAIL("missing");
  return {};
}

TEST_CASE("convert: a DFlash drafter becomes the file of its recording") {
  for (const char* prefix : {"", "model."}) {
    INFO(prefix);
    const DrafterModel head = usual_dflash();
    check_becomes(published_dflash(head, prefix), head);
  }
}

TEST_CASE("convert: the layers of an EAGLE-3 head follow from its model if no key names them") {
  const DrafterModel head = read_drafters("eagle3").front();
  PublishedHead folder = published(head);
  folder.config.erase("eagle_aux_hidden_state_layer_ids");
  folder.config.erase("target_hidden_size");
  const TempDir dir;
  folder.write_to(dir.path());
  const auto out = dir.path() / "out.gguf";
  const auto refused = models::convert_folder(dir.path(), out, {}, nullptr);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("want it or --target") != std::string::npos);
  LlamaShape shape = llama_shapes().front();
  shape.layers = 7;
  const std::vector<std::byte> model = RandomLlama(shape, 3).file_bytes(kernels::DType::kF32);
  write(dir.path() / "m.gguf",
        std::string(reinterpret_cast<const char*>(model.data()), model.size()));
  models::ConvertOptions options;
  options.target = dir.path() / "m.gguf";
  const auto report = models::convert_folder(dir.path(), out, options, nullptr);
  REQUIRE_MESSAGE(report.ok(), report.error().message);
  const models::GgufFile file = open_file(out);
  const auto layers = *file.get<models::GgufNumbers<int32_t>>("eagle3.target_layers");
  CHECK(layers[0] == 2);
  CHECK(layers[1] == 3);
  CHECK(layers[2] == 4);
  CHECK(*file.get<uint32_t>("eagle3.target_hidden_size") == 64);
}

/// The error of converting the folder after a change; it leaves no file.
std::string refusal_of(PublishedHead folder, const std::function<void(PublishedHead&)>& change) {
  change(folder);
  const TempDir dir;
  folder.write_to(dir.path());
  const auto report = models::convert_folder(dir.path(), dir.path() / "out.gguf", {}, nullptr);
  CHECK_FALSE(std::filesystem::exists(dir.path() / "out.gguf"));
  return report.ok() ? std::string("converted") : report.error().message;
}

void names(const std::string& message, const char* part) {
  CHECK_MESSAGE(message.find(part) != std::string::npos, message);
}

TEST_CASE("convert: EAGLE-3 heads of another form are refused by name") {
  std::vector<DrafterModel> heads = read_drafters("eagle3");
  std::erase_if(heads, [](const DrafterModel& each) { return each.tokens.empty(); });
  const DrafterModel head = heads.at(0);
  const auto refusal = [&](const auto& change) { return refusal_of(published(head), change); };
  names(refusal([](PublishedHead& h) { h.config["num_hidden_layers"] = 2; }), "num_hidden_layers");
  names(refusal([](PublishedHead& h) { h.config["vocab_size"] = 0; }), "vocab_size");
  names(refusal([](PublishedHead& h) {
          h.config["eagle_aux_hidden_state_layer_ids"] = {1, 2};
        }),
        "eagle_aux_hidden_state_layer_ids");
  names(refusal([](PublishedHead& h) { h.config["eagle_aux_hidden_state_layer_ids"][1] = -1; }),
        "eagle_aux_hidden_state_layer_ids");
  names(refusal([](PublishedHead& h) { h.config["target_hidden_size"] = 65; }), "fc.weight: shape");
  names(refusal([](PublishedHead& h) { h.header.erase("fc.weight"); }), "fc.weight: missing");
  names(refusal([](PublishedHead& h) { h.header.erase("lm_head.weight"); }),
        "lm_head.weight: missing");
  names(refusal([](PublishedHead& h) { h.config["vocab_size"] = 100; }), "d2t: element 34 is");
  names(refusal([](PublishedHead& h) { h.header["d2t"]["dtype"] = "F64"; }), "d2t: F64");
  names(refusal([](PublishedHead& h) { h.add("more", "F32", {1}, std::vector<std::byte>(4)); }),
        "more: not a tensor");
}

TEST_CASE("convert: DFlash drafters of another form are refused by name") {
  const DrafterModel head = usual_dflash();
  const auto refusal = [&](const auto& change) {
    return refusal_of(published_dflash(head, ""), change);
  };
  names(refusal([](PublishedHead& h) { h.config["use_sliding_window"] = true; }),
        "use_sliding_window");
  names(refusal([](PublishedHead& h) { h.config.erase("block_size"); }), "block_size");
  names(refusal([](PublishedHead& h) { h.config["dflash_config"].erase("mask_token_id"); }),
        "mask_token_id");
  names(refusal([](PublishedHead& h) { h.config["dflash_config"]["mask_token_id"] = 1 << 20; }),
        "mask_token_id");
  names(refusal([](PublishedHead& h) { h.config["dflash_config"]["target_layer_ids"] = {-1}; }),
        "target_layer_ids");
  names(refusal([](PublishedHead& h) { h.config["dflash_config"]["target_layer_ids"] = {1}; }),
        "fc.weight: shape");
  names(refusal([](PublishedHead& h) { h.header.erase("layers.1.mlp.up_proj.weight"); }),
        "layers.1.mlp.up_proj.weight: missing");
  names(refusal([](PublishedHead& h) {
          h.add("markov_w1.weight", "F32", {1}, std::vector<std::byte>(4));
        }),
        "markov_w1.weight: not a tensor of a DFlash drafter");
}

}  // namespace
}  // namespace hearth::golden
