#include "kernels/cpu/matmul/plan.h"

#include <algorithm>

namespace hearth::kernels::cpu {
namespace {

int64_t divide_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

}  // namespace

bool is_read_once(const Tiles& tiles) { return tiles.count <= 3; }

bool is_quantized(DType dtype) { return info(dtype).block_elements > 1; }

MatmulPlan::MatmulPlan(const PackedWeight::Segment& segment, int64_t read_bytes, const Tiles& tiles,
                       int64_t cols, int32_t num_threads) {
  constexpr int64_t kRowsPerItem = 144;
  constexpr int64_t kGroupsPerItem = 16;
  // Few rows: weights stream from memory, and items are small enough to even out slow cores.
  constexpr int64_t kStreamBytes = 256 << 10;
  // The size of a panel that stays in L1. Many rows per quantized weight take so long that L2 keeps
  // up, and long panels start and end their chains less often.
  constexpr int64_t kPanelBytes = 20 << 10;
  constexpr int64_t kLongPanelBytes = 80 << 10;
  constexpr int64_t kChains = 8;
  const bool streams = tiles.count <= 4;
  const bool quantized = is_quantized(segment.dtype);

  tile_blocks = divide_up(tiles.count, std::max<int64_t>(1, kRowsPerItem / tiles.full_width));
  // Groups packed late are packed for one item only: all tiles use them while they are in the
  // cache.
  const bool late = !segment.whole();
  if (late) tile_blocks = 1;
  tiles_per_item = divide_up(tiles.count, tile_blocks);
  groups_per_panel = quantized ? 2 : 4;
  groups_per_item = kGroupsPerItem;
  if (streams || late) {
    groups_per_item = std::clamp<int64_t>(kStreamBytes / segment.group_bytes, 4, 16);
  }
  // Enough items that threads end at nearly the same time; the pool's claims are runs of items.
  int64_t even = segment.num_groups * tile_blocks / (16 * num_threads);
  // Chains of fused multiply-adds wait for themselves if there are few of them next to each other.
  if (!quantized) even = std::max(even, std::min(kChains, segment.num_groups / (2 * num_threads)));
  groups_per_item = divide_up(std::clamp<int64_t>(even, 1, groups_per_item), 2) * 2;
  num_items = divide_up(segment.num_groups, groups_per_item) * tile_blocks;

  const int64_t panel_bytes = quantized && !streams ? kLongPanelBytes : kPanelBytes;
  const int64_t unit = quantized ? 256 : 32;
  const int64_t unit_bytes = groups_per_panel * read_bytes / cols * unit;
  inputs_per_panel = std::max<int64_t>(1, panel_bytes / unit_bytes) * unit;

  ahead = quantized && !late ? Ahead::kNextPanel : Ahead::kNothing;
  in_order = false;
  if (tiles.rows == 1) {
    // Hardly more work than reading: each group from end to end.
    groups_per_panel = groups_per_item;
    inputs_per_panel = cols;
    if (quantized && !late) ahead = Ahead::kNearby;
  } else if (quantized && is_read_once(tiles)) {
    // Panels short enough that the current one, the next one and the tiles' data for their inputs
    // stay in L1: all tiles prefetch the next panel, so memory is busy throughout.
    inputs_per_panel = tiles.count == 1 ? 512 : 1024;
    in_order = true;
  } else if (is_read_once(tiles)) {
    // A tile's data for a panel's inputs takes half of L1; weights are read in order.
    groups_per_panel = groups_per_item;
    inputs_per_panel = (16 << 10) / (4 * tiles.full_width) / 32 * 32;
    in_order = true;
    if (!late && tiles.full_width >= kLeastPlainAhead) ahead = Ahead::kNearby;
  }
}

PanelPlace MatmulPlan::next(PanelPlace now, int64_t num_groups, int64_t cols) const {
  if (in_order) {
    const PanelPlace right{now.input + inputs_per_panel, now.group};
    return right.input < cols ? right : PanelPlace{0, now.group + groups_per_panel};
  }
  const PanelPlace below{now.input, now.group + groups_per_panel};
  return below.group < num_groups ? below : PanelPlace{now.input + inputs_per_panel, 0};
}

FetchAhead::FetchAhead(const MatmulPlan& plan, const PackedWeight::Segment& segment, int64_t cols,
                       const uint8_t* item, int64_t num_groups, int32_t num_tiles)
    : plan_(plan),
      dtype_(segment.dtype),
      layout_(quant_layout(segment.dtype)),
      cols_(cols),
      group_bytes_(segment.group_bytes),
      item_(item),
      num_groups_(num_groups),
      num_tiles_(num_tiles) {
  share_.group_bytes = segment.group_bytes;
}

// Offset within a packed quantized group from which `input`, the first of a block, is read.
int64_t FetchAhead::bytes_at(int64_t input) const {
  if (dtype_ == DType::kQ8_0) return q8_bytes_at(input / kQuantBlock);
  return layout_.bytes_before(input / layout_.block);
}

void FetchAhead::begin_panel(PanelPlace now) {
  lines_left_ = 0;
  if (plan_.ahead == MatmulPlan::Ahead::kNothing) return;
  const auto end_of = [this](const PanelPlace& panel) {
    return std::min(cols_, panel.input + plan_.inputs_per_panel);
  };
  if (plan_.ahead == MatmulPlan::Ahead::kNearby) {
    // Each block prefetches as many bytes as it has itself, head included: every line is fetched
    // once, across the borders of groups and into the next item, which usually goes to the same
    // thread.
    constexpr int64_t kDistance = 8 << 10;
    lines_left_ = lines_per_share_ = 1;  // the first tile fetches all of it
    if (!is_quantized(dtype_)) {
      share_.at = item_ + now.group * group_bytes_ + kDistance;
      share_.lines = 1;
      return;
    }
    const int64_t step = group_bytes_ / (cols_ / kQuantBlock);
    share_.at = item_ + now.group * group_bytes_ + now.input / kQuantBlock * step + kDistance;
    share_.block_bytes = step;
    share_.lines = static_cast<int32_t>(divide_up(step, 64));
    share_.soon = true;
    return;
  }
  PanelPlace next = plan_.next(now, num_groups_, cols_);
  if (next.input >= cols_ || next.group >= num_groups_) {
    // The next item's first panel, which usually goes to the same thread.
    if (plan_.tile_blocks > 1) return;
    next = {0, num_groups_};
  }
  const int64_t from = bytes_at(next.input);
  lines_left_ = divide_up(bytes_at(end_of(next)) - from, 64);
  const int64_t blocks = (end_of(now) - now.input) / kQuantBlock;
  const int64_t lines = divide_up(lines_left_, blocks * num_tiles_);
  lines_per_share_ = blocks * lines;
  share_.at = item_ + next.group * group_bytes_ + from;
  share_.block_bytes = 64 * lines;
  share_.lines = static_cast<int32_t>(lines);
  share_.soon = plan_.in_order;
}

void FetchAhead::share(Ahead* out) {
  if (lines_left_ <= 0) {
    out->lines = 0;
    return;
  }
  *out = share_;
  share_.at += 64 * lines_per_share_;
  lines_left_ -= lines_per_share_;
}

}  // namespace hearth::kernels::cpu
