#include "tests/cuda/row_bits.h"

#include <fmt/core.h>

#include <cstring>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/cuda/host/cublaslt.h"
#include "kernels/cuda/host/state.h"

namespace hearth::tests {
namespace {

using namespace hearth::kernels;  // NOLINT

constexpr int64_t kRows = 2048;
constexpr int64_t kRowCounts[] = {1, 2, 8, 16, 33, 64, 100, 128, 512, 1000, kRows};

struct Shape {
  int64_t outputs;
  int64_t inputs;
};

DeviceBuffer allocate(const OpTable& ops, int64_t bytes) {
  auto buffer = DeviceBuffer::allocate(ops, static_cast<size_t>(bytes), "row bits");
  HEARTH_CHECK(buffer.ok(), "{}", buffer.error().message);
  return std::move(buffer).value();
}

/// Numbers of both signs around 2^-5: the bits of f16, or of bf16.
DeviceBuffer random_16(const OpTable& ops, LtType type, int64_t count, uint32_t seed) {
  std::vector<uint16_t> values(static_cast<size_t>(count));
  const auto bits = [type](uint32_t random) {
    const uint32_t exponent = 122 + (random >> 20) % 4;  // of a float
    const bool f16 = type == LtType::kF16;
    const uint32_t mantissa = random & (f16 ? 0x3ffu : 0x7fu);
    return (random >> 16 & 0x8000u) | (f16 ? (exponent - 112) << 10 : exponent << 7) | mantissa;
  };
  for (uint16_t& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<uint16_t>(bits(seed ^ seed >> 15));
  }
  DeviceBuffer buffer = allocate(ops, count * 2);
  ops.copy_to_device(ops.state.get(), buffer.data(), values.data(), buffer.size());
  return buffer;
}

/// "same" or "differs": the bits of this many rows compared with those of the most rows; "refused"
/// if the algorithm does not take so few.
std::string compare(const OpTable& ops, LtProducts& products, const LtShape& shape,
                    LtProduct product, int64_t rows, const DeviceBuffer& out,
                    const std::vector<float>& all) {
  product.rows = rows;
  if (!products.run_pinned(shape, product)) return "refused";
  std::vector<float> some(static_cast<size_t>(rows * shape.outputs));
  ops.copy_to_host(ops.state.get(), some.data(), out.data(), some.size() * sizeof(float));
  return std::memcmp(some.data(), all.data(), some.size() * sizeof(float)) == 0 ? "same"
                                                                                : "differs";
}

void print_shape(const OpTable& ops, LtProducts& products, LtType type, Shape size) {
  const LtShape shape{type, size.outputs, size.inputs, kRows};
  const DeviceBuffer workspace = allocate(ops, kFastWorkspaceBytes);
  products.pin(shape, workspace.size());
  const char* name = type == LtType::kF16 ? "f16" : "bf16";
  if (!products.can_run(shape)) {
    fmt::print("{} {} x {}: no algorithm\n", name, size.outputs, size.inputs);
    return;
  }
  const DeviceBuffer weights = random_16(ops, type, size.outputs * size.inputs, 1);
  const DeviceBuffer x = random_16(ops, type, kRows * size.inputs, 2);
  const DeviceBuffer out = allocate(ops, kRows * size.outputs * 4);
  LtProduct product;
  product.weights = weights.data();
  product.x = x.data();
  product.rows = kRows;
  product.out = out.as<float>();
  product.out_stride = size.outputs;
  product.workspace = workspace.data();
  product.workspace_bytes = workspace.size();
  product.stream = cuda_state(ops.state.get()).stream.get();
  products.run(shape, product);
  std::vector<float> all(static_cast<size_t>(kRows * size.outputs));
  ops.copy_to_host(ops.state.get(), all.data(), out.data(), all.size() * sizeof(float));
  fmt::print("{} {} x {}:", name, size.outputs, size.inputs);
  for (const int64_t rows : kRowCounts) {
    fmt::print(" {} {},", rows, compare(ops, products, shape, product, rows, out, all));
  }
  fmt::print("\n");
}

}  // namespace

bool print_row_bits(const kernels::OpTable& ops, bool small) {
  const auto library = open_cublaslt();
  auto products = library.ok() ? LtProducts::open(library->api)
                               : Result<std::unique_ptr<LtProducts>>(library.error());
  if (!products.ok()) {
    fmt::print("no cuBLASLt: {}\n", products.error().message);
    return false;
  }
  fmt::print("cuBLASLt {}: rows of a product by the algorithm for {}, of which the bits are\n",
             (*products)->version(), kRows);
  const std::vector<Shape> shapes =
      small ? std::vector<Shape>{{256, 256}}
            : std::vector<Shape>{
                  {6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}, {128256, 4096}};
  for (const LtType type : {LtType::kF16, LtType::kBF16}) {
    for (const Shape& shape : shapes) print_shape(ops, **products, type, shape);
  }
  return true;
}

}  // namespace hearth::tests
