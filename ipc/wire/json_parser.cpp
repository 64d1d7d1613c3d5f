#include "ipc/wire/json_parser.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>

#include "ipc/wire/json_text.h"

namespace hearth::ipc {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class Parser {
 public:
  Parser(std::string_view text, JsonSink& sink) : text_(text), sink_(sink) {}

  JsonParsed run() {
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
    bool goes_on = value();
    while (goes_on && !open_.empty()) goes_on = next();
    skip_space();
    if (goes_on && at_ < text_.size()) wrong();
    return {.end = end_, .at = at_};
  }

 private:
  using End = JsonParsed::End;

  bool stop(End end) {
    end_ = end;
    return false;
  }
  bool wrong() { return stop(End::kNotJson); }
  /// The sink's answer.
  bool taken(bool goes_on) { return goes_on || stop(End::kStopped); }

  void skip_space() {
    const size_t found = text_.find_first_not_of(" \t\n\r", at_);
    at_ = found == std::string_view::npos ? text_.size() : found;
  }
  bool met(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  // The next item or member of the innermost list or object, or its end.
  bool next() {
    const bool object = open_.back() == '{';
    skip_space();
    if (met(object ? "}" : "]")) {
      open_.pop_back();
      is_first_ = false;
      return taken(sink_.close());
    }
    if (!std::exchange(is_first_, false)) {
      if (!met(",")) return wrong();
      skip_space();
    }
    if (!object) return value();
    std::optional<std::string> key = string();
    if (!key) return wrong();
    if (!taken(sink_.key(*std::move(key)))) return false;
    skip_space();
    return met(":") ? value() : wrong();
  }

  bool value() {
    skip_space();
    if (at_ == text_.size()) return wrong();
    switch (text_[at_]) {
      case '{': return open('{', [this] { return sink_.open_object(); });
      case '[': return open('[', [this] { return sink_.open_list(); });
      case '"': {
        std::optional<std::string> text = string();
        return text ? taken(sink_.string(*std::move(text))) : wrong();
      }
      case 't': return met("true") ? taken(sink_.boolean(true)) : wrong();
      case 'f': return met("false") ? taken(sink_.boolean(false)) : wrong();
      case 'n': return met("null") ? taken(sink_.null()) : wrong();
      default: return number();
    }
  }

  template <class Begin>
  bool open(char bracket, Begin begin) {
    ++at_;
    open_ += bracket;
    is_first_ = true;
    return taken(begin());
  }

  // Nothing, and at_ unchanged, if there is none.
  std::optional<std::string> string() {
    const std::string_view quoted = text_.substr(at_, quoted_bytes(text_.substr(at_)));
    if (quoted.empty()) return std::nullopt;
    std::string text;
    text.reserve(quoted.size() - 2);
    if (!append_unquoted(quoted, &text)) return std::nullopt;
    at_ += quoted.size();
    return text;
  }

  bool number() {
    const std::string_view digits = text_.substr(at_, number_bytes(text_.substr(at_)));
    if (digits.empty()) return wrong();
    const char* const first = digits.data();
    const char* const last = first + digits.size();
    bool goes_on = true;
    int64_t negative = 0;
    uint64_t integer = 0;
    if (is_integer(std::from_chars(first, last, integer), last)) {
      goes_on = taken(sink_.integer(integer));
    } else if (is_integer(std::from_chars(first, last, negative), last)) {
      goes_on = taken(sink_.negative(negative));
    } else {
      double number = 0;
      // Beyond the range of a double: zero or infinite, which from_chars() does not distinguish.
      if (std::from_chars(first, last, number).ec == std::errc::result_out_of_range) {
        number = std::strtod(std::string(digits).c_str(), nullptr);
      }
      if (!std::isfinite(number)) return stop(End::kTooLarge);
      goes_on = taken(sink_.number(number));
    }
    at_ += digits.size();
    return goes_on;
  }
  static bool is_integer(const std::from_chars_result& read, const char* last) {
    return read.ec == std::errc() && read.ptr == last;
  }

  const std::string_view text_;
  JsonSink& sink_;
  size_t at_ = 0;
  std::string open_;       // the brackets that are not closed, outermost first
  bool is_first_ = false;  // no item or member of the innermost one was read
  End end_ = End::kWhole;
};

}  // namespace

JsonParsed parse_json(std::string_view text, JsonSink& sink) { return Parser(text, sink).run(); }

}  // namespace hearth::ipc
