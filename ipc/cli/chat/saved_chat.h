#pragma once
// Conversations on disk: $XDG_STATE_HOME/hearth/chats/NAME.json (else ~/.local/state), one file
// each, readable only by its user and replaced atomically.

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::cli {

struct ChatMessage {
  std::string role;  ///< user or assistant
  std::string content;
  std::string reasoning{};  ///< the assistant's
  bool cut = false;         ///< the answer was stopped
  bool operator==(const ChatMessage&) const = default;
};

struct SavedChat {
  std::string name;
  std::string model;
  std::string system;
  std::vector<ChatMessage> messages;
};

/// Whether `name` is valid: letters, digits, - _ and . (not first), at most 64 characters.
bool is_chat_name(std::string_view name);
/// A new name: "2026-11-22-1405", followed by "-2" and so on if that is taken.
std::string new_chat_name(const std::filesystem::path& folder);

/// The directory of conversations; created with mode 0700 if absent. kIo with the reason.
Result<std::filesystem::path> chats_folder();

Result<void> save_chat(const std::filesystem::path& folder, const SavedChat& chat);
/// kNotFound, kIo, kCorrupt name the file and the reason.
Result<SavedChat> load_chat(const std::filesystem::path& folder, const std::string& name);
/// The newest first.
std::vector<std::string> chat_names(const std::filesystem::path& folder);

/// All messages as {"role":...,"content":...}, the system message first, for a request's
/// `messages`.
std::string messages_json(const SavedChat& chat);

}  // namespace hearth::cli
