// hearth replay FILE: sends recorded requests again and compares.

#include <fmt/core.h>

#include <optional>
#include <string_view>
#include <utility>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/connect/own_daemon.h"
#include "ipc/cli/replay/replayer.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"
#include "ipc/client/request_log.h"
#include "kernels/base/random.h"

namespace hearth::cli {
namespace {

std::string progress_text(const ReplayProgress& progress) {
  return fmt::format("{} of {} sent, {} running, {} ended, {} failed, {} late; Ctrl-C ends",
                     progress.sent, progress.requests, progress.sent - progress.ended,
                     progress.ended, progress.failed, progress.late);
}

bool is_configuration(std::string_view against) { return against.ends_with(".toml"); }

/// Notes that a reader needs to understand the table.
std::string notes(const ipc::RequestLog& log, const Replayer& replayer) {
  std::string out;
  if (log.cut()) out += "the recording's last line is cut off and was left out\n";
  if (!log.header().text) {
    out += "recorded without --text: prompts are synthetic, answers as long as recorded\n";
  }
  if (replayer.left_out() > 0) {
    out += fmt::format("{} requests failed before their prompt was known and were left out\n",
                       replayer.left_out());
  }
  if (const size_t late = replayer.progress().late; late > 0) {
    out += fmt::format("{} requests were sent late: --concurrency requests ran already\n", late);
  }
  if (!replayer.first_failure().empty()) {
    out += fmt::format("first failure: {}\n", terminal_safe(replayer.first_failure()));
  }
  return out;
}

}  // namespace

int replay(const ReplayOptions& options, bool json) {
  const Result<ipc::RequestLog> log = ipc::RequestLog::open(options.file);
  if (!log.ok()) return fail(log.error());
  if (log->records().empty()) return fail(Error::invalid("the recording has no requests"));
  catch_interrupts();
  std::optional<OwnDaemon> own;  // ends after its client
  std::optional<ipc::Client> client;
  if (is_configuration(options.against)) {
    Result<OwnDaemon> started = OwnDaemon::start(options.against);
    if (!started.ok()) return fail(started.error());
    own.emplace(std::move(started).value());
    Result<ipc::Client> connected = own->connect();
    if (!connected.ok()) return fail(connected.error());
    client.emplace(std::move(connected).value());
  } else {
    client = connect();
  }
  if (!client) return kNoDaemon;
  ReplaySettings settings;
  settings.speed = options.speed;
  settings.concurrency = options.concurrency;
  if (!own) settings.choices.against = options.against;
  // A new share name, so that the replay does not find prefixes that the recorded requests cached.
  if (!options.warm) settings.choices.share = fmt::format("replay-{:016x}", random_bits());
  Replayer replayer(*client, *log, std::move(settings));
  StatusLine status;
  const Result<void> ran =
      replayer.run(interrupted, [&](const ReplayProgress& p) { status.show(progress_text(p)); });
  status.clear();
  const Comparison comparison = compare(replayer.compared());
  if (comparison.requests > 0) {
    write_stdout(json ? comparison_json(comparison) : comparison_table(comparison));
  }
  write_stderr(notes(*log, replayer));
  if (!ran.ok()) return fail(ran.error());
  if (interrupted()) return kInterrupted;
  return comparison.newly_failed > 0 ? kFailed : kOk;
}

}  // namespace hearth::cli
