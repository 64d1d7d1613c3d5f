#pragma once
// The reference ops, one file each. They are the specification: the formula in scalar loops,
// accumulated in double, one thread. Private to kernels/ and its tests.

#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace hearth::kernels::reference {

/// A weight as the file stores it: the tensors' bytes in order, rows concatenated.
class StoredWeight final : public Weight {
 public:
  struct Tensor {
    DType dtype;
    int64_t first_row;
    int64_t rows;
    std::vector<std::byte> bytes;
  };

  /// Element (row, col) as f32: exact for every usable type.
  float at(int64_t row, int64_t col) const;
  const Tensor& tensor_of(int64_t row) const;

  std::vector<Tensor> tensors;
  std::vector<float> values;  ///< role kVector
};

/// One quantized block of activations, as MatmulArgs states it.
struct QuantizedBlock {
  float d;
  int8_t q[32];
};
QuantizedBlock quantize_block(const float* x);

Result<std::unique_ptr<Weight>> pack_weights(void*, std::span<const HostTensor>, WeightRole);

void embed(void*, const EmbedArgs&);
void rms_norm(void*, const RmsNormArgs&);
void matmul(void*, const MatmulArgs&);
void add_bias(void*, const AddBiasArgs&);
void rope_table(void*, const RopeTableArgs&);
void rope(void*, const RopeArgs&);
void kv_store(void*, const KvStoreArgs&);
void attention(void*, const AttentionArgs&);
void gated_activation(void*, const GatedActivationArgs&);
void gather_rows(void*, const GatherRowsArgs&);
void copy_blocks(void*, const CopyBlocksArgs&);

}  // namespace hearth::kernels::reference
