#include "engine/speculation/speculator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace hearth::engine {
namespace {

constexpr int32_t kAll = 1000;

/// Always drafts token 7.
class PaidProposer final : public Proposer {
 public:
  PaidProposer(DraftedBy kind, double token_us, int32_t most)
      : kind_(kind), token_us_(token_us), most_(most) {}
  DraftedBy kind() const override { return kind_; }
  bool free() const override { return false; }
  int32_t max_tokens() const override { return most_; }
  std::optional<double> propose_us(int32_t sequences, int32_t tokens) const override {
    return token_us_ * sequences * tokens;
  }
  void propose(std::span<Draft* const> drafts, double) override {
    ++asked;
    for (Draft* draft : drafts) {
      widest = std::max(widest, draft->max_tokens);
      draft->tokens.assign(static_cast<size_t>(draft->max_tokens), 7);
    }
  }
  int asked = 0;
  int32_t widest = 0;

 private:
  const DraftedBy kind_;
  const double token_us_;
  const int32_t most_;
};

struct SpeculatorRig {
  SpeculatorRig(double model_us, double layer_us, int32_t fixed_width = 0) {
    SpeculationConfig config;
    config.lookup = false;
    config.fixed_width = fixed_width;
    auto of_model = std::make_unique<PaidProposer>(DraftedBy::kDraftModel, model_us, 100);
    auto of_layer = std::make_unique<PaidProposer>(DraftedBy::kDraftLayer, layer_us, 3);
    model = of_model.get();
    layer = of_layer.get();
    speculator = std::make_unique<Speculator>(config, std::move(of_model), std::move(of_layer));
    for (int i = 0; i < 8; ++i) {
      // Rows cost little, as where weights are read once for all of them.
      for (const int32_t rows : {1, 2, 3, 4, 6, 8}) cost.measured(rows, {}, 1000 + 10 * rows);
    }
    live.request.prompt.assign(10, 1);
    live.request.max_tokens = 10'000;
    live.forked = true;
    seq.request = &live;
    seq.tokens = live.request.prompt;
  }
  /// One step; of its draft tokens the first ones are right, so many of them.
  void step(int32_t right) {
    cost.measured(1, {}, 1010);
    Sequence* decoding = &seq;
    speculator->propose({&decoding, 1}, cost, false);
    const auto drafted = static_cast<int32_t>(seq.drafted.size());
    const size_t first = seq.tokens.size();
    const int32_t accepted = std::min(drafted, right);
    seq.tokens.insert(seq.tokens.end(), static_cast<size_t>(accepted), 7);
    seq.tokens.push_back(accepted < right ? 7 : 8);
    speculator->learn(seq, first, drafted);
  }

  PaidProposer* model;
  PaidProposer* layer;
  std::unique_ptr<Speculator> speculator;
  StepCost cost;
  LiveRequest live;
  Sequence seq;
};

TEST_CASE("of two proposers that compute, the one with the larger expected gain is asked") {
  SpeculatorRig rig(300, 100);
  for (int i = 0; i < 20; ++i) rig.step(kAll);
  CHECK(rig.layer->asked == 20);
  CHECK(rig.layer->widest == 3);
  CHECK(rig.model->asked == 0);
  CHECK(rig.seq.drafted_by == DraftedBy::kDraftLayer);

  SpeculatorRig other(50, 400);
  for (int i = 0; i < 20; ++i) other.step(kAll);
  CHECK(other.model->asked == 20);
  CHECK(other.model->widest > 3);
  CHECK(other.layer->asked == 0);
  CHECK(other.seq.drafted_by == DraftedBy::kDraftModel);
}

TEST_CASE("a proposer that is wrong gives way to another, and then to none") {
  SpeculatorRig rig(200, 100);
  for (int i = 0; i < 200; ++i) rig.step(0);
  CHECK(rig.layer->asked > 3);
  CHECK(rig.model->asked > 3);
  const int asked = rig.layer->asked + rig.model->asked;
  for (int i = 0; i < 200; ++i) rig.step(0);
  CHECK(rig.layer->asked + rig.model->asked < asked + 12);  // trials alone
}

TEST_CASE("the chance of each place is learned by itself, and further places are tried again") {
  SpeculatorRig rig(5000, 100);
  for (int i = 0; i < 100; ++i) rig.step(2);
  int wide = 0;
  for (int i = 0; i < 200; ++i) {
    rig.step(2);
    CHECK(rig.seq.drafted.size() >= 2);
    if (std::exchange(rig.layer->widest, 0) > 2) ++wide;
  }
  CHECK(wide > 0);
  CHECK(wide < 10);
  // Another sequence starts with what is known; a better text gets the third token back.
  rig.speculator->forget(rig.live);
  rig.step(kAll);
  CHECK(rig.seq.drafted.size() == 2);
  int steps = 0;
  for (; steps < 5000 && rig.seq.drafted.size() < 3; ++steps) rig.step(kAll);
  CHECK(steps < 5000);
}

TEST_CASE("one that costs more than it can save is not asked, and a request may forbid all") {
  SpeculatorRig rig(5000, 5000);
  for (int i = 0; i < 50; ++i) rig.step(kAll);
  CHECK(rig.layer->asked + rig.model->asked == 0);
  SpeculatorRig forbidden(10, 10);
  forbidden.live.request.use_draft = false;
  for (int i = 0; i < 50; ++i) forbidden.step(kAll);
  CHECK(forbidden.layer->asked + forbidden.model->asked == 0);
}

TEST_CASE("without the draft model the draft layer stays, within its longest chain") {
  SpeculatorRig rig(10, 100, 8);
  CHECK(rig.speculator->has_draft_model());
  rig.step(kAll);
  CHECK(rig.model->asked == 1);
  rig.speculator->forget(rig.live);
  SpeculatorRig fresh(10, 100, 8);
  fresh.speculator->drop_draft_model();
  CHECK_FALSE(fresh.speculator->has_draft_model());
  CHECK(fresh.speculator->has_paid_proposer());
  fresh.step(kAll);
  CHECK(fresh.layer->asked == 1);
  CHECK(fresh.layer->widest == 3);
}

}  // namespace
}  // namespace hearth::engine
