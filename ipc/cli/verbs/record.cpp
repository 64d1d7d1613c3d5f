// hearth stats --record FILE: records what dashboards receive, until Ctrl-C or for so many seconds.

#include <fmt/core.h>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"
#include "ipc/client/event_stream.h"
#include "kernels/base/clock.h"
#include "kernels/base/numbers.h"

namespace hearth::cli {

int record(const std::string& file, double seconds) {
  std::optional<ipc::Client> client = connect();
  if (!client) return kNoDaemon;
  Result<ipc::EventStream> stream = ipc::EventStream::open(client->runtime_dir());
  if (!stream.ok()) return fail(stream.error());
  Result<ipc::RecordingWriter> writer = ipc::RecordingWriter::create(file);
  if (!writer.ok()) return fail(writer.error());
  catch_interrupts();
  const SteadyClock clock;
  const int64_t begin_us = clock.now_us();
  uint64_t messages = 0;
  StatusLine status;
  while (!interrupted() && (seconds <= 0 || as_double(clock.now_us() - begin_us) < seconds * 1e6)) {
    for (const ipc::StreamMessage& message : stream->wait(100)) {
      if (const Result<void> added = writer->add(message); !added.ok()) return fail(added.error());
      ++messages;
    }
    status.show(fmt::format("{} messages; Ctrl-C ends", messages));
  }
  status.clear();
  write_stderr(fmt::format("{} messages in {}\n", messages, file));
  return messages > 0 ? kOk : kFailed;
}

}  // namespace hearth::cli
