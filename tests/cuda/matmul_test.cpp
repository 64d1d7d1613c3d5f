// matmul compared with the reference, and its batch invariance by ==.

#include <algorithm>
#include <cmath>

#include "kernels/cuda/host/state.h"
#include "kernels/cuda/matmul/quant_layout.cuh"
#include "tests/cuda/rig.h"

namespace hearth::tests {
namespace {

struct Case {
  std::vector<DType> types;      // of the joined tensors
  std::vector<int64_t> outputs;  // of each joined tensor
  int64_t cols;
  int32_t num_rows;
  bool residual = false;  // added in place
  Rows rows = Rows::kTokens;
  bool exact_inputs = false;  // x has values of few bits
};

std::vector<float> run(const OpTable& ops, const Case& c, WeightRole role = WeightRole::kMatmul) {
  std::vector<Tensor> parts;
  int64_t outputs = 0;
  for (size_t i = 0; i < c.types.size(); ++i) {
    parts.push_back(random_tensor(20 + i, c.types[i], c.outputs[i], c.cols));
    outputs += c.outputs[i];
  }
  const auto weight = pack(ops, parts, role);
  CHECK(weight->rows == outputs);
  const Step step(ops, c.num_rows);
  // Each row has its own seed, so that its inputs are the same in every step.
  std::vector<float> inputs, residual;
  for (int32_t row = 0; row < step.bound(); ++row) {
    std::vector<float> values = Random(100 + static_cast<uint64_t>(row)).floats(c.cols);
    for (float& value : values) {
      if (c.exact_inputs) value = std::round(value * 64) / 64;
    }
    inputs.insert(inputs.end(), values.begin(), values.end());
    const std::vector<float> more = Random(900 + static_cast<uint64_t>(row)).floats(outputs);
    residual.insert(residual.end(), more.begin(), more.end());
  }
  const DeviceRows x(ops, step.bound(), c.cols, inputs);
  const DeviceRows out(ops, step.bound(), outputs, c.residual ? residual : std::vector<float>{});
  ops.matmul(ops.state.get(), {&step.batch(), c.rows, x.view(), weight.get(),
                               c.residual ? &out.view() : nullptr, out.view()});
  return out.read(c.rows == Rows::kTokens ? step.num_tokens() : step.num_outputs());
}

/// One rounding per input, values of order one (q8_0: up to 1.3); with 16-bit weights also that of
/// x, whose errors have both signs.
double tolerance(const Case& c) {
  double rounding = 0;
  for (const DType type : c.exact_inputs ? std::vector<DType>{} : c.types) {
    if (type == DType::kF16) rounding = 0x1p-11;
    if (type == DType::kBF16) rounding = std::max(rounding, 0x1p-16);
  }
  const auto cols = static_cast<double>(c.cols);
  return 2.0 * 0x1p-24 * (cols + 16) + rounding * std::min(2 * std::sqrt(cols), cols);
}

void same_as_reference(const OpTable& ops, const Case& c, WeightRole role = WeightRole::kMatmul) {
  CAPTURE(static_cast<int>(c.types[0]));
  CAPTURE(c.outputs[0]);
  CAPTURE(c.cols);
  CAPTURE(c.num_rows);
  const std::vector<float> want = run(reference_ops(), c, role);
  in_every_order([&] { check_close(run(ops, c, role), want, tolerance(c)); });
}

}  // namespace

TEST_CASE("matmul: types, shapes and tails") {
  HEARTH_CUDA_TABLE(ops);
  for (const DType type : weight_types()) {
    const int64_t block = kernels::info(type).block_elements;
    const std::vector<int64_t> all_cols = block == 1    ? std::vector<int64_t>{1, 7, 64, 257, 521}
                                          : block == 32 ? std::vector<int64_t>{32, 544, 2336}
                                          : block == 64 ? std::vector<int64_t>{64, 576, 2368}
                                                        : std::vector<int64_t>{256, 2560};
    for (const int64_t cols : all_cols) {
      // tests/op has more such cases for the shim; one shape in every order is enough.
      for (const int32_t rows : {1, 6, 35}) {
        const Case c{{type}, {rows == 1 ? 1 : 130}, cols, rows};
        check_close(run(ops, c), run(reference_ops(), c), tolerance(c));
      }
    }
    same_as_reference(ops, {{type}, {50}, all_cols[1], 11});
  }
}

TEST_CASE("matmul: inputs that fit in 16 bits are not rounded") {
  HEARTH_CUDA_TABLE(ops);
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (const int32_t rows : {3, 20, 150}) {  // 150: two blocks of the tiles kernel
      Case c{{type}, {40}, 132, rows};
      c.exact_inputs = true;
      check_close(run(ops, c), run(reference_ops(), c), tolerance(c));
    }
  }
}

TEST_CASE("matmul: rows of 16 bits near the limits of the float range") {
  HEARTH_CUDA_TABLE(ops);
  // Rows of each magnitude compared with the same row at ordinary magnitude: f16 alone would
  // overflow or underflow.
  for (const DType type : {DType::kF16, DType::kBF16}) {
    const auto weight = pack(ops, {random_tensor(60, type, 33, 100)}, WeightRole::kMatmul);
    for (const int32_t rows : {5, 34}) {
      const Step step(ops, rows);
      const auto run_scaled = [&](float scale) {
        std::vector<float> inputs = Random(61).floats(step.bound() * 100);
        for (float& value : inputs) value *= scale;
        const DeviceRows x(ops, step.bound(), 100, inputs);
        const DeviceRows out(ops, step.bound(), 33);
        ops.matmul(ops.state.get(),
                   {&step.batch(), Rows::kTokens, x.view(), weight.get(), nullptr, out.view()});
        return out.read(step.num_tokens());
      };
      const std::vector<float> ordinary = run_scaled(1.0f);
      for (const float scale : {0x1p+100f, 0x1p+30f, 0x1p-30f, 0x1p-80f}) {
        std::vector<float> scaled = run_scaled(scale);
        for (float& value : scaled) value /= scale;
        CHECK(scaled == ordinary);
      }
    }
  }
}

TEST_CASE("matmul: more rows than one round of quantized activations") {
  HEARTH_CUDA_TABLE(ops);
  constexpr auto kRows = static_cast<int32_t>(kernels::kQuantRows) + 44;
  same_as_reference(ops, {{DType::kQ8_0}, {20}, 64, kRows});
  same_as_reference(ops, {{DType::kF16}, {20}, 64, kRows});
}

TEST_CASE("matmul: joined tensors of different types, residual, output rows") {
  HEARTH_CUDA_TABLE(ops);
  same_as_reference(ops, {{DType::kF16, DType::kF16, DType::kQ8_0}, {50, 3, 70}, 96, 5, true});
  same_as_reference(ops, {{DType::kQ8_0, DType::kF32, DType::kQ8_0}, {33, 5, 31}, 64, 9});
  same_as_reference(ops, {{DType::kBF16}, {64}, 40, 8, true, Rows::kOutputs});
}

TEST_CASE("matmul: an embedding is also the output head") {
  HEARTH_CUDA_TABLE(ops);
  for (const DType type : {DType::kF16, DType::kQ8_0, DType::kQ6_K}) {
    same_as_reference(ops, {{type}, {11}, 256, 3, false, Rows::kOutputs}, WeightRole::kEmbedding);
  }
}

TEST_CASE("matmul: a row's value does not depend on the other rows") {
  HEARTH_CUDA_TABLE(ops);
  // Inputs where every part has values, and the last chunk or share is partly filled where
  // possible.
  const std::vector<DType> some = {DType::kF16,   DType::kBF16,  DType::kF32,     DType::kQ8_0,
                                   DType::kQ5_1,  DType::kQ4_K,  DType::kQ6_K,    DType::kIQ4_XS,
                                   DType::kNVFP4, DType::kIQ2_S, DType::kIQ3_XXS, DType::kTQ2_0};
#if defined(HEARTH_CUDA_SHIM)
  const bool large = full_counts();
#else
  const bool large = true;
#endif
  // Each kernel, and both sides of every number of rows from which another one is chosen.
  const std::vector<int32_t> counts =
      large ? std::vector<int32_t>{1, 2, 8, 9, 15, 16, 17, 32, 33, 64, 65, 129, 200}
            : std::vector<int32_t>{1, 8, 9, 16, 33};
  for (const DType type : large ? weight_types() : some) {
    const int64_t outputs = large ? 1000 : 45;
    const int64_t block = kernels::info(type).block_elements;
    const int64_t cols = block == 256 ? 2560 : block == 64 ? 2368 : 2336;
    const std::vector<float> all = run(ops, {{type}, {outputs}, cols, large ? 260 : 70});
    for (const int32_t rows : counts) {
      CAPTURE(rows);
      CAPTURE(kernels::info(type).name);
      const std::vector<float> few = run(ops, {{type}, {outputs}, cols, rows});
      CHECK(std::equal(few.begin(), few.end(), all.begin()));
    }
  }
}

TEST_CASE("matmul: many rows and outputs of types with super-blocks") {
  HEARTH_CUDA_TABLE(ops);
  // Enough tiles for the device's multiprocessors, of which the shim's has few; with mins and
  // without.
#if defined(HEARTH_CUDA_SHIM)
  constexpr int64_t kOutputs = 260;
  constexpr int32_t kRows = 70;
#else
  constexpr int64_t kOutputs = 12'730;
  constexpr int32_t kRows = 140;
#endif
  for (const DType type : {DType::kQ4_K, DType::kQ6_K}) {
    const std::vector<float> all = run(ops, {{type}, {kOutputs}, 768, kRows});
    for (const int32_t rows : {1, 40}) {
      CAPTURE(rows);
      CAPTURE(kernels::info(type).name);
      const std::vector<float> few = run(ops, {{type}, {kOutputs}, 768, rows});
      CHECK(std::equal(few.begin(), few.end(), all.begin()));
    }
  }
  const Case c{{DType::kIQ4_XS}, {270}, 512, 66, true};
  check_close(run(ops, c), run(reference_ops(), c), tolerance(c));
}

TEST_CASE("matmul: many rows of types with super-blocks have the same bits in all kernels") {
  HEARTH_CUDA_TABLE(ops);
  auto& state = *static_cast<kernels::CudaState*>(ops.state.get());
  // More chunks than parts, fewer, and one; the tails of outputs and rows leave warps and tiles
  // idle.
  for (const DType type : weight_types()) {
    if (!kernels::is_super(type)) continue;
    for (const Case& c :
         {Case{{type}, {33}, 2560, 67, true}, Case{{type, type}, {130, 20}, 256, 70}}) {
      CAPTURE(kernels::info(type).name);
      CAPTURE(c.cols);
      const bool built = state.wgmma;
      const std::vector<float> want = run(ops, c);
      state.wgmma = false;
      CHECK(run(ops, c) == want);
      state.unconfirmed = true;
      CHECK(run(ops, c) == want);
      if (type == DType::kQ4_K) in_every_order([&] { CHECK(run(ops, c) == want); });
      state.unconfirmed = false;
      state.wgmma = built;
    }
  }
}

TEST_CASE("matmul: many rows of f16 and bf16 with and without wgmma") {
  HEARTH_CUDA_TABLE(ops);
  auto& wgmma = static_cast<kernels::CudaState*>(ops.state.get())->wgmma;
  const bool built = wgmma;
  // Enough tiles of 256 rows for the multiprocessors.
#if defined(HEARTH_CUDA_SHIM)
  constexpr int64_t kManyOutputs = 270;
#else
  constexpr int64_t kManyOutputs = 9000;
#endif
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (const Case& c : {
             Case{{type}, {kManyOutputs}, 650, 200, true},  // an odd number of chunks
             Case{{type}, {33}, 1090, 134},                 // parts of several chunks
             Case{{type}, {130}, 72, 66},                   // fewer chunks than parts
             Case{{type, DType::kF32, type}, {20, 3, 150}, 30, 70},
         }) {
      CAPTURE(kernels::info(type).name);
      CAPTURE(c.cols);
      const std::vector<float> all = run(ops, c);
      check_close(all, run(reference_ops(), c), tolerance(c));
      Case few = c;
      few.num_rows = 40;
      const std::vector<float> first = run(ops, few);
      CHECK(std::equal(first.begin(), first.end(), all.begin()));
      wgmma = false;
      CHECK(run(ops, c) == all);
      wgmma = built;
    }
  }
  same_as_reference(ops, {{DType::kF16}, {kManyOutputs}, 200, 250});
}

#if !defined(HEARTH_CUDA_SHIM)  // it would take minutes
TEST_CASE("matmul: more rows of f16 and bf16 than the scratch holds") {
  HEARTH_CUDA_TABLE(ops);
  for (const DType type : {DType::kF16, DType::kBF16}) {
    const Case c{{type}, {16}, 28672, 1200, true};
    check_close(run(ops, c), run(reference_ops(), c), tolerance(c));
  }
}
#endif

TEST_CASE("matmul: activations that are zero, tiny or not finite") {
  HEARTH_CUDA_TABLE(ops);
  const auto run_special = [](const OpTable& table, DType type) {
    const auto weight = pack(table, {random_tensor(30, type, 33, 64)}, WeightRole::kMatmul);
    const Step step(table, 5);
    std::vector<float> inputs = Random(31).floats(step.bound() * 64);
    std::fill_n(inputs.begin(), 64, 0.0f);
    std::fill_n(inputs.begin() + 64, 32, 1e-38f);
    inputs[3 * 64 + 40] = INFINITY;
    inputs[4 * 64 + 7] = NAN;
    const DeviceRows x(table, step.bound(), 64, inputs);
    const DeviceRows out(table, step.bound(), 33);
    table.matmul(table.state.get(),
                 {&step.batch(), Rows::kTokens, x.view(), weight.get(), nullptr, out.view()});
    return out.read(step.num_tokens());
  };
  check_close(run_special(ops, DType::kQ8_0), run_special(reference_ops(), DType::kQ8_0), 1e-5);
  for (const DType type : {DType::kF16, DType::kBF16}) {
    check_close(run_special(ops, type), run_special(reference_ops(), type), 5e-3);
  }
}

TEST_CASE("pack_weights: what cannot be packed is an error that names the tensor") {
  HEARTH_CUDA_TABLE(ops);
  const auto refused = [&](std::vector<Tensor> parts) {
    std::vector<kernels::HostTensor> tensors;
    for (const Tensor& part : parts) tensors.push_back(part.host());
    return ops.pack_weights(ops.state.get(), tensors, WeightRole::kMatmul).take_error();
  };
  Tensor good = random_tensor(40, DType::kF16, 4, 64);
  Tensor other_cols = random_tensor(41, DType::kF16, 4, 32);
  CHECK(refused({good, other_cols}).code == ErrorCode::kUnsupported);
  CHECK(refused({good, other_cols}).message.find("tensor 41") != std::string::npos);
  Tensor cut = good;
  cut.bytes.pop_back();
  CHECK(refused({cut}).code == ErrorCode::kUnsupported);
  Tensor unknown = good;
  unknown.dtype = DType::kIQ1_S;
  CHECK(refused({unknown}).code == ErrorCode::kUnsupported);
}

}  // namespace hearth::tests
