#include <fmt/core.h>

#include <algorithm>

#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "monitor/draw/pixels.h"
#include "monitor/panels/panels.h"

namespace hearth::monitor {
namespace {

constexpr const char* kRequestColumns[] = {"Request", "Owner",     "Model",    "Class",
                                           "State",   "Waits for", "Prompt",   "Cached",
                                           "Output",  "TTFT",      "tokens/s", "Accepted"};
constexpr int kNumRequestColumns = 12;

std::string waits_for(const ipc::WatchedRequest& row) {
  if (row.waiting_for.empty()) return "";
  std::string out = row.waiting_for;
  if (row.queue_position > 0) out += fmt::format(", {} ahead", row.queue_position);
  if (row.estimate_ms > 0) {
    out += fmt::format(", ~{}", ms_text(as_double(row.estimate_ms)));
  }
  return out;
}

double acceptance(const ipc::WatchedRequest& row) {
  return row.drafted_tokens > 0 ? as_double(row.accepted_tokens) / row.drafted_tokens : -1;
}

std::string cell_text(const RequestView& request, int column) {
  const ipc::WatchedRequest& row = request.row;
  switch (column) {
    case 0: return row.id;
    case 1: return row.owner;
    case 2: return row.model;
    case 3: return row.priority;
    case 4: return row.state;
    case 5: return waits_for(row);
    case 6:
      return row.prompt_done < row.prompt_tokens && row.state == "prefill"
                 ? fmt::format("{} / {}", row.prompt_done, row.prompt_tokens)
                 : fmt::format("{}", row.prompt_tokens);
    case 7: return fmt::format("{}", row.cached_tokens);
    case 8: return fmt::format("{}", row.output_tokens);
    case 9: return row.ttft_us < 0 ? "–" : ms_text(us_as_ms(row.ttft_us));
    case 10: return request.tokens_per_s > 0 ? fmt::format("{:.1f}", request.tokens_per_s) : "–";
    case 11: return acceptance(row) < 0 ? "–" : percent_text(acceptance(row));
    default: return "";
  }
}

bool goes_before(const RequestView& a, const RequestView& b, int column) {
  const auto text = [&](const std::string& x, const std::string& y) { return x < y; };
  switch (column) {
    case 0: return text(a.row.id, b.row.id);
    case 1: return text(a.row.owner, b.row.owner);
    case 2: return text(a.row.model, b.row.model);
    case 3: return text(a.row.priority, b.row.priority);
    case 4: return text(a.row.state, b.row.state);
    case 5: return text(a.row.waiting_for, b.row.waiting_for);
    case 6: return a.row.prompt_tokens < b.row.prompt_tokens;
    case 7: return a.row.cached_tokens < b.row.cached_tokens;
    case 8: return a.row.output_tokens < b.row.output_tokens;
    case 9: return a.row.ttft_us < b.row.ttft_us;
    case 10: return a.tokens_per_s < b.tokens_per_s;
    case 11: return acceptance(a.row) < acceptance(b.row);
    default: return a.received_us < b.received_us;
  }
}

ImU32 request_colour(const Theme& theme, const std::string& state) {
  if (state == "decode") return theme.decode;
  if (state == "prefill") return theme.prefill;
  if (state == "ended") return theme.faint;
  if (state == "recovering") return theme.bad;
  if (state == "queued") return theme.muted;
  if (state == "remote") return theme.accent;
  return theme.request[3];  // waiting: distinct from prefill
}

std::vector<const RequestView*> listed(const Snapshot& snapshot, const View& view) {
  std::vector<const RequestView*> rows;
  for (const auto& [number, request] : snapshot.requests()) {
    if (view.with_ended || !request.ended) rows.push_back(&request);
  }
  std::ranges::stable_sort(rows, [&](const RequestView* a, const RequestView* b) {
    if (view.sort_column < 0) {  // live requests first, the newest on top
      if (a->ended != b->ended) return b->ended;
      return a->received_us > b->received_us;
    }
    return view.sort_down ? goes_before(*b, *a, view.sort_column)
                          : goes_before(*a, *b, view.sort_column);
  });
  return rows;
}

void table(const Snapshot& snapshot, View& view, ImVec2 size) {
  const auto flags = ImGuiTableFlags_RowBg | ImGuiTableFlags_ScrollY | ImGuiTableFlags_Resizable |
                     ImGuiTableFlags_Sortable | ImGuiTableFlags_SortTristate |
                     ImGuiTableFlags_Hideable | ImGuiTableFlags_BordersInnerH;
  if (!ImGui::BeginTable("requests", kNumRequestColumns, flags, size)) return;
  ImGui::TableSetupScrollFreeze(0, 1);
  constexpr float kWeights[] = {2.0f, 1.0f, 1.2f, 1.1f, 0.9f, 2.3f,
                                1.0f, 0.8f, 0.8f, 1.0f, 0.9f, 1.0f};
  for (int i = 0; i < kNumRequestColumns; ++i) {
    ImGui::TableSetupColumn(
        kRequestColumns[i],
        ImGuiTableColumnFlags_WidthStretch |
            (i >= 6 ? ImGuiTableColumnFlags_PreferSortDescending : ImGuiTableColumnFlags_None),
        kWeights[i]);
  }
  ImGui::PushFont(view.fonts.small);
  ImGui::TableHeadersRow();
  if (ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs()) {
    view.sort_column = specs->SpecsCount > 0 ? specs->Specs[0].ColumnIndex : -1;
    view.sort_down =
        specs->SpecsCount > 0 && specs->Specs[0].SortDirection == ImGuiSortDirection_Descending;
  }
  const std::vector<const RequestView*> rows = listed(snapshot, view);
  ImGuiListClipper clipper;
  clipper.Begin(size32(rows));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      const RequestView& request = *rows[i];
      const ipc::WatchedRequest& row = request.row;
      ImGui::PushID(static_cast<int>(row.number));
      ImGui::TableNextRow();
      for (int column = 0; column < kNumRequestColumns; ++column) {
        ImGui::TableSetColumnIndex(column);
        if (column == 0) {
          if (ImGui::Selectable("##row", view.selected == row.number,
                                ImGuiSelectableFlags_SpanAllColumns)) {
            view.selected = row.number;
          }
          ImGui::SameLine(0, 0);
          legend(view, view.theme.of_request(row.number), "");
          ImGui::SameLine(0, 5 * view.scale);
        }
        const std::string text = cell_text(request, column);
        if (column >= 6) {
          const float width = ImGui::CalcTextSize(text.c_str()).x;
          ImGui::SetCursorPosX(ImGui::GetCursorPosX() +
                               std::max(0.0f, ImGui::GetContentRegionAvail().x - width));
        }
        put_text(view, fmt::format("requests/{}/{}", row.number, kRequestColumns[column]), text,
                 request.ended ? view.theme.faint
                 : column == 4 ? request_colour(view.theme, row.state)
                               : view.theme.text);
      }
      ImGui::PopID();
    }
  }
  ImGui::PopFont();
  ImGui::EndTable();
}

void gantt(View& view, const RequestView& request) {
  const Theme& theme = view.theme;
  const ipc::WatchedRequest& row = request.row;
  const int64_t begin = request.received_us;
  const int64_t end =
      std::max(begin + 1000, request.life.empty() ? begin : request.life.back().end_us);
  const double span_ms = as_double(end - begin) / 1000;
  put_small(
      view, "requests/life/what",
      fmt::format("{} of {} on {}: {} so far; waited {}, first token after {}, {} preempted",
                  row.id, row.owner, row.model, ms_text(span_ms), ms_text(us_as_ms(row.queue_us)),
                  row.ttft_us < 0 ? "–" : ms_text(us_as_ms(row.ttft_us)), row.preemptions),
      theme.muted);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const float height = 22 * view.scale;
  ImDrawList* draw = ImGui::GetWindowDrawList();
  draw->AddRectFilled(at, {at.x + width, at.y + height}, theme.raised, 3 * view.scale);
  for (const LifeSegment& part : request.life) {
    const auto x_of = [&](int64_t time_us) {
      return at.x + pixels(as_double(time_us - begin) / as_double(end - begin)) * width;
    };
    const float left = x_of(part.begin_us);
    const float right = std::max(left + 2, x_of(part.end_us));
    draw->AddRectFilled({left, at.y}, {right, at.y + height}, request_colour(theme, part.state),
                        3 * view.scale);
    if (ImGui::IsMouseHoveringRect({left, at.y}, {right, at.y + height})) {
      ImGui::SetTooltip("%s for %s", part.state.c_str(),
                        ms_text(us_as_ms(part.end_us - part.begin_us)).c_str());
    }
  }
  ImGui::PushFont(view.fonts.small);
  // Seconds since the request arrived.
  for (int i = 0; i <= 5; ++i) {
    const float x = at.x + width * pixels(i) / 5;
    const std::string text = ms_text(span_ms * i / 5);
    const float wide = ImGui::CalcTextSize(text.c_str()).x;
    const float left = std::clamp(x - wide / 2, at.x, at.x + width - wide);
    draw->AddLine({x, at.y + height}, {x, at.y + height + 3 * view.scale}, theme.line);
    ImGui::SetCursorScreenPos({left, at.y + height + 3 * view.scale});
    put_text(view, fmt::format("requests/life/axis/x{}", i), i == 0 ? "received" : text,
             theme.faint);
  }
  ImGui::SetCursorScreenPos({at.x, at.y + height + 22 * view.scale});
  for (const char* state : {"queued", "waiting", "prefill", "decode", "recovering", "remote"}) {
    legend(view, request_colour(theme, state), state);
    ImGui::SameLine(0, 14 * view.scale);
  }
  ImGui::NewLine();
  ImGui::PopFont();
}

/// A cell per token: masked ones empty, the others the fuller the surer they were.
void canvas(View& view, const ipc::WatchedRequest& row) {
  const Theme& theme = view.theme;
  const auto masked = std::ranges::count(row.canvas, '.');
  put_small(view, "requests/canvas/what",
            fmt::format("pass {} of {}; {} of {} tokens shown are masked, from token {} on",
                        row.pass, row.passes, masked, row.canvas.size(), row.canvas_first),
            theme.muted);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float side = 14 * view.scale, gap = 2 * view.scale;
  const float room = ImGui::GetContentRegionAvail().x;
  ImDrawList* draw = ImGui::GetWindowDrawList();
  float x = at.x, y = at.y;
  for (const char c : row.canvas) {
    if (x + side > at.x + room) {
      x = at.x;
      y += side + gap;
    }
    if (c >= '0' && c <= '9') {
      const float sure = pixels(c - '0' + 1) / 10;
      draw->AddRectFilled({x, y}, {x + side, y + side}, with_alpha(theme.good, sure), gap);
    } else {
      draw->AddRect({x, y}, {x + side, y + side}, theme.line, gap);
    }
    x += side + gap;
  }
  ImGui::Dummy({room, y + side - at.y});
}

/// The selected request, else the first in the table; null: there is none.
const RequestView* chosen(const Snapshot& snapshot, const View& view) {
  const auto found = snapshot.requests().find(view.selected);
  if (found != snapshot.requests().end()) return &found->second;
  const std::vector<const RequestView*> rows = listed(snapshot, view);
  return rows.empty() ? nullptr : rows.front();
}

/// Up and Down move through the table; Delete asks for confirmation to cancel the selected request.
void keys(const Snapshot& snapshot, View& view) {
  if (ImGui::GetIO().WantTextInput || view.confirm) return;
  const auto pressed = [](ImGuiKey key) { return ImGui::IsKeyPressed(ImGui::GetKeyIndex(key)); };
  const int by = (pressed(ImGuiKey_DownArrow) ? 1 : 0) - (pressed(ImGuiKey_UpArrow) ? 1 : 0);
  if (by != 0) {
    const std::vector<const RequestView*> rows = listed(snapshot, view);
    const auto at = std::ranges::find_if(
        rows, [&view](const RequestView* row) { return row->row.number == view.selected; });
    if (rows.empty()) return;
    const std::ptrdiff_t last = std::ssize(rows) - 1;
    const auto next =
        at == rows.end() ? 0 : std::clamp<std::ptrdiff_t>(at - rows.begin() + by, 0, last);
    view.selected = rows[next]->row.number;
  }
  if (!pressed(ImGuiKey_Delete) || !view.ask) return;
  const auto found = snapshot.requests().find(view.selected);
  if (found == snapshot.requests().end()) return;
  if (found->second.ended || found->second.raw_id.empty()) return;
  view.confirm = Command{Command::Kind::kCancel, found->second.raw_id, ""};
}

}  // namespace

void draw_requests(const Snapshot& snapshot, View& view) {
  keys(snapshot, view);
  const RequestView* const request = chosen(snapshot, view);
  const bool shows_canvas = request != nullptr && !request->row.canvas.empty();
  const float canvas_height = 150 * view.scale;
  const float lower =
      142 * view.scale + (shows_canvas ? canvas_height + ImGui::GetStyle().ItemSpacing.y : 0);
  if (begin_card(
          view, "Requests", {0, ImGui::GetContentRegionAvail().y - lower},
          "yours, or those of all users for an administrator; prompt, cached, output in tokens")) {
    ImGui::SameLine(0, 20 * view.scale);
    if (small_button(view, "requests/ended",
                     view.with_ended ? "with ended ones" : "live ones only")) {
      view.with_ended = !view.with_ended;
    }
    ImGui::SameLine(0, 20 * view.scale);
    put_small(view, "requests/age", age_text(snapshot.now_us(), snapshot.last_message_us()),
              view.theme.faint);
    table(snapshot, view, ImGui::GetContentRegionAvail());
  }
  end_card();
  if (shows_canvas) {
    if (begin_card(view, "Its canvas", {0, canvas_height},
                   "empty: masked; the fuller, the surer the token was")) {
      canvas(view, request->row);
    }
    end_card();
  }
  if (begin_card(view, "One request's life", {0, 0})) {
    if (request == nullptr) {
      put_small(view, "requests/none", "no request yet", view.theme.muted);
    } else {
      if (!request->ended && !request->raw_id.empty() && view.ask) {
        ImGui::SameLine(0, 16 * view.scale);
        if (small_button(view, "requests/cancel", "Cancel ... (Del)")) {
          view.confirm = Command{Command::Kind::kCancel, request->raw_id, ""};
        }
      }
      gantt(view, *request);
    }
  }
  end_card();
}

}  // namespace hearth::monitor
