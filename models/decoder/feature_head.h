#pragma once
// Decoders that draft for another model from rows of its layers, its features, in a file of their
// own: what EAGLE-3 heads (eagle3.h) and DFlash drafters (dflash.h) have in common. Their K and V
// are a layer group of their own in the target's sequences, stored by each of its steps.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/decoder/decoder.h"
#include "models/weights/tensor_set.h"

namespace hearth::models {

class FeatureHead : public Decoder {
 public:
  /// What a head takes from the model that it drafts for, which outlives it.
  struct Target {
    const ModelInfo& info;
    const kernels::Weight* embedding;
    const kernels::Weight* head;
  };

  /// Keeps `x`, the target's rows before its layer `layer`, if the head uses them. After the last
  /// layer: `layer` is the number of layers.
  void take(const kernels::BatchIndex& batch, int32_t layer, const kernels::TensorView& x);
  /// Stores K and V of the rows of a step, after its last take().
  virtual void store(const StepArgs& args) = 0;

 protected:
  /// `layers`: those of the target whose rows are used.
  FeatureHead(Parts parts, const Target& target, std::vector<int32_t> layers);

  const kernels::Weight *embedding_, *head_;

 private:
  std::vector<int32_t> layers_;
};

/// The target's groups with `own` added: after its other groups with K and V.
std::vector<LayerGroup> with_group(std::vector<LayerGroup> groups, const LayerGroup& own);
/// Where with_group() puts it.
int32_t added_group(const std::vector<LayerGroup>& joined);

/// Finds the tensors of a head's file, checks their shapes, and packs them.
class FeatureHeadLoader {
 public:
  FeatureHeadLoader(const GgufFile& file, const DecoderConfig& config, const kernels::OpTable& ops)
      : set_(file), packer_(file, ops, no_progress_), c_(config), width_(config.width) {}

  TensorSet& set() { return set_; }
  WeightPacker& packer() { return packer_; }
  uint64_t device_bytes() const { return packer_.device_bytes(); }

  Result<WeightHandle> pack(kernels::WeightRole role, const std::string& name,
                            std::initializer_list<int64_t> dims);
  /// The products of layer `index`, its attention's of `inputs` columns, and the norm before its
  /// feed-forward.
  Result<DecoderWeights::Layer> layer(int32_t index, int64_t inputs);
  /// The rotation's frequencies, the last norm, and the embedding and the output that the head has
  /// in place of the target's. A head of another width, or of some tokens alone, must have them.
  Result<void> ends(const ModelInfo& target, const ModelInfo& own, DecoderWeights* w);

 private:
  const LoadProgressFn no_progress_;
  TensorSet set_;
  WeightPacker packer_;
  const DecoderConfig& c_;
  const int64_t width_;
};

}  // namespace hearth::models
