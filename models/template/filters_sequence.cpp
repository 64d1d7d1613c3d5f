// Filters of lists and mappings, and those of any value.

#include <algorithm>

#include "models/template/filters.h"
#include "models/template/text.h"

namespace hearth::models::jinja {
namespace {

Result<Value> length(Runtime& run, const Value& value, const CallArguments& arguments) {
  HEARTH_TRY(run.bind(arguments, "length", {}));
  HEARTH_ASSIGN_OR_RETURN(const size_t size, run.length(value));
  return Value::of(size);
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
  TracedText out;
  bool is_first = true;
  for (const Value& each : items->items) {
    Value shown = each;
    if (a[1] != nullptr && !a[1]->is_none()) {
      HEARTH_ASSIGN_OR_RETURN(shown, run.path(each, *a[1]));
    }
    HEARTH_ASSIGN_OR_RETURN(const std::string_view text, text_of(run, shown));
    HEARTH_TRY(run.room(out.text.size(), between.size() + text.size()));
    HEARTH_TRY(run.charge_bytes(between.size()));
    if (!is_first) run.append(out, between);
    is_first = false;
    run.append(out, text);
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

/// The sort key of an item: the item or its attribute, with strings in lower case unless
/// `with_case`.
Result<Value> order_key(Runtime& run, const Value& item, const Value* attribute, bool with_case) {
  Value key = item;
  if (attribute != nullptr && !attribute->is_none()) {
    HEARTH_ASSIGN_OR_RETURN(key, run.path(item, *attribute));
  }
  if (with_case || !key.is_string()) return key;
  HEARTH_TRY(run.charge_bytes(key.text().size()));
  return run.text_from(key.text(), to_lower(key.text()));
}

/// A stable merge sort whose comparisons may fail; then the error is returned.
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
  const Value column = Value::of(int64_t{by == "value"});
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
    if (std::ssize(row) < size) continue;
    HEARTH_ASSIGN_OR_RETURN(const Value whole, run.list(std::exchange(row, {})));
    out.push_back(whole);
  }
  if (!row.empty()) {
    if (a[1] != nullptr && !a[1]->is_none()) {
      HEARTH_TRY(run.charge(size));
      row.resize(size, *a[1]);
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

/// The arguments after the first `skip`.
CallArguments rest_of(const CallArguments& arguments, size_t skip) {
  CallArguments out;
  out.positional.assign(arguments.positional.begin() + skip, arguments.positional.end());
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

constexpr NamedFilter kSequenceFilters[] = {
    {"attr", attr},
    {"batch", batch},
    {"count", length},
    {"d", default_value},
    {"default", default_value},
    {"dictsort", dictsort},
    {"first", first},
    {"groupby", groupby},
    {"items", items_of},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", to_list},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", select<false, false>},
    {"rejectattr", select<true, false>},
    {"reverse", reverse},
    {"select", select<false, true>},
    {"selectattr", select<true, true>},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const NamedFilter> sequence_filters() { return kSequenceFilters; }

}  // namespace hearth::models::jinja
