#include "kernels/host/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <cstdint>

namespace hearth::kernels {

#if defined(__x86_64__)

// Bit numbers: Intel SDM volume 2A, CPUID; volume 1, sections 14.3 and 15.2 (AVX and AVX-512 are
// detected by the instruction bits and by XCR0, the state that the OS saves).
CpuFeatures cpu_features() {
  CpuFeatures features;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return features;
  const auto bit = [](uint32_t word, int n) { return ((word >> n) & 1u) != 0; };
  const bool osxsave = bit(c, 27);
  const bool fma_f16c_avx = bit(c, 12) && bit(c, 29) && bit(c, 28);
  if (!osxsave) return features;

  uint32_t xcr0 = 0, high = 0;
  asm volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
  const bool saves_ymm = (xcr0 & 0x06) == 0x06;
  const bool saves_zmm = (xcr0 & 0xe6) == 0xe6;

  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
  features.avx2 = fma_f16c_avx && bit(b, 5) && saves_ymm;
  const bool f_dq_bw_vl = bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31);
  features.avx512 = features.avx2 && f_dq_bw_vl && saves_zmm;
  features.avx512vnni = features.avx512 && bit(c, 11);
  if (a < 1 || !__get_cpuid_count(7, 1, &a, &b, &c, &d)) return features;
  features.avx2vnni = features.avx2 && bit(a, 4);
  return features;
}

#elif defined(__aarch64__)

// Arm ARM, A2.1: the base of ARMv8-A includes Advanced SIMD with f16 conversions and fused
// multiply-add; the kernel reports later extensions in AT_HWCAP
// (Documentation/arm64/elf_hwcaps.rst).
CpuFeatures cpu_features() {
  CpuFeatures features;
  features.neon = true;
  features.neondot = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  return features;
}

#else

CpuFeatures cpu_features() { return {}; }

#endif

}  // namespace hearth::kernels
