#pragma once
// What instruction sets this CPU has and the operating system lets a process use.

namespace hearth::kernels {

struct CpuFeatures {
  bool avx2 = false;        ///< AVX2, FMA and F16C, with the OS saving 256-bit registers
  bool avx512 = false;      ///< AVX-512 F, BW, VL, DQ, with the OS saving 512-bit registers
  bool avx512vnni = false;  ///< that, and AVX-512 VNNI
  bool neon = false;        ///< any AArch64
  bool neondot = false;     ///< that, and dot products of bytes (ARMv8.2 dotprod)
};

/// All false on other processors than x86-64 and AArch64.
CpuFeatures cpu_features();

}  // namespace hearth::kernels
