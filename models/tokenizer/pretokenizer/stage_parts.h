#pragma once
// Parts that several stages share. For use in this folder.

#include "models/tokenizer/pretokenizer/stages.h"
#include "models/tokenizer/text/char_classes.h"

namespace hearth::models::stages {

/// The first match at or after `from`. kMatch(text, at) returns the end of a match at `at`, or `at`
/// if there is none.
template <size_t (*kMatch)(std::string_view, size_t)>
TextSpan search(std::string_view text, size_t from) {
  for (size_t at = from; at < text.size(); at += char_at(text, at).bytes) {
    const size_t end = kMatch(text, at);
    if (end > at) return {at, end};
  }
  return {text.size(), text.size()};
}

inline bool is_newline(const Char& c) { return c.code == '\r' || c.code == '\n'; }

/// End of [\r\n]* at `at`.
inline size_t skip_newlines(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] == '\r' || text[at] == '\n')) ++at;
  return at;
}

/// End of \p{N}{1,most} at `at`, which is a number; most == 0: without bound.
inline size_t skip_numbers(std::string_view text, size_t at, int most) {
  if (most == 0) return skip(text, at, kNumber);
  Char c = char_at(text, at);
  for (int taken = 0; taken < most && c.is(kNumber); ++taken) {
    at += c.bytes;
    c = char_at(text, at);
  }
  return at;
}

/// End of \s+(?!\S)|\s+ at `at`, which is a space: the whole run at the end of the text; before
/// other text all but its last character, unless the run has only one.
inline size_t match_spaces(std::string_view text, size_t at) {
  size_t end = at, last = at;
  for (Char c = char_at(text, end); c.is(kSpace); c = char_at(text, end)) {
    last = end;
    end += c.bytes;
  }
  return end == text.size() || last == at ? end : last;
}

/// End of \s*[\r\n]+|\s+(?!\S)|\s+ at `at`, which is a space: up to the run's last newline if it
/// has one.
inline size_t match_spaces_by_lines(std::string_view text, size_t at) {
  size_t end = at, last = at, past_newline = at;
  for (Char c = char_at(text, end); c.is(kSpace); c = char_at(text, end)) {
    last = end;
    end += c.bytes;
    if (is_newline(c)) past_newline = end;
  }
  if (past_newline > at) return past_newline;
  return end == text.size() || last == at ? end : last;
}

/// End of (?i:'s|'t|'re|'ve|'m|'ll|'d) at `at`, or `at` if there is none.
inline size_t match_contraction(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at, 3);
  if (rest.size() < 2 || rest[0] != '\'') return at;
  // An ASCII letter of either case; other bytes become none of the letters below.
  const auto letter = [&](size_t i) -> char {
    return i < rest.size() ? static_cast<char>(rest[i] | 0x20) : '\0';
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return at + 2;
    case 'r':
    case 'v': return letter(2) == 'e' ? at + 3 : at;
    case 'l': return letter(2) == 'l' ? at + 3 : at;
    default: break;
  }
  // The long s is an s under case folding.
  return rest.substr(1, 2) == "\xC5\xBF" ? at + 3 : at;
}

}  // namespace hearth::models::stages
