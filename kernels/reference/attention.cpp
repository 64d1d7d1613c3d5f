#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/encoder_kernels.h"
#include "kernels/ops/half.h"
#include "kernels/ops/kv_layout.h"
#include "kernels/ops/kv_rotation.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {
namespace {

double load(const std::byte* head, KvType type, int64_t index) {
  switch (type) {
    case KvType::kF32: return reinterpret_cast<const float*>(head)[index];
    case KvType::kF16: return f32_from_f16(reinterpret_cast<const uint16_t*>(head)[index]);
    case KvType::kBF16: return f32_from_bf16(reinterpret_cast<const uint16_t*>(head)[index]);
    case KvType::kQ8_0: return static_cast<int8_t>(head[index]);
    case KvType::kFp8: return f32_from_e4m3(std::to_integer<uint8_t>(head[index]));
    case KvType::kQ4_0: break;  // two values a byte: load_pair
  }
  HEARTH_CHECK(false, "KV type {}", kv_type_name(type));
  return 0;
}

double load_pair(std::byte pair, bool upper) {
  return std::to_integer<int32_t>(upper ? pair >> 4 : pair & std::byte{15}) - 8;
}

/// Rounded K and V of one kv head, as stored.
struct StoredHead {
  const PagedKv& kv;
  int32_t kv_head;
  KvIndex at_k{kv.block_size, kv.shape.k_dim};
  KvIndex at_v{kv.block_size, kv.shape.v_dim};
  int64_t k_bytes = kv_head_bytes(kv.types.k, kv.block_size, kv.shape.k_dim);
  int64_t v_bytes = kv_head_bytes(kv.types.v, kv.block_size, kv.shape.v_dim);

  /// `layer`: the block's K and V of all heads.
  double k(const std::byte* layer, int32_t dim, int32_t offset) const {
    const std::byte* head = layer + kv_head * k_bytes;
    const KvType type = kv.types.k;
    const double value = type == KvType::kQ4_0
                             ? load_pair(head[at_k.k_pair(dim, offset)], KvIndex::k_in_upper(dim))
                             : load(head, type, at_k.k(dim, offset));
    return value * scale(head, type, at_k, at_k.k_scale(dim, offset));
  }
  double v(const std::byte* layer, int32_t dim, int32_t offset) const {
    if (kv.shape.v_in_k) return k(layer, dim, offset);
    const std::byte* head = layer + kv.shape.num_kv_heads * k_bytes + kv_head * v_bytes;
    const KvType type = kv.types.v;
    const double value = type == KvType::kQ4_0
                             ? load_pair(head[at_v.v_pair(dim, offset)], KvIndex::v_in_upper(dim))
                             : load(head, type, at_v.v(dim, offset));
    return value * scale(head, type, at_v, at_v.v_scale(dim, offset));
  }
  static double scale(const std::byte* head, KvType type, const KvIndex& at, int64_t index) {
    if (!kv_scaled(type)) return 1;
    return load(head + at.block_size * kv_value_bytes(type, at.dims), KvType::kF16, index);
  }
};

/// One head of one query token over the positions that it sees.
void attend(const AttentionArgs& args, const int32_t* blocks, int32_t head,
            const SeenPositions& seen, const float* q, float* out) {
  const PagedKv& kv = args.kv;
  const StoredHead stored{kv, head / (args.num_heads / kv.shape.num_kv_heads)};
  const auto layer_of = [&](int32_t position) {
    return kv.base + blocks[position / kv.block_size] * kv.block_bytes + kv.layer_offset;
  };

  std::vector<double> scores;
  double largest = args.sinks != nullptr ? double{args.sinks->vector[head]}
                                         : -std::numeric_limits<double>::infinity();
  for (int32_t p = seen.first; p <= seen.last; ++p) {
    double dot = 0;
    for (int32_t d = 0; d < kv.shape.k_dim; ++d) {
      dot += q[d] * stored.k(layer_of(p), d, p % kv.block_size);
    }
    double score = dot * args.scale;
    if (args.soft_cap > 0) score = args.soft_cap * std::tanh(score / args.soft_cap);
    scores.push_back(score);
    largest = std::max(largest, score);
  }

  double sum = args.sinks != nullptr ? std::exp(args.sinks->vector[head] - largest) : 0.0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (int32_t d = 0; d < kv.shape.v_dim; ++d) {
    double value = 0;
    for (int32_t p = seen.first; p <= seen.last; ++p) {
      value += scores[p - seen.first] * stored.v(layer_of(p), d, p % kv.block_size);
    }
    out[d] = static_cast<float>(value / sum);
  }
}

/// `to_all`: a query also attends to later positions.
void attend_rows(const AttentionArgs& args, bool to_all) {
  check_args(args);
  const BatchIndex& batch = *args.batch;
  const GroupIndex& group = batch.groups[args.group];
  std::vector<float> rotated(static_cast<size_t>(args.kv.shape.k_dim));
  for (int32_t t = 0; t < num_rows(batch, Rows::kTokens); ++t) {
    const SeenPositions seen = seen_positions(args, t, to_all);
    const int32_t* blocks = group.block_table + int64_t{batch.seq_idx[t]} * group.max_blocks;
    for (int32_t head = 0; head < args.num_heads; ++head) {
      const KvShape& shape = args.kv.shape;
      const float* q = args.q.row<float>(t) + int64_t{head} * shape.k_dim;
      if (kv_rotated(args.kv.types.k, shape.v_in_k)) {
        rotate_head(q, shape.k_dim, kRotatedQuery, rotated.data());
        q = rotated.data();
      }
      attend(args, blocks, head, seen, q, args.out.row<float>(t) + int64_t{head} * shape.v_dim);
    }
  }
}

}  // namespace

void attention(void*, const AttentionArgs& args) { attend_rows(args, false); }

void attention_to_all(void*, const AttentionArgs& args) {
  HEARTH_CHECK(args.window == 0, "window {}", args.window);
  attend_rows(args, true);
}

}  // namespace hearth::kernels::reference
