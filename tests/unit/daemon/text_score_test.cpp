// Perplexity by hand, by windows, and compared with another model.

#include "daemon/worker/tools/perplexity/text_score.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

#include "models/gguf/gguf_file.h"
#include "tests/paths.h"

namespace hearth::worker {
namespace {

struct Bundled {
  models::GgufFile file =
      models::GgufFile::open(hearth::tests::source_path("models/demo/tales.gguf")).value();
  std::unique_ptr<models::Tokenizer> tokenizer = models::load_tokenizer(file).value();

  std::unique_ptr<LogitsRunner> runner(kernels::KvTypes kv_type, int32_t context) const {
    const auto ops = kernels::cpu_ops({.num_threads = 1, .variant = ""});
    REQUIRE(ops.ok());
    auto model = models::load_model(file, ops.value(), nullptr);
    REQUIRE(model.ok());
    auto out = LogitsRunner::create(std::move(model).value(), ops.value(), kv_type, context);
    REQUIRE(out.ok());
    return std::move(out).value();
  }
};

// Longer than one step of the runner.
std::string tale() {
  std::string text;
  for (int i = 0; i < 12; ++i) {
    text +=
        "Once upon a time there was a poor woodcutter who lived with his two children at the "
        "edge of a great forest. ";
  }
  return text;
}

TEST_CASE("log probabilities and divergence of two rows") {
  const std::vector<float> even = {1, 1, 1, 1};
  CHECK(log_probability(even, 2) == doctest::Approx(-std::log(4.0)));
  const std::vector<float> p = {0, static_cast<float>(std::log(3.0))};
  const std::vector<float> q = {0, 0};
  CHECK(kl_divergence(p, p) == 0);
  CHECK(kl_divergence(p, q) ==
        doctest::Approx(0.25 * std::log(0.25 / 0.5) + 0.75 * std::log(0.75 / 0.5)));
  const std::vector<float> huge = {1000, -1000};
  CHECK(log_probability(huge, 0) == doctest::Approx(0));
  CHECK(log_probability(huge, 1) == doctest::Approx(-2000));
}

TEST_CASE("one window scores each token given all before it, however steps split it") {
  const Bundled model;
  const std::string text = tale();
  const auto ids = model.tokenizer->encode(text, {});
  REQUIRE(ids.size() > LogitsRunner::kStepTokens);
  const auto runner = model.runner(kernels::DType::kF16, 512);
  const auto score = score_text(*runner, nullptr, *model.tokenizer, text,
                                {.context = 512, .stride = 256, .max_tokens = 0}, nullptr);
  REQUIRE_MESSAGE(score.ok(), (score.ok() ? "" : score.error().message));
  CHECK(score->num_tokens == static_cast<int64_t>(ids.size()) - 1);
  CHECK(score->num_bytes == static_cast<int64_t>(text.size()));
  // One token at a time: rows do not depend on the others in their step.
  double nll = 0;
  runner->begin();
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    nll -= log_probability(runner->step({&ids[i], 1}), ids[i + 1]);
  }
  CHECK(score->nll == nll);
  CHECK(score->perplexity() == std::exp(nll / static_cast<double>(score->num_tokens)));
  CHECK(score->bits_per_byte() ==
        doctest::Approx(nll / std::numbers::ln2 / static_cast<double>(text.size())));
  CHECK(score->perplexity() > 1);
  CHECK(score->perplexity() < 100);  // it was trained on such sentences
}

TEST_CASE("halves: adjacent windows, BOS at the start of each, the second half scored") {
  const Bundled model;
  const std::string text = tale();
  const auto ids = model.tokenizer->encode(text, {});
  const int32_t bos = ids.front();
  const auto runner = model.runner(kernels::DType::kF16, 64);
  const auto score =
      score_text(*runner, nullptr, *model.tokenizer, text,
                 {.context = 64, .stride = 1, .max_tokens = 0, .halves = true}, nullptr);
  REQUIRE_MESSAGE(score.ok(), (score.ok() ? "" : score.error().message));
  double nll = 0;
  int64_t count = 0;
  for (size_t begin = 0; begin + 64 <= ids.size(); begin += 64) {
    runner->begin();
    for (size_t i = 0; i + 1 < 64; ++i) {
      const int32_t id = i == 0 ? bos : ids[begin + i];
      const double p = log_probability(runner->step({&id, 1}), ids[begin + i + 1]);
      if (i < 32) continue;
      nll -= p;
      ++count;
    }
  }
  CHECK(count == score->num_tokens);
  CHECK(score->nll == nll);
  CHECK_FALSE(score_text(*runner, nullptr, *model.tokenizer, "short",
                         {.context = 64, .stride = 1, .max_tokens = 0, .halves = true}, nullptr)
                  .ok());
}

TEST_CASE("windows score every token once; more context does not predict worse here") {
  const Bundled model;
  const std::string text = tale();
  const auto all = model.runner(kernels::DType::kF16, 512);
  const auto whole = score_text(*all, nullptr, *model.tokenizer, text,
                                {.context = 512, .stride = 100, .max_tokens = 0}, nullptr);
  REQUIRE(whole.ok());
  const auto runner = model.runner(kernels::DType::kF16, 40);
  for (const int32_t stride : {4, 39}) {
    CAPTURE(stride);
    const auto cut = score_text(*runner, nullptr, *model.tokenizer, text,
                                {.context = 40, .stride = stride, .max_tokens = 90}, nullptr);
    REQUIRE(cut.ok());
    CHECK(cut->num_tokens == 90);
    const auto windows = score_text(*runner, nullptr, *model.tokenizer, text,
                                    {.context = 40, .stride = 39, .max_tokens = 90}, nullptr);
    if (stride == 4) CHECK(cut->nll < windows->nll);
  }
  CHECK(score_text(*runner, nullptr, *model.tokenizer, text,
                   {.context = 40, .stride = 40, .max_tokens = 0}, nullptr)
            .error()
            .field == "stride");
  CHECK(score_text(*runner, nullptr, *model.tokenizer, "",
                   {.context = 40, .stride = 20, .max_tokens = 0}, nullptr)
            .error()
            .field == "text");
  const auto stopped = score_text(*runner, nullptr, *model.tokenizer, text,
                                  {.context = 40, .stride = 20, .max_tokens = 0},
                                  [](const TextScore&, int64_t) { return false; });
  CHECK(stopped.error().code == ErrorCode::kCancelled);
}

TEST_CASE("a model has no divergence from itself; rounded KV has a little") {
  const Bundled model;
  const auto a = model.runner(kernels::DType::kF16, 64);
  const auto b = model.runner(kernels::DType::kF16, 64);
  const auto c = model.runner(kernels::DType::kF32, 64);
  const ScoreOptions options{.context = 64, .stride = 32, .max_tokens = 100};
  const auto same = score_text(*a, b.get(), *model.tokenizer, tale(), options, nullptr);
  REQUIRE(same.ok());
  CHECK(same->num_compared == same->num_tokens);
  CHECK(same->kl < 1e-12);
  CHECK(same->same_best == same->num_compared);
  const auto rounded = score_text(*a, c.get(), *model.tokenizer, tale(), options, nullptr);
  REQUIRE(rounded.ok());
  CHECK(rounded->kl > same->kl);
  CHECK(rounded->kl / 100 < 1e-3);
}

}  // namespace
}  // namespace hearth::worker
