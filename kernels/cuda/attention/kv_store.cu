#include <algorithm>
#include <type_traits>

#include "kernels/cuda/attention/any_type.cuh"
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
  const bool rotated = kv_rotated(kv.k_type, kv.v_in_k);
  for (int i = warp; i < kv.num_kv_heads * k_scales; i += warps) {
    const int head = i / k_scales;
    const int first = i % k_scales * kKvScaleDims;
    const int d = first + lane;
    const bool there = d < kv.k_dim;
    const int64_t c = int64_t{head} * kv.k_dim + d;
    float x = there ? p.k.data[row * p.k.stride + c] : 0.0f;
    if (rotated && first + kKvScaleDims <= kv.k_dim) x = rotated_lane(x, kRotatedKey);
    Half scale;
    const int8_t k = quantize_lane(x, &scale);
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

/// The scale of a warp's 32 values, and their codes (kv_layout.h); lanes past the last have 0.
__device__ uint32_t code_of(KvType type, float value, Half* scale) {
  const uint32_t bits = __float_as_uint(value);
  const uint32_t most = warp_max(bits << 1 | bits >> 31);  // a magnitude, then its sign
  const float largest = __uint_as_float(most >> 1);
  float wanted = largest / 127.0f;
  if (type == KvType::kFp8) wanted = fminf(largest / kMostE4m3, kMostFp8Scale);
  if (type == KvType::kQ4_0) wanted = (most & 1) != 0 ? largest / 8 : -largest / 8;
  if (largest == 0) wanted = 0;
  from_float(most >> 1 < 0x7f800000u ? wanted : NAN, scale);
  const float d = to_float(*scale);
  const bool zeros = d == 0 || !(fabsf(d) <= 65504.0f);
  const float q = zeros ? 0.0f : value * (1.0f / d);
  if (type == KvType::kFp8) return e4m3_code(q);
  if (type == KvType::kQ4_0) {
    return static_cast<uint32_t>(static_cast<int>(fminf(fmaxf(rintf(q), -8.0f), 7.0f)) + 8);
  }
  return static_cast<uint8_t>(static_cast<int8_t>(fminf(fmaxf(rintf(q), -127.0f), 127.0f)));
}

/// Stores 32 values of a head from dimension `first` on, by one warp.
__device__ void store_any(const AnyHead<std::byte>& to, bool rotated, int offset, int first,
                          const float* x) {
  const int lane = thread_x() % kWarp;
  const int d = first + lane;
  const bool there = d < to.at.dims;
  float value = there ? x[d] : 0.0f;
  if (rotated && first + kKvScaleDims <= to.at.dims) value = rotated_lane(value, kRotatedKey);
  if (!kv_scaled(to.type)) {
    if (!there) return;
    const int64_t index = to.value(d, offset);
    if (to.type == KvType::kF32) reinterpret_cast<float*>(to.head)[index] = value;
    if (to.type == KvType::kF16) from_float(value, reinterpret_cast<Half*>(to.head) + index);
    if (to.type == KvType::kBF16) from_float(value, reinterpret_cast<BFloat16*>(to.head) + index);
    return;
  }
  Half scale;
  const uint32_t code = code_of(to.type, value, &scale);
  if (to.type == KvType::kQ4_0) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, code, to.of_k ? kKvFour : kKvPairBytes);
    if (!to.upper(d)) to.head[to.value(d, offset)] = std::byte(code | other << 4);
  } else if (there) {
    const uint32_t bias = to.of_k && to.type == KvType::kQ8_0 ? kKvKeyBias : 0;
    to.head[to.value(d, offset)] = std::byte(code + bias);
  }
  if (lane == 0) *reinterpret_cast<Half*>(to.head + to.scale(first, offset)) = scale;
}

/// One warp per 32 dimensions of a head.
__global__ void __launch_bounds__(kThreads) kv_store_any_kernel(StoreParams p) {
  after_previous_launch();
  const int64_t row = blockIdx.x;
  if (row >= *p.count) return;
  const KvView& kv = p.kv;
  const int slot = p.slot_mapping[row];
  if (slot < 0) return;
  const int64_t block = slot / kv.block_size;
  const int offset = slot % kv.block_size;
  const int warp = block_y() * (kThreads / kWarp) + thread_x() / kWarp;
  const int warps = grid_y() * (kThreads / kWarp);
  const int64_t k_bytes = kv_head_bytes(kv.k_type, kv.block_size, kv.k_dim);
  const bool rotated = kv_rotated(kv.k_type, kv.v_in_k);
  for (int i = warp; i < kv.num_kv_heads * kv_scales(kv.k_dim); i += warps) {
    const int head = i / kv_scales(kv.k_dim);
    store_any(
        {keys<std::byte>(kv, block) + head * k_bytes, kv.k_type, {kv.block_size, kv.k_dim}, true},
        rotated, offset, i % kv_scales(kv.k_dim) * kKvScaleDims,
        p.k.data + row * p.k.stride + int64_t{head} * kv.k_dim);
  }
  if (kv.v_in_k) return;
  const int64_t v_bytes = kv_head_bytes(kv.v_type, kv.block_size, kv.v_dim);
  for (int i = warp; i < kv.num_kv_heads * kv_scales(kv.v_dim); i += warps) {
    const int head = i / kv_scales(kv.v_dim);
    store_any({values<std::byte>(kv, block) + head * v_bytes,
               kv.v_type,
               {kv.block_size, kv.v_dim},
               false},
              false, offset, i % kv_scales(kv.v_dim) * kKvScaleDims,
              p.v.data + row * p.v.stride + int64_t{head} * kv.v_dim);
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
  if (any_types(args.kv.types)) {
    HEARTH_LAUNCH(stream, kv_store_any_kernel, grid, kThreads, 0, params);
    return;
  }
  switch (args.kv.types.k) {
    case KvType::kF32:
      HEARTH_LAUNCH(stream, kv_store_kernel<float>, grid, kThreads, 0, params);
      break;
    case KvType::kF16:
      HEARTH_LAUNCH(stream, kv_store_kernel<Half>, grid, kThreads, 0, params);
      break;
    case KvType::kBF16:
      HEARTH_LAUNCH(stream, kv_store_kernel<BFloat16>, grid, kThreads, 0, params);
      break;
    case KvType::kQ8_0: HEARTH_LAUNCH(stream, kv_store_q8_kernel, grid, kThreads, 0, params); break;
    default: HEARTH_EXPECT(false, static_cast<int>(args.kv.types.k));
  }
}

}  // namespace hearth::kernels
