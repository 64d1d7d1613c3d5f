#pragma once
// A model of family llama with seeded random weights, written as a GGUF file: for measuring shapes
// without anybody's weights. Its text means nothing; its speed is that of a real model.

#include <cstdint>
#include <filesystem>

#include "kernels/base/result.h"
#include "kernels/dtype.h"

namespace hearth::bench {

struct RandomModelShape {
  int32_t layers = 6;
  int32_t width = 512;
  int32_t ffn = 1536;
  int32_t heads = 8;
  int32_t kv_heads = 4;
  int32_t head_dim = 64;
  int32_t vocab = 4096;
  int32_t context = 8192;
};

/// Matrices in `type` (F32, F16 or Q8_0), tied output head, no tokenizer.
Result<void> write_random_model(const RandomModelShape& shape, kernels::DType type, uint64_t seed,
                                const std::filesystem::path& path);

}  // namespace hearth::bench
