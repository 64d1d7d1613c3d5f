// Every quantized type compared with blocks that the gguf Python package unpacked (make_blocks.py).

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "kernels/quant/quant_layout.h"
#include "kernels/quant/quant_types.h"
#include "models/quantize/put_together.h"
#include "tests/paths.h"

namespace hearth::kernels {
namespace {

struct GoldenBlock {
  DType type;
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<GoldenBlock> golden_blocks() {
  std::ifstream file(hearth::tests::source_path("tests/golden/quant/blocks.json"));
  const auto json = nlohmann::json::parse(file);
  std::vector<GoldenBlock> blocks;
  for (uint32_t id = 0; id < 64; ++id) {
    const auto type = dtype_from_gguf(id);
    if (!type || !json.contains(info(*type).name)) continue;
    for (const auto& entry : json[std::string(info(*type).name)]) {
      GoldenBlock block{*type, from_hex(entry["bytes"]), {}};
      const std::vector<std::byte> floats = from_hex(entry["f32"]);
      block.values.resize(floats.size() / 4);
      std::memcpy(block.values.data(), floats.data(), floats.size());
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

/// Equal bits, where any NaN equals a NaN.
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], 4) != 0) {
      MESSAGE("value " << i << ": " << a[i] << ", want " << b[i]);
      return false;
    }
  }
  return a.size() == b.size();
}

TEST_CASE("stored blocks dequantize to the published values, to the bit") {
  const std::vector<GoldenBlock> blocks = golden_blocks();
  CHECK(blocks.size() == 8 * 6 + 15 * 4);
  for (const GoldenBlock& block : blocks) {
    std::vector<float> got(block.values.size());
    dequantize(block.type, block.bytes, got);
    CHECK_MESSAGE(same(got, block.values), info(block.type).name);
  }
}

TEST_CASE("unpacked codes packed again give the original block") {
  for (const GoldenBlock& block : golden_blocks()) {
    if (quant_index(block.type) < 0 || !models::is_written(block.type)) continue;
    std::vector<std::byte> again(block.bytes.size());
    models::put_together(block.type, take_apart(block.type, block.bytes.data()), again.data());
    CHECK_MESSAGE(again == block.bytes, info(block.type).name);
  }
}

TEST_CASE("embed gives the published values on every table, from any lane of a packed group") {
  std::vector<OpTable> tables{reference_ops()};
  for (const std::string& variant : cpu_variants()) {
    tables.push_back(cpu_ops({.num_threads = 1, .variant = variant}).value());
  }
  for (const GoldenBlock& block : golden_blocks()) {
    // The block in every row, so that each lane holds it once.
    constexpr int32_t kRows = 18;
    const auto cols = static_cast<int64_t>(block.values.size());
    std::vector<std::byte> bytes;
    for (int r = 0; r < kRows; ++r) {
      bytes.insert(bytes.end(), block.bytes.begin(), block.bytes.end());
    }
    const HostTensor tensor{"golden", block.type, kRows, cols, bytes};
    std::vector<int32_t> tokens(kRows);
    for (int32_t r = 0; r < kRows; ++r) tokens[static_cast<size_t>(r)] = r;
    BatchIndex batch;
    batch.num_tokens = kRows;
    batch.token_ids = tokens.data();
    for (const OpTable& ops : tables) {
      const auto table = ops.pack_weights(ops.state.get(), {&tensor, 1}, WeightRole::kEmbedding);
      REQUIRE(table.ok());
      std::vector<float> out(static_cast<size_t>(kRows * cols));
      ops.embed(ops.state.get(), {.batch = &batch,
                                  .table = table->get(),
                                  .out = {out.data(), DType::kF32, kRows, cols, cols}});
      for (int32_t r = 0; r < kRows; ++r) {
        const auto* row = out.data() + r * cols;
        CHECK_MESSAGE(same({row, row + cols}, block.values),
                      info(block.type).name << " " << ops.device.variant << " row " << r);
      }
    }
  }
}

}  // namespace
}  // namespace hearth::kernels
