#include "models/decoder/decoder_tensors.h"

#include <fmt/core.h>

#include <initializer_list>
#include <string>

#include "kernels/base/sizes.h"
#include "models/weights/file_info.h"
#include "models/weights/tensor_set.h"

namespace hearth::models {
namespace {

using Found = Result<const GgufTensor*>;

/// Finds the tensors of one layer.
class LayerFinder {
 public:
  LayerFinder(TensorSet& set, const DecoderConfig& config, int32_t index)
      : set_(set), c_(config), spec_(config.layers[index]), index_(index) {}

  Result<LayerTensors> find() {
    LayerTensors t{};
    HEARTH_TRY(find_recurrent(t));
    HEARTH_TRY(find_attention(t));
    HEARTH_TRY(find_feed_forward(t));
    HEARTH_TRY(find_per_layer(t));
    HEARTH_TRY(find_altup(t));
    // A redundant buffer from early converters: the frequencies, which metadata defines.
    set_.ignore(name("attn_rot_embd"));
    set_.ignore(name("attn_rot_embd.weight"));
    return t;
  }

 private:
  std::string name(std::string_view rest) const { return fmt::format("blk.{}.{}", index_, rest); }
  Found want(std::string_view rest, std::initializer_list<int64_t> dims) {
    return set_.want(name(rest), dims);
  }
  Found maybe(std::string_view rest, std::initializer_list<int64_t> dims) {
    return set_.want_if_present(name(rest), dims);
  }
  /// Required if `needed`; else not requested, so a file that has the tensor is rejected.
  Found want_if(bool needed, std::string_view rest, std::initializer_list<int64_t> dims) {
    if (!needed) return nullptr;
    return want(rest, dims);
  }

  Found bias(bool required, std::string_view rest, int64_t size) {
    return required ? want(rest, {size}) : maybe(rest, {size});
  }

  /// The norm after a branch, in a family that has them.
  Found post_norm(std::string_view rest) {
    return want_if(c_.post_norms, fmt::format("{}{}", rest, c_.plain_post_norms ? "" : ".weight"),
                   {c_.width});
  }

  Result<void> find_recurrent(LayerTensors& t) {
    if (!spec_.recurrent) return {};
    const RecurrentConfig& r = c_.recurrent;
    LayerTensors::Recurrent& out = t.recurrent;
    const int64_t width = c_.width, inner = r.inner, channels = r.conv_channels();
    HEARTH_ASSIGN_OR_RETURN(t.attn_norm, want("attn_norm.weight", {width}));
    HEARTH_ASSIGN_OR_RETURN(t.attn_norm_bias,
                            want_if(c_.norm == Norm::kLayer, "attn_norm.bias", {width}));
    HEARTH_ASSIGN_OR_RETURN(t.attn_post_norm, post_norm("post_attention_norm"));
    if (r.kind == RecurrentConfig::Kind::kShortConv) {
      HEARTH_ASSIGN_OR_RETURN(out.in[0], want("shortconv.in_proj.weight", {width, 3 * inner}));
      HEARTH_ASSIGN_OR_RETURN(out.conv, want("shortconv.conv.weight", {r.taps, inner}));
      HEARTH_ASSIGN_OR_RETURN(out.out, want("shortconv.out_proj.weight", {inner, width}));
      return {};
    }
    if (r.kind == RecurrentConfig::Kind::kKimiDelta) return find_kimi_delta(out);
    if (r.kind == RecurrentConfig::Kind::kLightning) return find_lightning(out);
    if (r.kind == RecurrentConfig::Kind::kWkv) return find_wkv(out);
    HEARTH_ASSIGN_OR_RETURN(out.conv, want("ssm_conv1d.weight", {r.taps, channels}));
    HEARTH_ASSIGN_OR_RETURN(out.conv_bias, want_if(r.kind == RecurrentConfig::Kind::kMamba ||
                                                       r.kind == RecurrentConfig::Kind::kMamba2,
                                                   "ssm_conv1d.bias", {channels}));
    HEARTH_ASSIGN_OR_RETURN(out.out, want("ssm_out.weight", {inner, width}));
    switch (r.kind) {
      case RecurrentConfig::Kind::kGatedDelta: return find_gated_delta(out);
      case RecurrentConfig::Kind::kMamba: return find_mamba(out);
      case RecurrentConfig::Kind::kMamba2: return find_mamba2(out);
      case RecurrentConfig::Kind::kPlamo: return find_plamo(out);
      case RecurrentConfig::Kind::kNone:
      case RecurrentConfig::Kind::kKimiDelta:
      case RecurrentConfig::Kind::kLightning:
      case RecurrentConfig::Kind::kWkv:
      case RecurrentConfig::Kind::kShortConv: break;
    }
    return {};
  }

  Result<void> find_gated_delta(LayerTensors::Recurrent& out) {
    const RecurrentConfig& r = c_.recurrent;
    HEARTH_ASSIGN_OR_RETURN(out.in[0], want("attn_qkv.weight", {c_.width, r.conv_channels()}));
    if (r.joined_gates) {
      HEARTH_ASSIGN_OR_RETURN(out.in[1],
                              want("ssm_ba.weight", {c_.width, 2 * int64_t{r.num_heads}}));
      HEARTH_ASSIGN_OR_RETURN(out.in[2], want("attn_gate.weight", {c_.width, r.inner}));
    } else {
      HEARTH_ASSIGN_OR_RETURN(out.in[1], want("ssm_beta.weight", {c_.width, r.num_heads}));
      HEARTH_ASSIGN_OR_RETURN(out.in[2], want("ssm_alpha.weight", {c_.width, r.num_heads}));
      HEARTH_ASSIGN_OR_RETURN(out.in[3], want("attn_gate.weight", {c_.width, r.inner}));
    }
    HEARTH_ASSIGN_OR_RETURN(out.dt_bias, want("ssm_dt.bias", {r.num_heads}));
    HEARTH_ASSIGN_OR_RETURN(out.a, want("ssm_a", {r.num_heads}));
    HEARTH_ASSIGN_OR_RETURN(out.norm, want("ssm_norm.weight", {r.v_dim}));
    return {};
  }

  Result<void> find_kimi_delta(LayerTensors::Recurrent& out) {
    const RecurrentConfig& r = c_.recurrent;
    const int64_t width = c_.width, inner = r.inner, low = r.k_dim;
    HEARTH_ASSIGN_OR_RETURN(out.in[0], want("attn_q.weight", {width, inner}));
    HEARTH_ASSIGN_OR_RETURN(out.in[1], want("attn_k.weight", {width, inner}));
    HEARTH_ASSIGN_OR_RETURN(out.in[2], want("attn_v.weight", {width, inner}));
    HEARTH_ASSIGN_OR_RETURN(out.in[3], want("ssm_f_a.weight", {width, low}));
    HEARTH_ASSIGN_OR_RETURN(out.in[4], want("ssm_g_a.weight", {width, low}));
    HEARTH_ASSIGN_OR_RETURN(out.in[5], want("ssm_beta.weight", {width, r.num_heads}));
    HEARTH_ASSIGN_OR_RETURN(out.conv, want("ssm_conv1d_q.weight", {r.taps, 1, inner}));
    HEARTH_ASSIGN_OR_RETURN(out.conv_k, want("ssm_conv1d_k.weight", {r.taps, 1, inner}));
    HEARTH_ASSIGN_OR_RETURN(out.conv_v, want("ssm_conv1d_v.weight", {r.taps, 1, inner}));
    HEARTH_ASSIGN_OR_RETURN(out.dt, want("ssm_f_b.weight", {low, inner}));
    HEARTH_ASSIGN_OR_RETURN(out.dt_bias, want("ssm_dt.bias", {inner}));
    HEARTH_ASSIGN_OR_RETURN(out.a, want("ssm_a", {1, r.num_heads}));
    HEARTH_ASSIGN_OR_RETURN(out.gate, want("ssm_g_b.weight", {low, inner}));
    HEARTH_ASSIGN_OR_RETURN(out.norm, want("ssm_norm.weight", {r.v_dim}));
    HEARTH_ASSIGN_OR_RETURN(out.out, want("attn_output.weight", {inner, width}));
    return {};
  }

  Result<void> find_lightning(LayerTensors::Recurrent& out) {
    const int64_t width = c_.width, inner = c_.recurrent.inner;
    HEARTH_ASSIGN_OR_RETURN(out.in[0], want("attn_qkv.weight", {width, 3 * inner}));
    HEARTH_ASSIGN_OR_RETURN(out.in[1], want("attn_gate.weight", {width, inner}));
    HEARTH_ASSIGN_OR_RETURN(out.norm, want("attn_norm_2.weight", {inner}));
    HEARTH_ASSIGN_OR_RETURN(out.out, want("attn_output.weight", {inner, width}));
    return {};
  }

  Result<void> find_wkv(LayerTensors::Recurrent& out) {
    const RecurrentConfig& r = c_.recurrent;
    LayerTensors::Recurrent::Wkv& t = out.wkv;
    const int64_t width = c_.width, inner = r.inner;
    HEARTH_ASSIGN_OR_RETURN(out.conv,
                            want("time_mix_lerp_fused.weight", {width, 1, 1, r.num_mixed()}));
    HEARTH_ASSIGN_OR_RETURN(t.r, want("time_mix_receptance.weight", {width, inner}));
    HEARTH_ASSIGN_OR_RETURN(t.k, want("time_mix_key.weight", {width, inner}));
    HEARTH_ASSIGN_OR_RETURN(t.v, want("time_mix_value.weight", {width, inner}));
    HEARTH_ASSIGN_OR_RETURN(out.out, want("time_mix_output.weight", {inner, width}));
    HEARTH_TRY(find_pair('w', r.decay_rank, {&t.decay_in, &t.decay_out, &t.decay_bias}));
    HEARTH_TRY(find_pair('a', r.rate_rank, {&t.rate_in, &t.rate_out, &t.rate_bias}));
    if (index_ > 0) {
      HEARTH_TRY(find_pair('v', r.v_rank, {&t.v_in, &t.v_out, &t.v_bias}));
    } else {
      // Written for the first layer, too, and used by none: its values are those that others mix.
      for (const char* rest : {"time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight"}) {
        set_.ignore(name(rest));
      }
    }
    if (r.gate_rank > 0)
      HEARTH_TRY(find_pair('g', r.gate_rank, {&t.gate_in, &t.gate_out, nullptr}));
    HEARTH_ASSIGN_OR_RETURN(t.erased_scale, want("time_mix_k_k.weight", {inner}));
    HEARTH_ASSIGN_OR_RETURN(t.k_scale, want("time_mix_k_a.weight", {inner}));
    HEARTH_ASSIGN_OR_RETURN(t.bonus, want("time_mix_r_k.weight", {inner}));
    const bool normed = r.norm || set_.has(name("time_mix_ln.weight"));
    HEARTH_ASSIGN_OR_RETURN(t.norm, want_if(normed, "time_mix_ln.weight", {inner}));
    HEARTH_ASSIGN_OR_RETURN(t.norm_bias, want_if(normed, "time_mix_ln.bias", {inner}));
    return {};
  }

  struct PairTensors {
    const GgufTensor **in, **out, **bias;  ///< bias null: there is none
  };
  /// Two products through a row of `rank` values, time_mix_L1 and _L2, and the bias _L0.
  Result<void> find_pair(char letter, int32_t rank, const PairTensors& to) {
    const auto part = [letter](int number) {
      return fmt::format("time_mix_{}{}.weight", letter, number);
    };
    const int64_t inner = c_.recurrent.inner;
    HEARTH_ASSIGN_OR_RETURN(*to.in, want(part(1), {c_.width, rank}));
    HEARTH_ASSIGN_OR_RETURN(*to.out, want(part(2), {rank, inner}));
    if (to.bias == nullptr) return {};
    HEARTH_ASSIGN_OR_RETURN(*to.bias, want(part(0), {inner}));
    return {};
  }

  Result<void> find_mamba2(LayerTensors::Recurrent& out) {
    const RecurrentConfig& r = c_.recurrent;
    HEARTH_ASSIGN_OR_RETURN(out.in[0], want("ssm_in.weight", {c_.width, r.in_width()}));
    HEARTH_ASSIGN_OR_RETURN(out.dt_bias, want("ssm_dt.bias", {r.num_heads}));
    HEARTH_ASSIGN_OR_RETURN(out.a, want("ssm_a", {1, r.num_heads}));
    HEARTH_ASSIGN_OR_RETURN(out.skip, want("ssm_d", {1, r.num_heads}));
    const int64_t group = r.inner / r.num_k_heads;
    HEARTH_ASSIGN_OR_RETURN(out.norm, r.norm ? want("ssm_norm.weight", {group, r.num_k_heads})
                                             : maybe("ssm_norm.weight", {group, r.num_k_heads}));
    return {};
  }

  Result<void> find_plamo(LayerTensors::Recurrent& out) {
    const RecurrentConfig& r = c_.recurrent;
    const int64_t low = r.dt_rank + 2 * int64_t{r.d_state};
    HEARTH_ASSIGN_OR_RETURN(out.in[0], want("ssm_in.weight", {c_.width, r.in_width()}));
    HEARTH_ASSIGN_OR_RETURN(out.x, want("ssm_x.weight", {r.inner, low}));
    HEARTH_ASSIGN_OR_RETURN(out.dt, want("ssm_dt.weight", {r.dt_rank, r.num_heads}));
    HEARTH_ASSIGN_OR_RETURN(out.dt_bias, want("ssm_dt.bias", {r.num_heads}));
    HEARTH_ASSIGN_OR_RETURN(out.a, want("ssm_a", {r.num_heads}));
    HEARTH_ASSIGN_OR_RETURN(out.skip, want("ssm_d", {r.num_heads}));
    HEARTH_ASSIGN_OR_RETURN(out.dt_norm, want("ssm_dt_norm", {r.dt_rank}));
    HEARTH_ASSIGN_OR_RETURN(out.b_norm, want("ssm_b_norm", {r.d_state}));
    HEARTH_ASSIGN_OR_RETURN(out.c_norm, want("ssm_c_norm", {r.d_state}));
    return {};
  }

  Result<void> find_mamba(LayerTensors::Recurrent& out) {
    const RecurrentConfig& r = c_.recurrent;
    const int64_t low = r.dt_rank + 2 * int64_t{r.d_state};
    HEARTH_ASSIGN_OR_RETURN(out.in[0], want("ssm_in.weight", {c_.width, r.in_width()}));
    HEARTH_ASSIGN_OR_RETURN(out.x, want("ssm_x.weight", {r.inner, low}));
    HEARTH_ASSIGN_OR_RETURN(out.dt, want("ssm_dt.weight", {r.dt_rank, r.inner}));
    HEARTH_ASSIGN_OR_RETURN(out.dt_bias, want("ssm_dt.bias", {r.inner}));
    HEARTH_ASSIGN_OR_RETURN(out.a, want("ssm_a", {r.d_state, r.inner}));
    HEARTH_ASSIGN_OR_RETURN(out.skip, want("ssm_d", {r.inner}));
    HEARTH_ASSIGN_OR_RETURN(out.dt_norm, want_if(r.inner_norms, "ssm_dt_norm.weight", {r.dt_rank}));
    HEARTH_ASSIGN_OR_RETURN(out.b_norm, want_if(r.inner_norms, "ssm_b_norm.weight", {r.d_state}));
    HEARTH_ASSIGN_OR_RETURN(out.c_norm, want_if(r.inner_norms, "ssm_c_norm.weight", {r.d_state}));
    return {};
  }

  Result<void> find_attention(LayerTensors& t) {
    if (spec_.num_heads == 0 && !spec_.linear) return {};
    HEARTH_ASSIGN_OR_RETURN(t.attn_norm, want_if(c_.pre_norms, "attn_norm.weight", {c_.width}));
    HEARTH_ASSIGN_OR_RETURN(t.attn_norm_bias,
                            want_if(c_.norm == Norm::kLayer, "attn_norm.bias", {c_.width}));
    if (spec_.linear) {
      HEARTH_ASSIGN_OR_RETURN(t.attn_out, want("attn_output.weight", {c_.width, c_.width}));
      HEARTH_ASSIGN_OR_RETURN(t.attn_bias, maybe("attn_output.bias", {c_.width}));
      return {};
    }
    if (c_.latent.kv_rank > 0) return find_latent(t);
    const int64_t joined = spec_.qkv_width();
    // Files of any family may join q, k and v. A family that always does gets the error of the
    // joined tensor.
    const bool separate = set_.has(name("attn_q.weight")) || !c_.fused_qkv;
    HEARTH_ASSIGN_OR_RETURN(t.fused_qkv, separate ? maybe("attn_qkv.weight", {c_.width, joined})
                                                  : want("attn_qkv.weight", {c_.width, joined}));
    if (t.fused_qkv != nullptr) {
      HEARTH_ASSIGN_OR_RETURN(t.fused_qkv_bias, maybe("attn_qkv.bias", {joined}));
      if (c_.qkv_bias && t.fused_qkv_bias == nullptr) return missing("attn_qkv.bias", joined);
    } else {
      HEARTH_TRY(find_separate_qkv(t));
    }
    if (c_.qk_norm == QkNorm::kEachHead) {
      HEARTH_ASSIGN_OR_RETURN(t.q_norms,
                              want("attn_q_norm.weight", {spec_.kv.k_dim, spec_.num_heads}));
      HEARTH_ASSIGN_OR_RETURN(t.k_norms,
                              want("attn_k_norm.weight", {spec_.kv.k_dim, spec_.kv.num_kv_heads}));
    }
    const bool heads = c_.qk_norm != QkNorm::kWidth;
    const bool normed =
        c_.qk_norm != QkNorm::kNone && c_.qk_norm != QkNorm::kEachHead &&
        (c_.qk_norm != QkNorm::kHeadsIfPresent || set_.has(name("attn_q_norm.weight")));
    HEARTH_ASSIGN_OR_RETURN(t.q_norm, want_if(normed, "attn_q_norm.weight",
                                              {heads ? spec_.kv.k_dim : spec_.q_width()}));
    HEARTH_ASSIGN_OR_RETURN(t.k_norm, want_if(normed && spec_.stores_kv(), "attn_k_norm.weight",
                                              {heads ? spec_.kv.k_dim : spec_.kv.k_width()}));
    HEARTH_ASSIGN_OR_RETURN(
        t.attn_gate, want_if(c_.attention_gate, "attn_gate.weight", {c_.width, spec_.out_width()}));
    HEARTH_ASSIGN_OR_RETURN(t.attn_out, want("attn_output.weight", {spec_.out_width(), c_.width}));
    HEARTH_ASSIGN_OR_RETURN(t.attn_bias, bias(c_.out_bias, "attn_output.bias", c_.width));
    HEARTH_ASSIGN_OR_RETURN(t.sinks, want_if(c_.sinks, "attn_sinks.weight", {spec_.num_heads}));
    if (!spec_.recurrent) {
      HEARTH_ASSIGN_OR_RETURN(t.attn_post_norm, post_norm("post_attention_norm"));
    }
    return {};
  }

  Result<void> find_latent(LayerTensors& t) {
    const LatentAttention& a = c_.latent;
    const int64_t q_width = int64_t{spec_.num_heads} * a.head_dim();
    if (a.q_rank > 0) {
      HEARTH_ASSIGN_OR_RETURN(t.q_a, want("attn_q_a.weight", {c_.width, a.q_rank}));
      HEARTH_ASSIGN_OR_RETURN(t.q_a_norm, want("attn_q_a_norm.weight", {a.q_rank}));
      HEARTH_ASSIGN_OR_RETURN(t.q, want("attn_q_b.weight", {a.q_rank, q_width}));
    } else {
      HEARTH_ASSIGN_OR_RETURN(t.q, want("attn_q.weight", {c_.width, q_width}));
    }
    HEARTH_ASSIGN_OR_RETURN(t.kv_a,
                            want("attn_kv_a_mqa.weight", {c_.width, a.kv_rank + a.rotated}));
    HEARTH_ASSIGN_OR_RETURN(t.kv_a_norm, want("attn_kv_a_norm.weight", {a.kv_rank}));
    HEARTH_ASSIGN_OR_RETURN(t.k_b, want("attn_k_b.weight", {a.plain, a.kv_rank, spec_.num_heads}));
    HEARTH_ASSIGN_OR_RETURN(t.v_b, want("attn_v_b.weight", {a.kv_rank, a.v_dim, spec_.num_heads}));
    HEARTH_ASSIGN_OR_RETURN(
        t.attn_out, want("attn_output.weight", {int64_t{spec_.num_heads} * a.v_dim, c_.width}));
    return {};
  }

  Result<void> find_separate_qkv(LayerTensors& t) {
    const int64_t q_rows = spec_.q_width() * (c_.gate_in_q ? 2 : 1);
    HEARTH_ASSIGN_OR_RETURN(t.q, want("attn_q.weight", {c_.width, q_rows}));
    if (!spec_.stores_kv()) {
      // Some files have what only a layer with keys of its own would use.
      for (const char* rest : {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"}) {
        set_.ignore(name(rest));
      }
      return {};
    }
    HEARTH_ASSIGN_OR_RETURN(t.k, want("attn_k.weight", {c_.width, spec_.kv.k_width()}));
    const bool v_is_k = spec_.v_may_be_k && !set_.has(name("attn_v.weight"));
    HEARTH_ASSIGN_OR_RETURN(t.v, want_if(!v_is_k, "attn_v.weight", {c_.width, spec_.kv.v_width()}));
    HEARTH_ASSIGN_OR_RETURN(t.q_bias, maybe("attn_q.bias", {spec_.q_width()}));
    HEARTH_ASSIGN_OR_RETURN(t.k_bias, maybe("attn_k.bias", {spec_.kv.k_width()}));
    HEARTH_ASSIGN_OR_RETURN(t.v_bias, maybe("attn_v.bias", {spec_.kv.v_width()}));
    if (c_.qkv_bias && t.q_bias == nullptr) return missing("attn_q.bias", spec_.q_width());
    if (c_.qkv_bias && t.k_bias == nullptr) return missing("attn_k.bias", spec_.kv.k_width());
    if (c_.qkv_bias && t.v_bias == nullptr) return missing("attn_v.bias", spec_.kv.v_width());
    return all_or_none({t.q_bias, t.k_bias, t.v_bias});
  }

  Result<void> find_feed_forward(LayerTensors& t) {
    if (!spec_.experts && spec_.ffn_width == 0) return {};
    const bool normed = c_.pre_norms && !c_.ffn_norm.empty();
    const std::string ffn_norm =
        fmt::format("{}{}", c_.ffn_norm, c_.plain_ffn_norm ? "" : ".weight");
    HEARTH_ASSIGN_OR_RETURN(t.ffn_norm, want_if(normed, ffn_norm, {c_.width}));
    HEARTH_ASSIGN_OR_RETURN(t.ffn_norm_bias,
                            want_if(normed && c_.norm == Norm::kLayer,
                                    fmt::format("{}.bias", c_.ffn_norm), {c_.width}));
    HEARTH_ASSIGN_OR_RETURN(t.ffn_post_norm, post_norm("post_ffw_norm"));
    if (spec_.experts) HEARTH_TRY(find_experts(t));
    if (spec_.experts && !c_.experts.with_dense) return find_shared_expert(t);
    if (c_.recurrent.ffn_shift) {
      HEARTH_ASSIGN_OR_RETURN(t.recurrent.shift, want("channel_mix_lerp_k.weight", {c_.width}));
      HEARTH_ASSIGN_OR_RETURN(t.up, want("channel_mix_key.weight", {c_.width, spec_.ffn_width}));
      HEARTH_ASSIGN_OR_RETURN(t.down,
                              want("channel_mix_value.weight", {spec_.ffn_width, c_.width}));
      return {};
    }
    if (c_.fused_gate_up) {
      HEARTH_ASSIGN_OR_RETURN(t.fused_gate_up,
                              want("ffn_up.weight", {c_.width, 2 * int64_t{spec_.ffn_width}}));
    } else {
      HEARTH_ASSIGN_OR_RETURN(
          t.gate, want_if(c_.gated_ffn, "ffn_gate.weight", {c_.width, spec_.ffn_width}));
      HEARTH_ASSIGN_OR_RETURN(t.up, want("ffn_up.weight", {c_.width, spec_.ffn_width}));
      HEARTH_ASSIGN_OR_RETURN(t.up_bias, bias(c_.ffn_bias, "ffn_up.bias", spec_.ffn_width));
      if (c_.gated_ffn) {
        HEARTH_ASSIGN_OR_RETURN(t.gate_bias, maybe("ffn_gate.bias", {spec_.ffn_width}));
        HEARTH_TRY(all_or_none({t.gate_bias, t.up_bias}));
      }
    }
    HEARTH_ASSIGN_OR_RETURN(t.down, want("ffn_down.weight", {spec_.ffn_width, c_.width}));
    HEARTH_ASSIGN_OR_RETURN(t.down_bias, bias(c_.ffn_bias, "ffn_down.bias", c_.width));
    return {};
  }

  Result<void> find_experts(LayerTensors& t) {
    const ExpertConfig& e = c_.experts;
    HEARTH_ASSIGN_OR_RETURN(t.router, want("ffn_gate_inp.weight", {c_.width, e.count}));
    // Files of any family may join gate and up, expert by expert.
    if (c_.gated_ffn) {
      HEARTH_ASSIGN_OR_RETURN(
          t.gate_up_experts,
          maybe("ffn_gate_up_exps.weight", {c_.width, 2 * int64_t{e.ffn_width}, e.count}));
    }
    const bool separate = t.gate_up_experts == nullptr;
    HEARTH_ASSIGN_OR_RETURN(t.gate_experts,
                            want_if(separate && c_.gated_ffn, "ffn_gate_exps.weight",
                                    {c_.width, e.ffn_width, e.count}));
    HEARTH_ASSIGN_OR_RETURN(
        t.up_experts, want_if(separate, "ffn_up_exps.weight", {c_.width, e.ffn_width, e.count}));
    HEARTH_ASSIGN_OR_RETURN(t.down_experts,
                            want("ffn_down_exps.weight", {e.ffn_width, c_.width, e.count}));
    HEARTH_ASSIGN_OR_RETURN(t.router_bias, want_if(e.biases, "ffn_gate_inp.bias", {e.count}));
    HEARTH_ASSIGN_OR_RETURN(t.gate_experts_bias,
                            want_if(e.biases, "ffn_gate_exps.bias", {e.ffn_width, e.count}));
    HEARTH_ASSIGN_OR_RETURN(t.up_experts_bias,
                            want_if(e.biases, "ffn_up_exps.bias", {e.ffn_width, e.count}));
    HEARTH_ASSIGN_OR_RETURN(t.down_experts_bias,
                            want_if(e.biases, "ffn_down_exps.bias", {c_.width, e.count}));
    HEARTH_ASSIGN_OR_RETURN(t.selection_bias, e.selection_bias
                                                  ? want("exp_probs_b.bias", {e.count})
                                                  : maybe("exp_probs_b.bias", {e.count}));
    const bool with_dense = e.with_dense;
    HEARTH_ASSIGN_OR_RETURN(t.router_norm, want_if(with_dense, "ffn_gate_inp.scale", {c_.width}));
    HEARTH_ASSIGN_OR_RETURN(t.expert_norm,
                            want_if(with_dense, "pre_ffw_norm_2.weight", {c_.width}));
    HEARTH_ASSIGN_OR_RETURN(t.dense_post_norm,
                            want_if(with_dense, "post_ffw_norm_1.weight", {c_.width}));
    HEARTH_ASSIGN_OR_RETURN(t.expert_post_norm,
                            want_if(with_dense, "post_ffw_norm_2.weight", {c_.width}));
    HEARTH_ASSIGN_OR_RETURN(t.expert_scale, want_if(with_dense, "ffn_down_exps.scale", {e.count}));
    return {};
  }

  Result<void> find_shared_expert(LayerTensors& t) {
    const ExpertConfig& e = c_.experts;
    const int64_t shared = spec_.ffn_width;
    if (shared == 0) return {};
    HEARTH_ASSIGN_OR_RETURN(t.shared_gate,
                            want_if(e.shared_gate, "ffn_gate_inp_shexp.weight", {c_.width}));
    HEARTH_ASSIGN_OR_RETURN(t.gate,
                            want_if(c_.gated_ffn, "ffn_gate_shexp.weight", {c_.width, shared}));
    HEARTH_ASSIGN_OR_RETURN(t.up, want("ffn_up_shexp.weight", {c_.width, shared}));
    HEARTH_ASSIGN_OR_RETURN(t.down, want("ffn_down_shexp.weight", {shared, c_.width}));
    return {};
  }

  Result<void> find_per_layer(LayerTensors& t) {
    if (c_.layer_scale) {
      HEARTH_ASSIGN_OR_RETURN(t.scale, maybe("layer_output_scale.weight", {1}));
    }
    const int64_t per_layer = c_.per_layer_width;
    if (per_layer == 0) return {};
    HEARTH_ASSIGN_OR_RETURN(t.per_layer_gate, want("inp_gate.weight", {c_.width, per_layer}));
    HEARTH_ASSIGN_OR_RETURN(t.per_layer_out, want("proj.weight", {per_layer, c_.width}));
    HEARTH_ASSIGN_OR_RETURN(t.per_layer_post_norm, want("post_norm.weight", {c_.width}));
    return {};
  }

  Result<void> find_altup(LayerTensors& t) {
    const int64_t n = c_.altup.streams;
    const int64_t rank = c_.altup.laurel_rank;
    if (n == 0) return {};
    HEARTH_ASSIGN_OR_RETURN(t.altup_router_norm, want("altup_router_norm.weight", {c_.width}));
    HEARTH_ASSIGN_OR_RETURN(t.altup_router, want("altup_router.weight", {c_.width, n}));
    HEARTH_ASSIGN_OR_RETURN(t.altup_predict, want("altup_predict_coef.weight", {n, n * n}));
    HEARTH_ASSIGN_OR_RETURN(t.altup_correct, want("altup_correct_coef.weight", {n, n}));
    HEARTH_ASSIGN_OR_RETURN(t.altup_scale, want("altup_correct_scale.weight", {c_.width}));
    HEARTH_ASSIGN_OR_RETURN(t.laurel_in, want("laurel_l.weight", {c_.width, rank}));
    HEARTH_ASSIGN_OR_RETURN(t.laurel_out, want("laurel_r.weight", {rank, c_.width}));
    HEARTH_ASSIGN_OR_RETURN(t.laurel_post_norm, want("laurel_post_norm.weight", {c_.width}));
    return {};
  }

  Error missing(std::string_view rest, int64_t size) const {
    return Error::corrupt(fmt::format("{}: missing, want shape [{}]", name(rest), size));
  }

  static Result<void> all_or_none(std::initializer_list<const GgufTensor*> tensors) {
    const GgufTensor* present = nullptr;
    size_t count = 0;
    for (const GgufTensor* tensor : tensors) {
      if (tensor == nullptr) continue;
      present = tensor;
      ++count;
    }
    if (count == 0 || count == tensors.size()) return {};
    return Error::unsupported(
        fmt::format("{}: a bias without those it is joined with", present->name));
  }

  TensorSet& set_;
  const DecoderConfig& c_;
  const LayerSpec& spec_;
  const int32_t index_;
};

/// The embedding, with one row per token of the vocabulary.
Result<const GgufTensor*> find_embedding(const GgufFile& file, TensorSet& set, int32_t width) {
  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  const int64_t vocab_size = embedding != nullptr ? embedding->dims[1] : 1;
  HEARTH_ASSIGN_OR_RETURN(embedding, set.want("token_embd.weight", {width, vocab_size}));
  if (vocab_size > INT32_MAX) {
    return Error::unsupported(
        fmt::format("token_embd.weight: shape {}, want fewer than 2^31 rows", embedding->shape()));
  }
  if (!file.has("tokenizer.ggml.tokens")) return embedding;
  HEARTH_ASSIGN_OR_RETURN(const auto tokens, file.get<GgufStrings>("tokenizer.ggml.tokens"));
  if (std::ssize(tokens) == vocab_size) return embedding;
  return Error::corrupt(
      fmt::format("token_embd.weight: shape {}, want a row for each of the {} tokens",
                  embedding->shape(), tokens.size()));
}

Result<void> find_rope_tensors(TensorSet& set, const DecoderConfig& c, DecoderTensors& t) {
  if (c.ropes.empty()) return {};
  const int32_t pairs = c.ropes.front().dim / 2;
  if (c.needs_rope_divisors) {
    HEARTH_ASSIGN_OR_RETURN(t.rope_divisors, set.want("rope_freqs.weight", {pairs}));
  } else if (c.rope_divisors) {
    HEARTH_ASSIGN_OR_RETURN(t.rope_divisors, set.want_if_present("rope_freqs.weight", {pairs}));
  }
  const bool needed = c.ropes.front().needs_divisors;
  if (!c.long_rope && !needed) return {};
  HEARTH_ASSIGN_OR_RETURN(t.rope_long,
                          needed ? set.want("rope_factors_long.weight", {pairs})
                                 : set.want_if_present("rope_factors_long.weight", {pairs}));
  if (t.rope_long == nullptr) return {};
  HEARTH_ASSIGN_OR_RETURN(t.rope_short, set.want("rope_factors_short.weight", {pairs}));
  return {};
}

Result<void> find_draft(TensorSet& set, const DecoderConfig& c, int64_t vocab_size,
                        DraftTensors& t) {
  const auto name = [&](std::string_view rest) {
    return fmt::format("blk.{}.nextn.{}.weight", c.num_layers, rest);
  };
  const int64_t width = c.width;
  HEARTH_ASSIGN_OR_RETURN(t.pair_proj, set.want(name("eh_proj"), {2 * width, width}));
  HEARTH_ASSIGN_OR_RETURN(t.embedding_norm, set.want(name("enorm"), {width}));
  HEARTH_ASSIGN_OR_RETURN(t.hidden_norm, set.want(name("hnorm"), {width}));
  HEARTH_ASSIGN_OR_RETURN(t.embedding,
                          set.want_if_present(name("embed_tokens"), {width, vocab_size}));
  HEARTH_ASSIGN_OR_RETURN(t.head_norm, set.want_if_present(name("shared_head_norm"), {width}));
  HEARTH_ASSIGN_OR_RETURN(t.head,
                          set.want_if_present(name("shared_head_head"), {width, vocab_size}));
  return {};
}

/// What all layers use of per-layer embeddings and of AltUp.
Result<void> find_inputs(TensorSet& set, const DecoderConfig& c, DecoderTensors& t) {
  const int64_t vocab_size = t.embedding->dims[1];
  const int64_t all = int64_t{c.per_layer_width} * c.num_layers;
  if (all > 0) {
    HEARTH_ASSIGN_OR_RETURN(t.per_layer_embedding,
                            set.want("per_layer_token_embd.weight", {all, vocab_size}));
    HEARTH_ASSIGN_OR_RETURN(t.per_layer_projection,
                            set.want("per_layer_model_proj.weight", {c.width, all}));
    HEARTH_ASSIGN_OR_RETURN(t.per_layer_norm,
                            set.want("per_layer_proj_norm.weight", {c.per_layer_width}));
  }
  if (c.altup.streams == 0) return {};
  const int64_t others = c.altup.streams - 1;
  HEARTH_ASSIGN_OR_RETURN(t.altup_in, set.want("altup_proj.weight", {c.width, c.width, others}));
  HEARTH_ASSIGN_OR_RETURN(t.altup_out,
                          set.want("altup_unembd_proj.weight", {c.width, c.width, others}));
  return {};
}

}  // namespace

Result<DecoderTensors> DecoderTensors::find(const GgufFile& file, const DecoderConfig& c) {
  TensorSet set(file);
  DecoderTensors t{};
  HEARTH_ASSIGN_OR_RETURN(t.embedding, find_embedding(file, set, c.width));
  if (c.weighted_embedding_norm) {
    HEARTH_ASSIGN_OR_RETURN(t.embedding_norm, set.want("token_embd_norm.weight", {c.width}));
    HEARTH_ASSIGN_OR_RETURN(t.embedding_norm_bias, set.want("token_embd_norm.bias", {c.width}));
  }
  HEARTH_TRY(find_rope_tensors(set, c, t));
  HEARTH_TRY(find_inputs(set, c, t));
  for (int32_t i = 0; i < size32(c.layers); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const LayerTensors layer, LayerFinder(set, c, i).find());
    t.layers.push_back(layer);
  }
  const int64_t vocab_size = t.embedding->dims[1];
  if (c.draft_layer) HEARTH_TRY(find_draft(set, c, vocab_size, t.draft));
  for (int32_t i = c.draft_layer ? 1 : 0; i < c.num_draft_layers; ++i) {
    set.ignore_all(fmt::format("blk.{}.", c.num_layers + i));
  }
  HEARTH_ASSIGN_OR_RETURN(t.output_norm,
                          set.want(fmt::format("{}.weight", c.output_norm), {c.width}));
  if (c.norm == Norm::kLayer) {
    HEARTH_ASSIGN_OR_RETURN(t.output_norm_bias, set.want("output_norm.bias", {c.width}));
  }
  HEARTH_ASSIGN_OR_RETURN(t.output, set.want_if_present("output.weight", {c.width, vocab_size}));
  HEARTH_ASSIGN_OR_RETURN(const Pooling pooling, load_pooling(file, c.architecture));
  if (pooling == Pooling::kRank) set.ignore_all("cls.");  // see Ranker
  HEARTH_TRY(set.check_all_used());
  return t;
}

}  // namespace hearth::models
