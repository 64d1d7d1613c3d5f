#include "kernels/base/log.h"

#include <fcntl.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "kernels/base/log_level.h"
#include "kernels/base/numbers.h"

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

// A pipe takes a write of up to this size (PIPE_BUF) whole or not at all.
constexpr size_t kLineBytes = 4096;

// Writes to stderr and never waits for its reader: lines that do not fit are dropped and counted,
// and the next line that fits reports the count. Streams must not stall for a log.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  StderrSink() {
    struct stat info {};
    if (::fstat(STDERR_FILENO, &info) != 0) return;
    is_socket_ = S_ISSOCK(info.st_mode);
    if (!S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode)) return;
    // Open a file description of our own: O_NONBLOCK on the inherited one would affect every
    // process that shares it.
    const int own = ::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (own >= 0) fd_ = own;
  }
  ~StderrSink() override {
    if (fd_ != STDERR_FILENO) ::close(fd_);
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    if (dropped_ > 0) {
      const std::string words =
          fmt::format("{}log_dropped lines={}\n", g_journal ? "<4>" : "", dropped_);
      if (!put(words)) {
        ++dropped_;
        return;
      }
      dropped_ = 0;
    }
    if (line.size() > kLineBytes) {
      line.resize(kLineBytes);
      line[kLineBytes - 1] = '\n';
    }
    if (!put({line.data(), line.size()})) ++dropped_;
  }
  void flush_() override {}

  bool put(std::string_view bytes) const {
    ssize_t n = 0;
    do {
      n = is_socket_ ? ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                     : ::write(fd_, bytes.data(), bytes.size());
    } while (n < 0 && errno == EINTR);
    return n >= 0;
  }

  int fd_ = STDERR_FILENO;
  bool is_socket_ = false;
  uint64_t dropped_ = 0;
};

}  // namespace

void reserve_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // open() returns the lowest free descriptor, which is this one.
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF && ::open("/dev/null", O_RDWR) < 0) return;
  }
}

void init_logging(std::string_view program, LogLevel level) {
  g_journal = std::getenv("JOURNAL_STREAM") != nullptr;
  auto logger =
      std::make_shared<spdlog::logger>(std::string(program), std::make_shared<StderrSink>());
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
  return kNames[to_underlying(level)];
}

void log_line(LogLevel level, std::string_view event, const std::string& fields) {
  // A program that never called init_logging must not get logs on stdout.
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
