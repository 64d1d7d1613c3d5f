#include "models/template/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "kernels/base/chars.h"
#include "models/template/text.h"
#include "models/tokenizer/text/utf8.h"

namespace hearth::models::jinja {
namespace {

class Reader {
 public:
  Reader(Arena& arena, std::string_view text) : arena_(arena), text_(text) {}

  Result<Value> run() {
    HEARTH_TRY(check_utf8());
    HEARTH_ASSIGN_OR_RETURN(const Value out, value(0));
    blanks();
    if (at_ != text_.size()) return fail("something after the value");
    return out;
  }

 private:
  Error fail(std::string_view what) const {
    return Error::protocol(fmt::format("JSON, byte {}: {}", at_ + 1, what));
  }
  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void blanks() {
    while (at_ < text_.size() &&
           (now() == ' ' || now() == '\n' || now() == '\t' || now() == '\r')) {
      ++at_;
    }
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Result<void> check_utf8() {
    for (at_ = 0; at_ < text_.size();) {
      if (byte_of(text_[at_]) < 0x80) {
        ++at_;
        continue;
      }
      const Utf8Char c = front_char(text_.substr(at_));
      if (c.kind != Utf8Char::Kind::kWhole) return fail("no UTF-8");
      at_ += c.bytes;
    }
    at_ = 0;
    return {};
  }

  Result<Value> value(int depth) {
    if (depth > kMaxJsonDepth) {
      return Error::too_large(
          fmt::format("JSON, byte {}: nested deeper than {}", at_ + 1, kMaxJsonDepth));
    }
    blanks();
    switch (now()) {
      case '{': return object(depth);
      case '[': return array(depth);
      case '"': {
        HEARTH_ASSIGN_OR_RETURN(const std::string_view out, string());
        return Value::of(out);
      }
      default: break;
    }
    if (take("true")) return Value::of(true);
    if (take("false")) return Value::of(false);
    if (take("null")) return Value::none();
    return number();
  }

  Result<Value> object(int depth) {
    ++at_;
    Dict* out = arena_.new_dict();
    blanks();
    if (take("}")) return Value::of(out);
    while (true) {
      blanks();
      if (now() != '"') return fail("want a key");
      HEARTH_ASSIGN_OR_RETURN(const std::string_view key, string());
      blanks();
      if (!take(":")) return fail("want ':'");
      HEARTH_ASSIGN_OR_RETURN(const Value item, value(depth + 1));
      out->set(key, item);
      arena_.count(4 * sizeof(Value));
      blanks();
      if (take("}")) return Value::of(out);
      if (!take(",")) return fail("want ',' or '}'");
    }
  }

  Result<Value> array(int depth) {
    ++at_;
    List* out = arena_.new_list();
    blanks();
    if (take("]")) return Value::of(out);
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const Value item, value(depth + 1));
      out->items.push_back(item);
      arena_.count(2 * sizeof(Value));
      blanks();
      if (take("]")) return Value::of(out);
      if (!take(",")) return fail("want ',' or ']'");
    }
  }

  std::string_view keep_data(std::string text) {
    TracedText out;
    out.text = std::move(text);
    out.add_span(0, out.text.size());
    return arena_.keep(std::move(out));
  }

  Result<uint32_t> four_digits() {
    uint32_t code = 0;
    const char* const begin = text_.data() + at_;
    if (text_.size() - at_ < 4) return fail("a \\u without four digits");
    const auto read = std::from_chars(begin, begin + 4, code, 16);
    if (read.ec != std::errc() || read.ptr != begin + 4) return fail("a \\u without four digits");
    at_ += 4;
    return code;
  }

  Result<std::string_view> string() {
    ++at_;
    std::string out;
    while (true) {
      const size_t begin = at_;
      while (at_ < text_.size() && now() != '"' && now() != '\\' && byte_of(now()) >= 0x20) {
        ++at_;
      }
      out += text_.substr(begin, at_ - begin);
      if (at_ >= text_.size()) return fail("a string without its end");
      if (take("\"")) return keep_data(std::move(out));
      if (now() != '\\') return fail("a control character in a string");
      ++at_;
      const char c = now();
      ++at_;
      switch (c) {
        case '"':
        case '\\':
        case '/': out.push_back(c); break;
        case 'b': out.push_back('\b'); break;
        case 'f': out.push_back('\f'); break;
        case 'n': out.push_back('\n'); break;
        case 'r': out.push_back('\r'); break;
        case 't': out.push_back('\t'); break;
        case 'u': {
          HEARTH_ASSIGN_OR_RETURN(uint32_t code, four_digits());
          if (code >= 0xD800 && code < 0xDC00 && take("\\u")) {
            HEARTH_ASSIGN_OR_RETURN(const uint32_t low, four_digits());
            if (low < 0xDC00 || low >= 0xE000) return fail("half a pair of surrogates");
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
          }
          if (code >= 0xD800 && code < 0xE000) return fail("half a pair of surrogates");
          append_char(out, code);
          break;
        }
        default: --at_; return fail("an unknown escape");
      }
    }
  }

  Result<Value> number() {
    const size_t begin = at_;
    const auto digits = [this] {
      const size_t from = at_;
      while (now() >= '0' && now() <= '9') ++at_;
      return at_ - from;
    };
    if (now() == '-') ++at_;
    const bool zero = now() == '0';
    const size_t whole = digits();
    if (whole == 0 || (zero && whole > 1)) {
      at_ = begin;
      return fail("want a value");
    }
    bool real = false;
    if (now() == '.') {
      ++at_;
      real = true;
      if (digits() == 0) return fail("a number without digits after its point");
    }
    if (now() == 'e' || now() == 'E') {
      ++at_;
      real = true;
      if (now() == '+' || now() == '-') ++at_;
      if (digits() == 0) return fail("a number without digits in its exponent");
    }
    const char* const first = text_.data() + begin;
    const char* const last = text_.data() + at_;
    if (!real) {
      int64_t out = 0;
      if (std::from_chars(first, last, out).ec == std::errc()) return Value::of(out);
      at_ = begin;
      return fail("an integer beyond 64 bits");
    }
    double out = 0;
    const auto read = std::from_chars(first, last, out);
    if (read.ec == std::errc::result_out_of_range) {
      at_ = begin;
      return fail("a number out of range");
    }
    return Value::of(out);
  }

  Arena& arena_;
  const std::string_view text_;
  size_t at_ = 0;
};

class Writer {
 public:
  Writer(Runtime& run, const JsonStyle& style) : run_(run), style_(style) {
    item_ = style.item_separator.empty() ? (style.indent >= 0 ? "," : ", ") : style.item_separator;
    key_ = style.key_separator.empty() ? ": " : style.key_separator;
  }

  Result<void> value(const Value& v, int depth) {
    if (depth > kMaxJsonDepth) {
      return run_.too_large("tojson: nested too deeply");
    }
    HEARTH_TRY(run_.charge());
    HEARTH_TRY(run_.room(out_.size(), 64));
    switch (v.kind()) {
      case Kind::kNone: out_ += "null"; return {};
      case Kind::kBool: out_ += v.as_int() != 0 ? "true" : "false"; return {};
      case Kind::kInt: out_ += std::to_string(v.as_int()); return {};
      case Kind::kFloat: out_ += number(v.as_float()); return {};
      case Kind::kString: return string(v.text());
      case Kind::kList:
      case Kind::kTuple: return list(v.list().items, depth);
      case Kind::kDict: return dict(v.dict(), depth);
      case Kind::kUndefined: return run_.undefined_error(v);
      default: return run_.fail(fmt::format("tojson: '{}' has no JSON form", type_name(v)));
    }
  }

  TracedText take() { return std::move(traced_); }

 private:
  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_text(d);
  }

  Result<void> line(int depth) {
    if (style_.indent < 0) return {};
    const size_t blanks = int64_t{style_.indent} * depth;
    HEARTH_TRY(run_.room(out_.size(), blanks + 1));
    out_.push_back('\n');
    out_.append(blanks, ' ');
    return {};
  }

  Result<void> list(const std::vector<Value>& items, int depth) {
    out_.push_back('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += item_;
      HEARTH_TRY(line(depth + 1));
      HEARTH_TRY(value(items[i], depth + 1));
    }
    if (!items.empty()) HEARTH_TRY(line(depth));
    out_.push_back(']');
    return {};
  }

  Result<void> dict(const Dict& d, int depth) {
    std::vector<Dict::Entry> entries = d.entries();
    if (style_.sort_keys) {
      for (const auto& entry : entries) {
        if (!entry.first.is_string()) return run_.unsupported("tojson: sort_keys of other keys");
      }
      std::ranges::stable_sort(entries, {}, [](const auto& entry) { return entry.first.text(); });
    }
    out_.push_back('{');
    bool first = true;
    for (const auto& [key, item] : entries) {
      if (!first) out_ += item_;
      first = false;
      HEARTH_TRY(line(depth + 1));
      switch (key.kind()) {
        case Kind::kString: HEARTH_TRY(string(key.text())); break;
        case Kind::kBool: out_ += key.as_int() != 0 ? "\"true\"" : "\"false\""; break;
        case Kind::kInt: out_ += "\"" + std::to_string(key.as_int()) + "\""; break;
        case Kind::kFloat: out_ += "\"" + number(key.as_float()) + "\""; break;
        default: out_ += "\"null\"";
      }
      out_ += key_;
      HEARTH_TRY(value(item, depth + 1));
    }
    if (!entries.empty()) HEARTH_TRY(line(depth));
    out_.push_back('}');
    return {};
  }

  Result<void> string(std::string_view source) {
    HEARTH_TRY(run_.charge_bytes(source.size()));
    HEARTH_TRY(run_.room(out_.size(), source.size()));
    run_.append_from(traced_, source, quoted(source));
    return {};
  }

  std::string quoted(std::string_view text) const {
    std::string out = "\"";
    while (!text.empty()) {
      const Char c = first_char(text);
      switch (c.code) {
        case '"': out += "\\\""; break;
        case '\\': out += "\\\\"; break;
        case '\n': out += "\\n"; break;
        case '\r': out += "\\r"; break;
        case '\t': out += "\\t"; break;
        case '\b': out += "\\b"; break;
        case '\f': out += "\\f"; break;
        default:
          if (c.code < 0x20 ||
              (style_.ensure_ascii && c.code >= 0x7F && c.code < 0x10000 && c.code != 0x7F)) {
            out += fmt::format("\\u{:04x}", c.code);
          } else if (style_.ensure_ascii && c.code >= 0x10000) {
            const uint32_t rest = c.code - 0x10000;
            out +=
                fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
          } else {
            out += text.substr(0, c.bytes);
          }
      }
      text.remove_prefix(c.bytes);
    }
    out.push_back('"');
    return out;
  }

  Runtime& run_;
  const JsonStyle& style_;
  std::string item_, key_;
  TracedText traced_;
  std::string& out_ = traced_.text;
};

}  // namespace

Result<Value> parse_json(Arena& arena, std::string_view text) { return Reader(arena, text).run(); }

Result<TracedText> to_json(Runtime& run, const Value& value, const JsonStyle& style) {
  Writer writer(run, style);
  HEARTH_TRY(writer.value(value, 0));
  return writer.take();
}

}  // namespace hearth::models::jinja
