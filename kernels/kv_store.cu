#include "kernels/cuda_kv.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    kv_store_kernel(const int32_t* count, const int32_t* slot_mapping, RowsView k, RowsView v,
                    KvView kv) {
  const int row = static_cast<int>(blockIdx.x);
  if (row >= *count) return;
  const int slot = slot_mapping[row];
  if (slot < 0) return;
  const int position = slot % kv.block_size;
  const int share = key_share(kv.head_dim, sizeof(T));
  T* key = keys<T>(kv, slot / kv.block_size);
  T* value = values<T>(kv, slot / kv.block_size);
  for (int c = static_cast<int>(threadIdx.x); c < kv.num_kv_heads * kv.head_dim; c += kThreads) {
    const int head = c / kv.head_dim;
    const int d = c % kv.head_dim;
    from_float(k.data[row * k.stride + c],
               key + key_element(head, position, d, kv.head_dim, kv.block_size, share));
    from_float(v.data[row * v.stride + c],
               value + value_element(head, position, d, kv.head_dim, kv.block_size));
  }
}

template <typename T>
void store(void* state, const KvStoreArgs& args) {
  const BatchIndex& batch = *args.batch;
  HEARTH_LAUNCH(cuda_state(state).stream.get(), kv_store_kernel<T>, batch.num_tokens, kThreads, 0,
                row_count(batch, Rows::kTokens), batch.groups[args.group].slot_mapping,
                rows_view(args.k), rows_view(args.v), kv_view(args.kv));
}

}  // namespace

void cuda::kv_store(void* state, const KvStoreArgs& args) {
  if (args.batch->num_tokens == 0) return;
  switch (args.kv.dtype) {
    case DType::kF32: return store<float>(state, args);
    case DType::kF16: return store<Half>(state, args);
    case DType::kBF16: return store<BFloat16>(state, args);
    default: HEARTH_EXPECT(false, static_cast<int>(args.kv.dtype));
  }
}

}  // namespace hearth::kernels
