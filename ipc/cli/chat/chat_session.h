#pragma once
// A conversation at the terminal: its messages, the commands on them, and the file that keeps them.

#include <filesystem>
#include <optional>
#include <string>

#include "ipc/cli/chat/answer_stream.h"
#include "ipc/cli/chat/chat_input.h"
#include "ipc/cli/chat/chat_options.h"
#include "ipc/cli/chat/saved_chat.h"
#include "ipc/client/client.h"

namespace hearth::cli {

class ChatSession {
 public:
  ChatSession(ipc::Client client, std::filesystem::path folder, SavedChat chat,
              const ChatOptions& options)
      : client_(std::move(client)),
        folder_(std::move(folder)),
        chat_(std::move(chat)),
        options_(options) {}

  /// Prints the conversation so far and how to continue.
  void greet() const;
  /// Sends the user's message and prints the answer. The message is saved before it is sent, the
  /// answer when it is complete. False: there was no answer.
  bool send(const std::string& text);
  /// Executes a command. False: the program should end.
  bool command(const ChatInput& input);
  /// Whether the daemon was lost.
  bool lost() const { return lost_; }

 private:
  bool ask();
  void retry();
  void undo();
  void edit(const std::string& given);
  void set_system(const std::string& text);
  void rename(const std::string& name);
  void stats() const;
  void show() const;
  void save();
  Result<ipc::GenerateRequest> request() const;

  ipc::Client client_;
  const std::filesystem::path folder_;
  SavedChat chat_;
  const ChatOptions& options_;
  bool hide_reasoning_ = options_.hide_reasoning;
  bool saved_ = false;
  bool lost_ = false;
  std::optional<ipc::DoneEvent> last_;
};

}  // namespace hearth::cli
