// Stages that match runs of one kind of character, in rules with several stages.

#include "models/tokenizer/pretokenizer/code_ranges.h"
#include "models/tokenizer/pretokenizer/stage_parts.h"

namespace hearth::models::stages {
namespace {

template <bool (*kTakes)(const Char&)>
size_t match_run(std::string_view text, size_t at) {
  for (Char c = char_at(text, at); c.bytes != 0 && kTakes(c); c = char_at(text, at)) at += c.bytes;
  return at;
}

// \s?[...]+: if no run follows the space, a space that is itself in the set counts as part of the
// run.
template <bool (*kTakes)(const Char&)>
size_t match_run_with_space(std::string_view text, size_t at) {
  const Char c = char_at(text, at);
  if (c.is(kSpace)) {
    const size_t end = match_run<kTakes>(text, at + c.bytes);
    if (end > at + c.bytes) return end;
  }
  return match_run<kTakes>(text, at);
}

// ` ?[...]+`
template <bool (*kTakes)(const Char&)>
size_t match_run_with_blank(std::string_view text, size_t at) {
  const size_t start = text[at] == ' ' ? at + 1 : at;
  const size_t end = match_run<kTakes>(text, start);
  return end > start ? end : at;
}

size_t match_newline(std::string_view text, size_t at) {
  return text[at] == '\r' || text[at] == '\n' ? at + 1 : at;
}

template <int kMost>
size_t match_numbers(std::string_view text, size_t at) {
  return skip_numbers(text, at, kMost);
}

size_t match_three_ascii_digits(std::string_view text, size_t at) {
  if (text.size() - at < 3) return at;
  for (size_t i = at; i < at + 3; ++i) {
    if (text[i] < '0' || text[i] > '9') return at;
  }
  return at + 3;
}

bool is_letter(const Char& c) { return c.is(kLetter); }
bool is_unicode_punctuation(const Char& c) { return c.is(kPunctuation); }

// \p{P} and ASCII symbols except the backtick.
bool is_punctuation(const Char& c) {
  return c.is(kPunctuation) || (c.code < 0x80 && c.is(kSymbol) && c.code != '`');
}
bool is_punctuation_or_backtick(const Char& c) {
  return c.is(kPunctuation) || (c.code < 0x80 && c.is(kSymbol));
}

// Letters with case in the Unicode version that the rule's authors used.
constexpr CodeRange kCasedLetters[] = {
    {'A', 'Z'},         {'a', 'z'},         {0xB5, 0xB5},       {0xC0, 0xD6},
    {0xD8, 0xF6},       {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},
    {0x295, 0x2AF},     {0x370, 0x373},     {0x376, 0x377},     {0x37B, 0x37D},
    {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},     {0x38C, 0x38C},
    {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
    {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
    {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},
    {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},
    {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},
    {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},
    {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
    {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},
    {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},
    {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
    {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},
    {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};
bool is_cased_letter(const Char& c) {
  return c.code < 0x80 ? c.is(kLetter) : contains(kCasedLetters, c.code);
}

constexpr CodeRange kDeepseekPunctuation[] = {
    {'!', '/'}, {':', '~'}, {0x2018, 0x201F}, {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E},
};
bool is_deepseek_punctuation(const Char& c) { return contains(kDeepseekPunctuation, c.code); }

bool is_deepseek_east_asian(const Char& c) {
  return (c.code >= 0x800 && c.code <= 0x9FA5) || (c.code >= 0xAC00 && c.code <= 0xD7FF);
}

bool is_han_or_kana(const Char& c) {
  return (c.code >= 0x4E00 && c.code <= 0x9FA5) || (c.code >= 0x3040 && c.code <= 0x30FF);
}

// Words of bloom exclude spaces, ( | . , ! ? and the full stops and commas of Chinese, Devanagari,
// Urdu and Arabic.
bool is_in_bloom_word(const Char& c) {
  switch (c.code) {
    case '(':
    case '|':
    case '.':
    case ',':
    case '!':
    case '?':
    case ')':
    case 0x2026:
    case 0x3002:
    case 0xFF0C:
    case 0x3001:
    case 0x964:
    case 0x6D4:
    case 0x60C: return false;
    default: return !c.is(kSpace);
  }
}

size_t match_deepseek3(std::string_view text, size_t at) {
  constexpr uint8_t kWord = kLetter | kMark;
  constexpr uint8_t kSigns = kPunctuation | kSymbol;
  const Char c = char_at(text, at);
  const Char next = char_at(text, at + c.bytes);
  if (c.code < 0x80 && c.is(kSigns) && next.code < 0x80 && next.is(kLetter)) {
    size_t end = at + 2;
    while (end < text.size() && char_at(text, end).code < 0x80 && char_at(text, end).is(kLetter))
      ++end;
    return end;
  }
  if (c.is_none_of(kLetter | kSigns) && !is_newline(c) && next.is(kWord))
    return skip(text, at + c.bytes, kWord);
  if (c.is(kWord)) return skip(text, at, kWord);
  const size_t start = c.code == ' ' ? at + 1 : at;
  const size_t end = skip(text, start, kSigns);
  if (end > start) return skip_newlines(text, end);
  return c.is(kSpace) ? match_spaces_by_lines(text, at) : at;
}

}  // namespace

TextSpan deepseek3(std::string_view text, size_t from) {
  return search<match_deepseek3>(text, from);
}

TextSpan deepseek_cased_letters(std::string_view text, size_t from) {
  return search<match_run_with_space<is_cased_letter>>(text, from);
}

TextSpan deepseek_punctuation(std::string_view text, size_t from) {
  return search<match_run_with_space<is_deepseek_punctuation>>(text, from);
}

TextSpan trailing_space(std::string_view text, size_t from) {
  // Searching from each space of a run would be quadratic.
  size_t begin = text.size();
  for (size_t at = from; at < text.size();) {
    const Char c = char_at(text, at);
    if (!c.is(kSpace)) {
      begin = text.size();
    } else if (begin == text.size()) {
      begin = at;
    }
    at += c.bytes;
  }
  return {begin, text.size()};
}

TextSpan deepseek_east_asian(std::string_view text, size_t from) {
  return search<match_run<is_deepseek_east_asian>>(text, from);
}

TextSpan han_and_kana(std::string_view text, size_t from) {
  return search<match_run<is_han_or_kana>>(text, from);
}

TextSpan letters_with_space(std::string_view text, size_t from) {
  return search<match_run_with_space<is_letter>>(text, from);
}

TextSpan punctuation_with_space(std::string_view text, size_t from) {
  return search<match_run_with_space<is_unicode_punctuation>>(text, from);
}

TextSpan bloom(std::string_view text, size_t from) {
  return search<match_run_with_blank<is_in_bloom_word>>(text, from);
}

TextSpan each_newline(std::string_view text, size_t from) {
  return search<match_newline>(text, from);
}

TextSpan each_number(std::string_view text, size_t from) {
  return search<match_numbers<1>>(text, from);
}

TextSpan numbers_by_three(std::string_view text, size_t from) {
  return search<match_numbers<3>>(text, from);
}

TextSpan numbers(std::string_view text, size_t from) {
  return search<match_numbers<0>>(text, from);
}

TextSpan three_ascii_digits(std::string_view text, size_t from) {
  return search<match_three_ascii_digits>(text, from);
}

TextSpan punctuation(std::string_view text, size_t from) {
  return search<match_run<is_punctuation>>(text, from);
}

TextSpan ascii_and_other_punctuation(std::string_view text, size_t from) {
  return search<match_run<is_punctuation_or_backtick>>(text, from);
}

}  // namespace hearth::models::stages
