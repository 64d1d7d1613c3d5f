#include "daemon/http/requests/volatile_lines.h"

#include <algorithm>

namespace hearth::http {
namespace {

using ipc::Json;

/// Of one request; each costs a move of the text after it.
constexpr int32_t kMostLines = 16;

class LineFilter {
 public:
  explicit LineFilter(const std::vector<std::string>& patterns) : patterns_(patterns) {}

  /// Takes no memory for a text in which no line matches.
  void text(std::string& text) {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string_view line = std::string_view(text).substr(begin, end - begin);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (is_volatile(line) && lines_ < kMostLines) {
        ++lines_;
        text.erase(begin, end + 1 - begin);
      } else {
        begin = end + 1;
      }
    }
  }

  /// A text, or a list of parts with texts. Anything else is refused later, by name.
  void content(Json* content) {
    if (content == nullptr) return;
    if (content->is_string()) return text(content->get_ref<std::string&>());
    if (!content->is_array()) return;
    for (Json& part : *content) {
      if (Json* const inner = member(part, "text"); inner != nullptr && inner->is_string()) {
        text(inner->get_ref<std::string&>());
      }
    }
  }

  /// The messages of the system at the beginning of a conversation.
  void messages(Json* list) {
    if (list == nullptr || !list->is_array()) return;
    for (Json& message : *list) {
      const Json* const role = member(message, "role");
      if (role == nullptr || (*role != "system" && *role != "developer")) return;
      content(member(message, "content"));
    }
  }

  static Json* member(Json& object, std::string_view name) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
  }
  int32_t lines() const { return lines_; }

 private:
  bool is_volatile(std::string_view line) const {
    return std::ranges::any_of(
        patterns_, [line](const std::string& pattern) { return matches_line(pattern, line); });
  }

  const std::vector<std::string>& patterns_;
  int32_t lines_ = 0;
};

}  // namespace

bool matches_line(std::string_view pattern, std::string_view line) {
  // After a mismatch, the last `*` takes one byte more.
  size_t at = 0, star = std::string_view::npos, taken = 0;
  for (size_t i = 0; i < line.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      taken = i;
    } else if (at < pattern.size() && pattern[at] == line[i]) {
      ++at;
      ++i;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      i = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

bool is_line_pattern(std::string_view pattern) {
  constexpr int kFewest = 4;
  return std::ranges::count_if(pattern, [](char c) { return c != '*'; }) >= kFewest &&
         pattern.find('\n') == std::string_view::npos;
}

int32_t leave_out_volatile_lines(const PromptRules& rules, Api api, Json& body) {
  if (rules.volatile_lines.empty()) return 0;
  LineFilter filter(rules.volatile_lines);
  switch (api) {
    case Api::kCompletions: break;
    case Api::kChat: filter.messages(LineFilter::member(body, "messages")); break;
    case Api::kResponses:
      filter.content(LineFilter::member(body, "instructions"));
      filter.messages(LineFilter::member(body, "input"));
      break;
    case Api::kOllamaChat: filter.messages(LineFilter::member(body, "messages")); break;
    case Api::kOllamaGenerate:
    case Api::kMessages: filter.content(LineFilter::member(body, "system")); break;
  }
  return filter.lines();
}

}  // namespace hearth::http
