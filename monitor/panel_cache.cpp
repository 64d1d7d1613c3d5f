#include <fmt/format.h>

#include <algorithm>

#include "ipc/shown_text.h"
#include "monitor/panels.h"
#include "monitor/plot.h"

namespace hearth::monitor {
namespace {

double as_double(uint64_t value) { return static_cast<double>(value); }

void line(View& view, const char* place, const char* label, const std::string& value) {
  put_text(view, "", label, view.theme.muted);
  ImGui::SameLine(190 * view.scale);
  put_text(view, place, value);
}

void tiers(View& view, const ipc::WorkerSnapshot& s) {
  const double prompt = as_double(s.prompt_tokens_total);
  const double disk = as_double(s.prompt_tokens_restored);
  const double memory = std::max(0.0, as_double(s.prompt_tokens_cached) - disk);
  const BarPart parts[] = {{memory, view.theme.block[3]}, {disk, view.theme.prefill}};
  stacked_bar(view, parts, prompt, {ImGui::GetContentRegionAvail().x, 16 * view.scale});
  legend(view, view.theme.block[3], "");
  ImGui::SameLine(0, 5 * view.scale);
  const auto share = [prompt](double part) { return prompt > 0 ? part / prompt : 0; };
  put_text(view, "cache/memory", fmt::format("memory {}", percent_text(share(memory))),
           view.theme.muted);
  ImGui::SameLine(0, 18 * view.scale);
  legend(view, view.theme.prefill, "");
  ImGui::SameLine(0, 5 * view.scale);
  put_text(view, "cache/disk", fmt::format("disk {}", percent_text(share(disk))), view.theme.muted);
  ImGui::SameLine(0, 18 * view.scale);
  legend(view, view.theme.raised, "");
  ImGui::SameLine(0, 5 * view.scale);
  put_text(view, "cache/computed",
           fmt::format("computed {}", percent_text(prompt > 0 ? 1 - share(memory + disk) : 0)),
           view.theme.muted);
}

}  // namespace

void draw_cache(const Snapshot& snapshot, View& view) {
  choose_model(view, snapshot);
  const ModelView* model = view.shown_model(snapshot);
  if (model == nullptr) return nothing_yet(view, "no model in memory");
  const ipc::WorkerSnapshot& s = model->stats.snapshot;
  const float half = (ImGui::GetContentRegionAvail().x - ImGui::GetStyle().ItemSpacing.x) / 2;
  const float upper = 250 * view.scale;
  if (begin_card(view, "Where prompt tokens came from", {half, upper})) {
    tiers(view, s);
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
    if (!store.last_error.empty()) {
      put_small(view, "cache/store/error", store.last_error, view.theme.bad);
    }
    put_small(view, "cache/store/hint", "the prefixes one by one: hearth cache ls",
              view.theme.faint);
  }
  end_card();
  if (begin_card(view, "Prefix hit rate", {half, 0},
                 "prompt tokens found cached, last 10 minutes")) {
    const Line lines[] = {{"hit rate", &model->hit_rate, view.theme.good, true}};
    plot(view, "cache/rate", lines, snapshot.now_us(),
         {.window_s = 600, .max = 1, .as_percent = true}, ImGui::GetContentRegionAvail());
  }
  end_card();
  ImGui::SameLine();
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
}

}  // namespace hearth::monitor
