#include <fmt/format.h>

#include <algorithm>

#include "ipc/shown_text.h"
#include "monitor/panels.h"

namespace hearth::monitor {
namespace {

constexpr const char* kColumns[] = {"Model", "Roles",      "State",   "File", "Weights", "Family",
                                    "Type",  "Parameters", "Context", "KV",   "Worker"};
constexpr int kNumColumns = 11;

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
    case 9: return entry.kv_bytes > 0 ? ipc::human_bytes(entry.kv_bytes) : "–";
    case 10:
      return entry.worker_pid > 0 ? fmt::format("{} (pid {})", entry.device, entry.worker_pid)
                                  : "–";
    default: return "";
  }
}

ImU32 state_colour(const Theme& theme, const std::string& state) {
  if (state == "resident") return theme.good;
  if (state == "loading" || state == "draining") return theme.warn;
  if (state == "failed") return theme.bad;
  return theme.muted;
}

}  // namespace

void draw_models(const Snapshot& snapshot, View& view) {
  if (!begin_card(view, "Models", {0, 0}, "in the model folders; loaded when somebody asks")) {
    return end_card();
  }
  ImGui::SameLine(0, 16 * view.scale);
  put_small(view, "models/age", age_text(snapshot.now_us(), snapshot.models_us()),
            view.theme.faint);
  ImGui::PushFont(view.fonts.small);
  if (ImGui::BeginTable("models", kNumColumns,
                        ImGuiTableFlags_RowBg | ImGuiTableFlags_Resizable |
                            ImGuiTableFlags_ScrollY | ImGuiTableFlags_BordersInnerH,
                        {0, ImGui::GetContentRegionAvail().y - 60 * view.scale})) {
    ImGui::TableSetupScrollFreeze(0, 1);
    constexpr float kWeights[] = {1.6f, 0.9f, 1.1f, 0.9f, 0.9f, 0.8f, 0.8f, 0.9f, 1.1f, 0.9f, 1.9f};
    for (int i = 0; i < kNumColumns; ++i) {
      ImGui::TableSetupColumn(kColumns[i], ImGuiTableColumnFlags_WidthStretch, kWeights[i]);
    }
    ImGui::TableHeadersRow();
    for (const ipc::ModelEntry& entry : snapshot.models().models) {
      ImGui::TableNextRow();
      for (int column = 0; column < kNumColumns; ++column) {
        ImGui::TableSetColumnIndex(column);
        put_text(view, fmt::format("models/{}/{}", entry.name, kColumns[column]),
                 cell_text(entry, column),
                 column == 2 ? state_colour(view.theme, entry.state) : view.theme.text);
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
}

}  // namespace hearth::monitor
