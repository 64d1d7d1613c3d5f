#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/kv_layout.h"
#include "kernels/op_checks.h"
#include "kernels/ops_cpu.h"

namespace hearth::kernels::cpu {
namespace {

/// Rows computed together: query heads that share `kv_head`, of neighbouring tokens of a sequence.
struct RowSet {
  int32_t seq;
  int32_t kv_head;
  int32_t first_token;
  int32_t first_row;  ///< row i of the set is head (first_row + i) % group of token
  int32_t num_rows;   ///<   first_token + (first_row + i) / group
  int32_t first_split;
  int32_t num_splits;
  int64_t first_partial;  ///< index of its first partial where splits run apart
};

struct Attention {
  const AttentionArgs& args;
  const GroupIndex& index;
  const AttentionKernels& kernels;
  int32_t heads_per_kv_head;

  int32_t token_of(const RowSet& set, int32_t row) const {
    return set.first_token + (set.first_row + row) / heads_per_kv_head;
  }
  int32_t head_of(const RowSet& set, int32_t row) const {
    return set.kv_head * heads_per_kv_head + (set.first_row + row) % heads_per_kv_head;
  }
  int32_t last_of(int32_t token) const { return args.batch->positions[token]; }
  int32_t first_of(int32_t token) const {
    return args.window > 0 ? std::max(0, last_of(token) - args.window + 1) : 0;
  }
};

/// Partials of one split: the kernel's, and o of its rows.
struct Partial {
  AttentionPartial* ml;
  float* o;  ///< (kMaxAttentionRows, head_dim)
};

size_t partial_bytes(int32_t head_dim) {
  const size_t o = sizeof(float) * kMaxAttentionRows * static_cast<size_t>(head_dim);
  return (sizeof(AttentionPartial) + o + 63) / 64 * 64;
}

Partial partial_at(std::byte* memory, int64_t index, int32_t head_dim) {
  std::byte* at = memory + static_cast<size_t>(index) * partial_bytes(head_dim);
  return {reinterpret_cast<AttentionPartial*>(at),
          reinterpret_cast<float*>(at + sizeof(AttentionPartial))};
}

std::vector<RowSet> row_sets(const Attention& a) {
  const BatchIndex& batch = *a.args.batch;
  const int32_t tokens = num_rows(batch, Rows::kTokens);
  std::vector<RowSet> sets;
  for (int32_t begin = 0; begin < tokens;) {
    const int32_t seq = batch.seq_idx[begin];
    int32_t end = begin;
    while (end < tokens && batch.seq_idx[end] == seq) ++end;
    for (int32_t kv_head = 0; kv_head < a.args.kv.num_kv_heads; ++kv_head) {
      const int32_t rows = (end - begin) * a.heads_per_kv_head;
      for (int32_t row = 0; row < rows; row += a.kernels.max_rows) {
        RowSet set{};
        set.seq = seq;
        set.kv_head = kv_head;
        set.first_token = begin + row / a.heads_per_kv_head;
        set.first_row = row % a.heads_per_kv_head;
        set.num_rows = std::min(a.kernels.max_rows, rows - row);
        int32_t first = a.first_of(set.first_token);
        int32_t last = a.last_of(set.first_token);
        for (int32_t r = 1; r < set.num_rows; ++r) {
          first = std::min(first, a.first_of(a.token_of(set, r)));
          last = std::max(last, a.last_of(a.token_of(set, r)));
        }
        set.first_split = first / kAttentionSplit;
        set.num_splits = last / kAttentionSplit - set.first_split + 1;
        sets.push_back(set);
      }
    }
    begin = end;
  }
  return sets;
}

void compute_split(const Attention& a, const RowSet& set, int32_t split, float* scratch,
                   const Partial& out) {
  const PagedKv& kv = a.args.kv;
  const KvLayout layout{kv.block_size, kv.num_kv_heads, kv.head_dim};
  const auto value_bytes = static_cast<int64_t>(bytes_of(kv.dtype, 1));
  const auto* layer = reinterpret_cast<const char*>(kv.base) + kv.layer_offset;
  AttentionSplit task{};
  task.num_rows = set.num_rows;
  for (int32_t r = 0; r < set.num_rows; ++r) {
    const int32_t token = a.token_of(set, r);
    task.q[r] = a.args.q.row<float>(token) + int64_t{a.head_of(set, r)} * kv.head_dim;
    task.first[r] = a.first_of(token);
    task.last[r] = a.last_of(token);
  }
  task.begin = split * kAttentionSplit;
  task.end = task.begin + kAttentionSplit;
  task.blocks = a.index.block_table + int64_t{set.seq} * a.index.max_blocks;
  task.k = layer + layout.k(set.kv_head, 0, 0) * value_bytes;
  task.v = layer + layout.v(set.kv_head, 0, 0) * value_bytes;
  task.block_bytes = kv.block_bytes;
  task.block_size = kv.block_size;
  task.head_dim = kv.head_dim;
  task.scale = a.args.scale;
  task.soft_cap = a.args.soft_cap;
  task.scratch = scratch;
  const auto kernel = kv.dtype == DType::kF32   ? a.kernels.f32
                      : kv.dtype == DType::kF16 ? a.kernels.f16
                                                : a.kernels.bf16;
  kernel(task, out.ml, out.o, kv.head_dim);
}

/// Adds the next split, in ascending order, to what the set has so far.
void merge(const Attention& a, const RowSet& set, const Partial& total, const Partial& next) {
  const int32_t head_dim = a.args.kv.head_dim;
  for (int32_t r = 0; r < set.num_rows; ++r) {
    a.kernels.merge(&total.ml->m[r], &total.ml->l[r], total.o + r * head_dim, next.ml->m[r],
                    next.ml->l[r], next.o + r * head_dim, head_dim);
  }
}

void finish(const Attention& a, const RowSet& set, const Partial& total) {
  const int32_t head_dim = a.args.kv.head_dim;
  for (int32_t r = 0; r < set.num_rows; ++r) {
    const int32_t head = a.head_of(set, r);
    const float* sink = a.args.sinks != nullptr ? a.args.sinks->vector + head : nullptr;
    a.kernels.finish(total.ml->m[r], total.ml->l[r], total.o + r * head_dim, sink, head_dim,
                     a.args.out.row<float>(a.token_of(set, r)) + int64_t{head} * head_dim);
  }
}

/// Every set on one thread, split after split.
void run_sets(CpuState& state, const Attention& a, const std::vector<RowSet>& sets, int64_t work) {
  const int32_t head_dim = a.args.kv.head_dim;
  const size_t partials = 2 * partial_bytes(head_dim);
  const size_t scratch = static_cast<size_t>(attention_scratch_floats(head_dim)) * sizeof(float);
  state.for_each(static_cast<int64_t>(sets.size()), work, [&](int64_t item, int32_t thread) {
    const RowSet& set = sets[static_cast<size_t>(item)];
    std::byte* memory =
        state.thread_scratch[static_cast<size_t>(thread)].at_least(partials + scratch);
    auto* floats = reinterpret_cast<float*>(memory + partials);
    const Partial total = partial_at(memory, 0, head_dim);
    const Partial next = partial_at(memory, 1, head_dim);
    for (int32_t s = 0; s < set.num_splits; ++s) {
      compute_split(a, set, set.first_split + s, floats, s == 0 ? total : next);
      if (s > 0) merge(a, set, total, next);
    }
    finish(a, set, total);
  });
}

/// Few sets over long contexts (decode): every split is an item of its own, merged afterwards.
void run_splits(CpuState& state, const Attention& a, std::vector<RowSet>& sets, int64_t work) {
  const int32_t head_dim = a.args.kv.head_dim;
  std::vector<std::pair<int32_t, int32_t>> items;  // set, split
  for (size_t i = 0; i < sets.size(); ++i) {
    sets[i].first_partial = static_cast<int64_t>(items.size());
    for (int32_t s = 0; s < sets[i].num_splits; ++s) items.emplace_back(static_cast<int32_t>(i), s);
  }
  std::byte* partials = state.partials.at_least(items.size() * partial_bytes(head_dim));
  const size_t scratch = static_cast<size_t>(attention_scratch_floats(head_dim)) * sizeof(float);
  state.for_each(static_cast<int64_t>(items.size()), work, [&](int64_t item, int32_t thread) {
    const auto [set_index, split] = items[static_cast<size_t>(item)];
    const RowSet& set = sets[static_cast<size_t>(set_index)];
    std::byte* memory = state.thread_scratch[static_cast<size_t>(thread)].at_least(scratch);
    compute_split(a, set, set.first_split + split, reinterpret_cast<float*>(memory),
                  partial_at(partials, item, head_dim));
  });
  for (const RowSet& set : sets) {
    const Partial total = partial_at(partials, set.first_partial, head_dim);
    for (int32_t s = 1; s < set.num_splits; ++s) {
      merge(a, set, total, partial_at(partials, set.first_partial + s, head_dim));
    }
    finish(a, set, total);
  }
}

}  // namespace

void attention(void* state_pointer, const AttentionArgs& args) {
  check_args(args);
  auto& state = *static_cast<CpuState*>(state_pointer);
  const Attention a{args, args.batch->groups[static_cast<size_t>(args.group)], state.attention,
                    args.num_heads / args.kv.num_kv_heads};
  std::vector<RowSet> sets = row_sets(a);
  int64_t splits = 0;
  int64_t work = 0;
  for (const RowSet& set : sets) {
    splits += set.num_splits;
    const int32_t last_token = a.token_of(set, set.num_rows - 1);
    work += int64_t{set.num_rows} * (a.last_of(last_token) - a.first_of(last_token) + 1) *
            args.kv.head_dim / 8;
  }
  const auto num_sets = static_cast<int64_t>(sets.size());
  const bool few = num_sets < 4 * state.pool.active();
  if (few && splits > num_sets) {
    run_splits(state, a, sets, work);
  } else {
    run_sets(state, a, sets, work);
  }
}

}  // namespace hearth::kernels::cpu
