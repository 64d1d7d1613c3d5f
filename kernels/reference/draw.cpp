#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/base/numbers.h"
#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {
namespace {

int32_t draw_row(const float* logits, int64_t vocab, const DrawRow& how) {
  const uint64_t key = noise_key(how.seed, how.sample, how.position);
  double best = -std::numeric_limits<double>::infinity();
  double second = best;
  int32_t token = kNotDrawn;
  for (int64_t i = 0; i < vocab; ++i) {
    if (!std::isfinite(logits[i])) return kNotDrawn;
    const auto id = narrow<int32_t>(i);
    double score = logits[i];
    if (how.temperature > 0) {
      const double u = noise_uniform(noise_bits(key, id));
      score = logits[i] / how.temperature - std::log(-std::log(u));
    }
    if (score > best || token == kNotDrawn) {
      second = best;
      best = score;
      token = id;
    } else {
      second = std::max(second, score);
    }
  }
  const bool near = best - second <= kDrawSlack * std::max(1.0, std::abs(best));
  return how.temperature > 0 && near ? kNotDrawn : token;
}

}  // namespace

void draw(void*, const DrawArgs& args) {
  check_args(args);
  for (int32_t row = 0; row < num_rows(*args.batch, Rows::kOutputs); ++row) {
    args.tokens[row] = draw_row(args.logits.row<float>(row), args.logits.cols, args.rows[row]);
  }
}

void best_logits(void*, const BestLogitsArgs& args) {
  check_args(args);
  std::vector<int32_t> order(args.logits.cols);
  for (int32_t row = 0; row < num_rows(*args.batch, Rows::kOutputs); ++row) {
    const float* logits = args.logits.row<float>(row);
    BestLogits& best = args.best[row];
    std::fill_n(best.logit, BestLogits::kCount, 0.0f);
    std::fill_n(best.token, BestLogits::kCount, kNotDrawn);
    if (!std::all_of(logits, logits + order.size(), [](float x) { return std::isfinite(x); })) {
      continue;
    }
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    for (size_t i = 0; i < order.size() && i < BestLogits::kCount; ++i) {
      best.logit[i] = logits[order[i]];
      best.token[i] = order[i];
    }
  }
}

void feed(void*, const FeedArgs& args) {
  for (int32_t row = 0; row < num_rows(*args.batch, Rows::kTokens); ++row) {
    const int32_t token = args.tokens[args.rows[row]];
    args.token_ids[row] = token == kNotDrawn ? 0 : token;
  }
}

}  // namespace hearth::kernels::reference
