// Methods of strings, lists and dictionaries.

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "models/template/runtime.h"
#include "models/template/text.h"

namespace hearth::models::jinja {
namespace {

constexpr auto kStringMethods = std::to_array<std::string_view>(
    {"strip",      "lstrip",     "rstrip",       "split",        "rsplit",  "splitlines",
     "startswith", "endswith",   "replace",      "upper",        "lower",   "title",
     "capitalize", "find",       "rfind",        "count",        "join",    "isdigit",
     "isalpha",    "isalnum",    "isspace",      "isupper",      "islower", "zfill",
     "partition",  "rpartition", "removeprefix", "removesuffix", "index",   "isnumeric",
     "isdecimal",  "format"});
constexpr auto kListMethods = std::to_array<std::string_view>(
    {"append", "extend", "insert", "pop", "index", "count", "copy", "reverse"});
constexpr auto kDictMethods = std::to_array<std::string_view>(
    {"get", "items", "keys", "values", "pop", "update", "setdefault", "copy"});

template <size_t N>
bool among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

using Bound = std::vector<const Value*>;

class StringMethods {
 public:
  StringMethods(Runtime& run, const Value& self, const CallArguments& arguments)
      : run_(run), value_(self), self_(self.text()), arguments_(arguments) {}

  Result<Value> call(std::string_view name) {
    HEARTH_TRY(run_.charge_bytes(self_.size()));
    if (name == "strip" || name == "lstrip" || name == "rstrip") return strip(name);
    if (name == "split" || name == "rsplit") return split(name == "rsplit");
    if (name == "splitlines") return splitlines();
    if (name == "startswith" || name == "endswith") return borders(name == "startswith");
    if (name == "replace") return replace();
    if (name == "join") return join();
    if (name == "find" || name == "rfind" || name == "index") return find(name);
    if (name == "count") return count();
    if (name == "partition" || name == "rpartition") return partition(name == "rpartition");
    if (name == "removeprefix" || name == "removesuffix") return remove(name == "removeprefix");
    if (name == "zfill") return zfill();
    if (name == "format") return format();
    HEARTH_TRY(run_.bind(arguments_, name, {}));
    if (name == "upper") return made(to_upper(self_));
    if (name == "lower") return made(to_lower(self_));
    if (name == "title") return made(to_title(self_));
    if (name == "capitalize") return made(capitalize(self_));
    return Value::of(all_are(name));
  }

 private:
  Value made(const std::string& text) { return run_.text_from(self_, text, value_.is_markup()); }
  Value made(TracedText text) { return run_.text(std::move(text), value_.is_markup()); }
  Value part(std::string_view text) const { return Value::of(text, value_.is_markup()); }

  Result<std::string_view> text_of(const Value* value, std::string_view what) const {
    if (value != nullptr && value->is_string()) return value->text();
    if (value != nullptr && value->is_undefined()) return run_.undefined_error(*value);
    return run_.fail(fmt::format("{} wants a text, met {}", what,
                                 value == nullptr ? "nothing" : type_name(*value)));
  }

  Result<Value> strip(std::string_view name) {
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run_.bind(arguments_, name, {"chars"}));
    std::string_view out = self_;
    if (a[0] == nullptr || a[0]->is_none()) {
      if (name != "rstrip") out = strip_left(out);
      if (name != "lstrip") out = strip_right(out);
      return part(out);
    }
    HEARTH_ASSIGN_OR_RETURN(const std::string_view chars, text_of(a[0], name));
    HEARTH_TRY(run_.charge_bytes(self_.size() * std::min<size_t>(chars.size(), 4096)));
    if (name != "rstrip") out = strip_left(out, chars);
    if (name != "lstrip") out = strip_right(out, chars);
    return part(out);
  }

  Result<Value> split(bool from_right) {
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run_.bind(arguments_, "split", {"sep", "maxsplit"}));
    HEARTH_ASSIGN_OR_RETURN(const int64_t wanted, run_.integer(a[1], "split", -1));
    const size_t most = wanted < 0 ? SIZE_MAX : static_cast<size_t>(wanted);
    std::vector<Value> out;
    if (a[0] == nullptr || a[0]->is_none()) {
      std::string_view rest = from_right ? strip_right(self_) : strip_left(self_);
      while (!rest.empty()) {
        if (out.size() == most) {
          out.push_back(part(rest));
          break;
        }
        if (from_right) {
          const std::string_view before = before_last_word(rest);
          out.push_back(part(rest.substr(before.size())));
          rest = strip_right(before);
        } else {
          size_t end = 0;
          while (end < rest.size()) {
            const Char c = first_char(rest.substr(end));
            if (is_space(c.code)) break;
            end += c.bytes;
          }
          out.push_back(part(rest.substr(0, end)));
          rest = strip_left(rest.substr(end));
        }
      }
    } else {
      HEARTH_ASSIGN_OR_RETURN(const std::string_view sep, text_of(a[0], "split"));
      if (sep.empty()) return run_.fail("split: an empty separator");
      std::string_view rest = self_;
      while (out.size() < most) {
        const size_t at = from_right ? rest.rfind(sep) : rest.find(sep);
        if (at == std::string_view::npos) break;
        if (from_right) {
          out.push_back(part(rest.substr(at + sep.size())));
          rest = rest.substr(0, at);
        } else {
          out.push_back(part(rest.substr(0, at)));
          rest.remove_prefix(at + sep.size());
        }
      }
      out.push_back(part(rest));
    }
    if (from_right) std::ranges::reverse(out);
    HEARTH_TRY(run_.charge(out.size()));
    return run_.list(std::move(out));
  }

  static std::string_view before_last_word(std::string_view text) {
    while (!text.empty()) {
      size_t at = text.size() - 1;
      while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
      if (is_space(first_char(text.substr(at)).code)) break;
      text = text.substr(0, at);
    }
    return text;
  }

  Result<Value> splitlines() {
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run_.bind(arguments_, "splitlines", {"keepends"}));
    const bool keep = Runtime::flag(a[0], false);
    std::vector<Value> out;
    size_t begin = 0, at = 0;
    while (at < self_.size()) {
      const Char c = first_char(self_.substr(at));
      const bool ends = (c.code >= 10 && c.code <= 13) || (c.code >= 28 && c.code <= 30) ||
                        c.code == 0x85 || c.code == 0x2028 || c.code == 0x2029;
      const size_t end = at;
      at += c.bytes;
      if (!ends) continue;
      if (c.code == '\r' && at < self_.size() && self_[at] == '\n') ++at;
      out.push_back(part(self_.substr(begin, (keep ? at : end) - begin)));
      begin = at;
    }
    if (begin < self_.size()) out.push_back(part(self_.substr(begin)));
    HEARTH_TRY(run_.charge(out.size()));
    return run_.list(std::move(out));
  }

  Result<Value> borders(bool start) {
    const std::string_view what = start ? "startswith" : "endswith";
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run_.bind(arguments_, what, {"text"}));
    const auto matches = [&](std::string_view with) {
      return start ? self_.starts_with(with) : self_.ends_with(with);
    };
    if (a[0] != nullptr && a[0]->kind() == Kind::kTuple) {
      for (const Value& each : a[0]->list().items) {
        HEARTH_ASSIGN_OR_RETURN(const std::string_view with, text_of(&each, what));
        if (matches(with)) return Value::of(true);
      }
      return Value::of(false);
    }
    HEARTH_ASSIGN_OR_RETURN(const std::string_view with, text_of(a[0], what));
    return Value::of(matches(with));
  }

  Result<Value> replace() {
    HEARTH_ASSIGN_OR_RETURN(const Bound a,
                            run_.bind(arguments_, "replace", {"old", "new", "count"}));
    HEARTH_ASSIGN_OR_RETURN(const std::string_view old, text_of(a[0], "replace"));
    HEARTH_ASSIGN_OR_RETURN(const std::string_view with, text_of(a[1], "replace"));
    HEARTH_ASSIGN_OR_RETURN(const int64_t count, run_.integer(a[2], "replace", -1));
    const std::string_view filter[] = {old, with};
    CallArguments call;
    for (const std::string_view text : filter) call.positional.push_back(Value::of(text));
    call.positional.push_back(count < 0 ? Value::none() : Value::of(count));
    return apply_filter(run_, "replace", value_, call);
  }

  Result<Value> join() {
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run_.bind(arguments_, "join", {"items"}));
    if (a[0] == nullptr) return run_.fail("join wants a list");
    HEARTH_ASSIGN_OR_RETURN(const List* items, run_.iterate(*a[0]));
    TracedText out;
    bool first = true;
    for (const Value& each : items->items) {
      HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(&each, "join"));
      HEARTH_TRY(run_.room(out.text.size(), text.size() + self_.size()));
      HEARTH_TRY(run_.charge_bytes(text.size() + self_.size()));
      if (!first) run_.append(out, self_);
      first = false;
      run_.append(out, text);
    }
    return made(std::move(out));
  }

  Result<Value> find(std::string_view name) {
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run_.bind(arguments_, name, {"text", "start", "end"}));
    HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(a[0], name));
    if (a[2] != nullptr) return run_.unsupported(fmt::format("{} with an end", name));
    HEARTH_ASSIGN_OR_RETURN(int64_t start, run_.integer(a[1], name, 0));
    const int64_t size = count_chars(self_);
    if (start < 0) start = std::max<int64_t>(0, start + size);
    size_t at = std::string_view::npos;
    if (start <= size) {
      const size_t from = char_offset(self_, start);
      at = name == "rfind" ? self_.rfind(text) : self_.find(text, from);
      if (at != std::string_view::npos && at < from) at = std::string_view::npos;
    }
    if (at != std::string_view::npos) {
      return Value::of(count_chars(self_.substr(0, at)));
    }
    if (name == "index") return run_.fail("index: no such text in it");
    return Value::of(int64_t{-1});
  }

  Result<Value> count() {
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run_.bind(arguments_, "count", {"text"}));
    HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(a[0], "count"));
    if (text.empty()) return Value::of(count_chars(self_) + 1);
    int64_t found = 0;
    for (size_t at = 0; (at = self_.find(text, at)) != std::string_view::npos; at += text.size()) {
      ++found;
    }
    return Value::of(found);
  }

  Result<Value> partition(bool from_right) {
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run_.bind(arguments_, "partition", {"sep"}));
    HEARTH_ASSIGN_OR_RETURN(const std::string_view sep, text_of(a[0], "partition"));
    if (sep.empty()) return run_.fail("partition: an empty separator");
    const size_t at = from_right ? self_.rfind(sep) : self_.find(sep);
    const Value empty = part({});
    std::vector<Value> out;
    if (at != std::string_view::npos) {
      out = {part(self_.substr(0, at)), part(sep), part(self_.substr(at + sep.size()))};
    } else if (from_right) {
      out = {empty, empty, value_};
    } else {
      out = {value_, empty, empty};
    }
    return run_.list(std::move(out), Kind::kTuple);
  }

  Result<Value> remove(bool prefix) {
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run_.bind(arguments_, "removeprefix", {"text"}));
    HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(a[0], "removeprefix"));
    std::string_view out = self_;
    if (prefix && out.starts_with(text)) out.remove_prefix(text.size());
    if (!prefix && out.ends_with(text)) out.remove_suffix(text.size());
    return part(out);
  }

  Result<Value> zfill() {
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run_.bind(arguments_, "zfill", {"width"}));
    HEARTH_ASSIGN_OR_RETURN(const int64_t width, run_.integer(a[0], "zfill", 0));
    const int64_t size = count_chars(self_);
    if (width <= size) return value_;
    HEARTH_TRY(run_.room(self_.size(), width));
    const bool sign = self_.starts_with('-') || self_.starts_with('+');
    std::string out(self_.substr(0, sign ? 1 : 0));
    out.append(width - size, '0');
    return made(out + std::string(self_.substr(sign ? 1 : 0)));
  }

  /// Fields without a conversion or a width: {}, {0}, {name}.
  Result<Value> format() {
    TracedText out;
    size_t next = 0;
    for (std::string_view rest = self_; !rest.empty();) {
      const size_t at = std::min(rest.find_first_of("{}"), rest.size());
      run_.append(out, rest.substr(0, at));
      rest.remove_prefix(at);
      if (rest.empty()) break;
      if (rest.starts_with("{{") || rest.starts_with("}}")) {
        run_.append(out, rest.substr(0, 1));
        rest.remove_prefix(2);
        continue;
      }
      const size_t end = rest.find('}');
      if (rest.front() == '}' || end == std::string_view::npos) {
        return run_.fail("format: a brace without its other half");
      }
      const std::string_view field = rest.substr(1, end - 1);
      rest.remove_prefix(end + 1);
      const auto& named = arguments_.named;
      const auto found =
          std::ranges::find(named, field, &std::pair<std::string_view, Value>::first);
      size_t place = next;
      if (field.empty()) {
        ++next;
      } else if (field.find_first_not_of("0123456789") == std::string_view::npos) {
        place = field.size() > 3 ? arguments_.positional.size() : std::stoul(std::string(field));
      } else if (found == named.end()) {
        return run_.fail(fmt::format("format: nothing for the field '{}'", field.substr(0, 60)));
      }
      const bool by_name = found != named.end();
      if (!by_name && place >= arguments_.positional.size()) {
        return run_.fail("format: more fields than values");
      }
      const Value& value = by_name ? found->second : arguments_.positional[place];
      HEARTH_ASSIGN_OR_RETURN(const TracedText text, run_.str(value));
      HEARTH_TRY(run_.charge_bytes(text.text.size()));
      HEARTH_TRY(run_.room(out.text.size(), text.text.size()));
      out.add(text);
    }
    return made(std::move(out));
  }

  bool all_are(std::string_view name) const {
    bool any = false, cased = false;
    for (std::string_view rest = self_; !rest.empty();) {
      const Char c = first_char(rest);
      rest.remove_prefix(c.bytes);
      any = true;
      if (name == "isupper" || name == "islower") {
        const bool upper = is_upper(c.code), lower = is_lower(c.code);
        if (name == "isupper" ? lower : upper) return false;
        cased = cased || upper || lower;
      } else if (name == "isspace") {
        if (!is_space(c.code)) return false;
      } else if (name == "isalpha") {
        if (!is_alpha(c.code)) return false;
      } else if (name == "isalnum") {
        if (!is_alpha(c.code) && !is_digit(c.code)) return false;
      } else if (!is_digit(c.code)) {
        return false;
      }
    }
    return name == "isupper" || name == "islower" ? cased : any;
  }

  Runtime& run_;
  const Value value_;
  const std::string_view self_;
  const CallArguments& arguments_;
};

Result<Value> list_method(Runtime& run, const Value& self, std::string_view name,
                          const CallArguments& arguments) {
  List& list = self.list();
  std::vector<Value>& items = list.items;
  const auto position = [&items](int64_t at) {
    const int64_t size = items.size();
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const bool changes = name != "index" && name != "count" && name != "copy";
  if (changes && self.kind() == Kind::kTuple) return run.fail("a tuple cannot be changed");
  if (name == "append") {
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, name, {"item"}));
    if (a[0] == nullptr) return run.fail("append wants an item");
    HEARTH_TRY(run.add(list, *a[0]));
    return Value::none();
  }
  if (name == "extend") {
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, name, {"items"}));
    if (a[0] == nullptr) return run.fail("extend wants a list");
    HEARTH_ASSIGN_OR_RETURN(const List* more, run.iterate(*a[0]));
    const std::vector<Value> copied = more->items;
    for (const Value& each : copied) HEARTH_TRY(run.add(list, each));
    return Value::none();
  }
  HEARTH_TRY(run.charge(1 + items.size() / 16));
  if (name == "insert") {
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, name, {"index", "item"}));
    if (a[0] == nullptr || a[1] == nullptr) return run.fail("insert wants an index and an item");
    HEARTH_ASSIGN_OR_RETURN(const int64_t at, run.integer(a[0], name, 0));
    items.insert(items.begin() + position(at), *a[1]);
    run.arena().count(2 * sizeof(Value));
    return Value::none();
  }
  if (name == "pop") {
    HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, name, {"index"}));
    HEARTH_ASSIGN_OR_RETURN(int64_t at, run.integer(a[0], name, -1));
    const int64_t size = items.size();
    if (at < 0) at += size;
    if (at < 0 || at >= size) return run.fail("pop: no such item");
    const Value out = items[at];
    items.erase(items.begin() + at);
    return out;
  }
  if (name == "reverse") {
    HEARTH_TRY(run.bind(arguments, name, {}));
    std::ranges::reverse(items);
    return Value::none();
  }
  if (name == "copy") return run.list(items, self.kind());
  HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, name, {"item"}));
  if (a[0] == nullptr) return run.fail(fmt::format("{} wants an item", name));
  int64_t found = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const bool same, run.equal(items[i], *a[0]));
    if (same && name == "index") return Value::of(i);
    found += same ? 1 : 0;
  }
  if (name == "index") return run.fail("index: no such item");
  return Value::of(found);
}

Result<Value> dict_method(Runtime& run, const Value& self, std::string_view name,
                          const CallArguments& arguments) {
  Dict& dict = self.dict();
  if (name == "items" || name == "keys" || name == "values") {
    HEARTH_TRY(run.bind(arguments, name, {}));
    std::vector<Value> out;
    out.reserve(dict.size());
    for (const auto& [key, value] : dict.entries()) {
      if (name == "items") {
        HEARTH_ASSIGN_OR_RETURN(const Value pair, run.list({key, value}, Kind::kTuple));
        out.push_back(pair);
      } else {
        out.push_back(name == "keys" ? key : value);
      }
    }
    HEARTH_TRY(run.charge(out.size()));
    return run.list(std::move(out));
  }
  if (name == "copy" || name == "update") {
    Dict* to = name == "copy" ? run.arena().new_dict() : &dict;
    std::vector<Dict::Entry> from;
    if (name == "copy") {
      HEARTH_TRY(run.bind(arguments, name, {}));
      from = dict.entries();
    } else {
      if (arguments.positional.size() > 1 ||
          (arguments.positional.size() == 1 && !arguments.positional[0].is_dict())) {
        return run.fail("update wants a dictionary");
      }
      if (arguments.positional.size() == 1) from = arguments.positional[0].dict().entries();
      for (const auto& [key, value] : arguments.named) from.emplace_back(Value::of(key), value);
    }
    HEARTH_TRY(run.charge(from.size()));
    run.arena().count(from.size() * 4 * sizeof(Value));
    for (const auto& [key, value] : from) to->set(key, value);
    return name == "copy" ? Value::of(to) : Value::none();
  }
  HEARTH_ASSIGN_OR_RETURN(const Bound a, run.bind(arguments, name, {"key", "default"}));
  if (a[0] == nullptr) return run.fail(fmt::format("{} wants a key", name));
  HEARTH_TRY(run.check_key(*a[0]));
  HEARTH_TRY(run.charge(1 + (name == "pop" ? dict.size() / 16 : 0)));
  const Value* found = dict.find(*a[0]);
  const Value value = found != nullptr ? *found : a[1] != nullptr ? *a[1] : Value::none();
  if (name == "pop") {
    if (found == nullptr && a[1] == nullptr) return run.fail("pop: no such key");
    dict.erase(*a[0]);
  } else if (name == "setdefault" && found == nullptr) {
    dict.set(*a[0], value);
    run.arena().count(4 * sizeof(Value));
  }
  return value;
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kString: return among(kStringMethods, name);
    case Kind::kList:
    case Kind::kTuple: return among(kListMethods, name);
    case Kind::kDict: return among(kDictMethods, name);
    default: return false;
  }
}

Result<Value> call_method(Runtime& run, const Value& self, std::string_view name,
                          const CallArguments& arguments) {
  switch (self.kind()) {
    case Kind::kString: return StringMethods(run, self, arguments).call(name);
    case Kind::kDict: return dict_method(run, self, name, arguments);
    default: return list_method(run, self, name, arguments);
  }
}

}  // namespace hearth::models::jinja
