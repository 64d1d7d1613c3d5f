#include "engine/sampling/canvas.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace hearth::engine {
namespace {

using models::CanvasModel;
using models::CanvasParams;
using models::Remasking;

constexpr int32_t kMask = 9;

/// Fills the canvas; in each pass the later places are the surer. Returns the tokens filled in
/// each.
std::vector<int32_t> fill(Canvas& canvas, std::vector<int32_t>& tokens) {
  std::vector<int32_t> counts;
  while (!canvas.places().empty()) {
    std::vector<CanvasDraw> draws;
    for (const int32_t place : canvas.places()) {
      CHECK(tokens[place] == kMask);
      draws.push_back({.token = place % 5, .rank = 0.01 * place, .confidence = 0.5});
    }
    const auto masked = std::ranges::count(tokens, kMask);
    canvas.take(draws, tokens);
    counts.push_back(static_cast<int32_t>(masked - std::ranges::count(tokens, kMask)));
  }
  return counts;
}

std::vector<int32_t> counts_of(const CanvasModel& model, const CanvasParams& params,
                               int32_t length) {
  Canvas canvas(model, params, {.prompt = 3, .length = length, .seed = 5});
  std::vector<int32_t> tokens(3 + length, kMask);
  std::fill_n(tokens.begin(), 3, 0);
  const std::vector<int32_t> counts = fill(canvas, tokens);
  CHECK(std::ranges::count(tokens, kMask) == 0);
  CHECK(canvas.num_whole() == length);
  CHECK(canvas.pass() == canvas.num_passes());
  return counts;
}

using Counts = std::vector<int32_t>;

TEST_CASE("canvas: even passes fill the same number, and one more in the first ones") {
  const CanvasModel even{.mask_token = kMask};
  CHECK(counts_of(even, {.steps = 4, .block_length = 10}, 10) == Counts{3, 3, 2, 2});
  CHECK(counts_of(even, {.steps = 1, .block_length = 10}, 10) == Counts{10});
  // Passes that fill nothing are left out.
  CHECK(counts_of(even, {.steps = 100, .block_length = 10}, 4) == Counts{1, 1, 1, 1});
  // Three blocks, the last one shorter, share five passes: two each.
  CHECK(counts_of(even, {.steps = 5, .block_length = 4}, 10) == Counts{2, 2, 2, 2, 1, 1});
}

TEST_CASE("canvas: passes by time fill what is left in the last one") {
  const CanvasModel by_time{.mask_token = kMask, .by_time = true};
  // Of 8 places 8 * 0.999 / 8 are none in the first pass.
  CHECK(counts_of(by_time, {.steps = 8, .block_length = 8}, 8) == Counts{1, 1, 1, 1, 1, 1, 2});
  CHECK(counts_of(by_time, {.steps = 2, .block_length = 8}, 8) == Counts{3, 5});
}

TEST_CASE("canvas: the surest places first; rows of shifted logits are one earlier") {
  const CanvasModel model{.mask_token = kMask, .shift_logits = true};
  Canvas canvas(model, {.steps = 2, .block_length = 4}, {.prompt = 3, .length = 4});
  CHECK(std::ranges::equal(canvas.places(), Counts{3, 4, 5, 6}));
  CHECK(std::ranges::equal(canvas.rows(), Counts{2, 3, 4, 5}));
  Counts tokens = {0, 0, 0, kMask, kMask, kMask, kMask};
  canvas.take(std::vector<CanvasDraw>{{1, 0.5, 0.5}, {2, 0.25, 1}, {3, 0.5, 0.75}, {4, 0.125, 1}},
              tokens);
  CHECK(tokens == Counts{0, 0, 0, 1, kMask, 3, kMask});
  CHECK(canvas.confidence() == std::vector<double>{0.5, 0, 0.75, 0});
  CHECK(std::ranges::equal(canvas.places(), Counts{4, 6}));
  CHECK(canvas.num_whole() == 0);
}

TEST_CASE("canvas: chance decides by seed, and draws only what it fills") {
  const CanvasModel model{.mask_token = kMask};
  for (const Remasking rule : {Remasking::kRandom, Remasking::kOrigin}) {
    const CanvasParams params{.steps = 4, .block_length = 40, .remasking = rule};
    const auto first = [&](uint64_t seed, int32_t sample) {
      const Canvas canvas(model, params,
                          {.prompt = 1, .length = 40, .sample = sample, .seed = seed});
      CHECK_FALSE(canvas.ranks());
      return Counts(canvas.places().begin(), canvas.places().end());
    };
    CHECK(first(1, 0) == first(1, 0));
    CHECK(first(1, 0) != first(2, 0));
    CHECK(first(1, 0) != first(1, 1));
    if (rule == Remasking::kRandom) CHECK(first(1, 0).size() == 10);
    CHECK(counts_of(model, params, 40).size() <= 4);
  }
}

TEST_CASE("canvas: known blocks are kept, a part of one is filled again") {
  const CanvasModel model{.mask_token = kMask};
  for (const int32_t known : {0, 3, 4, 7, 8}) {
    const Canvas canvas(model, {.steps = 8, .block_length = 4},
                        {.prompt = 2, .length = 8, .known = known});
    CHECK(canvas.num_whole() == known / 4 * 4);
    CHECK(canvas.places().empty() == (known == 8));
    if (known < 8) CHECK(canvas.places().front() == 2 + known / 4 * 4);
  }
}

}  // namespace
}  // namespace hearth::engine
