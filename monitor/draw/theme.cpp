#include "monitor/draw/theme.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace hearth::monitor {
namespace {

constexpr ImU32 rgb(uint32_t hex) {
  return IM_COL32(hex >> 16 & 0xFF, hex >> 8 & 0xFF, hex & 0xFF, 255);
}
ImVec4 vec(ImU32 colour) { return ImGui::ColorConvertU32ToFloat4(colour); }

// Latin, Greek, Cyrillic, punctuation, arrows, mathematics, control pictures, box drawing.
constexpr ImWchar kRanges[] = {0x0020, 0x024F, 0x0370, 0x052F, 0x2010, 0x205E, 0x2190,
                               0x21FF, 0x2200, 0x22FF, 0x2400, 0x243F, 0x2500, 0x25FF,
                               0x2713, 0x2717, 0xFFFD, 0xFFFD, 0};

// The font folders of Debian, Fedora and Arch.
constexpr const char* kFolders[] = {"/usr/share/fonts/truetype/dejavu/",
                                    "/usr/share/fonts/dejavu-sans-fonts/", "/usr/share/fonts/TTF/"};

ImFont* load(const char* name, float pixels) {
  ImGuiIO& io = ImGui::GetIO();
  std::string path;
  for (const char* folder : kFolders) {
    path = std::string(folder) + name;
    if (::access(path.c_str(), R_OK) == 0) break;
    path.clear();
  }
  if (path.empty()) return nullptr;
  ImFontConfig config;
  config.OversampleH = 2;
  config.OversampleV = 1;
  ImFont* font = io.Fonts->AddFontFromFileTTF(path.c_str(), pixels, &config, kRanges);
  if (font != nullptr) font->FallbackChar = 0xFFFD;
  return font;
}

}  // namespace

ImU32 with_alpha(ImU32 colour, float alpha) {
  const auto bits = static_cast<ImU32>(std::lround(alpha * 255.0f));
  return (colour & ~IM_COL32_A_MASK) | bits << IM_COL32_A_SHIFT;
}

Theme Theme::make(bool dark) {
  Theme t{};
  t.dark = dark;
  if (dark) {
    t.background = rgb(0x14171C);
    t.panel = rgb(0x1A1E25);
    t.raised = rgb(0x232933);
    t.line = rgb(0x303844);
    t.grid = rgb(0x252B35);
    t.text = rgb(0xE6E9EE);
    t.muted = rgb(0x9AA4B2);
    t.faint = rgb(0x667080);
    t.accent = rgb(0x56B4E9);
    t.good = rgb(0x2BB58F);
    t.warn = rgb(0xE69F00);
    t.bad = rgb(0xE8743B);
    t.decode = rgb(0x56B4E9);
    t.draft = rgb(0xF0E442);
    t.prefill = rgb(0xE69F00);
    t.block[0] = rgb(0x262C36);
    t.block[1] = rgb(0x3E8FD0);
    t.block[2] = rgb(0xF0E442);
    t.block[3] = rgb(0x2F7F6B);
    t.block[4] = rgb(0xCC79A7);
    t.block[5] = rgb(0xFF8A4C);
    constexpr uint32_t kRequests[] = {0x56B4E9, 0xE69F00, 0x2BB58F, 0xCC79A7,
                                      0xF0E442, 0x6F8FE8, 0xE8743B, 0xB9C4D0};
    for (int i = 0; i < 8; ++i) t.request[i] = rgb(kRequests[i]);
  } else {
    t.background = rgb(0xF4F5F7);
    t.panel = rgb(0xFFFFFF);
    t.raised = rgb(0xE9ECF0);
    t.line = rgb(0xD3D8DF);
    t.grid = rgb(0xE8EBEF);
    t.text = rgb(0x1C222B);
    t.muted = rgb(0x58626F);
    t.faint = rgb(0x8A94A1);
    t.accent = rgb(0x0072B2);
    t.good = rgb(0x007A5A);
    t.warn = rgb(0xA86A00);
    t.bad = rgb(0xC24A00);
    t.decode = rgb(0x0072B2);
    t.draft = rgb(0xB8A200);
    t.prefill = rgb(0xE69F00);
    t.block[0] = rgb(0xE4E7EB);
    t.block[1] = rgb(0x2C7FC1);
    t.block[2] = rgb(0xD9A400);
    t.block[3] = rgb(0x8CC9B8);
    t.block[4] = rgb(0xB4588C);
    t.block[5] = rgb(0xC14A00);
    constexpr uint32_t kRequests[] = {0x0072B2, 0xE69F00, 0x009E73, 0xB85C90,
                                      0xB8A200, 0x4B5FC4, 0xD55E00, 0x6B7684};
    for (int i = 0; i < 8; ++i) t.request[i] = rgb(kRequests[i]);
  }
  return t;
}

Fonts load_fonts(float scale) {
  const ImFontAtlas& atlas = *ImGui::GetIO().Fonts;
  if (atlas.IsBuilt() && !atlas.Fonts.empty()) {  // made by another App in the same context
    const auto font = [&atlas](int index) {
      return atlas.Fonts[std::min(index, atlas.Fonts.Size - 1)];
    };
    return {font(0), font(1), font(3), font(2)};
  }
  Fonts fonts;
  fonts.text = load("DejaVuSans.ttf", 14.0f * scale);
  if (fonts.text == nullptr) fonts.text = ImGui::GetIO().Fonts->AddFontDefault();
  fonts.small = load("DejaVuSans.ttf", 12.0f * scale);
  fonts.bold = load("DejaVuSans-Bold.ttf", 14.0f * scale);
  fonts.big = load("DejaVuSans.ttf", 25.0f * scale);
  for (ImFont** font : {&fonts.small, &fonts.bold, &fonts.big}) {
    if (*font == nullptr) *font = fonts.text;
  }
  return fonts;
}

void apply_style(const Theme& theme, float scale) {
  ImGuiStyle style;
  style.WindowPadding = {12, 12};
  style.FramePadding = {8, 4};
  style.CellPadding = {8, 4};
  style.ItemSpacing = {10, 8};
  style.WindowRounding = 0;
  style.ChildRounding = 6;
  style.FrameRounding = 4;
  style.PopupRounding = 6;
  style.ScrollbarSize = 12;
  style.ScrollbarRounding = 6;
  style.WindowBorderSize = 0;
  style.ChildBorderSize = 0;
  style.ScaleAllSizes(scale);
  const auto set = [&style](ImGuiCol index, ImU32 colour) { style.Colors[index] = vec(colour); };
  set(ImGuiCol_Text, theme.text);
  set(ImGuiCol_TextDisabled, theme.muted);
  set(ImGuiCol_WindowBg, theme.background);
  set(ImGuiCol_ChildBg, theme.panel);
  set(ImGuiCol_PopupBg, theme.raised);
  set(ImGuiCol_Border, theme.line);
  set(ImGuiCol_FrameBg, theme.raised);
  set(ImGuiCol_FrameBgHovered, theme.line);
  set(ImGuiCol_FrameBgActive, theme.line);
  set(ImGuiCol_Button, theme.raised);
  set(ImGuiCol_ButtonHovered, theme.line);
  set(ImGuiCol_ButtonActive, with_alpha(theme.accent, 0.5f));
  set(ImGuiCol_Header, with_alpha(theme.accent, 0.22f));
  set(ImGuiCol_HeaderHovered, with_alpha(theme.accent, 0.14f));
  set(ImGuiCol_HeaderActive, with_alpha(theme.accent, 0.30f));
  set(ImGuiCol_CheckMark, theme.accent);
  set(ImGuiCol_SliderGrab, theme.accent);
  set(ImGuiCol_SliderGrabActive, theme.accent);
  set(ImGuiCol_ScrollbarBg, theme.panel);
  set(ImGuiCol_ScrollbarGrab, theme.line);
  set(ImGuiCol_ScrollbarGrabHovered, theme.faint);
  set(ImGuiCol_ScrollbarGrabActive, theme.faint);
  set(ImGuiCol_Separator, theme.line);
  set(ImGuiCol_TableHeaderBg, theme.panel);
  set(ImGuiCol_TableBorderLight, theme.grid);
  set(ImGuiCol_TableBorderStrong, theme.line);
  set(ImGuiCol_TableRowBg, with_alpha(theme.panel, 0));
  set(ImGuiCol_TableRowBgAlt, with_alpha(theme.raised, 0.35f));
  set(ImGuiCol_TextSelectedBg, with_alpha(theme.accent, 0.35f));
  set(ImGuiCol_NavHighlight, theme.accent);
  set(ImGuiCol_ModalWindowDimBg, with_alpha(theme.background, 0.6f));
  ImGui::GetStyle() = style;
}

}  // namespace hearth::monitor
