#pragma once
// Structured logs to stderr (journald collects them there): a level, an event name, key=value
// pairs. User text is never logged: log ids, lengths and counts.

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace hearth {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

/// Starts logging for this process; lines begin with `program`. Under systemd (JOURNAL_STREAM set)
/// lines carry sd-daemon priorities (<3> to <7>) instead of a time. Call once, before starting
/// threads.
void init_logging(std::string_view program, LogLevel level);
/// Parses a level's name ("debug", "info", "warn", "error"); false for any other text.
bool parse_log_level(std::string_view text, LogLevel* level);
std::string_view name(LogLevel level);

void log_line(LogLevel level, std::string_view event, const std::string& fields);

/// log_info("worker_started", "pid={} model={}", pid, model)
template <typename... Args>
void log_debug(std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kDebug, event, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, event, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warn(std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarn, event, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kError, event, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace hearth
