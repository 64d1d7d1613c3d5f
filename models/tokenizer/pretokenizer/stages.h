#pragma once
// The scanners that splitting rules consist of, one for each regular expression in the
// models' tokenizer.json files. Each finds the same matches as its expression, in one pass over the
// text and without a regex engine: alternatives are tried in the expression's order, and where the
// expression would backtrack, the scanner computes the position.
//
// Every scanner is linear in the text: text scanned by a failed attempt is part of the next match.

#include <cstddef>
#include <string_view>

namespace hearth::models {

/// Bytes [begin, end) of a text. Both are the text's size if nothing was found.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
};

/// The first match at or after byte `from`, which begins a character.
using Stage = TextSpan (*)(std::string_view text, size_t from);

namespace stages {

// Words and everything between them: these match every character.

/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
TextSpan gpt2(std::string_view text, size_t from);
/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
/// | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
TextSpan llama3(std::string_view text, size_t from);
/// llama3 with \p{N} for \p{N}{1,3}
TextSpan qwen2(std::string_view text, size_t from);
/// qwen2 with [\p{L}\p{M}]+ for \p{L}+ and [^\s\p{L}\p{M}\p{N}]+ for [^\s\p{L}\p{N}]+
TextSpan qwen35(std::string_view text, size_t from);
/// qwen2 without the [\r\n]*
TextSpan seed_coder(std::string_view text, size_t from);
/// llama3 with \p{N}+ for \p{N}{1,3}
TextSpan minicpm5(std::string_view text, size_t from);
/// [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+
/// |[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*
/// |\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
TextSpan tekken(std::string_view text, size_t from);
/// tekken with (?i:'s|'t|'re|'ve|'m|'ll|'d)? after both kinds of words, and \p{N}{1,3} for \p{N}
TextSpan gpt4o(std::string_view text, size_t from);
/// \p{Han}+, then gpt4o whose words have no \p{Han}, with [\r\n]* for [\r\n/]*
TextSpan kimi(std::string_view text, size_t from);

// Words in rules with several stages: the next stage handles the text that these do not match.

/// [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
/// | ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
TextSpan deepseek3(std::string_view text, size_t from);
/// \s?[...]+ over the cased letters of Latin, Greek, Cyrillic and lesser scripts
TextSpan deepseek_cased_letters(std::string_view text, size_t from);
/// \s?[!-/:-~！-／：-～‘-‟　-。]+
TextSpan deepseek_punctuation(std::string_view text, size_t from);
/// \s+$
TextSpan trailing_space(std::string_view text, size_t from);
/// [一-龥ࠀ-一가-퟿]+
TextSpan deepseek_east_asian(std::string_view text, size_t from);
/// [一-龥぀-ゟ゠-ヿ]+
TextSpan han_and_kana(std::string_view text, size_t from);
/// \s?\p{L}+
TextSpan letters_with_space(std::string_view text, size_t from);
/// \s?\p{P}+
TextSpan punctuation_with_space(std::string_view text, size_t from);
///  ?[^(\s|.,!?…。，、।۔،)]+
TextSpan bloom(std::string_view text, size_t from);

// Runs of one kind.

/// [\r\n]
TextSpan each_newline(std::string_view text, size_t from);
/// \p{N}
TextSpan each_number(std::string_view text, size_t from);
/// \p{N}{1,3}
TextSpan numbers_by_three(std::string_view text, size_t from);
/// \p{N}+
TextSpan numbers(std::string_view text, size_t from);
/// [0-9][0-9][0-9]
TextSpan three_ascii_digits(std::string_view text, size_t from);
/// [\p{P}\$\+<=>\^~\|]+
TextSpan punctuation(std::string_view text, size_t from);
/// [\p{P}\$\+<=>\^~\|`]+
TextSpan ascii_and_other_punctuation(std::string_view text, size_t from);

}  // namespace stages
}  // namespace hearth::models
