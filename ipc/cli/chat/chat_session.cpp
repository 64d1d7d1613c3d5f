#include "ipc/cli/chat/chat_session.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "ipc/cli/answer/run_fields.h"
#include "ipc/cli/answer/stream_printer.h"
#include "ipc/cli/answer/timing_line.h"
#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/text/utf8.h"

namespace hearth::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kHelp =
    "/retry          another answer to the last question\n"
    "/edit [TEXT]    change the last question to TEXT or in $EDITOR, and ask again\n"
    "/undo           remove the last question and its answer\n"
    "/system [TEXT]  set the system message; without TEXT show it; - removes it\n"
    "/stats          tokens and times of the last answer\n"
    "/reasoning      show the reasoning, dimmed, or hide it\n"
    "/show           the conversation so far\n"
    "/name NAME      rename the conversation\n"
    "/new            begin another conversation\n"
    "/quit           end; hearth chat --resume continues\n"
    "A line that ends in \\ continues; \"\"\" begins and ends several lines; // sends a slash.\n"
    "Ctrl-C stops an answer or drops a line, Ctrl-D ends.\n";

void say_line(const std::string& text) { write_stdout(text + "\n"); }

std::string shown(const std::string& text) {
  return stdout_is_terminal() ? terminal_safe(text) : text;
}

/// Opens the text in the user's editor and returns the result; nothing if that failed.
std::optional<std::string> edited(const std::string& text) {
  const char* const wanted =
      std::getenv("VISUAL") != nullptr ? std::getenv("VISUAL") : std::getenv("EDITOR");
  std::string path = (fs::temp_directory_path() / "hearth-chat-XXXXXX").string();
  const int fd = ::mkstemp(path.data());
  if (fd < 0) return std::nullopt;
  const bool wrote = std::cmp_equal(::write(fd, text.data(), text.size()), text.size());
  ::close(fd);
  // Run it through a shell, because the variable may hold options.
  const std::string command =
      fmt::format("{} '{}'", wanted != nullptr && *wanted != '\0' ? wanted : "vi", path);
  std::optional<std::string> out;
  if (wrote && std::system(command.c_str()) == 0) {
    std::ifstream in(path, std::ios::binary);
    out = ipc::to_valid_utf8(std::string(std::istreambuf_iterator<char>(in), {}));
    while (out->ends_with('\n')) out->pop_back();
  }
  ::unlink(path.c_str());
  return out;
}

}  // namespace

void ChatSession::greet() const {
  // On stderr, because it is not part of the answer and stdout may be a file.
  const std::string title = terminal_safe(fmt::format("{} ({})", chat_.model, chat_.name));
  if (chat_.messages.empty()) {
    return write_stderr(title + ". /help shows the commands.\n");
  }
  if (stdout_is_terminal()) show();
  write_stderr(
      fmt::format("{}, {} messages. /help shows the commands.\n", title, chat_.messages.size()));
  if (chat_.messages.back().role == "user") {
    write_stderr("The last question has no answer yet; /retry asks it again.\n");
  }
}

void ChatSession::show() const {
  for (const ChatMessage& message : chat_.messages) {
    say_line((message.role == "user" ? "> " : "") + shown(message.content) +
             (message.cut ? " [stopped]" : ""));
  }
}

Result<ipc::GenerateRequest> ChatSession::request() const {
  HEARTH_ASSIGN_OR_RETURN(ipc::GenerateRequest request,
                          request_from_flags(chat_.model, "x", options_.fields));
  request.prompt.clear();
  request.messages.text = messages_json(chat_);
  const bool bounded = std::ranges::any_of(
      options_.fields, [](const auto& field) { return field.first == "max_tokens"; });
  if (!bounded) request.max_tokens = 0;  // as many as fit
  return request;
}

void ChatSession::save() {
  if (const Result<void> saved = save_chat(folder_, chat_); !saved.ok()) {
    complain("not saved: " + saved.error().message);
    return;
  }
  saved_ = true;
}

bool ChatSession::send(const std::string& text) {
  if (!chat_.messages.empty() && chat_.messages.back().role == "user") chat_.messages.pop_back();
  chat_.messages.push_back({"user", text});
  return ask();
}

// Ends with the question alone where no answer came.
bool ChatSession::ask() {
  const Result<ipc::GenerateRequest> asked = request();
  if (!asked.ok()) {
    complain(asked.error().message);
    return false;
  }
  save();
  ChatAnswer answer = stream_answer(client_, *asked, !hide_reasoning_);
  if (answer.error) {
    complain(answer.error->message);
    if (answer.error->code == ErrorCode::kContextOverflow) {
      complain(
          "the conversation fills the context: /new begins another one, /undo takes the last "
          "question back");
    }
    lost_ = answer.error->code == ErrorCode::kLost;
  }
  last_ = answer.done;
  if (answer.text.empty() && answer.done && !interrupted()) {
    complain(why_empty(*answer.done, false));
  }
  if (answer.done && answer.done->finish_reasons.front() == "length" && asked->max_tokens == 0) {
    complain("the context is full; /new begins another conversation");
  }
  if (answer.text.empty() && answer.reasoning.empty()) return false;
  const bool whole = answer.done && answer.done->finish_reasons.front() != "cancelled";
  chat_.messages.push_back({"assistant", answer.text, answer.reasoning, !whole});
  save();
  return !answer.error;
}

void ChatSession::retry() {
  if (chat_.messages.empty()) return complain("nothing was asked yet");
  if (chat_.messages.back().role == "assistant") chat_.messages.pop_back();
  ask();
}

void ChatSession::undo() {
  if (chat_.messages.empty()) return complain("nothing was asked yet");
  if (chat_.messages.back().role == "assistant") chat_.messages.pop_back();
  if (!chat_.messages.empty()) chat_.messages.pop_back();
  save();
}

void ChatSession::edit(const std::string& given) {
  const auto question =
      std::find_if(chat_.messages.rbegin(), chat_.messages.rend(),
                   [](const ChatMessage& message) { return message.role == "user"; });
  if (question == chat_.messages.rend()) return complain("nothing was asked yet");
  const std::optional<std::string> text = given.empty() ? edited(question->content) : given;
  if (!text || text->empty()) return complain("the question stays as it was");
  chat_.messages.erase(question.base() - 1, chat_.messages.end());
  send(*text);
}

void ChatSession::set_system(const std::string& text) {
  if (text.empty()) return say_line(chat_.system.empty() ? "(nothing)" : shown(chat_.system));
  chat_.system = text == "-" ? "" : text;
  if (!chat_.messages.empty()) save();
}

void ChatSession::rename(const std::string& name) {
  if (!is_chat_name(name)) return complain("a name has letters, digits, -, _ and ., at most 64");
  std::error_code error;
  if (fs::exists(folder_ / (name + ".json"), error)) return complain("that name is taken");
  const std::string before = std::exchange(chat_.name, name);
  save();
  if (saved_) fs::remove(folder_ / (before + ".json"), error);
}

void ChatSession::stats() const {
  if (!last_) return complain("no answer yet");
  say_line(timing_line(*last_));
  if (last_->usage.reasoning_tokens > 0) {
    say_line(fmt::format("reasoning {} of {} tokens", last_->usage.reasoning_tokens,
                         last_->usage.output_tokens));
  }
  if (!last_->cache_miss.empty()) say_line("computed " + last_->cache_miss);
  say_line(fmt::format("model {}, seed {}", last_->model, last_->seed));
}

bool ChatSession::command(const ChatInput& input) {
  const std::string& name = input.command;
  if (name == "quit" || name == "exit" || name == "q") return false;
  if (name == "help" || name == "?") {
    write_stdout(kHelp);
  } else if (name == "retry") {
    retry();
  } else if (name == "edit") {
    edit(input.text);
  } else if (name == "undo") {
    undo();
  } else if (name == "system") {
    set_system(input.text);
  } else if (name == "stats") {
    stats();
  } else if (name == "reasoning") {
    hide_reasoning_ = !hide_reasoning_;
    say_line(hide_reasoning_ ? "reasoning is hidden" : "reasoning is shown");
  } else if (name == "show") {
    show();
  } else if (name == "name") {
    rename(input.text);
  } else if (name == "new") {
    chat_.messages.clear();
    chat_.name = new_chat_name(folder_);
    last_.reset();
    say_line(chat_.name);
  } else {
    complain(fmt::format("/{}: no such command; /help shows them", name));
  }
  return true;
}

}  // namespace hearth::cli
