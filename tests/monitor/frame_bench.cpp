// CPU time to build a frame of each panel, and to raster it, with a busy daemon's data. Not a test:
// run it by hand, on a quiet machine; docs/benchmarks.md has the figures.

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "tests/monitor/rig.h"

namespace {

double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

double at(std::vector<double>& values, double share) {
  return hearth::monitor::percentile(values, share);
}

}  // namespace

int main() {
  using namespace hearth::monitor;
  std::string why;
  Offscreen* offscreen = screen(&why);
  if (offscreen == nullptr) {
    std::printf("%s\n", why.c_str());
    return 1;
  }
  // Half of it is history; the other half comes between frames, as it does live.
  const auto messages = made_recording(60, 72, 100'000);
  const auto half = messages.begin() + static_cast<std::ptrdiff_t>(messages.size() / 2);
  std::printf("72 requests (63 running, 9 waiting), 100000 blocks, 1280x800; ms of this thread\n");
  for (int panel = 0; panel < kNumPanels; ++panel) {
    Drawn each(*offscreen, {messages.begin(), half});
    each.app.view().drawn = nullptr;
    each.app.view().ceilings = {44.4, 2129};
    each.app.view().panel = static_cast<Panel>(panel);
    std::vector<double> build, apply, raster;
    size_t next = messages.size() / 2;
    for (int frame = 0; frame < 250 && next < messages.size(); ++frame) {
      const double start = cpu_ms();
      for (int i = 0; i < 3 && next < messages.size(); ++i) each.app.apply(messages[next++]);
      const double applied = cpu_ms();
      offscreen->build_only([&] { each.app.frame(); });
      const double built = cpu_ms();
      if (frame >= 3) {
        apply.push_back(applied - start);
        build.push_back(built - applied);
      }
      if (frame % 25 == 24) {
        offscreen->raster();
        raster.push_back(cpu_ms() - built);
      }
    }
    std::printf("%-12s build p50 %.2f p99 %.2f | messages p50 %.2f p99 %.2f | raster p50 %.1f\n",
                std::string(panel_name(static_cast<Panel>(panel))).c_str(), at(build, 0.5),
                at(build, 0.99), at(apply, 0.5), at(apply, 0.99), at(raster, 0.5));
  }
  return 0;
}
