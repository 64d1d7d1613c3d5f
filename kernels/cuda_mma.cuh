#pragma once
// Products of int8 matrices on the tensor cores, as one warp computes them. Sums of integers are
// exact, so no order of theirs can show in a result. Fragments: PTX ISA, "Matrix Fragments for
// mma.m16n8k32" and "mma.m16n8k16" (.s8).
//
// The tests' stand-in for the CUDA runtime computes them by exchanges between a warp's lanes.

#include <cuda_runtime.h>

#include <cstdint>

namespace hearth::kernels {

#if defined(HEARTH_CUDA_SHIM)

__device__ inline void mma_s8_k16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  shim::mma_s8(c, a0, a1, b);
}

#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

__device__ inline void mma_s8_k16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}

#elif defined(__CUDA_ARCH__)

// Compute capability 7.5 has eight rows at a time.
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

}  // namespace hearth::kernels
