#pragma once
// An EAGLE-3 head: a decoder of one layer that drafts for another model from the rows of three of
// its layers. It is in a file of its own. What it computes: eagle3.cpp.
//
// The file is GGUF as llama.cpp converts published heads: general.architecture "eagle3", the keys
// of a decoder of family llama, and
//
//   eagle3.target_layers         three numbers: the layers of the target whose input rows are used
//   eagle3.target_hidden_size    width of the target
//   eagle3.norm_before_residual  bool, default false: the normed hidden row is the residual stream
//   eagle3.norm_before_fc        bool, default false: the three rows are normed, as one
//   eagle3.target.name           general.name of the target; may be missing
//
//   fc.weight                    (3 target widths, width)    enc.output_norm.weight (3 target
//                                                            widths), if norm_before_fc
//   blk.0.attn_norm.weight       (width): of the embedding   blk.0.attn_norm_2.weight (width): of
//                                                            the hidden row
//   blk.0.attn_q, _k, _v.weight  (2 width, heads)            the rest of blk.0 as in family llama
//   output_norm.weight           (width)
//   output.weight                (width, draft tokens)       missing: the target's
//   token_embd.weight            (width, tokens)             missing: the target's
//   d2t                          (draft tokens) i64: the target's token of each; missing: all

#include <array>
#include <cstdint>
#include <memory>

#include "models/decoder/decoder.h"

namespace hearth::models {

class Eagle3 final : public Decoder {
 public:
  static constexpr int32_t kFeatures = 3;

  /// What a head takes from the model that it drafts for, which outlives it.
  struct Target {
    const ModelInfo& info;
    const kernels::Weight* embedding;
    const kernels::Weight* head;
  };
  /// Errors as of Model::add_heads. The result's info() has the target's layer groups and its own,
  /// and a row of its own in the states.
  static Result<std::unique_ptr<Eagle3>> load(const GgufFile& file, const Target& target,
                                              const kernels::OpTable& ops);

  /// Keeps `x`, the target's rows before its layer `layer`, if the head uses them. After the last
  /// layer: `layer` is the number of layers.
  void take(const kernels::BatchIndex& batch, int32_t layer, const kernels::TensorView& x);
  /// Stores K and V of the rows of a step, after its last take().
  void store(const StepArgs& args);
  void draft(const StepArgs& args, int32_t place) override;

 protected:
  void layer(const LayerStep& s) override;

 private:
  struct Weights {
    WeightHandle fc;                           ///< (width, kFeatures target widths)
    WeightHandle features_norm;                ///< vector of kFeatures target widths, or null
    WeightHandle embedding_norm, hidden_norm;  ///< vectors of width
    WeightHandle before;                       ///< pack_row_before
  };

  class Loader;

  Eagle3(Parts parts, Weights own, const Target& target);
  /// act().draft.pair = [norm(embedding), norm(hidden)] of each token and the row in its second
  /// half.
  void join_pairs(const LayerStep& s);

  Weights own_;
  const kernels::Weight *embedding_, *head_;
  std::array<int32_t, kFeatures> layers_ = {};
  bool normed_residual_ = false;
};

/// check_heads() of a file with an EAGLE-3 head.
Result<void> check_eagle3(const GgufFile& file, const kernels::OpTable& ops);

}  // namespace hearth::models
