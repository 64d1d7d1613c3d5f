#include <algorithm>
#include <type_traits>

#include "kernels/cuda/attention/kv_tiles.cuh"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

struct StoreParams {
  const int32_t* count;
  const int32_t* slot_mapping;
  RowsView k;
  RowsView v;
  KvView kv;
};

/// A value of V as T can hold it. A weight of 0 times infinity would be NaN, in rows that do not
/// see the position.
template <typename T>
__device__ float storable(float value) {
  if constexpr (std::is_same_v<T, Half>) {
    return value != value ? value : fminf(fmaxf(value, -65504.0f), 65504.0f);
  } else {
    return value;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) kv_store_kernel(StoreParams p) {
  after_previous_launch();
  const int64_t row = blockIdx.x;
  if (row >= *p.count) return;
  const KvView& kv = p.kv;
  const int slot = p.slot_mapping[row];
  if (slot < 0) return;
  const int position = slot % kv.block_size;
  const int share = key_share(kv.k_dim, sizeof(T));
  const bool tiled = kTileable<T> && tiled_heads(kv);
  const int first = block_y() * kThreads + thread_x();
  const int step = grid_y() * kThreads;
  T* key = keys<T>(kv, slot / kv.block_size);
  for (int c = first; c < kv.num_kv_heads * kv.k_dim; c += step) {
    const int head = c / kv.k_dim;
    const int d = c % kv.k_dim;
    const int64_t k = tiled ? tiled_key(head, position, d, kv.k_dim, kv.block_size)
                            : key_element(head, position, d, kv.k_dim, kv.block_size, share);
    from_float(p.k.data[row * p.k.stride + c], key + k);
  }
  if (kv.v_in_k) return;
  T* value = values<T>(kv, slot / kv.block_size);
  for (int c = first; c < kv.num_kv_heads * kv.v_dim; c += step) {
    const int head = c / kv.v_dim;
    const int d = c % kv.v_dim;
    const int64_t v = tiled ? tiled_value(head, position, d, kv.v_dim, kv.block_size)
                            : value_element(head, position, d, kv.v_dim, kv.block_size);
    from_float(storable<T>(p.v.data[row * p.v.stride + c]), value + v);
  }
}

/// Quantizes a warp's 32 values to integers and a scale, as kv_layout.h defines it; lanes past the
/// last have 0.
__device__ int8_t quantize_lane(float value, Half* scale) {
  const uint32_t bits = warp_max(__float_as_uint(value) & 0x7fffffffu);
  from_float(bits < 0x7f800000u ? __uint_as_float(bits) / 127.0f : NAN, scale);
  const float d = to_float(*scale);
  if (d == 0 || !(d <= 65504.0f)) return 0;
  return static_cast<int8_t>(fminf(fmaxf(rintf(value * (1.0f / d)), -127.0f), 127.0f));
}

/// One warp per 32 dimensions of a head.
__global__ void __launch_bounds__(kThreads) kv_store_q8_kernel(StoreParams p) {
  after_previous_launch();
  const int64_t row = blockIdx.x;
  if (row >= *p.count) return;
  const KvView& kv = p.kv;
  const int slot = p.slot_mapping[row];
  if (slot < 0) return;
  const int position = slot % kv.block_size;
  const int share = key_share(kv.k_dim, 1);
  const bool tiled = tiled_heads(kv);
  const int lane = thread_x() % kWarp;
  const int warp = block_y() * (kThreads / kWarp) + thread_x() / kWarp;
  const int warps = grid_y() * (kThreads / kWarp);
  auto* key = keys<int8_t>(kv, slot / kv.block_size);
  const int k_scales = kv_scales(kv.k_dim);
  for (int i = warp; i < kv.num_kv_heads * k_scales; i += warps) {
    const int head = i / k_scales;
    const int first = i % k_scales * kKvScaleDims;
    const int d = first + lane;
    const bool there = d < kv.k_dim;
    const int64_t c = int64_t{head} * kv.k_dim + d;
    Half scale;
    const int8_t k = quantize_lane(there ? p.k.data[row * p.k.stride + c] : 0.0f, &scale);
    if (there) {
      key[tiled ? tiled_q8_key(head, position, d, kv.k_dim, kv.block_size)
                : key_element(head, position, d, kv.k_dim, kv.block_size, share)] = k;
    }
    if (lane == 0) {
      scales_of(kv, key,
                kv.k_dim)[tiled ? tile_scales(head, position, first, kv.k_dim, kv.block_size) +
                                      key_scale_in_tile(position)
                                : key_scale(kv, head, position, first)] = scale;
    }
  }
  if (kv.v_in_k) return;
  auto* value = values<int8_t>(kv, slot / kv.block_size);
  const int v_scales = kv_scales(kv.v_dim);
  for (int i = warp; i < kv.num_kv_heads * v_scales; i += warps) {
    const int head = i / v_scales;
    const int first = i % v_scales * kKvScaleDims;
    const int d = first + lane;
    const bool there = d < kv.v_dim;
    const int64_t c = int64_t{head} * kv.v_dim + d;
    Half scale;
    const int8_t v = quantize_lane(there ? p.v.data[row * p.v.stride + c] : 0.0f, &scale);
    if (there) {
      value[tiled ? tiled_value(head, position, d, kv.v_dim, kv.block_size)
                  : value_element(head, position, d, kv.v_dim, kv.block_size)] = v;
    }
    if (lane == 0) {
      scales_of(kv, value,
                kv.v_dim)[tiled ? tile_scales(head, position, first, kv.v_dim, kv.block_size) +
                                      value_scale_in_tile(position)
                                : value_scale(kv, head, position, first)] = scale;
    }
  }
}

}  // namespace

void cuda::kv_store(void* state, const KvStoreArgs& args) {
  const BatchIndex& batch = *args.batch;
  if (batch.num_tokens == 0) return;
  const StoreParams params{row_count(batch, Rows::kTokens), batch.groups[args.group].slot_mapping,
                           rows_view(args.k), args.kv.shape.v_in_k ? RowsView{} : rows_view(args.v),
                           kv_view(args.kv)};
  cudaStream_t stream = cuda_state(state).stream.get();
  const KvShape& shape = args.kv.shape;
  const int64_t across =
      ceil_div(int64_t{shape.num_kv_heads} * std::max(shape.k_dim, shape.v_dim), kThreads);
  const dim3 grid = grid2(batch.num_tokens, std::min<int64_t>(across, 16));
  switch (args.kv.dtype) {
    case DType::kF32:
      HEARTH_LAUNCH(stream, kv_store_kernel<float>, grid, kThreads, 0, params);
      break;
    case DType::kF16:
      HEARTH_LAUNCH(stream, kv_store_kernel<Half>, grid, kThreads, 0, params);
      break;
    case DType::kBF16:
      HEARTH_LAUNCH(stream, kv_store_kernel<BFloat16>, grid, kThreads, 0, params);
      break;
    case DType::kQ8_0: HEARTH_LAUNCH(stream, kv_store_q8_kernel, grid, kThreads, 0, params); break;
    default: HEARTH_EXPECT(false, static_cast<int>(args.kv.dtype));
  }
}

}  // namespace hearth::kernels
