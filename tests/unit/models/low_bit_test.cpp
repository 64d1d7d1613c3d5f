// Files with weights of the types that hearth reads and does not write.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <limits>

#include "kernels/ops.h"
#include "kernels/quant/quant_layout.h"
#include "models/gguf/tensor_scales.h"
#include "models/model.h"
#include "tests/unit/models/raw_gguf.h"
#include "tests/unit/models/tiny_model.h"

namespace hearth::models {
namespace {

using kernels::DType;

constexpr uint64_t kWide = 256;  // whole blocks of every type

/// A model of family llama whose matrices are of `type`, all their bits zero.
GgufWriter model_of(DType type) {
  GgufWriter w;
  w.set_string("general.architecture", "llama");
  set_llama_metadata(&w, 1, kWide, kWide, 2, 2);
  const auto matrix = [&](const std::string& name, uint64_t rows) {
    const uint64_t dims[] = {kWide, rows};
    w.add_tensor(name, dims, type, std::vector<std::byte>(kernels::bytes_of(type, kWide * rows)));
  };
  matrix("token_embd.weight", 16);
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    matrix(fmt::format("blk.0.{}.weight", name), kWide);
  }
  for (const char* name : {"blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"}) {
    add_ones(&w, fmt::format("{}.weight", name), {kWide});
  }
  return w;
}

Result<std::unique_ptr<Model>> load(const GgufWriter& writer) {
  const std::vector<std::byte> bytes = writer.bytes();
  HEARTH_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::parse(bytes, "file"));
  return load_model(file, kernels::reference_ops(), nullptr);
}

TEST_CASE("a model is loaded whatever type its matrices have") {
  for (const DType type : kernels::kQuantTypes) {
    const auto model = load(model_of(type));
    CHECK_MESSAGE(model.ok(), kernels::info(type).name, ": ",
                  (model.ok() ? "" : model.error().message));
  }
}

TEST_CASE("low-bit tensors with rows of parts of blocks, or cut off, are named") {
  for (const DType type : kernels::kQuantTypes) {
    const kernels::DTypeInfo& info = kernels::info(type);
    CAPTURE(info.name);
    const auto block = static_cast<uint64_t>(info.block_elements);
    const auto id = static_cast<uint32_t>(type);
    RawGguf part(1, 0);
    part.tensor("blk.0.x", {block / 2, 2}, id, 0).data(static_cast<size_t>(info.block_bytes));
    const auto met = part.parse();
    REQUIRE_FALSE(met.ok());
    CHECK(met.error().message.find("blk.0.x") != std::string::npos);
    CHECK(met.error().message.find(fmt::format("multiple of {}", block)) != std::string::npos);
    RawGguf less(1, 0);
    less.tensor("blk.0.x", {block, 3}, id, 0).data(static_cast<size_t>(info.block_bytes) * 3 - 1);
    REQUIRE_FALSE(less.parse().ok());
    CHECK(less.parse().error().message.find("blk.0.x") != std::string::npos);
  }
}

/// A model in NVFP4 with one more tensor.
Result<std::unique_ptr<Model>> load_with(const std::string& name, std::vector<float> values) {
  GgufWriter w = model_of(DType::kNVFP4);
  const uint64_t dims[] = {values.size()};
  w.add_floats(name, dims, DType::kF32, values);
  return load(w);
}

TEST_CASE("scales of whole tensors, which published NVFP4 has, are loaded or refused by name") {
  CHECK(load_with("blk.0.attn_q.scale", {0.5f}).ok());
  CHECK(load_with("blk.0.attn_q.input_scale", {0.5f}).ok());
  const auto refused = [](const std::string& name, std::vector<float> values, ErrorCode code) {
    const auto model = load_with(name, std::move(values));
    return !model.ok() && model.error().code == code &&
           model.error().message.find(name.substr(0, name.rfind('.'))) != std::string::npos;
  };
  CHECK(refused("blk.0.attn_q.scale", {0.5f, 1}, ErrorCode::kUnsupported));
  CHECK(
      refused("blk.0.attn_q.scale", {std::numeric_limits<float>::infinity()}, ErrorCode::kCorrupt));
  CHECK(refused("blk.0.attn_x.scale", {0.5f}, ErrorCode::kUnsupported));
  // No product is computed with these rows.
  CHECK(refused("token_embd.scale", {0.5f}, ErrorCode::kUnsupported));
}

TEST_CASE("the size from which inputs are outliers is a finite number above 0") {
  const auto with = [](float from) {
    GgufWriter w = model_of(DType::kQ8_0);
    w.set_f32(kOutliersFrom, from);
    return load(w);
  };
  CHECK(with(6).ok());
  for (const float from : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    const auto model = with(from);
    REQUIRE_FALSE(model.ok());
    CHECK(model.error().message.find("quantization.outliers_from") != std::string::npos);
  }
}

}  // namespace
}  // namespace hearth::models
