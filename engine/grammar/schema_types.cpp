// Strings, numbers and arrays.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/grammar/lark.h"
#include "engine/grammar/schema_reader.h"
#include "engine/grammar/text_length.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "models/template/json.h"
#include "models/template/text.h"

namespace hearth::engine {
namespace {

struct Format {
  std::string_view name;
  std::string_view pattern;
};
// Days that every year has.
#define HEARTH_DATE                                                                            \
  "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)" \
  "|02-(0[1-9]|1[0-9]|2[0-8]))"
#define HEARTH_TIME \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9])"
constexpr Format kFormats[] = {
    {"date", "^" HEARTH_DATE "$"},
    {"time", "^" HEARTH_TIME "$"},
    {"date-time", "^" HEARTH_DATE "T" HEARTH_TIME "$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"},
    {"ipv4",
     "^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\\.){3}"
     "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])$"},
    {"ipv6", "^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
    {"email", "^[a-z0-9]{1,20}(\\.[a-z0-9]{1,20}){0,3}@([a-z0-9]{1,20}\\.){1,3}[a-z]{2,10}$"},
    {"hostname", "^[a-z0-9]{1,20}(\\.[a-z0-9]{1,20}){0,3}$"},
    {"uri",
     "^https?://[a-z0-9]{1,20}(\\.[a-z0-9]{1,20}){0,3}(/[A-Za-z0-9._~-]{1,40}){0,6}/?"
     "(\\?[A-Za-z0-9._~=&-]{1,80})?$"},
    {"duration", "^P([1-9][0-9]{0,3}[DWMY]|T[1-9][0-9]{0,3}[HMS])$"},
};
#undef HEARTH_DATE
#undef HEARTH_TIME

}  // namespace

Result<int32_t> SchemaReader::count(const Dict& d, std::string_view word, int32_t otherwise) {
  const Value* const value = d.find(word);
  if (value == nullptr) return otherwise;
  if (value->kind() != Kind::kInt || value->as_int() < 0) {
    return wrong(fmt::format("{}: want an integer, 0 or above", word));
  }
  // Fewer than a high maximum are valid, too.
  if (value->as_int() > kMaxGrammarRepeat && !word.starts_with("max")) {
    HEARTH_TRY(leave_out(fmt::format("{} above {}", word, kMaxGrammarRepeat)));
  }
  return narrow<int32_t>(std::min<int64_t>(value->as_int(), kMaxGrammarRepeat));
}

Result<PiecePtr> SchemaReader::string(const Dict& d) {
  HEARTH_ASSIGN_OR_RETURN(const int32_t min, count(d, "minLength", 0));
  HEARTH_ASSIGN_OR_RETURN(const int32_t max, count(d, "maxLength", -1));
  if (max >= 0 && max < min) return wrong("maxLength is below minLength");
  if (d.find("lark") != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(PiecePtr inner, lark_text(d, in_json_string));
    if (inner != nullptr) return JsonPieces::quoted(std::move(inner));
  }
  if (d.find("pattern") == nullptr && d.find("format") == nullptr) return json_.string_of(min, max);
  HEARTH_ASSIGN_OR_RETURN(const std::optional<std::string_view> regex, regex_of(d));
  if (!regex) return json_.string_of(min, max);
  HEARTH_ASSIGN_OR_RETURN(PiecePtr inner, pattern_of(*regex, min, max, in_json_string));
  if (inner == nullptr) return json_.string_of(min, max);
  return JsonPieces::quoted(std::move(inner));
}

Result<PiecePtr> SchemaReader::lark_text(const Dict& d, PiecePtr (*encode)(const CharRanges&)) {
  for (const std::string_view word : kStringWords) {
    if (word == "lark" || d.find(word) == nullptr) continue;
    HEARTH_TRY(leave_out(fmt::format("'{}' together with lark", word)));
  }
  const Value& source = *d.find("lark");
  if (!source.is_string()) return wrong("lark: want a grammar as text");
  Result<PiecePtr> out = compile_lark(source.text(), rules_, encode, &text_set_steps_);
  if (out.ok() || relaxed_ == nullptr || out.error().code != ErrorCode::kUnsupported) return out;
  HEARTH_TRY(leave_out("this lark grammar"));
  return PiecePtr();
}

Result<PiecePtr> SchemaReader::plain_pattern(std::string_view regex) {
  Result<PiecePtr> whole =
      compile_pattern(regex, [](const CharRanges& chars) { return chars_piece(chars); });
  if (whole.ok() || relaxed_ == nullptr || whole.error().code != ErrorCode::kUnsupported) {
    return whole;
  }
  HEARTH_TRY(leave_out("this pattern"));
  return PiecePtr();
}

Result<PiecePtr> SchemaReader::pattern_of(std::string_view regex, int32_t min, int32_t max,
                                          PiecePtr (*encode)(const CharRanges&)) {
  HEARTH_ASSIGN_OR_RETURN(const PiecePtr whole, plain_pattern(regex));
  if (whole == nullptr) return PiecePtr();
  PiecePtr fitting = with_length(whole, min, max);
  if (fitting == nullptr) {
    HEARTH_TRY(leave_out("a pattern or format together with this length"));
    fitting = whole;
  }
  return encoded(fitting, encode);
}

Result<std::optional<std::string_view>> SchemaReader::regex_of(const Dict& d) {
  using Regex = std::optional<std::string_view>;
  const Value *pattern = d.find("pattern"), *format = d.find("format");
  if (pattern != nullptr && format != nullptr) {
    HEARTH_TRY(leave_out("format together with pattern"));
  }
  const Value& given = pattern != nullptr ? *pattern : *format;
  if (!given.is_string()) return wrong("pattern and format are texts");
  if (pattern != nullptr) return Regex(given.text());
  const auto found = std::ranges::find(kFormats, given.text(), &Format::name);
  if (found != std::end(kFormats)) return Regex(found->pattern);
  HEARTH_TRY(leave_out(fmt::format("the format '{}'", given.text().substr(0, 60))));
  return Regex();
}

Result<SchemaReader::Bound> SchemaReader::bound(const Dict& d, bool lower, bool integer) {
  Bound out;
  for (const bool exclusive : {false, true}) {
    const std::string_view word = exclusive ? (lower ? "exclusiveMinimum" : "exclusiveMaximum")
                                            : (lower ? "minimum" : "maximum");
    const Value* const value = d.find(word);
    if (value == nullptr) continue;
    if (!value->is_number() || value->kind() == Kind::kBool) {
      return wrong(fmt::format("{}: want a number", word));
    }
    const double x = value->as_float();
    const bool whole = std::floor(x) == x;
    if (!whole && !integer) {
      HEARTH_TRY(leave_out(fmt::format("{} that is not whole", word)));
      continue;
    }
    if (std::abs(x) > as_double(kMostInteger)) {
      HEARTH_TRY(leave_out(fmt::format("{} of more than 15 digits", word)));
      continue;
    }
    auto at = static_cast<int64_t>(lower ? std::ceil(x) : std::floor(x));
    bool included = !exclusive || !whole;
    if (integer && !included) {
      at += lower ? 1 : -1;
      included = true;
    }
    const bool tighter = !out.value || (lower ? at > *out.value : at < *out.value) ||
                         (at == *out.value && !included);
    if (tighter) out = {at, included};
  }
  return out;
}

Result<PiecePtr> SchemaReader::number(const Dict& d, bool integer) {
  int decimals = kMostDecimals;
  if (const Value* multiple = d.find("multipleOf")) {
    const double of = multiple->is_number() ? multiple->as_float() : 0;
    if (!(of > 0)) return wrong("multipleOf: want a number above 0");
    int places = 1;  // 0.1, 0.01 and so on bound the digits after the point
    for (double step = 0.1; places < kMostDecimals && step != of; step = std::pow(10, -places)) {
      ++places;
    }
    if (of == 1) {
      integer = true;
    } else if (!integer && places < kMostDecimals) {
      decimals = places;
    } else {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr some, multiples(of, integer, d));
      if (some != nullptr) return some;
    }
  }
  HEARTH_ASSIGN_OR_RETURN(const Bound low, bound(d, true, integer));
  HEARTH_ASSIGN_OR_RETURN(const Bound high, bound(d, false, integer));
  if (!low.value && !high.value)
    return integer ? JsonPieces::any_integer() : JsonPieces::any_number(decimals);
  const int64_t a = low.value.value_or(-kMostInteger), b = high.value.value_or(kMostInteger);
  const bool empty = a > b || (a == b && (!low.included || !high.included));
  if (empty) return wrong("no number lies between minimum and maximum");
  if (integer) return integer_range(a, b);
  std::vector<PiecePtr> out;
  if (b > 0 || (b == 0 && high.included)) {
    const bool from_low = a >= 0;
    out.push_back(
        real_range(std::max<int64_t>(a, 0), b, !from_low || low.included, high.included, decimals));
  }
  if (a < 0) {
    const bool to_high = b <= 0;
    // Without -0: as a number it is 0, which may lie above the maximum.
    out.push_back(seq_piece(
        {text_piece("-"), real_range(to_high ? -b : 0, -a, to_high && b < 0 && high.included,
                                     low.included, decimals)}));
  }
  std::erase_if(out, [](const PiecePtr& p) {
    return p->type == engine::Piece::Type::kAny && p->parts.empty();
  });
  return any_piece(std::move(out));
}

Result<PiecePtr> SchemaReader::array(const Dict& d, int depth) {
  bool distinct_items = false;
  if (const Value* unique = d.find("uniqueItems")) {
    if (unique->kind() != Kind::kBool) return wrong("uniqueItems: want true or false");
    distinct_items = unique->as_int() != 0;
  }
  HEARTH_ASSIGN_OR_RETURN(const int32_t min, count(d, "minItems", 0));
  HEARTH_ASSIGN_OR_RETURN(int32_t max, count(d, "maxItems", -1));
  if (max >= 0 && max < min) return wrong("maxItems is below minItems");
  const Value* const items = d.find("items");
  if (distinct_items && (max < 0 || max > 1)) {
    if (d.find("prefixItems") == nullptr && items != nullptr) {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr some, distinct(*items, min, max));
      if (some != nullptr) return some;
    }
    HEARTH_ASSIGN_OR_RETURN(const bool apart, distinct_prefix(d, min, &max));
    if (!apart) HEARTH_TRY(leave_out("uniqueItems of values that are not listed"));
  }
  std::vector<Value> first;
  if (const Value* prefix = d.find("prefixItems")) {
    if (prefix->kind() != Kind::kList) return wrong("prefixItems: want a list of schemas");
    first = prefix->list().items;
  }
  const bool closed = items != nullptr && items->kind() == Kind::kBool && items->as_int() == 0;
  const auto known = size32(first);
  if (closed && min > known) return wrong("minItems is above what prefixItems allow");
  PiecePtr tail = nothing_piece();  // after all of `first`
  if (!closed && (max < 0 || max > known)) {
    PiecePtr item;
    if (items == nullptr) {
      HEARTH_ASSIGN_OR_RETURN(item, json_.any_value());
    } else {
      HEARTH_ASSIGN_OR_RETURN(item, schema(*items, depth + 1));
    }
    HEARTH_ASSIGN_OR_RETURN(item, rules_.as_rule(std::move(item)));
    const int32_t least = std::max(0, min - known), most = max < 0 ? -1 : max - known;
    if (first.empty()) return JsonPieces::list(item, least, most);
    tail = repeat_piece(seq_piece({comma_piece(), item}), least, most);
  }
  for (int32_t i = std::min(known, max < 0 ? known : max) - 1; i >= 0; --i) {
    HEARTH_ASSIGN_OR_RETURN(PiecePtr item, schema(first[i], depth + 1));
    PiecePtr from_here =
        seq_piece({i > 0 ? comma_piece() : nothing_piece(), std::move(item), tail});
    if (i >= min) from_here = optional_piece(std::move(from_here));
    HEARTH_ASSIGN_OR_RETURN(tail, rules_.as_rule(std::move(from_here)));
  }
  return seq_piece({text_piece("["), std::move(tail), text_piece("]")});
}

}  // namespace hearth::engine
