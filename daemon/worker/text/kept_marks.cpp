#include "daemon/worker/text/kept_marks.h"

#include <fmt/core.h>

#include <array>
#include <optional>
#include <utility>

#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace {

using ipc::Json;

constexpr int64_t kMostSeconds =
    30 * 24 * 3600;  // as of a whole prompt: ipc/schema/field_table.cpp
constexpr int64_t kMostBytes = 16 << 20;

/// Removes the member and returns its value, an integer from 0 to `most`.
Result<std::optional<int64_t>> take_integer(Json& object, const char* name, int64_t most,
                                            std::string_view list, size_t index) {
  const auto found = object.find(name);
  if (found == object.end()) return std::optional<int64_t>();
  const Json value = std::move(*found);
  object.erase(found);
  if (value.is_number_unsigned() && std::cmp_less_equal(value.get<uint64_t>(), most)) {
    return std::optional<int64_t>(value.get<int64_t>());
  }
  return Error::invalid(fmt::format("{}[{}].{}: met {}, want an integer from 0 to {}", list, index,
                                    name, ipc::describe(value), most),
                        std::string(list));
}

Result<void> take_marks_of(Json& conversation, const char* list, std::vector<KeepMark>& marks) {
  const auto found = conversation.find(list);
  if (found == conversation.end() || !found->is_array()) return {};
  const bool messages = std::string_view(list) == "messages";
  for (size_t i = 0; i < found->size(); ++i) {
    Json& object = (*found)[i];
    if (!object.is_object()) continue;
    HEARTH_ASSIGN_OR_RETURN(const std::optional<int64_t> seconds,
                            take_integer(object, "cache_keep_s", kMostSeconds, list, i));
    std::optional<int64_t> bytes;
    if (messages) {
      HEARTH_ASSIGN_OR_RETURN(bytes, take_integer(object, "cache_keep_bytes", kMostBytes, list, i));
    }
    KeepMark mark{messages ? narrow<int64_t>(i) : -1, std::string::npos, seconds.value_or(0)};
    if (bytes.value_or(0) > 0) {
      const auto content = object.find("content");
      if (!seconds || content == object.end() || !content->is_string()) {
        return Error::invalid(fmt::format("messages[{}].cache_keep_bytes: met it without {}", i,
                                          seconds ? "a text as content" : "cache_keep_s"),
                              "messages");
      }
      mark.bytes = *bytes;
    }
    if (mark.seconds > 0) marks.push_back(mark);
  }
  return {};
}

/// Replaces letters and digits and the first character, so that a template which drops a part of
/// the text or searches it for a word still renders a different text.
std::string changed(std::string_view text) {
  constexpr auto kOther = [] {
    std::array<char, 256> out{};
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(i);
    for (int i = 0; i < 26; ++i) {
      out['a' + i] = static_cast<char>('a' + (i + 1) % 26);
      out['A' + i] = static_cast<char>('A' + (i + 1) % 26);
    }
    for (int i = 0; i < 10; ++i) {
      out['0' + i] = static_cast<char>('0' + (i + 1) % 10);
    }
    return out;
  }();
  std::string out;
  if (text.empty()) return out;
  out.reserve(text.size() + 1);
  if (kOther[byte_of(text.front())] == text.front()) out += 'x';
  for (const char c : text) out += kOther[byte_of(c)];
  return out;
}

/// Changes every text in it, except those that give a type or link items.
void change(Json& value) {
  if (value.is_string()) {
    value = changed(value.get_ref<const std::string&>());
  } else if (value.is_array()) {
    for (Json& item : value) change(item);
  } else if (value.is_object()) {
    for (auto& [key, member] : value.items()) {
      if (key == "role" || key == "type" || key == "id" || key == "tool_call_id") continue;
      change(member);
    }
  }
}

}  // namespace

Result<std::vector<KeepMark>> take_marks(Json& conversation) {
  std::vector<KeepMark> marks;
  HEARTH_TRY(take_marks_of(conversation, "tools", marks));
  HEARTH_TRY(take_marks_of(conversation, "messages", marks));
  if (marks.size() > kMaxKeepMarks) {
    return Error::invalid(
        fmt::format("messages: met {} marks to keep what is before them, want at most {}",
                    marks.size(), kMaxKeepMarks),
        "messages");
  }
  return marks;
}

Json changed_behind(Json conversation, const KeepMark& mark) {
  Json& messages = conversation["messages"];
  for (size_t i = mark.message + 1; i < messages.size(); ++i) {
    change(messages[i]);
  }
  if (mark.message < 0 || mark.bytes == std::string::npos) return conversation;
  Json& content = messages[mark.message]["content"];
  const std::string& text = content.get_ref<const std::string&>();
  size_t at = std::min(mark.bytes, text.size());
  const auto within_character = [&] {
    return at > 0 && at < text.size() && (text[at] & 0xC0) == 0x80;
  };
  while (within_character()) --at;
  content = text.substr(0, at) + changed(std::string_view(text).substr(at));
  return conversation;
}

}  // namespace hearth::worker
