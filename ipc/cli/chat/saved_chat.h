#pragma once
// A conversation on disk: $XDG_STATE_HOME/hearth/chats/NAME.json (else ~/.local/state), one file
// each, readable by its user alone, replaced as a whole so that it is never half written.

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::cli {

struct ChatMessage {
  std::string role;  ///< user or assistant
  std::string content;
  std::string reasoning{};  ///< of the assistant
  bool cut = false;         ///< the answer was stopped
  bool operator==(const ChatMessage&) const = default;
};

struct SavedChat {
  std::string name;
  std::string model;
  std::string system;
  std::vector<ChatMessage> messages;
};

/// Letters, digits, - _ and . (not in front), at most 64.
bool is_chat_name(std::string_view name);
/// "2026-11-22-1405", with "-2" and so on behind it where that is taken.
std::string new_chat_name(const std::filesystem::path& folder);

/// Where they are; made, for its user alone, where it is not. kIo with the reason.
Result<std::filesystem::path> chats_folder();

Result<void> save_chat(const std::filesystem::path& folder, const SavedChat& chat);
/// kNotFound, kIo, kCorrupt: say which file and why.
Result<SavedChat> load_chat(const std::filesystem::path& folder, const std::string& name);
/// The newest first.
std::vector<std::string> chat_names(const std::filesystem::path& folder);

/// {"role":...,"content":...} of all of them, the system's in front, for a request's `messages`.
std::string messages_json(const SavedChat& chat);

}  // namespace hearth::cli
