#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/ops/attention_rounding.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/encoder_kernels.h"
#include "kernels/ops/half.h"
#include "kernels/ops/kv_layout.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {
namespace {

double load(const std::byte* head, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF32: return reinterpret_cast<const float*>(head)[index];
    case DType::kF16: return f32_from_f16(reinterpret_cast<const uint16_t*>(head)[index]);
    case DType::kBF16: return f32_from_bf16(reinterpret_cast<const uint16_t*>(head)[index]);
    default: HEARTH_CHECK(false, "KV type {}", info(dtype).name);
  }
  return 0;
}

/// K and V of one kv head, as stored.
struct StoredHead {
  const PagedKv& kv;
  int32_t kv_head;
  KvIndex at_k{kv.block_size, kv.shape.k_dim};
  KvIndex at_v{kv.block_size, kv.shape.v_dim};
  int64_t k_bytes = kv_head_bytes(kv.dtype, kv.block_size, kv.shape.k_dim);
  int64_t v_bytes = kv_head_bytes(kv.dtype, kv.block_size, kv.shape.v_dim);

  /// `layer`: the block's K and V of all heads.
  double k(const std::byte* layer, int32_t dim, int32_t offset) const {
    const std::byte* head = layer + kv_head * k_bytes;
    if (kv.dtype != DType::kQ8_0) return load(head, kv.dtype, at_k.k(dim, offset));
    return std::bit_cast<int8_t>(head[at_k.k(dim, offset)]) * k_scale(layer, dim, offset);
  }
  double k_scale(const std::byte* layer, int32_t dim, int32_t offset) const {
    return load(layer + kv_head * k_bytes + at_k.values(), DType::kF16, at_k.k_scale(dim, offset));
  }
  const std::byte* v_head(const std::byte* layer) const {
    return layer + kv.shape.num_kv_heads * k_bytes + kv_head * v_bytes;
  }
  double v(const std::byte* layer, int32_t dim, int32_t offset) const {
    if (kv.shape.v_in_k) return k(layer, dim, offset);
    const std::byte* head = v_head(layer);
    if (kv.dtype != DType::kQ8_0) return load(head, kv.dtype, at_v.v(dim, offset));
    return std::bit_cast<int8_t>(head[at_v.v(dim, offset)]) * v_scale(layer, dim, offset);
  }
  double v_scale(const std::byte* layer, int32_t dim, int32_t offset) const {
    if (kv.shape.v_in_k) return k_scale(layer, dim, offset);
    return load(v_head(layer) + at_v.values(), DType::kF16, at_v.v_scale(dim, offset));
  }
};

/// The step that values with this bound are rounded to (ops/attention_rounding.h); NaN for a bound
/// that is not finite or too large.
double step_of(double bound) {
  const auto bits = std::bit_cast<int32_t>(static_cast<float>(bound));
  if (!(bound >= 0) || bits >= kBoundLimit) return std::numeric_limits<double>::quiet_NaN();
  return std::bit_cast<float>(step_bits(bits));
}

double round_to(double value, double step) { return std::nearbyint(value / step) * step; }

/// Dimensions [first, end) of one position, as attention uses them.
struct Values {
  std::vector<double> values;
  double step = 1;

  /// `value` and `scale` take a dimension; `scale` is asked for q8_0 alone.
  template <typename Value, typename Scale>
  Values(DType dtype, int32_t first, int32_t end, const Value& value, const Scale& scale) {
    double bound = 0;
    bool finite = true;
    for (int32_t d = first; d < end; ++d) {
      values.push_back(value(d));
      const double size = dtype == DType::kQ8_0 ? 127 * scale(d) : std::fabs(values.back());
      finite = finite && std::isfinite(size);
      bound = std::max(bound, size);
    }
    if (dtype == DType::kF32) return;
    step = finite ? step_of(bound) : std::numeric_limits<double>::quiet_NaN();
    for (double& each : values) each = round_to(each, step);
  }
};

std::vector<double> rounded_q(DType dtype, std::span<const float> q) {
  std::vector<double> out(q.begin(), q.end());
  if (dtype == DType::kF32) return out;
  float largest = 0;
  for (const float x : q) {
    if (!std::isfinite(x)) return std::vector(q.size(), std::numeric_limits<double>::quiet_NaN());
    largest = std::max(largest, std::fabs(x));
  }
  for (size_t d = 0; d < q.size(); ++d) {
    // The quotient in f32, because it decides to which side q is rounded.
    const float steps = largest >= 1e-30f ? q[d] * (kMostQ / largest) : 0.0f;
    out[d] = std::nearbyint(steps) * (double{largest} / kMostQ);
  }
  return out;
}

/// Rounds weights of consecutive positions, starting with `first`, tile by tile.
void round_weights(size_t first, std::span<const double> v_steps, std::span<double> weights) {
  for (size_t begin = 0; begin < weights.size();) {
    size_t end = begin;
    double largest = 0;
    do {
      largest = std::max(largest, weights[end] * v_steps[end]);
      ++end;
    } while (end < weights.size() && (first + end) % kSoftmaxTile != 0);
    for (; begin < end; ++begin) {
      if (largest > 0) {
        const double unit = largest / kMostWeight / v_steps[begin];
        weights[begin] = round_to(weights[begin], unit);
      }
    }
  }
}

/// One head of one query token over the positions that it sees.
void attend(const AttentionArgs& args, const int32_t* blocks, int32_t head,
            const SeenPositions& seen, std::span<const float> q, float* out) {
  const PagedKv& kv = args.kv;
  const StoredHead stored{kv, head / (args.num_heads / kv.shape.num_kv_heads)};
  const std::vector<double> row = rounded_q(kv.dtype, q);

  std::vector<double> scores;
  std::vector<double> v_steps;
  std::vector<std::vector<double>> v_rows;
  double largest = args.sinks != nullptr ? double{args.sinks->vector[head]}
                                         : -std::numeric_limits<double>::infinity();
  for (int32_t p = seen.first; p <= seen.last; ++p) {
    const std::byte* layer = kv.base + blocks[p / kv.block_size] * kv.block_bytes + kv.layer_offset;
    const int32_t offset = p % kv.block_size;
    double dot = 0;
    for (int32_t first = 0; first < kv.shape.k_dim; first += kRoundedDims) {
      const Values k(
          kv.dtype, first, std::min(first + kRoundedDims, kv.shape.k_dim),
          [&](int32_t d) { return stored.k(layer, d, offset); },
          [&](int32_t d) { return stored.k_scale(layer, d, offset); });
      for (size_t d = 0; d < k.values.size(); ++d) {
        dot += row[first + d] * k.values[d];
      }
    }
    Values v(
        kv.dtype, 0, kv.shape.v_dim, [&](int32_t d) { return stored.v(layer, d, offset); },
        [&](int32_t d) { return stored.v_scale(layer, d, offset); });
    v_steps.push_back(v.step);
    v_rows.push_back(std::move(v.values));
    double score = dot * args.scale;
    if (args.soft_cap > 0) score = args.soft_cap * std::tanh(score / args.soft_cap);
    scores.push_back(score);
    largest = std::max(largest, score);
  }

  for (double& score : scores) score = std::exp(score - largest);
  if (kv.dtype != DType::kF32) round_weights(seen.first, v_steps, scores);
  double sum = args.sinks != nullptr ? std::exp(args.sinks->vector[head] - largest) : 0.0;
  for (const double weight : scores) sum += weight;
  for (int32_t d = 0; d < kv.shape.v_dim; ++d) {
    double value = 0;
    for (size_t p = 0; p < scores.size(); ++p) value += scores[p] * v_rows[p][d];
    out[d] = static_cast<float>(value / sum);
  }
}

/// `to_all`: a query also attends to later positions.
void attend_rows(const AttentionArgs& args, bool to_all) {
  check_args(args);
  const BatchIndex& batch = *args.batch;
  const GroupIndex& group = batch.groups[args.group];
  for (int32_t t = 0; t < num_rows(batch, Rows::kTokens); ++t) {
    const SeenPositions seen = seen_positions(args, t, to_all);
    const int32_t* blocks = group.block_table + int64_t{batch.seq_idx[t]} * group.max_blocks;
    for (int32_t head = 0; head < args.num_heads; ++head) {
      const KvShape& shape = args.kv.shape;
      const float* q = args.q.row<float>(t) + int64_t{head} * shape.k_dim;
      attend(args, blocks, head, seen, std::span<const float>(q, shape.k_dim),
             args.out.row<float>(t) + int64_t{head} * shape.v_dim);
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
