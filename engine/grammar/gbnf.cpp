// GBNF, the notation of grammars that llama.cpp made known: `name ::= alternatives`, "text",
// [classes], ., ( ), | and * + ? {m,n}; # begins a comment. The rule `root` is the whole text.

#include <fmt/core.h>

#include <unordered_map>

#include "engine/grammar/grammar.h"
#include "engine/grammar/notation.h"
#include "kernels/base/sizes.h"
#include "models/template/text.h"
#include "models/tokenizer/text/utf8.h"

namespace hearth::engine {
namespace {

using models::jinja::Char;
using models::jinja::first_char;

class GbnfReader {
 public:
  explicit GbnfReader(std::string_view source) : text_(source) {}

  Result<Grammar> run() {
    for (std::string_view rest = text_; !rest.empty();) {
      const models::Utf8Char c = models::front_char(rest);
      if (c.kind != models::Utf8Char::Kind::kWhole) return fail("no UTF-8");
      rest.remove_prefix(c.bytes);
    }
    rule_of("root");
    blanks(true);
    while (at_ < text_.size()) {
      HEARTH_ASSIGN_OR_RETURN(const std::string name, rule_name());
      blanks(false);
      if (!take("::=")) return fail("want ::=");
      blanks(true);
      HEARTH_ASSIGN_OR_RETURN(PiecePtr body, alternatives(0));
      const size_t number = rule_of(name);
      if (rules_[number] != nullptr) return fail(fmt::format("the rule '{}' twice", name));
      rules_[number] = std::move(body);
      if (at_ < text_.size() && now() != '\n' && now() != '\r') return fail("want the line's end");
      blanks(true);
    }
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (rules_[i] == nullptr) return fail(fmt::format("no rule '{}'", names_[i]));
    }
    Result<Grammar> out = Grammar::compile(rules_, names_);
    if (out.ok()) return out;
    Error error = out.take_error();
    error.message = "grammar: " + error.message;
    error.field = "grammar";
    return error;
  }

 private:
  Error fail(const std::string& what) const {
    int line = 1;
    for (const char c : text_.substr(0, at_)) line += c == '\n';
    return Error::invalid(fmt::format("grammar, line {}: {}", line, what), "grammar");
  }
  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  void blanks(bool newlines) {
    while (at_ < text_.size()) {
      if (now() == ' ' || now() == '\t' || (newlines && (now() == '\n' || now() == '\r'))) {
        ++at_;
      } else if (now() == '#') {
        while (at_ < text_.size() && now() != '\n') ++at_;
      } else {
        return;
      }
    }
  }

  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  }
  Result<std::string> rule_name() {
    const size_t begin = at_;
    while (is_name(now())) ++at_;
    if (at_ == begin) return fail("want a rule's name");
    return std::string(text_.substr(begin, std::min<size_t>(at_ - begin, 100)));
  }
  int32_t rule_of(const std::string& name) {
    const auto [found, is_new] = numbers_.emplace(name, size32(rules_));
    if (is_new) {
      rules_.emplace_back();
      names_.push_back(name);
    }
    return found->second;
  }

  Result<PiecePtr> alternatives(int depth) {
    if (depth > kMaxGrammarDepth / 4) return fail("nested too deeply");
    std::vector<PiecePtr> out;
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr one, sequence(depth));
      out.push_back(std::move(one));
      blanks(depth > 0);
      // An alternative may stand on the next line.
      const size_t before = at_;
      blanks(true);
      if (!take("|")) {
        at_ = before;
        break;
      }
      blanks(true);
    }
    return any_piece(std::move(out));
  }

  Result<PiecePtr> sequence(int depth) {
    std::vector<PiecePtr> out;
    while (true) {
      blanks(depth > 0);
      const char c = now();
      PiecePtr one;
      if (c == '"') {
        HEARTH_ASSIGN_OR_RETURN(one, literal());
      } else if (c == '[') {
        HEARTH_ASSIGN_OR_RETURN(one, char_class());
      } else if (take(".")) {
        one = chars_piece(complement({}));
      } else if (take("(")) {
        HEARTH_ASSIGN_OR_RETURN(one, alternatives(depth + 1));
        blanks(true);
        if (!take(")")) return fail("want )");
      } else if (is_name(c)) {
        HEARTH_ASSIGN_OR_RETURN(const std::string name, rule_name());
        one = rule_piece(rule_of(name));
      } else {
        return seq_piece(std::move(out));
      }
      HEARTH_ASSIGN_OR_RETURN(one, quantified(std::move(one)));
      out.push_back(std::move(one));
    }
  }

  Result<int32_t> number() {
    const auto found = repeat_count(text_.substr(std::min(at_, text_.size())));
    if (!found) return fail(fmt::format("want a number of times up to {}", kMaxGrammarRepeat));
    at_ += found->bytes;
    return found->count;
  }

  Result<PiecePtr> quantified(PiecePtr one) {
    if (take("*")) return repeat_piece(std::move(one), 0, -1);
    if (take("+")) return repeat_piece(std::move(one), 1, -1);
    if (take("?")) return repeat_piece(std::move(one), 0, 1);
    if (!take("{")) return one;
    HEARTH_ASSIGN_OR_RETURN(const int32_t min, number());
    int32_t max = min;
    if (take(",")) {
      max = -1;
      if (now() != '}') {
        HEARTH_ASSIGN_OR_RETURN(max, number());
      }
    }
    if (!take("}") || (max >= 0 && max < min)) return fail("want {m}, {m,} or {m,n}");
    return repeat_piece(std::move(one), min, max);
  }

  /// One character of a text or a class.
  Result<uint32_t> character() {
    if (at_ >= text_.size() || now() == '\n') return fail("a text or class without its end");
    if (!take("\\")) {
      const Char c = first_char(text_.substr(at_));
      at_ += c.bytes;
      return c.code;
    }
    const char c = now();
    ++at_;
    size_t digits = 0;
    switch (c) {
      case 'n': return uint32_t{'\n'};
      case 'r': return uint32_t{'\r'};
      case 't': return uint32_t{'\t'};
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^': return c;
      case 'x': digits = 2; break;
      case 'u': digits = 4; break;
      case 'U': digits = 8; break;
      default: return fail("an unknown escape");
    }
    const auto code = hex_char(text_.substr(std::min(at_, text_.size())), digits);
    if (!code) return fail("a wrong number of a character");
    at_ += digits;
    return *code;
  }

  Result<PiecePtr> literal() {
    ++at_;
    std::string out;
    while (now() != '"') {
      HEARTH_ASSIGN_OR_RETURN(const uint32_t code, character());
      models::append_char(out, code);
    }
    ++at_;
    return text_piece(std::move(out));
  }

  Result<PiecePtr> char_class() {
    ++at_;
    const bool negated = take("^");
    CharRanges out;
    while (now() != ']') {
      HEARTH_ASSIGN_OR_RETURN(const uint32_t low, character());
      uint32_t high = low;
      if (now() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        HEARTH_ASSIGN_OR_RETURN(high, character());
        if (high < low) return fail("a range that goes down");
      }
      out.emplace_back(low, high);
    }
    ++at_;
    if (negated) return chars_piece(complement(std::move(out)));
    if (out.empty()) return fail("an empty class");
    return chars_piece(std::move(out));
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::vector<PiecePtr> rules_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, int32_t> numbers_;
};

}  // namespace

Result<Grammar> compile_gbnf(std::string_view source) { return GbnfReader(source).run(); }

}  // namespace hearth::engine
