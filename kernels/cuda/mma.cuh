#pragma once
// Products on the tensor cores, as one warp computes them. Fragments: PTX ISA, "Matrix Fragments
// for mma.m16n8k32" and "mma.m16n8k16" (.s8), "mma.m16n8k16 with floating point type" (.f16,
// .bf16). Sums of integers are exact, so their order does not affect a result. Products of f16 and
// bf16 are exact in f32; how the device rounds their sum is unspecified, but the same in every
// launch.
//
// The tests' replacement for the CUDA runtime computes them by exchanges between a warp's lanes.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device.cuh"

namespace hearth::kernels {

#if defined(HEARTH_CUDA_SHIM)

__device__ inline void mma_s8_k16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  shim::mma_8<int8_t>(c, a0, a1, b);
}

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

__device__ inline void mma_s8_k16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}

#elif defined(__CUDA_ARCH__)

// Compute capability 7.5 processes eight rows at a time.
__device__ inline void mma_s8_k16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
      : "+r"(c[0]), "+r"(c[1])
      : "r"(a0), "r"(b));
  asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
      : "+r"(c[2]), "+r"(c[3])
      : "r"(a1), "r"(b));
}

#else

__device__ void mma_s8_k16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b);

#endif

/// c += A B, A of 16 rows and 32 columns in `a`, B of 32 rows and 8 columns in `b`.
__device__ inline void mma_s8_k32(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif defined(HEARTH_CUDA_SHIM) || defined(__CUDA_ARCH__)
  mma_s8_k16(c, a[0], a[1], b0);
  mma_s8_k16(c, a[2], a[3], b1);
#endif
}

/// d = c + A B, with the same c in every place.
__device__ inline void mma_s8_k32_onto(int (&d)[4], int c, const uint32_t (&a)[4], uint32_t b0,
                                       uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c));
#elif defined(HEARTH_CUDA_SHIM) || defined(__CUDA_ARCH__)
  d[0] = d[1] = d[2] = d[3] = c;
  mma_s8_k32(d, a, b0, b1);
#endif
}

/// A B for bf16 if the tensor cores lack this type: every lane fetches its rows and columns. Each
/// sum is one chain of fma over the 16 products in ascending order.
__device__ inline void mma_bf16_exchanged(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1) {
  const auto lane = thread_x() % kWarp;
  const auto value = [](uint32_t pair, int i) {
    return to_float(BFloat16{static_cast<uint16_t>(pair >> 16 * i)});
  };
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {  // half of the 16 products
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t rows[2] = {__shfl_sync(kAllLanes, a[2 * upper], lane / 4 * 4 + i),
                                __shfl_sync(kAllLanes, a[2 * upper + 1], lane / 4 * 4 + i)};
      const uint32_t b = upper == 0 ? b0 : b1;
      const uint32_t columns[2] = {__shfl_sync(kAllLanes, b, lane % 4 * 8 + i),
                                   __shfl_sync(kAllLanes, b, lane % 4 * 8 + 4 + i)};
#pragma unroll
      for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          c[r] = fmaf(value(rows[r / 2], k), value(columns[r % 2], k), c[r]);
        }
      }
    }
  }
}

/// c += A B, A of 16 rows and 16 columns in `a`, B of 16 rows and 8 columns in b0, b1.
template <typename T>
__device__ void mma_k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

#if defined(HEARTH_CUDA_SHIM)

template <>
inline void mma_k16<Half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  shim::mma_16(c, a, b0, b1, [](uint16_t bits) { return to_float(Half{bits}); });
}
template <>
inline void mma_k16<BFloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  shim::mma_16(c, a, b0, b1, [](uint16_t bits) { return to_float(BFloat16{bits}); });
}

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

template <>
__device__ inline void mma_k16<Half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                     uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void mma_k16<BFloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#elif defined(__CUDA_ARCH__)

// Compute capability 7.5 processes eight columns of A at a time and lacks bf16.
template <>
__device__ inline void mma_k16<Half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                     uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[2]), "r"(a[3]), "r"(b1));
}
template <>
__device__ inline void mma_k16<BFloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  mma_bf16_exchanged(c, a, b0, b1);
}

#endif

}  // namespace hearth::kernels
