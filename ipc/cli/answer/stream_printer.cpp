#include "ipc/cli/answer/stream_printer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "ipc/cli/answer/loading_status.h"
#include "ipc/cli/answer/timing_line.h"
#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/wire/codec.h"
#include "kernels/base/match.h"

namespace hearth::cli {
namespace {

/// How long to wait for the end of a cancelled request.
constexpr auto kCancelPatience = std::chrono::seconds(2);

std::string ids_as_text(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += fmt::format("{} ", id);
  return text;
}

std::string describe(const ipc::ProgressEvent& progress) {
  if (progress.canvas) {
    return fmt::format("pass {} of {}", progress.canvas->pass, progress.canvas->passes);
  }
  return fmt::format("prompt {} of {} tokens", progress.prompt_done, progress.prompt_total);
}

/// The exit status after a request that ended by itself or was cancelled here.
int status_of(const StreamPrinter& printer) {
  if (interrupted()) return kInterrupted;
  if (printer.problem() == 0) return kOk;
  complain(fmt::format("stdout: {}", std::strerror(printer.problem())));
  return kFailed;
}

}  // namespace

std::string why_empty(const ipc::DoneEvent& done, bool raw) {
  const std::string reason = done.finish_reasons.empty() ? "stop" : done.finish_reasons.front();
  const ipc::Usage& usage = done.usage;
  if (usage.reasoning_tokens > 0) {
    return fmt::format("the answer is empty: {} tokens of reasoning, then {}{}",
                       usage.reasoning_tokens, reason,
                       reason == "length" ? " (--max-tokens allows more)" : "");
  }
  if (reason != "stop") return fmt::format("the answer is empty: {}", reason);
  return fmt::format("the answer is empty: the model ended it {}{}",
                     usage.output_tokens > 0 ? "without a visible character" : "at once",
                     raw ? "; without --raw the prompt is a message to it" : "");
}

void StreamPrinter::take(const ipc::Delta& delta) {
  status_.clear();
  const bool thinks = std::ranges::any_of(delta.parts, [](const ipc::DeltaPart& part) {
    return part.channel == ipc::DeltaChannel::kReasoning;
  });
  if (thinks && delta.text.empty()) status_.show("thinking");
  if (options_.json) return line(ipc::delta_as_json(delta));
  const std::string text = options_.ids ? ids_as_text(delta.ids) : delta.text;
  if (delta.header.sample == 0) {
    if (draws_) write_stdout(canvas_.clear());
    put(text);
    if (draws_) canvas_.note(terminal_safe(text), delta.ids.size());
    return;
  }
  if (others_.size() < delta.header.sample) others_.resize(delta.header.sample);
  others_[delta.header.sample - 1] += text;
}

void StreamPrinter::take(const ipc::Event& event) {
  if (options_.json) return line(ipc::encode_event(event));
  if (const auto* queued = std::get_if<ipc::QueuedEvent>(&event)) {
    status_.show(waiting_text(*queued));
  } else if (const auto* progress = std::get_if<ipc::ProgressEvent>(&event)) {
    const bool drawn = draws_ && progress->canvas && progress->canvas->sample == 0;
    // A status line would take the place of text that shares its line.
    if (!drawn && !wrote_) status_.show(describe(*progress));
    if (!drawn) return;
    status_.clear();
    write_stdout(canvas_.draw(*progress->canvas));
  }
}

void StreamPrinter::end(const ipc::DoneEvent* done) {
  status_.clear();
  if (options_.json) return;
  if (draws_) write_stdout(canvas_.clear());
  for (const std::string& text : others_) {
    put(terminal_ ? "\n\n" : "\n");
    put(text);
  }
  if (terminal_ && wrote_ && last_ != '\n') put("\n");
  if (options_.explain_empty && !wrote_ && done != nullptr && !interrupted())
    complain(why_empty(*done, options_.raw));
  const bool wanted = options_.stats || (terminal_ && stderr_is_terminal());
  if (done == nullptr || !wanted) return;
  // Begin a new line if the text shares the terminal; text that goes elsewhere stays unchanged.
  const bool mid_line = wrote_ && last_ != '\n' && stdout_and_stderr_are_one();
  write_stderr((mid_line ? "\n" : "") + timing_line(*done) + "\n");
}

void StreamPrinter::put(std::string_view text) {
  if (text.empty()) return;
  wrote_ = true;
  last_ = text.back();
  if (!write_stdout(terminal_ ? terminal_safe(text) : std::string(text))) problem_ = errno;
}

void StreamPrinter::line(const std::string& json) {
  if (!write_stdout(json + "\n")) problem_ = errno;
}

namespace {

/// The exit status, if the event is the last one.
std::optional<int> take_event(const ipc::Event& event, StreamPrinter& printer) {
  printer.take(event);
  if (const auto* done = std::get_if<ipc::DoneEvent>(&event)) {
    printer.end(done);
    return status_of(printer);
  }
  if (const auto* error = std::get_if<ipc::ErrorEvent>(&event)) {
    printer.end(nullptr);
    if (error->retry_ms > 0) {
      complain(fmt::format("try again in {}", human_duration(error->retry_ms)));
    }
    return fail(error->error);
  }
  return std::nullopt;
}

}  // namespace

int follow(ipc::Client& client, const std::string& id, StreamPrinter& printer,
           OnInterrupt on_interrupt) {
  bool cancelled = false;
  std::chrono::steady_clock::time_point cancelled_at;
  while (true) {
    if (!cancelled && (interrupted() || printer.problem() != 0)) {
      if (on_interrupt == OnInterrupt::kLeave) {
        printer.end(nullptr);
        return status_of(printer);
      }
      cancelled = true;
      cancelled_at = std::chrono::steady_clock::now();
      (void)client.request_cancel(id);  // if the daemon is gone, next() reports it
    }
    if (cancelled && std::chrono::steady_clock::now() - cancelled_at > kCancelPatience) {
      printer.end(nullptr);
      return status_of(printer);
    }
    Result<std::optional<ipc::Arrival>> next = client.next(50);
    if (!next.ok()) {
      printer.end(nullptr);
      return fail(next.error());
    }
    if (!next->has_value()) continue;
    const std::optional<int> status =
        match((*next)->what,
              [&](const ipc::Delta& delta) -> std::optional<int> {
                printer.take(delta);
                return std::nullopt;
              },
              [&](const ipc::Event& event) { return take_event(event, printer); });
    if (status) return *status;
  }
}

}  // namespace hearth::cli
