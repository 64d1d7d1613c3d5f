// Stores K and V of a step's rows; in rotate_and_store, K is rotated on its way, and further blocks
// of the launch rotate the queries in place.

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/attention/any_type.cuh"
#include "kernels/cuda/attention/kv_tiles.cuh"
#include "kernels/cuda/rows/rotate.cuh"
#include "kernels/ops/encoder_kernels.h"

namespace hearth::kernels {
namespace {

constexpr int kThreads = 256;

struct StoreParams {
  const int32_t* count;
  const int32_t* slot_mapping;
  RowsView k;
  RowsView v;
  KvView kv;
  int32_t store_blocks;  ///< of a row; those after them rotate queries
  Rotation rotation;     ///< of K and of the queries
  RowsView q;
  int32_t q_heads;

  __device__ float key(int64_t row, int head, int d) const {
    return rotated_value(rotation, row, k.data + row * k.stride + int64_t{head} * kv.k_dim, d);
  }
};

/// The slot of the block's row, in which the block stores its share; -1: it stores nothing.
__device__ int slot_to_store(const StoreParams& p) {
  after_previous_launch();
  const int64_t row = blockIdx.x;
  if (row >= *p.count) return -1;
  if (block_y() < p.store_blocks) return p.slot_mapping[row];
  rotate_pairs(p.rotation, row, p.q.data + row * p.q.stride, p.q_heads, p.kv.k_dim,
               (block_y() - p.store_blocks) * kThreads + thread_x(),
               (grid_y() - p.store_blocks) * kThreads);
  return -1;
}

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
  const int slot = slot_to_store(p);
  if (slot < 0) return;
  const int64_t row = blockIdx.x;
  const KvView& kv = p.kv;
  const int position = slot % kv.block_size;
  const int share = key_share(kv.k_dim, sizeof(T));
  const bool tiled = kTileable<T> && tiled_heads(kv);
  const int first = block_y() * kThreads + thread_x();
  const int step = p.store_blocks * kThreads;
  T* key = keys<T>(kv, slot / kv.block_size);
  for (int c = first; c < kv.num_kv_heads * kv.k_dim; c += step) {
    const int head = c / kv.k_dim;
    const int d = c % kv.k_dim;
    const int64_t k = tiled ? tiled_key(head, position, d, kv.k_dim, kv.block_size)
                            : key_element(head, position, d, kv.k_dim, kv.block_size, share);
    from_float(p.key(row, head, d), key + k);
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
  const int slot = slot_to_store(p);
  if (slot < 0) return;
  const int64_t row = blockIdx.x;
  const KvView& kv = p.kv;
  const int position = slot % kv.block_size;
  const int share = key_share(kv.k_dim, 1);
  const bool tiled = tiled_heads(kv);
  const int lane = thread_x() % kWarp;
  const int warp = block_y() * (kThreads / kWarp) + thread_x() / kWarp;
  const int warps = p.store_blocks * (kThreads / kWarp);
  auto* key = keys<int8_t>(kv, slot / kv.block_size);
  const int k_scales = kv_scales(kv.k_dim);
  const bool rotated = kv_rotated(kv.k_type, kv.v_in_k);
  for (int i = warp; i < kv.num_kv_heads * k_scales; i += warps) {
    const int head = i / k_scales;
    const int first = i % k_scales * kKvScaleDims;
    const int d = first + lane;
    const bool there = d < kv.k_dim;
    float x = there ? p.key(row, head, d) : 0.0f;
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

/// Stores 32 values of a head from dimension `first` on, by one warp; x(d) is one of them.
template <typename Value>
__device__ void store_any(const AnyHead<std::byte>& to, bool rotated, int offset, int first,
                          const Value& x) {
  const int lane = thread_x() % kWarp;
  const int d = first + lane;
  const bool there = d < to.at.dims;
  float value = there ? x(d) : 0.0f;
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
  const int slot = slot_to_store(p);
  if (slot < 0) return;
  const int64_t row = blockIdx.x;
  const KvView& kv = p.kv;
  const int64_t block = slot / kv.block_size;
  const int offset = slot % kv.block_size;
  const int warp = block_y() * (kThreads / kWarp) + thread_x() / kWarp;
  const int warps = p.store_blocks * (kThreads / kWarp);
  const int64_t k_bytes = kv_head_bytes(kv.k_type, kv.block_size, kv.k_dim);
  const bool rotated = kv_rotated(kv.k_type, kv.v_in_k);
  for (int i = warp; i < kv.num_kv_heads * kv_scales(kv.k_dim); i += warps) {
    const int head = i / kv_scales(kv.k_dim);
    store_any(
        {keys<std::byte>(kv, block) + head * k_bytes, kv.k_type, {kv.block_size, kv.k_dim}, true},
        rotated, offset, i % kv_scales(kv.k_dim) * kKvScaleDims,
        [&](int d) { return p.key(row, head, d); });
  }
  if (kv.v_in_k) return;
  const int64_t v_bytes = kv_head_bytes(kv.v_type, kv.block_size, kv.v_dim);
  for (int i = warp; i < kv.num_kv_heads * kv_scales(kv.v_dim); i += warps) {
    const int head = i / kv_scales(kv.v_dim);
    const float* x = p.v.data + row * p.v.stride + int64_t{head} * kv.v_dim;
    store_any({values<std::byte>(kv, block) + head * v_bytes,
               kv.v_type,
               {kv.block_size, kv.v_dim},
               false},
              false, offset, i % kv_scales(kv.v_dim) * kKvScaleDims, [&](int d) { return x[d]; });
  }
}

void store(void* state, const KvStoreArgs& args, const RopeArgs* rope) {
  const BatchIndex& batch = *args.batch;
  if (batch.num_tokens == 0) return;
  const KvShape& shape = args.kv.shape;
  StoreParams params{};
  params.count = row_count(batch, Rows::kTokens);
  params.slot_mapping = batch.groups[args.group].slot_mapping;
  params.k = rows_view(args.k);
  if (!shape.v_in_k) params.v = rows_view(args.v);
  params.kv = kv_view(args.kv);
  const int64_t values = int64_t{shape.num_kv_heads} * std::max(shape.k_dim, shape.v_dim);
  params.store_blocks = static_cast<int32_t>(std::min<int64_t>(ceil_div(values, kThreads), 16));
  int64_t across = params.store_blocks;
  if (rope != nullptr) {
    params.rotation = rotation_of(*rope);
    params.q = rows_view(rope->x);
    params.q_heads = rope->num_heads - shape.num_kv_heads;
    const int64_t pairs = int64_t{params.q_heads} * params.rotation.num_pairs;
    across += std::min<int64_t>(ceil_div(pairs, kThreads), 32);
  }
  cudaStream_t stream = cuda_state(state).stream.get();
  const dim3 grid = grid2(batch.num_tokens, across);
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

}  // namespace

void cuda::kv_store(void* state, const KvStoreArgs& args) { store(state, args, nullptr); }

void cuda::rotate_and_store(void* state, const RopeArgs& rope, const KvStoreArgs& args) {
  const int64_t width = int64_t{rope.num_heads} * rope.head_dim;
  const float* heads = static_cast<const float*>(rope.x.data) + width - args.k.cols;
  HEARTH_EXPECT(args.k.data == heads && args.k.row_stride == rope.x.row_stride &&
                    rope.head_dim == args.kv.shape.k_dim,
                rope.num_heads, rope.head_dim);
  store(state, args, &rope);
}

}  // namespace hearth::kernels
