// hearth chat: a conversation at the terminal, kept on disk.

#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "ipc/cli/chat/chat_session.h"
#include "ipc/cli/chat/line_editor.h"
#include "ipc/cli/connection.h"
#include "ipc/cli/interrupt.h"
#include "ipc/cli/verbs.h"

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
      if (names.empty()) return Error{ErrorCode::kNotFound, "there is no conversation yet", ""};
      name = names.front();
    }
    HEARTH_ASSIGN_OR_RETURN(chat, load_chat(folder, name));
  } else {
    chat.name = options.name.empty() ? new_chat_name(folder) : options.name;
    if (!is_chat_name(chat.name)) {
      return Error{ErrorCode::kInvalidArgument,
                   "--name: want letters, digits, -, _ and ., at most 64", ""};
    }
    if (load_chat(folder, chat.name).ok()) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("--name {0}: there is such a conversation (--resume {0} goes on)", chat.name),
          ""};
    }
  }
  if (!options.model.empty()) chat.model = options.model;
  if (chat.model.empty()) chat.model = "default";
  if (!options.system.empty()) chat.system = options.system;
  return chat;
}

}  // namespace

int chat(const ChatOptions& options) {
  const Result<std::filesystem::path> folder = chats_folder();
  if (!folder.ok()) return fail(folder.error());
  if (options.list) return list(*folder);
  Result<SavedChat> saved = begin(*folder, options);
  if (!saved.ok()) return fail(saved.error());
  std::optional<ipc::Client> client = connect_or_start(options.no_start, options.allow_root);
  if (!client) return kNoDaemon;
  ChatSession session(std::move(*client), *folder, std::move(saved).value(), options);
  LineEditor editor(*folder / ".history");
  catch_interrupts();
  session.greet();
  while (!session.lost()) {
    const ChatInput input = read_chat_input(editor, "> ");
    clear_interrupt();
    if (input.kind == ChatInput::Kind::kEnd) return kOk;
    if (input.kind == ChatInput::Kind::kCommand && !session.command(input)) return kOk;
    if (input.kind == ChatInput::Kind::kMessage) session.say(input.text);
  }
  return kNoDaemon;
}

}  // namespace hearth::cli
