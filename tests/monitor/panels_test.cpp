// Pictures of every panel, drawn from a recording and checked for their content.

#include "monitor/panels/panels.h"

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <imgui.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "ipc/wire/codec.h"
#include "tests/monitor/rig.h"
#include "tests/skip.h"

namespace hearth::monitor {
namespace {

/// 12 s, 20 requests: decode, prefill and waiting ones among them.
const std::vector<ipc::StreamMessage>& recording() {
  static const std::vector<ipc::StreamMessage> made = made_recording(12, 20, 4096);
  return made;
}

#define HEARTH_SCREEN(name)             \
  std::string why;                      \
  Offscreen* const name = screen(&why); \
  if (name == nullptr) HEARTH_SKIP(why.c_str())

/// Every recorded text is on the picture, and at least these places are among them.
void check_places(const Drawn& drawn, std::initializer_list<const char*> places) {
  for (const char* place : places) {
    const auto found = std::ranges::find(drawn.texts, place, &DrawnText::place);
    REQUIRE_MESSAGE(found != drawn.texts.end(), place);
    CHECK_MESSAGE(!found->text.empty(), place);
    CHECK_MESSAGE(drawn.visible(*found), place);
  }
}

TEST_CASE("blocks: each cell's state can be read back from the map's pixels") {
  HEARTH_SCREEN(offscreen);
  for (const bool dark : {true, false}) {
    Drawn drawn(*offscreen, recording(), dark);
    drawn.show(Panel::kBlocks);
    const View& view = drawn.app.view();
    const Pool& pool = drawn.app.snapshot().model_views().at("tales").pools[0];
    REQUIRE(view.map_cell >= 2);
    REQUIRE(pool.cells.size() == 4096);
    size_t wrong = 0;
    std::array<int, ipc::kNumWatchedBlocks> met{};
    for (size_t block = 0; block < pool.cells.size(); ++block) {
      const auto column = static_cast<float>(block % static_cast<size_t>(view.map_columns));
      const auto row = static_cast<float>(block / static_cast<size_t>(view.map_columns));
      const auto x = static_cast<int>(view.map_min.x + (column + 0.5f) * view.map_cell);
      const auto y = static_cast<int>(view.map_min.y + (row + 0.5f) * view.map_cell);
      REQUIRE(x < 1280);
      REQUIRE(y < 800);
      const auto state = static_cast<size_t>(pool.cells[block].state);
      wrong += drawn.picture.at(x, y) != view.theme.block[state] ? 1 : 0;
      ++met[state];
    }
    CHECK(wrong == 0);
    for (const int count : met) CHECK(count > 0);  // all states are in the recording
    for (size_t state = 0; state < met.size(); ++state) {
      const std::string text = drawn.text(fmt::format("blocks/count/{}", kBlockStateNames[state]));
      CHECK(text.starts_with(fmt::format("{} {} ", met[state], kBlockStateNames[state])));
    }
    check_places(drawn, {"blocks/history/axis/y0", "blocks/history/axis/x0",
                         "blocks/history/legend/cached", "blocks/note"});
  }
}

TEST_CASE("requests: the table shows what the recording holds") {
  HEARTH_SCREEN(offscreen);
  Drawn drawn(*offscreen, recording());
  drawn.show(Panel::kRequests);
  size_t rows = 0;
  for (const auto& [number, request] : drawn.app.snapshot().requests()) {
    const auto cell = [&, n = number](const char* column) {
      return drawn.text(fmt::format("requests/{}/{}", n, column));
    };
    if (cell("Request").empty()) continue;  // below the fold
    ++rows;
    const ipc::WatchedRequest& row = request.row;
    CHECK(cell("Request") == row.id);
    CHECK(cell("Owner") == row.owner);
    CHECK(cell("Class") == row.priority);
    CHECK(cell("State") == row.state);
    CHECK(cell("Cached") == std::to_string(row.cached_tokens));
    CHECK(cell("Output") == std::to_string(row.output_tokens));
    if (row.state == "waiting") CHECK(cell("Waits for").find("blocks, ") == 0);
    if (row.ttft_us >= 0) {
      CHECK(cell("TTFT") == ms_text(static_cast<double>(row.ttft_us) / 1000));
      CHECK(cell("Accepted") != "–");
    }
  }
  CHECK(rows >= 15);
  check_places(drawn, {"requests/life/what", "requests/119/Owner"});
}

TEST_CASE("requests: the canvas of the selected one is drawn, a cell per token") {
  HEARTH_SCREEN(offscreen);
  Drawn drawn(*offscreen, recording());
  drawn.app.view().selected = 102;
  drawn.show(Panel::kRequests);
  check_places(drawn, {"requests/canvas/what", "requests/life/what"});
  CHECK(drawn.text("requests/canvas/what") ==
        "pass 3 of 8; 3 of 10 tokens shown are masked, from token 0 on");
  drawn.app.view().selected = 101;
  drawn.show(Panel::kRequests);
  CHECK(drawn.text("requests/canvas/what").empty());
}

TEST_CASE("every panel: headlines, axes and legends are drawn, dark and light") {
  HEARTH_SCREEN(offscreen);
  for (const bool dark : {true, false}) {
    Drawn drawn(*offscreen, recording(), dark);
    drawn.app.view().ceilings = {44.4, 2129};
    drawn.show(Panel::kNow);
    check_places(drawn, {"side/state", "now/decode/value", "now/decode/unit", "now/ttft/value",
                         "now/itl/note", "now/hits/value", "now/throughput/axis/y0",
                         "now/throughput/axis/x0", "now/throughput/legend/decode",
                         "now/sequences/legend/waiting", "now/memory/pool0", "now/waits/1",
                         "now/tiers/disk", "now/acceptance", "now/held/legend/held",
                         "now/power/axis/y0", "now/gaps/legend/p99"});
    CHECK(drawn.text("now/memory/resident") ==
          "the worker holds 595.8 MiB; processors draw 23.8 W");
    CHECK(drawn.text("now/decode/note").find(" % of limit") != std::string::npos);
    CHECK(drawn.text("now/requests/value") == "18");
    CHECK(drawn.text("now/itl/value") == "24.8 ms");
    CHECK(drawn.text("now/itl/note") == "p99 45.6 ms, last 30 s");
    drawn.show(Panel::kBatches);
    check_places(drawn, {"legend/decode rows", "legend/draft rows", "batches/axis/x0",
                         "batches/axis/y3", "batches/words/1"});
    CHECK(drawn.text("batches/words/1").find("decode 20 sequences, 40 tokens drafted") == 0);
    drawn.show(Panel::kModels);
    check_places(drawn, {"models/tales/State", "models/qwen3-4b-instruct/State", "models/folders"});
    CHECK(drawn.text("models/qwen3-4b-instruct/State") == "loading 62 %");
    CHECK(drawn.text("models/tales/Type") == "Q8_0");
    drawn.show(Panel::kCache);
    check_places(drawn, {"cache/memory", "cache/store/state", "cache/rate/axis/y0",
                         "cache/tree/age", "cache/tree/2/Prefix"});
    CHECK(drawn.text("cache/tree/0/Tokens") == "0 to 320");
    CHECK(drawn.text("cache/tree/1/Memory") == "8 blocks, 8 in use");
    CHECK(drawn.text("cache/tree/2/Kept") == "pinned");
    CHECK(drawn.text("cache/tree/2/Disk") == "–");
    CHECK(drawn.text("cache/store/chunks") == "1204");
    drawn.show(Panel::kSpeculation);
    check_places(drawn, {"speculation/acceptance/value", "speculation/place/1",
                         "speculation/rate/axis/y0", "speculation/widths/legend/width"});
    CHECK(drawn.text("speculation/saved/value") == "12.3");
    CHECK(drawn.text("speculation/by/lookup") == "lookup: 250 of 1000 drafted accepted");
    CHECK(drawn.text("speculation/by/mtp").starts_with("mtp: 2000 of "));
    drawn.show(Panel::kRoofline);
    check_places(drawn, {"roofline/ceilings", "roofline/axis/x", "roofline/axis/y",
                         "roofline/axis/x0", "legend/decode steps", "roofline/best"});
    drawn.show(Panel::kLog);
    check_places(drawn, {"log/1", "log/1/when"});
  }
}

TEST_CASE("a GPU that reports values gets its line and power, and its prefixes their tier") {
  HEARTH_SCREEN(offscreen);
  std::vector<ipc::StreamMessage> messages = recording();
  const auto last =
      std::ranges::find(messages.rbegin(), messages.rend(), "stats", &ipc::StreamMessage::kind);
  REQUIRE(last != messages.rend());
  auto stats = std::get<ipc::StatsReply>(ipc::decode_event(last->payload).value());
  ipc::GpuSnapshot& gpu = stats.workers.at(0).snapshot.gpu.emplace();
  gpu.name = "NVIDIA H200";
  gpu.memory_used_bytes = int64_t{64} << 30;
  gpu.memory_total_bytes = int64_t{128} << 30;
  gpu.power_mw = 412'000;
  gpu.temperature_c = 51;
  ipc::StoreSnapshot& store = stats.workers[0].snapshot.store;
  store.ram_budget_bytes = uint64_t{4} << 30;
  store.ram_bytes = uint64_t{1} << 30;
  store.ram_loaded = 17;
  store.ram_evicted = 3;
  messages.push_back({messages.back().time_us + 1000, "stats", "", ipc::encode_event(stats)});
  Drawn drawn(*offscreen, messages);
  drawn.show(Panel::kNow);
  check_places(drawn, {"now/memory/gpu", "now/power/legend/processors", "now/power/legend/GPU"});
  CHECK(drawn.text("now/memory/gpu") == "NVIDIA H200: 64.0 GiB of 128.0 GiB used, 412 W, 51 C");
  drawn.show(Panel::kCache);
  check_places(drawn, {"cache/store/ram", "cache/store/ram_chunks"});
  CHECK(drawn.text("cache/store/ram") == "1.0 GiB of 4.0 GiB");
  CHECK(drawn.text("cache/store/ram_chunks") == "17, 3");
}

TEST_CASE("the same recording gives the same picture") {
  HEARTH_SCREEN(offscreen);
  Drawn first(*offscreen, recording()), second(*offscreen, recording());
  first.show(Panel::kNow);
  second.show(Panel::kNow);
  CHECK(first.texts.size() == second.texts.size());
  REQUIRE(first.picture.rgba.size() == second.picture.rgba.size());
  // Mesa's rasterizer rounds a few blended pixels otherwise from one picture to the next.
  size_t others = 0;
  for (size_t i = 0; i < first.picture.rgba.size(); ++i) {
    const uint32_t a = first.picture.rgba[i];
    const uint32_t b = second.picture.rgba[i];
    if (a == b) continue;
    ++others;
    for (int shift = 0; shift < 32; shift += 8) {
      const int difference =
          static_cast<int>(a >> shift & 255u) - static_cast<int>(b >> shift & 255u);
      CHECK(std::abs(difference) <= 2);
    }
  }
  CHECK(others < first.picture.rgba.size() / 1000);
}

TEST_CASE("a missing daemon and a lost daemon are drawn as states") {
  HEARTH_SCREEN(offscreen);
  Drawn drawn(*offscreen, {});
  for (int panel = 0; panel < kNumPanels; ++panel) drawn.show(static_cast<Panel>(panel));
  CHECK(drawn.text("side/state") == "no daemon yet");
  CHECK(drawn.text("lost").find("Waiting for a daemon") == 0);
  Drawn lost(*offscreen, recording());
  lost.app.set_now(recording().back().time_us + 5'000'000);
  for (int panel = 0; panel < kNumPanels; ++panel) lost.show(static_cast<Panel>(panel));
  CHECK(lost.text("side/state") == "daemon lost");
  CHECK(lost.text("side/age") == "heard 5 s ago");
}

TEST_CASE("a hostile recording is drawn, and none of its control characters act") {
  HEARTH_SCREEN(offscreen);
  std::vector<ipc::StreamMessage> messages = made_recording(2, 4, 64);
  const int64_t now_us = messages.back().time_us;
  ipc::WatchUpdate update;
  ipc::WatchedRequest evil;
  evil.number = 1;
  evil.id = "%s%n\x1b[2J##x" + std::string(400, '\n');
  evil.owner =
      "\xE2\x80\xAE"
      "evil";  // turns writing round
  evil.state = "decode";
  evil.output_tokens = INT32_MAX;
  evil.drafted_tokens = INT32_MAX;
  evil.accepted_tokens = INT32_MIN;
  evil.age_ms = INT64_MAX;
  update.requests.push_back(evil);
  messages.push_back({now_us, "requests", "", ipc::encode_watch(update)});
  ipc::WatchUpdate steps;
  steps.sequence = 1000;
  ipc::WatchedStep wild;
  wild.end_us = now_us;
  wild.duration_us = INT64_MAX;
  wild.decode_rows = INT32_MAX;
  wild.draft_rows = INT32_MAX;
  wild.prefills.assign(200, {9, INT32_MAX});
  steps.steps.assign(50, wild);
  steps.pools.push_back({.group = 63, .num_blocks = 1, .full = true, .runs = {}});
  messages.push_back({now_us, "watch", "tales", ipc::encode_watch(steps)});
  Drawn drawn(*offscreen, messages);
  for (int panel = 0; panel < kNumPanels; ++panel) {
    drawn.show(static_cast<Panel>(panel));
    for (const DrawnText& text : drawn.texts) {
      CHECK(text.text.find('\x1b') == std::string::npos);
    }
  }
  drawn.show(Panel::kRequests);
  CHECK(drawn.text("requests/1/Request").find("%s%n") == 0);
}

/// Presses a character's key; draws a frame.
void type(Drawn& drawn, char c) {
  ImGui::GetIO().AddInputCharacter(static_cast<unsigned char>(c));
  drawn.frame();
}

/// Clicks the middle of the text at this place, and draws what follows.
void click(Drawn& drawn, const std::string& place) {
  const auto found = std::ranges::find(drawn.texts, place, &DrawnText::place);
  REQUIRE_MESSAGE(found != drawn.texts.end(), place);
  ImGuiIO& io = ImGui::GetIO();
  io.MousePos = {(found->min.x + found->max.x) / 2, (found->min.y + found->max.y) / 2};
  drawn.frame();
  io.MouseDown[0] = true;
  drawn.frame();
  io.MouseDown[0] = false;
  drawn.frame();
  drawn.frame();
}

TEST_CASE("keyboard and mouse: panels, theme, selection, cancel with confirmation") {
  HEARTH_SCREEN(offscreen);
  Drawn drawn(*offscreen, recording());
  std::string cancelled;
  drawn.app.view().ask = [&cancelled](const Command& command) {
    if (command.kind == Command::Kind::kCancel) cancelled = command.target;
  };
  drawn.frame();
  type(drawn, '3');
  CHECK(drawn.app.view().panel == Panel::kBlocks);
  type(drawn, 'c');
  CHECK(drawn.app.view().blocks_by_request);
  type(drawn, 't');
  CHECK_FALSE(drawn.app.view().theme.dark);
  type(drawn, '2');
  type(drawn, ' ');
  CHECK(drawn.app.view().paused);
  click(drawn, "side/requests");
  CHECK(drawn.app.view().panel == Panel::kRequests);
  click(drawn, "requests/118/Owner");
  CHECK(drawn.app.view().selected == 118);
  CHECK(drawn.text("requests/life/what").find("story-118") == 0);
  click(drawn, "requests/cancel");
  CHECK(cancelled.empty());  // asks for confirmation first
  CHECK(drawn.text("confirm/what") == "cancel story-118");
  click(drawn, "confirm/no");
  CHECK(cancelled.empty());
  CHECK_FALSE(drawn.app.view().confirm);
  click(drawn, "requests/cancel");
  click(drawn, "confirm/yes");
  CHECK(cancelled == "story-118");
  type(drawn, '?');
  drawn.frame();
  CHECK_FALSE(drawn.text("help/1 to 9").empty());
  click(drawn, "side/log");  // outside of it: it closes
  CHECK(drawn.text("help/1 to 9").empty());
  type(drawn, 'q');
  CHECK(drawn.app.quit());
  ImGui::GetIO().MousePos = {-1e6f, -1e6f};
}

TEST_CASE("models and prefixes: actions and their results") {
  HEARTH_SCREEN(offscreen);
  Drawn drawn(*offscreen, recording());
  std::vector<Command> asked;
  drawn.app.view().ask = [&asked](const Command& command) { asked.push_back(command); };
  using Kind = Command::Kind;
  drawn.show(Panel::kModels);
  click(drawn, "models/granite-3.3-2b/File");
  CHECK(drawn.text("models/chosen") == "granite-3.3-2b");
  click(drawn, "models/load");
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].kind == Kind::kLoad);
  CHECK(asked[0].target == "granite-3.3-2b");
  click(drawn, "models/swap/default");
  CHECK(asked.size() == 1);  // asks for confirmation first
  click(drawn, "confirm/yes");
  REQUIRE(asked.size() == 2);
  CHECK(asked[1].kind == Kind::kSwap);
  CHECK(asked[1].role == "default");
  click(drawn, "models/plan");
  REQUIRE(asked.size() == 3);
  CHECK(asked[2].kind == Kind::kPlan);
  CHECK_FALSE(drawn.text("models/planning").empty());
  drawn.app.answer({asked[2], true,
                    R"({"model":"granite-3.3-2b","memory":{"weight_bytes":1048576,"fits":true},
                        "ceilings":{"read_bytes_per_s":44.4e9,"f32_ops_per_s":2e12}})"});
  drawn.frame();
  CHECK(drawn.text("models/plan/Weights") == "1.0 MiB");
  CHECK(drawn.app.view().ceilings.read_gb_per_s == doctest::Approx(44.4));
  click(drawn, "models/tales/File");
  click(drawn, "models/unload");
  click(drawn, "confirm/yes");
  REQUIRE(asked.size() == 4);
  CHECK(asked[3].kind == Kind::kUnload);
  drawn.app.answer({asked[3], false, "only administrators may"});
  drawn.frame();
  CHECK(drawn.text("notice") == "unload tales: only administrators may");

  asked.clear();
  drawn.show(Panel::kCache);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].kind == Kind::kListCache);
  drawn.app.answer({asked[0], true,
                    R"([{"model":"tales","name":"00000000000000010000000000000001","parent":"7",
                         "owner":"uid:1000","first_token":0,"end_token":320,"bytes":2097152,
                         "hits":5,"used_s":1,"pinned_until_s":0}])"});
  drawn.frame();
  CHECK(drawn.text("cache/tree/0/Disk") == "2.0 MiB");
  CHECK(drawn.text("cache/tree/0/Hits") == "5");
  click(drawn, "cache/tree/0/Tokens");
  click(drawn, "cache/pin");
  click(drawn, "cache/remove");
  REQUIRE(asked.size() == 2);
  CHECK(asked[1].kind == Kind::kPinPrefix);
  click(drawn, "confirm/yes");
  REQUIRE(asked.size() == 3);
  CHECK(asked[2].kind == Kind::kRemovePrefix);
  CHECK(asked[2].target == "00000000000000010000000000000001");
  drawn.app.answer({{Kind::kListCache, "", ""}, true, "rubbish"});
  drawn.frame();
  CHECK_FALSE(drawn.app.view().stored_problem.empty());
  ImGui::GetIO().MousePos = {-1e6f, -1e6f};
}

TEST_CASE("settings are saved, and garbage in their file is ignored") {
  Settings settings;
  settings.dark = false;
  settings.panel = Panel::kCache;
  settings.ceilings = {44.4, 2129};
  const Settings met = parse_settings(settings_text(settings));
  CHECK_FALSE(met.dark);
  CHECK(met.panel == Panel::kCache);
  CHECK(met.ceilings.gop_per_s == 2129);
  const Settings rubbish = parse_settings("theme\npanel nowhere\nwindow_s -4\nwidth 99999999 x y");
  CHECK(rubbish.panel == Panel::kNow);
  CHECK(rubbish.width == 1280);
  CHECK(rubbish.batch_window_s == 10);
}

}  // namespace
}  // namespace hearth::monitor
