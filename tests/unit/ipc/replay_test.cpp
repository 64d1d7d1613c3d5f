#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ipc/cli/replay/comparison.h"
#include "ipc/cli/replay/replay_requests.h"

namespace hearth::cli {
namespace {

TEST_CASE("percentiles by nearest rank") {
  std::vector<double> values;
  for (int i = 100; i > 0; --i) values.push_back(i);
  CHECK(percentile(values, 0) == 1);
  CHECK(percentile(values, 0.5) == 50);
  CHECK(percentile(values, 0.95) == 95);
  CHECK(percentile(values, 0.99) == 99);
  CHECK(percentile(values, 1) == 100);
  CHECK(percentile({3}, 0.5) == 3);
  CHECK(percentile({2, 1}, 0.5) == 1);
  CHECK(percentile({2, 1}, 0.51) == 2);
  CHECK(percentile({}, 0.5) == 0);
}

Measured measured(int64_t arrival_us, double ttft_ms, double total_ms, int32_t output_tokens) {
  return {.arrival_us = arrival_us,
          .ttft_ms = ttft_ms,
          .tpot_ms = ttft_ms / 10,
          .total_ms = total_ms,
          .prompt_tokens = 100,
          .cached_tokens = 25,
          .output_tokens = output_tokens};
}

TEST_CASE("a summary counts what did not fail") {
  const Measured failed{.arrival_us = 0, .failed = true, .prompt_tokens = 9};
  const Measured embedded{
      .arrival_us = 1'500'000, .generates = false, .total_ms = 10, .prompt_tokens = 200};
  const std::vector<Measured> requests = {failed, measured(1'000'000, 10, 500, 50),
                                          measured(2'000'000, 20, 1000, 150), embedded};
  const Summary summary = summarize(requests);
  CHECK(summary.errors == 1);
  CHECK(summary.ttft_ms_p50 == 10);
  CHECK(summary.ttft_ms_p95 == 20);
  CHECK(summary.tpot_ms_p50 == 1);
  CHECK(summary.tpot_ms_p99 == 2);
  CHECK(summary.output_tokens == 200);
  CHECK(summary.prompt_tokens == 400);
  CHECK(summary.cached_share == doctest::Approx(0.125));
  // From 1 s to 3 s.
  CHECK(summary.tokens_per_s == doctest::Approx(100));
  const Summary nothing = summarize({});
  CHECK(nothing.tokens_per_s == 0);
  CHECK(nothing.cached_share == 0);
  CHECK(summarize(std::vector<Measured>{failed}).tokens_per_s == 0);
}

TEST_CASE("the table and its JSON") {
  const Measured fast = measured(0, 10, 1000, 100);
  const Measured slow = measured(0, 25, 2000, 100);
  Measured failed = fast;
  failed.failed = true;
  const std::vector<Compared> requests = {{fast, slow, SameText::kEqual},
                                          {fast, slow, SameText::kDifferent},
                                          {fast, failed, SameText::kNotComparable},
                                          {failed, failed, SameText::kNotComparable}};
  const Comparison comparison = compare(requests);
  CHECK(comparison.requests == 4);
  CHECK(comparison.texts_equal == 1);
  CHECK(comparison.texts_different == 1);
  CHECK(comparison.texts_not_comparable == 2);
  CHECK(comparison.newly_failed == 1);
  CHECK(comparison.recorded.errors == 1);
  CHECK(comparison.replayed.errors == 2);
  const std::string table = comparison_table(comparison);
  CHECK_MESSAGE(
      table.find("TTFT p50, ms              10.0      25.0   2.50\n") != std::string::npos, table);
  CHECK_MESSAGE(
      table.find("prompt tokens cached    25.0 %    25.0 %   1.00\n") != std::string::npos, table);
  CHECK(table.find("4 requests; texts: 1 equal, 1 different, 2 not comparable\n") !=
        std::string::npos);
  const auto json = nlohmann::json::parse(comparison_json(comparison));
  CHECK(json["requests"] == 4);
  CHECK(json["replayed"]["ttft_ms_p50"] == 25.0);
  CHECK(json["recorded"]["errors"] == 1);
  CHECK(json["texts_equal"] == 1);
  CHECK(json["newly_failed"] == 1);
}

ipc::RecordedEvent record(int32_t prompt_tokens, int32_t cached_tokens,
                          const std::string& model = "a") {
  ipc::RecordedEvent out;
  out.model = model;
  out.seed = 7;
  out.usage = {.prompt_tokens = prompt_tokens, .cached_tokens = cached_tokens, .output_tokens = 9};
  return out;
}

size_t shared(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

TEST_CASE("synthetic prompts share as much as was cached") {
  std::vector<int32_t> vocabulary;
  for (int32_t id = 1000; id < 1100; ++id) vocabulary.push_back(id);
  // A conversation of three turns; another one between them; one of another model; a first prompt
  // that the cache knew already; one that failed.
  const std::vector<ipc::RecordedEvent> records = {
      record(100, 96),  record(500, 0),       record(150, 96),    record(700, 496),
      record(200, 144), record(100, 96, "b"), record(2000, 1600), record(0, 0)};
  const SyntheticPrompts prompts(records);
  std::vector<std::vector<int32_t>> ids;
  for (size_t i = 0; i < records.size(); ++i) {
    ids.push_back(prompts.ids(i, vocabulary));
    CHECK(std::ranges::all_of(ids[i], [](int32_t id) { return id >= 1000 && id < 1100; }));
    CHECK(ids[i] == prompts.ids(i, vocabulary));
    CHECK(std::cmp_equal(ids[i].size(), std::max(1, records[i].usage.prompt_tokens)));
  }
  const auto about = [](size_t met, size_t want) { return met >= want && met < want + 4; };
  CHECK(about(shared(ids[0], ids[1]), 0));
  CHECK(about(shared(ids[1], ids[2]), 96));  // the latest that is long enough
  CHECK(about(shared(ids[1], ids[3]), 496));
  CHECK(about(shared(ids[3], ids[4]), 144));
  CHECK(about(shared(ids[4], ids[5]), 0));    // another model
  CHECK(about(shared(ids[3], ids[6]), 700));  // all of the longest one
  const auto texts = prompts.texts(1, std::vector<int32_t>{3, 0, 5}, vocabulary);
  REQUIRE(texts.size() == 3);
  CHECK(texts[0].size() == 3);
  CHECK(texts[1].size() == 1);
  CHECK(texts[2].size() == 5);
}

TEST_CASE("a request is sent again as it was, apart from what must differ") {
  ipc::GenerateRequest request;
  request.model = "a";
  request.prompt = "x";
  request.max_tokens = 100;
  request.min_tokens = 20;
  request.n = 2;
  request.detach = true;
  request.cache_keep_s = 60;
  ipc::GenerateRequest want = request;
  want.detach = false;
  want.cache_keep_s = 0;
  want.seed = 7;
  want.cache_share = "own";
  want.cache = "memory";
  CHECK(replayed(request, record(1, 0), {.against = "", .share = "own"}) == want);
  want.model = "b";
  request.draft = "of a";
  want.cache_share = "theirs";
  want.cache = "disk";
  request.cache_share = "theirs";
  CHECK(replayed(request, record(1, 0), {.against = "b", .share = "own"}) == want);
  ipc::RecordedEvent cancelled = record(1, 0);
  cancelled.finish_reasons = {"stop", "cancelled"};
  const ipc::GenerateRequest cut = replayed(request, cancelled, {});
  CHECK(cut.max_tokens == 5);  // 9 tokens of 2 samples
  CHECK(cut.min_tokens == 5);
  const ipc::GenerateRequest shape =
      replayed(ipc::shape_of(request), record(3, 0), {1, 2, 3}, {.against = "", .share = ""});
  CHECK(shape.prompt.empty());
  CHECK(shape.prompt_ids == std::vector<int32_t>{1, 2, 3});
  CHECK(shape.max_tokens == 5);
  CHECK(shape.ignore_eos);
  CHECK(shape.seed == 7u);
}

}  // namespace
}  // namespace hearth::cli
