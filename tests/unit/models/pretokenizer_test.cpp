#include "models/tokenizer/pretokenizer/pretokenizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>
#include <span>

#include "models/tokenizer/text/char_classes.h"
#include "tests/skip.h"
#include "tests/unit/models/regex_oracle.h"

namespace hearth::models {
namespace {

using Strings = std::vector<std::string>;

const std::string kContraction = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";
const std::string kSpaces = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string llama3(const std::string& numbers, const std::string& others) {
  return kContraction + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)" + numbers + "|" + others + "|" + kSpaces;
}

std::string cased(const std::string& contraction, const std::string& numbers) {
  return R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" +
         contraction +
         R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" +
         contraction + "|" + numbers + R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" + kSpaces;
}

const std::string kOthers = R"( ?[^\s\p{L}\p{N}]+[\r\n]*)";
const std::string kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
const std::string kHanAndMore = "[一-龥ࠀ-一가-퟿]+";

struct Rule {
  Strings names;
  Strings patterns;
};

// The expressions as in the models' tokenizer.json files. (Characters that editors may replace by
// their canonical equivalents are escaped.)
const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4", "gigachat", "a.x-4.0",
        "mellum", "granite-docling", "roberta-bpe", "modern-bert", "jina-es", "jina-de",
        "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code"},
       {kGpt2}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"},
       {R"(\p{N})", kGpt2}},
      {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
        "jina-v5-nano", "dbrx", "smaug-bpe", "glm4", "chatglm-bpe"},
       {llama3(R"(\p{N}{1,3})", kOthers)}},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan",
        "solar-open", "grok-2"},
       {llama3(R"(\p{N})", kOthers)}},
      {{"qwen35"},
       {kContraction + R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" +
        kSpaces}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"},
       {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
        R"(\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {{"seed-coder"}, {llama3(R"(\p{N}{1})", R"( ?[^\s\p{L}\p{N}\r\n]+)")}},
      {{"minicpm5"}, {R"(\p{N}{1,3})", llama3(R"(\p{N}+)", kOthers)}},
      {{"tekken"}, {cased("", R"(\p{N})")}},
      {{"gpt-4o", "llama4", "kanana2", "minimax-m2"}, {cased(kContraction + "?", R"(\p{N}{1,3})")}},
      {{"kimi-k2"},
       {R"(\p{sc:Han}+|[^\r\n\p{L}\p{N}]?(?:(?!\p{sc:Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*)"
        R"((?:(?!\p{sc:Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+)" +
        kContraction +
        R"(?|[^\r\n\p{L}\p{N}]?(?:(?!\p{sc:Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+)"
        R"((?:(?!\p{sc:Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*)" +
        kContraction + R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" + kSpaces}},
      {{"deepseek-llm"},
       {R"([\r\n])",
        R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ)"
        R"(Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1f7d}ᾀ-ᾴᾶ-ᾼ\x{1fbe}ῂ-ῄῆ-ῌῐ-\x{1fd3}ῖ-\x{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳ)"
        R"(Ꙁ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)",
        R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", kHanAndMore, R"(\p{N})"}},
      {{"deepseek-coder"}, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kHanAndMore, R"(\p{N})"}},
      {{"deepseek-v3", "step35", "hunyuan-dense", "joyai-llm"},
       {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
        R"( ?[\p{P}\p{S}]+[\r\n]*|)" +
            kSpaces}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom}},
      {{"viking"}, {kBloom, R"(\p{N})"}},
  };
  return all;
}

std::string utf8(uint32_t code) {
  std::string out;
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code >> 6));
  } else {
    if (code < 0x10000) {
      out.push_back(static_cast<char>(0xE0 | code >> 12));
    } else {
      out.push_back(static_cast<char>(0xF0 | code >> 18));
      out.push_back(static_cast<char>(0x80 | (code >> 12 & 0x3F)));
    }
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
  }
  out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  return out;
}

// PCRE2 here may have an older Unicode than utf8proc, and its \s includes U+180E, which is not
// White_Space.
const std::vector<bool>& codes_to_compare() {
  static const std::vector<bool> filled = [] {
    std::vector<bool> known(0x110000);
    const RegexOracle unassigned({R"(\p{Cn})"});
    for (uint32_t code = 0; code < known.size(); ++code) {
      if (code >= 0xD800 && code <= 0xDFFF) continue;
      const bool is_new = char_classes(code) != 0 && !unassigned.matches(utf8(code)).empty();
      known[code] = code != 0x180E && !is_new;
    }
    return known;
  }();
  return filled;
}

TEST_CASE("character classes are Unicode's") {
  const std::vector<bool>& compare = codes_to_compare();
  std::string text;
  std::vector<uint32_t> code_at;  // by byte
  size_t num_compared = 0;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (!compare[code]) continue;
    ++num_compared;
    text += utf8(code);
    code_at.resize(text.size(), code);
  }
  CHECK(num_compared > 0x110000 - 2048 - 6000);
  const std::pair<const char*, uint8_t> kClasses[] = {
      {R"([\p{Lu}\p{Lt}])", kUpper}, {R"(\p{Ll})", kLower}, {R"([\p{Lm}\p{Lo}])", kOtherLetter},
      {R"(\p{M})", kMark},           {R"(\p{N})", kNumber}, {R"(\p{P})", kPunctuation},
      {R"(\p{S})", kSymbol},         {R"(\s)", kSpace},
  };
  for (const auto& [pattern, bit] : kClasses) {
    INFO(pattern);
    std::vector<bool> want(0x110000);
    const auto matches = RegexOracle({pattern}).matches(text);
    for (size_t i = 0; i < matches.size(); i += 2) want[code_at[matches[i]]] = true;
    uint32_t first_wrong = 0;
    int wrong = 0;
    for (uint32_t code = 0; code < 0x110000; ++code) {
      if (!compare[code] || ((char_classes(code) & bit) != 0) == want[code]) continue;
      if (wrong++ == 0) first_wrong = code;
    }
    INFO("first: " << first_wrong);
    CHECK(wrong == 0);
  }
  for (uint32_t code = 0; code < 0x80; ++code)
    CHECK(char_at(utf8(code), 0).classes == char_classes(code));
}

// A text twice: unchanged, with bytes that are not UTF-8, and with U+FFFD for each run of those.
struct TestText {
  std::string text, valid;
  std::vector<size_t> text_ends, valid_ends;  // of the characters

  void add(const std::string& character, const std::string& as_valid) {
    text += character;
    valid += as_valid;
    text_ends.push_back(text.size());
    valid_ends.push_back(valid.size());
  }
  void add(const std::string& character) { add(character, character); }
};

class TextMaker {
 public:
  explicit TextMaker(uint32_t seed) : random_(seed) {}

  TestText make() {
    TestText out;
    for (size_t parts = 1 + random_() % 24; parts > 0; --parts) add_part(&out);
    return out;
  }

 private:
  struct Script {
    uint32_t first, last;
  };

  size_t below(size_t bound) { return random_() % bound; }
  size_t run_length() { return below(4) == 0 ? 1 + below(12) : 1 + below(3); }

  void add_known(uint32_t code, TestText* out) {
    if (codes_to_compare()[code]) out->add(utf8(code));
  }
  void add_any_of(std::span<const uint32_t> codes, TestText* out) {
    for (size_t n = run_length(); n > 0; --n) add_known(codes[below(codes.size())], out);
  }

  void add_part(TestText* out) {
    static constexpr Script kScripts[] = {
        {'a', 'z'},         {'A', 'Z'},         {0x41, 0x7A},       {0xC0, 0x24F},
        {0x250, 0x2FF},     {0x370, 0x3FF},     {0x400, 0x52F},     {0x530, 0x5FF},
        {0x600, 0x6FF},     {0x900, 0x97F},     {0xE00, 0xE7F},     {0x10A0, 0x10FF},
        {0x13A0, 0x13FF},   {0x1780, 0x17FF},   {0x1C90, 0x1CBF},   {0x1D00, 0x1DFF},
        {0x1E00, 0x1FFF},   {0x2100, 0x218F},   {0x2C00, 0x2CFF},   {0x3040, 0x30FF},
        {0x4E00, 0x4E80},   {0x9F80, 0x9FFF},   {0xA640, 0xA7FF},   {0xAB70, 0xABBF},
        {0xAC00, 0xAC80},   {0xD780, 0xD7FF},   {0xFB00, 0xFB4F},   {0xFF00, 0xFF60},
        {0x10400, 0x104FF}, {0x10C80, 0x10CFF}, {0x118A0, 0x118DF}, {0x1D400, 0x1D7FF},
        {0x1E900, 0x1E95F}, {0x20000, 0x20040}, {0x7F0, 0x860},     {0x1C0, 0x1CF},
        {0x2E80, 0x2EA0},   {0x3005, 0x303B},   {0xFA6A, 0xFA72},   {0x16FE0, 0x16FF2}};
    static constexpr uint32_t kWideSpaces[] = {
        ' ',  ' ',  ' ',    ' ',    '\t',   '\n',   '\n',   '\r',   '\v',  '\f',
        0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x2029, 0x202F, 0x3000, 0x200B};
    static constexpr uint32_t kPlainSpaces[] = {' ', ' ', '\n', '\r', '\t'};
    static constexpr uint32_t kDigits[] = {'0',  '1',  '2',    '3',    '9',    0x663,  0x96A,
                                           0xB2, 0xBD, 0x2167, 0x3007, 0xFF11, 0x1D7CE};
    static constexpr uint32_t kAsciiDigits[] = {'0', '4', '7'};
    static constexpr uint32_t kSigns[] = {
        '!',    '"',    '#',    '$',    '%',    '&',    '\'',   '(',    ')',    '*',    '+',
        ',',    '-',    '.',    '/',    ':',    ';',    '<',    '=',    '>',    '?',    '@',
        '[',    '\\',   ']',    '^',    '_',    '`',    '{',    '|',    '}',    '~',    0xA1,
        0xA7,   0xB7,   0x2013, 0x2018, 0x2019, 0x201C, 0x2026, 0x20AC, 0x3001, 0x3002, 0xFF01,
        0xFF0C, 0xFF5E, 0x964,  0x6D4,  0x60C,  0x2190, 0x221E};
    static constexpr uint32_t kOdd[] = {0,      1,     0x1B,   0x7F,   0xAD,   0x200D,
                                        0xFEFF, 0x378, 0xE000, 0xFFFD, 0xFFFF, 0x10FFFF,
                                        0xFE0F, 0x301, 0x903,  0x20E3};
    static constexpr uint32_t kMarks[] = {0x300, 0x301, 0x93C, 0x93F, 0x20DD, 0xFE0F, 0x1F3FB};
    static constexpr uint32_t kEmoji[] = {0x1F600, 0x1F680, 0x2764, 0xFE0F, 0x200D, 0x1F1E9};
    static constexpr const char* kContractions[] = {
        "'s",  "'t", "'re", "'ve", "'m", "'ll", "'d", "'S",        "'RE", "'rE", "'vE",
        "'lL", "'D", "'r",  "'l",  "'v", "''",  "'x", "'\xC5\xBF", "'M",  "'T"};
    static constexpr const char* kBroken[] = {"\xFF", "\xC0", "\xF5", "\xE2\x82", "\xED"};
    switch (below(12)) {
      case 0:
      case 1:
      case 2: {
        const Script& script = kScripts[below(std::size(kScripts))];
        for (size_t n = run_length(); n > 0; --n) {
          add_known(script.first + static_cast<uint32_t>(below(script.last - script.first + 1)),
                    out);
        }
        break;
      }
      case 3: add_any_of(kWideSpaces, out); break;
      case 4: add_any_of(kPlainSpaces, out); break;
      case 5:
        add_any_of(below(2) == 0 ? std::span<const uint32_t>(kDigits) : kAsciiDigits, out);
        break;
      case 6: add_any_of(kSigns, out); break;
      case 7: add_any_of(kOdd, out); break;
      case 8: add_any_of(below(2) == 0 ? std::span<const uint32_t>(kMarks) : kEmoji, out); break;
      case 9: {
        const std::string_view contraction = kContractions[below(std::size(kContractions))];
        for (size_t at = 0; at < contraction.size();) {
          const size_t bytes = char_at(contraction, at).bytes;
          out->add(std::string(contraction.substr(at, bytes)));
          at += bytes;
        }
        break;
      }
      case 10: out->add(kBroken[below(std::size(kBroken))], "\xEF\xBF\xBD"); break;
      default: {
        const auto code = static_cast<uint32_t>(below(0x110000));
        add_known(code, out);
      }
    }
  }

  std::mt19937 random_;
};

TEST_CASE("every rule splits where its regular expressions split") {
  const int rounds = tests::full_counts() ? 50000 : 2500;
  uint32_t seed = 1;
  for (const Rule& rule : rules()) {
    INFO(rule.names[0]);
    const PreTokenizer* scanners = PreTokenizer::find(rule.names[0]);
    REQUIRE(scanners != nullptr);
    const RegexOracle oracle(rule.patterns);
    TextMaker maker(seed++);
    for (int round = 0; round < rounds; ++round) {
      const TestText text = maker.make();
      std::vector<size_t> met;
      size_t end = 0;
      scanners->split(text.text, [&](std::string_view piece) {
        REQUIRE(piece.data() == text.text.data() + end);
        REQUIRE_FALSE(piece.empty());
        met.push_back(end += piece.size());
      });
      std::vector<size_t> want;
      for (const size_t valid_end : oracle.ends(text.valid)) {
        const auto at = std::lower_bound(text.valid_ends.begin(), text.valid_ends.end(), valid_end);
        want.push_back(text.text_ends[static_cast<size_t>(at - text.valid_ends.begin())]);
      }
      INFO("round " << round << ": \"" << text.valid << '"');
      REQUIRE(met == want);
    }
  }
}

TEST_CASE("Han characters are Unicode's") {
  const PreTokenizer& rule = *PreTokenizer::find("kimi-k2");
  const RegexOracle han({R"(\p{sc:Han})"});
  int wrong = 0;
  for (uint32_t code = 1; code < 0x110000; ++code) {
    if (!codes_to_compare()[code]) continue;
    int pieces = 0;
    rule.split(utf8(code) + utf8(0x4E00), [&](std::string_view) { ++pieces; });
    wrong += (pieces == 1) == han.matches(utf8(code)).empty();
  }
  CHECK(wrong == 0);
}

TEST_CASE("names of one rule share its stages, and every known name is tested") {
  std::string names;
  for (const Rule& rule : rules()) {
    for (const std::string& name : rule.names) {
      INFO(name);
      const PreTokenizer* scanners = PreTokenizer::find(name);
      REQUIRE(scanners != nullptr);
      CHECK(scanners->stages.data() == PreTokenizer::find(rule.names[0])->stages.data());
      CHECK(PreTokenizer::known_names().find(name) != std::string::npos);
      names += name;
    }
  }
  std::string known = PreTokenizer::known_names();
  known.erase(
      std::remove_if(known.begin(), known.end(), [](char c) { return c == ',' || c == ' '; }),
      known.end());
  CHECK(known.size() == names.size());
  CHECK(PreTokenizer::find("") == nullptr);
  CHECK(PreTokenizer::find("gpt2") == nullptr);
}

}  // namespace
}  // namespace hearth::models
