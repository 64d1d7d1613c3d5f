#include "models/template/runtime.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "kernels/base/chars.h"
#include "models/template/text.h"

namespace hearth::models::jinja {
namespace {

/// Nesting of values that are printed or compared.
constexpr int kMaxValueDepth = 100;

std::string string_repr(std::string_view text) {
  std::string out;
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.push_back(quote);
  while (!text.empty()) {
    const Char c = first_char(text);
    if (c.code == '\\' || c.code == byte_of(quote)) {
      out.push_back('\\');
      out.push_back(static_cast<char>(c.code));
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code == '\r') {
      out += "\\r";
    } else if (c.code == '\t') {
      out += "\\t";
    } else if (c.code < 32 || (c.code >= 0x7F && c.code <= 0xA0) || c.code == 0xAD) {
      out += fmt::format("\\x{:02x}", c.code);
    } else {
      out += text.substr(0, c.bytes);
    }
    text.remove_prefix(c.bytes);
  }
  out.push_back(quote);
  return out;
}

}  // namespace

Error Runtime::fail(const std::string& what) const { return Error::invalid(about(what)); }
Error Runtime::too_large(const std::string& what) const { return Error::too_large(about(what)); }
Error Runtime::unsupported(const std::string& what) const {
  return Error::unsupported(about(what));
}

std::string Runtime::about(const std::string& what) const {
  return fmt::format("chat template, line {}: {}", line_, what);
}

Result<void> Runtime::charge(uint64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.max_steps) {
    return too_large(fmt::format("takes more than {} steps", limits_.max_steps));
  }
  if (arena_.bytes() > limits_.max_bytes) {
    return too_large(fmt::format("takes more than {} bytes", limits_.max_bytes));
  }
  return {};
}

Result<void> Runtime::room(size_t size, size_t more) const {
  // A text must not be longer than the output may be.
  if (more <= limits_.max_output_bytes && size + more <= limits_.max_output_bytes) return {};
  return too_large(fmt::format("makes a text of more than {} bytes", limits_.max_output_bytes));
}

Result<Value> Runtime::list(std::vector<Value> items, Kind kind) {
  HEARTH_TRY(charge(1 + items.size() / 16));
  List* out = arena_.new_list();
  arena_.count(items.size() * sizeof(Value));
  out->items = std::move(items);
  return Value::of(out, kind);
}

Result<void> Runtime::add(List& list, const Value& item) {
  list.items.push_back(item);
  arena_.count(2 * sizeof(Value));
  return charge();
}

// ---- Text -----------------------------------------------------------------------------------

Value Runtime::text_from(std::string_view source, std::string_view made, bool markup) {
  TracedText out;
  append_from(out, source, made);
  return text(std::move(out), markup);
}

void Runtime::append_from(TracedText& to, std::string_view source, std::string_view made) const {
  if (arena_.texts().has_data(source)) {
    to.add_data(made);
  } else {
    to.text += made;
  }
}

Result<Value> Runtime::str_value(const Value& value) {
  if (value.is_string()) return value;
  HEARTH_ASSIGN_OR_RETURN(TracedText out, str(value));
  return text(std::move(out));
}

Result<TracedText> Runtime::str(const Value& value) {
  TracedText out;
  switch (value.kind()) {
    case Kind::kUndefined: return out;
    case Kind::kString: append(out, value.text()); return out;
    default: HEARTH_TRY(append_repr(out, value)); return out;
  }
}

Result<void> Runtime::append_repr(TracedText& to, const Value& value, int depth) {
  if (depth > kMaxValueDepth) return too_large("a value nested too deeply");
  HEARTH_TRY(charge());
  std::string& out = to.text;
  HEARTH_TRY(room(out.size(), 32));
  switch (value.kind()) {
    case Kind::kUndefined: out += "Undefined"; return {};
    case Kind::kNone: out += "None"; return {};
    case Kind::kBool: out += value.as_int() != 0 ? "True" : "False"; return {};
    case Kind::kInt: out += std::to_string(value.as_int()); return {};
    case Kind::kFloat: out += float_text(value.as_float()); return {};
    case Kind::kString:
      HEARTH_TRY(charge_bytes(value.text().size()));
      HEARTH_TRY(room(out.size(), 4 * value.text().size()));
      if (value.is_markup()) out += "Markup(";
      append_from(to, value.text(), string_repr(value.text()));
      if (value.is_markup()) out += ")";
      return {};
    case Kind::kList:
    case Kind::kTuple: {
      const bool tuple = value.kind() == Kind::kTuple;
      const std::vector<Value>& items = value.list().items;
      out.push_back(tuple ? '(' : '[');
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += ", ";
        HEARTH_TRY(append_repr(to, items[i], depth + 1));
      }
      if (tuple && items.size() == 1) out.push_back(',');
      out.push_back(tuple ? ')' : ']');
      return {};
    }
    case Kind::kDict: {
      out.push_back('{');
      bool first = true;
      for (const auto& [key, item] : value.dict().entries()) {
        if (!first) out += ", ";
        first = false;
        HEARTH_TRY(append_repr(to, key, depth + 1));
        out += ": ";
        HEARTH_TRY(append_repr(to, item, depth + 1));
      }
      out.push_back('}');
      return {};
    }
    case Kind::kNamespace: return unsupported("the text of a namespace");
    case Kind::kCallable: return unsupported("the text of a function");
  }
  return {};
}

Error Runtime::undefined_error(const Value& value) const {
  if (value.text().empty()) return fail("a value is undefined");
  return fail(fmt::format("'{}' is undefined", value.text().substr(0, 80)));
}

// ---- Comparing ------------------------------------------------------------------------------

Result<bool> Runtime::equal(const Value& a, const Value& b, int depth) {
  if (depth > kMaxValueDepth) return too_large("a value nested too deeply");
  HEARTH_TRY(charge());
  if (a.is_number() && b.is_number()) {
    if (a.is_int() && b.is_int()) return a.as_int() == b.as_int();
    return a.as_float() == b.as_float();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
      if (a.text().size() != b.text().size()) return false;
      HEARTH_TRY(charge_bytes(a.text().size()));
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple: {
      if (a.identity() == b.identity()) return true;
      const std::vector<Value>&x = a.list().items, &y = b.list().items;
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i) {
        HEARTH_ASSIGN_OR_RETURN(const bool same, equal(x[i], y[i], depth + 1));
        if (!same) return false;
      }
      return true;
    }
    case Kind::kDict: {
      if (a.identity() == b.identity()) return true;
      if (a.dict().size() != b.dict().size()) return false;
      for (const auto& [key, value] : a.dict().entries()) {
        const Value* other = b.dict().find(key);
        if (other == nullptr) return false;
        HEARTH_ASSIGN_OR_RETURN(const bool same, equal(value, *other, depth + 1));
        if (!same) return false;
      }
      return true;
    }
    case Kind::kNamespace:
    case Kind::kCallable: return a.identity() == b.identity();
    default: return true;  // undefined, none
  }
}

Result<bool> Runtime::less(const Value& a, const Value& b, int depth) {
  if (depth > kMaxValueDepth) return too_large("a value nested too deeply");
  HEARTH_TRY(charge());
  if (a.is_number() && b.is_number()) {
    if (a.is_int() && b.is_int()) return a.as_int() < b.as_int();
    return a.as_float() < b.as_float();
  }
  if (a.is_string() && b.is_string()) {
    HEARTH_TRY(charge_bytes(std::min(a.text().size(), b.text().size())));
    return a.text() < b.text();  // UTF-8 bytes sort like the characters
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const std::vector<Value>&x = a.list().items, &y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      HEARTH_ASSIGN_OR_RETURN(const bool same, equal(x[i], y[i], depth + 1));
      if (!same) return less(x[i], y[i], depth + 1);
    }
    return x.size() < y.size();
  }
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  return fail(fmt::format("'<' not supported between '{}' and '{}'", type_name(a), type_name(b)));
}

Result<bool> Runtime::contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string()) {
        return fail(fmt::format("'in' a text wants a text, met {}", type_name(item)));
      }
      HEARTH_TRY(charge_bytes(container.text().size()));
      return container.text().find(item.text()) != std::string_view::npos;
    case Kind::kDict: return container.dict().find(item) != nullptr;
    case Kind::kUndefined: return false;
    case Kind::kList:
    case Kind::kTuple:
      for (const Value& each : container.list().items) {
        HEARTH_ASSIGN_OR_RETURN(const bool same, equal(each, item));
        if (same) return true;
      }
      return false;
    default: return fail(fmt::format("'in' is not defined for {}", type_name(container)));
  }
}

// ---- Arithmetic -----------------------------------------------------------------------------

Result<Value> Runtime::binary(std::string_view op, const Value& a, const Value& b) {
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  if (op == "+") return add_values(a, b);
  if (op == "*") {
    if (b.is_int() && (a.is_string() || a.is_sequence())) return repeat(a, b.as_int());
    if (a.is_int() && (b.is_string() || b.is_sequence())) return repeat(b, a.as_int());
  }
  if (op == "%" && a.is_string()) {
    if (b.kind() == Kind::kTuple) return format_percent(*this, a.text(), b.list().items);
    return format_percent(*this, a.text(), {b});
  }
  return arithmetic(op, a, b);
}

Result<Value> Runtime::add_values(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    const bool markup = a.is_markup() || b.is_markup();
    TracedText out;
    for (const Value* each : {&a, &b}) {
      if (markup && !each->is_markup()) {
        const std::string escaped = escape_html(each->text());
        HEARTH_TRY(room(out.text.size(), escaped.size()));
        append_from(out, each->text(), escaped);
      } else {
        HEARTH_TRY(room(out.text.size(), each->text().size()));
        append(out, each->text());
      }
    }
    HEARTH_TRY(charge_bytes(out.text.size()));
    return text(std::move(out), markup);
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    std::vector<Value> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return list(std::move(items), a.kind());
  }
  return arithmetic("+", a, b);
}

Result<Value> Runtime::repeat(const Value& a, int64_t count) {
  const size_t times = std::max<int64_t>(0, count);
  if (a.is_string()) {
    if (a.text().empty() || times == 0) return Value::of(std::string_view());
    if (times > limits_.max_output_bytes) HEARTH_TRY(room(0, times));
    HEARTH_TRY(room(0, a.text().size() * times));
    HEARTH_TRY(charge_bytes(a.text().size() * times));
    TracedText out;
    out.text.reserve(a.text().size() * times);
    for (size_t i = 0; i < times; ++i) append(out, a.text());
    return text(std::move(out), a.is_markup());
  }
  const std::vector<Value>& items = a.list().items;
  if (items.empty() || times == 0) return list({}, a.kind());
  if (times > limits_.max_steps) HEARTH_TRY(charge(times));
  HEARTH_TRY(charge(items.size() * times));
  std::vector<Value> out;
  for (size_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  return list(std::move(out), a.kind());
}

Result<Value> Runtime::arithmetic(std::string_view op, const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) {
    return fail(fmt::format("'{}' is not defined for {} and {}", op, type_name(a), type_name(b)));
  }
  const bool divides = op == "/" || op == "//" || op == "%";
  if (divides && b.as_float() == 0) return fail("division by zero");
  if (a.is_int() && b.is_int() && op != "/") {
    const int64_t x = a.as_int(), y = b.as_int();
    int64_t out = 0;
    bool over = false;
    if (op == "+") {
      over = __builtin_add_overflow(x, y, &out);
    } else if (op == "-") {
      over = __builtin_sub_overflow(x, y, &out);
    } else if (op == "*") {
      over = __builtin_mul_overflow(x, y, &out);
    } else if (op == "//" || op == "%") {
      over = x == INT64_MIN && y == -1;
      if (!over) {
        const bool down = x % y != 0 && (x < 0) != (y < 0);  // towards minus infinity
        out = op == "//" ? x / y - (down ? 1 : 0) : x % y + (down ? y : 0);
      } else if (op == "%") {
        over = false;
      }
    } else if (y < 0) {
      if (x == 0) return fail("0 to a negative power");
      return Value::of(std::pow(a.as_float(), b.as_float()));
    } else {
      out = 1;
      int64_t base = x;
      for (int64_t power = y; power > 0 && !over; power >>= 1) {
        if ((power & 1) != 0) over = __builtin_mul_overflow(out, base, &out);
        if (power > 1 && !over) over = __builtin_mul_overflow(base, base, &base);
      }
    }
    if (over) return fail(fmt::format("'{}' gives an integer beyond 64 bits", op));
    return Value::of(out);
  }
  const double x = a.as_float(), y = b.as_float();
  if (op == "+") return Value::of(x + y);
  if (op == "-") return Value::of(x - y);
  if (op == "*") return Value::of(x * y);
  if (op == "/") return Value::of(x / y);
  if (op == "//") return Value::of(std::floor(x / y));
  if (op == "%") {
    const double rest = std::fmod(x, y);
    return Value::of(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
  }
  return Value::of(std::pow(x, y));
}

// ---- Looking into values --------------------------------------------------------------------

Result<List*> Runtime::iterate(const Value& value) {
  HEARTH_TRY(charge());
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kTuple: return &value.list();
    case Kind::kUndefined: return arena_.new_list();
    case Kind::kDict: {
      List* out = arena_.new_list();
      for (const auto& entry : value.dict().entries()) HEARTH_TRY(add(*out, entry.first));
      return out;
    }
    case Kind::kString: {
      List* out = arena_.new_list();
      std::string_view rest = value.text();
      while (!rest.empty()) {
        const size_t bytes = first_char(rest).bytes;
        HEARTH_TRY(add(*out, Value::of(rest.substr(0, bytes))));
        rest.remove_prefix(bytes);
      }
      return out;
    }
    default: return fail(fmt::format("'{}' cannot be iterated", type_name(value)));
  }
}

Result<size_t> Runtime::length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return size_t{0};
    case Kind::kString:
      HEARTH_TRY(charge_bytes(value.text().size()));
      return count_chars(value.text());
    case Kind::kList:
    case Kind::kTuple: return value.list().items.size();
    case Kind::kDict: return value.dict().size();
    default: return fail(fmt::format("'{}' has no length", type_name(value)));
  }
}

Result<Value> Runtime::attribute(const Value& value, std::string_view name) {
  HEARTH_TRY(charge());
  if (value.is_undefined()) return undefined_error(value);
  if (has_method(value, name)) {
    Callable method;
    method.type = Callable::Type::kMethod;
    method.name = name;
    method.self = value;
    return Value::of(arena_.new_callable(std::move(method)));
  }
  if (value.is_dict() || value.kind() == Kind::kNamespace) {
    if (const Value* found = value.dict().find(name)) return *found;
  }
  return Value::undefined(name);
}

Result<Value> Runtime::item(const Value& value, const Value& key) {
  HEARTH_TRY(charge());
  switch (value.kind()) {
    case Kind::kUndefined: return undefined_error(value);
    case Kind::kDict:
      if (const Value* found = value.dict().find(key)) return *found;
      break;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kString: {
      if (!key.is_int()) break;
      const bool is_text = value.is_string();
      if (is_text) HEARTH_TRY(charge_bytes(value.text().size()));
      const int64_t size = is_text ? count_chars(value.text()) : value.list().items.size();
      const int64_t at = key.as_int() < 0 ? key.as_int() + size : key.as_int();
      if (at < 0 || at >= size) return Value::undefined("item out of range");
      if (!is_text) return value.list().items[at];
      const std::string_view rest = value.text().substr(char_offset(value.text(), at));
      return Value::of(rest.substr(0, first_char(rest).bytes));
    }
    default: break;
  }
  if (key.is_string()) return attribute(value, key.text());
  return Value::undefined("item");
}

Result<Value> Runtime::slice(const Value& value, const Value& start, const Value& stop,
                             const Value& step) {
  if (value.is_undefined()) return undefined_error(value);
  if (!value.is_string() && !value.is_sequence()) {
    return fail(fmt::format("'{}' cannot be sliced", type_name(value)));
  }
  for (const Value* part : {&start, &stop, &step}) {
    if (part->is_int() || part->is_none()) continue;
    return fail(fmt::format("a slice wants integers, met {}", type_name(*part)));
  }
  std::string_view all = value.is_string() ? value.text() : std::string_view();
  const bool ascii = std::all_of(all.begin(), all.end(), [](char c) { return byte_of(c) < 0x80; });
  if (value.is_string()) HEARTH_TRY(charge_bytes(all.size()));
  const int64_t size = value.is_string() ? count_chars(all) : value.list().items.size();
  const int64_t by = step.is_none() ? 1 : step.as_int();
  if (by == 0) return fail("a slice's step cannot be zero");
  const int64_t low = by < 0 ? -1 : 0, high = by < 0 ? size - 1 : size;
  const auto index = [&](const Value& part, int64_t otherwise) {
    if (part.is_none()) return otherwise;
    const int64_t at = part.as_int();
    if (at < 0) return at < -size ? low : std::max(low, at + size);
    return std::min(high, at);
  };
  const int64_t from = index(start, by < 0 ? high : low);
  const int64_t to = index(stop, by < 0 ? low : high);
  if (value.is_string() && by == 1) {
    if (from >= to) return Value::of(std::string_view(), value.is_markup());
    const auto offset = [&](int64_t at) {
      return ascii ? static_cast<size_t>(at) : char_offset(all, at);
    };
    const size_t begin = offset(from), end = offset(to);
    return Value::of(all.substr(begin, end - begin), value.is_markup());
  }
  // Stop before `at` would overflow 64 bits.
  std::vector<size_t> picked;
  for (int64_t at = from; by > 0 ? at < to : at > to;) {
    picked.push_back(at);
    if (__builtin_add_overflow(at, by, &at)) break;
  }
  HEARTH_TRY(charge(picked.size()));
  if (value.is_string()) {
    HEARTH_ASSIGN_OR_RETURN(const List* chars, iterate(value));
    TracedText out;
    for (const size_t at : picked) append(out, chars->items[at].text());
    return text(std::move(out), value.is_markup());
  }
  std::vector<Value> items;
  items.reserve(picked.size());
  for (const size_t at : picked) items.push_back(value.list().items[at]);
  return list(std::move(items), value.kind());
}

Result<Value> Runtime::path(const Value& value, const Value& path) {
  if (path.is_int()) return item(value, path);
  if (!path.is_string()) return fail("an attribute wants a name");
  std::string_view rest = path.text();
  Value at = value;
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number =
        !part.empty() && read.ec == std::errc() && read.ptr == part.data() + part.size();
    HEARTH_ASSIGN_OR_RETURN(at, item(at, number ? Value::of(index) : Value::of(part)));
    if (dot == rest.size()) return at;
    rest.remove_prefix(dot + 1);
  }
}

Result<void> Runtime::check_key(const Value& key) const {
  switch (key.kind()) {
    case Kind::kString:
    case Kind::kInt:
    case Kind::kBool:
    case Kind::kFloat:
    case Kind::kNone: return {};
    case Kind::kUndefined: return undefined_error(key);
    default: return fail(fmt::format("'{}' cannot be a dictionary's key", type_name(key)));
  }
}

// ---- Arguments ------------------------------------------------------------------------------

Result<std::vector<const Value*>> Runtime::bind(
    const CallArguments& arguments, std::string_view what,
    std::initializer_list<std::string_view> names) const {
  std::vector<const Value*> out(names.size(), nullptr);
  if (arguments.positional.size() > names.size()) {
    return fail(fmt::format("{} takes {} arguments, met {}", what, names.size(),
                            arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) out[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) {
      return unsupported(fmt::format("{} has no argument '{}'", what, name.substr(0, 40)));
    }
    const Value*& slot = out[found - names.begin()];
    if (slot != nullptr) return fail(fmt::format("{} has '{}' twice", what, name.substr(0, 40)));
    slot = &value;
  }
  return out;
}

Result<int64_t> Runtime::integer(const Value* value, std::string_view what,
                                 int64_t otherwise) const {
  if (value == nullptr) return otherwise;
  if (value->is_int()) return value->as_int();
  return fail(fmt::format("{} wants an integer, met {}", what, type_name(*value)));
}

}  // namespace hearth::models::jinja
