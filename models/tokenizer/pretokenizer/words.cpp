// The rules of the GPT family, which split a whole text in one stage.

#include "models/tokenizer/pretokenizer/code_ranges.h"
#include "models/tokenizer/pretokenizer/stage_parts.h"

namespace hearth::models::stages {
namespace {

// 's|'t|'re|'ve|'m|'ll|'d: in lower case only.
size_t match_lower_contraction(std::string_view text, size_t at) {
  const size_t end = match_contraction(text, at);
  for (size_t i = at + 1; i < end; ++i) {
    if (text[i] < 'a' || text[i] > 'z') return at;
  }
  return end;
}

size_t match_gpt2(std::string_view text, size_t at) {
  const Char c = char_at(text, at);
  if (c.code == '\'') {
    const size_t end = match_lower_contraction(text, at);
    if (end > at) return end;
  }
  const size_t start = c.code == ' ' ? at + 1 : at;
  const Char first = char_at(text, start);
  if (first.is(kLetter)) return skip(text, start, kLetter);
  if (first.is(kNumber)) return skip(text, start, kNumber);
  if (first.is_none_of(kSpace)) return skip_none_of(text, start, kSpace | kLetter | kNumber);
  return match_spaces(text, at);
}

enum class Tail { kNone, kNewlines, kNewlinesAndSlashes };

// End of ` ?[^\s\p{L}\p{N}]+` and its tail at `at`, or `at`. kAlsoNot: further classes that the run
// excludes.
template <Tail kTail, uint8_t kAlsoNot = 0>
size_t match_others(std::string_view text, size_t at, const Char& c) {
  constexpr uint8_t kNot = kSpace | kLetter | kNumber | kAlsoNot;
  const size_t start = c.code == ' ' ? at + 1 : at;
  size_t end = skip_none_of(text, start, kNot);
  if (end == start) return at;
  if constexpr (kTail == Tail::kNewlines) end = skip_newlines(text, end);
  if constexpr (kTail == Tail::kNewlinesAndSlashes) {
    while (end < text.size() && (text[end] == '\r' || text[end] == '\n' || text[end] == '/')) ++end;
  }
  return end;
}

// [^\r\n\p{L}\p{N}]: the characters that may precede a word.
bool may_lead_word(const Char& c) { return c.is_none_of(kLetter | kNumber) && !is_newline(c); }

// kMarks: marks belong to words. kDigits: the longest run of numbers, 0 for any length.
template <bool kMarks, int kDigits, Tail kTail>
size_t match_words(std::string_view text, size_t at) {
  constexpr uint8_t kWord = kMarks ? kLetter | kMark : kLetter;
  const Char c = char_at(text, at);
  if (c.code == '\'') {
    const size_t end = match_contraction(text, at);
    if (end > at) return end;
  }
  if (may_lead_word(c)) {
    const size_t end = skip(text, at + c.bytes, kWord);
    if (end > at + c.bytes) return end;
  }
  if (c.is(kWord)) return skip(text, at, kWord);
  if (c.is(kNumber)) return skip_numbers(text, at, kDigits);
  const size_t end = match_others < kTail, kMarks ? kMark : 0 > (text, at, c);
  return end > at ? end : match_spaces_by_lines(text, at);
}

// Words that end where an upper-case letter follows a lower-case one. Both parts include caseless
// letters and marks.
constexpr uint8_t kCaseless = kOtherLetter | kMark;
constexpr uint8_t kUpperPart = kUpper | kCaseless;
constexpr uint8_t kLowerPart = kLower | kCaseless;

// Script=Han of Unicode 15, in which some are symbols, numbers or marks.
constexpr CodeRange kHan[] = {
    {0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},
    {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},   {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3},
    {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739}, {0x2B740, 0x2B81D},
    {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2F800, 0x2FA1D}, {0x30000, 0x3134A},
    {0x31350, 0x323AF},
};
bool is_han(const Char& c) { return c.code >= kHan[0].first && contains(kHan, c.code); }

// kHanApart: Han characters are in no word.
template <bool kHanApart>
bool is_in_word(const Char& c, uint8_t classes) {
  return c.is(classes) && !(kHanApart && c.is(kCaseless) && is_han(c));
}
template <bool kHanApart>
size_t skip_word(std::string_view text, size_t at, uint8_t classes) {
  for (Char c = char_at(text, at); is_in_word<kHanApart>(c, classes); c = char_at(text, at)) {
    at += c.bytes;
  }
  return at;
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ at `at`, or `at`.
template <bool kHanApart>
size_t match_lower_word(std::string_view text, size_t at) {
  size_t end = at, past_caseless = at;
  Char c = char_at(text, end);
  for (; is_in_word<kHanApart>(c, kUpperPart); c = char_at(text, end)) {
    end += c.bytes;
    if (c.is(kCaseless)) past_caseless = end;
  }
  if (c.is(kLower)) return skip_word<kHanApart>(text, end, kLowerPart);
  // The first part has taken a character that the second needs and gives back as little as
  // possible.
  return past_caseless;
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]* at `at`, or `at`.
template <bool kHanApart>
size_t match_upper_word(std::string_view text, size_t at) {
  const size_t end = skip_word<kHanApart>(text, at, kUpperPart);
  return end == at ? at : skip_word<kHanApart>(text, end, kLowerPart);
}

template <bool kHanApart>
size_t match_cased_word(std::string_view text, size_t at, const Char& c) {
  const bool may_lead = may_lead_word(c);
  const size_t led = at + c.bytes;
  for (const auto match : {match_lower_word<kHanApart>, match_upper_word<kHanApart>}) {
    if (may_lead) {
      const size_t end = match(text, led);
      if (end > led) return end;
    }
    if (const size_t end = match(text, at); end > at) return end;
  }
  return at;
}

template <bool kContractions, int kDigits, Tail kTail, bool kHanApart = false>
size_t match_cased_words(std::string_view text, size_t at) {
  const Char c = char_at(text, at);
  if constexpr (kHanApart) {
    size_t past_han = at;
    for (Char han = c; is_han(han); han = char_at(text, past_han)) past_han += han.bytes;
    if (past_han > at) return past_han;
  }
  size_t end = match_cased_word<kHanApart>(text, at, c);
  if (end > at) return kContractions ? match_contraction(text, end) : end;
  if (c.is(kNumber)) return skip_numbers(text, at, kDigits);
  end = match_others<kTail>(text, at, c);
  return end > at ? end : match_spaces_by_lines(text, at);
}

}  // namespace

TextSpan gpt2(std::string_view text, size_t from) { return search<match_gpt2>(text, from); }

TextSpan llama3(std::string_view text, size_t from) {
  return search<match_words<false, 3, Tail::kNewlines>>(text, from);
}

TextSpan qwen2(std::string_view text, size_t from) {
  return search<match_words<false, 1, Tail::kNewlines>>(text, from);
}

TextSpan qwen35(std::string_view text, size_t from) {
  return search<match_words<true, 1, Tail::kNewlines>>(text, from);
}

TextSpan seed_coder(std::string_view text, size_t from) {
  return search<match_words<false, 1, Tail::kNone>>(text, from);
}

TextSpan minicpm5(std::string_view text, size_t from) {
  return search<match_words<false, 0, Tail::kNewlines>>(text, from);
}

TextSpan tekken(std::string_view text, size_t from) {
  return search<match_cased_words<false, 1, Tail::kNewlinesAndSlashes>>(text, from);
}

TextSpan gpt4o(std::string_view text, size_t from) {
  return search<match_cased_words<true, 3, Tail::kNewlinesAndSlashes>>(text, from);
}

TextSpan kimi(std::string_view text, size_t from) {
  return search<match_cased_words<true, 3, Tail::kNewlines, true>>(text, from);
}

}  // namespace hearth::models::stages
