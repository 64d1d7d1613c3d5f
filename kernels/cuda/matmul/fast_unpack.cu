// Packed weights as rows of f16 or bf16, for cuBLASLt's products (kernels/cuda/matmul/fast.cuh). A
// warp unpacks 16 outputs and one chunk of inputs; its lanes hold the same parts as in our own
// products.

#include "kernels/cuda/layout.cuh"
#include "kernels/cuda/matmul/fast.cuh"
#include "kernels/cuda/matmul/types.cuh"
#include "kernels/cuda/matmul/unpack.cuh"
#include "kernels/cuda/terms.cuh"

namespace hearth::kernels {
namespace {

constexpr int kWarps = 8;

struct UnpackParams {
  const std::byte* groups;  ///< starting with the first one to unpack
  int32_t chunks;
  int32_t num_blocks;  ///< of 32 inputs; quantized weights
  int64_t inputs;
  uint16_t* to;
};

__device__ inline float fit(float value, Half) {
  constexpr float kMost = 65504.0f;
  return value > kMost ? kMost : value < -kMost ? -kMost : value;  // NaN is kept
}
__device__ inline float fit(float value, BFloat16) { return value; }

template <DType kType, typename T>
__global__ void __launch_bounds__(kWarps* kWarp) unpack_quant_kernel(UnpackParams p) {
  after_previous_launch();
  constexpr QuantForm kForm = quant_form(kType);
  const auto lane = thread_x() % kWarp;
  const int chunk = block_y() * kWarps + thread_x() / kWarp;
  if (chunk >= p.chunks) return;
  ChunkShare<kType> w;
  w.load(p.groups + (int64_t{blockIdx.x} * p.chunks + chunk) * kForm.chunk_bytes(), lane);
#pragma unroll
  for (int b = 0; b < kChunkBlocks; ++b) {
    if (chunk * kChunkBlocks + b >= p.num_blocks) break;
    uint32_t codes[4];
    w.codes(b, codes);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int s = kForm.subs == 2 ? 2 * b + r / 2 : b;
      const float scale = scale_of<kType>(w.scales[r % 2], s);
      uint32_t pairs[2] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int code = static_cast<int8_t>(codes[r] >> 8 * i);
        float value = scale * static_cast<float>(code - kForm.offset);
        if constexpr (kForm.has_min) value = value + min_of<kType>(w.scales[r % 2], s);
        T rounded;
        from_float(fit(value, T{}), &rounded);
        pairs[i / 2] |= static_cast<uint32_t>(bits_of(rounded)) << 16 * (i % 2);
      }
      const int64_t row = int64_t{blockIdx.x} * kGroupOutputs + lane / 4 + r % 2 * 8;
      const int64_t input = int64_t{chunk} * kChunkInputs + b * 32 + r / 2 * 16 + lane % 4 * 4;
      *reinterpret_cast<uint2*>(p.to + row * p.inputs + input) = {pairs[0], pairs[1]};
    }
  }
}

/// Copies the bits; f16 and bf16 alike.
__global__ void __launch_bounds__(kWarps* kWarp) unpack_half_kernel(UnpackParams p) {
  after_previous_launch();
  const auto lane = thread_x() % kWarp;
  const int chunk = block_y() * kWarps + thread_x() / kWarp;
  if (chunk >= p.chunks) return;
  const std::byte* from = p.groups + (int64_t{blockIdx.x} * p.chunks + chunk) * kHalfChunkBytes;
  uint4 step[kHalfSteps];
#pragma unroll
  for (int s = 0; s < kHalfSteps; ++s) step[s] = load_as<uint4>(from + (s * kWarp + lane) * 16);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4& a = step[2 * half];
    const uint4& b = step[2 * half + 1];
    const int64_t input = int64_t{chunk} * kHalfChunk + lane % 4 * 16 + half * 8;
    if (input >= p.inputs) break;  // a row has a multiple of 8, with zeros after its last input
    const int64_t row = int64_t{blockIdx.x} * kHalfOutputs + lane / 4;
    *reinterpret_cast<uint4*>(p.to + row * p.inputs + input) = {a.x, a.z, b.x, b.z};
    *reinterpret_cast<uint4*>(p.to + (row + 8) * p.inputs + input) = {a.y, a.w, b.y, b.w};
  }
}

struct UnpackQuant {
  cudaStream_t stream;
  dim3 grid;
  const UnpackParams& params;
  template <DType kType>
  void operator()() const {
    using T = std::conditional_t<kType == DType::kMXFP4, BFloat16, Half>;
    HEARTH_LAUNCH(stream, (unpack_quant_kernel<kType, T>), grid, kWarps * kWarp, 0, params);
  }
};

}  // namespace

void unpack_weights(cudaStream_t stream, const WeightSegment& segment, int64_t cols, int64_t first,
                    int64_t count, int64_t inputs, void* to) {
  static_assert(kGroupOutputs == kHalfOutputs);
  HEARTH_EXPECT(first % kGroupOutputs == 0 && inputs % 8 == 0, first, inputs);
  const bool half = segment.dtype == DType::kF16 || segment.dtype == DType::kBF16;
  const int64_t chunks = half ? half_chunks(cols) : num_chunks(cols);
  const int64_t group_bytes =
      static_cast<int64_t>(segment.bytes) / ceil_div(segment.rows, kGroupOutputs);
  const UnpackParams params{
      static_cast<const std::byte*>(segment.data.get()) + first / kGroupOutputs * group_bytes,
      static_cast<int32_t>(chunks), static_cast<int32_t>(cols / 32), inputs,
      static_cast<uint16_t*>(to)};
  const dim3 grid = grid2(ceil_div(count, kGroupOutputs), ceil_div(chunks, kWarps));
  if (half) {
    HEARTH_LAUNCH(stream, unpack_half_kernel, grid, kWarps * kWarp, 0, params);
  } else {
    with_quant_type(segment.dtype, UnpackQuant{stream, grid, params});
  }
}

}  // namespace hearth::kernels
