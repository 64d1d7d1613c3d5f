// Lark's notation: `name: alternatives` for rules, `NAME: ...` for terminals; "text", "text"i,
// "a".."z", /regex/, names, ( ), [ ], |, ? * + and ~ n..m; `-> alias` and priorities are read and
// change nothing; // and # begin comments. %import of the module common, %ignore.

#include "engine/grammar/lark_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "engine/grammar/notation.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "models/template/text.h"
#include "models/tokenizer/text/utf8.h"

namespace hearth::engine {
namespace {

using models::jinja::Char;
using models::jinja::first_char;

struct CommonTerminal {
  std::string_view name, regex;
};
#define HEARTH_LARK_DECIMAL "([0-9]+\\.[0-9]*|\\.[0-9]+)"
#define HEARTH_LARK_FLOAT "([0-9]+[eE][+\\-]?[0-9]+|" HEARTH_LARK_DECIMAL "([eE][+\\-]?[0-9]+)?)"
/// Those of Lark's module common, each as one expression.
constexpr CommonTerminal kCommon[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[a-fA-F0-9]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+\\-]?[0-9]+"},
    {"DECIMAL", HEARTH_LARK_DECIMAL},
    {"FLOAT", HEARTH_LARK_FLOAT},
    {"SIGNED_FLOAT", "[+\\-]?" HEARTH_LARK_FLOAT},
    {"NUMBER", "(" HEARTH_LARK_FLOAT "|[0-9]+)"},
    {"SIGNED_NUMBER", "[+\\-]?(" HEARTH_LARK_FLOAT "|[0-9]+)"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"SQL_COMMENT", "--[^\\n]*"},
};
#undef HEARTH_LARK_FLOAT
#undef HEARTH_LARK_DECIMAL

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// An expression as it is written; names are not resolved.
struct Written {
  enum class Type { kText, kName, kSeq, kAny, kRepeat };
  Type type = Type::kSeq;
  std::string name{};  ///< of a name; the source of a text
  PiecePtr text{};
  std::vector<Written> parts{};
  int32_t min = 0;
  int32_t max = -1;
};

/// Terminals that others use many times are bounded by what they are together.
constexpr size_t kMostTextSize = 1'000'000;

class LarkReader {
 public:
  explicit LarkReader(std::string_view source) : text_(source) {}

  Result<LarkGrammar> run() {
    if (text_.size() > kMostLarkBytes) {
      return Error::too_large(
          fmt::format("lark: {} bytes, at most {}", text_.size(), kMostLarkBytes));
    }
    for (std::string_view rest = text_; !rest.empty();) {
      const models::Utf8Char c = models::front_char(rest);
      if (c.kind != models::Utf8Char::Kind::kWhole) return wrong("not UTF-8");
      rest.remove_prefix(c.bytes);
    }
    for (blanks(true); at_ < text_.size(); blanks(true)) {
      HEARTH_TRY(now() == '%' ? directive() : definition());
      blanks(false);
      if (at_ < text_.size() && now() != '\n') return wrong("want the line's end");
    }
    return resolved();
  }

 private:
  std::string where(const std::string& what) const {
    const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
    return fmt::format("lark, line {}: {}", 1 + std::ranges::count(before, '\n'), what);
  }
  Error wrong(const std::string& what) const { return Error::invalid(where(what)); }
  Error unsupported(const std::string& what) const {
    return Error::unsupported(where(what + " is not supported"));
  }
  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  void blanks(bool newlines) {
    while (at_ < text_.size()) {
      const char c = now();
      if (c == ' ' || c == '\t' || c == '\r' || (newlines && c == '\n')) {
        ++at_;
      } else if (c == '#' || text_.substr(at_).starts_with("//")) {
        while (at_ < text_.size() && now() != '\n') ++at_;
      } else {
        return;
      }
    }
  }
  std::string word() {
    const size_t begin = at_;
    while (is_upper(now()) || is_lower(now()) || is_digit(now()) || now() == '_') ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  /// Rules have small letters, terminals capital ones.
  static bool is_terminal(std::string_view name) {
    return std::ranges::any_of(name, is_upper) && std::ranges::none_of(name, is_lower);
  }
  Result<std::string> name() {
    std::string out = word();
    const bool rule = std::ranges::any_of(out, is_lower) && std::ranges::none_of(out, is_upper);
    if (out.size() > 100 || (!rule && !is_terminal(out))) {
      return wrong(fmt::format("met '{}', want the name of a rule or terminal",
                               out.empty() ? std::string(1, now()) : out.substr(0, 100)));
    }
    if (now() == '{') return unsupported(fmt::format("the template '{}'", out));
    return out;
  }

  Result<void> define(std::string name, Written body) {
    auto& all = is_terminal(name) ? terminals_ : rules_;
    if (!all.emplace(name, std::move(body)).second) {
      return wrong(fmt::format("'{}' is defined twice", name));
    }
    return {};
  }

  /// NAME.2: alternatives
  Result<void> definition() {
    while (take("!") || take("?")) {
    }
    HEARTH_ASSIGN_OR_RETURN(std::string defined, name());
    if (take(".")) {
      take("-");
      HEARTH_TRY(number());
    }
    blanks(false);
    if (now() == '[') return unsupported(fmt::format("[ ] after '{}'", defined));
    if (!take(":")) return wrong(fmt::format("want : after '{}'", defined));
    take_leading_bar();
    HEARTH_ASSIGN_OR_RETURN(Written body, alternatives(0));
    return define(std::move(defined), std::move(body));
  }
  void take_leading_bar() {
    const size_t before = at_;
    blanks(true);
    if (!take("|")) at_ = before;
  }

  Result<void> directive() {
    take("%");
    const std::string which = word();
    blanks(false);
    if (which == "ignore") {
      HEARTH_ASSIGN_OR_RETURN(Written body, alternatives(0));
      ignored_.push_back(std::move(body));
      return {};
    }
    if (which != "import") return unsupported("%" + which);
    std::string path;
    while (now() == '.' || now() == '_' || is_lower(now()) || is_upper(now()) || is_digit(now())) {
      path += text_[at_++];
    }
    blanks(false);
    if (path == "common" && take("(")) {
      do {
        blanks(true);
        HEARTH_ASSIGN_OR_RETURN(const std::string each, name());
        HEARTH_TRY(import(each, each));
        blanks(true);
      } while (take(","));
      if (!take(")")) return wrong("want )");
      return {};
    }
    const std::string_view module = "common.";
    if (!path.starts_with(module)) {
      return unsupported(fmt::format("%import of '{}': of modules only common", path));
    }
    const std::string from = path.substr(module.size());
    std::string as = from;
    if (take("->")) {
      blanks(false);
      HEARTH_ASSIGN_OR_RETURN(as, name());
    }
    return import(from, as);
  }
  Result<void> import(const std::string& from, const std::string& as) {
    const auto found = std::ranges::find(kCommon, from, &CommonTerminal::name);
    if (found == std::end(kCommon)) return unsupported(fmt::format("%import of common.{}", from));
    if (!is_terminal(as)) return wrong(fmt::format("'{}' is not the name of a terminal", as));
    HEARTH_ASSIGN_OR_RETURN(Written body, regex(std::string(found->regex)));
    return define(as, std::move(body));
  }

  Result<Written> alternatives(int depth) {
    if (depth > kMaxGrammarDepth / 4) return wrong("nested too deeply");
    Written out{.type = Written::Type::kAny};
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(Written one, sequence(depth));
      out.parts.push_back(std::move(one));
      // An alternative may stand on the next line.
      const size_t before = at_;
      blanks(true);
      if (take("|")) continue;
      if (depth == 0) at_ = before;
      return out;
    }
  }

  Result<Written> sequence(int depth) {
    Written out;
    while (true) {
      blanks(depth > 0);
      if (take("->")) {
        blanks(false);
        HEARTH_TRY(name());  // of a node of the tree
        return out;
      }
      if (at_ >= text_.size() || std::string_view("\n|)]").find(now()) != std::string_view::npos) {
        return out;
      }
      HEARTH_ASSIGN_OR_RETURN(Written one, atom(depth));
      HEARTH_ASSIGN_OR_RETURN(one, quantified(std::move(one)));
      out.parts.push_back(std::move(one));
    }
  }

  Result<Written> atom(int depth) {
    if (now() == '"') return string();
    if (take("/")) return regex_literal();
    const bool maybe = now() == '[';
    if (maybe || now() == '(') {
      ++at_;
      HEARTH_ASSIGN_OR_RETURN(Written inner, alternatives(depth + 1));
      if (!take(maybe ? "]" : ")")) return wrong(maybe ? "want ]" : "want )");
      return maybe ? repeated(std::move(inner), 0, 1) : std::move(inner);
    }
    if (now() == '<' || now() == '%' || now() == '@') {
      return unsupported(fmt::format("'{}' here", now()));
    }
    HEARTH_ASSIGN_OR_RETURN(std::string named, name());
    return Written{.type = Written::Type::kName, .name = std::move(named)};
  }

  static Written repeated(Written one, int32_t min, int32_t max) {
    Written out{.type = Written::Type::kRepeat, .min = min, .max = max};
    out.parts.push_back(std::move(one));
    return out;
  }
  Result<Written> quantified(Written one) {
    blanks(false);
    if (take("?")) return repeated(std::move(one), 0, 1);
    if (take("*")) return repeated(std::move(one), 0, -1);
    if (take("+")) return repeated(std::move(one), 1, -1);
    if (!take("~")) return one;
    blanks(false);
    HEARTH_ASSIGN_OR_RETURN(const int32_t min, number());
    int32_t max = min;
    blanks(false);
    if (take("..")) {
      blanks(false);
      HEARTH_ASSIGN_OR_RETURN(max, number());
    }
    if (max < min) return wrong(fmt::format("met ~ {}..{}", min, max));
    return repeated(std::move(one), min, max);
  }
  Result<int32_t> number() {
    const auto found = repeat_count(text_.substr(std::min(at_, text_.size())));
    if (!found) return wrong(fmt::format("want a number up to {}", kMaxGrammarRepeat));
    at_ += found->bytes;
    return found->count;
  }

  /// What stands between the quotes, as characters.
  Result<std::vector<uint32_t>> quoted() {
    std::vector<uint32_t> out;
    ++at_;
    while (!take("\"")) {
      if (at_ >= text_.size() || now() == '\n') return wrong("a string without its end");
      if (!take("\\")) {
        const Char c = first_char(text_.substr(at_));
        at_ += c.bytes;
        out.push_back(c.code);
        continue;
      }
      HEARTH_ASSIGN_OR_RETURN(const uint32_t code, escaped());
      out.push_back(code);
    }
    if (out.empty()) return wrong("a string without characters");
    return out;
  }
  Result<uint32_t> escaped() {
    const char c = now();
    ++at_;
    size_t digits = 0;
    switch (c) {
      case 'n': return uint32_t{'\n'};
      case 'r': return uint32_t{'\r'};
      case 't': return uint32_t{'\t'};
      case 'f': return uint32_t{'\f'};
      case '\\': return uint32_t{'\\'};
      case '"': return uint32_t{'"'};
      case 'x': digits = 2; break;
      case 'u': digits = 4; break;
      case 'U': digits = 8; break;
      default: return unsupported(fmt::format("the escape \\{} in a string", c));
    }
    const auto code = hex_char(text_.substr(std::min(at_, text_.size())), digits);
    if (!code) return wrong("a wrong number of a character");
    at_ += digits;
    return *code;
  }
  Result<Written> string() {
    const size_t begin = at_;
    HEARTH_ASSIGN_OR_RETURN(const std::vector<uint32_t> chars, quoted());
    std::vector<PiecePtr> out;
    if (take("..")) {
      if (now() != '"') return wrong("want a string after ..");
      HEARTH_ASSIGN_OR_RETURN(const std::vector<uint32_t> last, quoted());
      if (chars.size() != 1 || last.size() != 1 || last[0] < chars[0]) {
        return wrong("want two characters in order around ..");
      }
      out.push_back(chars_piece({{chars[0], last[0]}}));
    } else {
      const bool any_case = take("i");
      for (const uint32_t c : chars) {
        if (any_case && c >= 0x80) return unsupported("a string with i that is not ASCII");
        const uint32_t other = c ^ 0x20;
        const bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
        out.push_back(any_case && letter ? chars_piece({{c, c}, {other, other}})
                                         : chars_piece({{c, c}}));
      }
    }
    return Written{.type = Written::Type::kText,
                   .name = std::string(text_.substr(begin, at_ - begin)),
                   .text = seq_piece(std::move(out))};
  }

  Result<Written> regex_literal() {
    std::string source;
    while (!take("/")) {
      if (at_ >= text_.size() || now() == '\n') return wrong("an expression without its end");
      if (now() == '\\' && at_ + 1 < text_.size()) source += text_[at_++];
      source += text_[at_++];
    }
    if (is_lower(now())) return unsupported(fmt::format("the flag {} of an expression", now()));
    return regex(std::move(source));
  }
  Result<Written> regex(std::string source) {
    Result<PiecePtr> text = compile_token_pattern(source);
    if (!text.ok()) return Error{text.error().code, where(text.error().message), {}};
    return Written{.type = Written::Type::kText,
                   .name = "/" + std::move(source) + "/",
                   .text = std::move(text).value()};
  }

  // ---- Names.
  Result<PiecePtr> text_of(const Written& written, int depth) {
    if (depth > kMaxGrammarDepth) return Error::too_large("lark: terminals nested too deeply");
    size_ += 1 + written.name.size();
    if (size_ > kMostTextSize) return Error::too_large("lark: the terminals are too large");
    std::vector<PiecePtr> parts;
    if (written.type == Written::Type::kText) return written.text;
    if (written.type == Written::Type::kName) return terminal_text(written.name, depth);
    for (const Written& part : written.parts) {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr one, text_of(part, depth + 1));
      parts.push_back(std::move(one));
    }
    if (written.type == Written::Type::kSeq) return seq_piece(std::move(parts));
    if (written.type == Written::Type::kAny) return any_piece(std::move(parts));
    return repeat_piece(std::move(parts[0]), written.min, written.max);
  }
  Result<PiecePtr> terminal_text(const std::string& name, int depth) {
    if (!is_terminal(name)) {
      return Error::invalid(fmt::format("lark: the rule '{}' stands in a terminal", name));
    }
    const auto known = texts_.find(name);
    if (known != texts_.end()) {
      size_ += known->second.size;
      if (known->second.piece != nullptr) return known->second.piece;
      return Error::invalid(fmt::format("lark: the terminal '{}' contains itself", name));
    }
    const auto found = terminals_.find(name);
    if (found == terminals_.end()) {
      return Error::invalid(fmt::format("lark: no terminal '{}'", name));
    }
    texts_.emplace(name, Text{});
    const size_t before = size_;
    HEARTH_ASSIGN_OR_RETURN(PiecePtr out, text_of(found->second, depth + 1));
    texts_[name] = {.piece = out, .size = size_ - before};
    return out;
  }

  /// Numbers are given in the order in which symbols are met.
  Result<int32_t> number_of(const std::string& name, std::map<std::string, int32_t>* numbers,
                            size_t count) {
    const auto [found, is_new] = numbers->emplace(name, narrow<int32_t>(count));
    if (is_new && count >= kMostLarkSymbols) {
      return Error::too_large(
          fmt::format("lark: more than {} rules or terminals", kMostLarkSymbols));
    }
    return found->second;
  }
  Result<LarkItem> item_of(const Written& written) {
    LarkItem out;
    switch (written.type) {
      case Written::Type::kText:
      case Written::Type::kName: {
        if (written.type == Written::Type::kName && !is_terminal(written.name)) {
          out.type = LarkItem::Type::kRule;
          HEARTH_ASSIGN_OR_RETURN(out.symbol, rule_of(written.name));
          return out;
        }
        out.type = LarkItem::Type::kTerminal;
        HEARTH_ASSIGN_OR_RETURN(out.symbol,
                                number_of(written.name, &terminal_numbers_, out_.terminals.size()));
        if (std::cmp_equal(out.symbol, out_.terminals.size())) {
          HEARTH_ASSIGN_OR_RETURN(PiecePtr text, text_of(written, 0));
          out_.terminals.push_back({.name = written.name, .text = std::move(text)});
        }
        return out;
      }
      case Written::Type::kSeq: break;
      case Written::Type::kAny: out.type = LarkItem::Type::kAny; break;
      case Written::Type::kRepeat:
        out.type = LarkItem::Type::kRepeat;
        out.min = written.min;
        out.max = written.max;
        break;
    }
    for (const Written& part : written.parts) {
      HEARTH_ASSIGN_OR_RETURN(LarkItem one, item_of(part));
      out.parts.push_back(std::move(one));
    }
    return out;
  }
  Result<int32_t> rule_of(const std::string& name) {
    if (!rules_.contains(name)) return Error::invalid(fmt::format("lark: no rule '{}'", name));
    HEARTH_ASSIGN_OR_RETURN(const int32_t number,
                            number_of(name, &rule_numbers_, out_.rules.size()));
    if (std::cmp_equal(number, out_.rules.size())) out_.rules.push_back({.name = name, .body = {}});
    return number;
  }

  /// `start` and what it needs.
  Result<LarkGrammar> resolved() {
    HEARTH_TRY(rule_of("start"));
    for (size_t i = 0; i < out_.rules.size(); ++i) {
      HEARTH_ASSIGN_OR_RETURN(LarkItem body, item_of(rules_.at(out_.rules[i].name)));
      out_.rules[i].body = std::move(body);
    }
    for (const Written& each : ignored_) {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr text, text_of(each, 0));
      out_.ignored.push_back(std::move(text));
    }
    return std::move(out_);
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::map<std::string, Written> rules_, terminals_;
  std::vector<Written> ignored_;
  struct Text {
    PiecePtr piece{};  ///< null while it is made
    size_t size = 0;
  };
  std::map<std::string, Text> texts_;  ///< of terminals
  size_t size_ = 0;                    ///< of all texts, each as often as it is used
  std::map<std::string, int32_t> rule_numbers_, terminal_numbers_;
  LarkGrammar out_;
};

}  // namespace

Result<LarkGrammar> read_lark(std::string_view source) { return LarkReader(source).run(); }

}  // namespace hearth::engine
