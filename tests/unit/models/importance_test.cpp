// Importance matrices: what is written is read back, what does not fit is refused by name, and
// quantizing with one leaves less weighted error.

#include "models/quantize/importance.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "kernels/quant/quant_layout.h"
#include "kernels/quant/quant_types.h"
#include "models/quantize/fit_codes.h"
#include "models/quantize/put_together.h"
#include "models/quantize/quantize_file.h"
#include "models/quantize/quantize_rows.h"
#include "tests/temp_dir.h"
#include "tests/unit/models/importance_file.h"

namespace hearth::models {
namespace {

using kernels::DType;

constexpr uint64_t kCols = kLayerCols, kRows = kLayerRows, kExperts = kLayerExperts;

/// A parsed file and its bytes.
struct Parsed {
  std::vector<std::byte> bytes;
  GgufFile file;
  explicit Parsed(const GgufWriter& writer, const char* name)
      : bytes(writer.bytes()), file(GgufFile::parse(bytes, name).value()) {}
};

/// Why the file is refused.
std::string refusal(const GgufWriter& writer) {
  const Parsed parsed(writer, "wrong");
  const auto read = ImportanceMatrix::read(parsed.file);
  if (!read.ok()) return read.error().message;
  const Parsed model(small_layer(), "small");
  const auto fits = read->check_fits(model.file);
  return fits.ok() ? "" : fits.error().message;
}

TEST_CASE("an importance matrix is read back as it was written") {
  const tests::TempDir dir;
  const std::vector<InputSums> inputs = {
      {.name = "a.weight", .cols = 2, .squares = {3, 12}, .counts = {3}},
      {.name = "b.weight", .cols = 2, .squares = {2, 4, 0, 0, 9, 1}, .counts = {2, 0, 1}}};
  const auto path = dir.path() / "m.gguf";
  REQUIRE(write_importance(path, inputs, {.text = "t.txt", .num_windows = 7, .window_tokens = 512})
              .ok());
  const GgufFile file = GgufFile::open(path).value();
  CHECK(file.get<std::string_view>("general.type").value() == "imatrix");
  CHECK(file.get<uint32_t>("imatrix.chunk_count").value() == 7);
  CHECK(file.get<uint32_t>("imatrix.chunk_size").value() == 512);
  CHECK(*file.get<GgufStrings>("imatrix.datasets").value().begin() == "t.txt");
  CHECK(file.find_tensor("b.weight.in_sum2")->shape() == "[2,3]");
  CHECK(file.find_tensor("b.weight.counts")->shape() == "[1,3]");
  const auto matrix = ImportanceMatrix::read(file);
  REQUIRE_MESSAGE(matrix.ok(), (matrix.ok() ? "" : matrix.error().message));
  CHECK(matrix->mean_squares("a.weight", 0, 2) == std::vector<float>{1, 4});
  CHECK(matrix->mean_squares("b.weight", 0, 2) == std::vector<float>{1, 2});
  CHECK(matrix->mean_squares("b.weight", 1, 2).empty());
  CHECK(matrix->mean_squares("b.weight", 2, 2) == std::vector<float>{9, 1});
  CHECK(matrix->mean_squares("c.weight", 0, 2).empty());
  CHECK_FALSE(matrix->has("c.weight"));

  const std::vector<InputSums> endless = {
      {.name = "a.weight", .cols = 1, .squares = {1e300}, .counts = {1}}};
  const auto refused = write_importance(dir.path() / "n.gguf", endless, {});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("a.weight") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(dir.path() / "n.gguf"));
}

TEST_CASE("one count for all matrices of a tensor, as llama.cpp writes some") {
  GgufWriter w = importance_header();
  add_constant(&w, "blk.0.ffn_up_exps.weight.in_sum2", {kCols * kExperts, 1}, 6);
  add_constant(&w, "blk.0.ffn_up_exps.weight.counts", {1, 1}, 2);
  CHECK(refusal(w).empty());
  const Parsed parsed(w, "m");
  const auto matrix = ImportanceMatrix::read(parsed.file);
  REQUIRE(matrix.ok());
  CHECK(matrix->mean_squares("blk.0.ffn_up_exps.weight", 2, kCols) ==
        std::vector<float>(kCols, 3.0f));
}

TEST_CASE("files that are not an importance matrix of the model are refused by name") {
  CHECK(refusal(layer_importance()).empty());
  const auto expect = [](const GgufWriter& writer, const char* words) {
    const std::string message = refusal(writer);
    CHECK_MESSAGE(message.find(words) != std::string::npos, message);
    CHECK_MESSAGE(message.find("wrong") != std::string::npos, message);
  };
  expect(small_layer(), "general.type is model, want imatrix");
  expect(importance_header(), "0 tensors, want sums");

  const auto with = [](const std::function<void(GgufWriter*)>& change) {
    GgufWriter w = importance_header();
    change(&w);
    return w;
  };
  const char* sums = "blk.0.attn_q.weight.in_sum2";
  const char* counts = "blk.0.attn_q.weight.counts";
  expect(with([&](GgufWriter* w) {
           add_constant(w, sums, {kCols, 1}, 1);
         }),
         "blk.0.attn_q.weight: sums without counts");
  expect(with([&](GgufWriter* w) {
           add_constant(w, counts, {1, 1}, 1);
         }),
         "blk.0.attn_q.weight: counts without sums");
  expect(with([&](GgufWriter* w) { add_constant(w, "blk.0.attn_q.weight", {kCols}, 1); }),
         "want names that end in .in_sum2 or .counts");
  const auto pair = [&](std::vector<uint64_t> sum_dims, float sum, std::vector<uint64_t> count_dims,
                        float count, DType type = DType::kF32) {
    return with([&](GgufWriter* w) {
      add_constant(w, sums, sum_dims, sum, type);
      add_constant(w, counts, count_dims, count);
    });
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  expect(pair({kCols, 1}, 1, {1, 1}, 1, DType::kF16), "blk.0.attn_q.weight: F16, want F32");
  expect(pair({kCols, 1}, kNan, {1, 1}, 1), "sum 0 is nan");
  expect(pair({kCols, 1}, -1, {1, 1}, 1), "sum 0 is -1");
  expect(pair({kCols, 1}, kInfinity, {1, 1}, 1), "sum 0 is inf");
  expect(pair({kCols, 1}, 1, {1, 1}, kNan), "count 0 is nan");
  expect(pair({kCols, 1}, 1, {1, 1}, -2), "count 0 is -2");
  expect(pair({kCols, 1}, 1, {1, 1}, 0), "all counts are 0");
  expect(pair({kCols, 1}, 1, {1, 5}, 1), "64 sums and 5 counts");
  expect(pair({kCols / 2, 1}, 1, {1, 1}, 1), "sums [32,1] and counts [1,1], want those of [64,4]");
  expect(pair({kCols, 2}, 1, {1, 2}, 1), "sums [64,2] and counts [1,2], want those of [64,4]");
  expect(with([&](GgufWriter* w) {
           add_constant(w, "blk.9.attn_q.weight.in_sum2", {kCols, 1}, 1);
           add_constant(w, "blk.9.attn_q.weight.counts", {1, 1}, 1);
         }),
         "it has blk.9.attn_q.weight, which small lacks");
}

/// The weights that fit_codes documents.
std::vector<double> weights_of(DType type, std::span<const float> values,
                               std::span<const float> importance) {
  const size_t sub = 32 / kernels::quant_layout(type).subs;
  double mean_importance = 0;
  for (const float x : importance) mean_importance += double{x} / double(importance.size());
  std::vector<double> out;
  for (size_t i = 0; i < values.size(); ++i) {
    double mean = 0;
    for (const float x : values.subspan(i / sub * sub, sub)) mean += double{x} * x / double(sub);
    out.push_back((importance[i] + 1e-4 * mean_importance) *
                  std::sqrt(mean + double{values[i]} * values[i]));
  }
  return out;
}

double weighted_error(DType type, std::span<const float> values, std::span<const double> weights,
                      std::span<const float> importance) {
  float back[256];
  kernels::dequantize_codes(type, fit_codes(type, values, importance), back);
  double error = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += weights[i] * (double{back[i]} - values[i]) * (double{back[i]} - values[i]);
  }
  return error;
}

TEST_CASE("the error weighted by importance is never above what is left without, and falls") {
  for (const DType type : kernels::kQuantTypes) {
    if (!is_written(type)) continue;
    CAPTURE(kernels::info(type).name);
    const size_t block = kernels::info(type).block_elements;
    double with = 0, without = 0;
    for (uint32_t seed = 0; seed < 40; ++seed) {
      const std::vector<float> values = random_floats(block, seed);
      std::vector<float> importance = random_floats(block, seed + 1000);
      for (float& x : importance) x = std::exp(10 * x);
      const std::vector<double> weights = weights_of(type, values, importance);
      const double plain = weighted_error(type, values, weights, {});
      const double weighted = weighted_error(type, values, weights, importance);
      CHECK(weighted <= plain * (1 + 1e-12));
      with += weighted;
      without += plain;
    }
    CHECK(with < without * (type == DType::kMXFP4 ? 1.0 : 0.95));
  }
}

TEST_CASE("importance of zeros, of one input, and of the largest numbers") {
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (const DType type : kernels::kQuantTypes) {
    if (!is_written(type)) continue;
    CAPTURE(kernels::info(type).name);
    const std::vector<float> values = random_floats(256, 5);
    const auto plain = quantize_rows(type, values, 256);
    CHECK(quantize_rows(type, values, 256, std::vector<float>(256, 0.0f)).value() == plain.value());
    std::vector<float> one(256, 0.0f);
    one[77] = 1;
    for (const std::vector<float>& importance : {one, std::vector<float>(256, kLargest)}) {
      const auto bytes = quantize_rows(type, values, 256, importance);
      std::vector<float> back(256);
      kernels::dequantize(type, bytes.value(), back);
      double error = 0;
      for (size_t i = 0; i < 256; ++i)
        error = std::max(error, std::abs(double{back[i]} - values[i]));
      CHECK(error < 0.7);
      if (importance[0] == 0) CHECK(std::abs(back[77] - values[77]) < 0.1);
    }
  }
}

TEST_CASE("each expert is written with the importance of its own inputs") {
  const tests::TempDir dir;
  const Parsed model(small_layer(), "small");
  GgufWriter w = importance_header();
  add_constant(&w, "blk.0.attn_q.weight.in_sum2", {kCols, 1}, 1);
  add_constant(&w, "blk.0.attn_q.weight.counts", {1, 1}, 1);
  std::vector<float> sums = random_floats(kCols * kExperts, 9);
  for (float& x : sums) x = std::exp(10 * x);
  const std::vector<float> counts = {1, 0, 1};
  const std::vector<uint64_t> dims = {kCols, kExperts}, count_dims = {1, kExperts};
  w.add_floats("blk.0.ffn_up_exps.weight.in_sum2", dims, DType::kF32, sums);
  w.add_floats("blk.0.ffn_up_exps.weight.counts", count_dims, DType::kF32, counts);
  const Parsed matrix_file(w, "m");
  const ImportanceMatrix matrix = ImportanceMatrix::read(matrix_file.file).value();
  QuantizeOptions options{.mix = find_mix("Q4_0").value(), .num_threads = 2};
  options.importance = &matrix;
  const auto path = dir.path() / "out.gguf";
  const auto report = quantize_file(model.file, path, options, nullptr);
  REQUIRE_MESSAGE(report.ok(), (report.ok() ? "" : report.error().message));
  CHECK(report->num_weighted == 2);
  const GgufFile out = GgufFile::open(path).value();
  const std::vector<float> values = random_floats(kCols * kRows * kExperts, 2);
  std::vector<std::byte> want;
  for (uint64_t e = 0; e < kExperts; ++e) {
    const std::span<const float> importance = std::span(sums).subspan(e * kCols, kCols);
    const auto rows =
        quantize_rows(DType::kQ4_0, std::span(values).subspan(e * kCols * kRows, kCols * kRows),
                      kCols, counts[e] > 0 ? importance : std::span<const float>());
    want.insert(want.end(), rows->begin(), rows->end());
  }
  const auto bytes = out.find_tensor("blk.0.ffn_up_exps.weight")->bytes;
  CHECK(std::vector<std::byte>(bytes.begin(), bytes.end()) == want);
}

TEST_CASE("a layer's matrix without importance is an error; of others and of drafts it is not") {
  const tests::TempDir dir;
  const auto outcome = [&](const std::function<void(GgufWriter*)>& change, const char* type) {
    GgufWriter w = small_layer();
    change(&w);
    const Parsed model(w, "small");
    const Parsed matrix_file(layer_importance(), "half");
    const ImportanceMatrix matrix = ImportanceMatrix::read(matrix_file.file).value();
    QuantizeOptions options{.mix = find_mix(type).value()};
    options.importance = &matrix;
    const auto report = quantize_file(model.file, dir.path() / "out.gguf", options, nullptr);
    return report.ok() ? std::string() : report.error().message;
  };
  const auto unknown = [](const char* name) {
    return [name](GgufWriter* w) { add_constant(w, name, {kCols, kRows}, 1, DType::kF16); };
  };
  CHECK(outcome(unknown("output.weight"), "Q4_0").empty());
  const std::string missing = outcome(unknown("blk.0.attn_k.weight"), "Q4_0");
  CHECK_MESSAGE(missing.find("half: blk.0.attn_k.weight is missing") != std::string::npos, missing);
  CHECK(outcome(unknown("blk.0.attn_k.weight"), "Q8_0").empty());
  CHECK(outcome(
            [&](GgufWriter* w) {
              w->set_u32("none.nextn_predict_layers", 1);
              add_constant(w, "blk.0.attn_k.weight", {kCols, kRows}, 1, DType::kF16);
            },
            "Q4_0")
            .empty());
}

}  // namespace
}  // namespace hearth::models
