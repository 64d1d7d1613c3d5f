#include "kernels/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>

#include "kernels/base/log_level.h"

namespace hearth {
namespace {

bool g_journal = false;
bool g_started = false;

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

int journal_priority(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return 7;
    case LogLevel::kInfo: return 6;
    case LogLevel::kWarn: return 4;
    case LogLevel::kError: return 3;
  }
  return 6;
}

}  // namespace

void init_logging(std::string_view program, LogLevel level) {
  g_journal = std::getenv("JOURNAL_STREAM") != nullptr;
  auto logger = std::make_shared<spdlog::logger>(std::string(program),
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern(g_journal ? "%v" : "%Y-%m-%dT%H:%M:%S.%e %n[%P] %l %v");
  logger->set_level(to_spdlog(level));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
  g_started = true;
}

void set_log_level(LogLevel level) { spdlog::set_level(to_spdlog(level)); }

bool parse_log_level(std::string_view text, LogLevel* level) {
  if (text == "debug")
    *level = LogLevel::kDebug;
  else if (text == "info")
    *level = LogLevel::kInfo;
  else if (text == "warn")
    *level = LogLevel::kWarn;
  else if (text == "error")
    *level = LogLevel::kError;
  else
    return false;
  return true;
}

std::string_view name(LogLevel level) {
  constexpr std::string_view kNames[] = {"debug", "info", "warn", "error"};
  return kNames[static_cast<int>(level)];
}

void log_line(LogLevel level, std::string_view event, const std::string& fields) {
  // A library user who never called init_logging still must not find logs on stdout.
  static const bool started = [] {
    if (!g_started) init_logging("hearth", LogLevel::kWarn);
    return true;
  }();
  (void)started;
  if (g_journal) {
    spdlog::default_logger_raw()->log(to_spdlog(level), "<{}>{} {}", journal_priority(level), event,
                                      fields);
  } else {
    spdlog::default_logger_raw()->log(to_spdlog(level), "{} {}", event, fields);
  }
}

}  // namespace hearth
