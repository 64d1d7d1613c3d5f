#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "kernels/ops/attention_rounding.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/encoder_kernels.h"
#include "kernels/ops/half.h"
#include "kernels/ops/kv_layout.h"
#include "kernels/ops/kv_rotation.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {
namespace {

/// Positions that share one rounding of weights.
constexpr int32_t kTile = 64;

double load(const std::byte* head, KvType type, int64_t index) {
  switch (type) {
    case KvType::kF32: return reinterpret_cast<const float*>(head)[index];
    case KvType::kF16: return f32_from_f16(reinterpret_cast<const uint16_t*>(head)[index]);
    case KvType::kBF16: return f32_from_bf16(reinterpret_cast<const uint16_t*>(head)[index]);
    case KvType::kFp8: return f32_from_e4m3(std::to_integer<uint8_t>(head[index]));
    case KvType::kQ8_0:
    case KvType::kQ4_0: break;  // K and V differ: k_code and v_code
  }
  HEARTH_CHECK(false, "KV type {}", kv_type_name(type));
  return 0;
}

double load_pair(std::byte pair, bool upper) {
  return std::to_integer<int32_t>(upper ? pair >> 4 : pair & std::byte{15}) - 8;
}

/// Rounded K and V of one kv head, as stored: a value is a code times its scale.
struct StoredHead {
  const PagedKv& kv;
  int32_t kv_head;
  KvIndex at_k{kv.block_size, kv.shape.k_dim};
  KvIndex at_v{kv.block_size, kv.shape.v_dim};
  int64_t k_bytes = kv_head_bytes(kv.types.k, kv.block_size, kv.shape.k_dim);
  int64_t v_bytes = kv_head_bytes(kv.types.v, kv.block_size, kv.shape.v_dim);

  /// `layer`: the block's K and V of all heads.
  const std::byte* k_head(const std::byte* layer) const { return layer + kv_head * k_bytes; }
  const std::byte* v_head(const std::byte* layer) const {
    return layer + kv.shape.num_kv_heads * k_bytes + kv_head * v_bytes;
  }
  double k_code(const std::byte* layer, int32_t dim, int32_t offset) const {
    const std::byte* head = k_head(layer);
    const int64_t index = at_k.k(kv.types.k, dim, offset);
    if (kv.types.k == KvType::kQ8_0) return std::to_integer<int32_t>(head[index]) - kKvKeyBias;
    if (kv.types.k == KvType::kQ4_0) return load_pair(head[index], KvIndex::k_in_upper(dim));
    return load(head, kv.types.k, index);
  }
  double v_code(const std::byte* layer, int32_t dim, int32_t offset) const {
    if (kv.shape.v_in_k) return k_code(layer, dim, offset);
    const std::byte* head = v_head(layer);
    const int64_t index = at_v.v(kv.types.v, dim, offset);
    if (kv.types.v == KvType::kQ8_0) return static_cast<int8_t>(head[index]);
    if (kv.types.v == KvType::kQ4_0) return load_pair(head[index], KvIndex::v_in_upper(dim));
    return load(head, kv.types.v, index);
  }
  float k_scale(const std::byte* layer, int32_t dim, int32_t offset) const {
    return scale(k_head(layer), kv.types.k, at_k, dim, offset);
  }
  float v_scale(const std::byte* layer, int32_t dim, int32_t offset) const {
    if (kv.shape.v_in_k) return k_scale(layer, dim, offset);
    return scale(v_head(layer), kv.types.v, at_v, dim, offset);
  }

 private:
  static float scale(const std::byte* head, KvType type, const KvIndex& at, int32_t dim,
                     int32_t offset) {
    if (!kv_scaled(type)) return 1;
    const std::byte* scales = head + at.block_size * kv_value_bytes(type, at.dims);
    return f32_from_f16(reinterpret_cast<const uint16_t*>(scales)[at.scale(dim, offset)]);
  }
};

/// One head of one query token over the positions that it sees.
struct Query {
  const AttentionArgs& args;
  bool exact;  ///< nothing is rounded (kernels/ops/attention_rounding.h)
  const int32_t* blocks;
  int32_t head;
  SeenPositions seen;
  StoredHead stored;

  int32_t num_seen() const { return seen.last - seen.first + 1; }
  const std::byte* layer_of(int32_t position) const {
    const PagedKv& kv = args.kv;
    return kv.base + blocks[position / kv.block_size] * kv.block_bytes + kv.layer_offset;
  }
  int32_t offset_of(int32_t position) const { return position % args.kv.block_size; }
  bool integer_scores() const { return !exact && kv_integers(args.kv.types.k); }
  bool integer_values() const {
    return !exact && !args.kv.shape.v_in_k && kv_integers(args.kv.types.v);
  }

  /// Calls tile(first, last) for the positions seen of each tile.
  template <typename Tile>
  void for_each_tile(const Tile& tile) const {
    for (int32_t first = seen.first; first <= seen.last; first = (first / kTile + 1) * kTile) {
      tile(first, std::min(seen.last, first / kTile * kTile + kTile - 1));
    }
  }
};

/// A query's values: codes times a scale per 32 dimensions, if they are rounded.
struct Inputs {
  std::vector<float> codes;
  std::vector<float> scales;

  Inputs(const Query& query, const float* q) {
    const int32_t dims = query.args.kv.shape.k_dim;
    for (int32_t first = 0; first < dims; first += kKvScaleDims) {
      std::array<float, kKvScaleDims> x = {};
      std::copy_n(q + first, std::min(kKvScaleDims, dims - first), x.begin());
      scales.push_back(1);
      if (query.integer_scores()) {
        const QuantizedBlock block = quantize_blocks(x).front();
        std::copy_n(block.q, kKvScaleDims, x.begin());
        scales.back() = block.d;
      }
      codes.insert(codes.end(), x.begin(), x.end());
    }
  }
};

double dot(const Query& query, const Inputs& inputs, int32_t position) {
  const std::byte* layer = query.layer_of(position);
  const int32_t offset = query.offset_of(position);
  double sum = 0;
  for (int32_t i = 0; i < size32(inputs.scales); ++i) {
    const int32_t first = i * kKvScaleDims;
    double codes = 0;
    for (int32_t d = first; d < std::min(query.args.kv.shape.k_dim, first + kKvScaleDims); ++d) {
      codes += double{inputs.codes[d]} * query.stored.k_code(layer, d, offset);
    }
    sum += codes * inputs.scales[i] * query.stored.k_scale(layer, first, offset);
  }
  return sum;
}

/// The weights of the positions that a query sees, relative to the largest logit.
struct Weights {
  std::vector<double> steps;  ///< integers, if they are rounded
  std::vector<double> units;  ///< of the steps
  double sum = 0;

  double of(int32_t i) const { return steps[i] * unit(i); }
  double unit(int32_t i) const { return units[i]; }
};

Weights weights_of(const Query& query, const std::vector<double>& scores) {
  const float* sinks = query.args.sinks != nullptr ? query.args.sinks->vector : nullptr;
  const auto score = [&](int32_t p) { return scores[p - query.seen.first]; };
  const auto largest_of = [&](double largest, int32_t first, int32_t last) {
    for (int32_t p = first; p <= last; ++p) largest = std::max(largest, score(p));
    return largest;
  };
  const double none = -std::numeric_limits<double>::infinity();
  const double largest = largest_of(sinks != nullptr ? double{sinks[query.head]} : none,
                                    query.seen.first, query.seen.last);
  Weights weights;
  weights.sum = sinks != nullptr ? std::exp(sinks[query.head] - largest) : 0.0;
  query.for_each_tile([&](int32_t first, int32_t last) {
    const bool rounded = query.integer_values();
    const double highest = rounded ? largest_of(none, first, last) : largest;
    const double unit = std::exp(highest - largest) / (rounded ? kWeightSteps : 1);
    for (int32_t p = first; p <= last; ++p) {
      const double weight = std::exp(score(p) - highest);
      weights.steps.push_back(rounded ? std::nearbyint(weight * kWeightSteps) : weight);
      weights.units.push_back(unit);
      weights.sum += weights.of(p - query.seen.first);
    }
  });
  return weights;
}

/// What codes of V are multiplied by, of the 32 dimensions from `dim` on.
std::vector<double> factors_of(const Query& query, const Weights& weights, int32_t dim) {
  const auto scale = [&](int32_t p) {
    return query.stored.v_scale(query.layer_of(p), dim, query.offset_of(p));
  };
  std::vector<double> factors;
  query.for_each_tile([&](int32_t first, int32_t last) {
    float most = 0;
    for (int32_t p = first; p <= last; ++p) {
      most = std::isfinite(scale(p)) ? std::max(most, std::abs(scale(p))) : scale(p);
      if (!std::isfinite(most)) break;
    }
    const float steps = most > 0 ? kWeightSteps / most : 0.0f;
    for (int32_t p = first; p <= last; ++p) {
      const int32_t i = p - query.seen.first;
      if (!query.integer_values()) {
        factors.push_back(weights.of(i) * scale(p));
        continue;
      }
      const double multiplier = std::nearbyint(scale(p) * steps);
      const double product = std::floor((weights.steps[i] * multiplier + 0x1p14) * 0x1p-15);
      factors.push_back(weights.unit(i) * (most * kScaleUnit) * product);
    }
  });
  return factors;
}

void attend(const Query& query, const float* q, float* out) {
  const AttentionArgs& args = query.args;
  const Inputs inputs(query, q);
  std::vector<double> scores;
  for (int32_t p = query.seen.first; p <= query.seen.last; ++p) {
    double score = dot(query, inputs, p) * args.scale;
    if (args.soft_cap > 0) score = args.soft_cap * std::tanh(score / args.soft_cap);
    scores.push_back(score);
  }
  const Weights weights = weights_of(query, scores);
  std::vector<double> factors;
  for (int32_t d = 0; d < args.kv.shape.v_dim; ++d) {
    if (d % kKvScaleDims == 0) factors = factors_of(query, weights, d);
    double value = 0;
    for (int32_t p = query.seen.first; p <= query.seen.last; ++p) {
      value += factors[p - query.seen.first] *
               query.stored.v_code(query.layer_of(p), d, query.offset_of(p));
    }
    out[d] = static_cast<float>(value / weights.sum);
  }
}

/// `to_all`: a query also attends to later positions.
void attend_rows(const AttentionArgs& args, bool to_all, bool exact) {
  check_args(args);
  const BatchIndex& batch = *args.batch;
  const GroupIndex& group = batch.groups[args.group];
  const KvShape& shape = args.kv.shape;
  std::vector<float> rotated(shape.k_dim);
  for (int32_t t = 0; t < num_rows(batch, Rows::kTokens); ++t) {
    const SeenPositions seen = seen_positions(args, t, to_all);
    const int32_t* blocks = group.block_table + int64_t{batch.seq_idx[t]} * group.max_blocks;
    for (int32_t head = 0; head < args.num_heads; ++head) {
      const float* q = args.q.row<float>(t) + int64_t{head} * shape.k_dim;
      if (kv_rotated(args.kv.types.k, shape.v_in_k)) {
        rotate_head(q, shape.k_dim, kRotatedQuery, rotated.data());
        q = rotated.data();
      }
      const StoredHead stored{args.kv, head / (args.num_heads / shape.num_kv_heads)};
      attend({args, exact, blocks, head, seen, stored}, q,
             args.out.row<float>(t) + int64_t{head} * shape.v_dim);
    }
  }
}

}  // namespace

void attention(void*, const AttentionArgs& args) { attend_rows(args, false, false); }

void attention_exact(void*, const AttentionArgs& args) { attend_rows(args, false, true); }

void attention_to_all(void*, const AttentionArgs& args) {
  HEARTH_CHECK(args.window == 0, "window {}", args.window);
  attend_rows(args, true, false);
}

void attention_to_all_exact(void*, const AttentionArgs& args) {
  HEARTH_CHECK(args.window == 0, "window {}", args.window);
  attend_rows(args, true, true);
}

}  // namespace hearth::kernels::reference
