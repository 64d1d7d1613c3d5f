#pragma once
// Models with seeded random weights, for measuring the speed of a shape without published weights:
// of family llama, of gpt-oss or deepseek2 if they have experts, of qwen35, rwkv7 or llada. Their
// text is meaningless; their speed is that of a real model. The file includes a vocabulary of bytes
// and short words, so that any engine can load it.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops/dtype.h"
#include "models/gguf/gguf_output.h"
#include "models/gguf/gguf_writer.h"

namespace hearth::models {

struct ModelShape {
  std::string_view name;
  int32_t layers = 6;
  int32_t width = 512;
  int32_t ffn = 1536;
  int32_t heads = 8;
  int32_t kv_heads = 4;
  int32_t head_dim = 64;
  int32_t vocab = 4096;  ///< at least 512
  int32_t context = 8192;
  bool tied = true;  ///< the output head is the embedding
  std::string_view architecture = "llama";
  int32_t experts = 0;
  int32_t experts_used = 0;
  int32_t expert_ffn = 0;
  int32_t shared_experts = 0;  ///< all tokens use them
  int32_t dense_layers = 0;    ///< leading layers without experts, with a feed-forward of `ffn`
  int32_t window = 0;          ///< of every second layer, the first one included; 0: none
  int32_t kv_rank = 0;         ///< latent attention: stored values that all heads share; 0: none
  int32_t q_rank = 0;          ///< of queries in latent attention; 0: they are not factored
  int32_t rotated = 0;  ///< of the stored or of head_dim's values; 0: all. With kv_rank they are
                        ///< stored next to it, and head_dim is that of V
  int32_t state_heads = 0;      ///< of a gated delta net; 0: every layer is attention
  int32_t state_dim = 0;        ///< of their q, k and v
  int32_t attention_every = 0;  ///< the last of so many layers is attention, gated
  bool draft_layer = false;     ///< one more layer, for drafting; of shapes with states
  // Of rwkv7, whose heads all have a state: ranks of the small products; 0: not rwkv7.
  int32_t decay_rank = 0, v_rank = 0, gate_rank = 0;
};

/// tiny, 0.1B, 0.5B (a draft of the larger ones: same vocabulary), S (1.2 B parameters, as Llama
/// 3.2 1B), M (8 B, as Llama 3.1 8B), 13B (as Llama 2); with experts gpt-oss-20b and
/// deepseek-v2-lite, eight layers of each (gpt-oss-20b-8, deepseek-v2-lite-8; deepseek-v2-lite-q-8
/// with DeepSeek V2's rank of queries, without which llama.cpp refuses eight layers), and two small
/// layers (gpt-oss-tiny, deepseek-tiny); with states qwen3.5-2b, and four small layers
/// (qwen3.5-tiny); llada-8b (LLaDA), eight layers of it (llada-8b-8), and two small ones
/// (llada-tiny); rwkv7-1.5b (as RWKV-7 World 1.5B), and two small layers (rwkv7-tiny).
std::span<const ModelShape> named_shapes();
/// "tiny, 0.1B, ..."
std::string shape_names();
/// kNotFound lists the names.
Result<ModelShape> find_shape(std::string_view name);

/// The weight types of random models: all that hearth can both compute with and encode.
std::span<const kernels::DType> weight_types();
/// Parses one of them as the user writes it: "F16", "Q4_K", ... kUnsupported lists them.
Result<kernels::DType> parse_weight_type(std::string_view name);

/// Immutable: any thread may read it.
class RandomModel {
 public:
  struct Tensor {
    std::string name;
    int64_t rows = 1;
    int64_t cols = 0;
    kernels::DType dtype = kernels::DType::kF32;
    uint64_t offset = 0;  ///< of its first byte in the file
    uint64_t bytes = 0;
    std::optional<float> constant{};  ///< of all values; nothing: they are random
    int32_t experts = 1;              ///< matrices of equal size; `rows` counts those of all
    bool fourth = false;              ///< the file counts those in its fourth dimension
  };

  /// Matrices in `type`, norms in F32. kUnsupported if `type` has no encoder, or its blocks do not
  /// divide the rows.
  static Result<RandomModel> create(const ModelShape& shape, kernels::DType type, uint64_t seed);
  /// `type` as the user writes it: one type (Q4_K), or a mix of types (Q4_K_M; see quantize/mix.h).
  /// Of a model with experts, MXFP4 is the type of the experts alone, all else is Q8_0, as
  /// published.
  static Result<RandomModel> create(const ModelShape& shape, std::string_view type, uint64_t seed);

  /// Everything before the tensors' data.
  const std::vector<std::byte>& header() const { return header_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Null if there is none of that name.
  const Tensor* find(std::string_view name) const;
  uint64_t file_bytes() const { return file_bytes_; }
  uint64_t parameters() const { return parameters_; }

  /// Writes rows [first, first + count) of a tensor, in its type, to `out`. The result does not
  /// depend on how the rows are divided into calls: every row has its own stream of noise
  /// (SplitMix64, Steele, Lea and Flood 2014), scaled so that outputs have a variance of 1. For
  /// types whose encoder searches for scales, rows are assembled from a few hundred encoded blocks,
  /// which saves minutes.
  void fill(const Tensor& tensor, int64_t first, int64_t count, std::span<std::byte> out) const;

 private:
  std::vector<std::byte> header_;
  std::vector<Tensor> tensors_;
  /// Encoded blocks, by type with searched scales and number of inputs of a row.
  std::map<std::pair<kernels::DType, int64_t>, std::vector<std::byte>> pools_;
  uint64_t file_bytes_ = 0;
  uint64_t parameters_ = 0;
  uint64_t seed_ = 0;

  static Result<RandomModel> create(std::vector<Tensor> tensors, GgufWriter writer, uint64_t seed);
};

/// Writes the model as a GGUF file (PartFile) on `num_threads` threads. kCancelled if `progress`
/// returned false. No file is left then, nor after an error.
Result<void> write_random_model(const RandomModel& model, const std::filesystem::path& path,
                                int32_t num_threads, const WriteProgressFn& progress);

}  // namespace hearth::models
