#include "ipc/text/shown_text.h"

#include <fmt/core.h>

#include <array>

#include "ipc/text/utf8.h"
#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"

namespace hearth::ipc {
namespace {

/// Bytes of the character that begins with `lead`, in valid UTF-8.
size_t char_bytes(char lead) {
  const auto byte = byte_of(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069: they turn the direction of what follows.
bool turns_direction(std::string_view c) {
  if (c.size() != 3 || c[0] != '\xE2') return false;
  const auto second = byte_of(c[1]), third = byte_of(c[2]);
  if (second == 0x80) return third == 0x8E || third == 0x8F || (third >= 0xAA && third <= 0xAE);
  return second == 0x81 && third >= 0xA6 && third <= 0xA9;
}

}  // namespace

std::string terminal_safe(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = byte_of(text[i]);
    if (byte == '\n' || byte == '\t') {
      out += text[i];
    } else if (byte < 0x20) {
      // The control pictures U+2400 to U+241F: E2 90 80 + code.
      out += "\xE2\x90";
      out += static_cast<char>(0x80 + byte);
    } else if (byte == 0x7F) {
      out += "\xE2\x90\xA1";
    } else if (byte == 0xC2 && i + 1 < text.size() && byte_of(text[i + 1]) < 0xA0) {
      out += "\xEF\xBF\xBD";  // U+0080 to U+009F: some terminals obey these too
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string one_line(std::string_view bytes, size_t max_chars) {
  // A character has at most four bytes; one more character shows whether something is cut off.
  if (max_chars > 0) bytes = bytes.substr(0, 4 * max_chars + 4);
  const std::string text = to_valid_utf8(bytes);
  std::string out;
  size_t chars = 0;
  for (size_t at = 0; at < text.size(); ++chars) {
    const std::string_view c = std::string_view(text).substr(at, char_bytes(text[at]));
    if (max_chars > 0 && chars == max_chars) return out + "\xE2\x80\xA6";
    at += c.size();
    if (c == "\n") {
      out += "\xE2\x90\x8A";
    } else if (c == "\t") {
      out += "\xE2\x90\x89";
    } else if (turns_direction(c)) {
      out += "\xEF\xBF\xBD";
    } else {
      out += terminal_safe(c);
    }
  }
  return out;
}

std::string human_bytes(uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = as_double(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string human_count(uint64_t count) {
  if (count < 1000) return fmt::format("{}", count);
  const double value = as_double(count);
  if (count < 1'000'000) return fmt::format("{:.1f} k", value / 1e3);
  if (count < 1'000'000'000) return fmt::format("{:.1f} M", value / 1e6);
  return fmt::format("{:.1f} B", value / 1e9);
}

std::string human_duration(int64_t ms) {
  if (ms < 1000) return fmt::format("{} ms", ms);
  const int64_t s = ms / 1000;
  if (s < 60) return fmt::format("{:.1f} s", as_double(ms) / 1000);
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  if (s < 86'400) return fmt::format("{} h {} min", s / 3600, s / 60 % 60);
  return fmt::format("{} d {} h", s / 86'400, s / 3600 % 24);
}

std::string gpu_text(const GpuSnapshot& gpu) {
  std::string out;
  const auto add = [&out](const std::string& part) { out += (out.empty() ? "" : ", ") + part; };
  const auto bytes = [](int64_t value) { return human_bytes(value); };
  if (gpu.memory_used_bytes >= 0 && gpu.memory_total_bytes >= 0) {
    add(fmt::format("{} of {} used", bytes(gpu.memory_used_bytes), bytes(gpu.memory_total_bytes)));
  }
  if (gpu.utilization_percent >= 0) add(fmt::format("{} % busy", gpu.utilization_percent));
  if (gpu.power_mw >= 0) add(fmt::format("{} W", gpu.power_mw / 1000));
  if (gpu.power_mw >= 0 && gpu.power_limit_mw > 0) {
    out += fmt::format(" of {}", gpu.power_limit_mw / 1000);
  }
  if (gpu.sm_clock_mhz >= 0) add(fmt::format("{} MHz", gpu.sm_clock_mhz));
  if (gpu.sm_clock_mhz >= 0 && gpu.sm_clock_max_mhz > 0) {
    out += fmt::format(" of {}", gpu.sm_clock_max_mhz);
  }
  if (gpu.memory_clock_mhz >= 0) add(fmt::format("memory {} MHz", gpu.memory_clock_mhz));
  if (gpu.temperature_c >= 0) add(fmt::format("{} C", gpu.temperature_c));
  if (!gpu.driver.empty()) add("driver " + gpu.driver);
  if (!gpu.throttled.empty()) add("slowed by " + gpu.throttled);
  if (gpu.name.empty()) return one_line(out, 0);
  return one_line(out.empty() ? gpu.name : gpu.name + ": " + out, 0);
}

std::string stage_text(const StageUse& stage) {
  const char* const part = stage.experts ? "experts of " : stage.share ? "a share of " : "";
  std::string out = fmt::format(
      "{}layers {} to {}, {} weights, {} KV, {} more", part, stage.first_layer, stage.end_layer - 1,
      human_bytes(stage.weight_bytes), human_bytes(stage.kv_bytes), human_bytes(stage.other_bytes));
  if (stage.budget_bytes > 0) out += ", of " + human_bytes(stage.budget_bytes);
  return out;
}

}  // namespace hearth::ipc
