// What pack_weights refuses, on every table: the tensors come from files.

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "kernels/quant/quant_group.h"
#include "kernels/quant/quant_layout.h"

namespace hearth::kernels {
namespace {

std::vector<OpTable> tables() {
  return {reference_ops(), cpu_ops({.num_threads = 2, .variant = ""}).value()};
}

void check_refused(const OpTable& table, std::vector<HostTensor> tensors, WeightRole role,
                   const std::string& wanted) {
  const auto result = table.pack_weights(table.state.get(), tensors, role);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code == ErrorCode::kUnsupported);
  CHECK(result.error().message.find("blk.0.x") != std::string::npos);
  CHECK_MESSAGE(result.error().message.find(wanted) != std::string::npos, result.error().message);
}

TEST_CASE("types and shapes that cannot be packed are errors that name the tensor") {
  const std::vector<std::byte> bytes(4096);
  const std::span<const std::byte> all(bytes);
  for (const OpTable& table : tables()) {
    CAPTURE(table.device.variant);
    const WeightRole m = WeightRole::kMatmul;
    check_refused(table, {{"blk.0.x", DType::kQ8_K, 1, 256, all.first(292)}}, m, "Q8_K");
    check_refused(table, {{"blk.0.x", DType::kQ4_K, 9, 128, all.first(648)}}, m, "multiple of 256");
    check_refused(table, {{"blk.0.x", DType::kI32, 2, 2, all.first(16)}}, m, "I32");
    check_refused(table, {{"blk.0.x", DType::kQ8_0, 16, 2, all.first(34)}}, m, "multiple of 32");
    check_refused(table, {{"blk.0.x", DType::kF32, 4, 4, all.first(63)}}, m, "want 64");
    check_refused(table, {{"blk.0.x", DType::kF32, 4, 4, all.first(65)}}, m, "want 64");
    check_refused(table, {{"blk.0.x", DType::kF32, 0, 4, {}}}, m, "[0,4]");
    check_refused(table, {{"blk.0.x", DType::kF32, 4, -1, {}}}, m, "[4,-1]");
    check_refused(table, {{"blk.0.x", DType::kF32, INT64_MAX, INT64_MAX, {}}}, m, "shape");
    check_refused(table,
                  {{"blk.0.y", DType::kF32, 1, 4, all.first(16)},
                   {"blk.0.x", DType::kF32, 1, 5, all.first(20)}},
                  m, "blk.0.y");
    check_refused(table,
                  {{"blk.0.x", DType::kF32, 1, 4, all.first(16)},
                   {"blk.0.x", DType::kF32, 1, 4, all.first(16)}},
                  WeightRole::kEmbedding, "one tensor");
    check_refused(table, {{"blk.0.x", DType::kF32, 2, 4, all.first(32)}}, WeightRole::kVector,
                  "vector");
    check_refused(table, {{"blk.0.x", DType::kQ8_0, 1, 32, all.first(34)}}, WeightRole::kVector,
                  "vector");
    check_refused(table, {{"blk.0.x", DType::kF32, 6, 4, all.first(96), 3}}, m, "experts");
    check_refused(table, {{"blk.0.x", DType::kF32, 6, 4, all.first(96), 4}}, WeightRole::kExperts,
                  "6 rows of 4 experts");
    check_refused(table, {{"blk.0.x", DType::kF32, 6, 4, all.first(96), 0}}, WeightRole::kExperts,
                  "experts");
    check_refused(table,
                  {{"blk.0.y", DType::kF32, 6, 4, all.first(96), 3},
                   {"blk.0.x", DType::kF32, 6, 4, all.first(96), 2}},
                  WeightRole::kExperts, "blk.0.y");
  }
}

TEST_CASE("rows of every quantized type come out of a group as they went in") {
  std::mt19937 random(11);
  for (const DType type : kQuantTypes) {
    CAPTURE(info(type).name);
    constexpr int64_t kCols = 512;
    std::vector<std::vector<std::byte>> rows(16);
    for (auto& row : rows) {
      row.resize(bytes_of(type, kCols));
      for (std::byte& byte : row) byte = static_cast<std::byte>(random());
    }
    // Whatever was there before: each byte of a row is written, and none of another's.
    std::vector<std::byte> group(static_cast<size_t>(quant_layout(type).group_bytes(kCols)),
                                 std::byte{0xa5});
    for (int lane = 15; lane >= 0; --lane) {
      place_row(type, rows[static_cast<size_t>(lane)].data(), kCols, lane, group.data());
    }
    for (int lane = 0; lane < 16; ++lane) {
      std::vector<float> wanted(kCols), got(kCols);
      dequantize(type, rows[static_cast<size_t>(lane)], wanted);
      lane_values(type, group.data(), kCols, lane, got.data());
      CHECK(std::memcmp(wanted.data(), got.data(), kCols * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("vectors become f32 and join") {
  const std::vector<uint16_t> halves{0x3c00, 0xc000};  // 1, -2 in f16
  const std::vector<float> floats{0.5f};
  const std::vector<uint16_t> brains{0x4040};  // 3 in bf16
  const std::vector<HostTensor> parts{{"a", DType::kF16, 1, 2, std::as_bytes(std::span(halves))},
                                      {"b", DType::kF32, 1, 1, std::as_bytes(std::span(floats))},
                                      {"c", DType::kBF16, 1, 1, std::as_bytes(std::span(brains))}};
  for (const OpTable& table : tables()) {
    const auto weight = table.pack_weights(table.state.get(), parts, WeightRole::kVector);
    REQUIRE(weight.ok());
    const Weight& w = **weight;
    CHECK(w.rows == 1);
    REQUIRE(w.cols == 4);
    CHECK(std::vector<float>(w.vector, w.vector + 4) == std::vector<float>{1, -2, 0.5f, 3});
  }
}

}  // namespace
}  // namespace hearth::kernels
