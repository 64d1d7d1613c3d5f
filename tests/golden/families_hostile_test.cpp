// Files of every family with an error: a named error, never a crash.

#include <doctest/doctest.h>

#include <limits>

#include "models/gguf/gguf_file.h"
#include "models/model.h"
#include "tests/golden/family_model.h"

namespace hearth::golden {
namespace {

/// Empty where the file loads.
std::string refusal(const FamilyModel& model) {
  const auto bytes = model.file_bytes(kernels::DType::kF32);
  const auto file = models::GgufFile::parse(bytes, "hostile");
  if (!file.ok()) return file.error().message;
  const auto loaded =
      models::load_model(*file, kernels::reference_ops(), nullptr, {.draft_layer = true});
  return loaded.ok() ? "" : loaded.error().message;
}

TEST_CASE("families: each missing, ill-shaped or unknown tensor is named") {
  for (const std::string& name : family_names()) {
    const FamilyModel model = read_family(name);
    for (size_t i = 0; i < model.tensors.size(); ++i) {
      const std::string& tensor = model.tensors[i].name;
      // All layers run the same code: tests the first one's tensors, those of no layer and those of
      // drafting.
      const size_t drafting = tensor.find(".nextn.");
      if (tensor.starts_with("blk.") && !tensor.starts_with("blk.0.") &&
          !tensor.starts_with("blk.1.time_mix_v") && drafting == std::string::npos) {
        continue;
      }
      const bool unused = tensor.starts_with("blk.0.time_mix_v") &&  // but not _value
                          tensor.size() == std::string_view("blk.0.time_mix_v0.weight").size();
      INFO(name << ", " << tensor);
      FamilyModel without = model;
      without.tensors.erase(without.tensors.begin() + static_cast<ptrdiff_t>(i));
      const std::string missing = refusal(without);
      // Without an output matrix the head is tied, without its scale a layer has none; without its
      // long factors a rotation has none.
      const bool own = drafting != std::string::npos && !tensor.ends_with("eh_proj.weight") &&
                       !tensor.ends_with("enorm.weight") && !tensor.ends_with("hnorm.weight");
      // A layer for drafting may have an embedding and a head of its own.
      if (tensor == "output.weight" || tensor == "blk.0.layer_output_scale.weight" || own ||
          unused) {
        CHECK(missing.empty());
      } else if (tensor == "rope_factors_long.weight") {
        CHECK(missing.starts_with("rope_factors_short.weight: a tensor of shape"));
      } else if (tensor == "blk.0.ffn_gate_up_exps.weight") {
        CHECK(missing.starts_with("blk.0.ffn_gate_exps.weight: missing, want shape ["));
      } else if (missing.ends_with("a bias without those it is joined with")) {
        CHECK_MESSAGE(missing.starts_with("blk.0.attn_"), missing);  // they are optional together
      } else if (name.starts_with("glm4moe") && tensor == "blk.0.attn_q_norm.weight") {
        CHECK_MESSAGE(missing.starts_with("blk.0.attn_k_norm.weight: a tensor of shape"), missing);
      } else if (name == "arwkv7" && tensor == "blk.0.time_mix_ln.weight") {
        CHECK_MESSAGE(missing.starts_with("blk.0.time_mix_ln.bias: a tensor of shape"), missing);
      } else if (tensor == "blk.0.ffn_gate_up_exps.weight") {
        CHECK_MESSAGE(missing.starts_with("blk.0.ffn_gate_exps.weight: missing"), missing);
      } else {
        CHECK_MESSAGE(missing.starts_with(tensor + ": missing, want shape ["), missing);
      }
      FamilyModel misshapen = model;
      misshapen.tensors[i].dims.front() += 8;
      if (unused) continue;
      CHECK_MESSAGE(refusal(misshapen).starts_with(tensor + ": shape ["), refusal(misshapen));
    }
    FamilyModel more = model;
    more.tensors.push_back({"blk.0.ffn_gate_lora.weight", {8}, 0, 1});
    CHECK(refusal(more).starts_with("blk.0.ffn_gate_lora.weight: a tensor of shape [8]"));
  }
}

TEST_CASE("families: absurd metadata is named or harmless") {
  for (const std::string& name : family_names()) {
    const FamilyModel model = read_family(name);
    const std::string prefix = model.architecture + ".";
    for (const auto& [key, usual] : model.metadata.items()) {
      for (const nlohmann::json& absurd :
           {nlohmann::json(0u), nlohmann::json(0xFFFFFFFFu), nlohmann::json(3u),
            nlohmann::json(-1.5), nlohmann::json(std::numeric_limits<double>::infinity()),
            nlohmann::json("text"), nlohmann::json(true)}) {
        INFO(name << ", " << key << " = " << absurd.dump());
        FamilyModel wrong = model;
        wrong.metadata[key] = absurd;
        const std::string message = refusal(wrong);
        if (message.empty()) continue;
        // Names the key itself, another key of this architecture that contradicts it, or a tensor's
        // shape.
        const bool named = message.starts_with(prefix) || message.find("weight: ") < 60;
        CHECK_MESSAGE(named, message);
      }
    }
    const bool rms = model.metadata.contains(prefix + "attention.layer_norm_rms_epsilon");
    for (const char* key :
         {"block_count", "embedding_length", "attention.head_count",
          rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
          "context_length"}) {
      FamilyModel without = model;
      without.metadata.erase(prefix + key);
      CHECK(refusal(without) == prefix + key + ": missing");
    }
    FamilyModel unknown = model;
    unknown.metadata[prefix + "attention.new_kind"] = 2u;
    CHECK(refusal(unknown) == prefix +
                                  "attention.new_kind: 2, which this build does not do for "
                                  "architecture " +
                                  model.architecture);
  }
}

TEST_CASE("families: numbers per layer that contradict each other or the tensors are named") {
  const FamilyModel model = read_family("deci");
  const auto check = [&](const std::string& key, const nlohmann::json& value,
                         const std::string& message) {
    FamilyModel wrong = model;
    wrong.metadata["deci." + key] = value;
    CHECK(refusal(wrong) == message);
  };
  const std::string heads = "attention.head_count";
  const std::string kv_heads = "attention.head_count_kv";
  const std::string ffn = "feed_forward_length";
  CHECK(refusal(model).empty());
  check(heads, {0, 0, 0, 0, 0},
        "deci.attention.head_count: 0 for every layer, want attention in at least one");
  check(kv_heads, {0, 0, 0, 0, 0},
        "deci.attention.head_count_kv: 0 for every layer, want attention in at least one");
  check(kv_heads, {2, 1, 0, 0, 1},
        "deci.attention.head_count_kv: 1 for layer 1, which has no heads");
  check(kv_heads, {3, 0, 0, 0, 1},
        "deci.attention.head_count_kv: 3, want a divisor of the 4 heads");
  check(heads, {4, 0, 4, 0},
        "deci.attention.head_count: an array of 4 i32, want a number for each of the 5 layers");
  check(heads, {4, 0, -4, 0, 4}, "deci.attention.head_count: -4 for layer 2, want 0 to 1048576");
  check(ffn, {96, 96, 1 << 30, 0, 64},
        "deci.feed_forward_length: 1073741824 for layer 2, want 0 to 1048576");
  check(ffn, {96, 96, 160, 96, 64}, "blk.3.ffn_norm.weight: missing, want shape [64]");
  check(ffn, {0, 96, 160, 0, 64},
        "blk.0.ffn_norm.weight: a tensor of shape [64] that this architecture has no place for");
  check(heads, {4, 0, 0, 0, 4},
        "blk.2.attn_norm.weight: a tensor of shape [64] that this architecture has no place for");
  FamilyModel without = model;
  without.metadata.erase("deci.feed_forward_length");
  CHECK(refusal(without) == "deci.feed_forward_length: missing");

  FamilyModel lengthless = read_family("mistral4");
  lengthless.metadata.erase("mistral4.attention.temperature_length");
  CHECK(refusal(lengthless) == "mistral4.attention.temperature_length: missing");
  FamilyModel pattern = read_family("muse_glimmer");
  pattern.metadata["muse-glimmer.attention.sliding_window_pattern"] = {true, false};
  CHECK(refusal(pattern) ==
        "muse-glimmer.attention.sliding_window_pattern: an array of 2 bool, want a bool for each "
        "of the 5 layers");
}

/// What a file of `name` with this value in place of the key's own is refused with.
std::string refusal_with(const std::string& name, const std::string& key,
                         const nlohmann::json& value) {
  FamilyModel model = read_family(name);
  model.metadata[model.architecture + "." + key] = value;
  return refusal(model);
}

TEST_CASE("families: KV shared with no layer, or with one of another shape") {
  using Json = nlohmann::json;
  const std::string shared = "attention.shared_kv_layers";
  CHECK(refusal_with("gemma3n", shared, 7u) ==
        "gemma3n.attention.shared_kv_layers: 7, want 0 to 6");
  CHECK(refusal_with("gemma3n", shared, 0xFFFFFFFFu) ==
        "gemma3n.attention.shared_kv_layers: 4294967295, want 0 to 6");
  CHECK(refusal_with("gemma3n", shared, 6u) ==
        "gemma3n.attention.shared_kv_layers: 6, but none of the 1 layers before them is full as "
        "layer 1");
  CHECK(refusal_with("gemma3n", "attention.sliding_window_pattern",
                     Json{false, false, false, false, false, true, false}) ==
        "gemma3n.attention.shared_kv_layers: 2, but none of the 5 layers before them slides as "
        "layer 5");
  CHECK(refusal_with("gemma4", "attention.head_count_kv", Json{2, 2, 2, 2, 1, 2, 2}) ==
        "gemma4.attention.shared_kv_layers: 3, but layer 4 has heads of other sizes than layer 2, "
        "whose keys and values it shares");
  // Fewer layers share: those that no longer do have no tensors for their keys.
  CHECK(refusal_with("gemma4", shared, 2u).starts_with("blk.4.attn_k.weight: missing"));
  CHECK(refusal_with("gemma3n", shared, 0u).empty());
}

TEST_CASE("families: arrays of Gemma 3n and 4 that are missing, too short or absurd") {
  using Json = nlohmann::json;
  const std::string cutoffs = "activation_sparsity_scale";
  FamilyModel without = read_family("gemma3n");
  without.metadata.erase("gemma3n." + cutoffs);
  CHECK(refusal(without) == "gemma3n.activation_sparsity_scale: missing, want 7 numbers");
  CHECK(refusal_with("gemma3n", cutoffs, Json{1.5, 1.5}).starts_with("gemma3n." + cutoffs));
  CHECK(refusal_with("gemma3n", cutoffs, Json{1, 1, 1, 1, 1, 1, 1})
            .starts_with("gemma3n." + cutoffs));
  CHECK(refusal_with("gemma3n", cutoffs, Json{1.5, 1.5, 1e30, 1.5, 1.5, 1.5, 1.5})
            .starts_with("gemma3n." + cutoffs));
  CHECK(refusal_with("gemma3n", "altup.num_inputs", 1u) ==
        "gemma3n.altup.num_inputs: 1, want at least 2");
  CHECK(refusal_with("gemma3n", "altup.active_idx", 4u) ==
        "gemma3n.altup.active_idx: 4, want 0 to 3");
  CHECK(refusal_with("gemma3n", "embedding_length_per_layer_input", 1u << 21)
            .starts_with("gemma3n.embedding_length_per_layer_input: 2097152, want 1 to"));
  without = read_family("gemma4");
  without.metadata.erase("gemma4.attention.sliding_window_pattern");
  CHECK(refusal(without) ==
        "gemma4.attention.sliding_window_pattern: missing, want which layers slide");
  CHECK(refusal_with("gemma4", "attention.key_length_swa", 0xFFFFFFFFu)
            .starts_with("gemma4.attention.key_length_swa"));
  CHECK(refusal_with("gemma4", "rope.dimension_count_swa", 7u) ==
        "gemma4.rope.dimension_count_swa: 7, want an even number");
}

/// The keys of `model` that decide the shape of states and of attention next to them, without
/// "ARCHITECTURE."; none for a model without states.
std::vector<std::string> state_keys(const FamilyModel& model) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : model.metadata.items()) {
    const std::string rest = key.substr(key.find('.') + 1);
    if (rest.starts_with("ssm.") || rest.starts_with("shortconv.") || rest.starts_with("wkv.")) {
      keys.push_back(rest);
    }
  }
  if (keys.empty()) return keys;
  for (const char* key : {"full_attention_interval", "rope.dimension_count", "attention.key_length",
                          "attention.head_count_kv", "attention.head_count"}) {
    if (model.metadata.contains(model.architecture + "." + key)) keys.push_back(key);
  }
  return keys;
}

TEST_CASE("families with a state: a key that is missing or out of range is named") {
  using Json = nlohmann::json;
  size_t families = 0;
  for (const std::string& name : family_names()) {
    const FamilyModel model = read_family(name);
    const std::vector<std::string> keys = state_keys(model);
    families += keys.empty() ? 0 : 1;
    for (const std::string& key : keys) {
      const std::string full = model.architecture + "." + key;
      const bool heads = key.starts_with("attention.head_count");
      for (const Json& value :
           {Json(0u), Json(-1), Json(1u << 28), Json(0xFFFFFFFFu), Json{1u, 2u, 3u, 4u, 5u, 6u},
            Json("text"), Json(1.5), Json(true)}) {
        if (value == 0 && (heads || model.metadata[full] == 0)) continue;  // means none
        CAPTURE(value.dump());
        const std::string message = refusal_with(name, key, value);
        CHECK_MESSAGE(message.starts_with(full + ": "), name, ", ", message);
      }
      if (!key.ends_with("conv_kernel") && !key.ends_with("inner_size") &&
          !key.ends_with("state_size") && !key.ends_with("time_step_rank") &&
          !key.ends_with("l_cache") && !key.ends_with("head_count") &&
          !key.ends_with("head_size")) {
        continue;  // it may be missing
      }
      FamilyModel without = model;
      without.metadata.erase(full);
      CHECK(refusal(without) == full + ": missing");
    }
  }
  CHECK(families >= 17);
}

struct NumberCase {
  std::string key;
  nlohmann::json value;  ///< null: missing
  std::string message;   ///< its beginning; '@' is the architecture
};
void check_numbers(const std::string& name, const std::vector<NumberCase>& cases) {
  for (const NumberCase& each : cases) {
    FamilyModel wrong = read_family(name);
    const std::string full = wrong.architecture + "." + each.key;
    wrong.metadata[full] = each.value;
    if (each.value.is_null()) wrong.metadata.erase(full);
    std::string want = each.message;
    if (want.starts_with('@')) want.replace(0, 1, wrong.architecture);
    const std::string message = refusal(wrong);
    CHECK_MESSAGE(message.starts_with(want), name, ", ", each.key, ": ", message);
  }
}

TEST_CASE("families with a state: numbers that contradict each other or the tensors are named") {
  for (const char* name : {"falcon_h1", "granitehybrid", "granitehybrid_moe", "mamba2",
                           "nemotron_h", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next"}) {
    check_numbers(
        name, {{"ssm.group_count", 3u, "@.ssm.group_count: 3, want a divisor of the 4 heads"},
               {"ssm.group_count", nullptr, "blk.0.ssm_conv1d.weight: shape [4,"},
               {"ssm.time_step_rank", 3u, "@.ssm.group_count: 2, want a divisor of the 3 heads"},
               {"ssm.time_step_rank", 6u, "@.ssm.inner_size: 128, want a multiple of the 6 heads"},
               {"ssm.time_step_rank", 64u, "@.ssm.inner_size: heads of 2, want a multiple of 16"},
               {"ssm.inner_size", 130u, "@.ssm.inner_size: 130, want a multiple of 16"},
               {"ssm.inner_size", 144u, "@.ssm.inner_size: heads of 36, want a multiple of 16"},
               {"ssm.state_size", 3u, "@.ssm.state_size: 140 channels"},
               {"ssm.conv_kernel", 1u, "@.ssm.conv_kernel: 1 rows, want 2 to"},
               {"ssm.conv_kernel", 3u, "blk.0.ssm_conv1d.weight: shape [4,"}});
  }
  for (const char* name : {"mamba", "jamba"}) {
    check_numbers(
        name, {{"ssm.time_step_rank", 3u, "blk.0.ssm_x.weight: shape [128,40], want [128,35]"},
               {"ssm.state_size", 3u, "blk.0.ssm_x.weight: shape [128,40], want [128,14]"},
               {"ssm.inner_size", 130u, "@.ssm.inner_size: 130, want a multiple of 16"},
               {"ssm.inner_size", 1u << 20, "blk.0.ssm_conv1d.weight: shape [4,128], want [4,"}});
  }
  check_numbers(
      "plamo2",
      {{"ssm.group_count", 2u, "@.ssm.group_count: 2, want 0 to 1"},
       {"ssm.time_step_rank", 3u, "@.ssm.inner_size: 128, want a multiple of the 3 heads"},
       {"ssm.state_size", 7u, "blk.0.ssm_x.weight: shape [128,96], want [128,78]"},
       {"attention.head_count_kv", 0u, "blk.1.ssm_conv1d.weight: missing, want shape [4,128]"}});
  // One number of heads for all layers, where attention.head_count_kv shows which have states.
  CHECK(refusal_with("plamo2", "attention.head_count", 4u).empty());
  check_numbers("minimax_01",
                {{"residual_scale", nullptr, "@.residual_scale: missing"},
                 {"residual_scale", -1.0, "@.residual_scale: "},
                 {"attention.head_count", 8u, "@.attention.key_length: 8, want a multiple of 16"},
                 {"attention.recurrent_layers", nullptr, "blk.2.attn_qkv.weight: missing"},
                 {"full_attention_interval", 0u, "@.full_attention_interval: "}});
  for (const char* name : {"lfm2", "lfm2moe"}) {
    check_numbers(name, {{"shortconv.l_cache", 1u, "@.shortconv.l_cache: 1 rows, want 2 to"},
                         {"shortconv.l_cache", 7u,
                          "blk.0.shortconv.conv.weight: shape [3,64], want [7,64]"}});
  }
  for (const char* name : {"qwen35", "qwen35moe", "qwen3next"}) {
    using Json = nlohmann::json;
    const std::string flags = "attention.recurrent_layers";
    const std::string want = "@.attention.recurrent_layers: ";
    check_numbers(name,
                  {{"full_attention_interval", 7u, "blk.2.ssm_conv1d.weight: missing"},
                   {"full_attention_interval", nullptr, "blk.2.ssm_conv1d.weight: missing"},
                   {"full_attention_interval", 1u, "blk.0.attn_q_norm.weight: missing"},
                   {flags, 1u, want},
                   {flags, Json{true, true}, want + "an array of 2 bool, want a bool for each of"},
                   {flags, Json{1, 1, 0, 1}, want + "an array of 4 i32, want a bool for each of"},
                   {flags, Json{true, true, true, true}, "blk.2.ssm_conv1d.weight: missing"},
                   {flags, Json{false, true, true, true}, "blk.0.attn_q_norm.weight: missing"}});
    CHECK(refusal_with(name, flags, Json{true, true, false, true}).empty());
  }
}

TEST_CASE("RWKV-7: sizes that contradict each other or the tensors are named") {
  for (const char* name : {"rwkv7", "arwkv7", "arwkv7_plain"}) {
    check_numbers(
        name, {{"wkv.head_size", 8u, "@.wkv.head_size: 8, want a multiple of 16"},
               {"wkv.head_size", 48u, "@.wkv.head_size: 48, want a divisor of the width"},
               {"attention.decay_lora_rank", nullptr, "@.attention.decay_lora_rank: missing"},
               {"attention.iclr_lora_rank", 0u, "@.attention.iclr_lora_rank: 0"},
               {"attention.iclr_lora_rank", 24u, "blk.0.time_mix_a1.weight: shape ["},
               {"attention.value_residual_mix_lora_rank", 8u, "blk.1.time_mix_v1.weight: shape ["},
               {"token_shift_count", 3u, "@.token_shift_count: 3"}});
  }
  check_numbers("rwkv7",
                {{"attention.gate_lora_rank", nullptr, "@.attention.gate_lora_rank: 0 or missing"},
                 {"token_shift_count", 1u, "@.token_shift_count: 1, want 2"}});
  check_numbers("arwkv7",
                {{"attention.gate_lora_rank", 0u, "blk.0.time_mix_lerp_fused.weight: shape ["},
                 {"token_shift_count", nullptr, "@.token_shift_count: 2, want 1"}});
}

}  // namespace
}  // namespace hearth::golden
