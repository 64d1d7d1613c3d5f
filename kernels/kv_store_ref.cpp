#include "kernels/base/check.h"
#include "kernels/half.h"
#include "kernels/kv_layout.h"
#include "kernels/op_checks.h"
#include "kernels/ops_ref.h"

namespace hearth::kernels::reference {
namespace {

void store(std::byte* layer, DType dtype, int64_t index, float value) {
  switch (dtype) {
    case DType::kF32: reinterpret_cast<float*>(layer)[index] = value; break;
    case DType::kF16: reinterpret_cast<uint16_t*>(layer)[index] = f16_from_f32(value); break;
    case DType::kBF16: reinterpret_cast<uint16_t*>(layer)[index] = bf16_from_f32(value); break;
    default: HEARTH_CHECK(false, "KV type {}", info(dtype).name);
  }
}

}  // namespace

void kv_store(void*, const KvStoreArgs& args) {
  check_args(args);
  const PagedKv& kv = args.kv;
  const KvLayout layout{kv.block_size, kv.num_kv_heads, kv.head_dim};
  const int32_t* slots = args.batch->groups[static_cast<size_t>(args.group)].slot_mapping;
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    if (slots[t] < 0) continue;
    const int32_t offset = slots[t] % kv.block_size;
    std::byte* layer = kv.base + slots[t] / kv.block_size * kv.block_bytes + kv.layer_offset;
    for (int32_t h = 0; h < kv.num_kv_heads; ++h) {
      for (int32_t d = 0; d < kv.head_dim; ++d) {
        const int64_t c = static_cast<int64_t>(h) * kv.head_dim + d;
        store(layer, kv.dtype, layout.k(h, d, offset), args.k.row<float>(t)[c]);
        store(layer, kv.dtype, layout.v(h, offset, d), args.v.row<float>(t)[c]);
      }
    }
  }
}

}  // namespace hearth::kernels::reference
