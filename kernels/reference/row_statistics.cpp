// Ops that change a row by its own statistics: times_rms and keep_peaks.

#include <algorithm>
#include <cmath>

#include "kernels/base/numbers.h"
#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {
namespace {

float rounded_once(double value) { return static_cast<float>(value); }

}  // namespace

void times_rms_row(const float* like, int64_t like_width, float eps, int64_t width, float* x) {
  double sum = 0;
  for (int64_t c = 0; c < like_width; ++c) sum += double{like[c]} * like[c];
  const double rms = std::sqrt(sum / as_double(like_width) + eps);
  for (int64_t c = 0; c < width; ++c) x[c] = rounded_once(x[c] * rms);
}

void keep_peaks_row(float deviations, int64_t width, float* x) {
  double sum = 0;
  for (int64_t c = 0; c < width; ++c) sum += x[c];
  const double mean = sum / as_double(width);
  double squares = 0;
  for (int64_t c = 0; c < width; ++c) squares += (x[c] - mean) * (x[c] - mean);
  const double cutoff = mean + deviations * std::sqrt(squares / as_double(width));
  for (int64_t c = 0; c < width; ++c) x[c] = rounded_once(std::max(0.0, x[c] - cutoff));
}

void times_rms(void*, const TimesRmsArgs& args) {
  check_args(args);
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    times_rms_row(args.like.row<float>(t), args.like.cols, args.eps, args.x.cols,
                  args.x.row<float>(t));
  }
}

void keep_peaks(void*, const KeepPeaksArgs& args) {
  check_args(args);
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    keep_peaks_row(args.deviations, args.x.cols, args.x.row<float>(t));
  }
}

}  // namespace hearth::kernels::reference
