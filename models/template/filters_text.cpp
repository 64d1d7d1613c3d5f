// Filters of text; tojson as transformers defines it.

#include <algorithm>
#include <charconv>
#include <cmath>

#include "models/template/filters.h"
#include "models/template/json.h"
#include "models/template/text.h"

namespace hearth::models::jinja {
namespace {

Result<Value> replace_text(Runtime& run, std::string_view text, std::string_view old,
                           std::string_view with, size_t most, bool markup) {
  TracedText out;
  if (old.empty()) {  // inserts `with` around every character
    size_t done = 0;
    for (std::string_view rest = text; done < most; ++done) {
      HEARTH_TRY(run.room(out.text.size(), with.size() + 4));
      HEARTH_TRY(run.charge_bytes(with.size()));
      run.append(out, with);
      if (rest.empty()) break;
      const size_t bytes = first_char(rest).bytes;
      run.append(out, rest.substr(0, bytes));
      rest.remove_prefix(bytes);
      text = rest;
    }
    if (done == most) run.append(out, text);
    return run.text(std::move(out), markup);
  }
  for (size_t done = 0; done < most; ++done) {
    const size_t at = text.find(old);
    if (at == std::string_view::npos) break;
    HEARTH_TRY(run.room(out.text.size(), at + with.size()));
    HEARTH_TRY(run.charge_bytes(with.size()));
    run.append(out, text.substr(0, at));
    run.append(out, with);
    text.remove_prefix(at + old.size());
  }
  HEARTH_TRY(run.room(out.text.size(), text.size()));
  run.append(out, text);
  return run.text(std::move(out), markup);
}

Result<Value> replace(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, "replace", {"old", "new", "count"}));
  if (a[0] == nullptr || a[1] == nullptr) return run.fail("replace wants two texts");
  HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(run, value));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view old, text_of(run, *a[0]));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view with, text_of(run, *a[1]));
  size_t most = SIZE_MAX;
  if (a[2] != nullptr && !a[2]->is_none()) {
    HEARTH_ASSIGN_OR_RETURN(const int64_t count, run.integer(a[2], "replace", -1));
    if (count >= 0) most = count;
  }
  return replace_text(run, text, old, with, most, false);
}

Result<Value> trim(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, "trim", {"chars"}));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(run, value));
  if (a[0] == nullptr || a[0]->is_none()) return Value::of(strip(text), value.is_markup());
  HEARTH_ASSIGN_OR_RETURN(const std::string_view chars, text_of(run, *a[0]));
  HEARTH_TRY(run.charge_bytes(text.size() * std::min<size_t>(chars.size(), 4096)));
  return Value::of(strip_left(strip_right(text, chars), chars), value.is_markup());
}

template <std::string (*kChange)(std::string_view)>
Result<Value> changed(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "filter", {}));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(run, value));
  return run.text_from(text, kChange(text), value.is_markup());
}

/// The filter title: a capital after blanks, - ( { [ and <, but not after other characters.
std::string title_words(std::string_view text) {
  std::string out;
  bool begin = true;
  while (!text.empty()) {
    const Char c = first_char(text);
    const std::string_view here = text.substr(0, c.bytes);
    out += begin ? to_upper(here) : to_lower(here);
    begin = is_space(c.code) || c.code == '-' || c.code == '(' || c.code == '{' || c.code == '[' ||
            c.code == '<';
    text.remove_prefix(c.bytes);
  }
  return out;
}

Result<Value> escape(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "escape", {}));
  if (value.is_markup()) return value;
  HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(run, value));
  HEARTH_TRY(run.room(0, text.size()));
  return run.text_from(text, escape_html(text), true);
}

Result<Value> force_escape(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(run, value));
  return escape(run, Value::of(text), arguments);
}

Result<Value> safe(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "safe", {}));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(run, value));
  return Value::of(text, true);
}

Result<Value> string(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "string", {}));
  return run.str_value(value);
}

Result<Value> indent(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a,
                          run.bind(arguments, "indent", {"width", "first", "blank"}));
  HEARTH_ASSIGN_OR_RETURN(std::string_view text, text_of(run, value));
  std::string_view by;
  std::string blanks;
  if (a[0] != nullptr && a[0]->is_string()) {
    by = a[0]->text();
  } else {
    HEARTH_ASSIGN_OR_RETURN(const int64_t width, run.integer(a[0], "indent", 4));
    HEARTH_TRY(run.room(0, std::max<int64_t>(0, width)));
    blanks.assign(std::max<int64_t>(0, width), ' ');
    by = blanks;
  }
  const bool blank = Runtime::flag(a[2], false);
  TracedText out;
  for (bool first = true;; first = false) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    HEARTH_TRY(run.room(out.text.size(), line.size() + by.size() + 1));
    HEARTH_TRY(run.charge_bytes(by.size()));
    if (first ? Runtime::flag(a[1], false) : blank || !line.empty()) run.append(out, by);
    run.append(out, line);
    if (end == text.size()) break;
    out.text.push_back('\n');
    text.remove_prefix(end + 1);
  }
  return run.text(std::move(out), value.is_markup());
}

Result<Value> wordcount(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "wordcount", {}));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(run, value));
  HEARTH_ASSIGN_OR_RETURN(const Value words, call_method(run, Value::of(text), "split", {}));
  return Value::of(words.list().items.size());
}

Result<Value> format(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(run, value));
  if (!arguments.named.empty()) return run.unsupported("format with names");
  return format_percent(run, text, arguments.positional);
}

Result<Value> tojson(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(
      const Bound a,
      run.bind(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = Runtime::flag(a[0], false);
  if (a[1] != nullptr && !a[1]->is_none()) {
    HEARTH_ASSIGN_OR_RETURN(style.indent, run.integer(a[1], "tojson's indent", 0));
    style.indent = std::clamp<int64_t>(style.indent, 0, 64);
  }
  if (a[2] != nullptr && !a[2]->is_none()) {
    if (!a[2]->is_sequence() || a[2]->list().items.size() != 2) {
      return run.fail("tojson's separators are two texts");
    }
    HEARTH_ASSIGN_OR_RETURN(style.item_separator, text_of(run, a[2]->list().items[0]));
    HEARTH_ASSIGN_OR_RETURN(style.key_separator, text_of(run, a[2]->list().items[1]));
  }
  style.sort_keys = Runtime::flag(a[3], false);
  HEARTH_ASSIGN_OR_RETURN(TracedText out, to_json(run, value, style));
  return run.text(std::move(out));
}

constexpr NamedFilter kTextFilters[] = {
    {"capitalize", changed<capitalize>},
    {"e", escape},
    {"escape", escape},
    {"forceescape", force_escape},
    {"format", format},
    {"indent", indent},
    {"lower", changed<to_lower>},
    {"replace", replace},
    {"safe", safe},
    {"string", string},
    {"title", changed<title_words>},
    {"tojson", tojson},
    {"trim", trim},
    {"upper", changed<to_upper>},
    {"wordcount", wordcount},
};

}  // namespace

std::span<const NamedFilter> text_filters() { return kTextFilters; }

Result<Value> format_percent(Runtime& run, std::string_view format,
                             const std::vector<Value>& with) {
  TracedText out;
  size_t used = 0;
  while (!format.empty()) {
    const size_t at = std::min(format.find('%'), format.size());
    HEARTH_TRY(run.room(out.text.size(), at + 1));
    run.append(out, format.substr(0, at));
    if (at == format.size()) break;
    format.remove_prefix(at + 1);
    if (format.starts_with('%')) {
      out.text.push_back('%');
      format.remove_prefix(1);
      continue;
    }
    int digits = -1;
    if (format.starts_with('.')) {
      const auto read = std::from_chars(format.data() + 1, format.data() + format.size(), digits);
      if (read.ec != std::errc() || digits > 30) return run.unsupported("this form of '%'");
      format.remove_prefix(read.ptr - format.data());
    }
    if (format.empty()) return run.fail("'%' at the end of a format");
    const char kind = format.front();
    format.remove_prefix(1);
    if (used >= with.size()) return run.fail("a format wants more values than there are");
    const Value& value = with[used++];
    if (kind == 's' && digits < 0) {
      HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(run, value));
      HEARTH_TRY(run.room(out.text.size(), text.size()));
      run.append(out, text);
    } else if (kind == 'r' && digits < 0) {
      HEARTH_TRY(run.append_repr(out, value));
    } else if ((kind == 'd' || kind == 'i') && digits < 0 && value.is_number()) {
      if (std::abs(value.as_float()) >= 9.2e18) return run.fail("a number too large for '%d'");
      out.text +=
          std::to_string(value.is_int() ? value.as_int() : static_cast<int64_t>(value.as_float()));
    } else if (kind == 'f' && value.is_number()) {
      out.text += fmt::format("{:.{}f}", value.as_float(), digits < 0 ? 6 : digits);
    } else {
      return run.unsupported(fmt::format("'%{}' of {}", kind, type_name(value)));
    }
  }
  if (used < with.size()) return run.fail("a format wants fewer values than there are");
  return run.text(std::move(out));
}

}  // namespace hearth::models::jinja
