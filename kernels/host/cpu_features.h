#pragma once
// Instruction sets that this CPU has and that the operating system lets a process use.

namespace hearth::kernels {

struct CpuFeatures {
  bool avx2 = false;        ///< AVX2, FMA and F16C, and the OS saves 256-bit registers
  bool avx2vnni = false;    ///< avx2 and AVX-VNNI
  bool avx512 = false;      ///< AVX-512 F, BW, VL, DQ, and the OS saves 512-bit registers
  bool avx512vnni = false;  ///< avx512 and AVX-512 VNNI
  bool neon = false;        ///< any AArch64
  bool neondot = false;     ///< neon and dot products of bytes (ARMv8.2 dotprod)
};

/// All false on processors other than x86-64 and AArch64.
CpuFeatures cpu_features();

}  // namespace hearth::kernels
