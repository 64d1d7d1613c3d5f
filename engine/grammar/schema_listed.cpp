// uniqueItems and multipleOf, where the values can be listed or counted.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/grammar/json_multiples.h"
#include "engine/grammar/schema_reader.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

// As JSON Schema compares values: 1 and 1.0 are the same, 1 and true are not.
Result<bool> SchemaReader::same(const Value& a, const Value& b) {
  HEARTH_TRY(run_.charge());
  const bool numbers = a.is_number() && b.is_number() && a.kind() != Kind::kBool;
  if (numbers && b.kind() != Kind::kBool) {
    if (a.kind() == Kind::kInt && b.kind() == Kind::kInt) return a.as_int() == b.as_int();
    return a.as_float() == b.as_float();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kBool: return a.as_int() == b.as_int();
    case Kind::kString: return a.text() == b.text();
    case Kind::kList: {
      const std::vector<Value>&x = a.list().items, &y = b.list().items;
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i) {
        HEARTH_ASSIGN_OR_RETURN(const bool equal, same(x[i], y[i]));
        if (!equal) return false;
      }
      return true;
    }
    case Kind::kDict:
      if (a.dict().size() != b.dict().size()) return false;
      for (const auto& [key, value] : a.dict().entries()) {
        const Value* const other = b.dict().find(key.text());
        if (other == nullptr) return false;
        HEARTH_ASSIGN_OR_RETURN(const bool equal, same(value, *other));
        if (!equal) return false;
      }
      return true;
    default: return true;  // null
  }
}

Result<void> SchemaReader::add_new(const std::vector<Value>& values, std::vector<Value>* out) {
  for (const Value& each : values) {
    bool known = false;
    for (size_t i = 0; i < out->size() && !known; ++i) {
      HEARTH_ASSIGN_OR_RETURN(known, same((*out)[i], each));
    }
    if (!known) out->push_back(each);
  }
  return {};
}

Result<std::vector<Value>> SchemaReader::listed(const Value& schema, int depth) {
  const std::vector<Value> none;
  if (depth > kMaxSchemaDepth || !schema.is_dict()) return none;
  const Result<Value> target = target_of(schema);
  if (!target.ok()) return none;
  const Dict& d = target->dict();
  std::vector<Value> out;
  const Value* const any = d.find("anyOf");
  if (any != nullptr && any->kind() == Kind::kList) {
    for (const auto& [key, value] : d.entries()) {
      if (key.text() != "anyOf" && !among(kAnnotations, key.text())) return none;
    }
    for (const Value& part : any->list().items) {
      HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> some, listed(part, depth + 1));
      HEARTH_TRY(add_new(some, &out));
      if (some.empty() || size32(out) > kMostListed) return none;
    }
    return out;
  }
  for (const std::string_view word : {"anyOf", "oneOf", "allOf"}) {
    if (d.find(word) != nullptr) return none;
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string_view> types, types_of(d));
  if (d.find("enum") != nullptr || d.find("const") != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> values, allowed_values(d, types));
    if (size32(values) > kMostListed) return none;
    HEARTH_TRY(add_new(values, &out));
  } else {
    for (const std::string_view type : types) {
      HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> values, listed_of_type(d, type));
      if (values.empty()) return none;
      out.insert(out.end(), values.begin(), values.end());
    }
    if (types.empty()) return none;
  }
  const Value* const nullable = d.find("nullable");
  if (nullable != nullptr && nullable->kind() == Kind::kBool && nullable->as_int() != 0) {
    HEARTH_TRY(add_new({Value::none()}, &out));
  }
  return out;
}

Result<std::vector<Value>> SchemaReader::listed_of_type(const Dict& d, std::string_view type) {
  std::vector<Value> out;
  if (type == "boolean") return std::vector<Value>{Value::of(true), Value::of(false)};
  if (type == "null") return std::vector<Value>{Value::none()};
  if (type != "integer") return out;
  HEARTH_ASSIGN_OR_RETURN(const Bound low, bound(d, true, true));
  HEARTH_ASSIGN_OR_RETURN(const Bound high, bound(d, false, true));
  int64_t step = 1;
  if (const Value* const multiple = d.find("multipleOf")) {
    if (multiple->kind() != Kind::kInt || multiple->as_int() < 1) return out;
    step = multiple->as_int();
  }
  if (!low.value || !high.value || *low.value > *high.value) return out;
  if (*high.value - *low.value > kMostListed) return out;
  for (int64_t n = *low.value; n <= *high.value; ++n) {
    if (n % step == 0) out.push_back(Value::of(n));
  }
  return out;
}

// Rule (i, n): what may follow with n items written, the next of value i or after it. n stops
// counting where it no longer matters.
Result<PiecePtr> SchemaReader::distinct(const Value& items, int32_t min, int32_t max) {
  constexpr int32_t kMostRules = 4096;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> values, listed(items, 0));
  if (values.empty()) return PiecePtr();
  const auto size = size32(values);
  if (min > size) return wrong("minItems is above the number of distinct items");
  const int32_t room = kMostRules / size;
  if (min > room) return PiecePtr();
  const int32_t most = std::min({max < 0 ? size : max, size, room});
  std::vector<PiecePtr> next(most + 2), here(most + 2);
  for (int32_t n = 0; n <= most; ++n) next[n] = n >= min ? nothing_piece() : nullptr;
  for (int32_t i = size - 1; i >= 0; --i) {
    HEARTH_ASSIGN_OR_RETURN(PiecePtr value, constant(values[i]));
    HEARTH_ASSIGN_OR_RETURN(value, rules_.as_rule(std::move(value)));
    for (int32_t n = 0; n <= std::min(i, most); ++n) {
      std::vector<PiecePtr> ways;
      if (next[n] != nullptr) ways.push_back(next[n]);
      if (n < most && next[n + 1] != nullptr) {
        ways.push_back(seq_piece({n > 0 ? comma_piece() : nothing_piece(), value, next[n + 1]}));
      }
      here[n] = nullptr;
      if (!ways.empty()) {
        HEARTH_ASSIGN_OR_RETURN(here[n], rules_.as_rule(any_piece(std::move(ways))));
      }
    }
    std::swap(next, here);
  }
  return seq_piece({text_piece("["), next[0], text_piece("]")});
}

// No value can be of two of the schemas.
Result<bool> SchemaReader::are_apart(const std::vector<Value>& schemas) {
  std::vector<Dict*> parts;
  for (const Value& each : schemas) {
    const Result<Value> target = target_of(each);
    if (!target.ok()) return false;
    parts.push_back(&target->dict());
  }
  for (size_t a = 0; a < parts.size(); ++a) {
    for (size_t b = a + 1; b < parts.size(); ++b) {
      HEARTH_TRY(run_.charge());
      HEARTH_ASSIGN_OR_RETURN(const bool apart, disjoint(*parts[a], *parts[b]));
      if (!apart) return false;
    }
  }
  return true;
}

Result<bool> SchemaReader::distinct_prefix(const Dict& d, int32_t min, int32_t* max) {
  const Value *const prefix = d.find("prefixItems"), *const items = d.find("items");
  if (prefix == nullptr || prefix->kind() != Kind::kList) return false;
  std::vector<Value> places = prefix->list().items;
  const auto known = size32(places);
  const bool closed = items != nullptr && items->kind() == Kind::kBool && items->as_int() == 0;
  if (*max >= 0 && *max < known) {
    places.resize(*max);
  } else if (closed || (items == nullptr && min <= known)) {
    *max = known;
  } else if (items != nullptr && *max == known + 1) {
    places.push_back(*items);
  } else if (*max != known) {
    return false;  // two items could be of one schema
  }
  return are_apart(places);
}

Result<PiecePtr> SchemaReader::multiples(double of, bool integer, const Dict& d) {
  constexpr int kMostPlaces = 6;
  int places = 0;
  double scale = 1, scaled = std::round(of);
  while (scaled / scale != of && places < kMostPlaces) {
    scale = std::pow(10, ++places);
    scaled = std::round(of * scale);
  }
  if (scaled < 1 || scaled / scale != of || scaled > as_double(kMostInteger)) {
    HEARTH_TRY(leave_out("this multipleOf"));
    return PiecePtr();
  }
  int64_t whole = std::llround(scaled);
  const int64_t units = std::llround(scale);
  if (integer && places > 0) {  // whole multiples
    whole /= std::gcd(whole, units);
    places = 0;
  }
  HEARTH_ASSIGN_OR_RETURN(const Bound low, bound(d, true, integer || places == 0));
  HEARTH_ASSIGN_OR_RETURN(const Bound high, bound(d, false, integer || places == 0));
  const int64_t factor = places > 0 ? units : 1, most = kMostInteger / factor;
  const auto in_units = [&](const Bound& given, bool lower) -> std::optional<int64_t> {
    if (!given.value) return std::nullopt;
    // No number that is written lies beyond.
    if (*given.value > most) return kMostInteger + (lower ? 1 : 0);
    if (*given.value < -most) return -kMostInteger - (lower ? 0 : 1);
    return *given.value * factor + (given.included ? 0 : lower ? 1 : -1);
  };
  Multiples some(rules_, whole, places);
  HEARTH_ASSIGN_OR_RETURN(PiecePtr out, some.between(in_units(low, true), in_units(high, false)));
  if (out == nullptr) return wrong("no multiple lies between minimum and maximum");
  return out;
}

}  // namespace hearth::engine
