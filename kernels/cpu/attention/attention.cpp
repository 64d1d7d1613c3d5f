#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/cpu/op_table.h"
#include "kernels/ops/attention_rounding.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/encoder_kernels.h"
#include "kernels/ops/kv_layout.h"
#include "kernels/ops/kv_rotation.h"

namespace hearth::kernels::cpu {
namespace {

/// Rows computed together: query heads that share `kv_head`, of consecutive tokens of a sequence.
struct HeadRows {
  int32_t seq;
  int32_t kv_head;
  int32_t first_token;
  int32_t first_row;  ///< row i of the set is head (first_row + i) % group of token
  int32_t num_rows;   ///<   first_token + (first_row + i) / group
  int32_t first_split;
  int32_t num_splits;
  int64_t first_partial;  ///< index of its first partial if splits are computed separately
};

struct Attention {
  const AttentionArgs& args;
  const GroupIndex& index;
  const AttentionKernels& kernels;
  const QueryBlock* codes;  ///< (tokens, num_heads, kv_scales(k_dim)); null: of f32
  int32_t heads_per_kv_head;
  bool to_all;  ///< a query also attends to later positions

  int32_t token_of(const HeadRows& set, int32_t row) const {
    return set.first_token + (set.first_row + row) / heads_per_kv_head;
  }
  int32_t head_of(const HeadRows& set, int32_t row) const {
    return set.kv_head * heads_per_kv_head + (set.first_row + row) % heads_per_kv_head;
  }
  SeenPositions seen_by(int32_t token) const { return seen_positions(args, token, to_all); }
};

/// Partial results of one split: m and l from the kernel, and o of its rows.
struct Partial {
  AttentionPartial* ml;
  float* o;  ///< (rows, padded v_dim)
};

/// An array of partials, each with room for the rows of the largest set.
struct Partials {
  std::byte* memory;
  size_t bytes_each;

  static size_t bytes_for(int32_t rows, int32_t v_dim) {
    static_assert(sizeof(AttentionPartial) % 64 == 0);
    return sizeof(AttentionPartial) +
           sizeof(float) * static_cast<size_t>(rows) * static_cast<size_t>(padded_dims(v_dim));
  }
  Partial at(int64_t index) const {
    std::byte* one = memory + index * bytes_each;
    return {reinterpret_cast<AttentionPartial*>(one),
            reinterpret_cast<float*>(one + sizeof(AttentionPartial))};
  }
};

size_t scratch_bytes(const KvShape& shape) {
  return static_cast<size_t>(attention_scratch_floats(shape.k_dim, shape.v_dim)) * sizeof(float);
}

std::vector<HeadRows> row_sets(const Attention& a) {
  const BatchIndex& batch = *a.args.batch;
  const int32_t tokens = num_rows(batch, Rows::kTokens);
  std::vector<HeadRows> sets;
  for (int32_t begin = 0; begin < tokens;) {
    const int32_t seq = batch.seq_idx[begin];
    int32_t end = begin;
    while (end < tokens && batch.seq_idx[end] == seq) ++end;
    for (int32_t kv_head = 0; kv_head < a.args.kv.shape.num_kv_heads; ++kv_head) {
      const int32_t rows = (end - begin) * a.heads_per_kv_head;
      for (int32_t row = 0; row < rows; row += kMaxAttentionRows) {
        HeadRows set{};
        set.seq = seq;
        set.kv_head = kv_head;
        set.first_token = begin + row / a.heads_per_kv_head;
        set.first_row = row % a.heads_per_kv_head;
        set.num_rows = std::min(kMaxAttentionRows, rows - row);
        SeenPositions all = a.seen_by(set.first_token);
        const int32_t last_token = a.token_of(set, set.num_rows - 1);
        for (int32_t token = set.first_token + 1; token <= last_token; ++token) {
          const SeenPositions seen = a.seen_by(token);
          all.first = std::min(all.first, seen.first);
          all.last = std::max(all.last, seen.last);
        }
        set.first_split = all.first / kAttentionSplit;
        set.num_splits = all.last / kAttentionSplit - set.first_split + 1;
        sets.push_back(set);
      }
    }
    begin = end;
  }
  return sets;
}

/// `ahead` is the last split of the set that the same thread will compute.
void compute_split(const Attention& a, const HeadRows& set, int32_t split, int32_t ahead,
                   float* scratch, const Partial& out) {
  const PagedKv& kv = a.args.kv;
  const KvShape& shape = kv.shape;
  const int64_t k_bytes = kv_head_bytes(kv.types.k, kv.block_size, shape.k_dim);
  const int64_t v_bytes = kv_head_bytes(kv.types.v, kv.block_size, shape.v_dim);
  const auto* layer = reinterpret_cast<const char*>(kv.base) + kv.layer_offset;
  AttentionSplit task{};
  task.num_rows = set.num_rows;
  for (int32_t r = 0; r < set.num_rows; ++r) {
    const int32_t token = a.token_of(set, r);
    const int64_t head = a.head_of(set, r);
    task.q[r] = a.args.q.row<float>(token) + head * shape.k_dim;
    if (a.codes != nullptr) {
      task.codes[r] = a.codes + (token * a.args.num_heads + head) * kv_scales(shape.k_dim);
    }
    const SeenPositions seen = a.seen_by(token);
    task.first[r] = seen.first;
    task.last[r] = seen.last;
    task.last_ahead = std::max(task.last_ahead, task.last[r]);
  }
  task.last_ahead = std::min(task.last_ahead, (ahead + 1) * kAttentionSplit - 1);
  task.begin = split * kAttentionSplit;
  task.end = task.begin + kAttentionSplit;
  task.blocks = a.index.block_table + int64_t{set.seq} * a.index.max_blocks;
  task.k = layer + set.kv_head * k_bytes;
  task.v = shape.v_in_k ? nullptr : layer + shape.num_kv_heads * k_bytes + set.kv_head * v_bytes;
  task.k_type = kv.types.k;
  task.v_type = kv.types.v;
  task.block_bytes = kv.block_bytes;
  task.block_size = kv.block_size;
  task.k_dim = shape.k_dim;
  task.v_dim = shape.v_dim;
  task.scale = a.args.scale;
  task.soft_cap = a.args.soft_cap;
  task.scratch = scratch;
  a.kernels.attend(task, out.ml, out.o);
}

/// Merges the next split, in ascending order, into the set's result so far.
void merge(const Attention& a, const HeadRows& set, const Partial& total, const Partial& next) {
  const int32_t v_dim = a.args.kv.shape.v_dim;
  const int64_t padded = padded_dims(v_dim);
  for (int32_t r = 0; r < set.num_rows; ++r) {
    a.kernels.merge(&total.ml->m[r], &total.ml->l[r], total.o + r * padded, next.ml->m[r],
                    next.ml->l[r], next.o + r * padded, v_dim);
  }
}

void finish(const Attention& a, const HeadRows& set, const Partial& total) {
  const int32_t v_dim = a.args.kv.shape.v_dim;
  for (int32_t r = 0; r < set.num_rows; ++r) {
    const int32_t head = a.head_of(set, r);
    const float* sink = a.args.sinks != nullptr ? a.args.sinks->vector + head : nullptr;
    a.kernels.finish(total.ml->m[r], total.ml->l[r], total.o + r * padded_dims(v_dim), sink, v_dim,
                     a.args.out.row<float>(a.token_of(set, r)) + int64_t{head} * v_dim);
  }
}

/// Computes each set on one thread, split after split.
void run_sets(CpuState& state, const Attention& a, const std::vector<HeadRows>& sets, int32_t rows,
              int64_t work) {
  const KvShape& shape = a.args.kv.shape;
  const size_t each = Partials::bytes_for(rows, shape.v_dim);
  state.for_each(static_cast<int64_t>(sets.size()), work, [&](int64_t item, int32_t thread) {
    const HeadRows& set = sets[item];
    std::byte* memory = state.thread_scratch[thread].at_least(2 * each + scratch_bytes(shape));
    const Partials partials{memory, each};
    auto* floats = reinterpret_cast<float*>(memory + 2 * each);
    for (int32_t s = 0; s < set.num_splits; ++s) {
      compute_split(a, set, set.first_split + s, set.first_split + set.num_splits - 1, floats,
                    partials.at(s == 0 ? 0 : 1));
      if (s > 0) merge(a, set, partials.at(0), partials.at(1));
    }
    finish(a, set, partials.at(0));
  });
}

/// For few sets over long contexts (decode): an item is a few consecutive splits of a set; each
/// split has its own partial result, and these are merged afterwards.
void run_splits(CpuState& state, const Attention& a, std::vector<HeadRows>& sets, int32_t rows,
                int64_t num_splits, int64_t work) {
  struct Item {
    int32_t set;
    int32_t first;  ///< among the set's splits
    int32_t last;
  };
  // Consecutive splits, so that one split prefetches the memory of the next; small items, so that a
  // slow core does not keep the others waiting for its last item.
  constexpr int32_t kItemsPerThread = 8;
  const auto each_item = static_cast<int32_t>(
      std::clamp<int64_t>(num_splits / (kItemsPerThread * state.pool.active()), 1, 8));
  std::vector<Item> items;
  int64_t num_partials = 0;
  for (size_t i = 0; i < sets.size(); ++i) {
    sets[i].first_partial = num_partials;
    num_partials += sets[i].num_splits;
    for (int32_t s = 0; s < sets[i].num_splits; s += each_item) {
      items.push_back({narrow<int32_t>(i), s, std::min(s + each_item, sets[i].num_splits) - 1});
    }
  }
  const KvShape& shape = a.args.kv.shape;
  const size_t each = Partials::bytes_for(rows, shape.v_dim);
  const Partials partials{state.partials.at_least(static_cast<size_t>(num_partials) * each), each};
  state.for_each(static_cast<int64_t>(items.size()), work, [&](int64_t index, int32_t thread) {
    const Item& item = items[index];
    const HeadRows& set = sets[item.set];
    std::byte* memory = state.thread_scratch[thread].at_least(scratch_bytes(shape));
    for (int32_t s = item.first; s <= item.last; ++s) {
      compute_split(a, set, set.first_split + s, set.first_split + item.last,
                    reinterpret_cast<float*>(memory), partials.at(set.first_partial + s));
    }
  });
  for (const HeadRows& set : sets) {
    const Partial total = partials.at(set.first_partial);
    for (int32_t s = 1; s < set.num_splits; ++s) {
      merge(a, set, total, partials.at(set.first_partial + s));
    }
    finish(a, set, total);
  }
}

/// The queries as codes, for K whose products are of integers; else null. All K that is rotated is
/// of such a type.
const QueryBlock* query_codes(CpuState& state, const AttentionArgs& args) {
  if (!kv_integers(args.kv.types.k)) return nullptr;
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  const int32_t k_dim = args.kv.shape.k_dim;
  const int64_t each = kv_scales(k_dim);
  const bool rotated = kv_rotated(args.kv.types.k, args.kv.shape.v_in_k);
  auto* codes = reinterpret_cast<QueryBlock*>(
      state.query_codes.at_least(sizeof(QueryBlock) * rows * args.num_heads * each));
  state.for_each(rows, rows * args.q.cols, [&](int64_t row, int32_t) {
    for (int64_t head = 0; head < args.num_heads; ++head) {
      state.attention.quantize(args.q.row<float>(row) + head * k_dim, k_dim, rotated, args.scale,
                               codes + (row * args.num_heads + head) * each);
    }
  });
  return codes;
}

void attend(void* state_pointer, const AttentionArgs& args, bool to_all) {
  check_args(args);
  auto& state = *static_cast<CpuState*>(state_pointer);
  const Attention a{args,
                    args.batch->groups[args.group],
                    state.attention,
                    query_codes(state, args),
                    args.num_heads / args.kv.shape.num_kv_heads,
                    to_all};
  std::vector<HeadRows> sets = row_sets(a);
  int64_t splits = 0;
  int64_t work = 0;
  int32_t most_rows = 0;
  for (const HeadRows& set : sets) {
    splits += set.num_splits;
    most_rows = std::max(most_rows, set.num_rows);
    const int32_t last_token = a.token_of(set, set.num_rows - 1);
    const SeenPositions seen = a.seen_by(last_token);
    // Few rows reach a third of the rate of 16 products a cycle.
    work += int64_t{set.num_rows} * (seen.last - seen.first + 1) * args.kv.shape.k_dim * 3 / 8;
  }
  const int64_t num_sets = sets.size();
  const bool few = num_sets < 8 * state.pool.active();
  if (few && splits > num_sets) {
    run_splits(state, a, sets, most_rows, splits, work);
  } else {
    run_sets(state, a, sets, most_rows, work);
  }
}

}  // namespace

void attention(void* state, const AttentionArgs& args) { attend(state, args, false); }

void attention_to_all(void* state, const AttentionArgs& args) {
  HEARTH_CHECK(args.window == 0, "window {}", args.window);
  attend(state, args, true);
}

}  // namespace hearth::kernels::cpu
