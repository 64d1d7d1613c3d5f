#pragma once
// What the panels share beside the snapshot: how to draw (theme, fonts, scale), what the user has
// chosen, and what the user wants done. A panel reads and writes this; it opens no socket.

#include <imgui.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/command.h"
#include "monitor/plan_report.h"
#include "monitor/prefix_tree.h"
#include "monitor/snapshot.h"
#include "monitor/theme.h"

namespace hearth::monitor {

enum class Panel {
  kNow,
  kBatches,
  kBlocks,
  kRequests,
  kModels,
  kCache,
  kSpeculation,
  kRoofline,
  kLog
};
inline constexpr int kNumPanels = 9;
/// "now", "batches", ...: as --panel and the settings write it.
std::string_view panel_name(Panel panel);
std::string_view panel_title(Panel panel);

/// Ceilings of the device as `hearth bench` measures them; 0: not known.
struct Ceilings {
  double read_gb_per_s = 0;
  double gop_per_s = 0;
};

/// A picture of pixels that panels may change; made by whoever owns the graphics.
class Textures {
 public:
  virtual ~Textures() = default;
  /// A picture of RGBA pixels, shown without smoothing. `slot` names it from frame to frame.
  virtual ImTextureID set(int slot, int width, int height, const uint32_t* rgba) = 0;
};

/// Text that was drawn and where, for tests that compare pictures with what they show.
struct DrawnText {
  std::string place;  ///< "requests/3/owner"
  std::string text;
  ImVec2 min, max;
};

struct View {
  Theme theme{};
  Fonts fonts;
  float scale = 1;
  Panel panel = Panel::kNow;
  std::string model;  ///< shown by the panels of one model; empty: the first
  Ceilings ceilings;
  Textures* textures = nullptr;
  std::vector<DrawnText>* drawn = nullptr;  ///< null: not kept
  /// Has a command carried out; null: cannot. Its answer comes to App::answer.
  std::function<void(const Command&)> ask;
  std::optional<Command> confirm;  ///< asked about; carried out when the user says yes
  std::string notice;              ///< what came of the last command
  bool notice_ok = true;
  int64_t notice_us = 0;  ///< 0: none
  bool help = false;      ///< the keys shall be shown

  // Batches
  bool paused = false;
  int64_t paused_at_us = 0;
  int64_t scrolled_us = 0;  ///< how far back the right edge is
  double batch_window_s = 10;
  // Blocks
  int pool = 0;
  bool blocks_by_request = false;
  ImVec2 map_min;  ///< of the last map drawn, for tests
  float map_cell = 0;
  int map_columns = 0;
  // Requests
  uint64_t selected = 0;
  bool with_ended = true;
  int sort_column = -1;
  bool sort_down = false;
  // Models
  std::string chosen_model;  ///< row of the table
  std::optional<PlanReport> plan;
  std::string planning;  ///< the model that is being planned
  // Cache
  std::vector<StoredPrefix> stored;  ///< on disk
  int64_t stored_us = 0;             ///< when that was told; 0: never
  int64_t stored_asked_us = 0;
  std::string stored_problem;
  std::string chosen_prefix;
  // Log
  char log_filter[64] = {};
  int log_level = 0;

  /// The model that panels of one model show; null: none tells yet.
  const ModelView* shown_model(const Snapshot& snapshot) const;
};

// ---- Pieces ------------------------------------------------------------------------------------

/// Text in the current line, kept for tests under `place`.
void put_text(View& view, std::string_view place, std::string_view text);
void put_text(View& view, std::string_view place, std::string_view text, ImU32 colour);
void put_small(View& view, std::string_view place, std::string_view text, ImU32 colour);
/// A card with a heading; `size` 0: the rest. Always pair with end_card.
bool begin_card(View& view, const char* title, ImVec2 size, const char* hint = nullptr);
void end_card();
/// A headline figure: value, unit, and what it is of.
void headline(View& view, const char* place, std::string_view label, std::string_view value,
              std::string_view unit, std::string_view note, ImU32 colour, float width);
/// A coloured square with its meaning, side by side.
void legend(View& view, ImU32 colour, std::string_view label);
/// A bar of shares side by side, all of `total`.
struct BarPart {
  double value;
  ImU32 colour;
};
void stacked_bar(View& view, std::span<const BarPart> parts, double total, ImVec2 size);
/// Where a number of prompt tokens came from: a bar and its legend.
void prompt_tiers(View& view, const char* place, double prompt, double memory, double disk,
                  ImVec2 size);
void nothing_yet(View& view, std::string_view why);
/// Buttons for the models that tell, where there are several.
void choose_model(View& view, const Snapshot& snapshot);
/// A small button, kept for tests under `place`.
bool small_button(View& view, std::string_view place, const char* label);

// ---- Numbers with their unit --------------------------------------------------------------------

std::string with_unit(double value, std::string_view unit);  ///< "1.23 k tokens/s"
std::string ms_text(double ms);                              ///< "0.42 ms", "3.1 s"
std::string percent_text(double share);
/// Bytes of weights that a step of so many rows reads: all once, but of experts those that the rows
/// choose, each its own ones.
double step_weight_bytes(const ipc::ModelEntry& entry, double rows);
/// Bytes of weights that recent decode steps of the model read per second; 0: not known.
double read_bytes_per_s(const Snapshot& snapshot, const ModelView& model);
std::string age_text(int64_t now_us, int64_t then_us);  ///< "", "2 s old"

}  // namespace hearth::monitor
