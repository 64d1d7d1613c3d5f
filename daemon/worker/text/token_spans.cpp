#include "daemon/worker/text/token_spans.h"

#include <algorithm>

#include "kernels/base/chars.h"

namespace hearth::worker {
namespace {

bool begins_with(std::string_view text, std::string_view piece, bool fold_case) {
  if (text.size() < piece.size()) return false;
  return std::equal(piece.begin(), piece.end(), text.begin(), [fold_case](char a, char b) {
    return a == b || (fold_case && ascii_lower(a) == ascii_lower(b));
  });
}

size_t white_space_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && std::string_view(" \t\r\n").find(text[end]) != text.npos) ++end;
  return end - at;
}

}  // namespace

std::vector<std::optional<ByteSpan>> token_spans(const models::Tokenizer& tokenizer,
                                                 std::span<const int32_t> ids,
                                                 std::string_view text) {
  const bool drops_space = tokenizer.kind() == "bert" || tokenizer.kind() == "t5";
  const bool fold_case = tokenizer.kind() == "bert";
  std::vector<std::optional<ByteSpan>> spans;
  size_t at = 0;
  for (const int32_t id : ids) {
    const std::string_view rest = text.substr(at);
    const bool control = tokenizer.is_control(id);
    std::string_view piece = control ? tokenizer.entry(id) : tokenizer.piece(id);
    size_t skipped = 0;
    if (!begins_with(rest, piece, fold_case)) {
      // A control token that the text does not contain was added: it stands for no bytes.
      const size_t blanks = white_space_at(text, at);
      if (control && !(blanks > 0 && begins_with(rest.substr(blanks), piece, false))) {
        spans.push_back(ByteSpan{at, at});
        continue;
      }
      if (control || drops_space) skipped = blanks;
      if (!begins_with(rest.substr(skipped), piece, fold_case) && piece.starts_with(' ')) {
        piece.remove_prefix(1);  // the added leading space
      }
      if (!begins_with(rest.substr(skipped), piece, fold_case)) break;
    }
    at += skipped;
    spans.push_back(ByteSpan{at, at + piece.size()});
    at += piece.size();
  }
  spans.resize(ids.size());
  return spans;
}

}  // namespace hearth::worker
