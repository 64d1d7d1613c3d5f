#include "models/template/lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "kernels/base/numbers.h"
#include "models/template/text.h"
#include "models/tokenizer/text/utf8.h"

namespace hearth::models::jinja {
namespace {

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) { return is_name_start(c) || is_decimal(c); }

/// The source with "\n" line ends only, and without a final one.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalized(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < text_.size()) HEARTH_TRY(outside());
    put(Token::Type::kEnd);
    return std::move(tokens_);
  }

 private:
  Error fail(const std::string& what) const {
    return Error::unsupported(fmt::format("chat template, line {}: {}", line_, what));
  }
  std::string_view rest() const { return std::string_view(text_).substr(at_); }
  bool starts(std::string_view with) const { return rest().starts_with(with); }

  void advance(size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) line_ += text_[at_ + i] == '\n';
    if (bytes > 0) line_starting_ = text_[at_ + bytes - 1] == '\n';
    at_ += bytes;
  }

  Token& put(Token::Type type, std::string text = {}) {
    tokens_.push_back({type, std::move(text), 0, 0, line_});
    return tokens_.back();
  }

  void put_text(std::string_view text) {
    if (!text.empty()) put(Token::Type::kText, std::string(text));
  }

  /// The part of `text` that remains before a tag with `sign` after its delimiter.
  std::string_view trimmed(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return strip_right(text);
    if (sign == '+' || is_variable) return text;
    const size_t line_begin = text.rfind('\n') + 1;  // npos + 1 is 0
    if (line_begin == 0 && !line_starting_) return text;
    const std::string_view line = text.substr(line_begin);
    if (!strip_left(line).empty()) return text;
    return text.substr(0, line_begin);
  }

  void skip_spaces() { advance(rest().size() - strip_left(rest()).size()); }

  /// Takes the end of a tag: "-%}" also removes all blanks after it, "%}" one newline, "+%}"
  /// nothing.
  bool take_end(std::string_view close, bool trims_newline) {
    if (starts("-") && rest().substr(1).starts_with(close)) {
      advance(1 + close.size());
      skip_spaces();
      return true;
    }
    if (trims_newline && starts("+") && rest().substr(1).starts_with(close)) {
      advance(1 + close.size());
      return true;
    }
    if (!starts(close)) return false;
    advance(close.size());
    if (trims_newline && starts("\n")) advance(1);
    return true;
  }

  Result<void> outside() {
    const std::string_view all = rest();
    size_t open = 0;
    while (true) {
      open = all.find('{', open);
      if (open == std::string_view::npos || open + 1 >= all.size()) {
        put_text(all);
        advance(all.size());
        return {};
      }
      const char next = all[open + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++open;
    }
    const char kind = all[open + 1];
    const char after = open + 2 < all.size() ? all[open + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    const std::string_view before = trimmed(all.substr(0, open), sign, kind == '{');
    put_text(before);
    advance(open + 2 + (sign != '\0' ? 1u : 0u));
    switch (kind) {
      case '#': return comment();
      case '{': put(Token::Type::kVariableBegin); return inside("}}", Token::Type::kVariableEnd);
      default: break;
    }
    if (is_raw()) return raw();
    put(Token::Type::kBlockBegin);
    return inside("%}", Token::Type::kBlockEnd);
  }

  Result<void> comment() {
    const int begun = line_;
    while (at_ < text_.size()) {
      const size_t hash = rest().find("#}");
      if (hash == std::string_view::npos) break;
      const bool sign = hash > 0 && (rest()[hash - 1] == '-' || rest()[hash - 1] == '+');
      advance(hash - (sign ? 1u : 0u));
      take_end("#}", true);
      return {};
    }
    line_ = begun;
    return fail("a comment without its end #}");
  }

  bool is_raw() const {
    std::string_view r = strip_left(rest());
    if (!r.starts_with("raw")) return false;
    r = strip_left(r.substr(3));
    return r.starts_with("%}") || r.starts_with("-%}");
  }

  Result<void> raw() {
    const int begun = line_;
    skip_spaces();
    advance(3);
    skip_spaces();
    take_end("%}", false);
    // The newline after {% raw %} is kept.
    size_t open = 0;
    while ((open = rest().find("{%", open)) != std::string_view::npos) {
      std::string_view r = rest().substr(open + 2);
      char sign = '\0';
      if (!r.empty() && (r[0] == '-' || r[0] == '+')) {
        sign = r[0];
        r.remove_prefix(1);
      }
      r = strip_left(r);
      if (!r.starts_with("endraw")) {
        open += 2;
        continue;
      }
      r = strip_left(r.substr(6));
      if (!r.starts_with("%}") && !r.starts_with("-%}") && !r.starts_with("+%}")) {
        open += 2;
        continue;
      }
      put_text(trimmed(rest().substr(0, open), sign, false));
      advance(rest().size() - r.size());
      take_end("%}", true);
      return {};
    }
    line_ = begun;
    return fail("raw without endraw");
  }

  Result<void> inside(std::string_view close, Token::Type end) {
    const int begun = line_;
    std::string open;  // open brackets: inside them "}}" is two closing braces
    while (true) {
      skip_spaces();
      if (at_ >= text_.size()) {
        line_ = begun;
        return fail(fmt::format("a tag without its end {}", close));
      }
      if (open.empty()) {
        // "-" belongs to the end only if directly before it.
        const int line = line_;
        if (take_end(close, end == Token::Type::kBlockEnd)) {
          put(end).line = line;
          return {};
        }
      }
      HEARTH_TRY(one_token(open));
    }
  }

  Result<void> one_token(std::string& open) {
    const char c = text_[at_];
    if (is_name_start(c)) {
      size_t n = 1;
      while (n < rest().size() && is_name(rest()[n])) ++n;
      put(Token::Type::kName, std::string(rest().substr(0, n)));
      advance(n);
      return {};
    }
    if (is_decimal(c)) return number();
    if (c == '"' || c == '\'') return string(c);
    static constexpr std::string_view kTwo[] = {"==", "!=", "<=", ">=", "//", "**"};
    for (const std::string_view two : kTwo) {
      if (!starts(two)) continue;
      put(Token::Type::kOperator, std::string(two));
      advance(2);
      return {};
    }
    if (std::string_view("+-*/%~<>=.:,|()[]{}").find(c) == std::string_view::npos) {
      const size_t bytes = first_char(rest()).bytes;
      return fail(fmt::format("unexpected character '{}'", rest().substr(0, bytes)));
    }
    if (c == '(' || c == '[' || c == '{') open.push_back(c);
    if (c == ')' || c == ']' || c == '}') {
      const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != wanted) return fail(fmt::format("unexpected '{}'", c));
      open.pop_back();
    }
    put(Token::Type::kOperator, std::string(1, c));
    advance(1);
    return {};
  }

  Result<void> number() {
    const std::string_view r = rest();
    const auto digits_from = [r](size_t from, auto&& accepts) {
      size_t n = from;
      while (n < r.size() && (accepts(r[n]) ||
                              (r[n] == '_' && n > from && n + 1 < r.size() && accepts(r[n + 1])))) {
        ++n;
      }
      return n;
    };
    int base = 10;
    size_t begin = 0;
    if (r.size() > 2 && r[0] == '0') {
      const char kind = static_cast<char>(r[1] | 0x20);
      base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
      begin = base == 10 ? 0 : 2;
    }
    const auto accepts = [base](char c) {
      if (base == 16) return is_decimal(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
      return c >= '0' && c < '0' + base;
    };
    size_t n = digits_from(begin, accepts);
    bool real = false;
    // A number after a point is an index: x.0.1
    const bool after_point = at_ > 0 && text_[at_ - 1] == '.';
    if (base == 10 && !after_point) {
      if (n + 1 < r.size() && r[n] == '.' && is_decimal(r[n + 1])) {
        n = digits_from(n + 1, is_decimal);
        real = true;
      }
      if (n < r.size() && (r[n] | 0x20) == 'e') {
        size_t e = n + 1;
        if (e < r.size() && (r[e] == '+' || r[e] == '-')) ++e;
        if (e < r.size() && is_decimal(r[e])) {
          n = digits_from(e, is_decimal);
          real = true;
        }
      }
    }
    std::string plain(r.substr(begin, n - begin));
    std::erase(plain, '_');
    const char* const last = plain.data() + plain.size();
    if (real) {
      double value = 0;
      const auto read = std::from_chars(plain.data(), last, value);
      if (read.ec != std::errc() || read.ptr != last) return fail("a number out of range");
      put(Token::Type::kFloat).number = value;
    } else {
      int64_t value = 0;
      const auto read = std::from_chars(plain.data(), last, value, base);
      if (read.ec != std::errc() || read.ptr != last) return fail("an integer beyond 64 bits");
      put(Token::Type::kInteger).integer = value;
    }
    advance(n);
    return {};
  }

  Result<void> string(char quote) {
    const std::string_view r = rest();
    size_t n = 1;
    while (n < r.size() && r[n] != quote) n += r[n] == '\\' ? 2 : 1;
    if (n >= r.size()) return fail("a string without its end");
    std::string out;
    HEARTH_TRY(unescape(r.substr(1, n - 1), out));
    put(Token::Type::kString, std::move(out));
    advance(n + 1);
    return {};
  }

  Result<void> unescape(std::string_view r, std::string& out) const {
    uint32_t high = 0;  // the first half of a surrogate pair
    for (size_t i = 0; i < r.size();) {
      if (r[i] != '\\' || i + 1 >= r.size()) {
        if (high != 0) return fail("half a pair of surrogates in a string");
        out.push_back(r[i++]);
        continue;
      }
      const char c = r[i + 1];
      i += 2;
      size_t digits = 0;
      uint32_t base = 16;
      switch (c) {
        case 'x': digits = 2; break;
        case 'u': digits = 4; break;
        case 'U': digits = 8; break;
        default: break;
      }
      if (c >= '0' && c <= '7') {
        base = 8;
        --i;
        while (digits < 3 && i + digits < r.size() && r[i + digits] >= '0' &&
               r[i + digits] <= '7') {
          ++digits;
        }
      }
      if (digits > 0) {
        uint32_t code = 0;
        const std::string_view text = r.substr(i, digits);
        const auto read =
            std::from_chars(text.data(), text.data() + text.size(), code, narrow<int>(base));
        if (text.size() < digits || read.ptr != text.data() + digits || code > 0x10FFFF) {
          return fail(fmt::format("a string with a wrong \\{}", c));
        }
        i += digits;
        const bool is_low = code >= 0xDC00 && code < 0xE000;
        if ((high != 0) != is_low) return fail("half a pair of surrogates in a string");
        if (code >= 0xD800 && code < 0xDC00) {
          high = code;
          continue;
        }
        if (is_low) code = 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00);
        high = 0;
        append_char(out, code);
        continue;
      }
      if (high != 0) return fail("half a pair of surrogates in a string");
      switch (c) {
        case 'n': out.push_back('\n'); break;
        case 't': out.push_back('\t'); break;
        case 'r': out.push_back('\r'); break;
        case 'a': out.push_back('\a'); break;
        case 'b': out.push_back('\b'); break;
        case 'f': out.push_back('\f'); break;
        case 'v': out.push_back('\v'); break;
        case '\n': break;
        case '\\':
        case '\'':
        case '"': out.push_back(c); break;
        case 'N': return fail("a character by its name (\\N) is not supported");
        default:  // not an escape: keep both characters
          out.push_back('\\');
          out.push_back(c);
      }
    }
    if (high != 0) return fail("half a pair of surrogates in a string");
    return {};
  }

  const std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize_template(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace hearth::models::jinja
