// hearth top: the essentials, drawn anew every second until Ctrl-C or q.

#include <fmt/core.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/cli/terminal/table.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"
#include "kernels/base/numbers.h"

namespace hearth::cli {
namespace {

constexpr int kEveryMs = 1000;
constexpr int kLookMs = 50;

int64_t sum_of(const std::vector<int32_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

std::string bar(double share, int width) {
  const int64_t full = std::lround(std::clamp(share, 0.0, 1.0) * width);
  std::string out;
  for (int i = 0; i < width; ++i) out += i < full ? "█" : "░";
  return out;
}

winsize terminal_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) size.ws_row = 24;
  if (size.ws_col == 0) size.ws_col = 80;
  return size;
}

/// Cuts lines at `columns` characters: a line that wraps would move those below it.
std::string cut_lines(std::string_view text, size_t columns) {
  std::string out;
  size_t met = 0;
  for (const char c : text) {
    if (c == '\n') {
      met = 0;
    } else if ((c & 0xC0) != 0x80) {
      ++met;
    }
    if (met <= columns) out += c;
  }
  return out;
}

}  // namespace

std::string top_text(const ipc::StatsReply& stats, const ipc::PsReply& ps, int rows, size_t width) {
  std::string out = fmt::format("hearthd {}  up {}  requests: {} live, {} done, {} failed\n",
                                stats.version, human_duration(stats.uptime_ms), stats.requests_live,
                                stats.requests_done, stats.requests_failed);
  int lines = 1;
  for (const ipc::RemoteStats& remote : stats.remotes) {
    out += fmt::format("remote of {}: {}  {} live, {} done, {} failed\n",
                       cut_middle(ipc::one_line(remote.role, 0), 14),
                       cut_middle(ipc::one_line(remote.remote, 0), 22), remote.requests_live,
                       remote.requests_done, remote.requests_failed);
    ++lines;
  }
  for (const ipc::WorkerStats& worker : stats.workers) {
    const ipc::WorkerSnapshot& s = worker.snapshot;
    const double total = as_double(std::max<int64_t>(1, sum_of(s.kv_blocks_total)));
    const double used = as_double(sum_of(s.kv_blocks_used));
    const double prompt = as_double(std::max<uint64_t>(1, s.prompt_tokens_total));
    const auto& g = s.speculation;
    out += fmt::format("\n{}  {}  {}\n", cut_middle(ipc::one_line(worker.model, 0), 48),
                       worker.device, worker.state);
    out += fmt::format("  decode {:>8.1f} tokens/s   prefill {:>8.1f} tokens/s   step {:.2f} ms\n",
                       s.decode_tokens_per_s, s.prefill_tokens_per_s, s.step_ms_recent);
    out += fmt::format(
        "  {} running, {} waiting, {} preempted   prefix hits {:.1f} %   "
        "accepted {:.1f} %\n",
        s.num_running, s.num_waiting, s.num_preempted,
        100 * as_double(s.prompt_tokens_cached) / prompt,
        g.drafted_tokens == 0 ? 0.0
                              : 100 * as_double(g.accepted_tokens) / as_double(g.drafted_tokens));
    out += fmt::format("  KV {} {:.0f} % of {:.0f} blocks, {} cached\n", bar(used / total, 24),
                       100 * used / total, total, sum_of(s.kv_blocks_cached));
    lines += 5;
    if (g.drafted_tokens > 0) {
      const char* between = "  drafts right by ";
      for (const ipc::ProposerStats& by : g.by) {
        out += fmt::format("{}{}: {} of {}", std::exchange(between, ", "), by.name,
                           by.accepted_tokens, by.drafted_tokens);
      }
      out +=
          fmt::format("; saved {:.1f} s\n  by place{}\n", g.saved_ms / 1000, percents_by_place(g));
      lines += 2;
    }
    if (s.gpu) out += "  " + ipc::gpu_text(*s.gpu) + "\n", ++lines;
  }
  if (stats.workers.empty()) out += "\n(no model in memory)\n", lines += 2;
  out += "\n";
  lines += 2;
  // The last row stays free: a line end in it would move the others up.
  const size_t most = lines + 1 < rows ? rows - lines - 1 : 0;
  return terminal_safe(out) + requests_table(ps, width, most);
}

namespace {

/// While this object lives, a terminal on stdin delivers keys one by one.
class Keys {
 public:
  Keys() {
    if (::isatty(STDIN_FILENO) == 0 || ::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios now = before_;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    changed_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
  }
  ~Keys() {
    if (changed_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;
  /// Waits up to `ms`; true if q was pressed meanwhile.
  bool quit_within(int ms) {
    pollfd input{changed_ ? STDIN_FILENO : -1, POLLIN, 0};
    if (::poll(&input, 1, ms) <= 0) return false;
    char key = 0;
    if (::read(STDIN_FILENO, &key, 1) <= 0) {
      ::poll(nullptr, 0, ms);  // a terminal that has gone
      return false;
    }
    return key == 'q' || key == 'Q';
  }

 private:
  termios before_{};
  bool changed_ = false;
};

/// The screen as text: what the daemon is doing now.
Result<std::string> look(ipc::Client& client, int rows, size_t width) {
  HEARTH_ASSIGN_OR_RETURN(const ipc::StatsReply stats, client.stats());
  HEARTH_ASSIGN_OR_RETURN(const ipc::PsReply ps, client.ps());
  return top_text(stats, ps, rows, width);
}

}  // namespace

int top(bool once) {
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  if (once || !stdout_is_terminal()) {
    const Result<std::string> text = look(*client, INT_MAX, terminal_columns());
    if (!text.ok()) return fail(text.error());
    write_stdout(*text);
    return kOk;
  }
  catch_interrupts();
  Keys keys;
  while (!interrupted()) {
    if (!client) {
      Result<ipc::Client> again = ipc::Client::connect();
      if (again.ok()) client.emplace(std::move(again).value());
    }
    const winsize size = terminal_size();
    std::string text = "hearthd is gone; waiting for it\n";
    if (client) {
      Result<std::string> met = look(*client, size.ws_row, size.ws_col);
      if (met.ok()) {
        text = cut_lines(*met, size.ws_col);
      } else {
        client.reset();
      }
    }
    if (!write_stdout("\x1b[H\x1b[2J" + text)) return kOk;
    for (int waited = 0; waited < kEveryMs && !interrupted(); waited += kLookMs) {
      if (keys.quit_within(kLookMs)) return kOk;
    }
  }
  return kOk;
}

}  // namespace hearth::cli
