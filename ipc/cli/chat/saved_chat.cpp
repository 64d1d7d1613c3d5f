#include "ipc/cli/chat/saved_chat.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <system_error>
#include <utility>

#include "ipc/files/paths.h"
#include "ipc/wire/json.h"

namespace hearth::cli {
namespace fs = std::filesystem;
namespace {

using ipc::Json;

constexpr ipc::JsonLimits kLimits{.max_bytes = 64u << 20, .max_depth = 8};
constexpr std::string_view kSuffix = ".json";

Error io_error(const fs::path& file) {
  return Error::io(fmt::format("{}: {}", file.string(), std::strerror(errno)));
}

std::string text_member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<void> write_all(int fd, std::string_view text, const fs::path& file) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return io_error(file);
    text.remove_prefix(n);
  }
  if (::fsync(fd) != 0) return io_error(file);
  return {};
}

}  // namespace

bool is_chat_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && name.front() != '.' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

std::string new_chat_name(const fs::path& folder) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d-%H%M", &local);
  std::string name = text;
  std::error_code ignored;
  for (int i = 2; fs::exists(folder / (name + std::string(kSuffix)), ignored) && i < 10'000; ++i) {
    name = fmt::format("{}-{}", text, i);
  }
  return name;
}

Result<fs::path> chats_folder() {
  const ipc::Environment environment = ipc::Environment::of_process();
  const fs::path named = environment.variable("XDG_STATE_HOME");
  fs::path state = environment.variable("HEARTH_STATE_DIR");
  if (state.empty() && !named.is_absolute() && environment.home.empty()) {
    return Error::io("no home directory, and no XDG_STATE_HOME");
  }
  if (!state.empty() && !state.is_absolute()) {
    return Error::invalid("HEARTH_STATE_DIR: want an absolute path");
  }
  // Always the directory of the user that runs this, for root and the service's user too.
  if (state.empty()) {
    state = (named.is_absolute() ? named : environment.home / ".local/state") / "hearth";
  }
  HEARTH_TRY(ipc::ensure_private_dir(state));
  fs::path folder = state / "chats";
  HEARTH_TRY(ipc::ensure_private_dir(folder));
  return folder;
}

Result<void> save_chat(const fs::path& folder, const SavedChat& chat) {
  Json messages = Json::array();
  for (const ChatMessage& message : chat.messages) {
    Json each = {{"role", message.role}, {"content", message.content}};
    if (!message.reasoning.empty()) each["reasoning"] = message.reasoning;
    if (message.cut) each["cut"] = true;
    messages.push_back(std::move(each));
  }
  const Json object = {
      {"model", chat.model}, {"system", chat.system}, {"messages", std::move(messages)}};
  const fs::path file = folder / (chat.name + std::string(kSuffix));
  const fs::path part = folder / fmt::format(".{}.{}", chat.name, ::getpid());
  const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return io_error(part);
  Result<void> written = write_all(fd, ipc::dump_json(object) + "\n", part);
  if (::close(fd) != 0 && written.ok()) written = io_error(part);
  if (written.ok() && ::rename(part.c_str(), file.c_str()) != 0) written = io_error(file);
  if (!written.ok()) ::unlink(part.c_str());
  return written;
}

Result<SavedChat> load_chat(const fs::path& folder, const std::string& name) {
  const fs::path file = folder / (name + std::string(kSuffix));
  std::ifstream in(file, std::ios::binary);
  if (!is_chat_name(name) || !in.is_open()) {
    return Error::not_found(
        fmt::format("no conversation '{}' (hearth chat --list shows those that there are)",
                    ipc::printable(name)));
  }
  const std::string text(std::istreambuf_iterator<char>(in), {});
  Result<Json> object = ipc::parse_json_object(text, kLimits);
  const auto corrupt = [&file](const std::string& why) {
    return Error::corrupt(fmt::format("{}: {}", file.string(), why));
  };
  if (!object.ok()) return corrupt(object.error().message);
  SavedChat chat;
  chat.name = name;
  chat.model = text_member(*object, "model");
  chat.system = text_member(*object, "system");
  const auto messages = object->find("messages");
  if (messages == object->end() || !messages->is_array()) return corrupt("no list of messages");
  for (const Json& each : *messages) {
    if (!each.is_object()) return corrupt("a message that is not an object");
    ChatMessage message{text_member(each, "role"), text_member(each, "content"),
                        text_member(each, "reasoning"), each.value("cut", Json(false)) == true};
    if (message.role != "user" && message.role != "assistant") return corrupt("an unknown role");
    chat.messages.push_back(std::move(message));
  }
  return chat;
}

std::vector<std::string> chat_names(const fs::path& folder) {
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (!name.ends_with(kSuffix)) continue;
    name.resize(name.size() - kSuffix.size());
    if (is_chat_name(name)) found.emplace_back(entry.last_write_time(error), std::move(name));
  }
  std::ranges::sort(found, std::greater<>());
  std::vector<std::string> names;
  for (auto& [time, name] : found) names.push_back(std::move(name));
  return names;
}

std::string messages_json(const SavedChat& chat) {
  Json messages = Json::array();
  if (!chat.system.empty()) messages.push_back({{"role", "system"}, {"content", chat.system}});
  for (const ChatMessage& message : chat.messages) {
    Json each = {{"role", message.role}, {"content", message.content}};
    if (!message.reasoning.empty()) each["reasoning_content"] = message.reasoning;
    messages.push_back(std::move(each));
  }
  return ipc::dump_json(messages);
}

}  // namespace hearth::cli
