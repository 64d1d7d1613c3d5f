#include "tests/golden/greedy_reference.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

namespace hearth::golden {
namespace {

StepRunner runner_for(const models::GgufFile& file, const NamedTable& table,
                      kernels::KvTypes kv_type, const GreedyCase& c) {
  // One thread: steps of models this small are mostly barriers, and on a busy machine each barrier
  // waits for the operating system's scheduler. llama_test.cpp shows that threads change no bit.
  table.ops.set_num_threads(table.ops.state.get(), 1);
  StepRunner::Bounds bounds;
  bounds.context = static_cast<int32_t>(c.prompt_ids.size() + c.ids.size());
  bounds.step_tokens = bounds.context;
  return StepRunner(file, table.ops, kv_type, bounds);
}

/// The cases that run on a table: on a slow one only the first, with few ids.
std::vector<GreedyCase> cases_on(const NamedTable& table, const std::vector<GreedyCase>& cases) {
  if (!table.slow) return cases;
  GreedyCase first = cases.at(0);
  first.ids.resize(std::min<size_t>(first.ids.size(), 40));
  return {first};
}

}  // namespace

std::vector<GreedyCase> read_greedy_cases(const std::filesystem::path& json) {
  std::ifstream in(json);
  const auto root = nlohmann::json::parse(in);
  const bool ours = root.is_object();  // {"model": ..., "greedy": [...]}
  std::vector<GreedyCase> cases;
  for (const auto& entry : ours ? root.at("greedy") : root) {
    GreedyCase c;
    entry.at("prompt").get_to(c.prompt);
    entry.at("prompt_ids").get_to(c.prompt_ids);
    entry.at(ours ? "ids" : "greedy_ids").get_to(c.ids);
    entry.at(ours ? "logprobs" : "logprob").get_to(c.logprobs);
    entry.at(ours ? "margins" : "margin_to_second").get_to(c.margins);
    entry.at("text").get_to(c.text);
    cases.push_back(std::move(c));
  }
  return cases;
}

void check_equal(const models::GgufFile& file, const NamedTable& table,
                 const std::vector<GreedyCase>& cases, double logprob_tolerance) {
  for (const GreedyCase& c : cases_on(table, cases)) {
    StepRunner runner = runner_for(file, table, kernels::DType::kF32, c);
    auto logits = runner.feed(0, c.prompt_ids, static_cast<int32_t>(c.prompt_ids.size())).back();
    std::vector<int32_t> ids;
    double worst = 0;
    for (size_t i = 0; i < c.ids.size(); ++i) {
      const int32_t id = argmax(logits);
      ids.push_back(id);
      worst = std::max(worst, std::fabs(logprob(logits, id) - c.logprobs[i]));
      logits = runner.feed(0, {&id, 1}, 1).back();
    }
    INFO(table.name << ", prompt " << c.prompt);
    CHECK(ids == c.ids);
    CHECK(worst <= logprob_tolerance);
  }
}

void check_agrees(const models::GgufFile& file, const NamedTable& table, kernels::KvTypes kv_type,
                  const std::vector<GreedyCase>& cases, double logprob_tolerance,
                  double tie_margin) {
  for (const GreedyCase& c : cases_on(table, cases)) {
    StepRunner runner = runner_for(file, table, kv_type, c);
    std::vector<int32_t> tokens = c.prompt_ids;
    tokens.insert(tokens.end(), c.ids.begin(), c.ids.end() - 1);
    const auto logits = runner.feed(0, tokens, static_cast<int32_t>(tokens.size()), true);
    size_t others = 0;
    double worst = 0;
    for (size_t i = 0; i < c.ids.size(); ++i) {
      const auto& row = logits[c.prompt_ids.size() - 1 + i];
      others += argmax(row) != c.ids[i] && c.margins[i] >= tie_margin;
      worst = std::max(worst, std::fabs(logprob(row, c.ids[i]) - c.logprobs[i]));
    }
    INFO(table.name << ", prompt " << c.prompt);
    CHECK(others == 0);
    CHECK(worst <= logprob_tolerance);
  }
}

void check_close_f16(const models::GgufFile& file, const NamedTable& table,
                     const std::vector<GreedyCase>& cases, double most_margin) {
  for (const GreedyCase& c : cases_on(table, cases)) {
    StepRunner runner = runner_for(file, table, kernels::DType::kF16, c);
    auto logits = runner.feed(0, c.prompt_ids, static_cast<int32_t>(c.prompt_ids.size())).back();
    for (size_t i = 0; i < c.ids.size(); ++i) {
      const int32_t id = argmax(logits);
      if (id != c.ids[i]) {
        INFO(table.name << ", prompt " << c.prompt << ", token " << i);
        CHECK(c.margins[i] < most_margin);
        break;
      }
      logits = runner.feed(0, {&id, 1}, 1).back();
    }
  }
}

}  // namespace hearth::golden
