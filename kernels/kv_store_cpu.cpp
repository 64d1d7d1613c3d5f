#include <cstring>

#include "kernels/base/check.h"
#include "kernels/half.h"
#include "kernels/kv_layout.h"
#include "kernels/op_checks.h"
#include "kernels/ops_cpu.h"

namespace hearth::kernels::cpu {
namespace {

/// One head of one token: K goes into a column of (head_dim, block_size), V is a row.
template <typename T>
void store_head(T* layer, const KvLayout& layout, int32_t head, int32_t offset, const T* k,
                const T* v) {
  T* column = layer + layout.k(head, 0, offset);
  for (int64_t d = 0; d < layout.head_dim; ++d) column[d * layout.block_size] = k[d];
  std::memcpy(layer + layout.v(head, offset, 0), v,
              static_cast<size_t>(layout.head_dim) * sizeof(T));
}

void round_row(const RowKernels& kernels, DType dtype, const float* x, int64_t n, uint16_t* out) {
  if (dtype == DType::kF16) return kernels.to_f16(x, n, out);
  for (int64_t i = 0; i < n; ++i) out[i] = bf16_from_f32(x[i]);
}

}  // namespace

void kv_store(void* state_pointer, const KvStoreArgs& args) {
  check_args(args);
  auto& state = *static_cast<CpuState*>(state_pointer);
  const PagedKv& kv = args.kv;
  const KvLayout layout{kv.block_size, kv.num_kv_heads, kv.head_dim};
  const int32_t rows = num_rows(*args.batch, Rows::kTokens);
  const int32_t* slots = args.batch->groups[static_cast<size_t>(args.group)].slot_mapping;
  const int64_t n = kv.head_dim;

  // By head, not by token: neighbouring tokens share the cache lines of K.
  state.for_each(kv.num_kv_heads, rows * args.k.cols, [&](int64_t item, int32_t thread) {
    const auto head = static_cast<int32_t>(item);
    auto* rounded =
        reinterpret_cast<uint16_t*>(state.thread_scratch[static_cast<size_t>(thread)].at_least(
            static_cast<size_t>(2 * n) * sizeof(uint16_t)));
    for (int32_t t = 0; t < rows; ++t) {
      if (slots[t] < 0) continue;
      const int32_t offset = slots[t] % kv.block_size;
      std::byte* layer = kv.base + slots[t] / kv.block_size * kv.block_bytes + kv.layer_offset;
      const float* k = args.k.row<float>(t) + head * n;
      const float* v = args.v.row<float>(t) + head * n;
      if (kv.dtype == DType::kF32) {
        store_head(reinterpret_cast<float*>(layer), layout, head, offset, k, v);
        continue;
      }
      round_row(state.rows, kv.dtype, k, n, rounded);
      round_row(state.rows, kv.dtype, v, n, rounded + n);
      store_head(reinterpret_cast<uint16_t*>(layer), layout, head, offset, rounded, rounded + n);
    }
  });
}

}  // namespace hearth::kernels::cpu
