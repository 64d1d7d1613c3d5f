#include <algorithm>
#include <vector>

#include "kernels/ops/checks.h"
#include "kernels/ops/recurrent_kernels.h"

namespace hearth::kernels::reference {
namespace {

/// The state of one sequence: read where the step asks, changed by its rows, written where it
/// asks. States are f32 between steps; within a step they are computed in double, and rounded after
/// each row, so that a row's value does not depend on the step it is in.
class WalkedState {
 public:
  WalkedState(const StatePart& part, const StateStep& step, int64_t values)
      : part_(part), step_(step), values_(values, 0.0f) {
    if (step.from >= 0) std::copy_n(part.of(step.from), values, values_.begin());
  }
  float* data() { return values_.data(); }
  void save() const { std::ranges::copy(values_, part_.of(step_.saved)); }
  void advanced() const { std::ranges::copy(values_, part_.of(step_.to)); }

 private:
  const StatePart& part_;
  const StateStep& step_;
  std::vector<float> values_;
};

float conv_input(const ShortConvArgs& args, int64_t row, int64_t channel) {
  const float x = args.x.row<float>(row)[channel];
  return args.in_gate == nullptr ? x : x * args.in_gate->row<float>(row)[channel];
}

void conv_row(const ShortConvArgs& args, float* past, const std::vector<float>& z, float* out,
              const float* out_gate) {
  const int64_t channels = args.x.cols;
  for (int64_t o = 0; out != nullptr && o < args.num_outs * channels; ++o) {
    const int64_t c = o % channels;
    const float* weight = args.weight->vector + o / channels * args.taps * channels;
    double y = args.bias == nullptr ? 0.0 : double{args.bias->vector[c]};
    for (int32_t j = 0; j < args.taps; ++j) {
      const float input = j + 1 < args.taps ? past[j * channels + c] : z[c];
      y += double{weight[j * channels + c]} * double{input};
    }
    if (args.silu) y *= sigmoid(y);
    if (out_gate != nullptr) y *= out_gate[c];
    out[o] = rounded(y);
  }
  std::copy(past + channels, past + (args.taps - 1) * channels, past);
  std::ranges::copy(z, past + (args.taps - 2) * channels);
}

void short_conv(void*, const ShortConvArgs& args) {
  check_args(args);
  check_state_steps(*args.batch);
  const BatchIndex& batch = *args.batch;
  const int64_t channels = args.x.cols;
  std::vector<float> z(channels);
  for (int32_t seq = 0; seq < num_seqs(batch); ++seq) {
    const StateStep& step = batch.states[seq];
    WalkedState state(args.state, step, (args.taps - 1) * channels);
    const int32_t first_draft = batch.query_start[seq] + step.advance;
    walk_state_rows(
        batch, seq,
        [&](int32_t kept) {
          std::copy_n(args.kept.row<float>(kept), channels, z.begin());
          conv_row(args, state.data(), z, nullptr, nullptr);
        },
        [&](int32_t row) {
          for (int64_t c = 0; c < channels; ++c) z[c] = conv_input(args, row, c);
          if (row >= first_draft) {
            std::ranges::copy(z, args.kept.row<float>(step.keep_first + row - first_draft));
          }
          conv_row(args, state.data(), z, args.out.row<float>(row),
                   args.out_gate == nullptr ? nullptr : args.out_gate->row<float>(row));
        },
        [&] { state.save(); }, [&] { state.advanced(); });
  }
}

/// One row of one head; `q` and `out` null for a replayed row.
void scan_head(const HeadScanArgs& args, int32_t head, const HeadRow& row, const float* q,
               float* state, float* out) {
  const int32_t k_dim = args.k_dim, v_dim = args.v_dim;
  const float weight = head_weight(args, head, row.dt, row.beta);
  const int64_t key = int64_t{key_head(args, head)} * k_dim;
  const float* k = row.k + key;
  const float* v = row.v + int64_t{head} * v_dim;
  const double k_scale = key_scale(args, k, 1.0);
  std::vector<double> removed(int64_t{k_dim} * v_dim,
                              0.0);  // of the state, by the row's erased key
  for (int32_t c = 0; row.erased != nullptr && c < v_dim; ++c) {
    double sum = 0;
    for (int32_t i = 0; i < k_dim; ++i) sum += double{state[i * v_dim + c]} * row.erased[key + i];
    for (int32_t i = 0; i < k_dim; ++i) removed[i * v_dim + c] = row.removed[key + i] * sum;
  }
  for (int32_t i = 0; i < k_dim; ++i) {
    const float decay = head_decay(args, head, row.dt, i);
    for (int32_t c = 0; c < v_dim; ++c) state[i * v_dim + c] *= decay;
  }
  for (int32_t c = 0; c < v_dim; ++c) {
    double expected = 0;
    for (int32_t i = 0; i < k_dim; ++i) expected += state[i * v_dim + c] * (k[i] * k_scale);
    const double w = weight * (row.beta == nullptr ? v[c] : v[c] - expected);
    for (int32_t i = 0; i < k_dim; ++i) {
      float& value = state[i * v_dim + c];
      value = rounded(value - removed[i * v_dim + c] + k[i] * k_scale * w);
    }
    if (out == nullptr) continue;
    const double q_scale = key_scale(args, q + key, args.q_scale);
    double sum = args.skip == nullptr ? 0.0 : double{args.skip->vector[head]} * double{v[c]};
    for (int32_t i = 0; i < k_dim; ++i) sum += state[i * v_dim + c] * (q[key + i] * q_scale);
    out[int64_t{head} * v_dim + c] = rounded(sum);
  }
}

void head_scan(void*, const HeadScanArgs& args) {
  check_args(args);
  check_state_steps(*args.batch);
  const BatchIndex& batch = *args.batch;
  const int64_t values = int64_t{args.k_dim} * args.v_dim;
  for (int32_t seq = 0; seq < num_seqs(batch); ++seq) {
    const StateStep& step = batch.states[seq];
    WalkedState state(args.state, step, args.num_heads * values);
    const int32_t first_draft = batch.query_start[seq] + step.advance;
    const auto all_heads = [&](const HeadRow& row, const float* q, float* out) {
      for (int32_t h = 0; h < args.num_heads; ++h) {
        scan_head(args, h, row, q, state.data() + h * values, out);
      }
    };
    walk_state_rows(
        batch, seq, [&](int32_t kept) { all_heads(kept_head_row(args, kept), nullptr, nullptr); },
        [&](int32_t row) {
          all_heads(head_row(args, row), args.q.row<float>(row), args.out.row<float>(row));
          if (row >= first_draft) keep_head_row(args, row, step.keep_first + row - first_draft);
        },
        [&] { state.save(); }, [&] { state.advanced(); });
  }
}

void scan_channels(const ChannelScanArgs& args, const ChannelRow& row, const float* c_row,
                   float* state, float* out) {
  const int64_t channels = args.x.cols, d_state = args.b.cols;
  for (int64_t c = 0; c < channels; ++c) {
    const double d = softplus(double{row.dt[c]} + double{args.dt_bias->vector[c]});
    double sum = 0;
    for (int64_t n = 0; n < d_state; ++n) {
      float& value = state[n * channels + c];
      const double decay = std::exp(d * args.a->vector[n * channels + c]);
      value = rounded(decay * value + d * row.x[c] * row.b[n]);
      if (out != nullptr) sum += double{c_row[n]} * double{value};
    }
    if (out != nullptr) {
      out[c] = rounded(sum + double{args.skip->vector[c]} * double{row.x[c]});
    }
  }
}

void channel_scan(void*, const ChannelScanArgs& args) {
  check_args(args);
  check_state_steps(*args.batch);
  const BatchIndex& batch = *args.batch;
  for (int32_t seq = 0; seq < num_seqs(batch); ++seq) {
    const StateStep& step = batch.states[seq];
    WalkedState state(args.state, step, args.b.cols * args.x.cols);
    const int32_t first_draft = batch.query_start[seq] + step.advance;
    walk_state_rows(
        batch, seq,
        [&](int32_t kept) {
          scan_channels(args, kept_channel_row(args, kept), nullptr, state.data(), nullptr);
        },
        [&](int32_t row) {
          scan_channels(args, channel_row(args, row), args.c.row<float>(row), state.data(),
                        args.out.row<float>(row));
          if (row >= first_draft) keep_channel_row(args, row, step.keep_first + row - first_draft);
        },
        [&] { state.save(); }, [&] { state.advanced(); });
  }
}

}  // namespace

const RecurrentOps kRecurrentOps = {short_conv, head_scan, channel_scan, wkv_inputs, wkv_output};

}  // namespace hearth::kernels::reference
