#pragma once
// Low-rank adapters (LoRA): each adds to some of a model's products. With s the scale,
//
//   y = x W  becomes  y = x W + s (x A) B,   s = the request's scale * alpha / rank
//
// for the rows of a step that use the adapter; all other rows keep their bits. An adapter is a GGUF
// file as llama.cpp's convert_lora_to_gguf writes it:
//
//   general.type             "adapter"
//   general.architecture     that of the model
//   adapter.type             "lora"
//   adapter.lora.alpha       f32; 0: no alpha, s is the request's scale alone
//   TENSOR.lora_a            (inputs, rank)     of a matrix TENSOR of the model, such as
//   TENSOR.lora_b            (rank, outputs)    blk.0.attn_q.weight; ranks may differ
//
// The A of matrices that are joined in the model are joined as well.
//
// Source: Hu et al. 2021 (LoRA), section 4.1; Chen et al. 2023 (Punica), section 4, for products
// grouped by adapter.

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/model.h"
#include "models/weights/weight_packer.h"

namespace hearth::models {

/// Largest rank of an adapter's matrices.
inline constexpr int64_t kMostRank = 1024;

struct Adapter {
  /// What is added to one tensor's rows of a product.
  struct Part {
    int64_t first_column = 0;  ///< of the product
    int64_t first_rank = 0;    ///< of the columns of x A
    float scale = 1;           ///< alpha / rank
    WeightHandle b;            ///< (outputs, rank)
  };
  struct Product {
    WeightHandle a;  ///< (ranks of all parts, inputs)
    std::vector<Part> parts;
    bool even = true;  ///< all parts have the same scale
  };
  std::unordered_map<const kernels::Weight*, Product> products;  ///< by the model's weight
  uint64_t bytes = 0;  ///< on the device, once added with the scratch it needs
  int64_t widest = 0;  ///< rows of the largest `a`

  /// Errors as of Model::add_adapter. `parts`: of the model.
  static Result<Adapter> load(const GgufFile& file, const ModelInfo& model,
                              const MatrixParts& parts, const kernels::OpTable& ops);
};

/// The loaded adapters of a model.
class Adapters {
 public:
  /// `max_rows`: of a step. kOutOfMemory, of scratch.
  Result<int32_t> add(Adapter adapter, int64_t max_rows, const kernels::OpTable& ops);
  void remove(int32_t adapter);
  uint64_t bytes(int32_t adapter) const;

  /// Adds to the result of a product what the adapters of these rows add to it: two products for
  /// all adapters together.
  void add(const kernels::MatmulArgs& product, std::span<const AdaptedRows> rows,
           const kernels::OpTable& ops) const;

 private:
  struct Addition;
  void add_to(std::vector<Addition>& additions, const kernels::MatmulArgs& product,
              const AdaptedRows& some) const;
  void add(const kernels::MatmulArgs& product, std::span<const Addition> additions,
           const kernels::OpTable& ops) const;

  std::vector<std::unique_ptr<Adapter>> adapters_;  ///< by number; null: free
  kernels::DeviceBuffer scratch_;                   ///< x A of all rows
  int64_t widest_ = 0;                              ///< columns of scratch_
};

}  // namespace hearth::models
