// Filters, as Jinja's documentation lists them; tojson as transformers defines it.

#include <algorithm>
#include <charconv>
#include <cmath>

#include "models/template/json.h"
#include "models/template/runtime.h"
#include "models/template/text.h"

namespace hearth::models::jinja {
namespace {

using Bound = std::vector<const Value*>;
using Filter = Result<Value> (*)(Runtime&, const Value&, const CallArguments&);

Result<std::string_view> text_of(Runtime& run, const Value& value) {
  HEARTH_ASSIGN_OR_RETURN(const Value text, run.str_value(value));
  HEARTH_TRY(run.charge_bytes(text.text().size()));
  return text.text();
}

Result<std::string_view> text_or(Runtime& run, const Value* value, std::string_view otherwise) {
  if (value == nullptr) return otherwise;
  return text_of(run, *value);
}

// ---- Text -----------------------------------------------------------------------------------

Result<Value> replace_text(Runtime& run, std::string_view text, std::string_view old,
                           std::string_view with, size_t most, bool markup) {
  std::string out;
  if (old.empty()) {  // between all characters
    size_t done = 0;
    for (std::string_view rest = text; done < most; ++done) {
      HEARTH_TRY(run.room(out.size(), with.size() + 4));
      HEARTH_TRY(run.charge_bytes(with.size()));
      out += with;
      if (rest.empty()) break;
      const size_t bytes = first_char(rest).bytes;
      out += rest.substr(0, bytes);
      rest.remove_prefix(bytes);
      text = rest;
    }
    if (done == most) out += text;
    return run.text(std::move(out), markup);
  }
  for (size_t done = 0; done < most; ++done) {
    const size_t at = text.find(old);
    if (at == std::string_view::npos) break;
    HEARTH_TRY(run.room(out.size(), at + with.size()));
    HEARTH_TRY(run.charge_bytes(with.size()));
    out += text.substr(0, at);
    out += with;
    text.remove_prefix(at + old.size());
  }
  HEARTH_TRY(run.room(out.size(), text.size()));
  out += text;
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
    if (count >= 0) most = static_cast<size_t>(count);
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
  return run.text(kChange(text), value.is_markup());
}

/// The filter title: a capital behind blanks, - ( { [ and <, whatever else stands there.
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
  return run.text(escape_html(text), true);
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
  std::string by;
  if (a[0] != nullptr && a[0]->is_string()) {
    by = a[0]->text();
  } else {
    HEARTH_ASSIGN_OR_RETURN(const int64_t width, run.integer(a[0], "indent", 4));
    HEARTH_TRY(run.room(0, static_cast<size_t>(std::max<int64_t>(0, width))));
    by.assign(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
  }
  const bool blank = Runtime::flag(a[2], false);
  std::string out;
  for (bool first = true;; first = false) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    HEARTH_TRY(run.room(out.size(), line.size() + by.size() + 1));
    HEARTH_TRY(run.charge_bytes(by.size()));
    if (first ? Runtime::flag(a[1], false) : blank || !line.empty()) out += by;
    out += line;
    if (end == text.size()) break;
    out.push_back('\n');
    text.remove_prefix(end + 1);
  }
  return run.text(std::move(out), value.is_markup());
}

Result<Value> wordcount(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "wordcount", {}));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(run, value));
  HEARTH_ASSIGN_OR_RETURN(const Value words, call_method(run, Value::of(text), "split", {}));
  return Value::of(static_cast<int64_t>(words.list().items.size()));
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
  HEARTH_ASSIGN_OR_RETURN(std::string out, to_json(run, value, style));
  return run.text(std::move(out));
}

// ---- Numbers --------------------------------------------------------------------------------

Result<Value> to_int(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, "int", {"default", "base"}));
  HEARTH_ASSIGN_OR_RETURN(const int64_t base, run.integer(a[1], "int", 10));
  if (base < 2 || base > 36) return run.unsupported(fmt::format("int with base {}", base));
  const Value otherwise = a[0] == nullptr ? Value::of(int64_t{0}) : *a[0];
  if (value.is_undefined()) return run.undefined_error(value);
  if (value.is_int()) return Value::of(value.as_int());
  double number = 0;
  if (value.kind() == Kind::kFloat) {
    number = value.as_float();
  } else if (value.is_string()) {
    const std::string_view text = strip(value.text());
    const auto read_integer = [&](std::string_view digits, int64_t& out) {
      if (digits.starts_with('+')) digits.remove_prefix(1);
      const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), out,
                                        static_cast<int>(base));
      return !digits.empty() && read.ec == std::errc() && read.ptr == digits.data() + digits.size();
    };
    int64_t out = 0;
    if (read_integer(text, out)) return Value::of(out);
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) {
      return otherwise;
    }
  } else {
    return otherwise;
  }
  if (!std::isfinite(number)) return otherwise;
  if (std::abs(number) >= 9.2e18) return run.fail("int gives an integer beyond 64 bits");
  return Value::of(static_cast<int64_t>(number));
}

Result<Value> to_float(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, "float", {"default"}));
  if (value.is_undefined()) return run.undefined_error(value);
  if (value.is_number()) return Value::of(value.as_float());
  if (value.is_string()) {
    std::string_view text = strip(value.text());
    if (text.starts_with('+')) text.remove_prefix(1);
    double number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (!text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size()) {
      return Value::of(number);
    }
  }
  return a[0] == nullptr ? Value::of(0.0) : *a[0];
}

Result<Value> absolute(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "abs", {}));
  if (value.kind() == Kind::kFloat) return Value::of(std::abs(value.as_float()));
  if (!value.is_int()) return run.fail(fmt::format("abs of {}", type_name(value)));
  if (value.as_int() == INT64_MIN) return run.fail("abs gives an integer beyond 64 bits");
  return Value::of(value.as_int() < 0 ? -value.as_int() : value.as_int());
}

Result<Value> round_number(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, "round", {"precision", "method"}));
  HEARTH_ASSIGN_OR_RETURN(const int64_t digits, run.integer(a[0], "round", 0));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view method, text_or(run, a[1], "common"));
  if (!value.is_number()) return run.fail(fmt::format("round of {}", type_name(value)));
  if (digits < 0 || digits > 15) return run.unsupported(fmt::format("round to {} digits", digits));
  const double x = value.as_float();
  const double scale = std::pow(10.0, static_cast<double>(digits));
  if (method == "ceil") return Value::of(std::ceil(x * scale) / scale);
  if (method == "floor") return Value::of(std::floor(x * scale) / scale);
  if (method != "common") return run.unsupported("round's method");
  if (value.is_int()) return Value::of(value.as_int());
  // Printing rounds the exact value, half to even, as Python does.
  const std::string text = fmt::format("{:.{}f}", x, digits);
  double out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return Value::of(out);
}

// ---- Lists ----------------------------------------------------------------------------------

Result<Value> length(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "length", {}));
  HEARTH_ASSIGN_OR_RETURN(const size_t size, run.length(value));
  return Value::of(static_cast<int64_t>(size));
}

Result<Value> first(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "first", {}));
  if (value.is_string() && !value.text().empty()) {
    return Value::of(value.text().substr(0, first_char(value.text()).bytes));
  }
  HEARTH_ASSIGN_OR_RETURN(const List* items, run.iterate(value));
  return items->items.empty() ? Value::undefined("first item") : items->items.front();
}

Result<Value> last(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "last", {}));
  HEARTH_ASSIGN_OR_RETURN(const List* items, run.iterate(value));
  return items->items.empty() ? Value::undefined("last item") : items->items.back();
}

Result<Value> join(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, "join", {"d", "attribute"}));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view between, text_or(run, a[0], ""));
  HEARTH_ASSIGN_OR_RETURN(const List* items, run.iterate(value));
  std::string out;
  bool is_first = true;
  for (const Value& each : items->items) {
    Value shown = each;
    if (a[1] != nullptr && !a[1]->is_none()) {
      HEARTH_ASSIGN_OR_RETURN(shown, run.path(each, *a[1]));
    }
    HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(run, shown));
    HEARTH_TRY(run.room(out.size(), between.size() + text.size()));
    HEARTH_TRY(run.charge_bytes(between.size()));
    if (!is_first) out += between;
    is_first = false;
    out += text;
  }
  return run.text(std::move(out));
}

Result<Value> to_list(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "list", {}));
  HEARTH_ASSIGN_OR_RETURN(const List* items, run.iterate(value));
  return run.list(items->items);
}

Result<Value> reverse(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "reverse", {}));
  if (value.is_string())
    return run.slice(value, Value::none(), Value::none(), Value::of(int64_t{-1}));
  HEARTH_ASSIGN_OR_RETURN(const List* items, run.iterate(value));
  std::vector<Value> out(items->items.rbegin(), items->items.rend());
  return run.list(std::move(out));
}

Result<Value> items_of(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "items", {}));
  if (value.is_undefined()) return run.list({});
  if (!value.is_dict()) return run.fail(fmt::format("items of {}", type_name(value)));
  return call_method(run, value, "items", {});
}

/// What items are ordered by: their attribute, and strings without regard to case.
Result<Value> order_key(Runtime& run, const Value& item, const Value* attribute, bool with_case) {
  Value key = item;
  if (attribute != nullptr && !attribute->is_none()) {
    HEARTH_ASSIGN_OR_RETURN(key, run.path(item, *attribute));
  }
  if (with_case || !key.is_string()) return key;
  HEARTH_TRY(run.charge_bytes(key.text().size()));
  return run.text(to_lower(key.text()));
}

/// A stable merge sort: comparing may fail, and then the order is left as it is.
Result<std::vector<size_t>> sorted(Runtime& run, const std::vector<Value>& keys, bool descending) {
  std::vector<size_t> order(keys.size()), merged(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t width = 1; width < order.size(); width *= 2) {
    for (size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, order.size());
      const size_t end = std::min(begin + 2 * width, order.size());
      size_t a = begin, b = middle;
      for (size_t out = begin; out < end; ++out) {
        bool take_right = a == middle;
        if (!take_right && b < end) {
          const Value &x = keys[order[a]], &y = keys[order[b]];
          HEARTH_ASSIGN_OR_RETURN(take_right, descending ? run.less(x, y) : run.less(y, x));
        }
        merged[out] = take_right ? order[b++] : order[a++];
      }
    }
    std::swap(order, merged);
  }
  return order;
}

Result<std::vector<Value>> sort_items(Runtime& run, const std::vector<Value>& items,
                                      const Value* attribute, bool with_case, bool descending) {
  std::vector<Value> keys, out;
  for (const Value& each : items) {
    HEARTH_ASSIGN_OR_RETURN(const Value key, order_key(run, each, attribute, with_case));
    keys.push_back(key);
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<size_t> order, sorted(run, keys, descending));
  for (const size_t at : order) out.push_back(items[at]);
  return out;
}

Result<Value> sort(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a,
                          run.bind(arguments, "sort", {"reverse", "case_sensitive", "attribute"}));
  HEARTH_ASSIGN_OR_RETURN(const List* items, run.iterate(value));
  HEARTH_ASSIGN_OR_RETURN(
      std::vector<Value> out,
      sort_items(run, items->items, a[2], Runtime::flag(a[1], false), Runtime::flag(a[0], false)));
  return run.list(std::move(out));
}

Result<Value> dictsort(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a,
                          run.bind(arguments, "dictsort", {"case_sensitive", "by", "reverse"}));
  if (!value.is_dict()) return run.fail(fmt::format("dictsort of {}", type_name(value)));
  HEARTH_ASSIGN_OR_RETURN(const std::string_view by, text_or(run, a[1], "key"));
  if (by != "key" && by != "value") return run.fail("dictsort is by 'key' or 'value'");
  HEARTH_ASSIGN_OR_RETURN(const Value pairs, call_method(run, value, "items", {}));
  const Value column = Value::of(static_cast<int64_t>(by == "value"));
  HEARTH_ASSIGN_OR_RETURN(std::vector<Value> out,
                          sort_items(run, pairs.list().items, &column, Runtime::flag(a[0], false),
                                     Runtime::flag(a[2], false)));
  return run.list(std::move(out));
}

Result<Value> unique(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a,
                          run.bind(arguments, "unique", {"case_sensitive", "attribute"}));
  HEARTH_ASSIGN_OR_RETURN(const List* items, run.iterate(value));
  Dict* seen = run.arena().new_dict();
  std::vector<Value> out;
  for (const Value& each : items->items) {
    HEARTH_ASSIGN_OR_RETURN(const Value key,
                            order_key(run, each, a[1], Runtime::flag(a[0], false)));
    HEARTH_TRY(run.check_key(key));
    HEARTH_TRY(run.charge());
    if (seen->find(key) != nullptr) continue;
    seen->set(key, Value::none());
    run.arena().count(4 * sizeof(Value));
    out.push_back(each);
  }
  return run.list(std::move(out));
}

template <bool kMax>
Result<Value> extreme(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a,
                          run.bind(arguments, "min or max", {"case_sensitive", "attribute"}));
  HEARTH_ASSIGN_OR_RETURN(const List* items, run.iterate(value));
  if (items->items.empty()) return Value::undefined("item of nothing");
  const bool with_case = Runtime::flag(a[0], false);
  Value best = items->items.front();
  HEARTH_ASSIGN_OR_RETURN(Value best_key, order_key(run, best, a[1], with_case));
  for (const Value& each : items->items) {
    HEARTH_ASSIGN_OR_RETURN(const Value key, order_key(run, each, a[1], with_case));
    HEARTH_ASSIGN_OR_RETURN(const bool better,
                            kMax ? run.less(best_key, key) : run.less(key, best_key));
    if (!better) continue;
    best = each;
    best_key = key;
  }
  return best;
}

Result<Value> sum(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, "sum", {"attribute", "start"}));
  HEARTH_ASSIGN_OR_RETURN(const List* items, run.iterate(value));
  Value total = a[1] == nullptr ? Value::of(int64_t{0}) : *a[1];
  for (const Value& each : items->items) {
    Value item = each;
    if (a[0] != nullptr && !a[0]->is_none()) {
      HEARTH_ASSIGN_OR_RETURN(item, run.path(each, *a[0]));
    }
    HEARTH_TRY(run.charge());
    HEARTH_ASSIGN_OR_RETURN(total, run.binary("+", total, item));
  }
  return total;
}

Result<Value> batch(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, "batch", {"linecount", "fill_with"}));
  HEARTH_ASSIGN_OR_RETURN(const int64_t size, run.integer(a[0], "batch", 0));
  if (size < 1) return run.fail("batch wants a size of at least 1");
  HEARTH_ASSIGN_OR_RETURN(const List* items, run.iterate(value));
  std::vector<Value> out, row;
  for (const Value& each : items->items) {
    row.push_back(each);
    if (row.size() < static_cast<size_t>(size)) continue;
    HEARTH_ASSIGN_OR_RETURN(const Value whole, run.list(std::exchange(row, {})));
    out.push_back(whole);
  }
  if (!row.empty()) {
    if (a[1] != nullptr && !a[1]->is_none()) {
      HEARTH_TRY(run.charge(static_cast<uint64_t>(size)));
      row.resize(static_cast<size_t>(size), *a[1]);
    }
    HEARTH_ASSIGN_OR_RETURN(const Value rest, run.list(std::move(row)));
    out.push_back(rest);
  }
  return run.list(std::move(out));
}

Result<Value> groupby(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(
      const Bound a, run.bind(arguments, "groupby", {"attribute", "default", "case_sensitive"}));
  if (a[0] == nullptr) return run.fail("groupby wants an attribute");
  if (a[1] != nullptr) return run.unsupported("groupby with a default");
  const bool with_case = Runtime::flag(a[2], false);
  HEARTH_ASSIGN_OR_RETURN(const List* items, run.iterate(value));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> in_order,
                          sort_items(run, items->items, a[0], with_case, false));
  std::vector<Value> out, group;
  Value group_key, group_name;
  const auto close = [&]() -> Result<void> {
    if (group.empty()) return {};
    HEARTH_ASSIGN_OR_RETURN(const Value members, run.list(std::exchange(group, {})));
    HEARTH_ASSIGN_OR_RETURN(const Value pair, run.list({group_name, members}, Kind::kTuple));
    out.push_back(pair);
    return {};
  };
  for (const Value& each : in_order) {
    HEARTH_ASSIGN_OR_RETURN(const Value key, order_key(run, each, a[0], with_case));
    HEARTH_ASSIGN_OR_RETURN(const bool same, run.equal(key, group_key));
    if (group.empty() || !same) {
      HEARTH_TRY(close());
      group_key = key;
      HEARTH_ASSIGN_OR_RETURN(group_name, run.path(each, *a[0]));
    }
    group.push_back(each);
  }
  HEARTH_TRY(close());
  return run.list(std::move(out));
}

/// The arguments behind the first `skip`.
CallArguments rest_of(const CallArguments& arguments, size_t skip) {
  CallArguments out;
  out.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(skip),
                        arguments.positional.end());
  out.named = arguments.named;
  return out;
}

Result<Value> map(Runtime& run, const Value& value, const CallArguments& arguments) {
  if (!truth(value)) return run.list({});  // none too
  HEARTH_ASSIGN_OR_RETURN(const List* items, run.iterate(value));
  std::vector<Value> out;
  if (arguments.positional.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, "map", {"attribute", "default"}));
    if (a[0] == nullptr) return run.fail("map wants a filter or an attribute");
    for (const Value& each : items->items) {
      HEARTH_ASSIGN_OR_RETURN(Value item, run.path(each, *a[0]));
      if (item.is_undefined() && a[1] != nullptr) item = *a[1];
      out.push_back(item);
    }
    return run.list(std::move(out));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string_view name, text_of(run, arguments.positional[0]));
  const CallArguments rest = rest_of(arguments, 1);
  const std::vector<Value> from = items->items;
  for (const Value& each : from) {
    HEARTH_ASSIGN_OR_RETURN(const Value item, apply_filter(run, name, each, rest));
    out.push_back(item);
  }
  return run.list(std::move(out));
}

template <bool kByAttribute, bool kKeep>
Result<Value> select(Runtime& run, const Value& value, const CallArguments& arguments) {
  if (!truth(value)) return run.list({});  // none too
  HEARTH_ASSIGN_OR_RETURN(const List* items, run.iterate(value));
  const size_t at = kByAttribute ? 1 : 0;
  if (arguments.positional.size() < at) return run.fail("selectattr wants an attribute");
  const bool tests = arguments.positional.size() > at;
  std::string_view name;
  CallArguments rest;
  if (tests) {
    HEARTH_ASSIGN_OR_RETURN(name, text_of(run, arguments.positional[at]));
    rest = rest_of(arguments, at + 1);
  }
  std::vector<Value> out;
  for (const Value& each : items->items) {
    Value item = each;
    if (kByAttribute) {
      HEARTH_ASSIGN_OR_RETURN(item, run.path(each, arguments.positional[0]));
    }
    bool keep = truth(item);
    if (tests) {
      HEARTH_ASSIGN_OR_RETURN(keep, apply_test(run, name, item, rest));
    }
    HEARTH_TRY(run.charge());
    if (keep == kKeep) out.push_back(each);
  }
  return run.list(std::move(out));
}

Result<Value> default_value(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a,
                          run.bind(arguments, "default", {"default_value", "boolean"}));
  const bool absent = value.is_undefined() || (Runtime::flag(a[1], false) && !truth(value));
  if (!absent) return value;
  return a[0] == nullptr ? Value::of(std::string_view()) : *a[0];
}

Result<Value> attr(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, "attr", {"name"}));
  if (a[0] == nullptr || !a[0]->is_string()) return run.fail("attr wants a name");
  if (has_method(value, a[0]->text())) return run.attribute(value, a[0]->text());
  return Value::undefined(a[0]->text());
}

struct Named {
  std::string_view name;
  Filter filter;
};
constexpr Named kFilters[] = {
    {"abs", absolute},
    {"attr", attr},
    {"batch", batch},
    {"capitalize", changed<capitalize>},
    {"count", length},
    {"d", default_value},
    {"default", default_value},
    {"dictsort", dictsort},
    {"e", escape},
    {"escape", escape},
    {"first", first},
    {"float", to_float},
    {"forceescape", force_escape},
    {"format", format},
    {"groupby", groupby},
    {"indent", indent},
    {"int", to_int},
    {"items", items_of},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", to_list},
    {"lower", changed<to_lower>},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", select<false, false>},
    {"rejectattr", select<true, false>},
    {"replace", replace},
    {"reverse", reverse},
    {"round", round_number},
    {"safe", safe},
    {"select", select<false, true>},
    {"selectattr", select<true, true>},
    {"sort", sort},
    {"string", string},
    {"sum", sum},
    {"title", changed<title_words>},
    {"tojson", tojson},
    {"trim", trim},
    {"unique", unique},
    {"upper", changed<to_upper>},
    {"wordcount", wordcount},
};

}  // namespace

Result<Value> apply_filter(Runtime& run, std::string_view name, const Value& value,
                           const CallArguments& arguments) {
  HEARTH_TRY(run.charge());
  const auto found = std::ranges::find(kFilters, name, &Named::name);
  if (found == std::end(kFilters)) {
    return run.unsupported(fmt::format("the filter '{}' is not supported", name.substr(0, 40)));
  }
  return found->filter(run, value, arguments);
}

Result<Value> format_percent(Runtime& run, std::string_view format,
                             const std::vector<Value>& with) {
  std::string out;
  size_t used = 0;
  while (!format.empty()) {
    const size_t at = std::min(format.find('%'), format.size());
    HEARTH_TRY(run.room(out.size(), at + 1));
    out += format.substr(0, at);
    if (at == format.size()) break;
    format.remove_prefix(at + 1);
    if (format.starts_with('%')) {
      out.push_back('%');
      format.remove_prefix(1);
      continue;
    }
    int digits = -1;
    if (format.starts_with('.')) {
      const auto read = std::from_chars(format.data() + 1, format.data() + format.size(), digits);
      if (read.ec != std::errc() || digits > 30) return run.unsupported("this form of '%'");
      format.remove_prefix(static_cast<size_t>(read.ptr - format.data()));
    }
    if (format.empty()) return run.fail("'%' at the end of a format");
    const char kind = format.front();
    format.remove_prefix(1);
    if (used >= with.size()) return run.fail("a format wants more values than there are");
    const Value& value = with[used++];
    if (kind == 's' && digits < 0) {
      HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(run, value));
      HEARTH_TRY(run.room(out.size(), text.size()));
      out += text;
    } else if (kind == 'r' && digits < 0) {
      HEARTH_TRY(run.append_repr(out, value));
    } else if ((kind == 'd' || kind == 'i') && digits < 0 && value.is_number()) {
      if (std::abs(value.as_float()) >= 9.2e18) return run.fail("a number too large for '%d'");
      out +=
          std::to_string(value.is_int() ? value.as_int() : static_cast<int64_t>(value.as_float()));
    } else if (kind == 'f' && value.is_number()) {
      out += fmt::format("{:.{}f}", value.as_float(), digits < 0 ? 6 : digits);
    } else {
      return run.unsupported(fmt::format("'%{}' of {}", kind, type_name(value)));
    }
  }
  if (used < with.size()) return run.fail("a format wants fewer values than there are");
  return run.text(std::move(out));
}

}  // namespace hearth::models::jinja
