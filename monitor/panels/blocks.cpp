#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "monitor/draw/pixels.h"
#include "monitor/draw/plot.h"
#include "monitor/panels/panels.h"

namespace hearth::monitor {
namespace {

ImU32 colour_of(const View& view, const BlockCell& cell) {
  if (view.blocks_by_request && cell.refs > 0) {
    return cell.refs > 1 ? view.theme.block[2] : view.theme.of_request(cell.request);
  }
  return view.theme.block[to_underlying(cell.state)];
}

/// Side of a cell in whole pixels, the same for every block; at least one.
int side_of(size_t blocks, ImVec2 room) {
  int side = std::max(1, static_cast<int>(std::sqrt(double{room.x} * room.y /
                                                    as_double(std::max<size_t>(1, blocks)))));
  for (; side > 1; --side) {
    const auto columns = static_cast<size_t>(room.x) / side;
    const auto rows = static_cast<size_t>(room.y) / side;
    if (columns * rows >= blocks) break;
  }
  return std::min(side, 22);
}

/// The map's pixels, one per block; rebuilt when a cell, the theme or the size has changed.
struct Pixels {
  const Pool* pool = nullptr;
  uint64_t revision = 0;
  bool dark = false, by_request = false;
  int columns = 0, rows = 0;
  std::vector<uint32_t> rgba;
  ImTextureID texture = nullptr;
};

void draw_map(const Snapshot& snapshot, View& view, const ModelView& model, const Pool& pool) {
  ImVec2 room = ImGui::GetContentRegionAvail();
  if (room.x < 20 || room.y < 20 || view.textures == nullptr) return;
  const int side = side_of(pool.cells.size(), room);
  const int columns = std::max(1, static_cast<int>(room.x) / side);
  const int rows = narrow<int>((pool.cells.size() + columns - 1) / columns);
  static Pixels drawn;
  const bool same = drawn.pool == &pool && drawn.revision == pool.revision &&
                    drawn.dark == view.theme.dark && drawn.by_request == view.blocks_by_request &&
                    drawn.columns == columns && drawn.texture != nullptr;
  if (!same) {
    drawn = {&pool,   pool.revision, view.theme.dark,       view.blocks_by_request,
             columns, rows,          std::move(drawn.rgba), nullptr};
    drawn.rgba.assign(int64_t{columns} * rows, 0);
    for (size_t i = 0; i < pool.cells.size(); ++i) {
      drawn.rgba[i] = colour_of(view, pool.cells[i]);
    }
    drawn.texture = view.textures->set(0, columns, rows, drawn.rgba.data());
  }
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 min{std::floor(at.x), std::floor(at.y)};
  const ImVec2 max{min.x + pixels(columns * side), min.y + pixels(rows * side)};
  ImDrawList* draw = ImGui::GetWindowDrawList();
  const float bottom = std::min(max.y, at.y + room.y);
  ImGui::InvisibleButton("map", {max.x - min.x, std::max(1.0f, bottom - min.y)});
  draw->PushClipRect(min, {max.x, bottom}, true);
  draw->AddImage(drawn.texture, min, max);
  if (side >= 6) {
    for (int x = 0; x <= columns; ++x) {
      const float line = min.x + pixels(x * side);
      draw->AddLine({line, min.y}, {line, max.y}, view.theme.panel);
    }
    for (int y = 0; y <= rows; ++y) {
      const float line = min.y + pixels(y * side);
      draw->AddLine({min.x, line}, {max.x, line}, view.theme.panel);
    }
  }
  view.map_min = min;
  view.map_cell = pixels(side);
  view.map_columns = columns;
  if (ImGui::IsItemHovered()) {
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    const int x = static_cast<int>(mouse.x - min.x) / side;
    const int y = static_cast<int>(mouse.y - min.y) / side;
    const size_t block = int64_t{y} * columns + x;
    if (x >= 0 && y >= 0 && x < columns && block < pool.cells.size()) {
      const BlockCell& cell = pool.cells[block];
      const ImVec2 corner{min.x + pixels(x * side), min.y + pixels(y * side)};
      draw->AddRect(corner, {corner.x + pixels(side), corner.y + pixels(side)}, view.theme.text);
      std::string text = fmt::format("block {}: {}\nin memory{}", block,
                                     kBlockStateNames[to_underlying(cell.state)],
                                     cell.on_disk ? " and on disk" : "");
      if (cell.request != 0) {
        const ipc::WatchedRequest* row = snapshot.find(cell.request);
        text += fmt::format("\nof {}{}\ntokens {} to {}",
                            row != nullptr ? row->id : fmt::format("request {}", cell.request),
                            cell.refs > 1 ? fmt::format(" and {} more", cell.refs - 1) : "",
                            int64_t{cell.position} * model.block_size,
                            (int64_t{cell.position} + 1) * model.block_size - 1);
      } else if (cell.refs > 0) {
        text += fmt::format("\nheld by {} of another user", cell.refs);
      }
      ImGui::SetTooltip("%s", text.c_str());
    }
  }
  draw->PopClipRect();
}

void figures(View& view, const Pool& pool) {
  const double total = as_double(pool.cells.size());
  for (size_t i = 0; i < pool.counts.size(); ++i) {
    const size_t state = (i + 1) % pool.counts.size();  // free comes last
    if (i > 0) ImGui::SameLine(0, 18 * view.scale);
    legend(view, view.theme.block[state], "");
    ImGui::SameLine(0, 5 * view.scale);
    put_text(view, fmt::format("blocks/count/{}", kBlockStateNames[state]),
             fmt::format("{} {}  ({:.1f} %)", pool.counts[state], kBlockStateNames[state],
                         total > 0 ? 100.0 * as_double(pool.counts[state]) / total : 0),
             view.theme.muted);
  }
}

void note(const Snapshot& snapshot, View& view, const ModelView& model, const Pool& pool,
          size_t group) {
  const double total = as_double(pool.cells.size());
  ImGui::SameLine(0, 18 * view.scale);
  const auto& totals = model.stats.snapshot.kv_blocks_total;
  const double bytes =
      group < totals.size() && total > 0 ? as_double(model.stats.snapshot.kv_bytes) : 0;
  put_small(view, "blocks/note",
            fmt::format("{} tokens a block{}; {}", model.block_size,
                        totals.size() == 1 && bytes > 0
                            ? fmt::format(", {:.0f} KiB each", bytes / total / 1024)
                            : "",
                        age_text(snapshot.now_us(), pool.time_us)),
            view.theme.faint);
}

}  // namespace

void draw_blocks(const Snapshot& snapshot, View& view) {
  choose_model(view, snapshot);
  const ModelView* model = view.shown_model(snapshot);
  if (model == nullptr || model->pools.empty()) {
    return nothing_yet(view, "no model in memory that reports its blocks");
  }
  view.pool = std::clamp(view.pool, 0, size32(model->pools) - 1);
  const Pool& pool = model->pools[view.pool];
  const float lower = 170 * view.scale;
  if (begin_card(view, "KV blocks", {0, ImGui::GetContentRegionAvail().y - lower},
                 "one cell per block, in the order of the pool")) {
    ImGui::SameLine(0, 20 * view.scale);
    if (ImGui::SmallButton(view.blocks_by_request ? "colour: request (c)" : "colour: state (c)")) {
      view.blocks_by_request = !view.blocks_by_request;
    }
    for (size_t i = 0; model->pools.size() > 1 && i < model->pools.size(); ++i) {
      ImGui::SameLine();
      if (ImGui::RadioButton(fmt::format("group {}", i).c_str(), std::cmp_equal(view.pool, i))) {
        view.pool = narrow<int>(i);
      }
    }
    note(snapshot, view, *model, pool, view.pool);
    figures(view, pool);
    if (!pool.known) {
      nothing_yet(view, "a message was lost: the map is drawn again within five seconds");
    } else {
      draw_map(snapshot, view, *model, pool);
    }
  }
  end_card();
  if (begin_card(view, "Blocks over time", {0, 0}, "last 10 minutes")) {
    const Line lines[] = {{"in use", &pool.history[1], view.theme.block[1], true},
                          {"shared", &pool.history[2], view.theme.block[2]},
                          {"cached", &pool.history[3], view.theme.block[3]},
                          {"pinned", &pool.history[4], view.theme.block[4]},
                          {"in transfer", &pool.history[5], view.theme.block[5]}};
    plot(view, "blocks/history", lines, snapshot.now_us(),
         {.unit = "blocks", .window_s = 600, .max = as_double(pool.cells.size())},
         ImGui::GetContentRegionAvail());
  }
  end_card();
}

}  // namespace hearth::monitor
