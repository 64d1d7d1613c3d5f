// quantize_rows: how close the stored values are, and what it refuses.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/quant/quant_layout.h"
#include "kernels/quant/quant_types.h"
#include "models/quantize/quantize_rows.h"

namespace hearth::models {
namespace {

using kernels::DType;
using kernels::info;

std::vector<float> normal(size_t count, float size, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(count);
  for (float& x : values) {
    // Sums of twelve uniform values: the same normal values with every standard library.
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(engine()) * 0x1p-32;
    x = static_cast<float>(sum) * size;
  }
  return values;
}

std::vector<float> round_trip(DType type, const std::vector<float>& values) {
  const auto bytes = quantize_rows(type, values, static_cast<int64_t>(values.size()));
  REQUIRE(bytes.ok());
  CHECK(bytes->size() == kernels::bytes_of(type, values.size()));
  std::vector<float> out(values.size());
  kernels::dequantize(type, *bytes, out);
  return out;
}

/// Root of the mean squared error over that of the values.
double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    size += double{want[i]} * want[i];
  }
  return std::sqrt(error / size);
}

struct TypeBound {
  DType type;
  double bound;
};
// Measured on normal values, plus a tenth.
constexpr TypeBound kBounds[] = {
    {DType::kQ8_0, 0.0058},  {DType::kQ4_0, 0.088},  {DType::kQ4_1, 0.077}, {DType::kQ5_0, 0.044},
    {DType::kQ5_1, 0.037},   {DType::kIQ4_NL, 0.08}, {DType::kMXFP4, 0.12}, {DType::kQ2_K, 0.3},
    {DType::kQ3_K, 0.16},    {DType::kQ4_K, 0.078},  {DType::kQ5_K, 0.039}, {DType::kQ6_K, 0.018},
    {DType::kIQ4_XS, 0.081}, {DType::kBF16, 0.0019}, {DType::kF16, 0.00023}};

TEST_CASE("normal values come back within each type's error, at any size that a half can scale") {
  for (const auto& [type, bound] : kBounds) {
    for (const float size : {1e-2f, 1.0f, 300.0f}) {
      const std::vector<float> values = normal(4096, size, 7);
      const double error = relative_error(round_trip(type, values), values);
      CHECK_MESSAGE(error < bound,
                    fmt::format("{} of size {}: {:.5f}", info(type).name, size, error));
      CHECK_MESSAGE(error > bound / 2, fmt::format("{} of size {}: {:.5f}, loose bound",
                                                   info(type).name, size, error));
    }
  }
}

TEST_CASE("values of one sign, one value, zeros and outliers") {
  for (const auto& [type, bound] : kBounds) {
    CAPTURE(info(type).name);
    const std::vector<float> zeros(512, 0.0f);
    CHECK(relative_error(round_trip(type, zeros), std::vector<float>(512, 1.0f)) == 1.0);

    const std::vector<float> ones(512, 0.75f);
    CHECK(relative_error(round_trip(type, ones), ones) < 0.02);

    std::vector<float> positive = normal(512, 1, 9);
    for (float& x : positive) x = std::abs(x);
    CHECK(relative_error(round_trip(type, positive), positive) < 2 * bound);

    // One outlier: its neighbours may be lost, it must stay.
    std::vector<float> outlier = normal(512, 0.01f, 3);
    outlier[100] = -50;
    CHECK(std::abs(round_trip(type, outlier)[100] + 50) < 50 * 0.05);

    if (kernels::quant_index(type) < 0) continue;
    // Beyond the range of a half scale: finite, with the right sign.
    const std::vector<float> huge(256, -1e30f);
    const float back = round_trip(type, huge)[17];
    CHECK(std::isfinite(back));
    CHECK(back < -1e4f);
    const std::vector<float> tiny(256, 1e-30f);
    CHECK(std::abs(round_trip(type, tiny)[17]) < 1e-6f);
  }
}

TEST_CASE("values that a type represents exactly are kept") {
  for (const auto& [type, bound] : kBounds) {
    CAPTURE(info(type).name);
    const std::vector<float> once = round_trip(type, normal(1024, 1, 21));
    CHECK(relative_error(round_trip(type, once), once) < bound / 2);
  }
}

TEST_CASE("values that cannot be stored are a named error") {
  const std::vector<float> values(256, 1.0f);
  const auto message = [&](DType type, std::vector<float> in, int64_t cols) {
    auto result = quantize_rows(type, in, cols);
    REQUIRE_FALSE(result.ok());
    return result.error().message;
  };
  CHECK(message(DType::kIQ2_S, values, 256).find("IQ2_S") != std::string::npos);
  CHECK(message(DType::kQ4_K, values, 128).find("multiple of 256") != std::string::npos);
  CHECK(message(DType::kQ4_0, values, 48).find("multiple of 32") != std::string::npos);
  CHECK(message(DType::kQ4_0, values, 96).find("256 values in rows of 96") != std::string::npos);
  CHECK(message(DType::kQ4_0, values, 0).find("rows of 0") != std::string::npos);
  std::vector<float> bad = values;
  bad[77] = std::numeric_limits<float>::quiet_NaN();
  CHECK(message(DType::kQ6_K, bad, 256).find("value 77 is nan") != std::string::npos);
  bad[77] = -3e38f;
  CHECK(message(DType::kQ4_K, bad, 256).find("Q4_K holds up to 1e+30") != std::string::npos);
  bad[77] = -1e7f;
  CHECK(message(DType::kQ8_0, bad, 256).find("value 77 is -1") != std::string::npos);
  CHECK(message(DType::kF16, bad, 256).find("F16 holds up to 65504") != std::string::npos);
  CHECK(quantize_rows(DType::kQ4_0, {}, 32).value().empty());
}

}  // namespace
}  // namespace hearth::models
