#pragma once
// A DFlash drafter: a small decoder that drafts a block of tokens for another model in one pass. It
// is in a file of its own. What it computes: dflash.cpp.
//
// The file is GGUF as llama.cpp converts published drafters: general.architecture "dflash", the
// keys and tensors of a decoder of family qwen3 and of the target's width, and
//
//   dflash.block_size                  tokens of a pass: the last one of the text, and the drafts
//   dflash.target_layers               the layers of the target whose input rows are used
//   dflash.attention.causal            bool, default false: tokens of a block see those before
//   alone dflash.embedding_scale, dflash.attention.scale, dflash.logit_scale,
//   dflash.final_logit_softcapping     may be missing
//   dflash.target.name                 general.name of the target; may be missing
//   tokenizer.ggml.mask_token_id       the token that stands for a token to be drafted
//
//   fc.weight                          (target layers * width, width)
//   enc.output_norm.weight             (width)
//   token_embd.weight, output.weight   missing: the target's
//
// Refused by name: a window, a vocabulary of its own (d2t), and what later forms add (markov_*,
// selector_*).

#include <cstdint>
#include <memory>
#include <vector>

#include "models/decoder/feature_head.h"

namespace hearth::models {

class DFlash final : public FeatureHead {
 public:
  static constexpr int32_t kMostLayers = 16;  ///< of the target
  static constexpr int32_t kMostBlock = 64;

  /// Errors as of Model::add_heads. The result's info() has the target's layer groups and its own.
  static Result<std::unique_ptr<DFlash>> load(const GgufFile& file, const Target& target,
                                              const kernels::OpTable& ops);

  void store(const StepArgs& args) override;
  void choose_draft_rows(std::span<const int32_t> rows, bool own) override;
  void draft(const StepArgs& args, int32_t place) override;

 protected:
  void layer(const LayerStep& s) override;

 private:
  struct Inputs {
    WeightHandle fc;    ///< (width, target layers * width)
    WeightHandle norm;  ///< vector of width
  };

  DFlash(Parts parts, Inputs inputs, const Target& target, std::vector<int32_t> layers);

  Inputs inputs_;
};

/// check_heads() of a file with a DFlash drafter.
Result<void> check_dflash(const GgufFile& file, const kernels::OpTable& ops);

}  // namespace hearth::models
