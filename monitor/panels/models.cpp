#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ipc/text/shown_text.h"
#include "kernels/base/numbers.h"
#include "monitor/panels/panels.h"

namespace hearth::monitor {
namespace {

constexpr const char* kModelColumns[] = {"Model",   "Roles",  "State", "File",
                                         "Weights", "Family", "Type",  "Parameters",
                                         "Context", "KV",     "Worker"};
constexpr int kNumModelColumns = 11;

std::string cell_text(const ipc::ModelEntry& entry, int column) {
  switch (column) {
    case 0: return entry.name;
    case 1: {
      std::string roles;
      for (const std::string& role : entry.roles) roles += (roles.empty() ? "" : ", ") + role;
      return roles;
    }
    case 2:
      return entry.state == "loading" ? fmt::format("loading {:.0f} %", 100 * entry.load_share)
                                      : entry.state;
    case 3: return ipc::human_bytes(entry.file_bytes);
    case 4: return entry.weight_bytes > 0 ? ipc::human_bytes(entry.weight_bytes) : "–";
    case 5: return entry.architecture.empty() ? "–" : entry.architecture;
    case 6: return entry.file_type.empty() ? "–" : entry.file_type;
    case 7: return entry.num_parameters > 0 ? ipc::human_count(entry.num_parameters) : "–";
    case 8: return entry.context_length > 0 ? fmt::format("{} tokens", entry.context_length) : "–";
    case 9:
      return entry.kv_bytes > 0 ? fmt::format("{} of {}", ipc::human_bytes(entry.kv_backed_bytes),
                                              ipc::human_bytes(entry.kv_bytes))
                                : "–";
    case 10:
      return entry.worker_pid > 0 ? fmt::format("{} (pid {})", entry.device, entry.worker_pid)
                                  : "–";
    default: return "";
  }
}

/// The width of the longest text in each column, so that columns share the room by content.
std::array<float, kNumModelColumns> column_widths(const ipc::ModelsReply& models) {
  std::array<float, kNumModelColumns> out{};
  for (int i = 0; i < kNumModelColumns; ++i) {
    float& widest = out[i];
    widest = ImGui::CalcTextSize(kModelColumns[i]).x;
    for (const ipc::ModelEntry& entry : models.models) {
      widest = std::max(widest, ImGui::CalcTextSize(cell_text(entry, i).c_str()).x);
    }
    widest += 2 * ImGui::GetStyle().CellPadding.x;
  }
  return out;
}

ImU32 model_colour(const Theme& theme, const std::string& state) {
  if (state == "resident") return theme.good;
  if (state == "loading" || state == "draining") return theme.warn;
  if (state == "failed") return theme.bad;
  return theme.muted;
}

/// "left: resident, 20.0 MiB of 30.0 MiB, 3 requests".
std::string replica_text(const ipc::ReplicaEntry& replica) {
  std::string text = fmt::format("{}: {}, {}", replica.device, replica.state,
                                 ipc::human_bytes(replica.memory_bytes));
  if (replica.budget_bytes > 0) text += " of " + ipc::human_bytes(replica.budget_bytes);
  return text + fmt::format(", {} requests", replica.requests);
}

/// The actions available for the chosen row.
void actions(const Snapshot& snapshot, View& view) {
  using Kind = Command::Kind;
  const auto& models = snapshot.models().models;
  auto entry = std::ranges::find(models, view.chosen_model, &ipc::ModelEntry::name);
  if (entry == models.end()) entry = models.begin();
  if (entry == models.end()) return;
  put_text(view, "models/chosen", entry->name, view.theme.text);
  for (const ipc::ReplicaEntry& replica : entry->replicas) {
    ImGui::SameLine(0, 14 * view.scale);
    put_text(view, "models/replica/" + replica.device, replica_text(replica),
             model_colour(view.theme, replica.state));
  }
  for (const ipc::StageUse& stage : entry->stages) {
    ImGui::SameLine(0, 14 * view.scale);
    put_text(view, "models/stage/" + stage.device, stage.device + ": " + ipc::stage_text(stage),
             model_colour(view.theme, entry->state));
  }
  if (!view.ask) return;
  const bool in_memory =
      entry->state == "resident" || entry->state == "loading" || entry->state == "asleep";
  ImGui::SameLine(0, 14 * view.scale);
  const bool loads = !in_memory || entry->state == "asleep";
  if (loads && small_button(view, "models/load", in_memory ? "Wake" : "Load")) {
    view.ask({Kind::kLoad, entry->name, ""});
  }
  if (loads && in_memory) ImGui::SameLine(0, 8 * view.scale);
  if (in_memory && small_button(view, "models/unload", "Unload ...")) {
    view.confirm = Command{Kind::kUnload, entry->name, ""};
  }
  // The existing roles; each may be pointed at this model.
  std::vector<std::string> roles;
  for (const ipc::ModelEntry& each : models) {
    for (const std::string& role : each.roles) {
      if (roles.size() < 8 && std::ranges::find(roles, role) == roles.end()) roles.push_back(role);
    }
  }
  for (const std::string& role : roles) {
    if (std::ranges::find(entry->roles, role) != entry->roles.end()) continue;
    ImGui::SameLine(0, 8 * view.scale);
    if (small_button(view, fmt::format("models/swap/{}", role),
                     fmt::format("Make it {} ...", role).c_str())) {
      view.confirm = Command{Kind::kSwap, entry->name, role};
    }
  }
  ImGui::SameLine(0, 8 * view.scale);
  if (!view.planning.empty()) {
    put_text(view, "models/planning", fmt::format("planning {} ...", view.planning),
             view.theme.muted);
  } else if (small_button(view, "models/plan", "Plan")) {
    view.planning = entry->name;
    view.ask({Kind::kPlan, entry->name, ""});
  }
}

void plan(View& view) {
  if (!view.plan) {
    return put_small(view, "models/plan/none",
                     "Plan estimates memory and speed of a model before it is loaded.",
                     view.theme.muted);
  }
  put_text(view, "models/plan/model", view.plan->model,
           view.plan->fits ? view.theme.good : view.theme.bad);
  if (!ImGui::BeginTable("plan", 4, ImGuiTableFlags_SizingStretchProp)) return;
  // Two pairs of columns, filled from top to bottom.
  const auto& lines = view.plan->lines;
  const size_t rows = (lines.size() + 1) / 2;
  for (size_t row = 0; row < rows; ++row) {
    ImGui::TableNextRow();
    for (size_t pair = 0; pair < 2; ++pair) {
      const size_t i = pair * rows + row;
      if (i >= lines.size()) continue;
      ImGui::TableSetColumnIndex(narrow<int>(pair * 2));
      put_small(view, "", lines[i].first, view.theme.muted);
      ImGui::TableSetColumnIndex(narrow<int>(pair * 2 + 1));
      put_small(view, fmt::format("models/plan/{}", lines[i].first), lines[i].second,
                view.theme.text);
    }
  }
  ImGui::EndTable();
}

}  // namespace

void draw_models(const Snapshot& snapshot, View& view) {
  const float lower = 270 * view.scale;
  if (!begin_card(view, "Models", {0, ImGui::GetContentRegionAvail().y - lower},
                  "in the model folders; loaded on request")) {
    end_card();
    return;
  }
  ImGui::SameLine(0, 16 * view.scale);
  put_small(view, "models/age", age_text(snapshot.now_us(), snapshot.models_us()),
            view.theme.faint);
  ImGui::PushFont(view.fonts.small);
  // A table keeps its first column widths, so different texts need a table with another name.
  const auto widths = column_widths(snapshot.models());
  if (ImGui::BeginTable(fmt::format("models {:.0f}", fmt::join(widths, " ")).c_str(),
                        kNumModelColumns,
                        ImGuiTableFlags_RowBg | ImGuiTableFlags_Resizable |
                            ImGuiTableFlags_ScrollY | ImGuiTableFlags_BordersInnerH,
                        {0, ImGui::GetContentRegionAvail().y - 26 * view.scale})) {
    ImGui::TableSetupScrollFreeze(0, 1);
    for (int i = 0; i < kNumModelColumns; ++i) {
      ImGui::TableSetupColumn(kModelColumns[i], ImGuiTableColumnFlags_WidthStretch, widths[i]);
    }
    ImGui::TableHeadersRow();
    for (const ipc::ModelEntry& entry : snapshot.models().models) {
      ImGui::TableNextRow();
      for (int column = 0; column < kNumModelColumns; ++column) {
        ImGui::TableSetColumnIndex(column);
        if (column == 0) {
          ImGui::PushID(entry.name.c_str());
          if (ImGui::Selectable("##row", view.chosen_model == entry.name,
                                ImGuiSelectableFlags_SpanAllColumns)) {
            view.chosen_model = entry.name;
          }
          ImGui::PopID();
          ImGui::SameLine(0, 0);
        }
        put_text(view, fmt::format("models/{}/{}", entry.name, kModelColumns[column]),
                 cell_text(entry, column),
                 column == 2 ? model_colour(view.theme, entry.state) : view.theme.text);
        if (column == 2 && entry.state == "loading") {
          const BarPart part[] = {{entry.load_share, view.theme.warn}};
          stacked_bar(view, part, 1, {ImGui::GetContentRegionAvail().x, 4 * view.scale});
        }
        if (column == 2 && !entry.problem.empty() && ImGui::IsItemHovered()) {
          ImGui::SetTooltip("%s", entry.problem.c_str());
        }
      }
    }
    ImGui::EndTable();
  }
  ImGui::PopFont();
  if (snapshot.models().models.empty()) {
    put_text(view, "models/none", "no model in the model folders", view.theme.warn);
  }
  std::string folders;
  for (const std::string& folder : snapshot.models().folders) {
    folders += (folders.empty() ? "" : "  ·  ") + folder;
  }
  put_small(view, "models/folders", "folders searched: " + folders, view.theme.faint);
  end_card();
  if (begin_card(view, "Chosen", {0, 0})) {
    ImGui::SameLine(0, 14 * view.scale);
    actions(snapshot, view);
    plan(view);
  }
  end_card();
}

}  // namespace hearth::monitor
