// The cost of rounding to 16 bits: the bundled model, whose weights are F16, on CUDA's table
// compared with the reference, which rounds only the KV.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <string>

#include "tests/golden/greedy_reference.h"
#include "tests/golden/step_runner.h"
#include "tests/paths.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using kernels::DType;

/// From the source tree, or from the folder of a program that was carried elsewhere (carry.sh).
std::filesystem::path bundled(const std::string& folder, const std::string& name) {
  const std::filesystem::path in_tree =
      std::filesystem::path(hearth::tests::source_dir()) / folder / name;
  return std::filesystem::exists(in_tree) ? in_tree : tests::test_data("demo/" + name);
}

/// Kullback-Leibler divergence of softmax(got) from softmax(want), natural.
double divergence(std::span<const float> want, std::span<const float> got) {
  const double want_base = want[0] - logprob(want, 0);
  const double got_base = got[0] - logprob(got, 0);
  double sum = 0;
  for (size_t id = 0; id < want.size(); ++id) {
    const double expected = want[id] - want_base;
    sum += std::exp(expected) * (expected - (got[id] - got_base));
  }
  return sum;
}

}  // namespace

TEST_CASE("F16 weights on CUDA: divergence from the reference, and the same top token") {
  const std::filesystem::path model = bundled("models/demo", "tales.gguf");
  const std::filesystem::path texts = bundled("tests/golden", "tales.json");
  if (model.empty() || texts.empty()) HEARTH_SKIP("no bundled model with its recorded texts");
  for (const NamedTable& table : all_tables()) {
    auto file = models::GgufFile::open(model);
    REQUIRE_MESSAGE(file.ok(), file.error().message);
    for (const DType kv_type : {DType::kF16, DType::kF32}) {
      double sum = 0;
      int same = 0;
      int rows = 0;
      const auto cases = read_greedy_cases(texts);
      const size_t most_cases = table.slow ? 1 : 3;
      const size_t most_tokens = table.slow ? 40 : 200;
      for (const GreedyCase& c : std::span(cases).first(std::min(cases.size(), most_cases))) {
        std::vector<int32_t> ids = c.prompt_ids;
        ids.insert(ids.end(), c.ids.begin(), c.ids.end());
        ids.resize(std::min(ids.size(), most_tokens));
        const StepRunner::Bounds bounds{.step_tokens = 200, .context = 208};
        StepRunner reference(*file, kernels::reference_ops(), kv_type, bounds);
        StepRunner runner(*file, table.ops, kv_type, bounds);
        const auto want = reference.feed(0, ids, 200, true);
        const auto got = runner.feed(0, ids, 200, true);
        for (size_t i = 0; i < want.size(); ++i, ++rows) {
          sum += divergence(want[i], got[i]);
          same += argmax(want[i]) == argmax(got[i]) ? 1 : 0;
        }
      }
      const double mean = sum / rows;
      const double share = static_cast<double>(same) / rows;
      MESSAGE(table.name << ", KV " << kernels::info(kv_type).name << ": " << rows
                         << " tokens, mean divergence " << mean << ", same top token " << share);
      CHECK(mean <= 5e-5);
      CHECK(share >= 0.997);
    }
  }
}

}  // namespace hearth::golden
