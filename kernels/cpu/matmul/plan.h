#pragma once
// How a matrix product on the CPU is cut: into items that threads claim, and items into panels that
// stay in cache. Private to kernels/.

#include "kernels/cpu/matmul/rows.h"

namespace hearth::kernels::cpu {

bool is_quantized(DType dtype);

/// So few tiles that weights are read from memory hardly slower than for one, and that unpacking
/// them once would cost more than it saves.
bool is_read_once(const Tiles& tiles);

/// Where a panel begins in its item.
struct PanelPlace {
  int64_t input;
  int64_t group;
};

/// One weight segment's share of the work: items are (block of groups, block of tiles). An item
/// walks panels of weights, `groups_per_panel` times `inputs_per_panel`; all of the item's tiles
/// meet a panel before the next one's turn. Panels of the same inputs follow one another, so that
/// the tiles' share of these inputs stays in L2; where few tiles wait for memory, panels of the
/// same groups do, so that it is read in order, which the hardware's prefetching is made for.
struct MatmulPlan {
  int64_t groups_per_item;
  int64_t tiles_per_item;
  int64_t tile_blocks;
  int64_t num_items;
  int64_t groups_per_panel;
  int64_t inputs_per_panel;
  bool in_order;
  enum class Ahead { kNothing, kNearby, kNextPanel } ahead;  ///< what kernels fetch meanwhile

  /// `read_bytes`: of a group as the kernel reads it, packed or unpacked.
  MatmulPlan(const PackedWeight::Segment& segment, int64_t read_bytes, const Tiles& tiles,
             int64_t cols, int32_t num_threads);

  /// The panel behind this one; one of no group or no input when this is the last.
  PanelPlace next(PanelPlace now, int64_t num_groups, int64_t cols) const;
};

/// Shares the next panel's cache lines out to the tiles that meet this one, so that memory is at
/// work while they compute.
class FetchAhead {
 public:
  /// `item`: the item's first group, of `num_groups`.
  FetchAhead(const MatmulPlan& plan, const PackedWeight::Segment& segment, int64_t cols,
             const uint8_t* item, int64_t num_groups, PanelPlace now, int32_t num_tiles);

  /// For the next tile.
  Ahead share();

 private:
  Ahead share_{};
  int64_t lines_left_ = 0;
  int64_t lines_per_share_ = 0;
};

}  // namespace hearth::kernels::cpu
