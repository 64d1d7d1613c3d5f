// The results of a step: tokens that the device drew, or logits and final rows fetched to the host.

#include <algorithm>
#include <utility>

#include "engine/steps/model_runner.h"
#include "kernels/base/check.h"

namespace hearth::engine {

// Logits stay on the device unless all logits of a row are needed.
void ModelRunner::ask_outputs(std::span<const RowWish> wishes) {
  StepBuffers& step = *filled_;
  const kernels::BatchIndex& batch = step.batch;
  step.wishes.clear();
  step.mark = 0;
  if (batch.num_outputs == 0 || host_logits_.size() == 0) return;
  const auto any = [&](RowWish::Kind kind) {
    return std::ranges::any_of(wishes, [kind](const RowWish& wish) { return wish.kind == kind; });
  };
  const int64_t vocab = info().vocab_size;
  if (!picks_tokens_ || wishes.empty() || any(RowWish::Kind::kLogits)) {  // and waits
    return ops_.copy_to_host(ops_.state.get(), host_logits_.as<float>(), logits_.data(),
                             batch.num_outputs * vocab * sizeof(float));
  }
  HEARTH_CHECK(std::ssize(wishes) == batch.num_outputs, "{} wishes for {} rows", wishes.size(),
               batch.num_outputs);
  step.wishes.assign(wishes.begin(), wishes.end());
  const int64_t drawn_from = filled_->of_draft ? info().draft_vocab : vocab;
  const kernels::TensorView logits{logits_.data(), kernels::DType::kF32, batch.num_outputs,
                                   drawn_from, vocab};
  if (any(RowWish::Kind::kToken)) {
    auto* rows = step.draw_rows.as<kernels::DrawRow>();
    for (const RowWish& wish : wishes) *rows++ = wish.draw;
    ops_.draw->draw(ops_.state.get(), {&batch, logits, step.draw_rows.as<kernels::DrawRow>(),
                                       step.drawn.as<int32_t>()});
  }
  if (any(RowWish::Kind::kBest)) {
    ops_.draw->best_logits(ops_.state.get(), {&batch, logits, step.best.as<kernels::BestLogits>()});
  }
  if (ops_.mark != nullptr) step.mark = ops_.mark(ops_.state.get());
}

// For two steps in a row: the results of the one launched ahead are read when its turn comes.
void ModelRunner::time_gap() {
  const uint64_t before = std::exchange(last_end_stamp_, current_->end_stamp);
  const bool known =
      before != 0 && before + kernels::DeviceClock::kStamps / 2 > current_->end_stamp;
  if (!known) return;
  gaps_us_.push_back(ops_.clock->us_between(ops_.state.get(), before, current_->begin_stamp));
}

void ModelRunner::finish(const StepPlan& plan) {
  if (current_->mark != 0) {
    ops_.wait(ops_.state.get(), std::exchange(current_->mark, 0));
  } else {
    ops_.synchronize(ops_.state.get());
  }
  std::fill(fetched_.begin(), fetched_.end(), false);
  if (gaps_timed_) time_gap();
  if (ahead_ == nullptr || batch_.states != nullptr || !left_to_host()) return;
  // The step launched ahead overwrites the logits that are needed, so this step is computed again,
  // with the same result. The step ahead had no token for that row and is dropped.
  drop_ahead();
  start(plan, {});
}

/// Whether a token was requested from the device and it drew none.
bool ModelRunner::left_to_host() const {
  const auto* tokens = current_->drawn.as<int32_t>();
  for (int32_t i = 0; i < num_outputs_; ++i) {
    if (tokens[output_row(i)] == kernels::kNotDrawn) return true;
  }
  return false;
}

bool ModelRunner::logits_lost(int32_t i) const {
  if (ahead_ == nullptr || batch_.states == nullptr) return false;
  return current_->drawn.as<int32_t>()[output_row(i)] == kernels::kNotDrawn;
}

std::span<float> ModelRunner::logits(int32_t i) {
  const size_t vocab = info().vocab_size;
  HEARTH_CHECK(i >= 0 && i < num_outputs_, "row {} of {}", i, num_outputs_);
  const size_t row = output_row(i);
  if (host_logits_.size() == 0) return {logits_.as<float>() + row * vocab, vocab};
  float* here = host_logits_.as<float>() + row * vocab;
  if (!current_->wishes.empty() && !fetched_[row]) {
    HEARTH_CHECK(ahead_ == nullptr, "row {}: the step ahead has overwritten its logits", i);
    ops_.copy_to_host(ops_.state.get(), here, logits_.as<float>() + row * vocab,
                      vocab * sizeof(float));
    fetched_[row] = true;
  }
  return {here, vocab};
}

std::optional<int32_t> ModelRunner::drawn(int32_t i, uint64_t seed, int32_t sample,
                                          int32_t position) const {
  if (current_->wishes.empty()) return std::nullopt;
  const int32_t row = output_row(i);
  const RowWish& wish = current_->wishes[row];
  if (wish.kind != RowWish::Kind::kToken || wish.draw.seed != seed || wish.draw.sample != sample ||
      wish.draw.position != position) {
    return std::nullopt;
  }
  const int32_t token = current_->drawn.as<int32_t>()[row];
  if (token == kernels::kNotDrawn) return std::nullopt;
  return token;
}

const kernels::BestLogits* ModelRunner::best_logits(int32_t i) const {
  if (current_->wishes.empty()) return nullptr;
  const int32_t row = output_row(i);
  if (current_->wishes[row].kind != RowWish::Kind::kBest) return nullptr;
  const kernels::BestLogits& best = current_->best.as<kernels::BestLogits>()[row];
  return best.token[0] == kernels::kNotDrawn ? nullptr : &best;
}

void ModelRunner::fetch_final_rows() {
  const kernels::BatchIndex& batch = current_->batch;
  final_rows_ = model_->final_rows(batch);
  if (ops_.device.kind != "cuda") return ops_.synchronize(ops_.state.get());
  host_rows_.resize(batch.num_tokens * final_rows_.row_stride);
  ops_.copy_to_host(ops_.state.get(), host_rows_.data(), final_rows_.data,
                    host_rows_.size() * sizeof(float));
  final_rows_.data = host_rows_.data();
}

std::span<const float> ModelRunner::final_row(int32_t i) const {
  const int32_t rows = current_->batch.num_tokens;
  HEARTH_CHECK(i >= 0 && i < rows && final_rows_.data != nullptr, "row {} of {}", i, rows);
  return std::span(final_rows_.row<float>(i), final_rows_.cols);
}

}  // namespace hearth::engine
