// hearth record FILE: keeps the user's own requests and their timings, until Ctrl-C or for a time.

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <chrono>
#include <string>
#include <utility>

#include "ipc/cli/answer/loading_status.h"
#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"
#include "ipc/client/request_log.h"
#include "kernels/base/clock.h"
#include "kernels/base/numbers.h"

namespace hearth::cli {
namespace {

constexpr int kMostAfterEnd = 1000;

/// "2026-11-27T09:30:00Z"
std::string date_now() {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("{:%FT%TZ}", fmt::gmtime(now));
}

class Recording {
 public:
  Recording(const RecordOptions& options, ipc::Client client)
      : options_(options), client_(std::move(client)) {}

  int run(int64_t most_ms);

 private:
  enum class Next { kGoOn, kFull };
  Result<Next> take(const ipc::Event& event, ipc::RequestLogWriter& file);
  void show(StatusLine& status, uint64_t bytes) const;

  const RecordOptions& options_;
  ipc::Client client_;
  bool on_ = false;
  uint64_t requests_ = 0;
  uint64_t lost_ = 0;
};

Result<Recording::Next> Recording::take(const ipc::Event& event, ipc::RequestLogWriter& file) {
  if (const auto* error = std::get_if<ipc::ErrorEvent>(&event)) return error->error;
  if (const auto* recording = std::get_if<ipc::RecordingEvent>(&event)) {
    if (!std::exchange(on_, true) && !stderr_is_terminal()) write_stderr("recording\n");
    lost_ = recording->lost;
  }
  if (const auto* record = std::get_if<ipc::RecordedEvent>(&event)) {
    HEARTH_ASSIGN_OR_RETURN(const bool fits, file.add(*record));
    if (!fits) return Next::kFull;
    ++requests_;
  }
  return Next::kGoOn;
}

void Recording::show(StatusLine& status, uint64_t bytes) const {
  if (!on_) return;
  status.show(fmt::format("{} requests, {}{}; Ctrl-C ends", requests_, human_bytes(bytes),
                          lost_ > 0 ? fmt::format(", {} lost", lost_) : ""));
}

int Recording::run(int64_t most_ms) {
  Result<ipc::RequestLogWriter> file = ipc::RequestLogWriter::create(
      options_.file, {.text = options_.text, .began = date_now()}, options_.max_mb << 20);
  if (!file.ok()) return fail(file.error());
  const Result<std::string> id = client_.record({.text = options_.text});
  if (!id.ok()) return fail(id.error());
  const SteadyClock clock;
  const int64_t until_us = most_ms > 0 ? clock.now_us() + most_ms * 1000 : INT64_MAX;
  StatusLine status;
  std::string why;
  int exit_status = kOk;
  // At the end, keep the records that have already arrived, up to a bound in case they never stop.
  for (int after_end = 0; after_end < kMostAfterEnd && why.empty();) {
    const bool ends = interrupted() || clock.now_us() >= until_us;
    const Result<std::optional<ipc::Arrival>> arrival = client_.next(ends ? 0 : 100);
    if (ends && arrival.ok() && !*arrival) break;
    after_end += ends ? 1 : 0;
    Result<Next> next = Next::kGoOn;
    if (!arrival.ok()) {
      next = arrival.error();
    } else if (*arrival && std::holds_alternative<ipc::Event>((*arrival)->what)) {
      next = take(std::get<ipc::Event>((*arrival)->what), *file);
    }
    show(status, file->bytes());
    if (!next.ok()) {
      status.clear();
      exit_status = fail(next.error());
      break;
    }
    if (*next == Next::kFull) why = fmt::format("; --max-mb {} is reached", options_.max_mb);
  }
  status.clear();
  write_stderr(fmt::format("{} requests in {}{}{}\n", requests_, options_.file,
                           lost_ > 0 ? fmt::format(", {} lost", lost_) : "", why));
  return exit_status;
}

}  // namespace

int record_requests(const RecordOptions& options) {
  int64_t most_ms = 0;
  if (!options.time.empty()) {
    const Result<int64_t> ms = parse_keep_alive(options.time);
    if (!ms.ok()) {
      complain(
          fmt::format("--for {}: want 90s, 30m, 2h (up to a week)", terminal_safe(options.time)));
      return kUsage;
    }
    most_ms = *ms;
  }
  catch_interrupts();
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  return Recording(options, std::move(*client)).run(most_ms);
}

}  // namespace hearth::cli
