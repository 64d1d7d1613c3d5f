#include "engine/sampling/canvas.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "kernels/ops/draw.h"

namespace hearth::engine {
namespace {

/// The time at the end, as in the published code (eps).
constexpr double kLastTime = 1e-3;

int32_t divided_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

}  // namespace

Canvas::Canvas(const models::CanvasModel& model, const models::CanvasParams& params,
               const Place& place)
    : model_(model), params_(params), place_(place), confidence_(place.length) {
  HEARTH_CHECK(params.block_length > 0 && params.steps > 0 && place.length > 0 && place.prompt > 0,
               "a canvas of {} in blocks of {}, {} steps", place.length, params.block_length,
               params.steps);
  params_.block_length = std::min(params.block_length, place.length);
  steps_ = divided_up(params.steps, num_blocks());
  block_ = place.known / params_.block_length;
  begin_block();
}

int32_t Canvas::num_blocks() const { return divided_up(place_.length, params_.block_length); }

int32_t Canvas::block_end() const {
  return std::min(place_.length, block_begin() + params_.block_length);
}

void Canvas::begin_block() {
  num_whole_ = std::min(block_begin(), place_.length);
  masked_.clear();
  step_ = 0;
  if (num_whole_ == place_.length) {
    pass_ = num_passes();
    places_.clear();
    rows_.clear();
    return;
  }
  masked_.resize(block_end() - block_begin());
  std::iota(masked_.begin(), masked_.end(), place_.prompt + block_begin());
  block_size_ = size32(masked_);
  next_pass();
}

uint64_t Canvas::pass_seed() const { return noise(place_.seed, pass_); }

uint64_t Canvas::noise(uint64_t seed, int32_t position) const {
  return kernels::noise_bits(kernels::noise_key(seed, place_.sample, position), model_.mask_token);
}

bool Canvas::ranks() const {
  return params_.remasking != models::Remasking::kRandom &&
         params_.remasking != models::Remasking::kOrigin;
}

// The share of the masked places that this pass fills.
double Canvas::share() const {
  if (step_ >= steps_ - 1) return 1;
  if (!model_.by_time) return 1.0 / (steps_ - step_);
  const auto time = [this](int32_t i) { return 1 - as_double(i) / steps_ * (1 - kLastTime); };
  return 1 - time(step_ + 1) / time(step_);
}

int32_t Canvas::count() const {
  if (model_.by_time) return static_cast<int32_t>(as_double(size32(masked_)) * share());
  return block_size_ / steps_ + (step_ < block_size_ % steps_ ? 1 : 0);
}

// A number in (0, 1) that belongs to this pass and place.
double Canvas::chance(int32_t position) const {
  return kernels::noise_uniform(noise(pass_seed(), position));
}

void Canvas::choose_at_random() {
  if (params_.remasking == models::Remasking::kOrigin) {
    std::erase_if(places_, [this](int32_t position) { return chance(position) >= share(); });
    return;
  }
  const auto first = [this](int32_t a, int32_t b) { return chance(a) > chance(b); };
  std::ranges::stable_sort(places_, first);
  places_.resize(std::min(size32(places_), count()));
  std::ranges::sort(places_);
}

// Moves on to the next pass that fills something, this one included.
void Canvas::next_pass() {
  for (;; ++step_) {
    HEARTH_CHECK(step_ < steps_, "{} places are left after {} passes", masked_.size(), steps_);
    pass_ = block_ * steps_ + step_;
    if (ranks() && count() == 0) continue;
    places_ = masked_;
    if (!ranks()) choose_at_random();
    if (!places_.empty()) break;
  }
  rows_ = places_;
  if (!model_.shift_logits) return;
  for (int32_t& row : rows_) --row;
}

void Canvas::take(std::span<const CanvasDraw> draws, std::span<int32_t> tokens) {
  HEARTH_CHECK(draws.size() == places_.size(), "{} draws for {} places", draws.size(),
               places_.size());
  std::vector<int32_t> order(places_.size());
  std::iota(order.begin(), order.end(), 0);
  if (ranks()) {
    std::ranges::stable_sort(order,
                             [&](int32_t a, int32_t b) { return draws[a].rank > draws[b].rank; });
    order.resize(std::min(size32(order), count()));
  }
  for (const int32_t i : order) {
    tokens[places_[i]] = draws[i].token;
    confidence_[places_[i] - place_.prompt] = draws[i].confidence;
    std::erase(masked_, places_[i]);
  }
  if (masked_.empty()) {
    ++block_;
    return begin_block();
  }
  ++step_;
  next_pass();
}

}  // namespace hearth::engine
