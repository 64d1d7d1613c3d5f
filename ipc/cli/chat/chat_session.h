#pragma once
// A conversation at the terminal: what was said, what can be done with it, and where it is kept.

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

  /// What there is so far, and how to go on.
  void greet() const;
  /// The user's words, and the answer to them. The words are saved before they are asked, the
  /// answer once it has come. False: none came.
  bool say(const std::string& text);
  /// False: the program shall end.
  bool command(const ChatInput& input);
  /// The daemon went away.
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
