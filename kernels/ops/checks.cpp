#include "kernels/ops/checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/ops/half.h"

namespace hearth::kernels {
namespace {

void check_view(const TensorView& view, int64_t rows, int64_t cols, const char* what,
                DType dtype = DType::kF32) {
  HEARTH_CHECK(rows == 0 || view.data != nullptr, "{}", what);
  HEARTH_CHECK(view.dtype == dtype, "{}: {}, want {}", what, info(view.dtype).name,
               info(dtype).name);
  HEARTH_CHECK(view.rows >= rows && view.cols == cols && view.row_stride >= cols,
               "{}: ({}, {}) stride {}, want ({}, {})", what, view.rows, view.cols, view.row_stride,
               rows, cols);
}

void check_vector(const Weight* weight, int64_t cols, const char* what) {
  HEARTH_CHECK(weight != nullptr && weight->vector != nullptr, "{}", what);
  HEARTH_CHECK(weight->cols == cols, "{}: {} values, want {}", what, weight->cols, cols);
}

void check_kv(const BatchIndex& batch, int32_t group, const PagedKv& kv) {
  HEARTH_CHECK(group >= 0 && std::cmp_less(group, batch.groups.size()), "group {} of {}", group,
               batch.groups.size());
  HEARTH_CHECK(kv.base != nullptr);
  HEARTH_CHECK(kv.block_size > 0 && kv.block_size % kAttentionTile == 0, "block_size {}",
               kv.block_size);
  const KvShape& shape = kv.shape;
  HEARTH_CHECK(shape.num_kv_heads > 0 && shape.k_dim > 0 && shape.v_dim > 0, "{} x {}, {}",
               shape.num_kv_heads, shape.k_dim, shape.v_dim);
  HEARTH_CHECK(!shape.v_in_k || shape.v_dim <= shape.k_dim, "V of {} in K of {}", shape.v_dim,
               shape.k_dim);
  HEARTH_CHECK(!shape.v_in_k || kv.types.alike(), "V in K of types {}", kv_type_name(kv.types));
  const int64_t layer = kv_layer_bytes(kv.types, kv.block_size, shape);
  HEARTH_CHECK(kv.layer_offset >= 0 && kv.layer_offset + layer <= kv.block_bytes,
               "layer at {}+{} of {}", kv.layer_offset, layer, kv.block_bytes);
}

Error unsupported(const HostTensor& tensor, std::string why) {
  return Error::unsupported(fmt::format("{}: {}", tensor.name, why));
}

}  // namespace

int32_t num_rows(const BatchIndex& batch, Rows rows) {
  const bool tokens = rows == Rows::kTokens;
  const int32_t bound = tokens ? batch.num_tokens : batch.num_outputs;
  if (batch.counts == nullptr) return bound;
  const int32_t exact = batch.counts[tokens ? 0 : 2];
  HEARTH_CHECK(exact >= 0 && exact <= bound, "{} rows, bound {}", exact, bound);
  return exact;
}

void check_args(const EmbedArgs& args) {
  HEARTH_CHECK(args.table != nullptr && args.table->vector == nullptr);
  check_view(args.out, num_rows(*args.batch, Rows::kTokens), args.table->cols, "embed out");
}

void check_args(const RmsNormArgs& args) {
  const int32_t rows = num_rows(*args.batch, args.rows);
  check_view(args.x, rows, args.x.cols, "rms_norm x");
  check_view(args.out, rows, args.x.cols, "rms_norm out");
  HEARTH_CHECK(args.weight != nullptr && args.weight->vector != nullptr);
  HEARTH_CHECK(args.weight->cols > 0 && args.x.cols % args.weight->cols == 0,
               "rms_norm weight: {} values for {} columns", args.weight->cols, args.x.cols);
}

void check_args(const MatmulArgs& args) {
  HEARTH_CHECK(args.w != nullptr && args.w->vector == nullptr && args.w->num_experts == 1);
  const int32_t rows = num_rows(*args.batch, args.rows);
  check_view(args.x, rows, args.w->cols, "matmul x");
  check_view(args.out, rows, args.w->rows, "matmul out");
  if (args.residual != nullptr) check_view(*args.residual, rows, args.w->rows, "matmul residual");
}

void check_args(const AddBiasArgs& args) {
  const int32_t tokens = num_rows(*args.batch, Rows::kTokens);
  const int64_t choices = args.ids == nullptr ? 1 : args.ids->cols;
  check_view(args.out, tokens * choices, args.out.cols, "add_bias out");
  if (args.ids == nullptr) return check_vector(args.bias, args.out.cols, "add_bias bias");
  check_view(*args.ids, tokens, choices, "add_bias ids", DType::kI32);
  HEARTH_CHECK(args.bias != nullptr && args.bias->vector != nullptr &&
               args.bias->cols % args.out.cols == 0);
}

void check_args(const AddScaledArgs& args) {
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  check_view(args.x, rows, args.out.cols, "add_scaled x");
  if (args.gate != nullptr) check_view(*args.gate, rows, 1, "add_scaled gate");
  check_view(args.out, rows, args.out.cols, "add_scaled out");
}

void check_args(const SoftCapArgs& args) {
  check_view(args.x, num_rows(*args.batch, args.rows), args.x.cols, "soft_cap x");
  HEARTH_CHECK(args.soft_cap >= 0, "soft_cap {}", args.soft_cap);
}

void check_args(const RopeTableArgs& args) {
  HEARTH_CHECK(args.inv_freq != nullptr && args.inv_freq->vector != nullptr);
  check_view(args.cos_sin, num_rows(*args.batch, Rows::kTokens), 2 * args.inv_freq->cols,
             "rope_table out");
}

void check_args(const RopeArgs& args) {
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  check_view(args.x, rows, int64_t{args.num_heads} * args.head_dim, "rope x");
  check_view(args.cos_sin, rows, args.cos_sin.cols, "rope cos_sin");
  HEARTH_CHECK(args.cos_sin.cols % 2 == 0 && args.first >= 0 &&
                   args.first + args.cos_sin.cols <= args.head_dim,
               "rope_dim {} from {}, head_dim {}", args.cos_sin.cols, args.first, args.head_dim);
}

void check_args(const CopyHeadsArgs& args) {
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  check_view(args.x, rows, int64_t{args.num_heads} * args.x_dim, "copy_heads x");
  check_view(args.out, rows, int64_t{args.num_heads} * args.out_dim, "copy_heads out");
  HEARTH_CHECK(args.count > 0 && args.x_first >= 0 && args.out_first >= 0 &&
                   args.x_first + args.count <= args.x_dim &&
                   args.out_first + args.count <= args.out_dim,
               "{} values from {} of {} to {} of {}", args.count, args.x_first, args.x_dim,
               args.out_first, args.out_dim);
}

void check_args(const TimesRmsArgs& args) {
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  check_view(args.x, rows, args.x.cols, "times_rms x");
  check_view(args.like, rows, args.like.cols, "times_rms like");
  HEARTH_CHECK(args.like.cols > 0, "times_rms like");
}

void check_args(const KeepPeaksArgs& args) {
  check_view(args.x, num_rows(*args.batch, Rows::kTokens), args.x.cols, "keep_peaks x");
  HEARTH_CHECK(args.x.cols > 0 && std::isfinite(args.deviations), "keep_peaks: {} deviations",
               args.deviations);
}

void check_args(const KvStoreArgs& args) {
  check_kv(*args.batch, args.group, args.kv);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  check_view(args.k, rows, args.kv.shape.k_width(), "kv_store k");
  if (!args.kv.shape.v_in_k) check_view(args.v, rows, args.kv.shape.v_width(), "kv_store v");
}

SeenPositions seen_positions(const AttentionArgs& args, int32_t row, bool to_all) {
  const BatchIndex& batch = *args.batch;
  const int32_t seq = batch.seq_idx[row];
  if (to_all) return {0, batch.context_len[seq] - 1};
  const int32_t position = batch.positions[row];
  return {args.window > 0 ? std::max(0, position - args.window + 1) : 0, position};
}

void check_args(const AttentionArgs& args) {
  check_kv(*args.batch, args.group, args.kv);
  const KvShape& shape = args.kv.shape;
  HEARTH_CHECK(args.num_heads > 0 && args.num_heads % shape.num_kv_heads == 0,
               "{} heads, {} kv heads", args.num_heads, shape.num_kv_heads);
  HEARTH_CHECK(args.window >= 0 && args.soft_cap >= 0, "window {} soft_cap {}", args.window,
               args.soft_cap);
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  check_view(args.q, rows, int64_t{args.num_heads} * shape.k_dim, "attention q");
  check_view(args.out, rows, int64_t{args.num_heads} * shape.v_dim, "attention out");
  if (args.sinks != nullptr) check_vector(args.sinks, args.num_heads, "attention sinks");
}

void check_args(const GatedActivationArgs& args) {
  HEARTH_CHECK(args.rows_per_token > 0, "{} rows per token", args.rows_per_token);
  const int64_t rows = int64_t{num_rows(*args.batch, Rows::kTokens)} * args.rows_per_token;
  check_view(args.gate_up, rows, 2 * args.out.cols, "gated_activation gate_up");
  check_view(args.out, rows, args.out.cols, "gated_activation out");
}

void check_args(const GatherRowsArgs& args) {
  check_view(args.x, num_rows(*args.batch, Rows::kTokens), args.x.cols, "gather_rows x");
  check_view(args.out, num_rows(*args.batch, Rows::kOutputs), args.x.cols, "gather_rows out");
}

void check_args(const CopyBlocksArgs& args) {
  HEARTH_CHECK(args.src.size() == args.dst.size(), "{} to {} blocks", args.src.size(),
               args.dst.size());
  HEARTH_CHECK(args.base != nullptr || args.src.empty());
}

void check_args(const DrawArgs& args) {
  check_view(args.logits, num_rows(*args.batch, Rows::kOutputs), args.logits.cols, "draw logits");
  HEARTH_CHECK(args.logits.cols > 0 && args.rows != nullptr && args.tokens != nullptr, "{} logits",
               args.logits.cols);
}

void check_args(const BestLogitsArgs& args) {
  check_view(args.logits, num_rows(*args.batch, Rows::kOutputs), args.logits.cols, "best logits");
  HEARTH_CHECK(args.logits.cols > 0 && args.best != nullptr, "{} logits", args.logits.cols);
}

void check_args(const MoeRouteArgs& args) {
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  HEARTH_CHECK(args.top_k > 0 && args.top_k <= args.logits.cols, "top_k {} of {}", args.top_k,
               args.logits.cols);
  check_view(args.logits, rows, args.logits.cols, "moe_route logits");
  check_view(args.ids, rows, args.top_k, "moe_route ids", DType::kI32);
  check_view(args.weights, rows, args.top_k, "moe_route weights");
  const int64_t experts = args.logits.cols;
  if (args.selection_bias != nullptr) check_vector(args.selection_bias, experts, "moe_route bias");
  if (args.expert_scale != nullptr) check_vector(args.expert_scale, experts, "moe_route scale");
  HEARTH_CHECK(args.num_groups > 0 && experts % args.num_groups == 0, "{} groups of {} experts",
               args.num_groups, experts);
  HEARTH_CHECK(args.groups_used > 0 && args.groups_used <= args.num_groups &&
                   args.top_k <= experts / args.num_groups * args.groups_used,
               "{} of {} groups for {} choices", args.groups_used, args.num_groups, args.top_k);
}

void check_args(const MoeMatmulArgs& args) {
  HEARTH_CHECK(args.w != nullptr && args.w->vector == nullptr);
  const int64_t tokens = num_rows(*args.batch, Rows::kTokens);
  const int64_t choices = tokens * args.ids.cols;
  check_view(args.x, args.x_per_choice ? choices : tokens, args.w->cols, "moe_matmul x");
  check_view(args.ids, tokens, args.ids.cols, "moe_matmul ids", DType::kI32);
  check_view(args.out, choices, args.w->rows, "moe_matmul out");
}

void check_args(const MoeCombineArgs& args) {
  const int64_t tokens = num_rows(*args.batch, Rows::kTokens);
  check_view(args.x, tokens * args.weights.cols, args.out.cols, "moe_combine x");
  check_view(args.weights, tokens, args.weights.cols, "moe_combine weights");
  check_view(args.out, tokens, args.out.cols, "moe_combine out");
}

namespace {

/// Factors and outliers of a tensor's products.
Result<void> check_scales(const HostTensor& tensor, WeightRole role) {
  const bool multiplied = role == WeightRole::kMatmul || role == WeightRole::kExperts;
  if (!tensor.scales.empty()) {
    if (!multiplied) return unsupported(tensor, "a scale where no matrix is wanted");
    if (std::cmp_not_equal(tensor.scales.size(), tensor.num_experts)) {
      return unsupported(
          tensor, fmt::format("{} scales, want {}", tensor.scales.size(), tensor.num_experts));
    }
    for (const float scale : tensor.scales) {
      if (!std::isfinite(scale)) return unsupported(tensor, fmt::format("scale {}", scale));
    }
  }
  if (tensor.outliers_from == 0) return {};
  if (multiplied && tensor.dtype == DType::kQ8_0 && tensor.outliers_from > 0) return {};
  return unsupported(tensor, fmt::format("outliers from {} in type {}", tensor.outliers_from,
                                         info(tensor.dtype).name));
}

/// Joined tensors share quantized inputs, so they share what is left out of them.
float outliers_of(std::span<const HostTensor> tensors) {
  for (const HostTensor& tensor : tensors) {
    if (info(tensor.dtype).block_elements > 1) return tensor.outliers_from;
  }
  return 0;
}

}  // namespace

Result<void> check_tensors(std::span<const HostTensor> tensors, WeightRole role) {
  HEARTH_CHECK(!tensors.empty());
  for (const HostTensor& tensor : tensors) {
    const DTypeInfo& type = info(tensor.dtype);
    if (!type.usable_as_weight) {
      return unsupported(tensor, fmt::format("type {} cannot be computed with", type.name));
    }
    // Sides up to 2^31 keep every product below within 64 bits.
    constexpr int64_t kMaxSide = int64_t{1} << 31;
    if (tensor.rows <= 0 || tensor.cols <= 0 || tensor.rows > kMaxSide || tensor.cols > kMaxSide) {
      return unsupported(tensor, fmt::format("shape [{},{}]", tensor.rows, tensor.cols));
    }
    if (tensor.cols % type.block_elements != 0) {
      return unsupported(tensor, fmt::format("rows of {} values in type {}, want a multiple of {}",
                                             tensor.cols, type.name, type.block_elements));
    }
    const uint64_t want = bytes_of(tensor.dtype, tensor.rows * tensor.cols);
    if (tensor.bytes.size() != want) {
      return unsupported(tensor, fmt::format("{} bytes, want {}", tensor.bytes.size(), want));
    }
    if (role == WeightRole::kVector && (tensor.rows != 1 || type.block_elements != 1)) {
      return unsupported(tensor, fmt::format("[{},{}] of type {} where a plain vector is wanted",
                                             tensor.rows, tensor.cols, type.name));
    }
    if (role == WeightRole::kEmbedding && tensors.size() != 1) {
      return unsupported(tensor, "an embedding is one tensor");
    }
    if (tensor.num_experts != 1 && role != WeightRole::kExperts) {
      return unsupported(tensor, "a tensor of experts where a matrix is wanted");
    }
    HEARTH_TRY(check_scales(tensor, role));
    if (info(tensor.dtype).block_elements > 1 && tensor.outliers_from != outliers_of(tensors)) {
      return unsupported(tensor, "joined to a matrix with other outliers");
    }
    if (tensor.num_experts <= 0 || tensor.rows % tensor.num_experts != 0 ||
        tensor.num_experts != tensors[0].num_experts) {
      return unsupported(
          tensor, fmt::format("{} rows of {} experts, {} in {}", tensor.rows, tensor.num_experts,
                              tensors[0].num_experts, tensors[0].name));
    }
    if ((role == WeightRole::kMatmul || role == WeightRole::kExperts) &&
        tensor.cols != tensors[0].cols) {
      return unsupported(tensor, fmt::format("{} inputs, but joined to {} with {}", tensor.cols,
                                             tensors[0].name, tensors[0].cols));
    }
  }
  return {};
}

std::vector<float> vector_values(std::span<const HostTensor> tensors) {
  std::vector<float> values;
  for (const HostTensor& tensor : tensors) {
    for (int64_t i = 0; i < tensor.cols; ++i) {
      const std::byte* at = tensor.bytes.data() + bytes_of(tensor.dtype, i);
      if (tensor.dtype == DType::kF32) {
        float value;
        std::memcpy(&value, at, sizeof value);
        values.push_back(value);
      } else {
        uint16_t bits;
        std::memcpy(&bits, at, sizeof bits);
        values.push_back(tensor.dtype == DType::kF16 ? f32_from_f16(bits) : f32_from_bf16(bits));
      }
    }
  }
  return values;
}

}  // namespace hearth::kernels
