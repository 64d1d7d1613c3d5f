// hearth bench --speculate.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "daemon/worker/tools/bench/speculation_rig.h"
#include "daemon/worker/tools/bench/verb_bench.h"

namespace hearth::worker {
namespace {

BenchOptions tiny() {
  BenchOptions options;
  options.shape = "tiny";
  options.rounds = 1;
  options.tokens = 12;
  options.sequences = 2;
  options.width = 2;
  return options;
}

Result<SpeculationReport> measured(const BenchOptions& options) {
  auto ops = kernels::cpu_ops({.num_threads = 2, .variant = ""});
  REQUIRE(ops.ok());
  return run_speculation(options, *ops);
}

TEST_CASE("replayed drafts: the same text, counted by position, with a draft's cost and without") {
  for (const char* draft : {"none", "tiny"}) {
    CAPTURE(draft);
    BenchOptions options = tiny();
    options.replay = "1,0.5";
    options.draft = draft;
    const auto report = measured(options);
    REQUIRE_MESSAGE(report.ok(), (report.ok() ? "" : report.error().message));
    CHECK(report->ratios.size() == 1);
    CHECK(report->temperature == 0.8f);
    // The number of steps with drafts depends on measured times: 12 tokens per sequence take at
    // least 4 steps.
    CHECK(report->counts.drafted_at[0] > 4);
    CHECK(report->counts.accepted_at[0] == report->counts.drafted_at[0]);
    CHECK(report->counts.accepted_at[1] < report->counts.drafted_at[1]);
    CHECK(report->counts.drafted_at[2] == 0);
    CHECK((report->draft_step_us > 0) == (std::string(draft) == "tiny"));
    const auto json = nlohmann::json::parse(as_json(*report));
    CHECK(json.at("ratios").size() == 1);
    CHECK(json.at("acceptance_by_place").at(0) == 1.0);
    CHECK(json.at("acceptance_by_place").size() == 2);
    CHECK(as_text(*report).find("by place 1.00 0.") != std::string::npos);
  }
}

TEST_CASE("replayed drafts at the cost of the model's own draft layer") {
  BenchOptions options = tiny();
  options.shape = "qwen3.5-tiny";
  options.replay = "1,0.5";
  options.draft = "mtp";
  options.width = 3;
  const auto report = measured(options);
  REQUIRE_MESSAGE(report.ok(), (report.ok() ? "" : report.error().message));
  CHECK(report->counts.accepted_at[0] == report->counts.drafted_at[0]);
  CHECK(report->counts.accepted_at[1] < report->counts.drafted_at[1]);
  CHECK(report->counts.drafted_by[static_cast<size_t>(engine::DraftedBy::kDraftLayer)] ==
        report->counts.drafted_tokens);
  CHECK(report->draft_step_us > 0);
  CHECK(report->step_us.size() == 4);
  options.shape = "tiny";  // it has none
  CHECK(measured(options).error().field == "draft");
}

TEST_CASE("contradictory options are refused by name") {
  BenchOptions options = tiny();
  options.replay = "2";
  CHECK(measured(options).error().field == "replay");
  options = tiny();
  options.draft = "/nowhere.gguf";
  CHECK(measured(options).error().field == "draft");
  options = tiny();
  options.prompt = "Once";
  CHECK(measured(options).error().field == "prompt");
}

}  // namespace
}  // namespace hearth::worker
