#include "kernels/cpu/matmul/rows.h"

#include <vector>

#include "kernels/cpu/matmul/file_weights.h"
#include "kernels/cpu/matmul/plan.h"
#include "kernels/ops/checks.h"

namespace hearth::kernels::cpu {
namespace {

int64_t tile_bytes(int32_t width, int64_t cols, bool quantized) {
  const int64_t row = quantized ? cols / kQuantBlock * kQuantBlockBytes : cols * 4;
  return (width * row + 63) / 64 * 64;
}

/// Packed activations of all sets: tiles of equal size in bytes, set after set.
struct PackedRows {
  const std::byte* data = nullptr;
  int64_t bytes_per_tile = 0;
};

/// The set that holds item `item`, where first[s] is the first item of set s.
size_t owner(const std::vector<int64_t>& first, int64_t item) {
  return static_cast<size_t>(std::upper_bound(first.begin(), first.end(), item) - first.begin()) -
         1;
}

PackedRows pack_rows(CpuState& state, const TensorView& x, std::span<const RowSet> sets,
                     const std::vector<int64_t>& first_tile, bool quantized) {
  int32_t widest = 0;
  for (const RowSet& set : sets) widest = std::max(widest, set.tiles.full_width);
  const int64_t bytes = tile_bytes(widest, x.cols, quantized);
  HostBuffer& buffer = quantized ? state.quantized_activations : state.plain_activations;
  const int64_t num_tiles = first_tile.back() + sets.back().tiles.count;
  std::byte* packed = buffer.at_least(static_cast<size_t>(bytes * num_tiles));
  const auto pack = quantized ? state.matmul.pack_quantized : state.matmul.pack_plain;
  constexpr int64_t kChunk = 1024;
  const int64_t chunks = (x.cols + kChunk - 1) / kChunk;
  int64_t rows = 0;
  for (const RowSet& set : sets) rows += set.tiles.rows;
  state.for_each(num_tiles * chunks, rows * x.cols, [&](int64_t item, int32_t) {
    const int64_t global_tile = item / chunks;
    const size_t s = owner(first_tile, global_tile);
    const Tiles& tiles = sets[s].tiles;
    const auto tile = static_cast<int32_t>(global_tile - first_tile[s]);
    const int64_t first_row = int64_t{tile} * tiles.full_width;
    const bool mapped = sets[s].x_rows != nullptr;
    const int64_t first = item % chunks * kChunk;
    pack({.x = x.row<float>(mapped ? 0 : first_row),
          .stride = x.row_stride,
          .row_of = mapped ? sets[s].x_rows + first_row : nullptr,
          .rows = tiles.rows_of(tile),
          .width = tiles.width_of(tile),
          .first = first,
          .last = std::min(x.cols, first + kChunk),
          .tile = packed + global_tile * bytes});
  });
  return {packed, bytes};
}

void (*kernel_of(const MatmulKernels& kernels, DType dtype))(const MatmulPanel&) {
  switch (dtype) {
    case DType::kF32: return kernels.f32;
    case DType::kF16: return kernels.f16;
    case DType::kBF16: return kernels.bf16;
    case DType::kQ8_0: return kernels.q8_0;
    default: return kernels.quant[quant_index(dtype)]->direct;
  }
}

/// One segment of the weight and one set of rows.
struct Job {
  const PackedWeight::Segment* segment;
  const RowSet* set;
  const std::byte* rows;  ///< packed: the set's first tile
  int64_t bytes_per_tile;
  MatmulPlan plan;
  /// Null if the kernel reads the packed groups directly.
  const QuantKernels* unpacked;
};

class Products {
 public:
  Products(CpuState& state, const TensorView* residual, const TensorView& out, int64_t cols)
      : state_(state), residual_(residual), out_(out), cols_(cols) {}

  void compute(const Job& job, int64_t item, int32_t thread) const {
    const MatmulPlan& plan = job.plan;
    const PackedWeight::Segment& segment = *job.segment;
    const Tiles& tiles = job.set->tiles;
    const int64_t first_group = item / plan.tile_blocks * plan.groups_per_item;
    const int64_t groups = std::min(plan.groups_per_item, segment.num_groups - first_group);
    const auto first_tile = static_cast<int32_t>(item % plan.tile_blocks * plan.tiles_per_item);
    const auto last_tile =
        static_cast<int32_t>(std::min<int64_t>(tiles.count, first_tile + plan.tiles_per_item));

    // Scratch: the tiles' sums, then the unpacked panel, then groups packed late.
    const int64_t tile_sums = plan.groups_per_item * kGroup * tiles.full_width;
    const int64_t sums_bytes = (plan.tiles_per_item * tile_sums * 4 + 63) / 64 * 64;
    const int64_t block_bytes =
        job.unpacked != nullptr ? unpacked_block_bytes(quant_layout(segment.dtype)) : 0;
    const int64_t panel_bytes =
        (plan.groups_per_panel * plan.inputs_per_panel / kQuantBlock * block_bytes + 63) / 64 * 64;
    const int64_t late_bytes = segment.whole() ? 0 : groups * segment.group_bytes;
    std::byte* scratch = state_.thread_scratch[thread].at_least(
        static_cast<size_t>(sums_bytes + panel_bytes + late_bytes));
    auto* sums = reinterpret_cast<float*>(scratch);
    auto* panel_scratch = reinterpret_cast<uint8_t*>(scratch) + sums_bytes;

    const auto* item_weights = reinterpret_cast<const uint8_t*>(
        segment.groups(job.set->expert * segment.num_groups + first_group, groups,
                       scratch + sums_bytes + panel_bytes));
    const auto kernel =
        job.unpacked != nullptr ? job.unpacked->unpacked : kernel_of(state_.matmul, segment.dtype);
    for (PanelPlace at{0, 0}; at.input < cols_ && at.group < groups;
         at = plan.next(at, groups, cols_)) {
      const int64_t last = std::min(cols_, at.input + plan.inputs_per_panel);
      MatmulPanel panel{
          .weights = item_weights + at.group * segment.group_bytes,
          .group_bytes = segment.group_bytes,
          .num_groups = static_cast<int32_t>(std::min(plan.groups_per_panel, groups - at.group)),
          .tile = nullptr,
          .width = 0,
          .cols = cols_,
          .first = at.input,
          .last = last,
          .sums = nullptr,
          .ahead = {}};
      FetchAhead fetch(plan, segment, cols_, item_weights, groups, at, last_tile - first_tile);
      if (job.unpacked != nullptr) {
        job.unpacked->unpack({.weights = panel.weights,
                              .group_bytes = panel.group_bytes,
                              .num_groups = panel.num_groups,
                              .cols = cols_,
                              .first = at.input,
                              .last = last,
                              .out = panel_scratch});
        panel.weights = panel_scratch;
        panel.group_bytes = (last - at.input) / kQuantBlock * block_bytes;
      }
      for (int32_t tile = first_tile; tile < last_tile; ++tile) {
        panel.tile = job.rows + tile * job.bytes_per_tile;
        panel.width = tiles.width_of(tile);
        panel.sums = sums + (tile - first_tile) * tile_sums + at.group * kGroup * panel.width;
        panel.ahead = fetch.share();
        kernel(panel);
      }
    }
    const int64_t outputs = std::min(groups * kGroup, segment.rows - first_group * kGroup);
    for (int32_t tile = first_tile; tile < last_tile; ++tile) {
      write_out(*job.set, tile, sums + (tile - first_tile) * tile_sums,
                segment.first_row + first_group * kGroup, outputs);
    }
  }

 private:
  /// Writes the sums of one tile, (groups, width, 16), to `out`.
  void write_out(const RowSet& set, int32_t tile, const float* sums, int64_t first_output,
                 int64_t num_outputs) const {
    const int32_t width = set.tiles.width_of(tile);
    for (int32_t t = 0; t < set.tiles.rows_of(tile); ++t) {
      const int32_t r = tile * set.tiles.full_width + t;
      const int32_t row = set.out_rows != nullptr ? set.out_rows[r] : r;
      state_.matmul.write(
          {.sums = sums + t * kGroup,
           .width = width,
           .residual = residual_ != nullptr ? residual_->row<float>(row) + first_output : nullptr,
           .outputs = num_outputs,
           .out = out_.row<float>(row) + first_output});
    }
  }

  CpuState& state_;
  const TensorView* residual_;
  const TensorView& out_;
  int64_t cols_;
};

void ask_for(const PackedWeight& weight, std::span<const RowSet> sets) {
  if (weight.num_experts == 1) return weight.in_file->use(weight);
  std::vector<int32_t> experts;
  for (const RowSet& set : sets) experts.push_back(set.expert);
  weight.in_file->use_experts(weight, experts);
}

}  // namespace

void multiply_rows(CpuState& state, const TensorView& x, const PackedWeight& weight,
                   std::span<const RowSet> sets, const TensorView* residual,
                   const TensorView& out) {
  if (weight.in_file != nullptr) ask_for(weight, sets);
  std::vector<int64_t> first_tile;
  int64_t num_tiles = 0;
  for (const RowSet& set : sets) {
    first_tile.push_back(num_tiles);
    num_tiles += set.tiles.count;
  }

  PackedRows plain;
  PackedRows quantized;
  std::vector<Job> jobs;
  std::vector<int64_t> first_item;
  int64_t num_items = 0;
  int64_t work = 0;
  for (const PackedWeight::Segment& segment : weight.segments) {
    const bool is_quant = is_quantized(segment.dtype);
    PackedRows& rows = is_quant ? quantized : plain;
    if (rows.data == nullptr) rows = pack_rows(state, x, sets, first_tile, is_quant);
    for (size_t s = 0; s < sets.size(); ++s) {
      const Tiles& tiles = sets[s].tiles;
      const int quant = quant_index(segment.dtype);
      const bool unpack = quant >= 0 && !is_read_once(tiles);
      const int64_t read_bytes =
          unpack ? unpacked_block_bytes(quant_layout(segment.dtype)) * x.cols / kQuantBlock
                 : segment.group_bytes;
      jobs.push_back({&segment, &sets[s], rows.data + first_tile[s] * rows.bytes_per_tile,
                      rows.bytes_per_tile,
                      MatmulPlan(segment, read_bytes, tiles, x.cols, state.pool.active()),
                      unpack ? state.matmul.quant[quant] : nullptr});
      first_item.push_back(num_items);
      num_items += jobs.back().plan.num_items;
      work += tiles.rows * x.cols * segment.rows / 16;
    }
  }
  const Products products(state, residual, out, x.cols);
  state.for_each(num_items, work, [&](int64_t item, int32_t thread) {
    const size_t j = owner(first_item, item);
    products.compute(jobs[j], item - first_item[j], thread);
  });
}

}  // namespace hearth::kernels::cpu
