#pragma once
// Products of a warpgroup, four warps, on the tensor cores of compute capability 9.0: operand A in
// registers, operand B in shared memory; both of 8 bits with sums in int32, or of f16 or bf16 with
// sums in f32. PTX ISA, "Asynchronous warpgroup level matrix instructions": wgmma.m64nNk32 and
// m64nNk16. A warp has 16 rows of A in the registers of mma.m16n8k32 or m16n8k16; its sums are
// those of N / 8 tiles of 8 columns, N / 2 in each lane.
//
// Operand B without swizzle: core matrices of 8 columns and 16 bytes of K, 128 bytes each.
//
// The instructions are asynchronous: between begin_products() and the wait for them, the thread
// leaves their registers alone.

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/mma.cuh"

#if defined(HEARTH_CUDA_SHIM) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HEARTH_HAS_WGMMA 1
#endif

namespace hearth::kernels {

inline constexpr int kWarpgroup = 4 * kWarp;

#if defined(HEARTH_HAS_WGMMA)

#if defined(HEARTH_CUDA_SHIM)

// The tests' replacement: a product has ended on return. What each function is for stands below.

struct OperandB {
  const std::byte* first;
  int k_step;
  int column_step;
  OperandB plus(int bytes) const { return {first + bytes, k_step, column_step}; }
};
inline OperandB operand_b(const std::byte* shared, int k_step, int column_step) {
  return {shared, k_step, column_step};
}
inline void arrive_and_wait(int barrier, unsigned threads,
                            std::source_location where = std::source_location::current()) {
  shim::named_barrier(barrier, threads, true, where);
}
inline void arrive(int barrier, unsigned threads,
                   std::source_location where = std::source_location::current()) {
  shim::named_barrier(barrier, threads, false, where);
}
inline void shared_writes_before_products() {}
template <int kRegisters>
void give_registers() {}
template <int kRegisters>
void take_registers() {}
inline void begin_products() {}
inline void commit_products() {}
template <int kPending>
void wait_for_products() {}
template <typename Register, int kCount>
void settle(Register (&)[kCount]) {}

template <bool kAdd, int kSums>
void multiply_u8_s8(int (&d)[kSums], const uint32_t (&a)[4], const OperandB& b) {
  for (int tile = 0; tile < kSums / 4; ++tile) {
    int(&c)[4] = reinterpret_cast<int(&)[4]>(d[4 * tile]);
    if (!kAdd) c[0] = c[1] = c[2] = c[3] = 0;
    const std::byte* column = b.first + tile * b.column_step + thread_x() % kWarp * 4;
    shim::mma_8<uint8_t>(c, a[0], a[1], load_as<uint32_t>(column));
    shim::mma_8<uint8_t>(c, a[2], a[3], load_as<uint32_t>(column + b.k_step));
  }
}
template <typename T, bool kAdd, int kSums>
void multiply_k16(float (&d)[kSums], const uint32_t (&a)[4], const OperandB& b) {
  for (int tile = 0; tile < kSums / 4; ++tile) {
    float(&c)[4] = reinterpret_cast<float(&)[4]>(d[4 * tile]);
    if (!kAdd) c[0] = c[1] = c[2] = c[3] = 0;
    const std::byte* column = b.first + tile * b.column_step + thread_x() % kWarp * 4;
    mma_k16<T>(c, a, load_as<uint32_t>(column), load_as<uint32_t>(column + b.k_step));
  }
}

#else

/// A matrix descriptor: address and steps in units of 16 bytes.
struct OperandB {
  uint64_t descriptor;
  __device__ OperandB plus(int bytes) const {
    return {descriptor + static_cast<uint64_t>(bytes / 16)};
  }
};
/// `k_step`, `column_step`: bytes from a core matrix to its neighbours.
__device__ inline OperandB operand_b(const std::byte* shared, int k_step, int column_step) {
  const auto address = static_cast<uint64_t>(__cvta_generic_to_shared(shared));
  return {(address & 0x3ffffu) >> 4 | static_cast<uint64_t>(k_step / 16) << 16 |
          static_cast<uint64_t>(column_step / 16) << 32};
}
/// Barriers of whole warps of a block, 1 to 15; `threads` of them reach one. The second does not
/// wait.
__device__ inline void arrive_and_wait(int barrier, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void arrive(int barrier, unsigned threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// What this thread has written to shared memory comes before products of a later barrier.
__device__ inline void shared_writes_before_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// The warpgroup's threads have kRegisters registers from now on, a multiple of 8: fewer than
/// before, or more, as soon as others of the block have given them. Each thread begins with as many
/// as __launch_bounds__ leaves it.
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
/// Before the first product after the thread has written registers of one.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Ends a group of products.
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits for all but the latest kPending groups.
template <int kPending>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Instructions that write these registers stay before it, those that read them after it: before
/// begin_products() for what products read and add to, after a wait for what they have written.
template <int kCount>
__device__ inline void settle(float (&registers)[kCount]) {
#pragma unroll
  for (float& value : registers) asm volatile("" : "+f"(value)::"memory");
}
template <int kCount>
__device__ inline void settle(uint32_t (&registers)[kCount]) {
#pragma unroll
  for (uint32_t& value : registers) asm volatile("" : "+r"(value)::"memory");
}

// clang-format off
#define HEARTH_SUMS_8(kind, i) \
  kind(d[i]), kind(d[i + 1]), kind(d[i + 2]), kind(d[i + 3]), \
  kind(d[i + 4]), kind(d[i + 5]), kind(d[i + 6]), kind(d[i + 7])
#define HEARTH_SUMS_16(kind) HEARTH_SUMS_8(kind, 0), HEARTH_SUMS_8(kind, 8)
#define HEARTH_SUMS_32(kind) HEARTH_SUMS_16(kind), HEARTH_SUMS_8(kind, 16), HEARTH_SUMS_8(kind, 24)
#define HEARTH_SUMS_48(kind) HEARTH_SUMS_32(kind), HEARTH_SUMS_8(kind, 32), HEARTH_SUMS_8(kind, 40)
#define HEARTH_SUMS_64(kind) \
  HEARTH_SUMS_32(kind), HEARTH_SUMS_8(kind, 32), HEARTH_SUMS_8(kind, 40), \
  HEARTH_SUMS_8(kind, 48), HEARTH_SUMS_8(kind, 56)

/// d = A B, or d += A B, for 128 and for 32 columns. Called by the whole warpgroup.
template <bool kAdd>
__device__ inline void multiply_u8_s8(int (&d)[64], const uint32_t (&a)[4], const OperandB& b) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.u8.s8"
      " {%0,%1,%2,%3,%4,%5,%6,%7,"
      " %8,%9,%10,%11,%12,%13,%14,%15,"
      " %16,%17,%18,%19,%20,%21,%22,%23,"
      " %24,%25,%26,%27,%28,%29,%30,%31,"
      " %32,%33,%34,%35,%36,%37,%38,%39,"
      " %40,%41,%42,%43,%44,%45,%46,%47,"
      " %48,%49,%50,%51,%52,%53,%54,%55,"
      " %56,%57,%58,%59,%60,%61,%62,%63}, "
      "{%64,%65,%66,%67}, %68, add;\n}\n"
      : HEARTH_SUMS_64("+r")
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor), "n"(kAdd ? 1 : 0));
}
template <bool kAdd>
__device__ inline void multiply_u8_s8(int (&d)[16], const uint32_t (&a)[4], const OperandB& b) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k32.s32.u8.s8"
      " {%0,%1,%2,%3,%4,%5,%6,%7,"
      " %8,%9,%10,%11,%12,%13,%14,%15}, "
      "{%16,%17,%18,%19}, %20, add;\n}\n"
      : HEARTH_SUMS_16("+r")
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor), "n"(kAdd ? 1 : 0));
}
// `kind` and `add`: "+f" and "1" to add to d, "=f" and "0" to overwrite it.
#define HEARTH_MULTIPLY_64(type, kind, add) \
  asm volatile( \
      "{\n.reg .pred add;\nsetp.ne.b32 add, " add ", 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type \
      " {%0,%1,%2,%3,%4,%5,%6,%7," \
      " %8,%9,%10,%11,%12,%13,%14,%15," \
      " %16,%17,%18,%19,%20,%21,%22,%23," \
      " %24,%25,%26,%27,%28,%29,%30,%31," \
      " %32,%33,%34,%35,%36,%37,%38,%39," \
      " %40,%41,%42,%43,%44,%45,%46,%47," \
      " %48,%49,%50,%51,%52,%53,%54,%55," \
      " %56,%57,%58,%59,%60,%61,%62,%63}, " \
      "{%64,%65,%66,%67}, %68, add, 1, 1, 0;\n}\n" \
      : HEARTH_SUMS_64(kind) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor))
#define HEARTH_MULTIPLY_48(type, kind, add) \
  asm volatile( \
      "{\n.reg .pred add;\nsetp.ne.b32 add, " add ", 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n96k16.f32." type "." type \
      " {%0,%1,%2,%3,%4,%5,%6,%7," \
      " %8,%9,%10,%11,%12,%13,%14,%15," \
      " %16,%17,%18,%19,%20,%21,%22,%23," \
      " %24,%25,%26,%27,%28,%29,%30,%31," \
      " %32,%33,%34,%35,%36,%37,%38,%39," \
      " %40,%41,%42,%43,%44,%45,%46,%47}, " \
      "{%48,%49,%50,%51}, %52, add, 1, 1, 0;\n}\n" \
      : HEARTH_SUMS_48(kind) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor))
#define HEARTH_MULTIPLY_32(type, kind, add) \
  asm volatile( \
      "{\n.reg .pred add;\nsetp.ne.b32 add, " add ", 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type \
      " {%0,%1,%2,%3,%4,%5,%6,%7," \
      " %8,%9,%10,%11,%12,%13,%14,%15," \
      " %16,%17,%18,%19,%20,%21,%22,%23," \
      " %24,%25,%26,%27,%28,%29,%30,%31}, " \
      "{%32,%33,%34,%35}, %36, add, 1, 1, 0;\n}\n" \
      : HEARTH_SUMS_32(kind) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor))
/// The same for T = Half, BFloat16, and 128, 96 and 64 columns.
template <typename T, bool kAdd>
__device__ inline void multiply_k16(float (&d)[64], const uint32_t (&a)[4], const OperandB& b) {
  if constexpr (kAdd && std::is_same_v<T, Half>) HEARTH_MULTIPLY_64("f16", "+f", "1");
  else if constexpr (kAdd) HEARTH_MULTIPLY_64("bf16", "+f", "1");
  else if constexpr (std::is_same_v<T, Half>) HEARTH_MULTIPLY_64("f16", "=f", "0");
  else HEARTH_MULTIPLY_64("bf16", "=f", "0");
}
template <typename T, bool kAdd>
__device__ inline void multiply_k16(float (&d)[48], const uint32_t (&a)[4], const OperandB& b) {
  if constexpr (kAdd && std::is_same_v<T, Half>) HEARTH_MULTIPLY_48("f16", "+f", "1");
  else if constexpr (kAdd) HEARTH_MULTIPLY_48("bf16", "+f", "1");
  else if constexpr (std::is_same_v<T, Half>) HEARTH_MULTIPLY_48("f16", "=f", "0");
  else HEARTH_MULTIPLY_48("bf16", "=f", "0");
}
template <typename T, bool kAdd>
__device__ inline void multiply_k16(float (&d)[32], const uint32_t (&a)[4], const OperandB& b) {
  if constexpr (kAdd && std::is_same_v<T, Half>) HEARTH_MULTIPLY_32("f16", "+f", "1");
  else if constexpr (kAdd) HEARTH_MULTIPLY_32("bf16", "+f", "1");
  else if constexpr (std::is_same_v<T, Half>) HEARTH_MULTIPLY_32("f16", "=f", "0");
  else HEARTH_MULTIPLY_32("bf16", "=f", "0");
}
#undef HEARTH_MULTIPLY_48
#undef HEARTH_MULTIPLY_64
#undef HEARTH_SUMS_64
#undef HEARTH_SUMS_48
#undef HEARTH_SUMS_32
#undef HEARTH_SUMS_16
#undef HEARTH_SUMS_8
// clang-format on

#endif
#endif

}  // namespace hearth::kernels
