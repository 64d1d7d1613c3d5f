// Conversion to another type: which tensors get which type, what stays unchanged, and what is
// refused.

#include "models/quantize/quantize_file.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "kernels/quant/quant_types.h"
#include "models/gguf/gguf_writer.h"
#include "models/model.h"
#include "models/quantize/quantize_rows.h"
#include "models/random_model.h"
#include "tests/temp_dir.h"

namespace hearth::models {
namespace {

using kernels::DType;

GgufTensor tensor(std::string_view name, uint64_t cols, uint64_t rows, DType dtype = DType::kF16) {
  GgufTensor out;
  out.name = name;
  out.num_dims = rows > 0 ? 2 : 1;
  out.dims = {cols, std::max<uint64_t>(1, rows), 1, 1};
  out.dtype = dtype;
  return out;
}

TEST_CASE("mixes: tensors that matter most to the output get more bits") {
  const MixModel model{.num_layers = 16, .num_experts = 0, .heads_per_kv_head = 4, .tied = false};
  const auto type = [&](const char* mix, const std::string& name, uint64_t cols = 512) {
    return choose_type(find_mix(mix).value(), model, tensor(name, cols, 64));
  };
  CHECK(type("Q4_K_M", "output.weight") == DType::kQ6_K);
  CHECK(type("Q4_K_M", "token_embd.weight") == DType::kQ4_K);
  CHECK(type("Q8_0", "output.weight") == DType::kQ8_0);
  CHECK(type("F16", "output.weight") == DType::kF16);
  // Of 16 layers the first two, the last two, and every third between.
  std::map<int, bool> fine;
  for (int i = 0; i < 16; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".";
    const DType v = type("Q4_K_M", blk + "attn_v.weight");
    CHECK(type("Q4_K_M", blk + "ffn_down.weight") == v);
    CHECK(type("Q4_K_M", blk + "attn_q.weight") == DType::kQ4_K);
    CHECK((v == DType::kQ6_K || v == DType::kQ4_K));
    fine[i] = v == DType::kQ6_K;
    CHECK(type("Q5_K_M", blk + "attn_v.weight") == (fine[i] ? DType::kQ6_K : DType::kQ5_K));
    CHECK(type("Q4_K_S", blk + "attn_v.weight") == (i < 4 ? DType::kQ5_K : DType::kQ4_K));
    CHECK(type("Q5_K_S", blk + "attn_v.weight") == DType::kQ5_K);
    CHECK(type("Q3_K_M", blk + "attn_v.weight") == (i < 2 ? DType::kQ5_K : DType::kQ4_K));
    CHECK(type("Q3_K_M", blk + "ffn_down.weight") == (i < 1 ? DType::kQ5_K : DType::kQ4_K));
    CHECK(type("Q3_K_L", blk + "ffn_down.weight") == DType::kQ5_K);
    CHECK(type("Q2_K", blk + "attn_v.weight") == DType::kQ4_K);
  }
  const std::map<int, bool> wanted = {{0, true},   {1, true},  {2, false}, {3, false},
                                      {4, true},   {5, false}, {6, false}, {7, true},
                                      {8, false},  {9, false}, {10, true}, {11, false},
                                      {12, false}, {13, true}, {14, true}, {15, true}};
  CHECK(fine == wanted);

  MixModel tied = model;
  tied.tied = true;
  const Mix q4 = find_mix("q4_k_m").value();
  CHECK(choose_type(q4, tied, tensor("token_embd.weight", 512, 64)) == DType::kQ6_K);
  MixModel experts = model;
  experts.num_experts = 8;
  CHECK(choose_type(q4, experts, tensor("blk.5.attn_k.weight", 512, 64)) == DType::kQ8_0);
}

TEST_CASE("rows that do not divide into blocks, and tensors that are not matrices") {
  const MixModel model{.num_layers = 4, .num_experts = 0, .heads_per_kv_head = 1, .tied = false};
  const auto type = [&](const char* mix, uint64_t cols) {
    return choose_type(find_mix(mix).value(), model, tensor("blk.0.attn_q.weight", cols, 64));
  };
  CHECK(type("Q4_K_M", 288) == DType::kQ5_0);
  CHECK(type("Q6_K", 288) == DType::kQ8_0);
  CHECK(type("Q2_K", 288) == DType::kQ4_0);
  CHECK(type("IQ4_XS", 288) == DType::kIQ4_NL);
  CHECK(type("Q4_K_M", 40) == DType::kF16);
  CHECK(type("F32", 40) == DType::kF32);
  const Mix mix = find_mix("Q4_0").value();
  for (const char* name :
       {"blk.0.attn_norm.weight", "blk.0.ffn_gate_inp.weight", "blk.0.attn_q.bias"}) {
    CAPTURE(name);
    CHECK(choose_type(mix, model, tensor(name, 512, 64, DType::kF32)) == DType::kF32);
  }
  CHECK(choose_type(mix, model, tensor("blk.0.attn_q.weight", 512, 0, DType::kF32)) == DType::kF32);
  CHECK(find_mix("Q9").error().message.find("Q4_K_M") != std::string::npos);
}

QuantizeOptions as(const char* mix, int32_t threads = 2) {
  return {.mix = find_mix(mix).value(), .num_threads = threads, .requantize = false};
}

/// A small random model in F16, written to `dir`.
GgufFile small_model(const tests::TempDir& dir) {
  const auto random = RandomModel::create(find_shape("tiny").value(), DType::kF16, 1);
  REQUIRE(random.ok());
  REQUIRE(write_random_model(random.value(), dir.path() / "in.gguf", 1, nullptr).ok());
  return GgufFile::open(dir.path() / "in.gguf").value();
}

TEST_CASE("a model in another type: values within a step, everything else unchanged") {
  const tests::TempDir dir;
  const GgufFile in = small_model(dir);
  for (const char* name : {"Q8_0", "Q4_K_M", "Q4_0"}) {
    CAPTURE(name);
    const auto path = dir.path() / "out.gguf";
    const auto report = quantize_file(in, path, as(name), nullptr);
    REQUIRE_MESSAGE(report.ok(), (report.ok() ? "" : report.error().message));
    const auto opened = GgufFile::open(path);
    REQUIRE_MESSAGE(opened.ok(), (opened.ok() ? "" : opened.error().message));
    const GgufFile& out = opened.value();
    CHECK(out.tensors().size() == in.tensors().size());
    uint64_t bytes = 0;
    for (const GgufTensor& after : out.tensors()) {
      const GgufTensor* before = in.find_tensor(after.name);
      REQUIRE(before != nullptr);
      CHECK(after.dims == before->dims);
      bytes += after.bytes.size();
      if (after.dtype == before->dtype) {
        CHECK(std::memcmp(after.bytes.data(), before->bytes.data(), after.bytes.size()) == 0);
        continue;
      }
      std::vector<float> was(before->num_elements()), is(after.num_elements());
      kernels::dequantize(*before->dtype, before->bytes, was);
      kernels::dequantize(*after.dtype, after.bytes, is);
      double squares = 0, missed = 0;
      for (size_t i = 0; i < was.size(); ++i) {
        squares += double{was[i]} * was[i];
        missed += (double{is[i]} - was[i]) * (double{is[i]} - was[i]);
      }
      CAPTURE(after.name);
      CHECK(std::sqrt(missed / squares) < (*after.dtype == DType::kQ8_0 ? 0.01 : 0.12));
    }
    CHECK(bytes == report->bytes_after);
    CHECK(report->num_changed > 0);
    for (const GgufEntry& entry : in.metadata()) {
      const GgufEntry* kept = out.find(entry.key);
      if (entry.key == "general.file_type" || entry.key == "general.quantization_version") continue;
      REQUIRE(kept != nullptr);
      CHECK(kept->type == entry.type);
      CHECK(kept->count == entry.count);
      REQUIRE(kept->payload.size() == entry.payload.size());
      CHECK(std::memcmp(kept->payload.data(), entry.payload.data(), entry.payload.size()) == 0);
    }
    CHECK(out.get<uint32_t>("general.file_type").value() == as(name).mix.file_type);
    CHECK(load_model(out, kernels::reference_ops(), nullptr).ok());
    CHECK_FALSE(std::filesystem::exists(path.string() + ".part"));
  }
}

TEST_CASE("the same bytes from any number of threads, and from rows quantized separately") {
  const tests::TempDir dir;
  const GgufFile in = small_model(dir);
  REQUIRE(quantize_file(in, dir.path() / "a.gguf", as("Q4_0", 1), nullptr).ok());
  REQUIRE(quantize_file(in, dir.path() / "b.gguf", as("Q4_0", 3), nullptr).ok());
  const GgufFile a = GgufFile::open(dir.path() / "a.gguf").value();
  const GgufFile b = GgufFile::open(dir.path() / "b.gguf").value();
  REQUIRE(a.parts()[0].content.size() == b.parts()[0].content.size());
  CHECK(std::memcmp(a.parts()[0].content.data(), b.parts()[0].content.data(),
                    a.parts()[0].content.size()) == 0);
  const GgufTensor* from = in.find_tensor("blk.0.attn_q.weight");
  const GgufTensor* to = a.find_tensor("blk.0.attn_q.weight");
  REQUIRE((from != nullptr && to != nullptr));
  std::vector<float> values(from->num_elements());
  kernels::dequantize(*from->dtype, from->bytes, values);
  const auto rows = quantize_rows(*to->dtype, values, static_cast<int64_t>(to->dims[0]));
  REQUIRE(rows.ok());
  CHECK(std::memcmp(rows.value().data(), to->bytes.data(), to->bytes.size()) == 0);
}

/// NVFP4 with a scale per matrix, as it is converted from published weights.
GgufWriter scaled_nvfp4(const std::vector<float>& scales, uint64_t experts) {
  GgufWriter w;
  w.set_string("general.architecture", "none");
  w.set_u32("none.block_count", 1);
  const uint64_t count = 128 * 2 * experts;
  std::vector<std::byte> bytes(kernels::bytes_of(DType::kNVFP4, count));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 % 120);
  const std::vector<uint64_t> dims = {128, 2, experts}, one = {scales.size()};
  w.add_tensor("blk.0.ffn_up_exps.weight", dims, DType::kNVFP4, bytes);
  w.add_floats("blk.0.ffn_up_exps.scale", one, DType::kF32, scales);
  w.add_floats("blk.0.ffn_up_exps.input_scale", one, DType::kF32, scales);
  w.add_floats("blk.0.ffn_gate_inp.scale", one, DType::kF32, scales);  // of no NVFP4
  return w;
}

TEST_CASE("scales of NVFP4's matrices become part of them") {
  const tests::TempDir dir;
  const std::vector<float> scales = {0.5f, 3.0f, -0.1f};
  const std::vector<std::byte> bytes = scaled_nvfp4(scales, 3).bytes();
  const GgufFile in = GgufFile::parse(bytes, "scaled").value();
  QuantizeOptions options = as("F32");
  options.requantize = true;
  const auto report = quantize_file(in, dir.path() / "out.gguf", options, nullptr);
  REQUIRE_MESSAGE(report.ok(), (report.ok() ? "" : report.error().message));
  const GgufFile out = GgufFile::open(dir.path() / "out.gguf").value();
  REQUIRE(out.tensors().size() == 2);
  CHECK(out.find_tensor("blk.0.ffn_gate_inp.scale") != nullptr);
  const GgufTensor* to = out.find_tensor("blk.0.ffn_up_exps.weight");
  REQUIRE(to != nullptr);
  std::vector<float> was(to->num_elements()), is(to->num_elements());
  kernels::dequantize(DType::kNVFP4, in.find_tensor(to->name)->bytes, was);
  kernels::dequantize(DType::kF32, to->bytes, is);
  for (size_t i = 0; i < was.size(); ++i) REQUIRE(is[i] == was[i] * scales[i / 256]);

  const auto refused = [&](const std::vector<float>& wrong) {
    const std::vector<std::byte> content = scaled_nvfp4(wrong, 3).bytes();
    const GgufFile file = GgufFile::parse(content, "scaled").value();
    return quantize_file(file, dir.path() / "no.gguf", options, nullptr).error().message;
  };
  CHECK(refused({1, 2}) == "blk.0.ffn_up_exps.scale: F32 of shape [2], want 3 of F32");
  CHECK(refused({1, 2, std::nanf("")}).find("element 2 is nan") != std::string::npos);
}

TEST_CASE("a refused file leaves no output") {
  const tests::TempDir dir;
  const GgufFile in = small_model(dir);
  REQUIRE(quantize_file(in, dir.path() / "q4.gguf", as("Q4_0"), nullptr).ok());
  const GgufFile q4 = GgufFile::open(dir.path() / "q4.gguf").value();
  const auto out = dir.path() / "out.gguf";
  const auto twice = quantize_file(q4, out, as("Q4_1"), nullptr);
  REQUIRE_FALSE(twice.ok());
  CHECK(twice.error().code == ErrorCode::kUnsupported);
  CHECK(twice.error().message.find("--requantize") != std::string::npos);
  QuantizeOptions insisting = as("Q4_1");
  insisting.requantize = true;
  CHECK(quantize_file(q4, out, insisting, nullptr).ok());
  std::filesystem::remove(out);

  const auto stopped = quantize_file(in, out, as("Q4_0"), [](uint64_t, uint64_t) { return false; });
  CHECK(stopped.error().code == ErrorCode::kCancelled);

  GgufWriter writer;
  writer.set_string("general.architecture", "none");
  std::vector<float> values(64, 1.0f);
  values[40] = std::nanf("");
  const std::vector<uint64_t> dims = {32, 2};
  writer.add_floats("blk.0.ffn_up.weight", dims, DType::kF32, values);
  const std::vector<std::byte> bytes = writer.bytes();
  const GgufFile bad = GgufFile::parse(bytes, "bad").value();
  const auto nan = quantize_file(bad, out, as("Q8_0"), nullptr);
  REQUIRE_FALSE(nan.ok());
  CHECK(nan.error().message.find("blk.0.ffn_up.weight") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(out));
  CHECK_FALSE(std::filesystem::exists(out.string() + ".part"));
}

}  // namespace
}  // namespace hearth::models
