#include "models/convert/split_rules.h"

#include <algorithm>
#include <array>

#include "models/tokenizer/text/compose.h"

namespace hearth::models {
namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kEachNumber = R"(\p{N})", kNumbersByThree = R"(\p{N}{1,3})",
                           kEachNewline = R"([\r\n])", kEastAsian = "[一-龥ࠀ-一가-퟿]+";
// In NFC, in which some ends of ranges are other characters.
constexpr std::string_view kCasedLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr std::string_view kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Rule {
  std::string_view name;
  std::array<std::string_view, 6> expressions;  // empty ones after the last
};
constexpr Rule kRules[] = {
    {"gpt-2", {kGpt2Expression}},
    {"olmo", {kGpt2Expression}},
    {"smollm", {kEachNumber, kGpt2Expression}},
    {"command-r", {kEachNumber, kGpt2Expression}},
    {"llama-bpe", {kLlama3}},
    {"dbrx", {kLlama3}},
    {"qwen2", {kQwen2}},
    {"stablelm2", {kQwen2}},
    {"qwen35", {kQwen35}},
    {"seed-coder", {kSeedCoder}},
    {"gpt-4o", {kGpt4o}},
    {"tekken", {kTekken}},
    {"deepseek-llm",
     {kEachNewline, kCasedLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", kEastAsian,
      kEachNumber}},
    {"deepseek-coder", {kEachNewline, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kEastAsian, kEachNumber}},
    {"deepseek-v3", {kNumbersByThree, "[一-龥぀-ゟ゠-ヿ]+", kDeepseek3}},
};

/// Composed, and with line ends as escapes: some files have the characters themselves.
std::string in_one_form(std::string_view expression) {
  std::string out;
  for (const char c : compose(expression)) {
    if (c == '\r') {
      out += R"(\r)";
    } else if (c == '\n') {
      out += R"(\n)";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string_view split_rule_name(const SplitSteps& steps) {
  std::vector<std::string> met;
  for (const std::string& expression : steps.expressions) met.push_back(in_one_form(expression));
  std::string_view name;
  for (const Rule& rule : kRules) {
    const auto end = std::ranges::find(rule.expressions, std::string_view());
    const auto same = [](std::string_view wanted, const std::string& expression) {
      return in_one_form(wanted) == expression;
    };
    if (!std::equal(rule.expressions.begin(), end, met.begin(), met.end(), same)) continue;
    const PreTokenizer& known = *PreTokenizer::find(rule.name);
    if (known.composes != steps.composes) continue;
    if (name.empty() || known.whole_pieces_first == steps.whole_pieces_first) name = rule.name;
  }
  return name;
}

}  // namespace hearth::models
