#include "models/decoder/recurrent_config.h"

#include <fmt/core.h>

#include <algorithm>

#include "kernels/base/numbers.h"
#include "models/weights/metadata.h"

namespace hearth::models {
namespace {

using kernels::kKeptRows;
using kernels::kStateLanes;

/// A state of more values than this for one sequence and layer is not a real model's.
constexpr int64_t kMaxStateValues = int64_t{1} << 28;

Result<int32_t> load_taps(Metadata& m, std::string_view key) {
  HEARTH_ASSIGN_OR_RETURN(const int32_t taps, m.number(key, kMaxWidth));
  if (taps >= 2 && taps <= kernels::kMaxTaps) return taps;
  return m.unsupported(key, fmt::format("{} rows, want 2 to {}", taps, kernels::kMaxTaps));
}

Result<int32_t> load_inner(Metadata& m) {
  constexpr std::string_view kKey = "ssm.inner_size";
  HEARTH_ASSIGN_OR_RETURN(const int32_t inner, m.number(kKey, kMaxWidth));
  if (inner % kStateLanes == 0) return inner;
  return m.unsupported(kKey, fmt::format("{}, want a multiple of {}", inner, kStateLanes));
}

/// The heads, from time_step_rank (heads), group_count and state_size.
Result<void> load_heads(Metadata& m, RecurrentConfig& c) {
  HEARTH_ASSIGN_OR_RETURN(c.taps, load_taps(m, "ssm.conv_kernel"));
  HEARTH_ASSIGN_OR_RETURN(c.inner, load_inner(m));
  HEARTH_ASSIGN_OR_RETURN(c.num_heads, m.number("ssm.time_step_rank", kMaxWidth));
  if (c.num_k_heads == 0) {
    HEARTH_ASSIGN_OR_RETURN(c.num_k_heads, m.number_or("ssm.group_count", kMaxWidth, 1));
  }
  HEARTH_ASSIGN_OR_RETURN(c.k_dim, m.number("ssm.state_size", kernels::kMaxKeyDim));
  if (c.num_heads % c.num_k_heads != 0) {
    return m.corrupt("ssm.group_count",
                     fmt::format("{}, want a divisor of the {} heads", c.num_k_heads, c.num_heads));
  }
  if (c.inner % c.num_heads != 0) {
    return m.corrupt("ssm.inner_size",
                     fmt::format("{}, want a multiple of the {} heads", c.inner, c.num_heads));
  }
  c.v_dim = c.inner / c.num_heads;
  if (c.v_dim % kStateLanes != 0) {
    return m.unsupported("ssm.inner_size",
                         fmt::format("heads of {}, want a multiple of {}", c.v_dim, kStateLanes));
  }
  if (c.conv_channels() % kStateLanes != 0) {
    return m.unsupported("ssm.state_size",
                         fmt::format("{} channels of the convolution, want a multiple of {}",
                                     c.conv_channels(), kStateLanes));
  }
  if (c.scan_values() > kMaxStateValues) {
    return m.unsupported("ssm.state_size", fmt::format("a state of {} values", c.scan_values()));
  }
  return {};
}

}  // namespace

int64_t RecurrentConfig::conv_channels() const {
  switch (kind) {
    case Kind::kNone:
    case Kind::kLightning: return 0;
    case Kind::kGatedDelta:
    case Kind::kKimiDelta:
    case Kind::kMamba2: return inner + 2 * k_width();
    case Kind::kMamba:
    case Kind::kPlamo:
    case Kind::kWkv:
    case Kind::kShortConv: return inner;
  }
  return 0;
}

int64_t RecurrentConfig::scan_values() const {
  switch (kind) {
    case Kind::kNone:
    case Kind::kShortConv: return 0;
    case Kind::kGatedDelta:
    case Kind::kKimiDelta:
    case Kind::kPlamo:
    case Kind::kLightning:
    case Kind::kWkv:
    case Kind::kMamba2: return int64_t{inner} * k_dim;
    case Kind::kMamba: return int64_t{inner} * d_state;
  }
  return 0;
}

int64_t RecurrentConfig::in_width() const {
  switch (kind) {
    case Kind::kNone: return 0;
    case Kind::kGatedDelta: return conv_channels() + 2 * int64_t{num_heads} + inner;
    case Kind::kKimiDelta: return conv_channels() + 2 * int64_t{k_dim} + num_heads;
    case Kind::kPlamo:
    case Kind::kMamba: return 2 * int64_t{inner};
    case Kind::kMamba2: return inner + conv_channels() + num_heads;
    case Kind::kShortConv: return 3 * int64_t{inner};
    case Kind::kLightning: return 4 * int64_t{inner};
    case Kind::kWkv: return 0;  // each mixed row has products of its own
  }
  return 0;
}

int64_t RecurrentConfig::row_width() const {
  switch (kind) {
    case Kind::kNone:
    case Kind::kKimiDelta:
    case Kind::kMamba2:
    case Kind::kShortConv: return in_width();
    case Kind::kGatedDelta:
    case Kind::kMamba: return in_width() + inner;
    case Kind::kPlamo: return in_width() + 3 * int64_t{inner};  // gate, y, the convolution's input
    case Kind::kLightning: return in_width() + 3 * int64_t{inner};  // q, k, v
    case Kind::kWkv: return (num_mixed() + 3) * int64_t{inner};     // r, k, v
  }
  return 0;
}

int64_t RecurrentConfig::kept_width() const {
  switch (kind) {
    case Kind::kNone:
    case Kind::kShortConv: return 0;
    case Kind::kGatedDelta:
    case Kind::kKimiDelta:
    case Kind::kPlamo:
    case Kind::kLightning:
    case Kind::kMamba2:
      return kernels::HeadScanArgs::kept_width(num_heads, num_k_heads, k_dim, v_dim,
                                               kind == Kind::kKimiDelta);
    case Kind::kWkv: return kernels::HeadScanArgs::kept_width_erasing(num_heads, k_dim, v_dim);
    case Kind::kMamba: return 2 * int64_t{inner} + d_state;
  }
  return 0;
}

Result<RecurrentConfig> RecurrentConfig::load_gated_delta(Metadata& m) {
  RecurrentConfig c;
  c.kind = Kind::kGatedDelta;
  HEARTH_TRY(load_heads(m, c));
  c.norm = true;
  if (c.v_dim == c.k_dim) return c;
  return m.unsupported("ssm.inner_size",
                       fmt::format("heads of {} values with keys of {}", c.v_dim, c.k_dim));
}

Result<RecurrentConfig> RecurrentConfig::load_kimi_delta(Metadata& m, int32_t num_heads) {
  constexpr std::string_view kKey = "kda.head_dim";
  RecurrentConfig c;
  c.kind = Kind::kKimiDelta;
  HEARTH_ASSIGN_OR_RETURN(c.taps, load_taps(m, "ssm.conv_kernel"));
  HEARTH_ASSIGN_OR_RETURN(c.k_dim, m.number(kKey, kernels::kMaxKeyDim));
  if (c.k_dim % kStateLanes != 0) {
    return m.unsupported(kKey, fmt::format("{}, want a multiple of {}", c.k_dim, kStateLanes));
  }
  const int64_t inner = int64_t{num_heads} * c.k_dim;
  if (inner > kMaxWidth || inner * c.k_dim > kMaxStateValues) {
    return m.unsupported(kKey, fmt::format("{} in each of {} heads", c.k_dim, num_heads));
  }
  c.v_dim = c.k_dim;
  c.num_heads = c.num_k_heads = num_heads;
  c.inner = narrow<int32_t>(inner);
  c.norm = true;
  return c;
}

Result<RecurrentConfig> RecurrentConfig::load_lightning(Metadata& m, int32_t num_heads,
                                                        int32_t head_dim) {
  constexpr std::string_view kKey = "attention.key_length";
  RecurrentConfig c;
  c.kind = Kind::kLightning;
  const int64_t inner = int64_t{num_heads} * head_dim;
  if (head_dim % kStateLanes != 0 || head_dim > kernels::kMaxKeyDim) {
    return m.unsupported(kKey, fmt::format("{}, want a multiple of {} up to {}", head_dim,
                                           kStateLanes, kernels::kMaxKeyDim));
  }
  if (inner > kMaxWidth || inner * head_dim > kMaxStateValues) {
    return m.unsupported(kKey, fmt::format("{} in each of {} heads", head_dim, num_heads));
  }
  c.k_dim = c.v_dim = head_dim;
  c.num_heads = c.num_k_heads = num_heads;
  c.inner = narrow<int32_t>(inner);
  return c;
}

Result<RecurrentConfig> RecurrentConfig::load_mamba2(Metadata& m) {
  RecurrentConfig c;
  c.kind = Kind::kMamba2;
  HEARTH_TRY(load_heads(m, c));
  return c;
}

Result<RecurrentConfig> RecurrentConfig::load_plamo(Metadata& m, int32_t width) {
  RecurrentConfig c;
  c.kind = Kind::kPlamo;
  HEARTH_TRY(m.small_or("ssm.group_count", 1, 0));  // written as 0: all heads share B and C
  c.num_k_heads = 1;
  HEARTH_TRY(load_heads(m, c));
  constexpr int32_t kLeastRank = 64, kWidthPerRank = 16;
  c.dt_rank = std::max(kLeastRank, width / kWidthPerRank);
  c.d_state = c.k_dim;
  return c;
}

Result<RecurrentConfig> RecurrentConfig::load_mamba(Metadata& m) {
  RecurrentConfig c;
  c.kind = Kind::kMamba;
  HEARTH_ASSIGN_OR_RETURN(c.taps, load_taps(m, "ssm.conv_kernel"));
  HEARTH_ASSIGN_OR_RETURN(c.inner, load_inner(m));
  HEARTH_ASSIGN_OR_RETURN(c.d_state, m.number("ssm.state_size", kernels::kMaxKeyDim));
  HEARTH_ASSIGN_OR_RETURN(c.dt_rank, m.number("ssm.time_step_rank", kMaxWidth));
  if (c.scan_values() <= kMaxStateValues) return c;
  return m.unsupported("ssm.state_size", fmt::format("a state of {} values", c.scan_values()));
}

Result<RecurrentConfig> RecurrentConfig::load_wkv(Metadata& m, int32_t width) {
  constexpr std::string_view kHead = "wkv.head_size", kShifts = "token_shift_count";
  RecurrentConfig c;
  c.kind = Kind::kWkv;
  c.taps = 2;
  c.inner = width;
  HEARTH_ASSIGN_OR_RETURN(c.k_dim, m.number(kHead, kernels::kMaxKeyDim));
  if (c.k_dim % kStateLanes != 0) {
    return m.unsupported(kHead, fmt::format("{}, want a multiple of {}", c.k_dim, kStateLanes));
  }
  if (width % c.k_dim != 0) {
    return m.corrupt(kHead, fmt::format("{}, want a divisor of the width {}", c.k_dim, width));
  }
  c.v_dim = c.k_dim;
  c.num_heads = c.num_k_heads = width / c.k_dim;
  HEARTH_ASSIGN_OR_RETURN(c.decay_rank, m.number("attention.decay_lora_rank", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(c.rate_rank, m.number("attention.iclr_lora_rank", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(c.v_rank, m.number("attention.value_residual_mix_lora_rank", kMaxWidth));
  HEARTH_ASSIGN_OR_RETURN(c.gate_rank, m.small_or("attention.gate_lora_rank", kMaxWidth, 0));
  HEARTH_ASSIGN_OR_RETURN(const int32_t shifts, m.number_or(kShifts, 2, 2));
  c.ffn_shift = shifts == 2;
  if (c.scan_values() <= kMaxStateValues) return c;
  return m.unsupported(kHead, fmt::format("a state of {} values", c.scan_values()));
}

Result<RecurrentConfig> RecurrentConfig::load_short_conv(Metadata& m, int32_t width) {
  RecurrentConfig c;
  c.kind = Kind::kShortConv;
  HEARTH_ASSIGN_OR_RETURN(c.taps, load_taps(m, "shortconv.l_cache"));
  c.inner = width;
  if (width % kStateLanes == 0) return c;
  return m.unsupported("embedding_length",
                       fmt::format("{}, want a multiple of {}", width, kStateLanes));
}

}  // namespace hearth::models
