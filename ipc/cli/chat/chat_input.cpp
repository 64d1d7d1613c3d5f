#include "ipc/cli/chat/chat_input.h"

#include <algorithm>
#include <utility>

namespace hearth::cli {
namespace {

constexpr std::string_view kFence = "\"\"\"";
constexpr const char* kMore = "... ";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

ChatInput parse_chat_line(std::string line) {
  if (is_blank(line)) return {};
  if (line.starts_with("//")) return {ChatInput::Kind::kMessage, line.substr(1), ""};
  if (!line.starts_with('/')) return {ChatInput::Kind::kMessage, std::move(line), ""};
  const size_t end = std::min(line.find(' '), line.size());
  const size_t rest = line.find_first_not_of(' ', end);
  return {ChatInput::Kind::kCommand, rest == std::string::npos ? "" : line.substr(rest),
          line.substr(1, end - 1)};
}

ChatInput read_chat_input(LineEditor& editor, const std::string& prompt) {
  std::string line;
  switch (editor.read(prompt, &line)) {
    case LineEditor::Outcome::kEnd: return {ChatInput::Kind::kEnd};
    case LineEditor::Outcome::kInterrupted: return {};
    case LineEditor::Outcome::kLine: break;
  }
  const bool fenced = line == kFence;
  if (!fenced && !line.ends_with('\\')) {
    editor.remember(line);
    return parse_chat_line(std::move(line));
  }
  std::string text;
  bool more = true;
  if (!fenced) {
    line.pop_back();
    text = line + "\n";
  }
  while (more) {
    const LineEditor::Outcome outcome = editor.read(kMore, &line);
    if (outcome == LineEditor::Outcome::kInterrupted) return {};
    if (outcome == LineEditor::Outcome::kEnd || (fenced && line == kFence)) break;
    more = fenced || line.ends_with('\\');
    if (!fenced && more) line.pop_back();
    text += line + "\n";
  }
  if (text.ends_with('\n')) text.pop_back();
  if (is_blank(text)) return {};
  return {ChatInput::Kind::kMessage, std::move(text), ""};
}

}  // namespace hearth::cli
