// Bounds on reasoning in the whole engine on the fake model: the text is a pure function of the
// request, with drafts, in batches, after preemption and when it resumes.

#include <doctest/doctest.h>

#include "engine/speculation/replay_proposer.h"
#include "simulation.h"
#include "tests/listed_tokenizer.h"

namespace hearth::tests {
namespace {

using namespace engine;

/// Tokens 1 to 8 are parts of the marks, so that reasoning begins and ends by itself, too.
const ListedTokenizer& words() {
  static const ListedTokenizer tokenizer([] {
    std::vector<std::string> pieces(61, "a");
    const char* const parts[] = {"<t>", "</t>", "</", "t>", "</t>b", "<", "c</t", ">"};
    for (size_t i = 0; i < std::size(parts); ++i) pieces[i + 1] = parts[i];
    return pieces;
  }());
  return tokenizer;
}

Request with_bound(RequestId id, int32_t max_tokens, bool open) {
  Request request =
      make_request(id, static_cast<int32_t>(5 + id % 40), 40, static_cast<int32_t>(id % 7));
  request.sampling.temperature = 0.9f;
  request.sampling.seed = id;
  request.sampling.top_k = id % 2 == 0 ? 5 : 0;
  if (id % 5 == 3) request.sampling.top_logprobs = 2;
  // Without it, one answer in 61 would begin with the mark.
  if (!open) request.sampling.logit_bias = {{1, 4.0f}};
  request.reasoning = std::make_shared<ReasoningBound>(ReasoningBound{.begin = "<t>",
                                                                      .end = "</t>",
                                                                      .open = open,
                                                                      .max_tokens = max_tokens,
                                                                      .closing = {3, 4},
                                                                      .marks = {},
                                                                      .tokenizer = &words()});
  return request;
}

/// The index of the first token of the closing; -1: none.
int64_t closed_at(const std::vector<int32_t>& tokens) {
  const std::vector<int32_t> closing = {3, 4};
  const auto found = std::ranges::search(tokens, closing);
  return found.empty() ? -1 : found.begin() - tokens.begin();
}

TEST_CASE("a bound on reasoning holds at every width, in batches and for every sample") {
  const FakeModelConfig model;
  for (int32_t width = 0; width <= 6; width += 2) {
    CAPTURE(width);
    auto proposer = std::make_unique<ReplayProposer>(ReplayProposer::random_pattern(0.7, 61, 7),
                                                     model.vocab_size);
    ReplayProposer& knows = *proposer;
    EngineConfig config;
    config.speculation.fixed_width = width;
    config.speculation.enabled = width > 0;
    Simulation sim(config, model, std::move(proposer));
    int64_t closed = 0;
    for (RequestId id = 1; id <= 60; ++id) {
      Request request = with_bound(id, static_cast<int32_t>(1 + id % 30), id % 3 > 0);
      request.n = id % 8 == 6 ? 3 : 1;
      for (int32_t sample = 0; sample < request.n; ++sample) {
        const std::vector<int32_t> tokens = expected_tokens(model, request, sample).tokens;
        if (closed_at(tokens) >= 0) ++closed;
        if (id % 4 > 0) knows.know(id, sample, tokens);
      }
      sim.submit(request);
      if (id % 2 == 0) sim.step();
    }
    sim.run_until_idle();
    sim.check_all_ended();
    CHECK(closed > 20);
    CHECK(closed < 60);
    if (width > 0) CHECK(sim.engine().snapshot().speculation.accepted_tokens > 100);
  }
}

TEST_CASE("a text that resumes anywhere has its bound where it was") {
  const FakeModelConfig model;
  // A request whose reasoning does not end by itself before.
  RequestId id = 1;
  const auto whole_of = [&] { return expected_tokens(model, with_bound(id, 10, true), 0).tokens; };
  while (closed_at(whole_of()) != 10) REQUIRE(++id < 50);
  const Request request = with_bound(id, 10, true);
  const std::vector<int32_t> whole = whole_of();
  for (size_t had = 1; had < 16; ++had) {
    Simulation sim({}, model);
    Request resumed = request;
    resumed.resume = {{whole.begin(), whole.begin() + static_cast<int64_t>(had)}};
    sim.submit(resumed);
    sim.run_until_idle();
    sim.check_all_ended();
  }
}

TEST_CASE("reasoning that is ended from outside gives the text of that bound") {
  const FakeModelConfig model;
  for (const int steps : {0, 1, 2, 9}) {
    CAPTURE(steps);
    Simulation sim({}, model);
    const Request request = with_bound(4, 1000, true);
    sim.submit(request);
    for (int i = 0; i < steps; ++i) sim.step();
    sim.post(EndReasoning{4});
    sim.post(EndReasoning{77});  // there is none
    sim.run_until_idle();
    const std::vector<int32_t> tokens = sim.record(4).tokens[0];
    const int64_t at = closed_at(tokens);
    REQUIRE(at >= 0);
    CHECK(at <= steps);
    CHECK(tokens ==
          expected_tokens(model, with_bound(4, static_cast<int32_t>(at), true), 0).tokens);

    // A worker that dies in the middle of the closing, or before or after it.
    for (int64_t had = at; had <= at + 3; ++had) {
      Simulation other({}, model);
      Request resumed = request;
      resumed.end_reasoning = true;
      resumed.resume = {{tokens.begin(), tokens.begin() + had}};
      other.submit(resumed);
      other.run_until_idle();
      std::vector<int32_t> all = resumed.resume[0];
      const std::vector<int32_t>& rest = other.record(4).tokens[0];
      all.insert(all.end(), rest.begin(), rest.end());
      CHECK(all == tokens);
    }
  }
}

TEST_CASE("a bound that cannot be kept is refused") {
  Simulation sim({}, {});
  Request request = with_bound(1, 5, true);
  auto bad = std::make_shared<ReasoningBound>(*request.reasoning);
  bad->closing = {61};
  request.reasoning = bad;
  sim.submit(request);
  sim.step();
  CHECK(sim.record(1).error->field == "reasoning");
}

}  // namespace
}  // namespace hearth::tests
