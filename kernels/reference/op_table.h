#pragma once
// The reference ops, one file each. They are the specification: the formula in scalar loops,
// accumulated in double, on one thread. Private to kernels/ and its tests.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "kernels/ops/draw.h"

namespace hearth::kernels::reference {

/// A weight as the file stores it: the tensors' bytes in order, rows concatenated.
class StoredWeight final : public Weight {
 public:
  struct Tensor {
    DType dtype;
    int64_t first_row;  ///< within one expert's rows
    int64_t rows;       ///< of one expert
    std::vector<std::byte> bytes;
    std::vector<float> scales;  ///< HostTensor
    float outliers_from;
  };

  const Tensor& tensor_of(int64_t row) const;
  std::span<const std::byte> row_bytes(int64_t row, int32_t expert = 0) const;
  float outliers_from() const;  ///< of its quantized tensors

  std::vector<Tensor> tensors;
  std::vector<float> values;  ///< role kVector
};

/// One quantized block of activations, as MatmulArgs defines it.
struct QuantizedBlock {
  float d;
  int8_t q[32];
};
/// The blocks of x, whose values are quantized together: a multiple of 32 of them.
std::vector<QuantizedBlock> quantize_blocks(std::span<const float> x);

/// One input row, also quantized if its length allows.
struct Activations {
  /// `super`: types with super-blocks take one scale per 256 inputs. `outliers_from` as in
  /// HostTensor.
  Activations(const float* values, int64_t cols, bool super, float outliers_from = 0);
  const std::vector<QuantizedBlock>& quantized(DType type) const;

  const float* x;
  std::vector<int64_t> outliers;  ///< inputs that count as 0 in `quantized`, ascending

 private:
  std::vector<QuantizedBlock> per_32_;
  std::vector<QuantizedBlock> per_256_;  ///< empty unless `super`
};

/// Computes one output of the weight (of one expert) for several inputs: done(index of the input,
/// sum).
void multiply_row(const StoredWeight& w, int64_t row, int32_t expert,
                  const std::vector<Activations>& inputs,
                  const std::function<void(size_t input, double sum)>& done);

Result<std::unique_ptr<Weight>> pack_weights(void*, std::span<const HostTensor>, WeightRole);

void embed(void*, const EmbedArgs&);
void rms_norm(void*, const RmsNormArgs&);
void matmul(void*, const MatmulArgs&);
void matmul_super(void*, const MatmulArgs&);  ///< x per 256 inputs
void add_bias(void*, const AddBiasArgs&);
void add_scaled(void*, const AddScaledArgs&);
void soft_cap(void*, const SoftCapArgs&);
void rope_table(void*, const RopeTableArgs&);
void rope(void*, const RopeArgs&);
void copy_heads(void*, const CopyHeadsArgs&);
/// One row of times_rms and of keep_peaks; the CPU table uses them too.
void times_rms_row(const float* like, int64_t like_width, float eps, int64_t width, float* x);
void keep_peaks_row(float deviations, int64_t width, float* x);
void times_rms(void*, const TimesRmsArgs&);
void keep_peaks(void*, const KeepPeaksArgs&);
void kv_store(void*, const KvStoreArgs&);
void attention(void*, const AttentionArgs&);
void attention_exact(void*, const AttentionArgs&);  ///< nothing is rounded, whatever K and V are
void gated_activation(void*, const GatedActivationArgs&);
void gather_rows(void*, const GatherRowsArgs&);
/// One token of moe_route; the CPU table uses this too.
void route_row(const float* logits, const MoeRouteArgs& args, int32_t* ids, float* weights);
void moe_route(void*, const MoeRouteArgs&);
void moe_matmul(void*, const MoeMatmulArgs&);
void moe_matmul_super(void*, const MoeMatmulArgs&);
void moe_combine(void*, const MoeCombineArgs&);
void copy_blocks(void*, const CopyBlocksArgs&);
void draw(void*, const DrawArgs&);
void best_logits(void*, const BestLogitsArgs&);
void feed(void*, const FeedArgs&);
/// Host memory, in huge pages where the system has them. Of all tables that compute in it.
extern const ElasticMemory kElasticMemory;

inline constexpr DrawOps kDrawOps = {draw, best_logits, feed};

}  // namespace hearth::kernels::reference
