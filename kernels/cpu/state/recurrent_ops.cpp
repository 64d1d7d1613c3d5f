#include "kernels/ops/recurrent_ops.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/numbers.h"
#include "kernels/cpu/op_table.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/recurrent_kernels.h"

namespace hearth::kernels::cpu {
namespace {

/// Channels of a convolution that one task computes.
constexpr int64_t kConvTile = 256;

/// Rows that a step's sequences compute, replayed ones included: a measure of work.
int64_t walked_rows(const BatchIndex& batch) {
  int64_t rows = batch.query_start[num_seqs(batch)];
  for (int32_t seq = 0; seq < num_seqs(batch); ++seq) rows += batch.states[seq].replay;
  return rows;
}

/// Calls keep(row, kept row) for every draft.
template <typename Keep>
void for_each_draft(const BatchIndex& batch, const Keep& keep) {
  for (int32_t seq = 0; seq < num_seqs(batch); ++seq) {
    const StateStep& step = batch.states[seq];
    const int32_t first = batch.query_start[seq] + step.advance;
    for (int32_t r = first; r < batch.query_start[seq + 1]; ++r) {
      keep(r, step.keep_first + r - first);
    }
  }
}

// ---- The convolution --------------------------------------------------------------------------

/// The last rows of some channels, as a ring.
class ConvRows {
 public:
  ConvRows(const ShortConvArgs& args, int64_t first, int64_t count)
      : args_(args), first_(first), count_(count) {}

  void read(int32_t block) {
    for (int32_t j = 0; j + 1 < args_.taps; ++j) {
      if (block < 0) {
        std::memset(row(j), 0, bytes());
      } else {
        std::memcpy(row(j), stored(block, j), bytes());
      }
    }
  }
  void write(int32_t block) {
    for (int32_t j = 0; j + 1 < args_.taps; ++j) std::memcpy(stored(block, j), row(j), bytes());
  }
  /// The row that is computed next.
  float* newest() { return row(args_.taps - 1); }
  void pointers(const float** rows) {
    for (int32_t j = 0; j < args_.taps; ++j) rows[j] = row(j);
  }
  void shift() { oldest_ = (oldest_ + 1) % args_.taps; }
  size_t bytes() const { return count_ * sizeof(float); }

 private:
  float* row(int32_t j) { return rows_[(oldest_ + j) % args_.taps]; }
  float* stored(int32_t block, int32_t j) const {
    return args_.state.of(block) + j * args_.x.cols + first_;
  }

  const ShortConvArgs& args_;
  const int64_t first_, count_;
  int32_t oldest_ = 0;
  float rows_[kMaxTaps][kConvTile];
};

void conv_channels(const StateKernels& kernels, const ShortConvArgs& args, int32_t seq,
                   int64_t first, int64_t count) {
  const BatchIndex& batch = *args.batch;
  const StateStep& step = batch.states[seq];
  const int32_t first_draft = batch.query_start[seq] + step.advance;
  const auto columns = [&](const TensorView& view, int64_t row) {
    return view.row<float>(row) + first;
  };
  ConvRows past(args, first, count);
  past.read(step.from);
  walk_state_rows(
      batch, seq,
      [&](int32_t kept) {
        std::memcpy(past.newest(), columns(args.kept, kept), past.bytes());
        past.shift();
      },
      [&](int32_t row) {
        if (args.in_gate == nullptr) {
          std::memcpy(past.newest(), columns(args.x, row), past.bytes());
        } else {
          kernels.product(columns(args.x, row), columns(*args.in_gate, row), count, past.newest());
        }
        if (row >= first_draft) {
          std::memcpy(columns(args.kept, step.keep_first + row - first_draft), past.newest(),
                      past.bytes());
        }
        const float* rows[kMaxTaps];
        past.pointers(rows);
        for (int64_t o = 0; o < args.num_outs; ++o) {
          kernels.conv(rows, args.weight->vector + o * args.taps * args.x.cols + first, args.x.cols,
                       args.taps, args.bias == nullptr ? nullptr : args.bias->vector + first,
                       args.silu, args.out_gate == nullptr ? nullptr : columns(*args.out_gate, row),
                       count, columns(args.out, row) + o * args.x.cols);
        }
        past.shift();
      },
      [&] { past.write(step.saved); }, [&] { past.write(step.to); });
}

void short_conv(void* state, const ShortConvArgs& args) {
  check_args(args);
  check_state_steps(*args.batch);
  CpuState& s = state_of(state);
  const int64_t channels = args.x.cols;
  const int64_t tiles = (channels + kConvTile - 1) / kConvTile;
  const int64_t work = walked_rows(*args.batch) * args.num_outs * channels / 2;
  s.for_each(num_seqs(*args.batch) * tiles, work, [&](int64_t item, int32_t) {
    const int64_t first = item % tiles * kConvTile;
    conv_channels(s.states, args, narrow<int32_t>(item / tiles), first,
                  std::min(kConvTile, channels - first));
  });
}

// ---- Scans ------------------------------------------------------------------------------------

/// Some columns of a state at one place: rows of `stride` values.
struct Columns {
  float* at;
  int64_t stride;
};

/// Some columns of one part of a state, which has `rows` rows of `stride` values.
struct StateColumns {
  const StatePart& part;
  int64_t offset;
  int64_t rows;
  int64_t stride;
  int64_t count;

  Columns of(int32_t block) const { return {part.of(block) + offset, stride}; }
  int64_t values() const { return rows * count; }
  void copy(const Columns& from, const Columns& to) const {
    for (int64_t r = 0; r < rows && from.at != to.at; ++r) {
      std::memcpy(to.at + r * to.stride, from.at + r * from.stride, count * sizeof(float));
    }
  }
  void clear(const Columns& to) const {
    for (int64_t r = 0; r < rows; ++r) std::memset(to.at + r * to.stride, 0, count * sizeof(float));
  }
};

/// From so many rows on, columns are copied to where they lie together: rows that are a power of
/// two apart share few sets of a cache.
constexpr int32_t kManyRows = 8;
bool has_many_rows(const BatchIndex& batch, int32_t seq) {
  const int32_t rows = batch.query_start[seq + 1] - batch.query_start[seq];
  return rows + batch.states[seq].replay >= kManyRows;
}

/// Takes the columns of a sequence's state through the step: changes them where they will stay or,
/// for many rows and for drafts, in `scratch` (rows * count values). Calls replay(columns, kept
/// row) and row(columns, row).
template <typename Replay, typename Row>
void walk_columns(const BatchIndex& batch, int32_t seq, const StateColumns& columns, float* scratch,
                  const Replay& replay, const Row& row) {
  const StateStep& step = batch.states[seq];
  const int32_t rows = batch.query_start[seq + 1] - batch.query_start[seq];
  const Columns to = columns.of(step.to), apart{scratch, columns.count};
  Columns s = has_many_rows(batch, seq) ? apart : to;
  if (step.from < 0) {
    columns.clear(s);
  } else {
    columns.copy(columns.of(step.from), s);
  }
  walk_state_rows(
      batch, seq, [&](int32_t kept) { replay(s, kept); }, [&](int32_t r) { row(s, r); },
      [&] { columns.copy(s, columns.of(step.saved)); },
      [&] {
        columns.copy(s, to);
        if (rows == step.advance || s.at == scratch) return;
        columns.copy(s, apart);
        s = apart;
      });
}

void scale_key(const HeadScanArgs& args, const float* key, double scale, float* out) {
  const auto factor = static_cast<float>(key_scale(args, key, scale));
  for (int32_t i = 0; i < args.k_dim; ++i) out[i] = key[i] * factor;
}

void head_scan(void* state, const HeadScanArgs& args) {
  check_args(args);
  check_state_steps(*args.batch);
  CpuState& s = state_of(state);
  const BatchIndex& batch = *args.batch;
  const int64_t v_dim = args.v_dim;
  const int64_t tiles = (v_dim + kStateTile - 1) / kStateTile;
  const int64_t items = args.num_heads * tiles;
  const int64_t work = walked_rows(batch) * args.num_heads * args.k_dim * v_dim / 4;
  s.for_each(num_seqs(batch) * items, work, [&](int64_t item, int32_t thread) {
    const auto seq = narrow<int32_t>(item / items);
    const auto head = narrow<int32_t>(item % items / tiles);
    const int64_t first = item % tiles * kStateTile;
    const StateColumns columns{args.state, head * args.k_dim * v_dim + first, args.k_dim, v_dim,
                               std::min(kStateTile, v_dim - first)};
    const int64_t key = int64_t{key_head(args, head)} * args.k_dim;
    const int64_t value = head * v_dim + first;
    const float skip = args.skip == nullptr ? 0.0f : args.skip->vector[head];
    const auto compute = [&](const Columns& at, const HeadRow& row, const float* q, float* out) {
      float* to = out == nullptr ? nullptr : out + value;
      if (row.erased != nullptr) {
        s.states.erase_row(at.at, at.stride, args.k_dim, columns.count, row.k + key,
                           q == nullptr ? nullptr : q + key, row.v + value, row.dt + key,
                           row.erased + key, row.removed + key, to);
        return;
      }
      float k_unit[kMaxKeyDim];
      float q_unit[kMaxKeyDim];
      scale_key(args, row.k + key, 1.0, k_unit);
      if (q != nullptr) scale_key(args, q + key, args.q_scale, q_unit);
      float decays[kMaxKeyDim];
      for (int32_t i = 0; i < (args.row_decays ? args.k_dim : 1); ++i) {
        decays[i] = head_decay(args, head, row.dt, i);
      }
      s.states.head_row(at.at, at.stride, args.k_dim, columns.count, k_unit,
                        q == nullptr ? nullptr : q_unit, row.v + value, decays, args.row_decays,
                        head_weight(args, head, row.dt, row.beta), row.beta != nullptr, skip, to);
    };
    auto* scratch = reinterpret_cast<float*>(
        s.thread_scratch[thread].at_least(columns.values() * sizeof(float)));
    walk_columns(
        batch, seq, columns, scratch,
        [&](const Columns& at, int32_t kept) {
          compute(at, kept_head_row(args, kept), nullptr, nullptr);
        },
        [&](const Columns& at, int32_t row) {
          compute(at, head_row(args, row), args.q.row<float>(row), args.out.row<float>(row));
        });
  });
  for_each_draft(batch, [&](int32_t row, int32_t kept) { keep_head_row(args, row, kept); });
}

void channel_scan(void* state, const ChannelScanArgs& args) {
  check_args(args);
  check_state_steps(*args.batch);
  CpuState& s = state_of(state);
  const BatchIndex& batch = *args.batch;
  const int64_t channels = args.x.cols, d_state = args.b.cols;
  const int64_t tiles = (channels + kStateTile - 1) / kStateTile;
  const int64_t work = walked_rows(batch) * channels * d_state;
  s.for_each(num_seqs(batch) * tiles, work, [&](int64_t item, int32_t thread) {
    const auto seq = narrow<int32_t>(item / tiles);
    const int64_t first = item % tiles * kStateTile;
    const StateColumns columns{args.state, first, d_state, channels,
                               std::min(kStateTile, channels - first)};
    auto* scratch = reinterpret_cast<float*>(
        s.thread_scratch[thread].at_least(2 * columns.values() * sizeof(float)));
    const float* rates = args.a->vector + first;
    int64_t rates_stride = channels;
    if (has_many_rows(batch, seq)) {
      float* near_by = scratch + columns.values();
      for (int64_t r = 0; r < d_state; ++r) {
        std::memcpy(near_by + r * columns.count, rates + r * channels,
                    columns.count * sizeof(float));
      }
      rates = near_by;
      rates_stride = columns.count;
    }
    const auto compute = [&](const Columns& at, const ChannelRow& row, const float* c, float* out) {
      float d[kStateTile];
      for (int64_t i = 0; i < columns.count; ++i) {
        d[i] = static_cast<float>(
            softplus(double{row.dt[first + i]} + double{args.dt_bias->vector[first + i]}));
      }
      s.states.channel_row(at.at, at.stride, d_state, columns.count, rates, rates_stride,
                           row.x + first, d, row.b, c, args.skip->vector + first,
                           out == nullptr ? nullptr : out + first);
    };
    walk_columns(
        batch, seq, columns, scratch,
        [&](const Columns& at, int32_t kept) {
          compute(at, kept_channel_row(args, kept), nullptr, nullptr);
        },
        [&](const Columns& at, int32_t row) {
          compute(at, channel_row(args, row), args.c.row<float>(row), args.out.row<float>(row));
        });
  });
  for_each_draft(batch, [&](int32_t row, int32_t kept) { keep_channel_row(args, row, kept); });
}

}  // namespace

const RecurrentOps kRecurrentOps = {short_conv, head_scan, channel_scan, wkv_inputs, wkv_output};

}  // namespace hearth::kernels::cpu
