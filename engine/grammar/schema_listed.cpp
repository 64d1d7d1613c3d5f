// uniqueItems and multipleOf, where the values can be listed or counted.

#include <algorithm>
#include <string>
#include <utility>

#include "engine/grammar/schema_reader.h"
#include "kernels/base/sizes.h"
#include "models/template/json.h"

namespace hearth::engine {

Result<std::vector<Value>> SchemaReader::listed(const Value* items) {
  std::vector<Value> out;
  if (items == nullptr || !items->is_dict()) return out;
  const Result<Value> target = target_of(*items);
  if (!target.ok()) return out;
  const Dict& d = target->dict();
  const Value* const type = d.find("type");
  std::vector<Value> values;
  if (d.find("enum") != nullptr || d.find("const") != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string_view> types, types_of(d));
    HEARTH_ASSIGN_OR_RETURN(values, allowed_values(d, types));
  } else if (type != nullptr && type->is_string() && type->text() == "boolean") {
    values = {Value::of(true), Value::of(false)};
  }
  for (const Value& each : values) {
    HEARTH_ASSIGN_OR_RETURN(const models::TracedText text, models::jinja::to_json(run_, each, {}));
    bool known = false;
    for (const Value& other : out) {
      HEARTH_ASSIGN_OR_RETURN(const models::TracedText met,
                              models::jinja::to_json(run_, other, {}));
      known = known || met.text == text.text;
    }
    if (!known) out.push_back(each);
  }
  return out;
}

// Rule (i, n): what may follow with n items written, the next of value i or after it. n stops
// counting where it no longer matters.
Result<PiecePtr> SchemaReader::distinct(const Value* items, int32_t min, int32_t max) {
  constexpr int32_t kMostValues = 64;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> values, listed(items));
  const auto size = size32(values);
  if (values.empty() || size > kMostValues) return PiecePtr();
  if (min > size) return wrong("minItems is above the number of distinct items");
  const int32_t most = max < 0 ? size : std::min(max, size);
  std::vector<PiecePtr> next(most + 2), here(most + 2);
  for (int32_t n = 0; n <= most; ++n) next[n] = n >= min ? nothing_piece() : nullptr;
  for (int32_t i = size - 1; i >= 0; --i) {
    HEARTH_ASSIGN_OR_RETURN(const PiecePtr value, constant(values[i]));
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

Result<PiecePtr> SchemaReader::multiples(int64_t of, const Bound& low, const Bound& high) {
  constexpr int64_t kMostListed = 512;
  const bool from_zero = low.value && *low.value >= 0 && *low.value <= 1;
  if (high.value || (low.value && !from_zero)) {
    // With one bound, those that lie next to it.
    const auto up = [of](int64_t x) { return x > 0 ? (x + of - 1) / of : x / of; };
    const auto down = [of](int64_t x) { return x < 0 ? (x - of + 1) / of : x / of; };
    int64_t first = low.value ? up(*low.value) : down(*high.value) - kMostListed + 1;
    const int64_t last = high.value ? down(*high.value) : first + kMostListed - 1;
    if (first > last) return wrong("no multiple lies between minimum and maximum");
    if (last - first >= kMostListed) {
      HEARTH_TRY(leave_out("multipleOf of so many numbers between minimum and maximum"));
      return PiecePtr();
    }
    std::vector<PiecePtr> out;
    for (; first <= last; ++first) out.push_back(text_piece(std::to_string(first * of)));
    return any_piece(std::move(out));
  }
  // Digit by digit: one rule per remainder, for the digits that may follow.
  std::vector<int32_t> rules;
  for (int64_t r = 0; r < of; ++r) {
    HEARTH_ASSIGN_OR_RETURN(const int32_t rule, rules_.add(nullptr, "multipleOf"));
    rules.push_back(rule);
  }
  const auto digits_after = [&](int64_t remainder, int first_digit) {
    std::vector<PiecePtr> out;
    for (int digit = first_digit; digit < 10; ++digit) {
      out.push_back(seq_piece(
          {text_piece(std::to_string(digit)), rule_piece(rules[(remainder * 10 + digit) % of])}));
    }
    return out;
  };
  for (int64_t r = 0; r < of; ++r) {
    std::vector<PiecePtr> ways = digits_after(r, 0);
    if (r == 0) ways.push_back(nothing_piece());
    rules_.set(rules[r], any_piece(std::move(ways)));
  }
  std::vector<PiecePtr> out = {any_piece(digits_after(0, 1))};
  if (!low.value) out[0] = seq_piece({optional_piece(text_piece("-")), out[0]});
  if (!low.value || *low.value <= 0) out.push_back(text_piece("0"));
  return any_piece(std::move(out));
}

}  // namespace hearth::engine
