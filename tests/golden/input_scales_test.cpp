// A model with scaled inputs computes what it computed before, in every architecture whose inputs
// are scaled.

#include "models/quantize/input_scales.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "models/quantize/quantize_file.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/temp_dir.h"

namespace hearth::golden {
namespace {

using kernels::DType;
using models::GgufFile;
using models::ImportanceMatrix;
using models::InputScales;

/// An importance matrix of the file's layers whose mean squares differ by up to e^4.
GgufFile random_importance(const GgufFile& file, const tests::TempDir& dir) {
  std::mt19937 engine(5);
  std::vector<models::InputSums> inputs;
  for (const models::GgufTensor& tensor : file.tensors()) {
    if (tensor.num_dims < 2 || !tensor.name.starts_with("blk.")) continue;
    const uint64_t matrices = tensor.dims[2];
    models::InputSums sums{.name = std::string(tensor.name),
                           .cols = static_cast<int64_t>(tensor.dims[0]),
                           .squares = std::vector<double>(tensor.dims[0] * matrices),
                           .counts = std::vector<int64_t>(matrices, 10)};
    for (double& x : sums.squares) x = std::exp(static_cast<double>(engine()) * 0x1p-30);
    inputs.push_back(std::move(sums));
  }
  const auto path = dir.path() / "importance.gguf";
  REQUIRE(models::write_importance(path, inputs, {.text = "none"}).ok());
  return GgufFile::open(path).value();
}

struct Searched {
  int32_t places = 0;
  int32_t scaled = 0;
};

Searched check_same_logits(const std::string& name) {
  const tests::TempDir dir;
  const FamilyModel model = read_family(name);
  const OwnedFile before(model.file_bytes(DType::kF32));
  const GgufFile matrix_file = random_importance(before.file, dir);
  const ImportanceMatrix importance = ImportanceMatrix::read(matrix_file).value();
  kernels::ThreadPool pool(2);
  const auto scales = models::search_input_scales(before.file, models::find_mix("Q4_0").value(),
                                                  importance, pool, nullptr);
  REQUIRE_MESSAGE(scales.ok(), (scales.ok() ? "" : scales.error().message));
  models::QuantizeOptions options{.mix = models::find_mix("F32").value(), .num_threads = 2};
  options.scales = &*scales;
  const auto path = dir.path() / "scaled.gguf";
  const auto written = models::quantize_file(before.file, path, options, nullptr);
  REQUIRE_MESSAGE(written.ok(), (written.ok() ? "" : written.error().message));
  const GgufFile after = GgufFile::open(path).value();
  const auto logits = [&](const GgufFile& file) {
    StepRunner runner(
        file, kernels::reference_ops(), DType::kF32,
        {.seqs = 1, .step_tokens = 96, .context = 96, .model_context = model.context});
    return runner.feed(0, model.all_but_last(), 96, true);
  };
  const auto want = logits(before.file), got = logits(after);
  double most = 0, worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    for (size_t t = 0; t < want[i].size(); ++t) {
      most = std::max(most, std::abs(double{want[i][t]}));
      worst = std::max(worst, std::abs(double{want[i][t]} - got[i][t]));
    }
  }
  CHECK_MESSAGE(worst < 2e-5 * most, fmt::format("{} of {}", worst, most));
  return {scales->num_places, scales->num_scaled};
}

TEST_CASE("scaled inputs: the same logits") {
  for (const std::string name :
       {"llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "granite", "smollm3", "ernie4_5",
        "seed_oss", "hunyuan", "internlm2", "mistral3"}) {
    CAPTURE(name);
    const Searched searched = check_same_logits(name);
    const int32_t layers = searched.places / 4;
    CHECK(searched.places == 4 * layers);  // each place of every layer
    CHECK(searched.scaled > 0);
  }
  // Joined matrices have the places after norms, and experts those of attention.
  for (const std::string name : {"phi3_long", "mixtral"}) {
    CAPTURE(name);
    const Searched searched = check_same_logits(name);
    CHECK(searched.places % 2 == 0);
    CHECK(searched.scaled > 0);
  }
}

TEST_CASE("scaled inputs: refused, stopped, and nothing to gain") {
  const tests::TempDir dir;
  kernels::ThreadPool pool(1);
  const auto search = [&](const char* name, const char* type,
                          const std::function<bool(int32_t, int32_t)>& progress) {
    const OwnedFile model(read_family(name).file_bytes(DType::kF32));
    const GgufFile matrix_file = random_importance(model.file, dir);
    const ImportanceMatrix importance = ImportanceMatrix::read(matrix_file).value();
    return models::search_input_scales(model.file, models::find_mix(type).value(), importance, pool,
                                       progress);
  };
  const auto refused = search("deepseek2", "Q4_0", nullptr);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kUnsupported);
  CHECK(refused.error().message.find("deepseek2") != std::string::npos);
  CHECK(refused.error().message.find("qwen3") != std::string::npos);
  const auto stopped = search("llama", "Q4_0", [](int32_t, int32_t) { return false; });
  CHECK(stopped.error().code == ErrorCode::kCancelled);
  const auto exact = search("llama", "F32", nullptr);
  REQUIRE(exact.ok());
  CHECK(exact->num_places > 0);
  CHECK(exact->num_scaled == 0);
  CHECK(exact->factors.empty());
}

}  // namespace
}  // namespace hearth::golden
