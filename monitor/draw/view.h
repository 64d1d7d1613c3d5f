#pragma once
// State shared by the panels in addition to the snapshot: drawing (theme, fonts, scale), the user's
// choices and the user's commands. A panel reads and writes this; it opens no socket.

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

#include "monitor/commands/command.h"
#include "monitor/draw/theme.h"
#include "monitor/snapshot/plan_report.h"
#include "monitor/snapshot/prefix_tree.h"
#include "monitor/snapshot/snapshot.h"

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
constexpr Panel panel_at(int index) { return static_cast<Panel>(index); }
/// "now", "batches", ...: the name used by --panel and the settings.
std::string_view panel_name(Panel panel);
std::string_view panel_title(Panel panel);

/// The device's ceilings as `hearth bench` measures them; 0: unknown.
struct Ceilings {
  double read_gb_per_s = 0;
  double gop_per_s = 0;
};

/// Textures that panels may update; created by the owner of the graphics context.
class Textures {
 public:
  virtual ~Textures() = default;
  /// A texture of RGBA pixels, drawn without smoothing. `slot` identifies it across frames.
  virtual ImTextureID set(int slot, int width, int height, const uint32_t* rgba) = 0;
};

/// A drawn text and its place, for tests that compare pictures with their content.
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
  std::string model;  ///< model of the panels that show one; empty: the first
  Ceilings ceilings;
  Textures* textures = nullptr;
  std::vector<DrawnText>* drawn = nullptr;  ///< null: not recorded
  /// Executes a command; null: unavailable. The answer goes to App::answer.
  std::function<void(const Command&)> ask;
  std::optional<Command> confirm;  ///< awaiting confirmation; executed if the user confirms
  std::string notice;              ///< result of the last command
  bool notice_ok = true;
  int64_t notice_us = 0;  ///< 0: none
  bool help = false;      ///< show the list of keys

  // Batches
  bool paused = false;
  int64_t paused_at_us = 0;
  int64_t scrolled_us = 0;  ///< distance of the right edge from now
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
  std::string planning;  ///< the model whose plan is being made
  // Cache
  std::vector<StoredPrefix> stored;  ///< on disk
  int64_t stored_us = 0;             ///< when it was reported; 0: never
  int64_t stored_asked_us = 0;
  std::string stored_problem;
  std::string chosen_prefix;
  // Log
  char log_filter[64] = {};
  int log_level = 0;

  /// The model shown by the panels that show one; null: no worker has reported yet.
  const ModelView* shown_model(const Snapshot& snapshot) const;
};

// ---- Pieces ------------------------------------------------------------------------------------

/// Text in the current line, recorded for tests under `place`.
void put_text(View& view, std::string_view place, std::string_view text);
void put_text(View& view, std::string_view place, std::string_view text, ImU32 colour);
void put_small(View& view, std::string_view place, std::string_view text, ImU32 colour);
/// A card with a heading; `size` 0: the remaining room. Always pair with end_card.
bool begin_card(View& view, const char* title, ImVec2 size, const char* hint = nullptr);
void end_card();
/// A headline figure: value, unit, and a note on what it measures.
void headline(View& view, const char* place, std::string_view label, std::string_view value,
              std::string_view unit, std::string_view note, ImU32 colour, float width);
/// A coloured square followed by its label.
void legend(View& view, ImU32 colour, std::string_view label);
/// A bar of adjacent shares of `total`.
struct BarPart {
  double value;
  ImU32 colour;
};
void stacked_bar(View& view, std::span<const BarPart> parts, double total, ImVec2 size);
/// The tiers from which prompt tokens came: a bar and its legend.
void prompt_tiers(View& view, const char* place, double prompt, double memory, double disk,
                  ImVec2 size);
void nothing_yet(View& view, std::string_view why);
/// Buttons to choose among the models whose workers report, if there are several.
void choose_model(View& view, const Snapshot& snapshot);
/// A small button, recorded for tests under `place`.
bool small_button(View& view, std::string_view place, const char* label);

// ---- Numbers with their unit --------------------------------------------------------------------

std::string with_unit(double value, std::string_view unit);  ///< "1.23 k tokens/s"
std::string ms_text(double ms);                              ///< "0.42 ms", "3.1 s"
std::string percent_text(double share);
/// Bytes of weights that a step with this number of rows reads: everything once, but only the
/// experts that some row chooses, assuming that rows choose independently.
double step_weight_bytes(const ipc::ModelEntry& entry, double rows);
/// Bytes of weights that recent decode steps of the model read per second; 0: unknown.
double read_bytes_per_s(const Snapshot& snapshot, const ModelView& model);
std::string age_text(int64_t now_us, int64_t then_us);  ///< "", "2 s old"

}  // namespace hearth::monitor
