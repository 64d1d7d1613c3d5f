#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/op_checks.h"
#include "kernels/ops_cpu.h"

namespace hearth::kernels::cpu {
namespace {

/// Token rows cut into tiles: full ones of the widest kernel, and the rest in the narrowest tile
/// that holds it.
struct Tiles {
  int32_t rows;
  int32_t full_width;
  int32_t last_width;
  int32_t count;

  Tiles(const MatmulKernels& kernels, int32_t num_rows) : rows(num_rows), full_width(1) {
    for (const int32_t width : kernels.widths) full_width = std::max(full_width, width);
    count = (rows + full_width - 1) / full_width;
    last_width = full_width;
    for (const int32_t width : kernels.widths) {
      if (width >= rows_of(count - 1)) last_width = std::min(last_width, width);
    }
  }
  int32_t rows_of(int32_t tile) const { return std::min(full_width, rows - tile * full_width); }
  int32_t width_of(int32_t tile) const { return tile + 1 < count ? full_width : last_width; }
};

int64_t tile_bytes(const Tiles& tiles, int64_t cols, bool quantized) {
  const int64_t row = quantized ? cols / kQuantBlock * kQuantBlockBytes : cols * 4;
  return (tiles.full_width * row + 63) / 64 * 64;
}

/// Packs all rows of x; tile i is at i * tile_bytes().
const std::byte* pack_activations(CpuState& state, const MatmulArgs& args, const Tiles& tiles,
                                  bool quantized) {
  const int64_t cols = args.x.cols;
  const int64_t bytes = tile_bytes(tiles, cols, quantized);
  HostBuffer& buffer = quantized ? state.quantized_activations : state.plain_activations;
  std::byte* packed = buffer.at_least(static_cast<size_t>(bytes * tiles.count));
  const auto pack = quantized ? state.matmul.pack_quantized : state.matmul.pack_plain;
  constexpr int64_t kChunk = 1024;
  const int64_t chunks = (cols + kChunk - 1) / kChunk;
  state.for_each(tiles.count * chunks, tiles.rows * cols, [&](int64_t item, int32_t) {
    const auto tile = static_cast<int32_t>(item / chunks);
    const int64_t first = item % chunks * kChunk;
    pack({.x = args.x.row<float>(int64_t{tile} * tiles.full_width),
          .stride = args.x.row_stride,
          .rows = tiles.rows_of(tile),
          .width = tiles.width_of(tile),
          .first = first,
          .last = std::min(cols, first + kChunk),
          .tile = packed + tile * bytes});
  });
  return packed;
}

/// One weight segment's share of the work: items are (block of groups, block of tiles).
struct Plan {
  int64_t groups_per_item;
  int64_t tiles_per_item;
  int64_t tile_blocks;
  int64_t num_items;
  int64_t panel;  ///< inputs walked before the next tile takes its turn

  Plan(const PackedWeight::Segment& segment, const Tiles& tiles, int64_t cols,
       int32_t num_threads) {
    // Few rows: weights stream from memory, items are small enough to even out slow cores. Many
    // rows: the groups' panel stays in L2 and the tile's in L1 while they meet.
    constexpr int64_t kStreamBytes = 96 << 10;
    constexpr int64_t kTileBytes = 16 << 10;
    constexpr int64_t kRowsPerItem = 128;
    constexpr int64_t kGroupsPerItem = 8;
    tiles_per_item = std::max<int64_t>(1, kRowsPerItem / tiles.full_width);
    tile_blocks = (tiles.count + tiles_per_item - 1) / tiles_per_item;
    groups_per_item = kGroupsPerItem;
    if (tiles.count <= 2) {
      groups_per_item = std::clamp<int64_t>(kStreamBytes / segment.group_bytes, 4, 16);
    }
    const int64_t even = segment.num_groups * tile_blocks / (4 * num_threads);
    groups_per_item = std::clamp<int64_t>(even, 1, groups_per_item);
    num_items = (segment.num_groups + groups_per_item - 1) / groups_per_item * tile_blocks;
    const bool quantized = segment.dtype == DType::kQ8_0;
    const int64_t block_bytes =
        quantized ? kQuantBlockBytes : static_cast<int64_t>(kQuantBlock * sizeof(float));
    const int64_t blocks = kTileBytes / (block_bytes * tiles.width_of(0));
    panel = std::min(cols, std::max<int64_t>(blocks, 8) * kQuantBlock);
  }
};

void (*kernel_of(const MatmulKernels& kernels, DType dtype))(const MatmulPanel&) {
  switch (dtype) {
    case DType::kF32: return kernels.f32;
    case DType::kF16: return kernels.f16;
    case DType::kBF16: return kernels.bf16;
    case DType::kQ8_0: return kernels.q8_0;
    default: HEARTH_CHECK(false, "weight type {}", info(dtype).name);
  }
  return nullptr;
}

/// Sums of one tile, (groups, width, 16), to their place in `out`.
void write_out(const MatmulArgs& args, const float* sums, int32_t width, int64_t first_row,
               int32_t rows, int64_t first_output, int64_t num_outputs) {
  for (int32_t t = 0; t < rows; ++t) {
    float* out = args.out.row<float>(first_row + t) + first_output;
    const float* residual = args.residual != nullptr
                                ? args.residual->row<float>(first_row + t) + first_output
                                : nullptr;
    for (int64_t o = 0; o < num_outputs; o += kGroup) {
      const float* sum = sums + (o * width + t * kGroup);
      const int64_t lanes = std::min<int64_t>(kGroup, num_outputs - o);
      for (int64_t i = 0; i < lanes; ++i) {
        out[o + i] = residual != nullptr ? sum[i] + residual[o + i] : sum[i];
      }
    }
  }
}

void multiply(CpuState& state, const MatmulArgs& args, const PackedWeight::Segment& segment,
              const Tiles& tiles, const std::byte* packed) {
  const int64_t cols = args.x.cols;
  const bool quantized = segment.dtype == DType::kQ8_0;
  const int64_t bytes = tile_bytes(tiles, cols, quantized);
  const Plan plan(segment, tiles, cols, state.pool.active());
  const auto kernel = kernel_of(state.matmul, segment.dtype);
  const int64_t tile_sums = plan.groups_per_item * kGroup * tiles.full_width;
  const auto scratch_bytes = static_cast<size_t>(plan.tiles_per_item * tile_sums) * sizeof(float);

  const int64_t work = tiles.rows * cols * segment.rows / 16;
  state.for_each(plan.num_items, work, [&](int64_t item, int32_t thread) {
    const int64_t first_group = item / plan.tile_blocks * plan.groups_per_item;
    const int64_t groups = std::min(plan.groups_per_item, segment.num_groups - first_group);
    const auto first_tile = static_cast<int32_t>(item % plan.tile_blocks * plan.tiles_per_item);
    const auto last_tile =
        static_cast<int32_t>(std::min<int64_t>(tiles.count, first_tile + plan.tiles_per_item));
    auto* sums = reinterpret_cast<float*>(
        state.thread_scratch[static_cast<size_t>(thread)].at_least(scratch_bytes));
    for (int64_t first = 0; first < cols; first += plan.panel) {
      for (int32_t tile = first_tile; tile < last_tile; ++tile) {
        kernel({.weights = reinterpret_cast<const uint8_t*>(segment.data) +
                           first_group * segment.group_bytes,
                .group_bytes = segment.group_bytes,
                .num_groups = static_cast<int32_t>(groups),
                .tile = packed + tile * bytes,
                .width = tiles.width_of(tile),
                .cols = cols,
                .first = first,
                .last = std::min(cols, first + plan.panel),
                .sums = sums + (tile - first_tile) * tile_sums});
      }
    }
    const int64_t outputs = std::min(groups * kGroup, segment.rows - first_group * kGroup);
    for (int32_t tile = first_tile; tile < last_tile; ++tile) {
      write_out(args, sums + (tile - first_tile) * tile_sums, tiles.width_of(tile),
                int64_t{tile} * tiles.full_width, tiles.rows_of(tile),
                segment.first_row + first_group * kGroup, outputs);
    }
  });
}

}  // namespace

void matmul(void* state_pointer, const MatmulArgs& args) {
  check_args(args);
  auto& state = *static_cast<CpuState*>(state_pointer);
  const auto& weight = static_cast<const PackedWeight&>(*args.w);
  const int32_t rows = num_rows(*args.batch, args.rows);
  if (rows == 0) return;
  const Tiles tiles(state.matmul, rows);

  const std::byte* plain = nullptr;
  const std::byte* quantized = nullptr;
  for (const PackedWeight::Segment& segment : weight.segments) {
    const bool q8_0 = segment.dtype == DType::kQ8_0;
    const std::byte*& packed = q8_0 ? quantized : plain;
    if (packed == nullptr) packed = pack_activations(state, args, tiles, q8_0);
    multiply(state, args, segment, tiles, packed);
  }
}

}  // namespace hearth::kernels::cpu
