#include "ipc/cli/answer/loading_status.h"

#include <fmt/core.h>

#include <charconv>

namespace hearth::cli {
namespace {

// The field's bound: a week.
constexpr int64_t kMaxSeconds = 7 * 24 * 3600;

std::string stage_text(const ipc::LoadingEvent& event) {
  if (event.stage == "room") return "waiting for room";
  if (event.stage == "warming_up") return "warming up";
  if (event.stage == "draining") return "waiting for its requests to end";
  if (event.stage == "recovering") return "its worker died; trying again";
  if (event.stage == "reading" && event.bytes_total > 0) {
    return fmt::format("reading {} of {}", human_bytes(event.bytes_done),
                       human_bytes(event.bytes_total));
  }
  return event.stage;
}

}  // namespace

std::string loading_text(const ipc::LoadingEvent& event) {
  std::string text = event.model + ": " + stage_text(event);
  if (event.estimate_ms > 0) text += ", " + human_duration(event.estimate_ms) + " left";
  return text;
}

std::string waiting_text(const ipc::QueuedEvent& event) {
  std::string text = "waiting: " + event.reason;
  if (event.position > 0) text += fmt::format(", {} ahead", event.position);
  if (event.estimate_ms > 0) text += ", about " + human_duration(event.estimate_ms);
  return text;
}

Result<int64_t> parse_keep_alive(const std::string& text) {
  if (text == "never") return 0;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  const int64_t seconds = unit.empty() || unit == "s" ? 1
                          : unit == "m"               ? 60
                          : unit == "h"               ? 3600
                                                      : 0;
  if (error == std::errc{} && seconds > 0 && number > 0 && number <= kMaxSeconds / seconds) {
    return number * seconds * 1000;
  }
  return Error::invalid(
      fmt::format("--keep-alive {}: want 90s, 30m, 8h (up to a week) or never", text),
      "keep_alive_ms");
}

}  // namespace hearth::cli
