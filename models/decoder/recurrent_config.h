#pragma once
// The sizes of layers with a state per sequence in place of keys and values.

#include <cstdint>

#include "kernels/base/result.h"
#include "kernels/ops/recurrent_ops.h"

namespace hearth::models {

class Metadata;

/// All recurrent layers of a model have the same sizes (recurrent.cpp has the formulas).
struct RecurrentConfig {
  enum class Kind {
    kNone,
    kGatedDelta,  ///< gated delta net
    kKimiDelta,   ///< the same with a decay for each row of a head's state
    kMamba,       ///< a state for each channel
    kMamba2,      ///< a state for each head
    kPlamo,       ///< the same, with dt, B and C made as in kMamba
    kLightning,   ///< a state for each head, whose decay is a constant
    kShortConv,   ///< a gated convolution
    kWkv,         ///< a state for each head, from which a key is erased
  };
  Kind kind = Kind::kNone;
  int32_t taps = 1;   ///< rows that the convolution reads; 1: there is none
  int32_t inner = 0;  ///< values of a token before the output projection
  // ---- kGatedDelta, kKimiDelta, kMamba2, kPlamo, kLightning, kWkv: heads of a state of (k_dim,
  // v_dim)
  int32_t num_heads = 0;
  int32_t num_k_heads = 0;  ///< heads of q and k; Mamba-2 calls them groups of C and B
  int32_t k_dim = 0;
  int32_t v_dim = 0;
  bool tiled = false;         ///< HeadScanArgs::tiled
  bool joined_gates = false;  ///< ssm_ba: of each head of k the betas, then the alphas of its heads
  // ---- kMamba, kPlamo ----
  int32_t d_state = 0;  ///< kPlamo: k_dim
  int32_t dt_rank = 0;
  bool inner_norms = false;  ///< the rows that make dt, B and C are normed
  // ---- kWkv: of the pairs of small products; gate_rank 0: no gate ----
  int32_t decay_rank = 0, rate_rank = 0, v_rank = 0, gate_rank = 0;
  bool ffn_shift = false;  ///< the feed-forward reads its input mixed with the row before
  // ---- Tensors ----
  bool norm = false;  ///< ssm_norm: required; optional in other families

  int64_t k_width() const { return int64_t{num_k_heads} * k_dim; }
  int64_t conv_channels() const;
  int64_t conv_values() const { return (taps - 1) * conv_channels(); }
  int64_t scan_values() const;
  int64_t shift_values() const { return ffn_shift ? inner : 0; }
  /// Of one layer and sequence.
  int64_t state_bytes() const { return 4 * (conv_values() + scan_values() + shift_values()); }
  /// kWkv: rows that the convolution makes of one: of r, decay, k, v, rate and, if any, the gate.
  int32_t num_mixed() const { return gate_rank > 0 ? 6 : 5; }
  /// Rows of the layer's first product.
  int64_t in_width() const;
  /// Values of a row that holds that product and, after the gate, what the scan returns.
  int64_t row_width() const;
  int64_t kept_width() const;  ///< of the scan's kept rows; 0: no scan

  /// Reads the keys ssm.*. kCorrupt, kUnsupported as of Metadata.
  static Result<RecurrentConfig> load_gated_delta(Metadata& metadata);
  /// Reads kda.head_dim, too.
  static Result<RecurrentConfig> load_kimi_delta(Metadata& metadata, int32_t num_heads);
  static Result<RecurrentConfig> load_mamba(Metadata& metadata);
  static Result<RecurrentConfig> load_mamba2(Metadata& metadata);
  static Result<RecurrentConfig> load_plamo(Metadata& metadata, int32_t width);
  /// The sizes are those of attention's heads.
  static Result<RecurrentConfig> load_lightning(Metadata& metadata, int32_t num_heads,
                                                int32_t head_dim);
  /// Reads wkv.head_size, token_shift_count and the keys of ranks.
  static Result<RecurrentConfig> load_wkv(Metadata& metadata, int32_t width);
  /// Reads shortconv.l_cache.
  static Result<RecurrentConfig> load_short_conv(Metadata& metadata, int32_t width);
};

}  // namespace hearth::models
