#include "kernels/cpu/matmul/plan.h"

#include <algorithm>

namespace hearth::kernels::cpu {
namespace {

int64_t divide_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

/// Offset within a packed quantized group from which input `k`, the first of a block, is read.
int64_t bytes_at(DType dtype, int64_t cols, int64_t k) {
  if (dtype == DType::kQ8_0) return q8_bytes_at(k / kQuantBlock);
  const QuantLayout layout = quant_layout(dtype);
  return layout.bodies_at(cols) + k / layout.block * layout.body_bytes();
}

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
  const int64_t even = segment.num_groups * tile_blocks / (16 * num_threads);
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
                       const uint8_t* item, int64_t num_groups, PanelPlace now, int32_t num_tiles) {
  const auto end_of = [&](const PanelPlace& panel) {
    return std::min(cols, panel.input + plan.inputs_per_panel);
  };
  if (plan.ahead == MatmulPlan::Ahead::kNothing) return;
  if (plan.ahead == MatmulPlan::Ahead::kNearby) {
    // Each block prefetches as many bytes as it has itself, head included: every line is fetched
    // once, across the borders of groups and into the next item, which usually goes to the same
    // thread.
    constexpr int64_t kDistance = 8 << 10;
    const int64_t step = segment.group_bytes / (cols / kQuantBlock);
    share_ = {
        .at = item + now.group * segment.group_bytes + now.input / kQuantBlock * step + kDistance,
        .group_bytes = segment.group_bytes,
        .block_bytes = step,
        .lines = static_cast<int32_t>(divide_up(step, 64)),
        .soon = true};
    lines_left_ = lines_per_share_ = 1;  // the only tile fetches all of it
    return;
  }
  PanelPlace next = plan.next(now, num_groups, cols);
  if (next.input >= cols || next.group >= num_groups) {
    // The next item's first panel, which usually goes to the same thread.
    if (plan.tile_blocks > 1) return;
    next = {0, num_groups};
  }
  // A group's first inputs include the heads of all its blocks.
  const int64_t from = next.input == 0 ? 0 : bytes_at(segment.dtype, cols, next.input);
  lines_left_ = divide_up(bytes_at(segment.dtype, cols, end_of(next)) - from, 64);
  const int64_t blocks = (end_of(now) - now.input) / kQuantBlock;
  const int64_t lines = divide_up(lines_left_, blocks * num_tiles);
  lines_per_share_ = blocks * lines;
  share_ = {.at = item + next.group * segment.group_bytes + from,
            .group_bytes = segment.group_bytes,
            .block_bytes = 64 * lines,
            .lines = static_cast<int32_t>(lines),
            .soon = plan.in_order};
}

Ahead FetchAhead::share() {
  if (lines_left_ <= 0) return {};
  const Ahead now = share_;
  share_.at += 64 * lines_per_share_;
  lines_left_ -= lines_per_share_;
  return now;
}

}  // namespace hearth::kernels::cpu
