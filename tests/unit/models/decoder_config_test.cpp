#include "models/decoder/decoder_config.h"

#include <doctest/doctest.h>

#include <string>

#include "models/model.h"
#include "tests/unit/models/tiny_model.h"

namespace hearth::models {
namespace {

Result<DecoderConfig> load(const GgufWriter& w) {
  const auto bytes = w.bytes();
  const auto file = GgufFile::parse(bytes, "config");
  REQUIRE(file.ok());
  Metadata metadata(file.value(), "llama");
  HEARTH_ASSIGN_OR_RETURN(DecoderConfig config, DecoderConfig::load_common(metadata));
  HEARTH_TRY(metadata.refuse_others());
  return config;
}

void check_refused(const GgufWriter& w, ErrorCode code, const std::string& message) {
  const auto config = load(w);
  REQUIRE_FALSE(config.ok());
  CHECK(config.error().code == code);
  CHECK(config.error().message == message);
}

GgufWriter good() {
  GgufWriter w;
  set_llama_metadata(&w, /*layers=*/2, /*width=*/64, /*ffn=*/172, /*heads=*/8, /*kv_heads=*/4);
  return w;
}

/// The valid metadata with `key` replaced by an integer.
GgufWriter with(const std::string& key, uint32_t value) {
  GgufWriter w;
  const auto set = [&](const char* name, uint32_t usual) {
    w.set_u32(name, key == name ? value : usual);
  };
  set("llama.context_length", 64);
  set("llama.embedding_length", 64);
  set("llama.block_count", 2);
  set("llama.feed_forward_length", 172);
  set("llama.attention.head_count", 8);
  set("llama.attention.head_count_kv", 4);
  w.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  return w;
}

TEST_CASE("the numbers of a model, and those derived where the file gives none") {
  const auto config = load(good());
  REQUIRE(config.ok());
  const DecoderConfig& c = config.value();
  CHECK(c.context_length == 64);
  CHECK(c.width == 64);
  CHECK(c.num_layers == 2);
  REQUIRE(c.layers.size() == 2);
  for (const LayerSpec& layer : c.layers) {
    CHECK(layer.ffn_width == 172);
    CHECK(layer.num_heads == 8);
    CHECK(layer.kv == kernels::KvShape::even(4, 8));
    CHECK(layer.q_width() == 64);
    CHECK(layer.qkv_width() == 128);
  }
  REQUIRE(c.ropes.size() == 1);
  CHECK(c.ropes[0].dim == 8);
  REQUIRE(c.groups.size() == 1);
  CHECK(c.groups[0].kind == LayerGroup::Kind::kFull);
  CHECK(c.groups[0].num_layers == 2);

  GgufWriter silent;  // no head_count_kv: as many as heads
  silent.set_u32("llama.context_length", 64);
  silent.set_u32("llama.embedding_length", 64);
  silent.set_u32("llama.block_count", 2);
  silent.set_u32("llama.feed_forward_length", 172);
  silent.set_u32("llama.attention.head_count", 8);
  silent.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  CHECK(load(silent).value().layers[0].kv.num_kv_heads == 8);
  // Mistral NeMo: heads whose total is not the width.
  silent.set_u32("llama.attention.key_length", 16);
  silent.set_u32("llama.attention.value_length", 16);
  CHECK(load(silent).value().layers[0].q_width() == 128);
}

TEST_CASE("layers fall into groups by the pattern of their windows") {
  DecoderConfig c;
  c.context_length = 100;
  c.num_layers = 5;
  LayerSpec spec;
  spec.num_heads = 2;
  spec.kv = kernels::KvShape::even(2, 8);
  c.layers.assign(5, spec);
  c.set_window(16, [](int32_t layer) { return layer % 3 != 2; });
  REQUIRE(c.groups.size() == 2);
  CHECK(c.groups[0].kind == LayerGroup::Kind::kFull);
  CHECK(c.groups[0].num_layers == 1);
  CHECK(c.groups[1].kind == LayerGroup::Kind::kSliding);
  CHECK(c.groups[1].window == 16);
  CHECK(c.groups[1].num_layers == 4);
  const std::vector<std::pair<int32_t, int32_t>> want = {{1, 0}, {1, 1}, {0, 0}, {1, 2}, {1, 3}};
  for (size_t i = 0; i < want.size(); ++i) {
    CHECK(c.layers[i].group == want[i].first);
    CHECK(c.layers[i].index == want[i].second);
    CHECK(c.is_sliding(static_cast<int32_t>(i)) == (want[i].first == 1));
  }
  c.set_window(16, [](int32_t) { return true; });
  REQUIRE(c.groups.size() == 1);
  CHECK(c.groups[0].window == 16);
  CHECK(c.layers[4].group == 0);
  CHECK(c.layers[4].index == 4);
  // A window that covers the context counts as none.
  c.set_window(100, [](int32_t) { return true; });
  REQUIRE(c.groups.size() == 1);
  CHECK(c.groups[0].kind == LayerGroup::Kind::kFull);
}

TEST_CASE("layers of equal window and KV shape form a group") {
  DecoderConfig c;
  c.context_length = 100;
  c.num_layers = 5;
  LayerSpec layer;
  layer.num_heads = 4;
  layer.kv = kernels::KvShape::even(2, 8);
  c.layers.assign(5, layer);
  c.layers[1].kv = c.layers[3].kv = kernels::KvShape::even(4, 16);
  c.layers[2].num_heads = 0;  // no attention: in no group
  c.layers[3].window = 16;
  c.group_layers();
  REQUIRE(c.groups.size() == 3);
  CHECK(c.groups[0].kv == kernels::KvShape::even(2, 8));
  CHECK(c.groups[0].num_layers == 2);
  CHECK(c.groups[1].kv == kernels::KvShape::even(4, 16));
  CHECK(c.groups[1].kind == LayerGroup::Kind::kFull);
  CHECK(c.groups[2].kv == kernels::KvShape::even(4, 16));
  CHECK(c.groups[2].window == 16);
  CHECK(c.layers[4].group == 0);
  CHECK(c.layers[4].index == 1);
  CHECK(c.layers[3].group == 2);
  // What is planned is what the layers need.
  int64_t bytes = 0;
  for (const LayerGroup& group : c.groups) bytes += group.block_bytes(kernels::DType::kF16, 16);
  CHECK(bytes == 16 * 2 * (2 * 2 * 2 * 8 + 2 * 2 * 4 * 16));
}

TEST_CASE("layers that share KV are in their owner's place and take none of their own") {
  DecoderConfig c;
  c.context_length = 100;
  c.num_layers = 6;
  LayerSpec layer;
  layer.num_heads = 4;
  layer.kv = kernels::KvShape::even(2, 8);
  c.layers.assign(6, layer);
  for (const int32_t i : {0, 2, 4}) c.layers[i].window = 16;
  c.layers[4].kv_owner = 2;
  c.layers[5].kv_owner = 3;
  c.group_layers();
  REQUIRE(c.groups.size() == 2);
  for (const LayerGroup& group : c.groups) {
    CHECK(group.num_layers == 2);
    CHECK(group.num_sharing == 1);
    CHECK(group.block_bytes(kernels::DType::kF16, 16) == 2 * 16 * 2 * 2 * 8 * 2);
  }
  CHECK(c.layers[4].group == 1);
  CHECK(c.layers[4].index == c.layers[2].index);
  CHECK(c.layers[5].group == 0);
  CHECK(c.layers[5].index == c.layers[3].index);
  CHECK(c.layers[5].qkv_width() == c.layers[5].q_width());
}

TEST_CASE("KV bytes per token of published shapes") {
  const auto per_token = [](int32_t layers, kernels::KvShape kv, int32_t sharing = 0) {
    DecoderConfig c;
    c.num_layers = layers;
    LayerSpec layer;
    layer.num_heads = 16;
    layer.kv = kv;
    c.layers.assign(layers, layer);
    for (int32_t i = layers - sharing; i < layers; ++i) c.layers[i].kv_owner = 0;
    c.group_layers();
    int64_t bytes = 0;
    for (const LayerGroup& group : c.groups) bytes += group.block_bytes(kernels::DType::kF16, 16);
    return bytes / 16;
  };
  CHECK(per_token(32, kernels::KvShape::even(8, 128)) == 131'072);  // Llama 3 8B
  kernels::KvShape latent{1, 512 + 64, 512};
  latent.v_in_k = true;
  CHECK(per_token(1, latent) == 1'152);
  CHECK(per_token(27, latent) == 31'104);  // DeepSeek V2 Lite
  // Gemma 3n E4B: 15 of its 35 layers share.
  const auto gemma = kernels::KvShape::even(2, 256);
  CHECK(per_token(35, gemma, 15) == per_token(20, gemma));
}

TEST_CASE("a file may give one number for all layers, or one for each") {
  const auto each = [&](const char* key, std::vector<int32_t> values) {
    GgufWriter changed;
    for (const char* name : {"llama.context_length", "llama.embedding_length"}) {
      changed.set_u32(name, 64);
    }
    changed.set_u32("llama.block_count", 2);
    changed.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    const auto set = [&](const char* name, uint32_t usual) {
      if (std::string(key) == name) return changed.set_i32s(name, values);
      changed.set_u32(name, usual);
    };
    set("llama.feed_forward_length", 172);
    set("llama.attention.head_count", 8);
    set("llama.attention.head_count_kv", 4);
    return changed;
  };
  const auto heads = load(each("llama.attention.head_count", {8, 4}));
  REQUIRE(heads.ok());
  CHECK(heads->layers[0].num_heads == 8);
  CHECK(heads->layers[1].num_heads == 4);
  CHECK(heads->groups.size() == 1);
  const auto kv_heads = load(each("llama.attention.head_count_kv", {4, 2}));
  REQUIRE(kv_heads.ok());
  CHECK(kv_heads->groups.size() == 2);
  const auto widths = load(each("llama.feed_forward_length", {172, 64}));
  REQUIRE(widths.ok());
  CHECK(widths->layers[1].ffn_width == 64);
  CHECK(widths->most([](const LayerSpec& layer) { return layer.ffn_width; }) == 172);

  check_refused(each("llama.attention.head_count", {8, 4, 8}), ErrorCode::kCorrupt,
                "llama.attention.head_count: an array of 3 i32, want a number for each of the 2 "
                "layers");
  check_refused(each("llama.feed_forward_length", {172, 0}), ErrorCode::kCorrupt,
                "llama.feed_forward_length: 0 for layer 1, want 1 to 1048576");
  check_refused(each("llama.feed_forward_length", {-5, 172}), ErrorCode::kCorrupt,
                "llama.feed_forward_length: -5 for layer 0, want 1 to 1048576");
  check_refused(each("llama.attention.head_count_kv", {4, 3}), ErrorCode::kCorrupt,
                "llama.attention.head_count_kv: 3, want a divisor of the 8 heads");
}

TEST_CASE("K and V may have different sizes") {
  GgufWriter w = good();
  w.set_u32("llama.attention.key_length", 24);
  w.set_u32("llama.attention.value_length", 16);
  const auto config = load(w);
  REQUIRE(config.ok());
  CHECK(config->groups[0].kv == kernels::KvShape{4, 24, 16});
  CHECK(config->layers[0].out_width() == 8 * 16);
  CHECK(config->layers[0].qkv_width() == 8 * 24 + 4 * 24 + 4 * 16);
}

TEST_CASE("impossible numbers are errors that name the key") {
  for (const char* key : {"llama.context_length", "llama.embedding_length", "llama.block_count",
                          "llama.feed_forward_length", "llama.attention.head_count",
                          "llama.attention.head_count_kv"}) {
    for (const uint32_t value : {0u, UINT32_MAX}) {
      const auto config = load(with(key, value));
      REQUIRE_FALSE(config.ok());
      CHECK(config.error().code == ErrorCode::kCorrupt);
      CHECK(config.error().message.starts_with(std::string(key) + ": " + std::to_string(value)));
    }
  }
  check_refused(with("llama.attention.head_count_kv", 3), ErrorCode::kCorrupt,
                "llama.attention.head_count_kv: 3, want a divisor of the 8 heads");
  check_refused(with("llama.embedding_length", 65), ErrorCode::kCorrupt,
                "llama.attention.head_count: 8, want a divisor of the width 65");
  check_refused(GgufWriter(), ErrorCode::kCorrupt, "llama.context_length: missing");
}

TEST_CASE("variations of the architecture are refused by name") {
  const auto refused_u32 = [](const char* key, uint32_t value, const std::string& met) {
    GgufWriter w = good();
    w.set_u32(key, value);
    check_refused(
        w, ErrorCode::kUnsupported,
        std::string(key) + ": " + met + ", which this build does not do for architecture llama");
  };
  refused_u32("llama.expert_count", 8, "8");
  refused_u32("llama.attention.new_kind", 1, "1");
  GgufWriter capped = good();
  capped.set_f32("llama.final_logit_softcapping", 30.0f);
  check_refused(capped, ErrorCode::kUnsupported,
                "llama.final_logit_softcapping: 30, which this build does not do for architecture "
                "llama");
  GgufWriter both_ways = good();
  both_ways.set_bool("llama.attention.causal", false);
  CHECK_FALSE(load(both_ways).ok());
  GgufWriter harmless = good();
  harmless.set_u32("llama.expert_count", 0);
  harmless.set_f32("llama.logit_scale", 0.0f);
  harmless.set_bool("llama.use_parallel_residual", false);
  harmless.set_bool("llama.attention.causal", true);
  harmless.set_u32("llama.vocab_size", 512);
  harmless.set_string("llama.nickname", "");
  CHECK(load(harmless).ok());
  GgufWriter each_layer = good();
  const int32_t widths[] = {64, 64};
  each_layer.set_i32s("llama.feed_forward_lengths", widths);
  check_refused(each_layer, ErrorCode::kUnsupported,
                "llama.feed_forward_lengths: an array of 2, which this build does not do for "
                "architecture llama");
}

// ---- Tensors --------------------------------------------------------------------------------

void check_load_refused(const GgufWriter& w, ErrorCode code, const std::string& message) {
  const auto bytes = w.bytes();
  const auto file = GgufFile::parse(bytes, "model");
  REQUIRE(file.ok());
  const auto model = load_model(file.value(), kernels::reference_ops(), nullptr);
  REQUIRE_FALSE(model.ok());
  CHECK(model.error().code == code);
  CHECK(model.error().message == message);
}

GgufWriter tiny_without(const std::string& omitted) {
  GgufWriter w;
  w.set_string("general.architecture", "llama");
  set_llama_metadata(&w);
  add_llama_tensors(&w, 16, omitted);
  return w;
}

TEST_CASE("each missing or ill-shaped tensor is named") {
  check_load_refused(tiny_without("token_embd.weight"), ErrorCode::kCorrupt,
                     "token_embd.weight: missing, want shape [8,1]");
  check_load_refused(tiny_without("blk.0.attn_q.weight"), ErrorCode::kCorrupt,
                     "blk.0.attn_q.weight: missing, want shape [8,8]");
  check_load_refused(tiny_without("output_norm.weight"), ErrorCode::kCorrupt,
                     "output_norm.weight: missing, want shape [8]");
  for (const char* name : {"attn_norm", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate",
                           "ffn_up", "ffn_down"}) {
    const std::string full = std::string("blk.0.") + name + ".weight";
    GgufWriter w = tiny_without(full);
    add_ones(&w, full, {8, 7});
    const auto bytes = w.bytes();
    const auto file = GgufFile::parse(bytes, "model");
    REQUIRE(file.ok());
    const auto model = load_model(file.value(), kernels::reference_ops(), nullptr);
    REQUIRE_FALSE(model.ok());
    CHECK(model.error().message.starts_with(full + ": shape [8,7], want ["));
  }
}

TEST_CASE("tensors unknown to the family are refused, known leftovers are not") {
  GgufWriter extra = tiny_without("");
  add_ones(&extra, "blk.0.attn_q_norm.weight", {4});
  check_load_refused(extra, ErrorCode::kUnsupported,
                     "blk.0.attn_q_norm.weight: a tensor of shape [4] that this architecture has "
                     "no place for");
  GgufWriter layer_too_many = tiny_without("");
  add_ones(&layer_too_many, "blk.1.attn_norm.weight", {8});
  check_load_refused(layer_too_many, ErrorCode::kUnsupported,
                     "blk.1.attn_norm.weight: a tensor of shape [8] that this architecture has no "
                     "place for");
  GgufWriter relic = tiny_without("");
  add_ones(&relic, "blk.0.attn_rot_embd.weight", {2});
  const auto bytes = relic.bytes();
  CHECK(
      load_model(GgufFile::parse(bytes, "relic").value(), kernels::reference_ops(), nullptr).ok());
}

TEST_CASE("biases are joined as their matrices are") {
  GgufWriter w = tiny_without("");
  add_ones(&w, "blk.0.attn_q.bias", {8});
  check_load_refused(w, ErrorCode::kUnsupported,
                     "blk.0.attn_q.bias: a bias without those it is joined with");
}

TEST_CASE("stored rope divisors are checked") {
  GgufWriter zero = tiny_without("");
  const uint64_t dims[] = {2};
  const std::vector<float> divisors = {1.0f, 0.0f};
  zero.add_floats("rope_freqs.weight", dims, kernels::DType::kF32, divisors);
  check_load_refused(zero, ErrorCode::kCorrupt,
                     "rope_freqs.weight: element 1 is 0, want finite numbers above 0");
}

TEST_CASE("types that cannot be computed with are refused by tensor") {
  GgufWriter w = tiny_without("blk.0.ffn_up.weight");
  const uint64_t dims[] = {8, 12};
  w.add_tensor("blk.0.ffn_up.weight", dims, kernels::DType::kI8, std::vector<std::byte>(96));
  check_load_refused(w, ErrorCode::kUnsupported,
                     "blk.0.ffn_up.weight: I8, which this build cannot compute with");
}

TEST_CASE("the embedding has a row for each token of the vocabulary") {
  GgufWriter w = vocab_file(small_vocab());
  set_llama_metadata(&w);
  add_llama_tensors(&w, 16);
  check_load_refused(w, ErrorCode::kCorrupt,
                     "token_embd.weight: shape [8,16], want a row for each of the 299 tokens");
}

TEST_CASE("other architectures are refused by name") {
  GgufWriter w;
  w.set_string("general.architecture", "bloom");
  const auto bytes = w.bytes();
  const auto file = GgufFile::parse(bytes, "model");
  const auto model = load_model(file.value(), kernels::reference_ops(), nullptr);
  REQUIRE_FALSE(model.ok());
  CHECK(model.error().code == ErrorCode::kUnsupported);
  CHECK(model.error().message.starts_with(
      "general.architecture: \"bloom\", this build knows llama, qwen2, qwen3"));
  check_load_refused(GgufWriter(), ErrorCode::kCorrupt, "general.architecture: missing");
}

}  // namespace
}  // namespace hearth::models
