#include "ipc/cli/answer/timing_line.h"

#include <fmt/format.h>

#include <utility>

namespace hearth::cli {

std::string timing_line(const ipc::DoneEvent& done) {
  std::string line =
      fmt::format("prompt {} (cached {}", done.usage.prompt_tokens, done.usage.cached_tokens);
  if (done.usage.cached_disk_tokens > 0) {
    line += fmt::format(", {} from disk", done.usage.cached_disk_tokens);
  }
  line += fmt::format(") · TTFT {:.0f} ms", done.timings.ttft_ms);
  if (done.timings.saved_ms >= 1000)
    line += fmt::format(" · saved {:.1f} s", done.timings.saved_ms / 1000);
  if (done.timings.tpot_ms > 0)
    line += fmt::format(" · {:.1f} tokens/s", 1000 / done.timings.tpot_ms);
  if (done.usage.drafted_tokens > 0) {
    line += fmt::format(" · drafted {}, accepted {}", done.usage.drafted_tokens,
                        done.usage.accepted_tokens);
    const char* between = " (";
    for (const ipc::ProposerStats& by : done.speculation.by) {
      line += std::exchange(between, ", ") + by.name;
    }
    if (!done.speculation.by.empty()) line += ")";
  }
  line += fmt::format(" · {}", fmt::join(done.finish_reasons, ", "));
  // Shows what is out of the ordinary; the rest is in --json.
  if (done.preemptions > 0) line += fmt::format(" · preempted {}x", done.preemptions);
  if (done.resumed > 0) line += fmt::format(" · resumed {}x", done.resumed);
  return line;
}

}  // namespace hearth::cli
