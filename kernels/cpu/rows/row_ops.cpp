// The ops that process each row on its own.

#include <algorithm>
#include <cmath>

#include "kernels/base/check.h"
#include "kernels/cpu/op_table.h"
#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::cpu {
void embed(void* state, const EmbedArgs& args) {
  check_args(args);
  const auto& table = static_cast<const PackedWeight&>(*args.table);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  CpuState& s = state_of(state);
  s.for_each(rows, rows * table.cols * 2, [&](int64_t t, int32_t thread) {
    const int32_t token = args.batch->token_ids[t];
    HEARTH_CHECK(token >= 0 && token < table.rows, "token {} of {}", token, table.rows);
    unpack_row(table, token, args.scale, s.thread_scratch[thread], args.out.row<float>(t));
  });
}

void rms_norm(void* state, const RmsNormArgs& args) {
  check_args(args);
  CpuState& s = state_of(state);
  const int32_t rows = num_rows(*args.batch, args.rows);
  const int64_t width = args.weight->cols;
  s.for_each(rows, rows * args.x.cols / 4, [&](int64_t t, int32_t) {
    const float* x = args.x.row<float>(t);
    float* out = args.out.row<float>(t);
    for (int64_t first = 0; first < args.x.cols; first += width) {
      s.rows.rms_norm(x + first, args.weight->vector, args.eps, width, out + first);
    }
  });
}

void add_bias(void* state, const AddBiasArgs& args) {
  check_args(args);
  CpuState& s = state_of(state);
  const int64_t choices = args.ids == nullptr ? 1 : args.ids->cols;
  const int64_t rows = num_rows(*args.batch, Rows::kTokens) * choices;
  s.for_each(rows, rows * args.out.cols / 4, [&](int64_t r, int32_t) {
    const int64_t expert =
        args.ids == nullptr ? 0 : args.ids->row<int32_t>(r / choices)[r % choices];
    s.rows.add(args.bias->vector + expert * args.out.cols, args.out.cols, args.out.row<float>(r));
  });
}

void add_scaled(void* state, const AddScaledArgs& args) {
  check_args(args);
  CpuState& s = state_of(state);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  s.for_each(rows, rows * args.out.cols / 4, [&](int64_t t, int32_t) {
    float scale = args.scale;
    if (args.gate != nullptr) {
      const double gate = *args.gate->row<float>(t);
      scale *= static_cast<float>(1.0 / (1.0 + std::exp(-gate)));
    }
    s.rows.add_scaled(args.x.row<float>(t), scale, args.out.cols, args.out.row<float>(t));
  });
}

void soft_cap(void* state, const SoftCapArgs& args) {
  check_args(args);
  CpuState& s = state_of(state);
  const int32_t rows = num_rows(*args.batch, args.rows);
  // A row of logits is as wide as the vocabulary and a decode step has few rows, so split the rows.
  constexpr int64_t kPart = 4096;
  const int64_t parts = (args.x.cols + kPart - 1) / kPart;
  s.for_each(rows * parts, rows * args.x.cols * 2, [&](int64_t i, int32_t) {
    const int64_t first = i % parts * kPart;
    s.rows.soft_cap(args.x.row<float>(i / parts) + first, std::min(kPart, args.x.cols - first),
                    args.scale, args.soft_cap);
  });
}

void rope_table(void* state, const RopeTableArgs& args) {
  check_args(args);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  const int64_t pairs = args.inv_freq->cols;
  state_of(state).for_each(rows, rows * pairs * 100, [&](int64_t t, int32_t) {
    float* out = args.cos_sin.row<float>(t);
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = double{args.inv_freq->vector[i]} * args.batch->positions[t];
      out[2 * i] = static_cast<float>(std::cos(angle) * args.magnitude);
      out[2 * i + 1] = static_cast<float>(std::sin(angle) * args.magnitude);
    }
  });
}

void rope(void* state, const RopeArgs& args) {
  check_args(args);
  CpuState& s = state_of(state);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  const auto rotate =
      args.pairs == RopePairs::kNeighbours ? s.rows.rope_neighbours : s.rows.rope_halves;
  s.for_each(rows, rows * args.x.cols / 2, [&](int64_t t, int32_t) {
    for (int32_t h = 0; h < args.num_heads; ++h) {
      rotate(args.x.row<float>(t) + int64_t{h} * args.head_dim + args.first,
             args.cos_sin.row<float>(t), args.cos_sin.cols / 2);
    }
  });
}

void times_rms(void* state, const TimesRmsArgs& args) {
  check_args(args);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  state_of(state).for_each(rows, rows * (args.like.cols + args.x.cols) * 4,
                           [&](int64_t t, int32_t) {
                             reference::times_rms_row(args.like.row<float>(t), args.like.cols,
                                                      args.eps, args.x.cols, args.x.row<float>(t));
                           });
}

void keep_peaks(void* state, const KeepPeaksArgs& args) {
  check_args(args);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  state_of(state).for_each(rows, rows * args.x.cols * 10, [&](int64_t t, int32_t) {
    reference::keep_peaks_row(args.deviations, args.x.cols, args.x.row<float>(t));
  });
}

namespace {

auto gate_of(const RowKernels& rows, Activation activation) {
  switch (activation) {
    case Activation::kSilu: return rows.silu_gate;
    case Activation::kGeluTanh: return rows.gelu_gate;
    case Activation::kClampedSwish: return rows.clamped_swish_gate;
  }
  return rows.silu_gate;
}

}  // namespace

void gated_activation(void* state, const GatedActivationArgs& args) {
  check_args(args);
  CpuState& s = state_of(state);
  const int64_t rows = int64_t{num_rows(*args.batch, Rows::kTokens)} * args.rows_per_token;
  const auto gate = gate_of(s.rows, args.activation);
  s.for_each(rows, rows * args.out.cols * 2, [&](int64_t t, int32_t) {
    const float* in = args.gate_up.row<float>(t);
    gate(in, in + args.out.cols, args.out.cols, args.out.row<float>(t));
  });
}

}  // namespace hearth::kernels::cpu
