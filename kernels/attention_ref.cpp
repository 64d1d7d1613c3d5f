#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/half.h"
#include "kernels/kv_layout.h"
#include "kernels/op_checks.h"
#include "kernels/ops_ref.h"

namespace hearth::kernels::reference {
namespace {

double load(const std::byte* layer, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF32: return reinterpret_cast<const float*>(layer)[index];
    case DType::kF16: return f32_from_f16(reinterpret_cast<const uint16_t*>(layer)[index]);
    case DType::kBF16: return f32_from_bf16(reinterpret_cast<const uint16_t*>(layer)[index]);
    default: HEARTH_CHECK(false, "KV type {}", info(dtype).name);
  }
  return 0;
}

/// One head of one query token over positions first .. last.
void attend(const AttentionArgs& args, const int32_t* blocks, int32_t head, int32_t first,
            int32_t last, const float* q, float* out) {
  const PagedKv& kv = args.kv;
  const KvLayout layout{kv.block_size, kv.num_kv_heads, kv.head_dim};
  const int32_t kv_head = head / (args.num_heads / kv.num_kv_heads);
  const auto layer_of = [&](int32_t position) {
    return kv.base + blocks[position / kv.block_size] * kv.block_bytes + kv.layer_offset;
  };

  std::vector<double> scores;
  double largest = args.sinks != nullptr ? static_cast<double>(args.sinks->vector[head])
                                         : -std::numeric_limits<double>::infinity();
  for (int32_t p = first; p <= last; ++p) {
    double dot = 0;
    for (int32_t d = 0; d < kv.head_dim; ++d) {
      dot += q[d] * load(layer_of(p), kv.dtype, layout.k(kv_head, d, p % kv.block_size));
    }
    double score = dot * args.scale;
    if (args.soft_cap > 0) score = args.soft_cap * std::tanh(score / args.soft_cap);
    scores.push_back(score);
    largest = std::max(largest, score);
  }

  double sum = args.sinks != nullptr ? std::exp(args.sinks->vector[head] - largest) : 0.0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (int32_t d = 0; d < kv.head_dim; ++d) {
    double value = 0;
    for (int32_t p = first; p <= last; ++p) {
      value += scores[static_cast<size_t>(p - first)] *
               load(layer_of(p), kv.dtype, layout.v(kv_head, p % kv.block_size, d));
    }
    out[d] = static_cast<float>(value / sum);
  }
}

}  // namespace

void attention(void*, const AttentionArgs& args) {
  check_args(args);
  const BatchIndex& batch = *args.batch;
  const GroupIndex& group = batch.groups[static_cast<size_t>(args.group)];
  for (int32_t t = 0; t < num_rows(batch, Rows::kTokens); ++t) {
    const int32_t last = batch.positions[t];
    const int32_t first = args.window > 0 ? std::max(0, last - args.window + 1) : 0;
    const int32_t* blocks = group.block_table + int64_t{batch.seq_idx[t]} * group.max_blocks;
    for (int32_t head = 0; head < args.num_heads; ++head) {
      const int64_t column = static_cast<int64_t>(head) * args.kv.head_dim;
      attend(args, blocks, head, first, last, args.q.row<float>(t) + column,
             args.out.row<float>(t) + column);
    }
  }
}

}  // namespace hearth::kernels::reference
