#include "ipc/cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>

namespace hearth::cli {

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

std::string terminal_safe(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '\n' || byte == '\t') {
      out += text[i];
    } else if (byte < 0x20) {
      // The control pictures U+2400 to U+241F: E2 90 80 + code.
      out += "\xE2\x90";
      out += static_cast<char>(0x80 + byte);
    } else if (byte == 0x7F) {
      out += "\xE2\x90\xA1";
    } else if (byte == 0xC2 && i + 1 < text.size() &&
               static_cast<unsigned char>(text[i + 1]) < 0xA0) {
      out += "\xEF\xBF\xBD";  // U+0080 to U+009F: some terminals obey these too
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool write_stdout(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

void write_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void complain(std::string_view message) {
  write_stderr(fmt::format("hearth: {}\n", terminal_safe(message)));
}

void StatusLine::show(std::string_view text) {
  if (!stderr_is_terminal()) return;
  write_stderr("\r\x1b[2K" + terminal_safe(text));
  shown_ = true;
}

void StatusLine::clear() {
  if (!shown_) return;
  write_stderr("\r\x1b[2K");
  shown_ = false;
}

std::string human_bytes(uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string human_count(uint64_t count) {
  if (count < 1000) return fmt::format("{}", count);
  const double value = static_cast<double>(count);
  if (count < 1'000'000) return fmt::format("{:.1f} k", value / 1e3);
  if (count < 1'000'000'000) return fmt::format("{:.1f} M", value / 1e6);
  return fmt::format("{:.1f} B", value / 1e9);
}

std::string human_duration(int64_t ms) {
  if (ms < 1000) return fmt::format("{} ms", ms);
  const int64_t s = ms / 1000;
  if (s < 60) return fmt::format("{:.1f} s", static_cast<double>(ms) / 1000);
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  if (s < 86'400) return fmt::format("{} h {} min", s / 3600, s / 60 % 60);
  return fmt::format("{} d {} h", s / 86'400, s / 3600 % 24);
}

}  // namespace hearth::cli
