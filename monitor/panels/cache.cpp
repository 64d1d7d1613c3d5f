#include <fmt/core.h>

#include <algorithm>

#include "ipc/text/shown_text.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "kernels/base/wall_clock.h"
#include "monitor/draw/pixels.h"
#include "monitor/draw/plot.h"
#include "monitor/panels/panels.h"

namespace hearth::monitor {
namespace {

void line(View& view, const char* place, const char* label, const std::string& value) {
  put_text(view, "", label, view.theme.muted);
  ImGui::SameLine(190 * view.scale);
  put_text(view, place, value);
}

constexpr const char* kTreeColumns[] = {"Prefix", "Tokens", "Memory", "Disk",
                                        "Hits",   "Used",   "Owner",  "Kept"};
constexpr int kNumTreeColumns = 8;

std::string cell_text(const PrefixLine& prefix, int64_t now_s, int column) {
  switch (column) {
    case 0: return prefix.name.substr(0, 12);
    case 1: return fmt::format("{} to {}", prefix.first_token, prefix.end_token);
    case 2:
      if (prefix.memory_blocks == 0) return "–";
      return prefix.used_blocks > 0
                 ? fmt::format("{} blocks, {} in use", prefix.memory_blocks, prefix.used_blocks)
                 : fmt::format("{} blocks", prefix.memory_blocks);
    case 3: return prefix.disk_bytes > 0 ? ipc::human_bytes(prefix.disk_bytes) : "–";
    case 4: return prefix.disk_bytes > 0 ? fmt::format("{}", prefix.hits) : "–";
    case 5:
      return prefix.used_s > 0 && now_s >= prefix.used_s
                 ? ipc::human_duration((now_s - prefix.used_s) * 1000) + " ago"
                 : "–";
    case 6: return prefix.owner.empty() ? "–" : prefix.owner;
    case 7: return prefix.pinned ? "pinned" : "";
    default: return "";
  }
}

/// Requests the list of prefixes on disk every few seconds.
void refresh(const Snapshot& snapshot, View& view) {
  constexpr int64_t kEveryUs = 5'000'000;
  if (!view.ask || !snapshot.connected()) return;
  if (view.stored_asked_us != 0 && snapshot.now_us() - view.stored_asked_us < kEveryUs) return;
  view.stored_asked_us = snapshot.now_us();
  view.ask({Command::Kind::kListCache, "", ""});
}

void buttons(View& view, const std::vector<PrefixLine>& lines) {
  using Kind = Command::Kind;
  const auto chosen = std::ranges::find(lines, view.chosen_prefix, &PrefixLine::name);
  if (!view.ask || chosen == lines.end() || chosen->disk_bytes == 0) return;
  ImGui::SameLine(0, 14 * view.scale);
  if (small_button(view, "cache/pin", chosen->pinned ? "Unpin" : "Pin for a day")) {
    view.ask({chosen->pinned ? Kind::kUnpinPrefix : Kind::kPinPrefix, chosen->run, ""});
  }
  ImGui::SameLine(0, 8 * view.scale);
  if (small_button(view, "cache/remove", "Remove from disk ...")) {
    view.confirm = Command{Kind::kRemovePrefix, chosen->run, ""};
  }
}

void tree(const Snapshot& snapshot, View& view, const ModelView& model) {
  refresh(snapshot, view);
  const int64_t now_s = seconds_since_1970();
  // Rebuilt only when an input has changed.
  static struct {
    const ModelView* model = nullptr;
    int64_t prefixes_us = -1, stored_us = -1;
    std::vector<PrefixLine> lines;
    size_t left_out = 0;
  } made;
  if (made.model != &model || made.prefixes_us != model.prefixes_us ||
      made.stored_us != view.stored_us) {
    made.model = &model;
    made.prefixes_us = model.prefixes_us;
    made.stored_us = view.stored_us;
    made.lines = prefix_tree(view.stored, model.name, model.prefixes, model.block_size, now_s,
                             &made.left_out);
  }
  const std::vector<PrefixLine>& lines = made.lines;
  put_small(view, "cache/tree/age",
            fmt::format("memory {}, disk {}", age_text(snapshot.now_us(), model.prefixes_us),
                        view.stored_problem.empty() ? age_text(snapshot.now_us(), view.stored_us)
                                                    : view.stored_problem),
            view.theme.faint);
  buttons(view, lines);
  if (made.left_out > 0) {
    ImGui::SameLine(0, 14 * view.scale);
    put_small(view, "cache/tree/more", fmt::format("and {} more", made.left_out), view.theme.warn);
  }
  if (lines.empty()) {
    return put_text(view, "cache/tree/none",
                    model.prefixes_us == 0 && view.stored_us == 0
                        ? "only administrators see the tree of prefixes"
                        : "no prefix is kept",
                    view.theme.muted);
  }
  if (!ImGui::BeginTable("tree", kNumTreeColumns,
                         ImGuiTableFlags_RowBg | ImGuiTableFlags_ScrollY |
                             ImGuiTableFlags_Resizable | ImGuiTableFlags_BordersInnerH,
                         ImGui::GetContentRegionAvail())) {
    return;
  }
  ImGui::TableSetupScrollFreeze(0, 1);
  constexpr float kWeights[] = {2.0f, 1.1f, 1.5f, 0.9f, 0.5f, 1.3f, 0.9f, 0.7f};
  for (int i = 0; i < kNumTreeColumns; ++i) {
    ImGui::TableSetupColumn(kTreeColumns[i], ImGuiTableColumnFlags_WidthStretch, kWeights[i]);
  }
  ImGui::PushFont(view.fonts.small);
  ImGui::TableHeadersRow();
  ImGuiListClipper clipper;
  clipper.Begin(size32(lines));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const PrefixLine& prefix = lines[i];
      ImGui::PushID(i);
      ImGui::TableNextRow();
      for (int column = 0; column < kNumTreeColumns; ++column) {
        ImGui::TableSetColumnIndex(column);
        if (column == 0) {
          if (ImGui::Selectable("##row", view.chosen_prefix == prefix.name,
                                ImGuiSelectableFlags_SpanAllColumns)) {
            view.chosen_prefix = prefix.name;
          }
          ImGui::SameLine(0, pixels(std::min(prefix.depth, 16)) * 10 * view.scale);
          legend(view,
                 prefix.memory_blocks > 0 ? view.theme.block[prefix.used_blocks > 0 ? 1 : 3]
                                          : view.theme.prefill,
                 "");
          ImGui::SameLine(0, 5 * view.scale);
        }
        put_text(view, fmt::format("cache/tree/{}/{}", i, kTreeColumns[column]),
                 cell_text(prefix, now_s, column),
                 column == 7 ? view.theme.block[4] : view.theme.text);
      }
      ImGui::PopID();
    }
  }
  ImGui::PopFont();
  ImGui::EndTable();
}

}  // namespace

void draw_cache(const Snapshot& snapshot, View& view) {
  choose_model(view, snapshot);
  const ModelView* model = view.shown_model(snapshot);
  if (model == nullptr) return nothing_yet(view, "no model in memory");
  const ipc::WorkerSnapshot& s = model->stats.snapshot;
  const float half = (ImGui::GetContentRegionAvail().x - ImGui::GetStyle().ItemSpacing.x) / 2;
  const float upper = 216 * view.scale;
  if (begin_card(view, "Where prompt tokens came from", {half, upper})) {
    const double disk = as_double(s.prompt_tokens_restored);
    prompt_tiers(view, "cache", as_double(s.prompt_tokens_total),
                 std::max(0.0, as_double(s.prompt_tokens_cached) - disk), disk,
                 {ImGui::GetContentRegionAvail().x, 16 * view.scale});
    ImGui::Dummy({0, 6 * view.scale});
    line(view, "cache/prompt_tokens", "prompt tokens",
         with_unit(as_double(s.prompt_tokens_total), "tokens"));
    line(view, "cache/cached_tokens", "found cached",
         with_unit(as_double(s.prompt_tokens_cached), "tokens"));
    line(view, "cache/restored_tokens", "of them from disk",
         with_unit(as_double(s.prompt_tokens_restored), "tokens"));
    line(view, "cache/age", "heard", age_text(snapshot.now_us(), model->stats_us));
  }
  end_card();
  ImGui::SameLine();
  if (begin_card(view, "On disk", {0, upper})) {
    const ipc::StoreSnapshot& store = s.store;
    line(view, "cache/store/state", "state", store.state);
    line(view, "cache/store/bytes", "bytes",
         fmt::format("{} of {}", ipc::human_bytes(store.bytes),
                     ipc::human_bytes(store.budget_bytes)));
    const BarPart parts[] = {{as_double(store.bytes), view.theme.prefill}};
    stacked_bar(view, parts, as_double(store.budget_bytes),
                {ImGui::GetContentRegionAvail().x, 10 * view.scale});
    line(view, "cache/store/chunks", "chunks", fmt::format("{}", store.entries));
    line(view, "cache/store/saved", "saved, loaded",
         fmt::format("{}, {}", store.chunks_saved, store.chunks_loaded));
    line(view, "cache/store/evicted", "evicted, dropped, refused",
         fmt::format("{}, {}, {}", store.chunks_evicted, store.chunks_dropped,
                     store.chunks_refused));
    if (store.ram_budget_bytes > 0) {
      line(view, "cache/store/ram", "host memory",
           fmt::format("{} of {}", ipc::human_bytes(store.ram_bytes),
                       ipc::human_bytes(store.ram_budget_bytes)));
      line(view, "cache/store/ram_chunks", "loaded, evicted",
           fmt::format("{}, {}", store.ram_loaded, store.ram_evicted));
    }
    if (!store.last_error.empty()) {
      put_small(view, "cache/store/error", store.last_error, view.theme.bad);
    }
  }
  end_card();
  const float wide = (ImGui::GetContentRegionAvail().x - ImGui::GetStyle().ItemSpacing.x) * 0.68f;
  if (begin_card(view, "Prefixes", {wide, 0}, "what prompts begin with, in memory and on disk")) {
    tree(snapshot, view, *model);
  }
  end_card();
  ImGui::SameLine();
  ImGui::BeginGroup();
  const float lower = (ImGui::GetContentRegionAvail().y - ImGui::GetStyle().ItemSpacing.y) / 2;
  if (begin_card(view, "Prefix hit rate", {0, lower}, "last 10 minutes")) {
    const Line lines[] = {{"hit rate", &model->hit_rate, view.theme.good, true}};
    plot(view, "cache/rate", lines, snapshot.now_us(),
         {.window_s = 600, .max = 1, .as_percent = true}, ImGui::GetContentRegionAvail());
  }
  end_card();
  if (begin_card(view, "Blocks kept", {0, 0}, "in memory, last 10 minutes")) {
    if (model->pools.empty()) {
      nothing_yet(view, "no block map yet");
    } else {
      const Line lines[] = {{"cached", &model->pools[0].history[3], view.theme.block[3], true},
                            {"in use", &model->pools[0].history[1], view.theme.block[1]}};
      plot(view, "cache/blocks", lines, snapshot.now_us(), {.unit = "blocks", .window_s = 600},
           ImGui::GetContentRegionAvail());
    }
  }
  end_card();
  ImGui::EndGroup();
}

}  // namespace hearth::monitor
