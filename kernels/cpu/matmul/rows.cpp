#include "kernels/cpu/matmul/rows.h"

#include <cmath>
#include <deque>
#include <vector>

#include "kernels/cpu/matmul/file_weights.h"
#include "kernels/cpu/matmul/plan.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/half.h"

namespace hearth::kernels::cpu {
namespace {

int64_t tile_bytes(int32_t width, int64_t cols, bool quantized) {
  const int64_t row = quantized ? cols / kQuantBlock * kQuantBlockBytes : cols * 4;
  return (width * row + 63) / 64 * 64;
}

/// Inputs that are packed together.
constexpr int64_t kChunk = 1024;

struct Outlier {
  int64_t input;
  float value;
};

/// The rows of a set without their outliers, and these.
struct SplitRows {
  std::vector<float> kept;  ///< (rows, cols)
  std::vector<std::vector<Outlier>> outliers;

  SplitRows(CpuState& state, const Product& product, const RowSet& set)
      : kept(static_cast<size_t>(set.tiles.rows * product.x->cols)), outliers(set.tiles.rows) {
    const TensorView& x = *product.x;
    state.for_each(set.tiles.rows, set.tiles.rows * x.cols, [&](int64_t r, int32_t) {
      const float* row = x.row<float>(set.x_rows != nullptr ? set.x_rows[r] : r);
      float* out = kept.data() + r * x.cols;
      for (int64_t k = 0; k < x.cols; ++k) {
        const bool outlier = std::fabs(row[k]) >= product.weight->outliers_from;
        if (outlier) outliers[r].push_back({k, row[k]});
        out[k] = outlier ? 0.0f : row[k];
      }
    });
  }
};

/// sums += x * (weights of an input): 16 outputs of a group of Q8_0.
void add_outlier(const uint8_t* group, const Outlier& outlier, float* sums) {
  const int64_t block = outlier.input / kQuantBlock, i = outlier.input % kQuantBlock;
  const auto* scales = reinterpret_cast<const uint16_t*>(group + q8_scales_at(block));
  const uint8_t* bytes = group + q8_bytes_at(block) + i / 4 * kGroup * 4 + i % 4;
  for (int64_t lane = 0; lane < kGroup; ++lane) {
    const float byte = bytes[4 * lane];
    sums[lane] += outlier.value * (f32_from_f16(scales[lane]) * (byte - 128));
  }
}

/// The rows of a set, packed in one of the two forms: tiles of equal size in bytes.
struct PackedRows {
  const Product* product;
  const RowSet* set;
  bool quantized;
  int64_t bytes_per_tile;
  int64_t at;              ///< of the first tile, in the memory of its form
  const SplitRows* split;  ///< null: no inputs are left out

  int64_t chunks() const { return (product->x->cols + kChunk - 1) / kChunk; }
};

/// The index of the last element that is at most `item`.
size_t owner(const std::vector<int64_t>& first, int64_t item) {
  return static_cast<size_t>(std::upper_bound(first.begin(), first.end(), item) - first.begin()) -
         1;
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

/// One segment of a weight and one set of rows.
struct Job {
  const PackedWeight::Segment* segment;
  size_t rows;  ///< index of the PackedRows
  MatmulPlan plan;
  /// Null if the kernel reads the packed groups directly.
  const QuantKernels* unpacked;
};

/// What multiply_rows does: packs all rows, then computes all jobs.
class Multiplication {
 public:
  Multiplication(CpuState& state, std::span<const Product> products) : state_(state) {
    for (const Product& product : products) {
      add(product, false);
      add(product, true);
    }
    for (const bool quantized : {false, true}) {
      memory_of(quantized).at_least(static_cast<size_t>(bytes_[quantized ? 1 : 0]));
    }
  }

  void run() {
    state_.for_each(num_chunks_, pack_work_, [&](int64_t item, int32_t) {
      const size_t r = owner(first_chunk_, item);
      pack(rows_[r], item - first_chunk_[r]);
    });
    state_.for_each(num_items_, work_, [&](int64_t item, int32_t thread) {
      const size_t j = owner(first_item_, item);
      compute(jobs_[j], item - first_item_[j], thread);
    });
  }

 private:
  HostBuffer& memory_of(bool quantized) const {
    return quantized ? state_.quantized_activations : state_.plain_activations;
  }

  /// The segments of a product that read activations in this form.
  void add(const Product& product, bool quantized) {
    const size_t first = rows_.size();
    for (const PackedWeight::Segment& segment : product.weight->segments) {
      if (is_quantized(segment.dtype) != quantized) continue;
      if (rows_.size() == first) add_rows(product, quantized);
      for (size_t s = 0; s < product.sets.size(); ++s) add_job(segment, first + s);
    }
  }

  void add_rows(const Product& product, bool quantized) {
    int64_t& bytes = bytes_[quantized ? 1 : 0];
    for (const RowSet& set : product.sets) {
      const int64_t tile = tile_bytes(set.tiles.full_width, product.x->cols, quantized);
      const bool splits = quantized && product.weight->outliers_from > 0;
      const SplitRows* split = splits ? &split_rows_.emplace_back(state_, product, set) : nullptr;
      rows_.push_back({&product, &set, quantized, tile, bytes, split});
      first_chunk_.push_back(num_chunks_);
      num_chunks_ += set.tiles.count * rows_.back().chunks();
      pack_work_ += set.tiles.rows * product.x->cols;
      bytes += tile * set.tiles.count;
    }
  }

  void add_job(const PackedWeight::Segment& segment, size_t rows) {
    const Tiles& tiles = rows_[rows].set->tiles;
    const int64_t cols = rows_[rows].product->x->cols;
    const int quant = quant_index(segment.dtype);
    const bool unpack = quant >= 0 && !is_read_once(tiles);
    const int64_t read_bytes =
        unpack ? unpacked_block_bytes(quant_layout(segment.dtype)) * cols / kQuantBlock
               : segment.group_bytes;
    jobs_.push_back({&segment, rows,
                     MatmulPlan(segment, read_bytes, tiles, cols, state_.pool.active()),
                     unpack ? state_.matmul.quant[quant] : nullptr});
    first_item_.push_back(num_items_);
    num_items_ += jobs_.back().plan.num_items;
    // Of few rows, reading the weights takes longer than multiplying: about 8 bytes a cycle.
    const int64_t read_cycles = segment.num_groups * segment.group_bytes / 8;
    work_ += std::max(tiles.rows * cols * segment.rows / 16, read_cycles);
  }

  void pack(const PackedRows& rows, int64_t item) const {
    const TensorView& x = *rows.product->x;
    const Tiles& tiles = rows.set->tiles;
    const auto tile = static_cast<int32_t>(item / rows.chunks());
    const int64_t first_row = int64_t{tile} * tiles.full_width;
    const bool mapped = rows.set->x_rows != nullptr && rows.split == nullptr;
    const float* const kept = rows.split != nullptr ? rows.split->kept.data() : nullptr;
    const int64_t first = item % rows.chunks() * kChunk;
    const auto pack = rows.quantized ? state_.matmul.pack_quantized : state_.matmul.pack_plain;
    pack({.x = kept != nullptr ? kept + first_row * x.cols : x.row<float>(mapped ? 0 : first_row),
          .stride = kept != nullptr ? x.cols : x.row_stride,
          .row_of = mapped ? rows.set->x_rows + first_row : nullptr,
          .rows = tiles.rows_of(tile),
          .width = tiles.width_of(tile),
          .first = first,
          .last = std::min(x.cols, first + kChunk),
          .tile = packed_tiles(rows) + tile * rows.bytes_per_tile});
  }

  std::byte* packed_tiles(const PackedRows& rows) const {
    return memory_of(rows.quantized).data() + rows.at;
  }

  void compute(const Job& job, int64_t item, int32_t thread) const {
    const MatmulPlan& plan = job.plan;
    const PackedWeight::Segment& segment = *job.segment;
    const PackedRows& rows = rows_[job.rows];
    const Tiles& tiles = rows.set->tiles;
    const int64_t cols = rows.product->x->cols;
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
        segment.groups(rows.set->expert * segment.num_groups + first_group, groups,
                       scratch + sums_bytes + panel_bytes));
    const auto kernel =
        job.unpacked != nullptr ? job.unpacked->unpacked : kernel_of(state_.matmul, segment.dtype);
    MatmulPanel panel{.weights = nullptr,
                      .group_bytes = segment.group_bytes,
                      .num_groups = 0,
                      .tile = nullptr,
                      .width = 0,
                      .first = 0,
                      .last = 0,
                      .sums = nullptr,
                      .ahead = {}};
    FetchAhead fetch(plan, segment, cols, item_weights, groups, last_tile - first_tile);
    for (PanelPlace at{0, 0}; at.input < cols && at.group < groups;
         at = plan.next(at, groups, cols)) {
      panel.weights = item_weights + at.group * segment.group_bytes;
      panel.num_groups = static_cast<int32_t>(std::min(plan.groups_per_panel, groups - at.group));
      panel.first = at.input;
      panel.last = std::min(cols, at.input + plan.inputs_per_panel);
      if (job.unpacked != nullptr) {
        job.unpacked->unpack({.weights = panel.weights,
                              .group_bytes = segment.group_bytes,
                              .num_groups = panel.num_groups,
                              .first = panel.first,
                              .last = panel.last,
                              .out = panel_scratch});
        panel.weights = panel_scratch;
        panel.group_bytes = (panel.last - panel.first) / kQuantBlock * block_bytes;
      }
      fetch.begin_panel(at);
      for (int32_t tile = first_tile; tile < last_tile; ++tile) {
        panel.tile = packed_tiles(rows) + tile * rows.bytes_per_tile;
        panel.width = tiles.width_of(tile);
        panel.sums = sums + (tile - first_tile) * tile_sums + at.group * kGroup * panel.width;
        fetch.share(&panel.ahead);
        kernel(panel);
      }
    }
    const int64_t outputs = std::min(groups * kGroup, segment.rows - first_group * kGroup);
    const std::vector<float>& scales = segment.source.scales;
    const float scale = scales.empty() ? 1.0f : scales[rows.set->expert];
    for (int32_t tile = first_tile; tile < last_tile; ++tile) {
      if (rows.split != nullptr) {
        add_outliers(rows, tile, {item_weights, segment.group_bytes, groups},
                     sums + (tile - first_tile) * tile_sums);
      }
      write_out(rows, tile, sums + (tile - first_tile) * tile_sums,
                segment.first_row + first_group * kGroup, outputs, scale);
    }
  }

  struct Groups {
    const uint8_t* data;
    int64_t bytes;
    int64_t count;
  };
  /// Adds to the sums of one tile, (groups, width, 16).
  static void add_outliers(const PackedRows& rows, int32_t tile, const Groups& groups,
                           float* sums) {
    const Tiles& tiles = rows.set->tiles;
    const int64_t width = tiles.width_of(tile);
    for (int32_t t = 0; t < tiles.rows_of(tile); ++t) {
      for (const Outlier& outlier : rows.split->outliers[tile * tiles.full_width + t]) {
        for (int64_t g = 0; g < groups.count; ++g) {
          add_outlier(groups.data + g * groups.bytes, outlier, sums + (g * width + t) * kGroup);
        }
      }
    }
  }

  /// Writes the sums of one tile, (groups, width, 16), times `scale`, to `out`.
  void write_out(const PackedRows& rows, int32_t tile, const float* sums, int64_t first_output,
                 int64_t num_outputs, float scale) const {
    const RowSet& set = *rows.set;
    const TensorView* residual = rows.product->residual;
    const int32_t width = set.tiles.width_of(tile);
    for (int32_t t = 0; t < set.tiles.rows_of(tile); ++t) {
      const int32_t r = tile * set.tiles.full_width + t;
      const int32_t row = set.out_rows != nullptr ? set.out_rows[r] : r;
      state_.matmul.write(
          {.sums = sums + t * kGroup,
           .width = width,
           .scale = scale,
           .residual = residual != nullptr ? residual->row<float>(row) + first_output : nullptr,
           .outputs = num_outputs,
           .out = rows.product->out->row<float>(row) + first_output});
    }
  }

  CpuState& state_;
  std::deque<SplitRows> split_rows_;
  std::vector<PackedRows> rows_;
  std::vector<int64_t> first_chunk_;  ///< of each of rows_
  std::vector<Job> jobs_;
  std::vector<int64_t> first_item_;  ///< of each job
  int64_t bytes_[2] = {};            ///< of packed rows, plain and quantized
  int64_t num_chunks_ = 0, pack_work_ = 0;
  int64_t num_items_ = 0, work_ = 0;
};

void ask_for(const PackedWeight& weight, std::span<const RowSet> sets) {
  if (weight.num_experts == 1) return weight.in_file->use(weight);
  std::vector<int32_t> experts;
  for (const RowSet& set : sets) experts.push_back(set.expert);
  weight.in_file->use_experts(weight, experts);
}

/// Products of few rows wait for memory: notes which weight comes after which, and names the one
/// after this.
void look_ahead(CpuState& state, const Product& product) {
  const PackedWeight& weight = *product.weight;
  if (weight.num_experts > 1 || !is_read_once(product.sets.front().tiles)) {
    return state.pool.set_ahead({});
  }
  const uint64_t size = weight.memory == nullptr ? 0 : weight.bytes;
  if (state.last_follower != nullptr) state.last_follower->memory = {weight.memory.get(), size};
  state.last_follower = weight.follower;
  state.pool.set_ahead(weight.follower->memory);
}

}  // namespace

void multiply_rows(CpuState& state, std::span<const Product> products) {
  look_ahead(state, products.front());
  for (const Product& product : products) {
    if (product.weight->in_file != nullptr) ask_for(*product.weight, product.sets);
  }
  Multiplication(state, products).run();
}

}  // namespace hearth::kernels::cpu
