// Regular expressions, the part that schemas' `pattern` commonly uses: characters, ., classes,
// \d \w \s, groups, |, * + ? {m,n}, ^ at the beginning and $ at the end. Others are refused.

#include <fmt/core.h>

#include <algorithm>

#include "engine/grammar/grammar.h"
#include "engine/grammar/rule_set.h"
#include "kernels/base/chars.h"
#include "models/template/text.h"

namespace hearth::engine {
namespace {

using models::jinja::Char;
using models::jinja::first_char;

const CharRanges kDigits = {{'0', '9'}};
const CharRanges kWords = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharRanges kBlanks = {{'\t', '\r'}, {' ', ' '}};
const CharRanges kPythonBlanks = {{'\t', '\r'}, {0x1C, 0x1F}, {' ', ' '}};

/// The ASCII characters outside of them; whether other characters belong to words differs between
/// regex dialects.
CharRanges ascii_complement(const CharRanges& chars) {
  CharRanges out;
  for (auto [low, high] : complement(chars)) {
    if (low < 0x80) out.emplace_back(low, std::min<uint32_t>(high, 0x7F));
  }
  return out;
}

class PatternReader {
 public:
  /// `token`: as compile_token_pattern().
  PatternReader(std::string_view text, PiecePtr (*encode)(const CharRanges&), bool token = false)
      : rest_(text), whole_(text), encode_(encode), token_(token) {}

  /// Without anchors.
  Result<PiecePtr> run_token() {
    HEARTH_ASSIGN_OR_RETURN(PiecePtr body, alternatives(0));
    if (!rest_.empty()) return fail(fmt::format("'{}'", rest_.substr(0, 1)));
    return body;
  }

  /// The texts that match as a whole, anchored or not.
  Result<PiecePtr> run_whole() {
    take('^');
    HEARTH_ASSIGN_OR_RETURN(PiecePtr body, alternatives(0));
    if (!rest_.empty() && rest_ != "$") return fail(fmt::format("'{}'", rest_.substr(0, 1)));
    return body;
  }

  /// The texts in which a part matches.
  Result<PiecePtr> run() {
    const bool from_start = take('^');
    HEARTH_ASSIGN_OR_RETURN(PiecePtr body, alternatives(0));
    if (!rest_.empty() && rest_ != "$") return fail(fmt::format("'{}'", rest_.substr(0, 1)));
    const bool to_end = rest_ == "$";
    if ((from_start || to_end) && has_bar_) return fail("^ or $ next to | outside of a group");
    const PiecePtr any = repeat_piece(encode_(complement({})), 0, -1);
    std::vector<PiecePtr> parts;
    if (!from_start) parts.push_back(any);
    parts.push_back(std::move(body));
    if (!to_end) parts.push_back(any);
    return seq_piece(std::move(parts));
  }

 private:
  Error fail(std::string_view what) const {
    return Error::unsupported(
        fmt::format("pattern '{}': {} is not supported", whole_.substr(0, 100), what),
        "json_schema");
  }
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  Result<PiecePtr> alternatives(int depth) {
    if (depth > 20) return fail("nesting so deep");
    std::vector<PiecePtr> out;
    do {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr one, sequence(depth));
      out.push_back(std::move(one));
      if (depth == 0 && rest_.starts_with('|')) has_bar_ = true;
    } while (take('|'));
    return any_piece(std::move(out));
  }

  Result<PiecePtr> sequence(int depth) {
    std::vector<PiecePtr> out;
    while (!rest_.empty() && rest_.front() != '|' && rest_.front() != ')' && rest_ != "$") {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr one, atom(depth));
      HEARTH_ASSIGN_OR_RETURN(one, quantified(std::move(one)));
      out.push_back(std::move(one));
    }
    return seq_piece(std::move(out));
  }

  Result<PiecePtr> quantified(PiecePtr one) {
    int32_t min = 1, max = 1;
    if (take('*')) {
      min = 0, max = -1;
    } else if (take('+')) {
      max = -1;
    } else if (take('?')) {
      min = 0;
    } else if (take('{')) {
      HEARTH_ASSIGN_OR_RETURN(min, number());
      max = min;
      if (take(',')) {
        max = -1;
        if (!rest_.starts_with('}')) {
          HEARTH_ASSIGN_OR_RETURN(max, number());
        }
      }
      if (!take('}') || (max >= 0 && max < min)) return fail("this {}");
    } else {
      return one;
    }
    // Lazy and greedy repetitions match the same texts, but not the same tokens.
    if (take('?') && token_) return fail("a lazy quantifier");
    if (!rest_.empty() && std::string_view("*+?{").find(rest_.front()) != std::string_view::npos) {
      return fail("a quantifier of a quantifier");
    }
    return repeat_piece(std::move(one), min, max);
  }

  Result<int32_t> number() {
    int32_t out = 0;
    bool any = false;
    while (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') {
      out = out * 10 + (rest_.front() - '0');
      any = true;
      rest_.remove_prefix(1);
      if (out > kMaxGrammarRepeat) return fail("so large a number of times");
    }
    if (!any) return fail("this {}");
    return out;
  }

  Result<PiecePtr> atom(int depth) {
    if (take('(')) {
      if (take('?') && !take(':')) return fail("this kind of group");
      HEARTH_ASSIGN_OR_RETURN(PiecePtr inner, alternatives(depth + 1));
      if (!take(')')) return fail("a group without its end");
      return inner;
    }
    if (take('[')) {
      HEARTH_ASSIGN_OR_RETURN(const CharRanges chars, char_class());
      return encoded(chars);
    }
    if (take('.')) return encode_(complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
    if (take('\\')) {
      HEARTH_ASSIGN_OR_RETURN(const CharRanges chars, escape());
      return encoded(chars);
    }
    const char c = rest_.front();
    if (std::string_view("^$*+?{}]").find(c) != std::string_view::npos) {
      return fail(fmt::format("'{}' here", c));
    }
    const Char one = first_char(rest_);
    rest_.remove_prefix(one.bytes);
    return encode_({{one.code, one.code}});
  }

  Result<PiecePtr> encoded(const CharRanges& chars) const {
    if (chars.empty()) return fail("a class of no characters");
    return encode_(chars);
  }

  /// Reads what follows a backslash.
  Result<CharRanges> escape() {
    if (rest_.empty()) return fail("a backslash at the end");
    const char c = rest_.front();
    rest_.remove_prefix(1);
    switch (c) {
      case 'd': return kDigits;
      case 'w': return kWords;
      case 's': return token_ ? kPythonBlanks : kBlanks;
      case 'D': return ascii_complement(kDigits);
      case 'W': return ascii_complement(kWords);
      case 'S': return ascii_complement(token_ ? kPythonBlanks : kBlanks);
      case 'n': return CharRanges{{'\n', '\n'}};
      case 'r': return CharRanges{{'\r', '\r'}};
      case 't': return CharRanges{{'\t', '\t'}};
      case 'f': return CharRanges{{'\f', '\f'}};
      case 'v': return CharRanges{{'\v', '\v'}};
      default: break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || byte_of(c) >= 0x80) return fail(fmt::format("\\{}", c));
    const uint32_t code = c;
    return CharRanges{{code, code}};
  }

  Result<CharRanges> char_class() {
    const bool negated = take('^');
    CharRanges out;
    bool shorthand = false, first = true;
    while (first || !rest_.starts_with(']')) {
      if (rest_.empty()) return fail("a class without its end");
      if (first && rest_.starts_with(']')) return fail("an empty class");
      first = false;
      HEARTH_ASSIGN_OR_RETURN(const CharRanges low, class_char());
      const bool one = low.size() == 1 && low[0].first == low[0].second;
      shorthand = shorthand || !one;
      if (!one || !rest_.starts_with('-') || rest_.starts_with("-]")) {
        out.insert(out.end(), low.begin(), low.end());
        continue;
      }
      rest_.remove_prefix(1);
      if (rest_.empty()) return fail("a class without its end");
      HEARTH_ASSIGN_OR_RETURN(const CharRanges high, class_char());
      if (high.size() != 1 || high[0].first != high[0].second || high[0].first < low[0].first) {
        return fail("this range");
      }
      out.emplace_back(low[0].first, high[0].first);
    }
    take(']');
    out = normalized(std::move(out));
    if (!negated) return out;
    return shorthand ? ascii_complement(out) : complement(out);
  }

  Result<CharRanges> class_char() {
    if (take('\\')) return escape();
    if (rest_.starts_with('[')) return fail("'[' in a class");
    const Char one = first_char(rest_);
    rest_.remove_prefix(one.bytes);
    return CharRanges{{one.code, one.code}};
  }

  std::string_view rest_;
  const std::string_view whole_;
  PiecePtr (*const encode_)(const CharRanges&);
  const bool token_;
  bool has_bar_ = false;
};

}  // namespace

Result<PiecePtr> compile_pattern(std::string_view pattern, PiecePtr (*encode)(const CharRanges&)) {
  return PatternReader(pattern, encode).run();
}

Result<PiecePtr> compile_token_pattern(std::string_view pattern) {
  const auto as_text = [](const CharRanges& chars) { return chars_piece(chars); };
  return PatternReader(pattern, as_text, true).run_token();
}

Result<Grammar> compile_regex(std::string_view regex) {
  Result<Grammar> compiled = [&]() -> Result<Grammar> {
    const auto as_text = [](const CharRanges& chars) { return chars_piece(chars); };
    HEARTH_ASSIGN_OR_RETURN(PiecePtr body, PatternReader(regex, as_text).run_whole());
    RuleSet rules;
    HEARTH_TRY(rules.add(std::move(body), "regex"));
    return rules.compile();
  }();
  if (compiled.ok()) return compiled;
  return Error{compiled.error().code, "regex: " + compiled.error().message, "regex"};
}

}  // namespace hearth::engine
