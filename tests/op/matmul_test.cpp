#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <optional>

#include "kernels/ops/half.h"
#include "kernels/quant/quant_layout.h"
#include "kernels/quant/quant_types.h"
#include "tests/op/op_testing.h"

namespace hearth::kernels::testing {
namespace {

struct Case {
  std::vector<std::pair<DType, int64_t>> joined;  ///< type and rows of each tensor
  int64_t cols;
  int32_t tokens;
  bool residual = false;
  int64_t misalign = 0;
  int64_t padding = 0;
};

std::string describe(const Case& c) {
  std::string text;
  for (const auto& [dtype, rows] : c.joined) text += fmt::format("{}x{} ", info(dtype).name, rows);
  return fmt::format("{}cols {} tokens {} residual {} misalign {}", text, c.cols, c.tokens,
                     c.residual, c.misalign);
}

std::vector<Tensor> tensors_of(const Case& c, uint32_t seed) {
  std::vector<Tensor> tensors;
  for (const auto& [dtype, rows] : c.joined) {
    tensors.push_back(random_tensor(seed++, dtype, rows, c.cols));
  }
  return tensors;
}

Matrix multiply(const OpTable& ops, const Weight& w, Matrix& x, const Matrix* residual,
                const Case& c) {
  const Batch batch(static_cast<int32_t>(x.rows()));
  Matrix out(x.rows(), w.rows, c.misalign, c.padding);
  TensorView view = out.view();
  if (residual != nullptr) {
    // The residual is the output itself, as in models.
    for (int64_t r = 0; r < out.rows(); ++r) {
      for (int64_t o = 0; o < out.cols(); ++o) out.at(r, o) = residual->at(r, o);
    }
  }
  MatmulArgs args{.batch = &batch.index(),
                  .x = x.view(),
                  .w = &w,
                  .residual = residual != nullptr ? &view : nullptr,
                  .out = view};
  ops.matmul(ops.state.get(), args);
  ops.synchronize(ops.state.get());
  CHECK(out.guards_intact());
  return out;
}

/// Bound of |chain - exact|: one rounding per step of the longest chain (and a few for scales and
/// residual) of a sum of magnitudes.
Matrix bound_of(const Case& c, const NamedTable& table, Matrix& x, const Matrix* residual,
                const std::vector<Tensor>& tensors) {
  Matrix magnitude(x.rows(), x.cols());
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t k = 0; k < x.cols(); ++k) magnitude.at(r, k) = std::abs(x.at(r, k));
  }
  std::vector<Tensor> sizes;
  for (const Tensor& tensor : tensors) sizes.push_back(magnitudes(tensor));
  const auto weight = pack(reference(), sizes, WeightRole::kMatmul);
  Matrix bound = multiply(reference(), *weight, magnitude, nullptr, c);
  for (int64_t r = 0; r < bound.rows(); ++r) {
    int64_t o = 0;
    for (const auto& [dtype, rows] : c.joined) {
      // At most four steps per 32 inputs: two scales, two mins.
      const int64_t chain = info(dtype).block_elements > 1 ? c.cols / 32 * 4 : c.cols;
      for (int64_t end = o + rows; o < end; ++o) {
        // Quantized activations are up to amax / 254 larger than those of the bound.
        double sum = bound.at(r, o) * 1.25;
        if (residual != nullptr) sum += std::abs(residual->at(r, o));
        const double rounding = dtype == DType::kF16    ? table.f16_rounding
                                : dtype == DType::kBF16 ? table.bf16_rounding
                                                        : 0;
        bound.at(r, o) =
            static_cast<float>(sum * (static_cast<double>(chain + 6) * 0x1p-24 + rounding));
      }
    }
  }
  return bound;
}

constexpr DType kPlainTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr DType kBlockTypes[] = {DType::kQ8_0, DType::kQ4_0,   DType::kQ4_1,  DType::kQ5_0,
                                 DType::kQ5_1, DType::kIQ4_NL, DType::kMXFP4, DType::kNVFP4};
constexpr DType kSuperTypes[] = {DType::kQ2_K, DType::kQ3_K, DType::kQ4_K,
                                 DType::kQ5_K, DType::kQ6_K, DType::kIQ4_XS};
constexpr DType kLowBitTypes[] = {DType::kTQ1_0,  DType::kTQ2_0, DType::kIQ2_XXS,
                                  DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS,
                                  DType::kIQ3_S,  DType::kIQ1_S, DType::kIQ1_M};

std::vector<Case> cases_of(DType dtype) {
  std::vector<Case> all;
  const int64_t unit = info(dtype).block_elements;
  const auto whole = [&](int64_t cols) { return (cols + unit - 1) / unit * unit; };
  for (const int32_t tokens : {1, 2, 3, 5, 8, 12, 17}) {
    all.push_back({.joined = {{dtype, 64}}, .cols = whole(64), .tokens = tokens});
  }
  // Tails of outputs, inputs and tiles; rows off cache lines.
  all.push_back({{{dtype, 1}}, unit, 1});
  all.push_back({{{dtype, 15}}, 3 * unit, 4, true, 1, 3});
  all.push_back({{{dtype, 17}}, 7 * unit, 13, false, 5, 1});
  all.push_back({{{dtype, 172}}, whole(64), 6, true, 3, 0});
  all.push_back({{{dtype, 64}}, unit > 1 ? whole(192) : 172, 40, true, 0, 7});
  all.push_back({{{dtype, 100}, {dtype, 36}, {dtype, 7}}, whole(96), 9, false, 1, 1});
  all.push_back({{{dtype, 40}}, whole(64), 300});
  // Long enough for several panels of K, groups per item and blocks of tiles.
  if (full_counts()) {
    all.push_back({{{dtype, 300}}, 4096, 30, true});
    all.push_back({{{dtype, 80}}, 12288, 1});
  } else {
    all.push_back({{{dtype, 150}}, 2304, 38, true});
    all.push_back({{{dtype, 40}}, 6144, 1});
  }
  return all;
}

/// The first fused variant's result, which the others must equal to the bit.
class FusedBits {
 public:
  void check(const NamedTable& table, const Matrix& got, const std::string& what) {
    if (!table.ops.numerics_id.starts_with("cpu-fma/")) return;
    if (first_) CHECK_MESSAGE(same_bits(*first_, got), fmt::format("{} {}", table.name, what));
    if (!first_) first_ = got;
  }

 private:
  std::optional<Matrix> first_;
};

void check_product(const Case& c, Matrix& x, const Matrix* residual,
                   const std::vector<Tensor>& tensors, const std::string& what) {
  const Matrix want =
      multiply(reference(), *pack(reference(), tensors, WeightRole::kMatmul), x, residual, c);
  FusedBits fused;
  for (const NamedTable& table : cpu_tables(2)) {
    const auto weight = pack(table.ops, tensors, WeightRole::kMatmul);
    const Matrix got = multiply(table.ops, *weight, x, residual, c);
    const std::string error = worst(got, want, bound_of(c, table, x, residual, tensors));
    CHECK_MESSAGE(error.empty(), fmt::format("{} {}: {}", table.name, what, error));
    fused.check(table, got, fmt::format("{}: other bits than the first", what));
  }
}

void check_against_reference(const Case& c, uint32_t seed) {
  Random random(seed);
  Matrix x(c.tokens, c.cols, c.misalign, c.padding);
  x.fill(random, -2, 2);
  int64_t outputs = 0;
  for (const auto& joined : c.joined) outputs += joined.second;
  Matrix residual(c.tokens, outputs);
  residual.fill(random, -4, 4);
  check_product(c, x, c.residual ? &residual : nullptr, tensors_of(c, seed),
                fmt::format("seed {} {}", seed, describe(c)));
}

void check_cases(const std::vector<Case>& cases) {
  const size_t step = cpu_tables(2)[0].case_step(kSimulatedStep);
  for (size_t i = 0; i < cases.size(); i += step) check_against_reference(cases[i], seed_or(11));
}

TEST_CASE("matmul: plain types, every variant against the reference") {
  for (const DType dtype : kPlainTypes) {
    check_cases(cases_of(dtype));
  }
}

TEST_CASE("matmul: blocks of 32, every variant against the reference") {
  for (const DType dtype : kBlockTypes) {
    check_cases(cases_of(dtype));
  }
}

TEST_CASE("matmul: blocks of 256, every variant against the reference") {
  for (const DType dtype : kSuperTypes) {
    check_cases(cases_of(dtype));
  }
}

TEST_CASE("matmul: low-bit blocks of 256, every variant against the reference") {
  for (const DType dtype : kLowBitTypes) {
    check_cases(cases_of(dtype));
  }
}

TEST_CASE("matmul: joined tensors of different types") {
  check_against_reference(
      {{{DType::kQ8_0, 20}, {DType::kF16, 33}, {DType::kF32, 5}}, 128, 14, true, 1, 1},
      seed_or(11));
  check_against_reference({{{DType::kQ4_K, 20}, {DType::kQ4_K, 33}, {DType::kQ6_K, 5}}, 512, 3},
                          seed_or(11));
  check_against_reference(
      {{{DType::kQ2_K, 16}, {DType::kBF16, 7}, {DType::kMXFP4, 19}}, 256, 40, true}, seed_or(11));
}

void check_row_alone(DType dtype, int64_t cols, uint32_t seed) {
  const Case c{.joined = {{dtype, 172}, {dtype, 32}}, .cols = cols, .tokens = 40};
  Random random(seed);
  Matrix x(c.tokens, c.cols);
  x.fill(random, -2, 2);
  for (const NamedTable& table : cpu_tables(3)) {
    CAPTURE(table.name);
    CAPTURE(info(dtype).name);
    const auto weight = pack(table.ops, tensors_of(c, seed), WeightRole::kMatmul);
    const Matrix all = multiply(table.ops, *weight, x, nullptr, c);
    const auto step = static_cast<int32_t>(table.case_step(13));
    for (int32_t count = 1; count <= c.tokens; count += step) {
      table.ops.set_num_threads(table.ops.state.get(), count % 3 + 1);
      const int32_t first = random.below(c.tokens - count + 1);
      Matrix part(count, c.cols, count % 2);
      Matrix want(count, all.cols());
      for (int32_t r = 0; r < count; ++r) {
        for (int64_t k = 0; k < c.cols; ++k) part.at(r, k) = x.at(first + r, k);
        for (int64_t o = 0; o < all.cols(); ++o) want.at(r, o) = all.at(first + r, o);
      }
      CHECK_MESSAGE(same_bits(multiply(table.ops, *weight, part, nullptr, c), want),
                    fmt::format("{} rows from {}", count, first));
    }
    table.ops.set_num_threads(table.ops.state.get(), 3);
  }
}

TEST_CASE("matmul: a row has the same bits alone, in a batch and on any number of threads") {
  const uint32_t seed = seed_or(12);
  CAPTURE(seed);
  for (const DType dtype : kPlainTypes) check_row_alone(dtype, 2080, seed);
  check_row_alone(DType::kQ8_0, 2080, seed);
}

TEST_CASE("matmul: blocks of 32, a row has the same bits alone and in a batch") {
  for (const DType dtype : kBlockTypes) {
    const int64_t odd = info(dtype).block_elements == 64 ? 32 : 0;
    check_row_alone(dtype, odd + (full_counts() ? 2080 : 416), 12);
  }
}

TEST_CASE("matmul: blocks of 256, a row has the same bits alone and in a batch") {
  for (const DType dtype : kSuperTypes) check_row_alone(dtype, full_counts() ? 2048 : 512, 12);
  for (const DType dtype : kLowBitTypes) check_row_alone(dtype, full_counts() ? 2048 : 512, 12);
}

TEST_CASE("matmul: any bytes can be computed with: infinite and NaN scales, every code") {
  // Bytes of a hostile file. All variants must give the same.
  std::vector<DType> types(std::begin(kBlockTypes), std::end(kBlockTypes));
  types.insert(types.end(), std::begin(kSuperTypes), std::end(kSuperTypes));
  types.insert(types.end(), std::begin(kLowBitTypes), std::end(kLowBitTypes));
  for (const DType dtype : types) {
    Random random(seed_or(13));
    const Case c{.joined = {{dtype, 48}}, .cols = 1024, .tokens = 40};
    Tensor tensor = random_tensor(1, dtype, 48, 1024);
    for (std::byte& byte : tensor.bytes) {
      const int32_t kind = random.below(4);
      byte = static_cast<std::byte>(kind == 0 ? 0xff : kind == 1 ? 0x7c : random.below(256));
    }
    Matrix x(c.tokens, c.cols);
    x.fill(random, -2, 2);
    x.at(3, 40) = INFINITY;
    x.at(5, 700) = NAN;
    for (const int32_t tokens : {1, 40}) {
      Matrix part(tokens, c.cols);
      for (int32_t r = 0; r < tokens; ++r) {
        for (int64_t k = 0; k < c.cols; ++k) part.at(r, k) = x.at(r, k);
      }
      std::optional<Matrix> first;
      for (const NamedTable& table : cpu_tables(2)) {
        const auto weight = pack(table.ops, {tensor}, WeightRole::kMatmul);
        Matrix got = multiply(table.ops, *weight, part, nullptr, c);
        if (table.ops.numerics_id.starts_with("cpu-plain/")) continue;
        if (!first) first = got;
        for (int64_t r = 0; r < tokens; ++r) {
          for (int64_t o = 0; o < 48; ++o) {
            const float a = first->at(r, o);
            const float b = got.at(r, o);
            const bool same = std::memcmp(&a, &b, 4) == 0 || (std::isnan(a) && std::isnan(b));
            if (!same) FAIL_CHECK(table.name << " " << info(dtype).name << " row " << r);
          }
        }
      }
    }
  }
}

/// One row of Q8_0 blocks, each a scale and 32 times one value.
Tensor q8_0_row(const std::vector<std::pair<uint16_t, int8_t>>& blocks, int64_t rows) {
  Tensor tensor{"extreme", DType::kQ8_0, rows, static_cast<int64_t>(blocks.size()) * 32, {}};
  for (int64_t r = 0; r < rows; ++r) {
    for (const auto& [scale, q] : blocks) {
      tensor.bytes.push_back(static_cast<std::byte>(scale & 0xff));
      tensor.bytes.push_back(static_cast<std::byte>(scale >> 8));
      for (int i = 0; i < 32; ++i) tensor.bytes.push_back(static_cast<std::byte>(q));
    }
  }
  return tensor;
}

TEST_CASE("matmul: extreme Q8_0 blocks are exact where the sum is") {
  // -128 and 127 everywhere with activations of one magnitude: the largest sums of int16 pairs.
  for (const int8_t q : {int8_t{-128}, int8_t{127}, int8_t{-1}, int8_t{0}}) {
    for (const float value : {127.0f, -127.0f, 1.0f, 0.0f}) {
      const Tensor tensor = q8_0_row({{0x3c00, q}}, 18);
      Matrix x(3, 32);
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t k = 0; k < 32; ++k) x.at(r, k) = k % 2 == 0 || r != 1 ? value : -value;
      }
      for (const NamedTable& table : cpu_tables(2)) {
        const auto weight = pack(table.ops, {tensor}, WeightRole::kMatmul);
        const Matrix out = multiply(table.ops, *weight, x, nullptr, {});
        for (int64_t o = 0; o < 18; ++o) {
          const float want = static_cast<float>(q) * value * 32;
          CHECK_MESSAGE(out.at(0, o) == doctest::Approx(want), table.name);
          CHECK_MESSAGE(out.at(1, o) == 0.0f, table.name);
        }
      }
    }
  }
}

TEST_CASE("matmul: the largest weights by inputs of one sign: sums of 16 bits at their limits") {
  // 0xff has the largest code of most types, 0x77 that of E2M1.
  Random random(7);
  const size_t step = cpu_tables(2)[0].case_step(kSimulatedStep);
  for (size_t i = 0; i < std::size(kQuantTypes); i += step) {
    for (const auto byte : {std::byte{0xff}, std::byte{0x77}}) {
      const Tensor tensor = tensor_of_one_byte(7, kQuantTypes[i], 36, 512, byte);
      for (const int32_t tokens : {3, 20}) {
        for (const float value : {1.0f, -1.0f}) {
          Matrix x(tokens, 512);
          x.fill(random, value, value);
          const Case c{.joined = {{kQuantTypes[i], 36}}, .cols = 512, .tokens = tokens};
          check_product(c, x, nullptr, {tensor}, fmt::format("{} by {}", describe(c), value));
        }
      }
    }
  }
}

TEST_CASE("matmul: scales at the limits of f16, zero blocks, tiny and infinite activations") {
  const uint16_t largest = 0x7bff;
  const uint16_t least = 0x0001;
  const Tensor tensor = q8_0_row({{largest, 127}, {0, 77}, {least, -128}, {largest, -127}}, 16);
  Matrix x(4, 128);
  Random random(5);
  for (int64_t k = 0; k < 128; ++k) {
    x.at(0, k) = random.uniform(-1, 1);
    x.at(1, k) = 1e-38f;  // 127 / amax would overflow: treated as zero
    x.at(2, k) = 0;
    x.at(3, k) = k == 40 ? INFINITY : 1.0f;  // in the block whose scale is zero: NaN
  }
  const Matrix want =
      multiply(reference(), *pack(reference(), {tensor}, WeightRole::kMatmul), x, nullptr, {});
  for (const NamedTable& table : cpu_tables(1)) {
    CAPTURE(table.name);
    const auto weight = pack(table.ops, {tensor}, WeightRole::kMatmul);
    const Matrix out = multiply(table.ops, *weight, x, nullptr, {});
    for (int64_t o = 0; o < 16; ++o) {
      CHECK(std::abs(out.at(0, o) - want.at(0, o)) <= std::abs(want.at(0, o)) * 1e-4);
      CHECK(out.at(1, o) == 0.0f);
      CHECK(out.at(2, o) == 0.0f);
      CHECK(std::isnan(want.at(3, o)));
      CHECK(std::isnan(out.at(3, o)));
    }
  }
}

TEST_CASE("matmul: a NaN reaches only its own row") {
  for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
    const Case c{.joined = {{dtype, 40}}, .cols = 64, .tokens = 14};
    Random random(3);
    Matrix x(c.tokens, c.cols);
    x.fill(random, -1, 1);
    x.at(5, 33) = NAN;
    for (const NamedTable& table : cpu_tables(2)) {
      const auto weight = pack(table.ops, tensors_of(c, 3), WeightRole::kMatmul);
      const Matrix out = multiply(table.ops, *weight, x, nullptr, c);
      for (int64_t r = 0; r < c.tokens; ++r) {
        for (int64_t o = 0; o < out.cols(); ++o) {
          if (std::isnan(out.at(r, o)) != (r == 5)) FAIL_CHECK(table.name << " row " << r);
        }
      }
    }
  }
}

TEST_CASE("matmul: rows past the exact count stay untouched, and zero rows do nothing") {
  const Tensor tensor = random_tensor(1, DType::kF32, 20, 24);
  std::vector<OpTable> all{reference()};
  for (const NamedTable& table : cpu_tables(2)) all.push_back(table.ops);
  for (const OpTable& ops : all) {
    for (const int32_t exact : {0, 3}) {
      Batch batch(8);
      BatchIndex index = batch.index();
      const int32_t counts[3] = {exact, 1, 1};
      index.counts = counts;
      Matrix x(8, 24);
      Matrix out(8, 20);
      for (int64_t r = 0; r < 8; ++r) {
        for (int64_t k = 0; k < 24; ++k) x.at(r, k) = 1;
        for (int64_t o = 0; o < 20; ++o) out.at(r, o) = 99;
      }
      const auto weight = pack(ops, {tensor}, WeightRole::kMatmul);
      ops.matmul(ops.state.get(),
                 {.batch = &index, .x = x.view(), .w = weight.get(), .out = out.view()});
      for (int64_t r = 0; r < 8; ++r) CHECK((out.at(r, 19) == 99) == (r >= exact));
    }
  }
}

TEST_CASE("matmul: a scale of each joined matrix is a factor of its outputs, not of the residual") {
  Random random(seed_or(14));
  for (const DType dtype : {DType::kNVFP4, DType::kQ8_0, DType::kF16}) {
    const Case c{.joined = {{dtype, 20}, {dtype, 33}}, .cols = 64, .tokens = 5};
    std::vector<Tensor> tensors = tensors_of(c, seed_or(14));
    Matrix x(c.tokens, c.cols), residual(c.tokens, 53);
    x.fill(random, -2, 2);
    residual.fill(random, -4, 4);
    std::vector<OpTable> all{reference()};
    for (const NamedTable& table : cpu_tables(2)) all.push_back(table.ops);
    for (const OpTable& ops : all) {
      if (ops.device.kind == "cuda") continue;  // it refuses them
      const Matrix plain = multiply(ops, *pack(ops, tensors, WeightRole::kMatmul), x, nullptr, c);
      std::vector<Tensor> scaled = tensors;
      scaled[0].scales = {0.25f};
      scaled[1].scales = {-3};
      const auto weight = pack(ops, scaled, WeightRole::kMatmul);
      const Matrix got = multiply(ops, *weight, x, nullptr, c);
      const Matrix added = multiply(ops, *weight, x, &residual, c);
      for (int64_t r = 0; r < c.tokens; ++r) {
        for (int64_t o = 0; o < 53; ++o) {
          const float want = plain.at(r, o) * (o < 20 ? 0.25f : -3.0f);
          CHECK(got.at(r, o) == doctest::Approx(want).epsilon(1e-6));
          CHECK(added.at(r, o) == doctest::Approx(want + residual.at(r, o)).epsilon(1e-5));
        }
      }
    }
  }
}

/// Inputs most of which are below 1, with a few up to 100, at other places in each row.
Matrix with_outliers(Random& random, int64_t rows, int64_t cols) {
  Matrix x(rows, cols);
  x.fill(random, -1, 1);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < r % 4; ++i) {
      const int32_t size = 6 + random.below(95);
      x.at(r, random.below(static_cast<int32_t>(cols))) =
          static_cast<float>(i % 2 == 0 ? size : -size);
    }
  }
  return x;
}

TEST_CASE("matmul: outliers are not quantized: every variant against the reference, any batch") {
  Random random(seed_or(15));
  const Case c{.joined = {{DType::kQ8_0, 20}, {DType::kQ8_0, 150}, {DType::kF16, 9}},
               .cols = 288,
               .tokens = 43};
  std::vector<Tensor> tensors = tensors_of(c, seed_or(15));
  for (Tensor& tensor : tensors) tensor.outliers_from = tensor.dtype == DType::kQ8_0 ? 6 : 0;
  Matrix x = with_outliers(random, c.tokens, c.cols);
  const Matrix want =
      multiply(reference(), *pack(reference(), tensors, WeightRole::kMatmul), x, nullptr, c);
  FusedBits fused;
  for (const NamedTable& table : cpu_tables(3)) {
    if (table.ops.device.kind == "cuda") continue;  // it quantizes all inputs
    const auto weight = pack(table.ops, tensors, WeightRole::kMatmul);
    const Matrix got = multiply(table.ops, *weight, x, nullptr, c);
    const std::string error = worst(got, want, bound_of(c, table, x, nullptr, tensors));
    CHECK_MESSAGE(error.empty(), table.name, ": ", error);
    fused.check(table, got, "outliers");
    for (int64_t r = 0; r < c.tokens; r += 7) {
      Matrix row(1, c.cols), alone(1, got.cols());
      for (int64_t k = 0; k < c.cols; ++k) row.at(0, k) = x.at(r, k);
      for (int64_t o = 0; o < got.cols(); ++o) alone.at(0, o) = got.at(r, o);
      CHECK(same_bits(multiply(table.ops, *weight, row, nullptr, c), alone));
    }
  }
}

TEST_CASE("matmul: leaving out outliers keeps the precision of the inputs next to them") {
  const OpTable ops = cpu_tables(2).back().ops;
  if (ops.device.kind == "cuda") return;  // it quantizes all inputs
  Random random(seed_or(16));
  const Case c{.joined = {{DType::kQ8_0, 64}}, .cols = 256, .tokens = 24};
  std::vector<Tensor> tensors = tensors_of(c, seed_or(16));
  Matrix x = with_outliers(random, c.tokens, c.cols);
  Tensor exact = tensors[0];  // the same numbers in F32: nothing is quantized
  std::vector<float> values(64 * 256);
  dequantize(DType::kQ8_0, exact.bytes, values);
  exact.dtype = DType::kF32;
  exact.bytes.resize(values.size() * sizeof(float));
  std::memcpy(exact.bytes.data(), values.data(), exact.bytes.size());
  const Matrix want =
      multiply(reference(), *pack(reference(), {exact}, WeightRole::kMatmul), x, nullptr, c);
  const auto error = [&](float from) {
    tensors[0].outliers_from = from;
    const Matrix got = multiply(ops, *pack(ops, tensors, WeightRole::kMatmul), x, nullptr, c);
    double sum = 0;
    for (int64_t r = 0; r < c.tokens; ++r) {
      for (int64_t o = 0; o < 64; ++o) sum += std::pow(double{got.at(r, o)} - want.at(r, o), 2);
    }
    return std::sqrt(sum);
  };
  CHECK(error(6) * 4 < error(0));
}

TEST_CASE("matmul: scales and outliers that do not fit are refused by name") {
  const auto refused = [](Tensor tensor, WeightRole role = WeightRole::kMatmul) {
    tensor.name = "blk.7.x";
    const HostTensor host = tensor.host();
    const OpTable ops = reference();
    const auto met = ops.pack_weights(ops.state.get(), {&host, 1}, role);
    return !met.ok() && met.error().code == ErrorCode::kUnsupported &&
           met.error().message.find("blk.7.x") != std::string::npos;
  };
  const Tensor tensor = random_tensor(1, DType::kQ8_0, 16, 32);
  Tensor two = tensor, nan = tensor, below = tensor, other = random_tensor(1, DType::kQ4_0, 16, 32);
  two.scales = {1, 2};
  nan.scales = {NAN};
  below.outliers_from = -1;
  other.outliers_from = 6;
  CHECK(refused(two));
  CHECK(refused(nan));
  CHECK(refused(below));
  CHECK(refused(other));
  Tensor embedding = tensor;
  embedding.scales = {2};
  CHECK(refused(embedding, WeightRole::kEmbedding));
  const OpTable ops = reference();
  Tensor with = tensor;
  with.outliers_from = 6;
  const std::vector<HostTensor> joined = {tensor.host(), with.host()};
  const auto met = ops.pack_weights(ops.state.get(), joined, WeightRole::kMatmul);
  CHECK_FALSE(met.ok());
}

TEST_CASE("matmuls: the bits of each product alone, whatever shares the pass") {
  Random random(seed_or(17));
  struct One {
    DType dtype;
    int64_t rows, cols;
    int32_t tokens;
    bool adds;
  };
  const One all[] = {{DType::kF16, 16, 2048, 2, false}, {DType::kQ4_K, 150, 512, 19, true},
                     {DType::kF32, 40, 16, 3, true},    {DType::kQ8_0, 33, 64, 0, false},
                     {DType::kF16, 700, 16, 1, true},   {DType::kQ8_0, 100, 96, 5, false}};
  for (const NamedTable& table : cpu_tables(2)) {
    if (table.ops.matmuls == nullptr) continue;
    std::deque<Batch> batches;
    std::deque<Matrix> xs, outs, alone;
    std::deque<TensorView> views;
    std::vector<std::unique_ptr<Weight>> weights;
    std::vector<MatmulArgs> args;
    for (const One& one : all) {
      const uint32_t seed = 100 + static_cast<uint32_t>(args.size());
      weights.push_back(pack(table.ops, {random_tensor(seed, one.dtype, one.rows, one.cols)},
                             WeightRole::kMatmul));
      const int32_t rows = std::max(one.tokens, 1);
      batches.emplace_back(rows);
      Matrix& x = xs.emplace_back(rows, one.cols);
      x.fill(random, -2, 2);
      Matrix& out = outs.emplace_back(rows, one.rows);
      out.fill(random, -2, 2);
      alone.push_back(out);
      for (Matrix* to : {&alone.back(), &out}) {
        const TensorView& view = views.emplace_back(to->view());
        args.push_back({.batch = &batches.back().index(),
                        .x = x.view(),
                        .w = weights.back().get(),
                        .residual = one.adds ? &view : nullptr,
                        .out = view});
        if (to != &alone.back()) continue;
        if (one.tokens > 0) table.ops.matmul(table.ops.state.get(), args.back());
        args.pop_back();
      }
      if (one.tokens == 0) args.pop_back();
    }
    table.ops.matmuls(table.ops.state.get(), args);
    for (size_t i = 0; i < outs.size(); ++i) {
      CHECK_MESSAGE(same_bits(outs[i], alone[i]), table.name, " product ", i);
    }
    table.ops.matmuls(table.ops.state.get(), {});
  }
}

}  // namespace
}  // namespace hearth::kernels::testing
