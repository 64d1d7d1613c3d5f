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

#include <cstdint>
#include <memory>
#include <vector>

#include "models/decoder/feature_head.h"

namespace hearth::models {

class Eagle3 final : public FeatureHead {
 public:
  static constexpr int32_t kFeatures = 3;

  /// Errors as of Model::add_heads. The result's info() has the target's layer groups and its own,
  /// and a row of its own in the states.
  static Result<std::unique_ptr<Eagle3>> load(const GgufFile& file, const Target& target,
                                              const kernels::OpTable& ops);

  void store(const StepArgs& args) override;
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

  static Result<Weights> load_inputs(FeatureHeadLoader& from, const DecoderConfig& c,
                                     bool normed_features);
  Eagle3(Parts parts, Weights own, const Target& target, std::vector<int32_t> layers);
  /// act().draft.pair = [norm(embedding), norm(hidden)] of each token and the row in its second
  /// half.
  void join_pairs(const LayerStep& s);

  Weights own_;
  bool normed_residual_ = false;
};

/// check_heads() of a file with an EAGLE-3 head.
Result<void> check_eagle3(const GgufFile& file, const kernels::OpTable& ops);

}  // namespace hearth::models
