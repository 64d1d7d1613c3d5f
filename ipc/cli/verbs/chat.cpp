// hearth chat: a conversation at the terminal, kept on disk.

#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "ipc/cli/answer/model_argument.h"
#include "ipc/cli/chat/chat_session.h"
#include "ipc/cli/chat/line_editor.h"
#include "ipc/cli/connect/connection.h"
#include "ipc/cli/terminal/input.h"
#include "ipc/cli/terminal/interrupt.h"
#include "ipc/cli/verbs/verbs.h"

namespace hearth::cli {
namespace {

int list(const std::filesystem::path& folder) {
  for (const std::string& name : chat_names(folder)) {
    const Result<SavedChat> chat = load_chat(folder, name);
    if (!chat.ok()) {
      complain(chat.error().message);
      continue;
    }
    const std::string first = chat->messages.empty() ? "" : chat->messages.front().content;
    write_stdout(fmt::format("{:<24} {:>4} messages  {:<20} {}\n", name, chat->messages.size(),
                             terminal_safe(chat->model), ipc::one_line(first, 60)));
  }
  return kOk;
}

Result<SavedChat> begin(const std::filesystem::path& folder, const ChatOptions& options) {
  SavedChat chat;
  if (options.resume) {
    std::string name = options.name;
    if (name.empty()) {
      const std::vector<std::string> names = chat_names(folder);
      if (names.empty()) return Error::not_found("no conversation exists yet");
      name = names.front();
    }
    HEARTH_ASSIGN_OR_RETURN(chat, load_chat(folder, name));
  } else {
    chat.name = options.name.empty() ? new_chat_name(folder) : options.name;
    if (!is_chat_name(chat.name)) {
      return Error::invalid("--name: want letters, digits, -, _ and ., at most 64");
    }
    if (load_chat(folder, chat.name).ok()) {
      return Error::invalid(fmt::format(
          "--name {0}: this conversation exists (--resume {0} continues it)", chat.name));
    }
  }
  if (!options.model.empty()) chat.model = options.model;
  if (chat.model.empty()) chat.model = "default";
  if (!options.system.empty()) chat.system = options.system;
  return chat;
}

}  // namespace

Result<void> check_chat(ipc::Client& client, const std::string& model, const std::string& system) {
  SavedChat probe;
  probe.system = system;
  probe.messages.push_back({"user", "x"});
  ipc::TokenizeRequest request;
  request.model = model;
  request.messages.text = messages_json(probe);
  StatusLine status;
  status.show("loading " + model);
  const Result<ipc::TokenizeReply> reply = client.tokenize(request);
  if (!reply.ok()) return reply.error();
  return {};
}

int chat_with(ipc::Client client, const ChatOptions& options) {
  const Result<std::filesystem::path> folder = chats_folder();
  if (!folder.ok()) return fail(folder.error());
  Result<SavedChat> saved = begin(*folder, options);
  if (!saved.ok()) return fail(saved.error());
  // Check now, before the user types a question that could not be answered.
  if (const Result<void> possible = check_chat(client, saved->model, saved->system);
      !possible.ok()) {
    return fail(possible.error());
  }
  // Without a terminal all of stdin is one question.
  const bool once = !stdin_is_terminal();
  const Result<std::string> question = once || !options.words.empty()
                                           ? read_prompt(options.words, "")
                                           : Result<std::string>(std::string());
  if (!question.ok()) {
    complain("question: " + question.error().message);
    return kUsage;
  }
  if (once && question->empty() && !options.resume) {
    complain("chat: no question: want words, a text on stdin, or a terminal");
    return kUsage;
  }
  catch_interrupts();
  ChatSession session(std::move(client), *folder, std::move(saved).value(), options);
  session.greet();
  if (once && question->empty()) {  // the conversation so far
    session.command({ChatInput::Kind::kCommand, "", "show"});
    return kOk;
  }
  if (!question->empty()) {
    const bool answered = session.send(*question);
    if (session.lost()) return kNoDaemon;
    if (once) return interrupted() ? kInterrupted : answered ? kOk : kFailed;
  }
  LineEditor editor(*folder / ".history");
  while (!session.lost()) {
    const ChatInput input = read_chat_input(editor, "> ");
    clear_interrupt();
    if (input.kind == ChatInput::Kind::kEnd) return kOk;
    if (input.kind == ChatInput::Kind::kCommand && !session.command(input)) return kOk;
    if (input.kind == ChatInput::Kind::kMessage) session.send(input.text);
  }
  return kNoDaemon;
}

int chat(const ChatOptions& options) {
  if (options.list) {
    const Result<std::filesystem::path> folder = chats_folder();
    return folder.ok() ? list(*folder) : fail(folder.error());
  }
  ChatOptions taken = options;
  if (!options.model.empty()) {
    Result<std::string> model = loaded_model_argument(options.model);
    if (!model.ok()) return fail(model.error());
    taken.model = std::move(model).value();
  }
  std::optional<ipc::Client> client = connect_or_start(options.no_start, options.allow_root);
  return client ? chat_with(std::move(*client), taken) : static_cast<int>(kNoDaemon);
}

}  // namespace hearth::cli
