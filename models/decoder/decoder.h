#pragma once
// What decoders have in common: embedding, rotated attention over paged KV, gated feed-forward and
// head, as op calls. A family composes its layers from these.
//
//   x = embed(token) * embedding_scale
//   for each layer:   layer(x)
//   logits = cap(norm(x) W_head * logit_scale), for the requested rows
//
// Source: Vaswani et al. 2017; Su et al. 2021 (RoPE); Ainslie et al. 2023 (GQA); Shazeer 2020
// (gated units); Zhang and Sennrich 2019 (RMSNorm).

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/decoder/activations.h"
#include "models/decoder/adapter.h"
#include "models/decoder/decoder_config.h"
#include "models/decoder/decoder_weights.h"
#include "models/decoder/draft_heads.h"
#include "models/model.h"

namespace hearth::models {

class FeatureHead;

class Decoder : public Model {
 public:
  struct Parts {
    DecoderConfig config;
    DecoderWeights weights;
    ModelInfo info;
    kernels::OpTable ops;
    kernels::OpTable expert_ops{};  ///< if config.experts.apart
  };
  /// Loads the weights that `config` requires. Errors as of load_model.
  static Result<Parts> load_parts(const GgufFile& file, DecoderConfig config,
                                  const kernels::OpTable& ops, const LoadProgressFn& progress,
                                  const LoadOptions& options);

  explicit Decoder(Parts parts);
  ~Decoder() override;

  const ModelInfo& info() const override { return info_; }
  void set_context_length(int32_t context_length) override;
  uint64_t activation_bytes(int32_t max_tokens, int32_t max_outputs) const override;
  uint64_t expert_row_bytes(int32_t max_tokens) const override;
  std::vector<std::vector<uint64_t>> expert_counts() const override { return expert_counts_; }
  Result<void> reserve(int32_t max_tokens, int32_t max_outputs) override;
  void forward(const StepArgs& args) override;
  kernels::TensorView final_rows(const kernels::BatchIndex& batch) override;
  void choose_draft_rows(std::span<const int32_t> rows, bool own) override;
  void draft(const StepArgs& args, int32_t place) override;
  Result<void> add_heads(const GgufFile& file) override;
  Result<int32_t> add_adapter(const GgufFile& file) override;
  uint64_t adapter_bytes(int32_t adapter) const override;
  void remove_adapter(int32_t adapter) override;

 protected:
  /// One layer of one step.
  struct LayerStep {
    const kernels::BatchIndex& batch;
    const DecoderWeights::Layer& weights;
    const LayerSpec& spec;
    kernels::PagedKv kv;
    kernels::TensorView attn;   ///< the layer's columns of act().attn
    kernels::TensorView gated;  ///< the layer's columns of act().gated
    int32_t index;
    kernels::StatePart state;  ///< of a recurrent layer
    std::span<const kernels::BatchIndex> also_stored;
  };
  /// For decoders with more than one residual stream: begin() makes the streams from act().x, the
  /// embeddings; finish() makes act().x from the streams after the last layer.
  virtual void begin(const kernels::BatchIndex&) {}
  virtual void finish(const kernels::BatchIndex&) {}
  /// Adds the layer's output to act().x.
  virtual void layer(const LayerStep& s) = 0;

  const DecoderConfig& config() const { return config_; }
  const Activations& act() const { return act_; }
  const DecoderWeights& weights() const { return weights_; }
  const kernels::OpTable& ops() const { return ops_; }
  void* state() const { return ops_.state.get(); }

  /// s.attn = attention of the rows of `in`, before the output projection.
  void attention(const LayerStep& s, const kernels::TensorView& in);
  /// act().latent.out = the same by multi-head latent attention, each head's key and value products
  /// applied to its query and its sum instead of to every position.
  void latent_attention(const LayerStep& s, const kernels::TensorView& in);
  /// act().recurrent.out = the result of a layer with a state for the rows of `in`, before its
  /// output projection (recurrent.cpp).
  void recurrent(const LayerStep& s, const kernels::TensorView& in);
  /// The feed-forward's input: act().normed, or that mixed with the row before (recurrent.cpp).
  kernels::TensorView feed_forward_rows(const LayerStep& s);
  /// s.gated = activation(gate) * up of the rows of `in`, or gelu(up), before the down projection.
  void gated(const LayerStep& s, const kernels::TensorView& in);
  /// act().x += residual_scale * the feed-forward of the rows of `in`, with experts if the model
  /// has them.
  void add_feed_forward(const LayerStep& s, const kernels::TensorView& in);
  /// act().normed = norm of act().x, of the kind that the family uses. `reader`: the weight of the
  /// product that reads the result next, if any.
  void norm_input(const LayerStep& s, const WeightHandle& weight, const WeightHandle& bias,
                  const kernels::Weight* reader);
  /// act().x += norm(norm(feed-forward) + norm(experts)), both of norms of act().x (experts.cpp).
  void add_feed_forward_with_experts(const LayerStep& s);
  /// act().branch = the branch of the tokens' embeddings for this layer, computed from the rows of
  /// `in` (per_layer.cpp).
  void per_layer_branch(const LayerStep& s, const kernels::TensorView& in);
  /// out = columns [first, first + out.cols) of x.
  void copy_columns(const kernels::BatchIndex& batch, const kernels::TensorView& x, int64_t first,
                    const kernels::TensorView& out);
  /// act().normed = norm(act().x);  act().x = config().normed_stream * act().normed
  void norm_stream(const LayerStep& s, const WeightHandle& weight);
  /// act().x *= factor
  void scale_stream(const kernels::BatchIndex& batch, float factor);
  /// out = RMS norm of x. `reader`: the weight of the product that reads `out` next, if any.
  void norm(const LayerStep& s, const kernels::TensorView& x, const WeightHandle& weight,
            const kernels::TensorView& out, const kernels::Weight* reader = nullptr);
  /// The weight of the product that the feed-forward begins with, if it begins with one.
  const kernels::Weight* first_of_feed_forward(const LayerStep& s) const;
  /// The op, and what the step's adapters add to its result. Every product of a weight that the
  /// model's file has goes through this.
  void multiply(const kernels::MatmulArgs& args);
  /// out = x W + bias, if there is a bias.
  void product(const LayerStep& s, const kernels::TensorView& x, const WeightHandle& w,
               const WeightHandle& bias, const kernels::TensorView& out);
  struct Product {
    kernels::TensorView x;
    const WeightHandle& w;
    kernels::TensorView out;
  };
  /// The same, without bias, for those that have a weight; none reads what another writes.
  void products(const LayerStep& s, std::initializer_list<Product> all);
  /// act().x += residual_scale * (y W + bias).
  void add_product(const LayerStep& s, const kernels::TensorView& y, const WeightHandle& w,
                   const WeightHandle& bias);
  /// act().x += norm(y W + bias).
  void add_normed_product(const LayerStep& s, const kernels::TensorView& y, const WeightHandle& w,
                          const WeightHandle& bias, const WeightHandle& norm_weight);
  LayerStep step_of(const StepArgs& args, int32_t layer) const;
  void rotations(const kernels::BatchIndex& batch);
  /// logits = norm(act().x) W of the output rows, in the model's scale.
  void head(const kernels::BatchIndex& batch, const kernels::Weight* weight,
            const kernels::TensorView& logits);
  /// logits = rows W, in the model's scale.
  void head_product(const kernels::BatchIndex& batch, const kernels::TensorView& rows,
                    const kernels::Weight* weight, const kernels::TensorView& logits);
  // Rows that a draft continues (draft_layer.cpp).
  kernels::TensorView step_draft_rows() const;    ///< of the last step, by token row
  kernels::TensorView chosen_draft_rows() const;  ///< those chosen of either
  kernels::TensorView own_draft_rows() const;     ///< of the last draft
  /// out = step_draft_rows(), each in the place of the one after it. `weight`: pack_row_before.
  void rows_before(const StepArgs& args, const WeightHandle& weight,
                   const kernels::TensorView& out);
  /// Stores K and V of the rows of `in`.
  void store_rows(const LayerStep& s, const kernels::TensorView& in);

 private:
  void begin_step(const StepArgs& args);
  void end_step(const StepArgs& args);
  void embed(const kernels::BatchIndex& batch);
  size_t row_bytes(const kernels::BatchIndex& batch) const;
  // Of a share (share.cpp); otherwise the view itself, and nothing.
  /// `y`, of attention or of the activated gate, with the columns of all shares.
  kernels::TensorView all_columns(const LayerStep& s, const kernels::TensorView& y);
  /// Of rows of the model's width, the columns whose products this share has.
  kernels::TensorView own_columns(const kernels::TensorView& rows) const;
  void join_columns(const LayerStep& s, const kernels::TensorView& rows);
  void norm_rows(const kernels::BatchIndex& batch, kernels::Rows rows, const kernels::TensorView& x,
                 const WeightHandle& weight, const WeightHandle& bias,
                 const kernels::TensorView& out, const kernels::Weight* reader);
  /// Scales q by its rows' positions, in a family that does.
  void scale_by_position(const LayerStep& s, const kernels::TensorView& q);
  void embed_per_layer(const kernels::BatchIndex& batch);
  void route(const LayerStep& s, const kernels::TensorView& in);
  /// out = the chosen experts' sum, added to what is there if `add`.
  void sum_experts(const LayerStep& s, const kernels::TensorView& in,
                   const kernels::TensorView& out, bool add);
  void sum_experts_apart(const LayerStep& s, const kernels::TensorView& in,
                         const kernels::TensorView& out, bool add);
  /// a.out = the products of each choice.
  void expert_products(const kernels::OpTable& ops, const kernels::BatchIndex& batch,
                       const DecoderWeights::Layer::Experts& weights, const Activations::Experts& a,
                       const kernels::TensorView& in);
  /// Which choices of a step each table computes. Others repeat one that it computes: their
  /// products are not used.
  struct Choices {
    bool any_hot = false, any_cold = false;
  };
  Choices divide_choices(const LayerStep& s);
  Result<void> reserve_expert_rows(int32_t max_tokens);
  void add_shared_expert(const LayerStep& s, const kernels::TensorView& in);
  // Parts of recurrent().
  struct ConvParts {
    kernels::TensorView x, out;
    const kernels::TensorView *in_gate, *out_gate;
  };
  void convolve(const LayerStep& s, const ConvParts& parts);
  struct ScanParts {
    kernels::TensorView q, k, v, dt;
    const kernels::TensorView* beta;
    kernels::TensorView out;
  };
  void scan_heads(const LayerStep& s, const ScanParts& parts);
  struct WkvRows {
    kernels::TensorView r, k, v, decay, removed, erased;
  };
  /// act().recurrent.out = silu(gate) * y, `gate_and_y` being both, side by side.
  void gate_rows(const LayerStep& s, const kernels::TensorView& gate_and_y);
  void gated_delta(const LayerStep& s, const kernels::TensorView& in);
  void kimi_delta(const LayerStep& s, const kernels::TensorView& in);
  void mamba(const LayerStep& s, const kernels::TensorView& in);
  void mamba2(const LayerStep& s, const kernels::TensorView& in);
  void plamo(const LayerStep& s, const kernels::TensorView& in);
  void lightning(const LayerStep& s, const kernels::TensorView& in);
  void wkv(const LayerStep& s, const kernels::TensorView& in);
  void scan_wkv(const LayerStep& s, const WkvRows& rows);
  /// Of the first product's rows of each head, q and its gate: into act().q and act().gate.
  void split_gate(const LayerStep& s, const kernels::TensorView& q_and_gate);
  /// Stores k, and v or what is made of k in place of it, after their norms and the rotation.
  /// `rotated`: k, or q and k.
  void store_kv(const LayerStep& s, const kernels::TensorView& k, const kernels::TensorView& v,
                const kernels::TensorView& rotated);
  enum class Moment { kBeforeRope, kAfterRope };
  /// Each model norms its heads at one of the moments, if at all.
  void norm_heads(const LayerStep& s, const kernels::TensorView& heads, const WeightHandle& weight,
                  std::span<const WeightHandle> each_head, Moment moment);
  kernels::RopeArgs rope_args(const LayerStep& s, const kernels::TensorView& heads) const;
  static kernels::KvStoreArgs kv_args(const LayerStep& s, const kernels::BatchIndex& batch,
                                      const kernels::TensorView& k, const kernels::TensorView& v);
  void rotate(const LayerStep& s, const kernels::TensorView& heads);
  // Of the draft layer (draft_layer.cpp).
  void store_draft_kv(const StepArgs& args);
  /// act().x = what the draft layer takes, of each token and the hidden row in act().draft.pair.
  void join_pairs(const kernels::BatchIndex& batch);
  kernels::TensorView draft_part(int32_t part) const;
  void draft_by_layer(const StepArgs& args);
  // Of heads (draft_heads.cpp).
  void draft_by_head(const StepArgs& args, int32_t place);
  /// The residual rows of the last block of a head, of which `chosen` are the input.
  kernels::TensorView head_rows(const kernels::BatchIndex& batch, const DraftHeads::Head& head,
                                const kernels::TensorView& chosen);
  Result<void> add_feature_head(const GgufFile& file);
  void write_kv(const LayerStep& s, const kernels::TensorView& k, const kernels::TensorView& v);
  void store_latent(const LayerStep& s, const kernels::TensorView& in);
  /// Rotates the values from `first` on of each head.
  void rotate_part(const LayerStep& s, const kernels::TensorView& x, int32_t num_heads, int32_t dim,
                   int32_t first);
  kernels::PagedKv layer_kv(std::span<const KvPool> pools, const LayerSpec& spec) const;
  kernels::StatePart layer_state(std::span<const KvPool> pools, const LayerSpec& spec) const;
  const kernels::Weight* frequencies(size_t rope) const;

  DecoderConfig config_;
  ModelInfo info_;
  kernels::OpTable ops_;
  kernels::OpTable expert_ops_;  ///< if config_.experts.apart
  DecoderWeights weights_;
  DraftHeads heads_;
  std::unique_ptr<FeatureHead> feature_head_;  ///< null: none
  Adapters adapters_;
  std::span<const AdaptedRows> adapted_;  ///< of the step being computed
  bool long_context_ = false;
  kernels::DeviceBuffer memory_;
  Activations act_;
  // If config_.experts.apart:
  ExpertRows expert_rows_;
  std::vector<bool> is_hot_;                          ///< of each choice of a step
  std::vector<int32_t> row_ids_;                      ///< likewise: its expert
  std::vector<std::vector<uint64_t>> expert_counts_;  ///< per layer
  kernels::DeviceBuffer expert_memory_;
  kernels::HostBuffer shared_memory_;
  std::vector<int32_t> copy_src_, copy_dst_;  ///< scratch
};

/// x += latent_attention(norm(x)) W_out, or a recurrence;  x += feed_forward(norm(x))
class LatentDecoder final : public Decoder {
 public:
  using Decoder::Decoder;

 protected:
  void layer(const LayerStep& s) override;
};

/// A decoder whose layers norm before each branch, as most do:
///   x += attention(norm(x)) W_out;  x += gated(norm(x)) W_down
/// A layer may lack either branch, or have norm(x) W_out in place of the first, or a recurrence in
/// place of the first or next to it: both read the same normed row.
class PreNormDecoder : public Decoder {
 public:
  using Decoder::Decoder;

 protected:
  void layer(const LayerStep& s) override;
};

/// Both branches read the same normed row:
///   h = norm(x);  x += attention(h) W_out + gated(h) W_down
class ParallelDecoder final : public Decoder {
 public:
  using Decoder::Decoder;

 protected:
  void layer(const LayerStep& s) override;
};

/// The normed row takes the residual stream's place, with a = normed_stream:
///   h = norm(x);  x = a h + attention(h) W_out, or a recurrence
///   h = norm(x);  x = a h + feed_forward(h)
class NormedStreamDecoder final : public Decoder {
 public:
  using Decoder::Decoder;

 protected:
  void layer(const LayerStep& s) override;
};

/// Norms on both sides of each branch:
///   x += norm(attention(norm(x)) W_out);  x += norm(gated(norm(x)) W_down)
/// and, where the model has them, experts next to the feed-forward, per-layer embeddings, a scale
/// of the layer's output, and a recurrence in place of attention.
class SandwichDecoder final : public Decoder {
 public:
  using Decoder::Decoder;

 protected:
  void layer(const LayerStep& s) override;
};

/// Several residual streams (altup.cpp).
class AltUpDecoder final : public Decoder {
 public:
  using Decoder::Decoder;

 protected:
  void begin(const kernels::BatchIndex& batch) override;
  void layer(const LayerStep& s) override;
  void finish(const kernels::BatchIndex& batch) override;

 private:
  kernels::TensorView stream(const kernels::TensorView& streams, int64_t i) const;
  void route_streams(const LayerStep& s, const kernels::TensorView& x);
  void predict(const LayerStep& s, const kernels::TensorView& streams,
               const kernels::TensorView& predicted);
  void add_laurel(const LayerStep& s);
  void correct(const LayerStep& s, const kernels::TensorView& predicted);
};

/// Norms after each branch alone:
///   x += norm(attention(x) W_out);  x += norm(gated(x) W_down)
class PostNormDecoder final : public Decoder {
 public:
  using Decoder::Decoder;

 protected:
  void layer(const LayerStep& s) override;
};

/// The last step of every family's loader.
template <typename Family>
Result<std::unique_ptr<Model>> load_decoder(const GgufFile& file, const DecoderConfig& config,
                                            const kernels::OpTable& ops,
                                            const LoadProgressFn& progress,
                                            const LoadOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(Decoder::Parts parts,
                          Decoder::load_parts(file, config, ops, progress, options));
  return std::unique_ptr<Model>(std::make_unique<Family>(std::move(parts)));
}

}  // namespace hearth::models
