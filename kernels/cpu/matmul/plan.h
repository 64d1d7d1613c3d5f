#pragma once
// How a matrix product on the CPU is divided: into items that threads claim, and items into panels
// that stay in cache. Private to kernels/.

#include "kernels/cpu/matmul/rows.h"

namespace hearth::kernels::cpu {

bool is_quantized(DType dtype);

/// True for so few tiles that reading weights from memory for all of them is hardly slower than for
/// one, and unpacking them once would cost more than it saves.
bool is_read_once(const Tiles& tiles);

/// Where a panel starts within its item.
struct PanelPlace {
  int64_t input;
  int64_t group;
};

/// The work for one weight segment: items are (block of groups, block of tiles). An item processes
/// panels of weights, `groups_per_panel` times `inputs_per_panel`; all of the item's tiles are
/// multiplied with a panel before the next panel starts. Normally panels of the same inputs follow
/// one another, so that the tiles' data for these inputs stays in L2. If few tiles wait for memory,
/// panels of the same groups follow one another, so that memory is read in order, which suits
/// hardware prefetching.
struct MatmulPlan {
  int64_t groups_per_item;
  int64_t tiles_per_item;
  int64_t tile_blocks;
  int64_t num_items;
  int64_t groups_per_panel;
  int64_t inputs_per_panel;
  bool in_order;
  enum class Ahead { kNothing, kNearby, kNextPanel } ahead;  ///< what kernels prefetch

  /// `read_bytes`: size of a group in the form that the kernel reads, packed or unpacked.
  MatmulPlan(const PackedWeight::Segment& segment, int64_t read_bytes, const Tiles& tiles,
             int64_t cols, int32_t num_threads);

  /// The panel after this one; its group or input is out of range if this one is the last.
  PanelPlace next(PanelPlace now, int64_t num_groups, int64_t cols) const;
};

/// Distributes the next panel's cache lines over the tiles of the current panel, so that memory is
/// busy while they compute. Of few rows a panel takes about a microsecond, so what is the same for
/// an item's panels is computed once.
class FetchAhead {
 public:
  /// `item`: the item's first group, one of `num_groups`.
  FetchAhead(const MatmulPlan& plan, const PackedWeight::Segment& segment, int64_t cols,
             const uint8_t* item, int64_t num_groups, int32_t num_tiles);

  void begin_panel(PanelPlace now);
  /// The share of the next tile.
  void share(Ahead* out);

 private:
  int64_t bytes_at(int64_t input) const;

  const MatmulPlan& plan_;
  const DType dtype_;
  const QuantLayout layout_;
  const int64_t cols_;
  const int64_t group_bytes_;
  const uint8_t* const item_;
  const int64_t num_groups_;
  const int32_t num_tiles_;
  Ahead share_{};
  int64_t lines_left_ = 0;
  int64_t lines_per_share_ = 0;
};

}  // namespace hearth::kernels::cpu
