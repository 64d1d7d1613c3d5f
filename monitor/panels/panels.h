#pragma once
// One function and one file per panel. Each draws the snapshot in the current window.

#include "monitor/draw/view.h"

namespace hearth::monitor {

void draw_now(const Snapshot& snapshot, View& view);
void draw_batches(const Snapshot& snapshot, View& view);
void draw_blocks(const Snapshot& snapshot, View& view);
void draw_requests(const Snapshot& snapshot, View& view);
void draw_models(const Snapshot& snapshot, View& view);
void draw_cache(const Snapshot& snapshot, View& view);
void draw_speculation(const Snapshot& snapshot, View& view);
void draw_roofline(const Snapshot& snapshot, View& view);
void draw_log(const Snapshot& snapshot, View& view);

/// The map's legend: state names in the order of ipc::WatchedBlock.
inline constexpr const char* kBlockStateNames[] = {"free",   "in use", "shared",
                                                   "cached", "pinned", "in transfer"};

}  // namespace hearth::monitor
