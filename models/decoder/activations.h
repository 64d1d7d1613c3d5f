#pragma once
// Rows of one step, all f32, in one piece of device memory.

#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "models/decoder/decoder_config.h"

namespace hearth::models {

struct Activations {
  kernels::TensorView x;        ///< (tokens, width): the residual stream
  kernels::TensorView normed;   ///< (tokens, width)
  kernels::TensorView branch;   ///< (tokens, width), if config.has_branch()
  kernels::TensorView qkv;      ///< (tokens, qkv_width of the widest layer)
  kernels::TensorView attn;     ///< (tokens, out_width of the widest layer)
  kernels::TensorView gate_up;  ///< (tokens, 2 ffn_width of the widest layer), if gated_ffn
  kernels::TensorView gated;    ///< (tokens, ffn_width of the widest layer)
  struct Experts {
    kernels::TensorView logits;       ///< (tokens, count)
    kernels::TensorView ids;          ///< (tokens, used) i32
    kernels::TensorView shares;       ///< (tokens, used)
    kernels::TensorView gate_up;      ///< (tokens * used, 2 ffn_width), or ffn_width without gates
    kernels::TensorView gated;        ///< (tokens * used, ffn_width), if gated_ffn
    kernels::TensorView out;          ///< (tokens * used, width)
    kernels::TensorView sum;          ///< (tokens, width), if config.experts.apart; the three
                                      ///< above then are there if config.experts.some_hot
    kernels::TensorView shared_gate;  ///< (tokens, 1), if config.experts.shared_gate
  } experts;                          ///< if config.experts.count > 0
  struct Latent {
    kernels::TensorView q_a;    ///< (tokens, q_rank)
    kernels::TensorView q;      ///< (tokens, heads * (plain + rotated))
    kernels::TensorView full;   ///< (tokens, heads * (kv_rank + rotated))
    kernels::TensorView k;      ///< (tokens, kv_rank + rotated)
    kernels::TensorView out;    ///< (tokens, heads * v_dim)
    kernels::TensorView heads;  ///< (tokens, heads) i32: 0, 1, 2 ... in each row
  } latent;                     ///< if config.latent.kv_rank > 0
  struct PerLayer {
    kernels::TensorView inputs;     ///< (tokens, num_layers * per_layer_width)
    kernels::TensorView projected;  ///< the same
    kernels::TensorView gate_up;    ///< (tokens, 2 per_layer_width)
    kernels::TensorView gated;      ///< (tokens, per_layer_width)
  } per_layer;                      ///< if config.per_layer_width > 0
  struct AltUp {
    kernels::TensorView streams[2];  ///< (tokens, streams * width): before and after a layer
    kernels::TensorView router;      ///< (tokens, streams)
    kernels::TensorView coefs;       ///< (tokens, streams * streams)
    kernels::TensorView low;         ///< (tokens, laurel_rank)
  } altup;                           ///< if config.altup.streams > 0
  struct Recurrent {
    kernels::TensorView row;         ///< (tokens, recurrent.row_width())
    kernels::TensorView conv;        ///< (tokens, recurrent.conv_channels()); of kWkv the
                                     ///< feed-forward's input
    kernels::TensorView gates;       ///< (tokens, 2 num_heads), if recurrent.joined_gates
    kernels::TensorView low;         ///< (tokens, dt_rank + 2 d_state), of kMamba and kPlamo; of
                                     ///< kWkv (tokens, the largest rank)
    kernels::TensorView dt;          ///< (tokens, inner), or num_heads, likewise; of kKimiDelta
    kernels::TensorView out;         ///< (tokens, inner)
    kernels::TensorView conv_kept;   ///< (layers * 2 kKeptRows, conv_channels)
    kernels::TensorView scan_kept;   ///< (layers * 2 kKeptRows, kept_width)
    kernels::TensorView first_v;     ///< (tokens, inner), of kWkv: of the first layer
    kernels::TensorView shift_kept;  ///< (layers * 2 kKeptRows, inner), if recurrent.ffn_shift
  } recurrent;                       ///< if config.recurrent.kind is one
  struct Draft {
    kernels::TensorView hidden;    ///< (tokens + 2 * outputs, width): the step's final rows (with
                                   ///< heads x itself), rows that a draft continues, final rows of
                                   ///< the last draft
    kernels::TensorView pair;      ///< (tokens, 2 * width), with heads (outputs, 2 * width):
                                   ///< embedding, and hidden row before
    kernels::TensorView kept;      ///< (2 kKeptRows, width): of the row before
    kernels::TensorView rows[2];   ///< (outputs, width), of heads: results of their blocks
    kernels::TensorView features;  ///< (tokens, feature_width): rows of the target's layers, if
                                   ///< feature_width > 0
  } draft;                         ///< if config.draft_layer, or config.draft_heads
  kernels::TensorView q, gate;     ///< (tokens, q_width) of the widest layer, if gate_in_q
  std::vector<kernels::TensorView> cos_sin;  ///< per config.ropes: (tokens, rope.dim)
  kernels::TensorView out_x;                 ///< (outputs, width)
  kernels::TensorView out_norm;              ///< (outputs, width)

  /// Places the views from `base` on (null: only measures). Returns the bytes taken.
  uint64_t lay_out(const DecoderConfig& config, int32_t tokens, int32_t outputs, std::byte* base);
};

/// Rows of experts that have a table of their own: what their products write, in that table's
/// memory, and what both tables read or write, in host memory.
struct ExpertRows {
  kernels::TensorView in;      ///< (tokens, width)
  Activations::Experts views;  ///< without logits and shared_gate
  // If config.experts.some_hot: what the model's table chooses and computes, as views.ids and .out.
  kernels::TensorView hot_ids, hot_out;
  uint64_t shared_bytes = 0;

  /// Places the products' rows from `base` on, and those that are shared from `shared` on (null:
  /// only measures). Returns the bytes of the former.
  uint64_t lay_out(const DecoderConfig& config, int32_t tokens, std::byte* base, std::byte* shared);
};

}  // namespace hearth::models
