// Folders of published weights, converted: logits compared with those that PyTorch computed from
// the same files, token ids with those of the tokenizers that the files describe
// (convert/record.py).

#include "models/convert/convert.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/quant/quant_types.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/golden/family_model.h"
#include "tests/golden/published_folder.h"
#include "tests/golden/step_runner.h"
#include "tests/paths.h"
#include "tests/temp_dir.h"

namespace hearth::golden {
namespace {

namespace fs = std::filesystem;
using kernels::DType;
using nlohmann::json;
using tests::TempDir;

const fs::path kFolder = fs::path(hearth::tests::source_dir()) / "tests/golden/convert";

json read_json(const fs::path& path) {
  std::ifstream in(path);
  REQUIRE_MESSAGE(in.good(), path.string());
  return json::parse(in);
}

std::vector<std::string> recorded(const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".json") continue;
    const bool of_tokenizer = name.starts_with("tokenizer_") || name.starts_with("ids_");
    if (prefix.empty() ? !of_tokenizer : name.starts_with(prefix)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

/// The file with its quantized types as the same values in F32: products of quantized weights round
/// their other factor, which the published code does not.
void dequantize_blocks(const fs::path& path) {
  const models::GgufFile file = open_file(path);
  models::GgufWriter out;
  for (const models::GgufEntry& entry : file.metadata()) out.copy(entry);
  for (const models::GgufTensor& tensor : file.tensors()) {
    const auto dims = std::span(tensor.dims).first(tensor.num_dims);
    if (kernels::info(*tensor.dtype).block_elements == 1) {
      out.add_tensor(tensor.name, dims, *tensor.dtype, {tensor.bytes.begin(), tensor.bytes.end()});
      continue;
    }
    std::vector<float> values(tensor.num_elements());
    kernels::dequantize(*tensor.dtype, tensor.bytes, values);
    out.add_floats(tensor.name, dims, DType::kF32, values);
  }
  REQUIRE(out.write(path).ok());
}

struct LargestError {
  double most = 0;  ///< largest magnitude
  double error = 0;

  void add(const json& logits, const std::vector<float>& met) {
    const auto want = logits.get<std::vector<double>>();
    REQUIRE(want.size() == met.size());
    for (size_t i = 0; i < want.size(); ++i) {
      most = std::max(most, std::fabs(want[i]));
      error = std::max(error, std::fabs(want[i] - static_cast<double>(met[i])));
    }
  }
};

TEST_CASE("convert: logits of every family equal those of the published files") {
  const std::vector<std::string> names = recorded("");
  REQUIRE(names.size() >= 64);
  const std::vector<NamedTable> tables = all_tables();
  for (const std::string& name : names) {
    INFO(name);
    const json recording = read_json(kFolder / (name + ".json"));
    const TempDir dir;
    make_folder(dir.path(), recording);
    models::ConvertOptions options{.type = {}, .without_tokenizer = true};
    // Of packed weights that would be rounded.
    if (recording.value("type", "") == "F32") options.type = DType::kF32;
    const auto report =
        models::convert_folder(dir.path(), dir.path() / "out.gguf", options, nullptr);
    REQUIRE_MESSAGE(report.ok(), report.error().message);
    if (name.starts_with("packed_")) {
      const uint64_t matrices = 14;  // of two layers
      CHECK((options.type ? report->num_rounded : report->num_kept) == matrices);
    }
    dequantize_blocks(dir.path() / "out.gguf");
    const models::GgufFile file = open_file(dir.path() / "out.gguf");
    const auto prompt = recording.at("prompt").get<std::vector<int32_t>>();
    const NamedTable& table =
        tables.front();  // the reference; others are compared with it in other tests
    table.ops.set_num_threads(table.ops.state.get(), 1);
    StepRunner::Bounds bounds{.seqs = 1, .step_tokens = 32, .context = 32, .model_context = 256};
    StepRunner runner(file, table.ops, DType::kF32, bounds);
    const auto met = runner.feed(0, prompt, 32, true);
    LargestError worst;
    for (const auto& [row, logits] : recording.at("logits").items()) {
      worst.add(logits, met[std::stoul(row)]);
    }
    CHECK(worst.error < 5e-5 * worst.most);
    const json drafted = recording.value("drafts", json::object());
    for (const auto& [size, drafts] : drafted.items()) {
      bounds.draft_layer = true;
      StepRunner drafter(file, table.ops, DType::kF32, bounds);
      REQUIRE(drafter.info().drafts);
      const auto tokens = drafts.at(0).get<std::vector<int32_t>>();
      const auto rows = drafter.drafts_after(std::span(prompt).first(std::stoul(size)), 32, tokens);
      LargestError worst_draft;
      for (size_t i = 0; i < rows.size(); ++i) worst_draft.add(drafts.at(1).at(i), rows[i]);
      CHECK(worst_draft.error < 5e-5 * worst_draft.most);
    }
  }
}

TEST_CASE("convert: experts in MXFP4 stay so, whatever type is asked for") {
  const json recording = read_json(kFolder / "gpt_oss_mxfp4.json");
  const TempDir dir;
  make_folder(dir.path(), recording);
  const fs::path out = dir.path() / "out.gguf";
  REQUIRE(models::convert_folder(dir.path(), out, {.type = DType::kBF16, .without_tokenizer = true},
                                 nullptr)
              .ok());
  const models::GgufFile file = open_file(out);
  for (const char* name : {"gate", "up", "down"}) {
    const auto* tensor = file.find_tensor(fmt::format("blk.1.ffn_{}_exps.weight", name));
    REQUIRE(tensor != nullptr);
    CHECK(tensor->dtype == DType::kMXFP4);
  }
  CHECK(file.find_tensor("blk.1.attn_q.weight")->dtype == DType::kBF16);
}

TEST_CASE("convert: a layer that drafts is left out if its product is missing, and copies are") {
  json recording = read_json(kFolder / "glm4_moe_mtp.json");
  const auto converted = [](const json& folder) {
    const TempDir dir;
    make_folder(dir.path(), folder);
    const auto report = models::convert_folder(dir.path(), dir.path() / "out.gguf",
                                               {.type = {}, .without_tokenizer = true}, nullptr);
    REQUIRE_MESSAGE(report.ok(), report.error().message);
    std::vector<std::string> names;
    const models::GgufFile file = open_file(dir.path() / "out.gguf");
    for (const models::GgufTensor& tensor : file.tensors()) names.emplace_back(tensor.name);
    return std::pair(report->num_left_out, names);
  };
  const auto has = [](const std::vector<std::string>& names, const char* name) {
    return std::ranges::find(names, name) != names.end();
  };
  CHECK(has(converted(recording).second, "blk.2.nextn.embed_tokens.weight"));
  json& tensors = recording["tensors"];
  // Constant values make copies.
  json copies = recording;
  for (json& tensor : copies["tensors"]) {
    const auto name = tensor[0].get<std::string>();
    if (name.ends_with("embed_tokens.weight")) tensor[3] = 0.0;
  }
  const auto [none, names] = converted(copies);
  CHECK(none == 0);
  CHECK_FALSE(has(names, "blk.2.nextn.embed_tokens.weight"));
  CHECK(has(names, "blk.2.nextn.shared_head_head.weight"));
  std::erase_if(tensors.get_ref<json::array_t&>(),
                [](const json& tensor) { return tensor[0] == "model.layers.2.eh_proj.weight"; });
  const auto [left_out, others] = converted(recording);
  CHECK(left_out > 10);
  CHECK_FALSE(has(others, "blk.2.attn_norm.weight"));
}

TEST_CASE("convert: the text model of a folder that reads images, with its layer for drafting") {
  json recording = read_json(kFolder / "qwen3_5_mtp.json");
  const TempDir alone, within;
  make_folder(alone.path(), recording);
  for (json& tensor : recording["tensors"]) {
    const auto name = tensor[0].get<std::string>();
    if (name.starts_with("model.")) tensor[0] = "model.language_model." + name.substr(6);
  }
  recording["tensors"].push_back({"model.visual.blocks.0.attn.qkv.weight", {4, 4}, 0.0, 1.0});
  const json text = recording.at("config");
  recording["config"] = {{"model_type", "qwen3_5"}, {"text_config", text}};
  recording["config"]["text_config"].erase("tie_word_embeddings");
  recording["config"]["tie_word_embeddings"] = text.at("tie_word_embeddings");
  make_folder(within.path(), recording);
  const models::ConvertOptions options{.type = {}, .without_tokenizer = true};
  const fs::path out = alone.path() / "out.gguf", other = within.path() / "out.gguf";
  REQUIRE(models::convert_folder(alone.path(), out, options, nullptr).ok());
  const auto report = models::convert_folder(within.path(), other, options, nullptr);
  REQUIRE_MESSAGE(report.ok(), report.error().message);
  CHECK(report->num_left_out == 1);
  const auto first = models::GgufFile::open(out), second = models::GgufFile::open(other);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  REQUIRE(first->tensors().size() == second->tensors().size());
  for (const models::GgufTensor& tensor : first->tensors()) {
    INFO(tensor.name);
    const models::GgufTensor* same = second->find_tensor(tensor.name);
    REQUIRE(same != nullptr);
    CHECK(same->dims == tensor.dims);
  }
}

TEST_CASE("convert: matrices in F16 and BF16 hold the same values, which are exact in both") {
  const json recording = read_json(kFolder / "llama.json");
  const TempDir dir;
  make_folder(dir.path(), recording);
  for (const DType type : {DType::kF16, DType::kBF16}) {
    const fs::path out = dir.path() / "out.gguf";
    REQUIRE(
        models::convert_folder(dir.path(), out, {.type = type, .without_tokenizer = true}, nullptr)
            .ok());
    const auto file = models::GgufFile::open(out);
    REQUIRE(file.ok());
    CHECK(file->find_tensor("blk.0.ffn_up.weight")->dtype == type);
    CHECK(file->find_tensor("blk.0.attn_norm.weight")->dtype == DType::kF32);
  }
}

TEST_CASE("convert: a folder of shards is one model, and a name in two of them is refused") {
  json recording = read_json(kFolder / "qwen3.json");
  const TempDir whole, parts;
  make_folder(whole.path(), recording);
  make_folder(parts.path(), recording);
  fs::remove(parts.path() / "model.safetensors");
  const json all = recording.at("tensors");
  json first = recording, second = recording;
  first["tensors"] = json(all.begin(), all.begin() + 5);
  second["tensors"] = json(all.begin() + 5, all.end());
  write(parts.path() / "model-00001-of-00002.safetensors", safetensors_of(first));
  write(parts.path() / "model-00002-of-00002.safetensors", safetensors_of(second));
  const models::ConvertOptions options{.type = {}, .without_tokenizer = true};
  const auto read = [](const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  const TempDir out;
  // The folder's name becomes the model's, so both have the same.
  fs::create_directories(out.path() / "a");
  fs::create_directories(out.path() / "b");
  fs::rename(whole.path(), out.path() / "a/model");
  fs::rename(parts.path(), out.path() / "b/model");
  REQUIRE(
      models::convert_folder(out.path() / "a/model", out.path() / "a.gguf", options, nullptr).ok());
  REQUIRE(
      models::convert_folder(out.path() / "b/model", out.path() / "b.gguf", options, nullptr).ok());
  CHECK(read(out.path() / "a.gguf") == read(out.path() / "b.gguf"));
  write(out.path() / "b/model/model-00003.safetensors", safetensors_of(first));
  const auto twice =
      models::convert_folder(out.path() / "b/model", out.path() / "c.gguf", options, nullptr);
  REQUIRE_FALSE(twice.ok());
  CHECK(twice.error().code == ErrorCode::kCorrupt);
  CHECK_FALSE(fs::exists(out.path() / "c.gguf"));
}

TEST_CASE("convert: token ids equal those of the published tokenizer") {
  const std::vector<std::string> names = recorded("tokenizer_");
  REQUIRE(names.size() >= 15);
  const json recording = read_json(kFolder / "qwen2.json");
  for (const std::string& name : names) {
    INFO(name);
    const json expected = read_json(kFolder / ("ids_" + name.substr(10) + ".json"));
    const TempDir dir;
    // Any model will do; its embedding gets a row for each token and a few more.
    json changed = recording;
    for (json& tensor : changed["tensors"]) {
      const bool of_vocabulary =
          tensor[0] == "model.embed_tokens.weight" || tensor[0] == "lm_head.weight";
      if (of_vocabulary) tensor[1][0] = expected.at("size").get<uint64_t>() + 3;
    }
    make_folder(dir.path(), changed);
    fs::copy(kFolder / (name + ".json"), dir.path() / "tokenizer.json");
    write(dir.path() / "tokenizer_config.json",
          R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"chat_template":"{{ x }}"})");
    const auto report = models::convert_folder(dir.path(), dir.path() / "out.gguf", {}, nullptr);
    REQUIRE_MESSAGE(report.ok(), report.error().message);
    const auto file = models::GgufFile::open(dir.path() / "out.gguf");
    REQUIRE(file.ok());
    CHECK(*file->get<std::string_view>("tokenizer.ggml.pre") == expected.at("pre"));
    CHECK(*file->get<std::string_view>("tokenizer.chat_template") == "{{ x }}");
    const auto tokenizer = models::load_tokenizer(*file);
    REQUIRE_MESSAGE(tokenizer.ok(), tokenizer.error().message);
    CHECK((*tokenizer)->entry((*tokenizer)->bos().value()) == "<s>");
    CHECK((*tokenizer)->entry((*tokenizer)->eos().value()) == "</s>");
    for (const json& text : expected.at("texts")) {
      const auto want = text.at("ids").get<std::vector<int32_t>>();
      INFO(text.at("text").dump());
      CHECK((*tokenizer)->encode(text.at("text").get<std::string>(), {}) == want);
    }
  }
}

TEST_CASE("convert: tokenizer_config.json decides whether texts begin with BOS") {
  json recording = read_json(kFolder / "qwen2.json");
  for (json& tensor : recording["tensors"]) {
    if (tensor[0] == "model.embed_tokens.weight" || tensor[0] == "lm_head.weight") {
      tensor[1][0] = 420;
    }
  }
  // Of these, only Llama 3's template begins with BOS.
  for (const char* name : {"tokenizer_qwen2.json", "tokenizer_llama3.json"}) {
    for (const bool adds : {false, true}) {
      INFO(name << " " << adds);
      const TempDir dir;
      make_folder(dir.path(), recording);
      fs::copy(kFolder / name, dir.path() / "tokenizer.json");
      write(dir.path() / "tokenizer_config.json",
            json{{"bos_token", "<s>"}, {"add_bos_token", adds}}.dump());
      REQUIRE(models::convert_folder(dir.path(), dir.path() / "out.gguf", {}, nullptr).ok());
      CHECK(*open_file(dir.path() / "out.gguf").get<bool>("tokenizer.ggml.add_bos_token") == adds);
    }
  }
}

// ---- What is refused ----------------------------------------------------------------------------

void check_refusals(const char* recording_name, const std::vector<Refusal>& refusals) {
  check_refusals(read_json(kFolder / recording_name), refusals);
}

TEST_CASE("convert: unsupported models are refused by name") {
  const std::vector<Refusal> refusals = {
      {"family", [](json& r) { r["config"]["model_type"] = "gpt_neox"; }, ErrorCode::kUnsupported,
       "gpt_neox"},
      {"no family", [](json& r) { r["config"].erase("model_type"); }, ErrorCode::kCorrupt,
       "model_type"},
      {"activation", [](json& r) { r["config"]["hidden_act"] = "relu"; }, ErrorCode::kUnsupported,
       "relu"},
      {"rotation",
       [](json& r) {
         r["config"]["rope_parameters"] = {{"rope_type", "dynamic"}, {"factor", 2.0}};
       },
       ErrorCode::kUnsupported, "dynamic"},
      {"quantized",
       [](json& r) {
         r["config"]["quantization_config"] = {{"bits", 4}};
       },
       ErrorCode::kUnsupported, "quantization_config"},
      {"a key of another type", [](json& r) { r["config"]["hidden_size"] = "wide"; },
       ErrorCode::kCorrupt, "hidden_size"},
      {"no heads", [](json& r) { r["config"]["num_attention_heads"] = 0; }, ErrorCode::kCorrupt,
       "num_attention_heads"},
      {"huge", [](json& r) { r["config"]["num_hidden_layers"] = 4000000000u; }, ErrorCode::kCorrupt,
       "num_hidden_layers"},
      {"a layer more than there is", [](json& r) { r["config"]["num_hidden_layers"] = 3; },
       ErrorCode::kCorrupt, "model.layers.2."},
      {"a layer too many", [](json& r) { r["config"]["num_hidden_layers"] = 1; },
       ErrorCode::kUnsupported, "model.layers.1."},
      {"an unknown tensor",
       [](json& r) {
         r["tensors"].push_back({"model.layers.0.mlp.extra.weight", {2, 2}, 0, 1});
       },
       ErrorCode::kUnsupported, "extra"},
      {"heads that do not divide", [](json& r) { r["config"]["num_attention_heads"] = 5; },
       ErrorCode::kCorrupt, "q_proj"},
  };
  check_refusals("llama.json", refusals);
}

json& shape_of(json& recording, const std::string& name) {
  for (json& each : recording["tensors"]) {
    if (each[0] == name) return each[1];
  }
  FAIL(name);
  return recording;
}

TEST_CASE("convert: Kimi Linear models of another form are refused by name") {
  const std::string delta = "model.layers.1.self_attn.", latent = "model.layers.2.self_attn.";
  const auto linear = [](json& r) -> json& { return r["config"]["linear_attn_config"]; };
  const std::vector<Refusal> refusals = {
      {"rotated keys", [](json& r) { r["config"]["mla_use_nope"] = false; },
       ErrorCode::kUnsupported, "mla_use_nope"},
      {"Kimi K3", [](json& r) { r["config"]["hidden_act"] = "situ"; }, ErrorCode::kUnsupported,
       "situ"},
      {"a choice by softmax",
       [](json& r) { r["config"]["moe_router_activation_func"] = "softmax"; },
       ErrorCode::kUnsupported, "moe_router_activation_func"},
      {"dense layers between others", [](json& r) { r["config"]["moe_layer_freq"] = 2; },
       ErrorCode::kUnsupported, "moe_layer_freq"},
      {"no length", [](json& r) { r["config"].erase("model_max_length"); }, ErrorCode::kCorrupt,
       "model_max_length"},
      {"no delta attention", [](json& r) { r["config"].erase("linear_attn_config"); },
       ErrorCode::kCorrupt, "linear_attn_config"},
      {"other heads", [&](json& r) { linear(r)["num_heads"] = 2; }, ErrorCode::kUnsupported,
       "num_heads"},
      {"a layer in both lists",
       [&](json& r) {
         linear(r)["kda_layers"] = {1, 2, 3, 4};
       },
       ErrorCode::kCorrupt, "full_attn_layers"},
      {"a layer in none",
       [&](json& r) {
         linear(r)["kda_layers"] = {1, 2};
       },
       ErrorCode::kCorrupt, "layer 4"},
      {"layers counted from 0",
       [&](json& r) {
         linear(r)["full_attn_layers"] = {0, 3};
       },
       ErrorCode::kCorrupt, "full_attn_layers"},
      {"no list", [&](json& r) { linear(r)["kda_layers"] = 3; }, ErrorCode::kCorrupt, "kda_layers"},
      {"no taps", [&](json& r) { linear(r).erase("short_conv_kernel_size"); }, ErrorCode::kCorrupt,
       "short_conv_kernel_size"},
      {"a tap less", [&](json& r) { shape_of(r, delta + "k_conv1d.weight")[2] = 3; },
       ErrorCode::kCorrupt, "k_conv1d.weight: 128 x 1 x 3, want 128 x 1 x 4"},
      {"a rate less", [&](json& r) { shape_of(r, delta + "A_log")[2] = 3; }, ErrorCode::kCorrupt,
       "model.layers.1.self_attn.A_log: 1 x 1 x 3 x 1, want 4 values"},
      {"a kind that its tensors are not of",
       [&](json& r) {
         linear(r)["kda_layers"] = {1, 3, 4};
         linear(r)["full_attn_layers"] = {2, 5};
       },
       ErrorCode::kCorrupt, "model.layers.1.self_attn.kv_a_proj_with_mqa.weight: missing"},
      {"values of another width", [&](json& r) { r["config"]["v_head_dim"] = 24; },
       ErrorCode::kCorrupt, latent.c_str()},
      {"an expert less", [](json& r) { r["config"]["num_experts"] = 9; }, ErrorCode::kCorrupt,
       "experts.8.w1.weight: missing"},
  };
  check_refusals("kimi_linear.json", refusals);
}

TEST_CASE("convert: ARWKV models of another form are refused by name") {
  const std::string mixer = "model.layers.1.self_attn.time_mixer.";
  const std::vector<Refusal> refusals = {
      {"RWKV-6", [](json& r) { r["config"]["wkv_version"] = 6; }, ErrorCode::kUnsupported,
       "wkv_version"},
      {"no version", [](json& r) { r["config"].erase("wkv_version"); }, ErrorCode::kCorrupt,
       "wkv_version"},
      {"layers of attention",
       [](json& r) {
         r["config"]["wkv_layers"] = {0, 2};
       },
       ErrorCode::kUnsupported, "wkv_layers"},
      {"another norm of heads", [](json& r) { r["config"]["head_size_divisor"] = 4; },
       ErrorCode::kUnsupported, "head_size_divisor"},
      {"no gate", [](json& r) { r["config"]["wkv_has_gate"] = false; }, ErrorCode::kUnsupported,
       "time_mixer.g1"},
      {"another rank", [&](json& r) { shape_of(r, mixer + "w1")[1] = 32; }, ErrorCode::kCorrupt,
       "time_mixer.w1: 128 x 32, want 128 x 64"},
      {"no share", [&](json& r) { shape_of(r, mixer + "x_k")[2] = 64; }, ErrorCode::kCorrupt,
       "time_mixer.x_k: 1 x 1 x 64, want 128 values"},
  };
  check_refusals("rwkv_hybrid.json", refusals);
}

TEST_CASE("convert: blocks and scales of MXFP4 that do not fit are refused by name") {
  const auto tensor = [](json& r, const std::string& name) -> json& {
    for (json& each : r["tensors"]) {
      if (each[0] == "model.layers.0.mlp.experts." + name) return each;
    }
    FAIL(name);
    return r;
  };
  const std::vector<Refusal> refusals = {
      {"no scales", [&](json& r) { tensor(r, "down_proj_scales")[0] = "x"; }, ErrorCode::kCorrupt,
       "down_proj_scales: missing"},
      {"no blocks", [&](json& r) { tensor(r, "gate_up_proj_blocks")[0] = "x"; },
       ErrorCode::kCorrupt, "gate_up_proj_blocks: missing"},
      {"a scale less",
       [&](json& r) {
         tensor(r, "gate_up_proj_scales")[1] = {4, 192, 1};
       },
       ErrorCode::kCorrupt, "gate_up_proj_scales: U8 of 4 x 192 x 1, want U8 of 4 x 192 x 2"},
      {"a row less",
       [&](json& r) {
         tensor(r, "down_proj_blocks")[1] = {4, 63, 3, 16};
       },
       ErrorCode::kCorrupt, "down_proj_blocks: U8 of 4 x 63 x 3 x 16"},
      {"longer blocks",
       [&](json& r) {
         tensor(r, "down_proj_blocks")[1] = {4, 64, 3, 32};
       },
       ErrorCode::kCorrupt, "down_proj_blocks"},
      {"no bytes", [&](json& r) { tensor(r, "down_proj_scales").erase(4); }, ErrorCode::kCorrupt,
       "down_proj_scales: F32"},
      {"a scale that is NaN",
       [&](json& r) {
         tensor(r, "down_proj_scales")[2] = 255;
         tensor(r, "down_proj_scales")[3] = 0;
       },
       ErrorCode::kCorrupt, "down_proj_scales: scale 0 is NaN"},
      {"part of a block",
       [&](json& r) {
         r["config"]["intermediate_size"] = 100;
         tensor(r, "gate_up_proj_bias")[1] = {4, 200};
         tensor(r, "gate_up_proj_blocks")[1] = {4, 200, 2, 16};
         tensor(r, "gate_up_proj_scales")[1] = {4, 200, 2};
       },
       ErrorCode::kCorrupt, "down_proj_blocks: rows of 100 values, want a multiple of 32"},
      {"blocks of no known kind",
       [](json& r) { r["config"]["quantization_config"]["quant_method"] = "hqq"; },
       ErrorCode::kUnsupported, "quantization_config"},
      {"blocks that no key names", [](json& r) { r["config"].erase("quantization_config"); },
       ErrorCode::kCorrupt, "gate_up_proj: missing"},
  };
  check_refusals("gpt_oss_mxfp4.json", refusals);
}

TEST_CASE("convert: numbers that do not fit the tensors are refused, or make another file") {
  const models::ConvertOptions options{.type = {}, .without_tokenizer = true};
  int refused = 0;
  for (const std::string& name : recorded("")) {
    const json recording = read_json(kFolder / (name + ".json"));
    const TempDir dir;
    make_folder(dir.path(), recording);
    for (const auto& [key, value] : recording.at("config").items()) {
      if (!value.is_number_integer()) continue;
      INFO(name << " " << key);
      for (const uint32_t lie : {0u, 4294967295u}) {
        json changed = recording.at("config");
        changed[key] = lie;
        write(dir.path() / "config.json", changed.dump());
        const auto report =
            models::convert_folder(dir.path(), dir.path() / "out.gguf", options, nullptr);
        if (!report.ok()) ++refused;
        if (report.ok()) CHECK(models::GgufFile::open(dir.path() / "out.gguf").ok());
      }
    }
  }
  CHECK(refused > 500);
}

TEST_CASE("convert: tokenizers that are unknown or inconsistent are refused by name") {
  const json good = read_json(kFolder / "tokenizer_qwen2.json");
  const std::vector<Refusal> refusals = {
      {"model", [](json& t) { t["model"]["type"] = "WordPiece"; }, ErrorCode::kUnsupported,
       "WordPiece"},
      {"split",
       [](json& t) { t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "abc+"; },
       ErrorCode::kUnsupported, "abc+"},
      {"matches that are left out",
       [](json& t) { t["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; },
       ErrorCode::kUnsupported, "behavior Removed"},
      {"a step after bytes",
       [](json& t) {
         t["pre_tokenizer"]["pretokenizers"].push_back(
             {{"type", "Digits"}, {"individual_digits", true}});
       },
       ErrorCode::kUnsupported, "Digits"},
      {"normalizer",
       [](json& t) {
         t["normalizer"] = {{"type", "Lowercase"}};
       },
       ErrorCode::kUnsupported, "Lowercase"},
      {"no vocabulary", [](json& t) { t["model"].erase("vocab"); }, ErrorCode::kCorrupt, "vocab"},
      {"an id that is none", [](json& t) { t["model"]["vocab"]["the"] = -1; }, ErrorCode::kCorrupt,
       "the"},
      {"an id beyond all", [](json& t) { t["model"]["vocab"]["zz"] = 1u << 31; },
       ErrorCode::kCorrupt, "token id"},
      {"two of one id", [](json& t) { t["model"]["vocab"]["zz"] = 7; }, ErrorCode::kCorrupt,
       "id 7"},
      {"a merge that is none", [](json& t) { t["model"]["merges"][0] = "alone"; },
       ErrorCode::kCorrupt, "merge 0"},
      {"more tokens than rows", [](json& t) { t["model"]["vocab"]["zz"] = 5000; },
       ErrorCode::kCorrupt, "rows"},
  };
  for (const Refusal& refusal : refusals) {
    INFO(refusal.what);
    json recording = read_json(kFolder / "qwen2.json");
    for (json& tensor : recording["tensors"]) {
      if (tensor[0] == "model.embed_tokens.weight" || tensor[0] == "lm_head.weight")
        tensor[1][0] = 430;
    }
    json tokenizer = good;
    refusal.change(tokenizer);
    const TempDir dir;
    make_folder(dir.path(), recording);
    write(dir.path() / "tokenizer.json", tokenizer.dump());
    const auto report = models::convert_folder(dir.path(), dir.path() / "out.gguf", {}, nullptr);
    REQUIRE_FALSE(report.ok());
    CHECK(report.error().code == refusal.code);
    CHECK_MESSAGE(report.error().message.find(refusal.names) != std::string::npos,
                  report.error().message);
  }
}

}  // namespace
}  // namespace hearth::golden
