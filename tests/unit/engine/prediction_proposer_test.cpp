#include "engine/speculation/prediction_proposer.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

using Tokens = std::vector<int32_t>;

/// A sequence with a prediction, to which tokens are appended.
struct PredictionRig {
  explicit PredictionRig(Tokens prediction) {
    live.request.prompt = {1, 2, 3};
    live.request.prediction = std::move(prediction);
    seq.request = &live;
    seq.tokens = live.request.prompt;
  }
  Draft ask(int32_t most = 4) { return ask_for(seq, most); }
  Draft ask_for(Sequence& of, int32_t most = 4) {
    Draft draft;
    draft.seq = &of;
    draft.max_tokens = most;
    Draft* const one = &draft;
    proposer.propose({&one, 1}, 0);
    return draft;
  }
  Draft after(const Tokens& output, int32_t most = 4) {
    seq.tokens.insert(seq.tokens.end(), output.begin(), output.end());
    return ask(most);
  }

  PredictionProposer proposer;
  LiveRequest live;
  Sequence seq;
};

/// Steps that an output takes if each draft's right tokens are accepted, as the engine does.
int steps_for(const Tokens& prediction, const Tokens& output, int32_t width) {
  PredictionRig rig(prediction);
  int steps = 0;
  for (size_t made = 0; made < output.size(); ++steps) {
    const Draft draft = rig.ask(width);
    size_t right = 0;
    while (right < draft.tokens.size() && made + right < output.size() &&
           draft.tokens[right] == output[made + right]) {
      ++right;
    }
    for (size_t i = 0; i <= right && made < output.size(); ++i) {
      rig.seq.tokens.push_back(output[made++]);
    }
  }
  return steps;
}

/// Lines of twelve tokens: an indentation, ten from a vocabulary of 500, an end.
Tokens lines(int count, uint32_t seed) {
  std::mt19937 random(seed);
  Tokens out;
  for (int line = 0; line < count; ++line) {
    out.push_back(900 + static_cast<int32_t>(random() % 3));
    for (int i = 0; i < 10; ++i) out.push_back(static_cast<int32_t>(random() % 500));
    out.push_back(999);
  }
  return out;
}

TEST_CASE("prediction: drafted from its beginning, then along with the output") {
  PredictionRig rig({10, 11, 12, 13, 14, 15});
  CHECK(rig.ask().tokens == Tokens{10, 11, 12, 13});
  CHECK(rig.ask().confidence == 0);
  CHECK(rig.after({10, 11, 12}, 2).tokens == Tokens{13, 14});
  CHECK(rig.ask().confidence == 1);
  CHECK(rig.after({13}).tokens == Tokens{14, 15});
  CHECK(rig.after({14, 15}).tokens.empty());
}

TEST_CASE("prediction: a replaced token is skipped, before anything shows that") {
  PredictionRig rig({10, 11, 12, 13, 14, 15, 16});
  const Draft draft = rig.after({10, 11, 77});
  CHECK(draft.tokens == Tokens{13, 14, 15, 16});
  CHECK(draft.confidence == 0);
  CHECK(rig.after({13, 14}, 1).tokens == Tokens{15});
}

TEST_CASE("prediction: found again after an insertion and after a removal") {
  PredictionRig inserted({10, 11, 12, 13, 14, 15});
  CHECK(inserted.after({10, 11, 70, 71, 72, 73, 12, 13}).tokens == Tokens{14, 15});
  PredictionRig removed({10, 11, 12, 13, 14, 15, 16, 17});
  CHECK(removed.after({10, 11, 15, 16}).tokens == Tokens{17});
}

TEST_CASE("prediction: of equal places the first one near where the texts parted") {
  // "5 6" is followed by 1, 2 and 3.
  PredictionRig rig({5, 6, 1, 40, 41, 42, 5, 6, 2, 43, 44, 5, 6, 3});
  CHECK(rig.after({5, 6, 1, 40, 41, 42, 90, 91, 5, 6}, 1).tokens == Tokens{1});
  CHECK(rig.after({1, 40, 41, 42, 5, 6}, 1).tokens == Tokens{2});
}

TEST_CASE("prediction: an output that never resembles it costs no wild drafts") {
  PredictionRig rig(lines(20, 1));
  for (int32_t i = 0; i < 500; ++i) {
    const Draft draft = rig.after({2000 + i});
    CHECK(draft.confidence == 0);
    CHECK(size32(draft.tokens) <= 4);
  }
  // And its beginning is found then.
  const Tokens& text = rig.live.request.prediction;
  CHECK(rig.after({text[0], text[1], text[2]}, 1).tokens == Tokens{text[3]});
}

TEST_CASE("prediction: no request without one, and each sequence has its own place") {
  PredictionRig rig({});
  CHECK(rig.after({1, 2}).tokens.empty());
  CHECK(rig.proposer.num_sequences() == 0);
  rig.live.request.prediction = {10, 11, 12};
  CHECK(rig.ask().tokens == Tokens{12});  // as if two tokens were replaced
  Sequence other;
  other.request = &rig.live;
  other.tokens = {1, 2, 3, 10};
  CHECK(rig.ask_for(other).tokens == Tokens{11, 12});
  CHECK(rig.proposer.num_sequences() == 2);
  rig.proposer.forget(other);
  CHECK(rig.proposer.num_sequences() == 1);
}

TEST_CASE("prediction: an edit of 200 lines, 5 of them changed, takes few steps") {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    const Tokens before = lines(200, seed);
    Tokens after;
    std::mt19937 random(seed + 100);
    for (int line = 0; line < 200; ++line) {
      const auto from = before.begin() + 12 * line;
      const bool changed = line % 40 == 17;
      if (!changed) {
        after.insert(after.end(), from, from + 12);
        continue;
      }
      // Of another length, too.
      const int count = 4 + static_cast<int>(random() % 16);
      for (int i = 0; i < count; ++i) after.push_back(static_cast<int32_t>(random() % 500));
      after.push_back(999);
    }
    const int steps = steps_for(before, after, 8);
    INFO(steps << " steps for " << after.size() << " tokens");
    CHECK(steps < static_cast<int>(after.size()) / 5);
    CHECK(steps >= static_cast<int>(after.size()) / 9);
  }
}

}  // namespace
}  // namespace hearth::engine
