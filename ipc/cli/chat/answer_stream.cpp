#include "ipc/cli/chat/answer_stream.h"

#include <fmt/core.h>

#include <chrono>

#include "ipc/cli/answer/loading_status.h"
#include "ipc/cli/terminal/interrupt.h"
#include "kernels/base/match.h"

namespace hearth::cli {
namespace {

constexpr const char* kDim = "\x1b[2m";
constexpr const char* kPlain = "\x1b[0m";
/// How long to wait for the end of a cancelled request.
constexpr auto kAnswerPatience = std::chrono::seconds(2);

class Screen {
 public:
  explicit Screen(bool show_reasoning)
      : terminal_(stdout_is_terminal()), show_reasoning_(show_reasoning) {}

  void reasoning(std::string_view text) {
    if (!show_reasoning_) return status_.show("thinking");
    put(text, true);
  }
  void text(std::string_view text) { put(text, false); }
  void wait(const ipc::Event& event) {
    if (const auto* queued = std::get_if<ipc::QueuedEvent>(&event)) {
      status_.show(waiting_text(*queued));
    } else if (const auto* progress = std::get_if<ipc::ProgressEvent>(&event)) {
      if (wrote_) return;  // a status line would take the place of text that shares its line
      status_.show(progress->canvas ? fmt::format("pass {} of {}", progress->canvas->pass,
                                                  progress->canvas->passes)
                                    : fmt::format("reading {} of {} tokens", progress->prompt_done,
                                                  progress->prompt_total));
    }
  }
  void end() {
    status_.clear();
    dim(false);
    if (!last_line_ended_) write_stdout("\n");
    last_line_ended_ = true;
  }

 private:
  void put(std::string_view text, bool is_reasoning) {
    if (text.empty()) return;
    status_.clear();
    if (wrote_ && is_reasoning != was_reasoning_) write_stdout(last_line_ended_ ? "\n" : "\n\n");
    was_reasoning_ = is_reasoning;
    wrote_ = true;
    dim(is_reasoning);
    write_stdout(terminal_ ? terminal_safe(text) : std::string(text));
    last_line_ended_ = text.ends_with('\n');
  }
  void dim(bool on) {
    if (!terminal_ || on == dimmed_) return;
    write_stdout(on ? kDim : kPlain);
    dimmed_ = on;
  }

  const bool terminal_;
  const bool show_reasoning_;
  StatusLine status_;
  bool dimmed_ = false;
  bool wrote_ = false;
  bool was_reasoning_ = false;
  bool last_line_ended_ = true;
};

}  // namespace

ChatAnswer stream_answer(ipc::Client& client, const ipc::GenerateRequest& request,
                         bool show_reasoning) {
  ChatAnswer answer;
  Screen screen(show_reasoning);
  clear_interrupt();
  const Result<std::string> id = client.start(request);
  if (!id.ok()) {
    answer.error = id.error();
    return answer;
  }
  std::optional<std::chrono::steady_clock::time_point> cancelled_at;
  while (!answer.done && !answer.error) {
    const auto now = std::chrono::steady_clock::now();
    if (!cancelled_at && interrupted()) {
      cancelled_at = now;
      (void)client.request_cancel(*id);  // if the daemon is gone, next() reports it
    }
    if (cancelled_at && now - *cancelled_at > kAnswerPatience) break;
    Result<std::optional<ipc::Arrival>> next = client.next(50);
    if (!next.ok()) {
      answer.error = next.take_error();
      break;
    }
    if (!next->has_value() || (*next)->request_id != *id) continue;
    match((*next)->what,
          [&](const ipc::Delta& delta) {
            for (const ipc::DeltaPart& part : delta.parts) {
              if (part.channel != ipc::DeltaChannel::kReasoning) continue;
              answer.reasoning += part.text;
              screen.reasoning(part.text);
            }
            answer.text += delta.text;
            screen.text(delta.text);
          },
          [&](const ipc::Event& event) {
            if (const auto* done = std::get_if<ipc::DoneEvent>(&event)) answer.done = *done;
            if (const auto* error = std::get_if<ipc::ErrorEvent>(&event))
              answer.error = error->error;
            screen.wait(event);
          });
  }
  screen.end();
  return answer;
}

}  // namespace hearth::cli
