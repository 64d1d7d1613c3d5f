#include "kernels/host/ceilings.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "kernels/base/numbers.h"
#include "kernels/host/host_memory.h"

namespace hearth::kernels {
namespace {

constexpr int kRounds = 20'000;     // of 16 independent chains each
constexpr int kRuns = kRounds / 8;  // of eight steps

/// Keeps a value alive without a store that the compiler could analyze.
template <typename T>
void keep(const T& value) {
  asm volatile("" : : "m"(value) : "memory");
}

/// Prefetching as far ahead as the products do: the hardware alone reads an eighth slower.
uint64_t sum_of(const uint64_t* data, size_t count) {
  constexpr size_t kAhead = 512;
  uint64_t sums[16] = {};
  for (size_t i = 0; i < count; i += 16) {
    __builtin_prefetch(data + i + kAhead);
    __builtin_prefetch(data + i + kAhead + 8);
    for (size_t j = 0; j < 16; ++j) sums[j] += data[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

double f32_plain() {
  float chains[16][4] = {};
  for (int i = 0; i < kRounds; ++i) {
    for (auto& chain : chains) {
      for (float& lane : chain) lane = lane * 0.999f + 0.5f;
    }
  }
  keep(chains);
  return 16.0 * 4 * 2 * kRounds;
}

#if defined(__x86_64__)

__attribute__((target("avx2,fma"))) double f32_avx2() {
  __m256 chains[12];
  for (__m256& chain : chains) chain = _mm256_setzero_ps();
  const __m256 a = _mm256_set1_ps(0.999f);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (__m256& chain : chains) chain = _mm256_fmadd_ps(chain, a, a);
  }
  for (const __m256& chain : chains) keep(chain);
  return 12.0 * 8 * 2 * kRounds;
}

/// Byte products by maddubs, added up in 16 bits over eight steps, as weights of four bits allow.
__attribute__((target("avx2"))) double int8_avx2() {
  __m256i chains[12];
  for (__m256i& chain : chains) chain = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(3);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int i = 0; i < kRuns; ++i) {
    __m256i runs[12];
#pragma GCC unroll 8
    for (int step = 0; step < 8; ++step) {
#pragma GCC unroll 12
      for (__m256i& run : runs) {
        // Otherwise the compiler computes one product in place of all, or all of them before the
        // sums.
        asm volatile("" : "+x"(a));
        const __m256i pairs = _mm256_maddubs_epi16(a, a);
        run = step == 0 ? pairs : _mm256_add_epi16(run, pairs);
        asm volatile("" : "+x"(run));
      }
    }
#pragma GCC unroll 12
    for (int c = 0; c < 12; ++c) {
      chains[c] = _mm256_add_epi32(chains[c], _mm256_madd_epi16(runs[c], ones));
    }
  }
  for (const __m256i& chain : chains) keep(chain);
  return 12.0 * 32 * 2 * 8 * kRuns;
}

__attribute__((target("avx512f"))) double f32_avx512() {
  __m512 chains[16];
  for (__m512& chain : chains) chain = _mm512_setzero_ps();
  const __m512 a = _mm512_set1_ps(0.999f);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
    for (__m512& chain : chains) chain = _mm512_fmadd_ps(chain, a, a);
  }
  for (const __m512& chain : chains) keep(chain);
  return 16.0 * 16 * 2 * kRounds;
}

__attribute__((target("avx512f,avx512bw"))) double int8_avx512() {
  __m512i chains[12];
  for (__m512i& chain : chains) chain = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(3);
  const __m512i ones = _mm512_set1_epi16(1);
  for (int i = 0; i < kRuns; ++i) {
    __m512i runs[12];
#pragma GCC unroll 8
    for (int step = 0; step < 8; ++step) {
#pragma GCC unroll 12
      for (__m512i& run : runs) {
        asm volatile("" : "+v"(a));
        const __m512i pairs = _mm512_maddubs_epi16(a, a);
        run = step == 0 ? pairs : _mm512_add_epi16(run, pairs);
        asm volatile("" : "+v"(run));
      }
    }
#pragma GCC unroll 12
    for (int c = 0; c < 12; ++c) {
      chains[c] = _mm512_add_epi32(chains[c], _mm512_madd_epi16(runs[c], ones));
    }
  }
  for (const __m512i& chain : chains) keep(chain);
  return 12.0 * 64 * 2 * 8 * kRuns;
}

__attribute__((target("avx2,avxvnni"))) double int8_avx2vnni() {
  __m256i chains[12];
  for (__m256i& chain : chains) chain = _mm256_setzero_si256();
  const __m256i a = _mm256_set1_epi8(3);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (__m256i& chain : chains) chain = _mm256_dpbusd_avx_epi32(chain, a, a);
  }
  for (const __m256i& chain : chains) keep(chain);
  return 12.0 * 32 * 2 * kRounds;
}

__attribute__((target("avx512f,avx512vnni"))) double int8_vnni() {
  __m512i chains[16];
  for (__m512i& chain : chains) chain = _mm512_setzero_si512();
  const __m512i a = _mm512_set1_epi8(3);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
    for (__m512i& chain : chains) chain = _mm512_dpbusd_epi32(chain, a, a);
  }
  for (const __m512i& chain : chains) keep(chain);
  return 16.0 * 64 * 2 * kRounds;
}

#elif defined(__aarch64__)

double f32_neon() {
  float32x4_t chains[16];
  for (float32x4_t& chain : chains) chain = vdupq_n_f32(0.0f);
  const float32x4_t a = vdupq_n_f32(0.999f);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
    for (float32x4_t& chain : chains) chain = vfmaq_f32(a, chain, a);
  }
  for (const float32x4_t& chain : chains) keep(chain);
  return 16.0 * 4 * 2 * kRounds;
}

/// Byte products by smull and sadalp, as in the NEON kernel.
double int8_neon() {
  int32x4_t chains[16];
  for (int32x4_t& chain : chains) chain = vdupq_n_s32(0);
  int8x8_t a = vdup_n_s8(3);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
    for (int32x4_t& chain : chains) {
      asm volatile(
          ""
          : "+w"(a));  // otherwise the compiler computes the product once instead of sixteen times
      chain = vpadalq_s16(chain, vmull_s8(a, a));
    }
  }
  for (const int32x4_t& chain : chains) keep(chain);
  return 16.0 * 8 * 2 * kRounds;
}

__attribute__((target("arch=armv8.2-a+dotprod"))) double int8_neondot() {
  int32x4_t chains[16];
  for (int32x4_t& chain : chains) chain = vdupq_n_s32(0);
  const int8x16_t a = vdupq_n_s8(3);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
    for (int32x4_t& chain : chains) chain = vdotq_s32(chain, a, a);
  }
  for (const int32x4_t& chain : chains) keep(chain);
  return 16.0 * 16 * 2 * kRounds;
}

#endif

double seconds_of(auto&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Operations per second over all threads, each running `unit` a few times; the best of five.
double rate(ThreadPool& pool, double (*unit)()) {
  double best = 0;
  const int64_t items = 8 * pool.active();
  for (int run = 0; run < 5; ++run) {
    double ops = 0;
    const double seconds = seconds_of([&] {
      pool.run(items, [&](int64_t item, int32_t) {
        const double done = unit();
        if (item == 0) ops = done;
      });
    });
    best = std::max(best, ops * as_double(items) / seconds);
  }
  return best;
}

constexpr size_t kChunk = size_t{256} << 10;

}  // namespace

MemoryReader::MemoryReader(ThreadPool& pool, size_t bytes)
    : pool_(pool),
      bytes_(std::max(bytes / kChunk, size_t{1}) * kChunk),
      data_(static_cast<uint64_t*>(allocate_host(bytes_))),
      sums_(pool.num_threads() * 8) {
  if (data_ != nullptr) std::fill(data_, data_ + bytes_ / 8, 1);
}

MemoryReader::~MemoryReader() {
  if (data_ != nullptr) release_host(data_, bytes_);
}

double MemoryReader::read() {
  if (data_ == nullptr) return 0;
  const double seconds = seconds_of([&] {
    pool_.run(bytes_ / kChunk, [&](int64_t item, int32_t thread) {
      sums_[thread * 8] += sum_of(data_ + item * kChunk / 8, kChunk / 8);
    });
  });
  keep(sums_[0]);
  return as_double(bytes_) / seconds;
}

Ceilings measure_ceilings(ThreadPool& pool, const std::string& variant, size_t read_bytes) {
  Ceilings ceilings;
  MemoryReader reader(pool, read_bytes);
  for (int run = 0; run < 5; ++run) {
    ceilings.read_bytes_per_s = std::max(ceilings.read_bytes_per_s, reader.read());
  }
#if defined(__x86_64__)
  if (variant == "avx2" || variant == "avx2vnni") {
    ceilings.f32_ops_per_s = rate(pool, f32_avx2);
    ceilings.int8_ops_per_s = rate(pool, variant == "avx2" ? int8_avx2 : int8_avx2vnni);
    return ceilings;
  }
  if (variant == "avx512" || variant == "avx512vnni") {
    ceilings.f32_ops_per_s = rate(pool, f32_avx512);
    ceilings.int8_ops_per_s = rate(pool, variant == "avx512" ? int8_avx512 : int8_vnni);
    return ceilings;
  }
#elif defined(__aarch64__)
  if (variant == "neon" || variant == "neondot") {
    ceilings.f32_ops_per_s = rate(pool, f32_neon);
    ceilings.int8_ops_per_s = rate(pool, variant == "neon" ? int8_neon : int8_neondot);
    return ceilings;
  }
#endif
  ceilings.f32_ops_per_s = rate(pool, f32_plain);
  return ceilings;
}

}  // namespace hearth::kernels
