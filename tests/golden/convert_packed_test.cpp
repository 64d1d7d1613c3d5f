// Folders of packed weights (GPTQ, AWQ, compressed-tensors, LLM.int8, fp8), converted: the values
// of every matrix equal those that the format's definition gives, bit for bit where a type holds
// them.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <span>

#include "kernels/ops/half.h"
#include "kernels/quant/quant_types.h"
#include "models/convert/convert.h"
#include "models/gguf/tensor_scales.h"
#include "tests/golden/published_folder.h"
#include "tests/paths.h"
#include "tests/temp_dir.h"

namespace hearth::golden {
namespace {

namespace fs = std::filesystem;
using kernels::DType;
using nlohmann::json;
using tests::TempDir;

struct Stored {
  std::string type;
  std::vector<uint64_t> shape;
  std::string bytes;
};
using Folder = std::map<std::string, Stored>;

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string tensor_file(const Folder& folder) {
  json header;
  std::string body;
  for (const auto& [name, tensor] : folder) {
    header[name] = {{"dtype", tensor.type},
                    {"shape", tensor.shape},
                    {"data_offsets", {body.size(), body.size() + tensor.bytes.size()}}};
    body += tensor.bytes;
  }
  const std::string text = header.dump();
  std::string out;
  put(out, uint64_t{text.size()});
  return out + text + body;
}

/// Sizes of which rows are whole blocks of 32.
constexpr uint64_t kWidth = 64, kKvWidth = 32, kFfn = 96, kHeadDim = 16, kVocab = 96, kLayers = 2;

json config_of(const std::string& family) {
  std::ifstream in(fs::path(tests::source_dir()) / "tests/golden/convert" / (family + ".json"));
  REQUIRE(in.good());
  json config = json::parse(in).at("config");
  config.update({{"hidden_size", kWidth},
                 {"head_dim", kHeadDim},
                 {"num_attention_heads", kWidth / kHeadDim},
                 {"num_key_value_heads", kKvWidth / kHeadDim},
                 {"intermediate_size", kFfn},
                 {"num_hidden_layers", kLayers},
                 {"vocab_size", kVocab},
                 {"tie_word_embeddings", true}});
  return config;
}

/// Values of F16.
Folder plain_folder(const std::string& family, std::mt19937& random) {
  Folder out;
  const auto add = [&](const std::string& name, std::vector<uint64_t> shape) {
    Stored& tensor = out[name + ".weight"];
    tensor = {"F16", std::move(shape), ""};
    uint64_t count = 1;
    for (const uint64_t size : tensor.shape) count *= size;
    for (uint64_t i = 0; i < count; ++i) {
      put(tensor.bytes, kernels::f16_from_f32(static_cast<float>(random() % 200) / 100 - 1));
    }
  };
  add("model.embed_tokens", {kVocab, kWidth});
  add("model.norm", {kWidth});
  for (uint64_t layer = 0; layer < kLayers; ++layer) {
    const std::string in = fmt::format("model.layers.{}.", layer);
    add(in + "input_layernorm", {kWidth});
    add(in + "post_attention_layernorm", {kWidth});
    add(in + "self_attn.q_proj", {kWidth, kWidth});
    add(in + "self_attn.k_proj", {kKvWidth, kWidth});
    add(in + "self_attn.v_proj", {kKvWidth, kWidth});
    add(in + "self_attn.o_proj", {kWidth, kWidth});
    add(in + "mlp.gate_proj", {kFfn, kWidth});
    add(in + "mlp.up_proj", {kFfn, kWidth});
    add(in + "mlp.down_proj", {kWidth, kFfn});
    if (family != "qwen3") continue;
    add(in + "self_attn.q_norm", {kHeadDim});
    add(in + "self_attn.k_norm", {kHeadDim});
  }
  return out;
}

struct Sizes {
  uint64_t rows, cols;
};
using Matrix = std::vector<double>;  // (rows, cols)

/// Puts the parts of a packed matrix of that base name into the folder; returns what it means.
using Pack = std::function<Matrix(Folder&, const std::string& base, Sizes, std::mt19937&)>;

uint16_t random_scale(std::mt19937& random) {
  return kernels::f16_from_f32(0.001f + static_cast<float>(random() % 1000) / 20'000);
}

/// Numbers of a few bits in words of 32: `place` is the word and the place in it.
class Words {
 public:
  Words(size_t count, uint32_t bits) : words_(count, 0), bits_(bits) {}
  void set(size_t word, size_t place, uint32_t code) { words_.at(word) |= code << place * bits_; }
  std::string bytes() const {
    return {reinterpret_cast<const char*>(words_.data()), words_.size() * 4};
  }

 private:
  std::vector<uint32_t> words_;
  uint32_t bits_;
};

constexpr uint64_t kGroup = 32;

struct GptqForm {
  uint32_t bits = 4;
  bool symmetric = true;
  bool second = false;  ///< gptq_v2
  bool act_order = false;
};

Pack gptq(const GptqForm& form) {
  return [form](Folder& folder, const std::string& base, Sizes s, std::mt19937& random) {
    const uint64_t n = 32 / form.bits, groups = s.cols / kGroup, most = (1u << form.bits) - 1;
    Words codes(s.cols / n * s.rows, form.bits), zeros(groups * s.rows / n, form.bits);
    std::string scales, order;
    std::vector<double> scale, zero;
    for (uint64_t g = 0; g < groups; ++g) {
      for (uint64_t o = 0; o < s.rows; ++o) {
        put(scales, random_scale(random));
        uint16_t half = 0;
        std::memcpy(&half, scales.data() + scales.size() - 2, 2);
        scale.push_back(static_cast<double>(kernels::f32_from_f16(half)));
        const uint32_t point = form.symmetric ? (most + 1) / 2 : 1 + random() % most;
        zero.push_back(point);
        zeros.set(g * (s.rows / n) + o / n, o % n, form.second ? point : point - 1);
      }
    }
    Matrix out(s.rows * s.cols);
    for (uint64_t i = 0; i < s.cols; ++i) {
      const uint64_t g = form.act_order ? (i * 7 + 3) % groups : i / kGroup;
      put(order, static_cast<int32_t>(g));
      for (uint64_t o = 0; o < s.rows; ++o) {
        const uint32_t code = random() % (most + 1);
        codes.set(i / n * s.rows + o, i % n, code);
        out[o * s.cols + i] = (code - zero[g * s.rows + o]) * scale[g * s.rows + o];
      }
    }
    folder[base + ".qweight"] = {"I32", {s.cols / n, s.rows}, codes.bytes()};
    folder[base + ".qzeros"] = {"I32", {groups, s.rows / n}, zeros.bytes()};
    folder[base + ".scales"] = {"F16", {groups, s.rows}, scales};
    folder[base + ".g_idx"] = {"I32", {s.cols}, order};
    return out;
  };
}

Matrix awq(Folder& folder, const std::string& base, Sizes s, std::mt19937& random) {
  constexpr uint64_t kOutputAt[] = {0, 2, 4, 6, 1, 3, 5, 7};  // by place in a word
  const uint64_t groups = s.cols / kGroup;
  Words codes(s.cols * s.rows / 8, 4), zeros(groups * s.rows / 8, 4);
  std::string scales;
  std::vector<double> scale(groups * s.rows), zero(groups * s.rows);
  for (uint64_t at = 0; at < groups * s.rows; ++at) {
    const uint16_t half = random_scale(random);
    put(scales, half);
    scale[at] = static_cast<double>(kernels::f32_from_f16(half));
  }
  Matrix out(s.rows * s.cols);
  for (uint64_t word = 0; word < groups * s.rows / 8; ++word) {
    for (uint64_t place = 0; place < 8; ++place) {
      const uint32_t point = random() % 16;
      zeros.set(word, place, point);
      zero[word * 8 + kOutputAt[place]] = point;
    }
  }
  for (uint64_t i = 0; i < s.cols; ++i) {
    for (uint64_t word = 0; word < s.rows / 8; ++word) {
      for (uint64_t place = 0; place < 8; ++place) {
        const uint32_t code = random() % 16;
        codes.set(i * (s.rows / 8) + word, place, code);
        const uint64_t o = word * 8 + kOutputAt[place], at = i / kGroup * s.rows + o;
        out[o * s.cols + i] = (code - zero[at]) * scale[at];
      }
    }
  }
  folder[base + ".qweight"] = {"I32", {s.cols, s.rows / 8}, codes.bytes()};
  folder[base + ".qzeros"] = {"I32", {groups, s.rows / 8}, zeros.bytes()};
  folder[base + ".scales"] = {"F16", {groups, s.rows}, scales};
  return out;
}

Matrix packed_int4(Folder& folder, const std::string& base, Sizes s, std::mt19937& random) {
  const uint64_t groups = s.cols / kGroup;
  Words codes(s.rows * s.cols / 8, 4), zeros(s.rows / 8 * groups, 4);
  std::string scales, shape;
  Matrix out(s.rows * s.cols);
  for (uint64_t o = 0; o < s.rows; ++o) {
    for (uint64_t g = 0; g < groups; ++g) {
      const uint16_t half =
          kernels::bf16_from_f32(0.001f + static_cast<float>(random() % 1000) / 20'000);
      put(scales, half);
      const uint32_t point = random() % 16;
      zeros.set(o / 8 * groups + g, o % 8, point);
      for (uint64_t i = g * kGroup; i < (g + 1) * kGroup; ++i) {
        const uint32_t code = random() % 16;
        codes.set(o * (s.cols / 8) + i / 8, i % 8, code);
        out[o * s.cols + i] =
            (static_cast<double>(code) - point) * static_cast<double>(kernels::f32_from_bf16(half));
      }
    }
  }
  put(shape, int64_t{static_cast<int64_t>(s.rows)});
  put(shape, int64_t{static_cast<int64_t>(s.cols)});
  folder[base + ".weight_packed"] = {"I32", {s.rows, s.cols / 8}, codes.bytes()};
  folder[base + ".weight_scale"] = {"BF16", {s.rows, groups}, scales};
  folder[base + ".weight_zero_point"] = {"I32", {s.rows / 8, groups}, zeros.bytes()};
  folder[base + ".weight_shape"] = {"I64", {2}, shape};
  return out;
}

/// Whole numbers of 8 bits with a scale of each output, from `put_scale`, which returns it.
Pack int8(const std::string& scale_name, const std::string& scale_type, std::vector<uint64_t> tail,
          const std::function<double(std::string&, std::mt19937&)>& put_scale) {
  return [=](Folder& folder, const std::string& base, Sizes s, std::mt19937& random) {
    std::string codes, scales;
    Matrix out;
    for (uint64_t o = 0; o < s.rows; ++o) {
      const double scale = put_scale(scales, random);
      for (uint64_t i = 0; i < s.cols; ++i) {
        const auto code = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
        put(codes, code);
        out.push_back(code * scale);
      }
    }
    std::vector<uint64_t> shape{s.rows};
    shape.insert(shape.end(), tail.begin(), tail.end());
    folder[base + ".weight"] = {"I8", {s.rows, s.cols}, codes};
    folder[base + scale_name] = {scale_type, shape, scales};
    return out;
  };
}

Matrix float8(Folder& folder, const std::string& base, Sizes s, std::mt19937& random) {
  constexpr uint64_t kTile = 24;  // the last tiles are cut
  const uint64_t down = (s.rows + kTile - 1) / kTile, across = (s.cols + kTile - 1) / kTile;
  std::string codes, scales;
  std::vector<float> scale;
  for (uint64_t i = 0; i < down * across; ++i) {
    scale.push_back(static_cast<float>(1 + random() % 1000) / 3000);
    put(scales, scale.back());
  }
  Matrix out;
  for (uint64_t o = 0; o < s.rows; ++o) {
    for (uint64_t i = 0; i < s.cols; ++i) {
      uint8_t code = static_cast<uint8_t>(random());
      if ((code & 127) == 127) code = 0x81;  // no number; the smallest below 0
      put(codes, code);
      const int exponent = code >> 3 & 15, mantissa = code & 7;
      const double magnitude =
          exponent == 0 ? mantissa / 512.0 : (1 + mantissa / 8.0) * std::pow(2, exponent - 7);
      out.push_back((code < 128 ? magnitude : -magnitude) *
                    static_cast<double>(scale[o / kTile * across + i / kTile]));
    }
  }
  folder[base + ".weight"] = {"F8_E4M3", {s.rows, s.cols}, codes};
  folder[base + ".weight_scale_inv"] = {"F32", {down, across}, scales};
  return out;
}

struct Published {
  json config;
  Folder folder;
  std::map<std::string, Matrix> matrices;  // by base name
};

/// With the products of its layers packed.
Published publish(const std::string& family, const json& method, const Pack& pack) {
  std::mt19937 random(5);
  Published out;
  out.config = config_of(family);
  out.config["quantization_config"] = method;
  out.folder = plain_folder(family, random);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : out.folder) {
    const bool product = name.find("_proj.weight") != std::string::npos;
    if (product && tensor.shape.size() == 2) names.push_back(name);
  }
  REQUIRE(names.size() > 10);
  for (const std::string& name : names) {
    const std::vector<uint64_t> shape = out.folder.at(name).shape;
    out.folder.erase(name);
    const std::string base = name.substr(0, name.size() - 7);
    out.matrices[base] = pack(out.folder, base, {shape[0], shape[1]}, random);
  }
  return out;
}

Result<models::ConvertReport> convert(const fs::path& dir, const Published& from,
                                      std::optional<DType> type = {}) {
  write(dir / "config.json", from.config.dump());
  write(dir / "model.safetensors", tensor_file(from.folder));
  return models::convert_folder(dir, dir / "out.gguf", {.type = type, .without_tokenizer = true},
                                nullptr);
}

std::vector<float> values_of(const models::GgufFile& file, const std::string& name, DType want) {
  const models::GgufTensor* const tensor = file.find_tensor(name);
  REQUIRE_MESSAGE(tensor != nullptr, name);
  REQUIRE_MESSAGE(tensor->dtype == want, name);
  std::vector<float> out(tensor->num_elements());
  kernels::dequantize(want, tensor->bytes, out);
  return out;
}

/// Of layer 0: names in the published file and in the new one.
const std::map<std::string, std::string> kProducts = {
    {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"}, {"self_attn.o_proj", "attn_output"},
    {"mlp.gate_proj", "ffn_gate"},  {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

void check_values(const Published& from, const fs::path& out, DType type, double tolerance) {
  const models::GgufFile file = open_file(out);
  for (const auto& [product, name] : kProducts) {
    CAPTURE(name);
    const Matrix& want = from.matrices.at("model.layers.0." + product);
    const std::vector<float> met = values_of(file, "blk.0." + name + ".weight", type);
    REQUIRE(met.size() == want.size());
    size_t wrong = 0;
    for (size_t i = 0; i < met.size(); ++i) {
      wrong += std::fabs(static_cast<double>(met[i]) - want[i]) > tolerance * std::fabs(want[i]);
    }
    CHECK(wrong == 0);
  }
}

const json kGptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"sym", true}};
const json kAwq = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"zero_point", true}};
const json kInt4 = {
    {"quant_method", "compressed-tensors"},
    {"config_groups",
     {{"group_0",
       {{"weights",
         {{"num_bits", 4}, {"type", "int"}, {"symmetric", false}, {"group_size", 32}}}}}}}};

const json kInt8 = {{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}};

json changed(json from, const json& with) {
  from.update(with);
  return from;
}

TEST_CASE("convert: packed whole numbers are kept without loss") {
  struct Case {
    const char* name;
    json method;
    Pack pack;
    DType type;
  };
  const json int8_method = {
      {"quant_method", "compressed-tensors"},
      {"config_groups", {{"group_0", {{"weights", {{"num_bits", 8}, {"symmetric", true}}}}}}}};
  const auto bf16_scale = [](std::string& out, std::mt19937& random) {
    const uint16_t half = kernels::bf16_from_f32(static_cast<float>(1 + random() % 99) / 4000);
    put(out, half);
    return static_cast<double>(kernels::f32_from_bf16(half));
  };
  const Case cases[] = {
      {"gptq", kGptq, gptq({}), DType::kQ4_0},
      {"gptq, second format", changed(kGptq, {{"checkpoint_format", "gptq_v2"}}),
       gptq({.second = true}), DType::kQ4_0},
      {"gptq, zero points", changed(kGptq, {{"sym", false}}), gptq({.symmetric = false}),
       DType::kQ5_0},
      {"gptq, 8 bits", changed(kGptq, {{"bits", 8}}), gptq({.bits = 8}), DType::kQ8_0},
      {"awq", kAwq, awq, DType::kQ5_0},
      {"int4", kInt4, packed_int4, DType::kQ5_0},
      {"int8", int8_method, int8(".weight_scale", "BF16", {1}, bf16_scale), DType::kQ8_0},
  };
  for (const Case& each : cases) {
    CAPTURE(each.name);
    const TempDir dir;
    const Published from = publish("qwen3", each.method, each.pack);
    const auto report = convert(dir.path(), from);
    REQUIRE_MESSAGE(report.ok(), report.error().message);
    CHECK(report->num_kept == from.matrices.size());
    CHECK(report->num_rounded == 0);
    check_values(from, dir.path() / "out.gguf", each.type, 0);
    // The same numbers in a type that was asked for.
    REQUIRE(convert(dir.path(), from, DType::kF32).ok());
    check_values(from, dir.path() / "out.gguf", DType::kF32, 1e-7);
  }
}

TEST_CASE("convert: heads' pairs of packed numbers are swapped") {
  const TempDir dir;
  const Published from = publish("llama", kGptq, gptq({}));
  const auto report = convert(dir.path(), from);
  REQUIRE_MESSAGE(report.ok(), report.error().message);
  const models::GgufFile file = open_file(dir.path() / "out.gguf");
  const auto met = values_of(file, "blk.0.attn_q.weight", DType::kQ4_0);
  const Matrix& want = from.matrices.at("model.layers.0.self_attn.q_proj");
  const uint64_t cols = from.config.at("hidden_size"),
                 heads = from.config.at("num_attention_heads");
  const uint64_t rows = met.size() / cols, dim = rows / heads;
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t lane = row % dim, source = row - lane + lane % 2 * (dim / 2) + lane / 2;
    for (uint64_t i = 0; i < cols; ++i) {
      REQUIRE(static_cast<double>(met[row * cols + i]) == want[source * cols + i]);
    }
  }
}

TEST_CASE("convert: whole numbers whose scales are not F16 are kept, and their scales rounded") {
  const auto f32_scale = [](std::string& out, std::mt19937& random) {
    const float largest = 0.1f + static_cast<float>(random() % 1000) / 300;
    put(out, largest);
    return static_cast<double>(largest) / 127;
  };
  const TempDir dir;
  const Published from = publish("qwen3", kInt8, int8(".SCB", "F32", {}, f32_scale));
  const auto report = convert(dir.path(), from);
  REQUIRE_MESSAGE(report.ok(), report.error().message);
  CHECK(report->num_rescaled == from.matrices.size());
  CHECK(report->num_kept + report->num_rounded == 0);
  check_values(from, dir.path() / "out.gguf", DType::kQ8_0, 0x1p-11);
  const auto outliers_from = [&](const json& more, std::optional<DType> type = {}) {
    Published again = from;
    again.config["quantization_config"].update(more);
    if (!convert(dir.path(), again, type).ok()) return -1.0f;
    return models::outliers_from(models::GgufFile::open(dir.path() / "out.gguf").value()).value();
  };
  CHECK(outliers_from(json::object()) == 6);
  CHECK(outliers_from({{"llm_int8_threshold", 4.5}}) == 4.5f);
  CHECK(outliers_from({{"llm_int8_threshold", "much"}}) == -1);
  CHECK(outliers_from(json::object(), DType::kF32) == 0);
}

TEST_CASE("convert: packed numbers that no type holds are rounded only if a type is asked for") {
  // Below what F16 holds with all its digits.
  const auto tiny_scale = [](std::string& out, std::mt19937& random) {
    const float largest = 1e-4f + static_cast<float>(random() % 1000) / 3e6f;
    put(out, largest);
    return static_cast<double>(largest) / 127;
  };
  struct Case {
    json method;
    Pack pack;
    const char* why;
  };
  const Case cases[] = {
      {changed(kGptq, {{"desc_act", true}}), gptq({.act_order = true}), "different scales"},
      {kInt8, int8(".SCB", "F32", {}, tiny_scale), "not numbers of F16"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.why);
    const TempDir dir;
    const Published from = publish("qwen3", each.method, each.pack);
    const auto refused = convert(dir.path(), from);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == ErrorCode::kInvalidArgument);
    CHECK(refused.error().message.find(each.why) != std::string::npos);
    CHECK(refused.error().message.find("_proj.weight") != std::string::npos);
    CHECK_FALSE(fs::exists(dir.path() / "out.gguf"));
    const auto report = convert(dir.path(), from, DType::kF32);
    REQUIRE_MESSAGE(report.ok(), report.error().message);
    CHECK(report->num_rounded == from.matrices.size());
    check_values(from, dir.path() / "out.gguf", DType::kF32, 1e-7);
  }
}

TEST_CASE("convert: 8-bit floats become BF16, or what is asked for") {
  const json method = {{"quant_method", "fp8"}, {"weight_block_size", {24, 24}}};
  const Published from = publish("qwen3", method, float8);
  const TempDir dir;
  const auto report = convert(dir.path(), from);
  REQUIRE_MESSAGE(report.ok(), report.error().message);
  CHECK(report->num_rounded == from.matrices.size());
  check_values(from, dir.path() / "out.gguf", DType::kBF16, 0x1p-8);
  REQUIRE(convert(dir.path(), from, DType::kF32).ok());
  check_values(from, dir.path() / "out.gguf", DType::kF32, 1e-7);
}

const std::string kBase = "model.layers.1.mlp.down_proj";

struct Change {
  const char* what;
  std::function<void(Published&)> change;
  ErrorCode code;
  std::string names;
};

void check_refused(std::span<const Change> changes) {
  for (const Change& each : changes) {
    CAPTURE(each.what);
    Published from = publish("qwen3", kGptq, gptq({}));
    each.change(from);
    const TempDir dir;
    const auto refused = convert(dir.path(), from);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == each.code);
    CHECK_MESSAGE(refused.error().message.find(each.names) != std::string::npos,
                  refused.error().message);
    CHECK_FALSE(fs::exists(dir.path() / "out.gguf"));
  }
}

TEST_CASE("convert: packed parts that do not fit are refused by name") {
  const auto tensor = [](Published& from, const char* part) -> Stored& {
    return from.folder.at(kBase + part);
  };
  const Change changes[] = {
      {"no scales", [&](auto& f) { f.folder.erase(kBase + ".scales"); }, ErrorCode::kCorrupt,
       kBase + ".scales"},
      {"no zero points",
       [&](auto& f) {
         f.folder.erase(kBase + ".qzeros");
         f.config["quantization_config"]["sym"] = false;
       },
       ErrorCode::kCorrupt, kBase + ".qzeros"},
      {"scales of another group size",
       [&](auto& f) { f.config["quantization_config"]["group_size"] = 64; }, ErrorCode::kCorrupt,
       ".scales"},
      {"a group size of no sense",
       [&](auto& f) { f.config["quantization_config"]["group_size"] = 0.5; }, ErrorCode::kCorrupt,
       "group_size"},
      {"codes of another type", [&](auto& f) { tensor(f, ".qweight").type = "F32"; },
       ErrorCode::kCorrupt, kBase + ".qweight"},
      {"zero points of another shape",
       [&](auto& f) {
         Stored& zeros = tensor(f, ".qzeros");
         std::swap(zeros.shape[0], zeros.shape[1]);
       },
       ErrorCode::kCorrupt, kBase + ".qzeros"},
      {"a scale that is not a number",
       [&](auto& f) {
         const uint16_t nan = 0x7E00;
         std::memcpy(tensor(f, ".scales").bytes.data() + 6, &nan, 2);
       },
       ErrorCode::kCorrupt, kBase + ".scales: scale 3"},
      {"a group that is not there",
       [&](auto& f) {
         const int32_t group = 9999;
         std::memcpy(tensor(f, ".g_idx").bytes.data(), &group, 4);
       },
       ErrorCode::kCorrupt, kBase + ".g_idx"},
      {"the matrix itself, too",
       [&](auto& f) {
         f.folder[kBase + ".weight"] = {"F16", {1, 1}, "ab"};
       },
       ErrorCode::kCorrupt, kBase + ".weight"}};
  check_refused(changes);
}

TEST_CASE("convert: settings of packed numbers that are not read are refused by name") {
  const Change changes[] = {
      {"3 bits", [&](auto& f) { f.config["quantization_config"]["bits"] = 3; },
       ErrorCode::kUnsupported, "bits"},
      {"another method", [&](auto& f) { f.config["quantization_config"]["quant_method"] = "hqq"; },
       ErrorCode::kUnsupported, "hqq"},
      {"4 bits of bitsandbytes",
       [&](auto& f) {
         f.config["quantization_config"] = {{"quant_method", "bitsandbytes"}};
       },
       ErrorCode::kUnsupported, "load_in_4bit"},
      {"AWQ of another layout",
       [&](auto& f) {
         f.config["quantization_config"] = changed(kAwq, {{"version", "gemv"}});
       },
       ErrorCode::kUnsupported, "gemv"},
  };
  check_refused(changes);
}

}  // namespace
}  // namespace hearth::golden
