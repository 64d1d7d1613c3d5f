#include "daemon/worker/tools/progress_line.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

#include "ipc/text/shown_text.h"
#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace {

void write(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

ProgressLine::ProgressLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (terminal_ && !stage_.empty()) write("\r\x1b[2K");
}

void ProgressLine::stage(std::string_view text) {
  stage_ = ipc::one_line(text, 0);
  write(terminal_ ? "\r\x1b[2K" + stage_ : stage_ + "\n");
}

void ProgressLine::detail(std::string_view text) {
  if (terminal_) write("\r\x1b[2K" + stage_ + ": " + ipc::one_line(text, 0));
}

void ProgressLine::percent(uint64_t done, uint64_t total) {
  detail(fmt::format("{:.0f} %", 100.0 * as_double(done) / as_double(total)));
}

}  // namespace hearth::worker
