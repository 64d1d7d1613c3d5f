#include "monitor/draw/view.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "kernels/base/numbers.h"
#include "monitor/draw/pixels.h"

namespace hearth::monitor {
namespace {

constexpr std::string_view kNames[kNumPanels] = {
    "now", "batches", "blocks", "requests", "models", "cache", "speculation", "roofline", "log"};
constexpr std::string_view kTitles[kNumPanels] = {
    "Now", "Batches", "KV blocks", "Requests", "Models", "Cache", "Speculation", "Roofline", "Log"};

}  // namespace

std::string_view panel_name(Panel panel) { return kNames[to_underlying(panel)]; }
std::string_view panel_title(Panel panel) { return kTitles[to_underlying(panel)]; }

const ModelView* View::shown_model(const Snapshot& snapshot) const {
  const auto& views = snapshot.model_views();
  if (const auto found = views.find(model); found != views.end()) return &found->second;
  return views.empty() ? nullptr : &views.begin()->second;
}

void put_text(View& view, std::string_view place, std::string_view text, ImU32 colour) {
  ImGui::PushStyleColor(ImGuiCol_Text, colour);
  ImGui::TextUnformatted(text.data(), text.data() + text.size());
  ImGui::PopStyleColor();
  if (view.drawn == nullptr || !ImGui::IsItemVisible()) return;
  view.drawn->push_back(
      {std::string(place), std::string(text), ImGui::GetItemRectMin(), ImGui::GetItemRectMax()});
}
void put_text(View& view, std::string_view place, std::string_view text) {
  put_text(view, place, text, view.theme.text);
}
void put_small(View& view, std::string_view place, std::string_view text, ImU32 colour) {
  ImGui::PushFont(view.fonts.small);
  put_text(view, place, text, colour);
  ImGui::PopFont();
}

bool begin_card(View& view, const char* title, ImVec2 size, const char* hint) {
  ImGui::PushStyleColor(ImGuiCol_ChildBg, view.theme.panel);
  const bool open = ImGui::BeginChild(title, size, true, ImGuiWindowFlags_AlwaysUseWindowPadding);
  ImGui::PopStyleColor();
  ImGui::PushFont(view.fonts.bold);
  ImGui::TextUnformatted(title);
  ImGui::PopFont();
  if (hint != nullptr) {
    ImGui::SameLine(0, 12 * view.scale);
    put_small(view, "", hint, view.theme.faint);
  }
  return open;
}
void end_card() { ImGui::EndChild(); }

void headline(View& view, const char* place, std::string_view label, std::string_view value,
              std::string_view unit, std::string_view note, ImU32 colour, float width) {
  ImGui::PushID(place);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {4 * view.scale, 2 * view.scale});
  ImGui::BeginChild("card", {width, 84 * view.scale}, true,
                    ImGuiWindowFlags_AlwaysUseWindowPadding | ImGuiWindowFlags_NoScrollbar);
  put_small(view, fmt::format("{}/label", place), label, view.theme.muted);
  ImGui::PushFont(view.fonts.big);
  put_text(view, fmt::format("{}/value", place), value, colour);
  const float base = ImGui::GetItemRectMax().y;
  ImGui::PopFont();
  if (!unit.empty()) {
    ImGui::SameLine(0, 5 * view.scale);
    ImGui::PushFont(view.fonts.small);
    const float y = base - ImGui::GetTextLineHeight() - 4 * view.scale;
    ImGui::SetCursorScreenPos({ImGui::GetCursorScreenPos().x, y});
    put_text(view, fmt::format("{}/unit", place), unit, view.theme.muted);
    ImGui::PopFont();
    ImGui::SetCursorScreenPos({ImGui::GetCursorScreenPos().x, base + 2 * view.scale});
  }
  put_small(view, fmt::format("{}/note", place), note, view.theme.faint);
  ImGui::EndChild();
  ImGui::PopStyleVar();
  ImGui::PopID();
}

void legend(View& view, ImU32 colour, std::string_view label) {
  const float side = ImGui::GetTextLineHeight() * 0.62f;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float y = at.y + (ImGui::GetTextLineHeight() - side) / 2;
  ImGui::GetWindowDrawList()->AddRectFilled({at.x, y}, {at.x + side, y + side}, colour,
                                            2 * view.scale);
  ImGui::Dummy({side, ImGui::GetTextLineHeight()});
  if (label.empty()) return;
  ImGui::SameLine(0, 5 * view.scale);
  put_text(view, fmt::format("legend/{}", label), label, view.theme.muted);
}

void stacked_bar(View& view, std::span<const BarPart> parts, double total, ImVec2 size) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  ImDrawList* draw = ImGui::GetWindowDrawList();
  const float round = 3 * view.scale;
  draw->AddRectFilled(at, {at.x + size.x, at.y + size.y}, view.theme.raised, round);
  float x = at.x;
  for (const BarPart& part : parts) {
    if (total <= 0 || part.value <= 0) continue;
    const float width = pixels(std::clamp(part.value / total, 0.0, 1.0)) * size.x;
    const float end = std::min(x + width, at.x + size.x);
    draw->AddRectFilled({x, at.y}, {end, at.y + size.y}, part.colour,
                        width > 2 * round ? round : 0);
    x = end;
  }
  ImGui::Dummy(size);
}

void nothing_yet(View& view, std::string_view why) {
  ImGui::Dummy({0, 20 * view.scale});
  put_text(view, "nothing", why, view.theme.muted);
}

void choose_model(View& view, const Snapshot& snapshot) {
  if (snapshot.model_views().size() < 2) return;
  const ModelView* now = view.shown_model(snapshot);
  // Leave room below the baseline for underscores.
  ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2{6 * view.scale, 3 * view.scale});
  for (const auto& [name, each] : snapshot.model_views()) {
    const bool chosen = &each == now;
    if (chosen) ImGui::PushStyleColor(ImGuiCol_Button, with_alpha(view.theme.accent, 0.35f));
    if (ImGui::Button(name.c_str())) view.model = name;
    if (chosen) ImGui::PopStyleColor();
    ImGui::SameLine();
  }
  ImGui::PopStyleVar();
  ImGui::NewLine();
}

bool small_button(View& view, std::string_view place, const char* label) {
  const bool pressed = ImGui::SmallButton(label);
  if (view.drawn != nullptr && ImGui::IsItemVisible()) {
    view.drawn->push_back(
        {std::string(place), label, ImGui::GetItemRectMin(), ImGui::GetItemRectMax()});
  }
  return pressed;
}

void prompt_tiers(View& view, const char* place, double prompt, double memory, double disk,
                  ImVec2 size) {
  const BarPart parts[] = {{memory, view.theme.block[3]}, {disk, view.theme.prefill}};
  stacked_bar(view, parts, prompt, size);
  const auto share = [prompt](double part) { return prompt > 0 ? part / prompt : 0; };
  const auto tier = [&](const char* name, double part, ImU32 colour) {
    legend(view, colour, "");
    ImGui::SameLine(0, 5 * view.scale);
    put_text(view, fmt::format("{}/{}", place, name),
             fmt::format("{} {}", name, percent_text(share(part))), view.theme.muted);
  };
  tier("memory", memory, view.theme.block[3]);
  ImGui::SameLine(0, 14 * view.scale);
  tier("disk", disk, view.theme.prefill);
  ImGui::SameLine(0, 14 * view.scale);
  tier("computed", std::max(0.0, prompt - memory - disk), view.theme.raised);
}

double step_weight_bytes(const ipc::ModelEntry& entry, double rows) {
  const ipc::ExpertUse experts = entry.experts.value_or(ipc::ExpertUse{});
  const double unread =
      as_double(experts.bytes) * std::pow(1 - std::clamp(experts.share, 0.0, 1.0), rows);
  return std::max(0.0, as_double(entry.weight_bytes) - unread);
}

double read_bytes_per_s(const Snapshot& snapshot, const ModelView& model) {
  constexpr int kSteps = 64;
  const ipc::ModelEntry* entry = nullptr;
  for (const ipc::ModelEntry& each : snapshot.models().models) {
    if (each.name == model.name) entry = &each;
  }
  if (entry == nullptr) return 0;
  double bytes = 0;
  int64_t busy_us = 0;
  int steps = 0;
  for (auto step = model.steps.rbegin(); step != model.steps.rend() && steps < kSteps; ++step) {
    if (step->decode_rows == 0 || !step->prefills.empty() || step->duration_us <= 0) continue;
    busy_us += step->duration_us;
    bytes += step_weight_bytes(*entry, step->decode_rows + step->draft_rows);
    ++steps;
  }
  return busy_us > 0 ? bytes / us_as_s(busy_us) : 0;
}

std::string with_unit(double value, std::string_view unit) {
  if (!std::isfinite(value)) value = 0;
  const char* gap = unit.empty() ? "" : " ";
  if (value >= 1e12) return fmt::format("{:.2f} T{}{}", value / 1e12, gap, unit);
  if (value >= 1e9) return fmt::format("{:.2f} G{}{}", value / 1e9, gap, unit);
  if (value >= 1e6) return fmt::format("{:.2f} M{}{}", value / 1e6, gap, unit);
  if (value >= 1e4) return fmt::format("{:.1f} k{}{}", value / 1e3, gap, unit);
  if (value >= 100 || value == std::floor(value))
    return fmt::format("{:.0f}{}{}", value, gap, unit);
  return fmt::format("{:.{}f}{}{}", value, value >= 10 ? 1 : 2, gap, unit);
}

std::string ms_text(double ms) {
  if (!(ms >= 0)) return "–";
  if (ms >= 60'000) return fmt::format("{:.1f} min", ms / 60'000);
  if (ms >= 1000) return fmt::format("{:.2f} s", ms / 1000);
  if (ms >= 100) return fmt::format("{:.0f} ms", ms);
  return fmt::format("{:.{}f} ms", ms, ms >= 10 ? 1 : 2);
}

std::string percent_text(double share) {
  return fmt::format("{:.1f} %", 100 * (std::isfinite(share) ? share : 0));
}

std::string age_text(int64_t now_us, int64_t then_us) {
  if (then_us <= 0) return "never";
  const int64_t ms = std::max<int64_t>(0, now_us - then_us) / 1000;
  if (ms < 1000) return "< 1 s ago";
  if (ms < 120'000) return fmt::format("{} s ago", ms / 1000);
  return fmt::format("{} min ago", ms / 60'000);
}

}  // namespace hearth::monitor
