// hearth-monitor: the dashboard in a window, or as a picture.

#include <fmt/core.h>
#include <imgui.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "ipc/client/event_stream.h"
#include "ipc/schema/version.h"
#include "kernels/base/clock.h"
#include "monitor/commands/actions.h"
#include "monitor/snapshot/feed.h"
#include "monitor/window/app.h"
#include "monitor/window/offscreen.h"
#include "monitor/window/window.h"

namespace hearth::monitor {
namespace {

struct Options {
  std::string runtime_dir;
  std::string screenshot;
  std::string replay;
  std::string panel;
  std::string texts;
  std::string theme;
  std::string size = "1280x800";
  std::string ceilings;
  double after_s = 2;
  double scale = 1;
  double exit_after_s = 0;
};

int fail(const std::string& message) {
  std::fprintf(stderr, "hearth-monitor: %s\n", message.c_str());
  return 1;
}

Settings remembered() {
  std::ifstream in(settings_file());
  std::ostringstream text;
  if (in) text << in.rdbuf();
  return parse_settings(text.str());
}

void remember(const Settings& settings) {
  const std::filesystem::path file = settings_file();
  if (file.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(file.parent_path(), ignored);
  std::ofstream(file) << settings_text(settings);  // the dashboard works without saved settings
}

/// Messages from the first `after_s` seconds after the first message, from the recording or the
/// daemon.
Result<std::vector<ipc::StreamMessage>> messages_of(const Options& options) {
  if (options.replay.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Feed> feed, Feed::open(options.runtime_dir));
    std::vector<ipc::StreamMessage> all;
    const SteadyClock clock;
    const int64_t until_us = clock.now_us() + static_cast<int64_t>(options.after_s * 1e6);
    while (clock.now_us() < until_us) {
      for (ipc::StreamMessage& message : feed->wait(50)) all.push_back(std::move(message));
    }
    return all;
  }
  HEARTH_ASSIGN_OR_RETURN(std::vector<ipc::StreamMessage> all, ipc::read_recording(options.replay));
  if (all.empty()) return all;
  const int64_t until_us = all.front().time_us + static_cast<int64_t>(options.after_s * 1e6);
  std::erase_if(all,
                [until_us](const ipc::StreamMessage& each) { return each.time_us > until_us; });
  return all;
}

/// "out.png" for one panel; "out-now.png" and so on for all.
std::filesystem::path picture_file(const Options& options, Panel panel) {
  std::filesystem::path file = options.screenshot;
  if (options.panel != "all") return file;
  return file.parent_path() /
         (file.stem().string() + "-" + std::string(panel_name(panel)) + file.extension().string());
}

/// Fetches the list of prefixes on disk, which no event reports.
void list_cache(const Options& options, App& app) {
  constexpr int kPatienceMs = 5000;
  Actions actions(options.runtime_dir);
  actions.ask({Command::Kind::kListCache, "", ""});
  for (int waited = 0; waited < kPatienceMs; waited += 10) {
    for (const Answer& answer : actions.answers()) return app.answer(answer);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int take_picture(const Options& options, const Settings& settings) {
  int width = 0, height = 0;
  char rest = 0;
  if (std::sscanf(options.size.c_str(), "%dx%d%c", &width, &height, &rest) != 2 || width < 320 ||
      height < 240 || width > 8192 || height > 8192) {
    return fail(
        fmt::format("--size: met '{}', want WIDTHxHEIGHT, 320x240 to 8192x8192", options.size));
  }
  const Result<std::vector<ipc::StreamMessage>> messages = messages_of(options);
  if (!messages.ok()) return fail(messages.error().message);
  Result<std::unique_ptr<Offscreen>> screen = Offscreen::create(width, height);
  if (!screen.ok()) return fail(screen.error().message);
  const std::unique_ptr<Textures> textures = make_gl_textures();
  App app(settings.dark, static_cast<float>(options.scale));
  app.view().textures = textures.get();
  app.view().ceilings = settings.ceilings;
  app.view().batch_window_s = settings.batch_window_s;
  for (const ipc::StreamMessage& message : *messages) app.apply(message);
  std::vector<DrawnText> drawn;
  if (!options.texts.empty()) app.view().drawn = &drawn;
  std::string texts;
  for (int i = 0; i < kNumPanels; ++i) {
    const auto panel = panel_at(i);
    if (options.panel != "all" && panel != settings.panel) continue;
    app.view().panel = panel;
    if (panel == Panel::kCache && options.replay.empty()) list_cache(options, app);
    const Picture picture = (*screen)->draw([&app] { app.frame(); });
    if (const auto written = write_png(picture, picture_file(options, panel)); !written.ok()) {
      return fail(written.error().message);
    }
    for (const DrawnText& each : drawn) {
      if (!each.place.empty()) texts += fmt::format("{}\t{}\n", each.place, each.text);
    }
  }
  if (options.texts.empty() || (std::ofstream(options.texts) << texts << std::flush)) return 0;
  return fail(fmt::format("{}: cannot be written", options.texts));
}

int run(int argc, char** argv) {
  Options options;
  CLI::App cli("hearth-monitor: see the engine think", "hearth-monitor");
  cli.set_version_flag("--version", "hearth-monitor " + std::string(ipc::version()));
  cli.add_option("--screenshot", options.screenshot, "write a picture and end; needs no display")
      ->type_name("FILE.png");
  cli.add_option("--panel", options.panel,
                 "now, batches, blocks, requests, models, cache, speculation, roofline, log; for "
                 "pictures also all: a file each");
  cli.add_option("--texts", options.texts, "with --screenshot: the picture's texts, line by line")
      ->type_name("FILE");
  cli.add_option("--size", options.size, "of the picture, in pixels")->type_name("WxH");
  cli.add_option("--after", options.after_s, "seconds of messages before the picture")
      ->check(CLI::Range(0.0, 3600.0));
  cli.add_option("--replay", options.replay, "a recording made by hearth stats --record")
      ->type_name("FILE");
  cli.add_option("--theme", options.theme, "dark or light")
      ->check(CLI::IsMember({"dark", "light"}));
  cli.add_option("--scale", options.scale, "of the picture's text")->check(CLI::Range(0.5, 4.0));
  cli.add_option("--ceilings", options.ceilings,
                 "the device's, as hearth bench measures them: GB/s read,Gop/s")
      ->type_name("READ,OPS");
  cli.add_option("--runtime-dir", options.runtime_dir, "where the daemon's sockets are");
  cli.add_option("--exit-after", options.exit_after_s, "seconds after which the window closes")
      ->check(CLI::Range(0.0, 86400.0));
  cli.footer(
      "Keys: 1 to 9 panels, t theme, m next model, c block colours, space pause, + - zoom, "
      "arrows back and forth, q quit; ? shows all.");
  CLI11_PARSE(cli, argc, argv);
  Settings settings = options.screenshot.empty() ? remembered() : Settings{};
  if (!options.theme.empty()) settings.dark = options.theme == "dark";
  if (options.panel == "all" && options.screenshot.empty()) {
    return fail("--panel all needs --screenshot");
  }
  if (!options.panel.empty() && options.panel != "all") {
    bool known = false;
    for (int i = 0; i < kNumPanels; ++i) {
      if (panel_name(panel_at(i)) != options.panel) continue;
      settings.panel = panel_at(i);
      known = true;
    }
    if (!known) return fail(fmt::format("--panel: no panel {}", options.panel));
  }
  if (!options.ceilings.empty()) {
    char rest = 0;
    if (std::sscanf(options.ceilings.c_str(), "%lf,%lf%c", &settings.ceilings.read_gb_per_s,
                    &settings.ceilings.gop_per_s, &rest) != 2 ||
        settings.ceilings.read_gb_per_s <= 0 || settings.ceilings.gop_per_s <= 0) {
      return fail(
          fmt::format("--ceilings: met '{}', want two numbers, e.g. 44.4,2129", options.ceilings));
    }
  }
  if (!options.screenshot.empty()) return take_picture(options, settings);
  WindowOptions window{options.runtime_dir, settings, options.exit_after_s, {}};
  if (!options.replay.empty()) {
    Result<std::vector<ipc::StreamMessage>> recording = ipc::read_recording(options.replay);
    if (!recording.ok()) return fail(recording.error().message);
    if (recording->empty()) return fail(options.replay + " holds no message");
    window.recording = std::move(recording).value();
  }
  const Result<Settings> left = run_window(window);
  if (!left.ok()) return fail(left.error().message);
  remember(*left);
  return 0;
}

}  // namespace
}  // namespace hearth::monitor

int main(int argc, char** argv) {
  const int status = hearth::monitor::run(argc, argv);
  // A thread may still be waiting for the daemon to load a model. Exit without waiting for it, and
  // without destroying what it uses.
  std::fflush(nullptr);
  ::_exit(status);
}
