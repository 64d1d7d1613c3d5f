// JSON schemas (draft 2020-12, the part that a generator can promise) as grammars. What is made is
// always valid; not all that is valid is made:
//   objects   properties in the order of the schema; those that it does not name only where
//             additionalProperties says so, or where it names none at all; those have short names
//   blanks    at most one, behind a comma or a colon
//   numbers   at most 15 digits on each side of the point, exponents of one or two digits
// A keyword that is not known, or cannot be promised, is an error that names it.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <optional>
#include <unordered_map>

#include "engine/grammar/grammar.h"
#include "models/template/json.h"
#include "models/template/renderer.h"
#include "models/template/text.h"

namespace hearth::engine {
namespace {

using models::jinja::Dict;
using models::jinja::Kind;
using models::jinja::Value;

constexpr int kMaxSchemaDepth = 24;
constexpr size_t kMaxRules = 20'000;
constexpr int32_t kMaxKeyChars = 64;  // of properties that the schema does not name
constexpr int64_t kMostInteger = 999'999'999'999'999;

constexpr std::string_view kAnnotations[] = {"title",    "description", "default",  "examples",
                                             "$schema",  "$id",         "$comment", "deprecated",
                                             "readOnly", "writeOnly",   "$defs",    "definitions"};
constexpr std::string_view kObjectWords[] = {"properties", "required", "additionalProperties",
                                             "minProperties", "maxProperties"};
constexpr std::string_view kArrayWords[] = {"items", "prefixItems", "minItems", "maxItems",
                                            "uniqueItems"};
constexpr std::string_view kStringWords[] = {"minLength", "maxLength", "pattern", "format"};
constexpr std::string_view kNumberWords[] = {"minimum", "maximum", "exclusiveMinimum",
                                             "exclusiveMaximum", "multipleOf"};
constexpr std::string_view kTypes[] = {"object",  "array",   "string", "number",
                                       "integer", "boolean", "null"};

template <typename Words>
bool among(const Words& words, std::string_view word) {
  return std::ranges::find(words, word) != std::end(words);
}

PiecePtr nothing() { return text_piece(""); }
PiecePtr digit() { return chars_piece({{'0', '9'}}); }
PiecePtr comma() { return seq_piece({text_piece(","), optional_piece(text_piece(" "))}); }
PiecePtr colon() { return seq_piece({text_piece(":"), optional_piece(text_piece(" "))}); }

/// Characters as they stand inside a JSON string: as themselves, or escaped where they must be.
PiecePtr in_json_string(const CharRanges& chars) {
  const CharRanges all = normalized(chars);
  const auto has = [&all](uint32_t c) {
    return std::ranges::any_of(all, [c](const auto& r) { return r.first <= c && c <= r.second; });
  };
  CharRanges outside = complement(all);
  outside.insert(outside.end(), {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  std::vector<PiecePtr> out;
  if (CharRanges plain = complement(std::move(outside)); !plain.empty()) {
    out.push_back(chars_piece(std::move(plain)));
  }
  static constexpr std::pair<char, char> kShort[] = {
      {'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
  for (const auto& [c, letter] : kShort) {
    if (has(static_cast<uint32_t>(c))) out.push_back(text_piece(std::string{'\\', letter}));
  }
  for (uint32_t c = 0; c < 0x20; ++c) {
    const bool has_short = (c >= 8 && c <= 10) || c == 12 || c == 13;
    if (has(c) && !has_short) out.push_back(text_piece(fmt::format("\\u{:04x}", c)));
  }
  return any_piece(std::move(out));
}

/// Any one character of a string, in any of its forms (surrogates as \u apart).
PiecePtr any_string_char() {
  CharRanges outside = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  const PiecePtr hex = chars_piece({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
  const PiecePtr no_surrogate = any_piece(
      {seq_piece({chars_piece({{'0', '9'}, {'a', 'c'}, {'e', 'f'}, {'A', 'C'}, {'E', 'F'}}), hex}),
       seq_piece({chars_piece({{'d', 'd'}, {'D', 'D'}}), chars_piece({{'0', '7'}})})});
  return any_piece({chars_piece(complement(std::move(outside))),
                    seq_piece({text_piece("\\"), chars_piece({{'"', '"'},
                                                              {'/', '/'},
                                                              {'\\', '\\'},
                                                              {'b', 'b'},
                                                              {'f', 'f'},
                                                              {'n', 'n'},
                                                              {'r', 'r'},
                                                              {'t', 't'}})}),
                    seq_piece({text_piece("\\u"), no_surrogate, hex, hex})});
}

// ---- Ranges of integers -----------------------------------------------------------------------

PiecePtr digits(size_t count) {
  const auto n = static_cast<int32_t>(count);
  return repeat_piece(digit(), n, n);
}

/// Digits of one length, not below (above) those of `bound` from `at` on.
PiecePtr from_bound(std::string_view bound, size_t at, bool up) {
  if (at == bound.size()) return nothing();
  const auto here = static_cast<uint32_t>(bound[at]);
  std::vector<PiecePtr> out = {
      seq_piece({chars_piece({{here, here}}), from_bound(bound, at + 1, up)})};
  if (up ? here < '9' : here > '0') {
    const CharRanges rest = up ? CharRanges{{here + 1, '9'}} : CharRanges{{'0', here - 1}};
    out.push_back(seq_piece({chars_piece(rest), digits(bound.size() - at - 1)}));
  }
  return any_piece(std::move(out));
}

PiecePtr between(std::string_view low, std::string_view high, size_t at) {
  if (at == low.size()) return nothing();
  const auto a = static_cast<uint32_t>(low[at]), b = static_cast<uint32_t>(high[at]);
  if (a == b) return seq_piece({chars_piece({{a, a}}), between(low, high, at + 1)});
  std::vector<PiecePtr> out = {seq_piece({chars_piece({{a, a}}), from_bound(low, at + 1, true)}),
                               seq_piece({chars_piece({{b, b}}), from_bound(high, at + 1, false)})};
  if (a + 1 < b) {
    out.push_back(seq_piece({chars_piece({{a + 1, b - 1}}), digits(low.size() - at - 1)}));
  }
  return any_piece(std::move(out));
}

/// 0 <= low <= high.
PiecePtr natural_range(int64_t low, int64_t high) {
  std::vector<PiecePtr> out;
  while (low <= high) {
    const std::string a = std::to_string(low);
    const int64_t same_length =
        static_cast<int64_t>(std::pow(10.0, static_cast<double>(a.size()))) - 1;
    const int64_t last = std::min(high, same_length);
    out.push_back(between(a, std::to_string(last), 0));
    low = last + 1;
  }
  return any_piece(std::move(out));
}

PiecePtr integer_range(int64_t low, int64_t high) {
  std::vector<PiecePtr> out;
  if (high >= 0) out.push_back(natural_range(std::max<int64_t>(low, 0), high));
  if (low < 0) {
    out.push_back(
        seq_piece({text_piece("-"),
                   natural_range(std::max<int64_t>(1, -std::min<int64_t>(high, -1)), -low)}));
  }
  return any_piece(std::move(out));
}

/// Numbers from low to high, both 0 or above, with or without digits behind a point.
PiecePtr real_range(int64_t low, int64_t high, bool low_in, bool high_in) {
  const auto zeros = seq_piece({text_piece("."), repeat_piece(text_piece("0"), 1, 15)});
  const auto not_zero = seq_piece({text_piece("."), repeat_piece(text_piece("0"), 0, 10),
                                   chars_piece({{'1', '9'}}), repeat_piece(digit(), 0, 4)});
  std::vector<PiecePtr> out;
  const auto whole = [](int64_t n) { return text_piece(std::to_string(n)); };
  if (low == high) {
    if (low_in && high_in) out.push_back(seq_piece({whole(low), optional_piece(zeros)}));
    return any_piece(std::move(out));
  }
  if (low_in) out.push_back(seq_piece({whole(low), optional_piece(zeros)}));
  out.push_back(seq_piece({whole(low), not_zero}));
  if (low + 1 < high) {
    out.push_back(
        seq_piece({natural_range(low + 1, high - 1),
                   optional_piece(seq_piece({text_piece("."), repeat_piece(digit(), 1, 15)}))}));
  }
  if (high_in) out.push_back(seq_piece({whole(high), optional_piece(zeros)}));
  return any_piece(std::move(out));
}

// ---- Formats ----------------------------------------------------------------------------------

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
    {"email", "^[a-z0-9]{1,20}(\\.[a-z0-9]{1,20}){0,3}@([a-z0-9]{1,20}\\.){1,3}[a-z]{2,10}$"},
};
#undef HEARTH_DATE
#undef HEARTH_TIME

// ---- The reader -------------------------------------------------------------------------------

class SchemaReader {
 public:
  Result<Grammar> run(std::string_view text) {
    Result<Value> parsed = models::jinja::parse_json(run_.arena(), text);
    if (!parsed.ok()) return wrong(parsed.error().message);
    root_ = *parsed;
    rules_.push_back(nullptr);  // the whole text
    names_.emplace_back("#");
    rule_numbers_.emplace("#", 0);
    HEARTH_ASSIGN_OR_RETURN(rules_[0], schema(root_, 0));
    Result<Grammar> out = Grammar::compile(rules_, names_);
    if (out.ok()) return out;
    Error error = out.take_error();
    error.message = "json_schema: " + error.message;
    error.field = "json_schema";
    return error;
  }

 private:
  using Piece = Result<PiecePtr>;

  static Error wrong(const std::string& what, ErrorCode code = ErrorCode::kInvalidArgument) {
    return {code, "json_schema: " + what, "json_schema"};
  }
  static Error unsupported(const std::string& what) {
    return wrong(what + " is not supported", ErrorCode::kUnsupported);
  }

  Result<int32_t> new_rule(PiecePtr body, std::string name = {}) {
    if (rules_.size() >= kMaxRules) return wrong("too large", ErrorCode::kTooLarge);
    rules_.push_back(std::move(body));
    names_.push_back(std::move(name));
    return static_cast<int32_t>(rules_.size()) - 1;
  }
  /// The piece by a rule of its own, so that using it often costs little.
  Piece as_rule(PiecePtr body) {
    HEARTH_ASSIGN_OR_RETURN(const int32_t rule, new_rule(std::move(body)));
    return rule_piece(rule);
  }

  // ---- Building blocks, made once.
  Piece string_char() {
    if (string_char_ == nullptr) {
      HEARTH_ASSIGN_OR_RETURN(string_char_, as_rule(any_string_char()));
    }
    return string_char_;
  }
  Piece quoted(PiecePtr inner) {
    return seq_piece({text_piece("\""), std::move(inner), text_piece("\"")});
  }
  Piece string_of(int32_t min, int32_t max) {
    HEARTH_ASSIGN_OR_RETURN(PiecePtr c, string_char());
    return quoted(repeat_piece(std::move(c), min, max));
  }
  static PiecePtr natural() {
    return any_piece(
        {text_piece("0"), seq_piece({chars_piece({{'1', '9'}}), repeat_piece(digit(), 0, 14)})});
  }
  static PiecePtr any_integer() { return seq_piece({optional_piece(text_piece("-")), natural()}); }
  static PiecePtr any_number() {
    return seq_piece(
        {any_integer(), optional_piece(seq_piece({text_piece("."), repeat_piece(digit(), 1, 15)})),
         optional_piece(seq_piece({chars_piece({{'e', 'e'}, {'E', 'E'}}),
                                   optional_piece(chars_piece({{'+', '+'}, {'-', '-'}})),
                                   repeat_piece(digit(), 1, 2)}))});
  }
  /// Any JSON value, through a rule.
  Piece any_value() {
    if (any_value_ != nullptr) return any_value_;
    HEARTH_ASSIGN_OR_RETURN(const int32_t rule, new_rule(nullptr, "any value"));
    any_value_ = rule_piece(rule);
    HEARTH_ASSIGN_OR_RETURN(PiecePtr text, string_of(0, -1));
    HEARTH_ASSIGN_OR_RETURN(const PiecePtr any_list, list(any_value_, 0, -1));
    HEARTH_ASSIGN_OR_RETURN(const PiecePtr any_map, map_of(any_value_, 0, -1));
    rules_[static_cast<size_t>(rule)] =
        any_piece({any_map, any_list, std::move(text), any_number(), text_piece("true"),
                   text_piece("false"), text_piece("null")});
    return any_value_;
  }
  /// [item, ...], min to max of them.
  Piece list(const PiecePtr& item, int32_t min, int32_t max) {
    return seq_piece({text_piece("["), separated(item, min, max), text_piece("]")});
  }
  static PiecePtr separated(const PiecePtr& item, int32_t min, int32_t max) {
    if (max == 0) return nothing();
    const PiecePtr more =
        repeat_piece(seq_piece({comma(), item}), std::max(0, min - 1), max < 0 ? -1 : max - 1);
    const PiecePtr some = seq_piece({item, more});
    return min == 0 ? optional_piece(some) : some;
  }
  Piece map_of(const PiecePtr& value, int32_t min, int32_t max) {
    HEARTH_ASSIGN_OR_RETURN(PiecePtr key, string_of(0, kMaxKeyChars));
    HEARTH_ASSIGN_OR_RETURN(const PiecePtr entry,
                            as_rule(seq_piece({std::move(key), colon(), value})));
    return seq_piece({text_piece("{"), separated(entry, min, max), text_piece("}")});
  }

  /// A constant as its JSON text.
  Piece constant(const Value& value) {
    if (value.is_dict() || value.is_sequence()) {
      std::vector<PiecePtr> out = {text_piece(value.is_dict() ? "{" : "[")};
      HEARTH_TRY(run_.charge());
      if (value.is_dict()) {
        for (const auto& [key, item] : value.dict().entries()) {
          if (out.size() > 1) out.push_back(comma());
          HEARTH_ASSIGN_OR_RETURN(PiecePtr name, constant(key));
          HEARTH_ASSIGN_OR_RETURN(PiecePtr one, constant(item));
          out.insert(out.end(), {std::move(name), colon(), std::move(one)});
        }
      } else {
        for (const Value& item : value.list().items) {
          if (out.size() > 1) out.push_back(comma());
          HEARTH_ASSIGN_OR_RETURN(PiecePtr one, constant(item));
          out.push_back(std::move(one));
        }
      }
      out.push_back(text_piece(value.is_dict() ? "}" : "]"));
      return seq_piece(std::move(out));
    }
    HEARTH_ASSIGN_OR_RETURN(std::string text, models::jinja::to_json(run_, value, {}));
    return text_piece(std::move(text));
  }

  // ---- Schemas.
  Piece schema(const Value& s, int depth) {
    if (depth > kMaxSchemaDepth) return wrong("nested too deeply", ErrorCode::kTooLarge);
    if (s.kind() == Kind::kBool) {
      if (s.as_int() != 0) return any_value();
      return unsupported("the schema false here");
    }
    if (!s.is_dict()) return wrong("a schema is an object, true or false");
    HEARTH_TRY(check_words(s.dict()));
    const Dict& d = s.dict();
    if (d.find("$ref") != nullptr) return reference(d, depth);
    if (d.find("allOf") != nullptr) {
      HEARTH_ASSIGN_OR_RETURN(const Value merged, all_of(d));
      return schema(merged, depth + 1);
    }
    if (const Value* any = d.find("anyOf")) return any_of(d, *any, "anyOf", depth);
    if (const Value* one = d.find("oneOf")) {
      HEARTH_TRY(check_disjoint(*one));
      return any_of(d, *one, "oneOf", depth);
    }
    HEARTH_ASSIGN_OR_RETURN(std::vector<PiecePtr> out, by_type(d, depth));
    if (const Value* nullable = d.find("nullable")) {
      if (nullable->kind() != Kind::kBool) return wrong("nullable: want true or false");
      if (nullable->as_int() != 0) out.push_back(text_piece("null"));
    }
    return any_piece(std::move(out));
  }

  static Result<void> check_words(const Dict& d) {
    static constexpr std::string_view kOthers[] = {"type",  "enum",  "const", "anyOf",
                                                   "oneOf", "allOf", "$ref",  "nullable"};
    for (const auto& [key, value] : d.entries()) {
      const std::string_view word = key.text();
      if (among(kAnnotations, word) || among(kOthers, word) || among(kObjectWords, word) ||
          among(kArrayWords, word) || among(kStringWords, word) || among(kNumberWords, word)) {
        continue;
      }
      return unsupported(fmt::format("the keyword '{}'", word.substr(0, 60)));
    }
    return {};
  }

  Result<std::vector<PiecePtr>> by_type(const Dict& d, int depth) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string_view> types, types_of(d));
    std::vector<PiecePtr> out;
    if (d.find("enum") != nullptr || d.find("const") != nullptr) {
      HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> values, allowed_values(d, types));
      for (const Value& value : values) {
        HEARTH_ASSIGN_OR_RETURN(PiecePtr one, constant(value));
        out.push_back(std::move(one));
      }
      return out;
    }
    if (types.empty()) {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr any, any_value());
      out.push_back(std::move(any));
      return out;
    }
    for (const std::string_view type : types) {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr one, of_type(d, type, depth));
      out.push_back(std::move(one));
    }
    return out;
  }

  Piece of_type(const Dict& d, std::string_view type, int depth) {
    if (type == "object") return object(d, depth);
    if (type == "array") return array(d, depth);
    if (type == "string") return string(d);
    if (type == "integer" || type == "number") return number(d, type == "integer");
    if (type == "boolean") return any_piece({text_piece("true"), text_piece("false")});
    return text_piece("null");
  }

  /// Those named, or the one that the keywords speak of; none: any.
  static Result<std::vector<std::string_view>> types_of(const Dict& d) {
    std::vector<std::string_view> out;
    if (const Value* type = d.find("type")) {
      std::vector<Value> names = {*type};
      if (type->kind() == Kind::kList) names = type->list().items;
      for (const Value& name : names) {
        if (!name.is_string() || !among(kTypes, name.text())) return wrong("type: not a type");
        if (among(out, name.text())) return wrong("type: one of them twice");
        out.push_back(name.text());
      }
      if (out.empty()) return wrong("type: an empty list");
      // An integer is a number: both would be two ways to one text.
      if (among(out, "number")) std::erase(out, "integer");
      return out;
    }
    const auto has = [&d](const auto& words) {
      return std::ranges::any_of(words, [&d](std::string_view w) { return d.find(w) != nullptr; });
    };
    if (has(kObjectWords)) out.emplace_back("object");
    if (has(kArrayWords)) out.emplace_back("array");
    if (has(kStringWords)) out.emplace_back("string");
    if (has(kNumberWords)) out.emplace_back("number");
    return out;
  }

  static bool is_of(const Value& value, std::string_view type) {
    switch (value.kind()) {
      case Kind::kDict: return type == "object";
      case Kind::kList: return type == "array";
      case Kind::kString: return type == "string";
      case Kind::kBool: return type == "boolean";
      case Kind::kNone: return type == "null";
      case Kind::kInt: return type == "integer" || type == "number";
      default: return type == "number";
    }
  }

  Result<std::vector<Value>> allowed_values(const Dict& d,
                                            const std::vector<std::string_view>& types) {
    for (const auto& [key, value] : d.entries()) {
      const std::string_view word = key.text();
      const bool with = word == "type" || word == "enum" || word == "const" || word == "nullable" ||
                        among(kAnnotations, word);
      if (!with) return unsupported(fmt::format("'{}' beside enum or const", word));
    }
    std::vector<Value> values;
    const Value* const one = d.find("const");
    if (const Value* list = d.find("enum")) {
      if (list->kind() != Kind::kList) return wrong("enum: want a list");
      if (one != nullptr) return unsupported("enum beside const");
      values = list->list().items;
    } else {
      values = {*one};
    }
    std::vector<Value> out;
    for (const Value& value : values) {
      const bool fits = types.empty() || std::ranges::any_of(types, [&value](std::string_view t) {
                          return is_of(value, t);
                        });
      if (fits) out.push_back(value);
    }
    if (out.empty()) return wrong("enum or const: no value that the type allows");
    return out;
  }

  // ---- References.
  Piece reference(const Dict& d, int depth) {
    for (const auto& [key, value] : d.entries()) {
      if (key.text() == "$ref" || among(kAnnotations, key.text())) continue;
      return unsupported(fmt::format("'{}' beside $ref", key.text()));
    }
    const Value* const ref = d.find("$ref");
    if (!ref->is_string()) return wrong("$ref: want a text");
    const std::string pointer(ref->text());
    const auto known = rule_numbers_.find(pointer);
    if (known != rule_numbers_.end()) return rule_piece(known->second);
    HEARTH_ASSIGN_OR_RETURN(const Value target, resolve(pointer));
    HEARTH_ASSIGN_OR_RETURN(const int32_t rule, new_rule(nullptr, pointer));
    rule_numbers_.emplace(pointer, rule);
    HEARTH_ASSIGN_OR_RETURN(PiecePtr body, schema(target, depth + 1));
    rules_[static_cast<size_t>(rule)] = std::move(body);
    return rule_piece(rule);
  }

  /// "#/$defs/name".
  Result<Value> resolve(std::string_view pointer) {
    if (!pointer.starts_with("#/") && pointer != "#") {
      return unsupported(fmt::format("$ref '{}' to outside", pointer.substr(0, 60)));
    }
    Value at = root_;
    std::string_view rest = pointer.substr(1);
    while (!rest.empty()) {
      rest.remove_prefix(1);
      const size_t end = std::min(rest.find('/'), rest.size());
      std::string part(rest.substr(0, end));
      rest.remove_prefix(end);
      for (const auto& [from, to] : {std::pair("~1", "/"), std::pair("~0", "~")}) {
        for (size_t i = 0; (i = part.find(from, i)) != std::string::npos; ++i) {
          part.replace(i, 2, to);
        }
      }
      const Value* next = at.is_dict() ? at.dict().find(part) : nullptr;
      if (next == nullptr) {
        return wrong(fmt::format("$ref '{}': nothing there", pointer.substr(0, 60)));
      }
      at = *next;
    }
    return at;
  }

  // ---- Combinations.
  Result<Value> target_of(const Value& s) {
    Value at = s;
    for (int i = 0; at.is_dict() && at.dict().find("$ref") != nullptr; ++i) {
      const Value* const ref = at.dict().find("$ref");
      if (i > kMaxSchemaDepth || !ref->is_string() || at.dict().size() > 1) {
        return unsupported("this $ref inside allOf or anyOf");
      }
      HEARTH_ASSIGN_OR_RETURN(at, resolve(ref->text()));
    }
    if (!at.is_dict()) return unsupported("a schema that is no object inside allOf or anyOf");
    return at;
  }

  /// `to` gets what `from` says; what both say must be the same, properties and required apart.
  Result<void> merge(Dict& to, const Dict& from, std::string_view where) {
    for (const auto& [key, value] : from.entries()) {
      const std::string_view word = key.text();
      if (among(kAnnotations, word)) continue;
      const Value* const there = to.find(word);
      if (there == nullptr) {
        to.set(word, value);
        continue;
      }
      HEARTH_ASSIGN_OR_RETURN(const bool same, run_.equal(*there, value));
      if (same) continue;
      const bool maps = word == "properties" && there->is_dict() && value.is_dict();
      const bool lists =
          word == "required" && there->kind() == Kind::kList && value.kind() == Kind::kList;
      if (maps) {
        Dict* const both = run_.arena().new_dict();
        for (const auto& [name, each] : there->dict().entries()) both->set(name, each);
        for (const auto& [name, each] : value.dict().entries()) {
          if (const Value* twice = both->find(name)) {
            HEARTH_ASSIGN_OR_RETURN(const bool equal, run_.equal(*twice, each));
            if (!equal) return unsupported(fmt::format("{}: one property twice", where));
          }
          both->set(name, each);
        }
        to.set(word, Value::of(both));
      } else if (lists) {
        std::vector<Value> both = there->list().items;
        both.insert(both.end(), value.list().items.begin(), value.list().items.end());
        HEARTH_ASSIGN_OR_RETURN(const Value merged, run_.list(std::move(both)));
        to.set(word, merged);
      } else {
        return unsupported(fmt::format("{}: '{}' said twice", where, word.substr(0, 60)));
      }
    }
    return {};
  }

  Result<Value> without(const Dict& d, std::string_view word) {
    Dict* const out = run_.arena().new_dict();
    for (const auto& [key, value] : d.entries()) {
      if (key.text() != word) out->set(key, value);
    }
    return Value::of(out);
  }

  Result<Value> all_of(const Dict& d) {
    const Value* const parts = d.find("allOf");
    if (parts->kind() != Kind::kList || parts->list().items.empty()) {
      return wrong("allOf: want a list of schemas");
    }
    HEARTH_ASSIGN_OR_RETURN(const Value base, without(d, "allOf"));
    int with_properties = base.dict().find("properties") != nullptr ? 1 : 0;
    for (const Value& part : parts->list().items) {
      HEARTH_ASSIGN_OR_RETURN(const Value target, target_of(part));
      HEARTH_TRY(check_words(target.dict()));
      with_properties += target.dict().find("properties") != nullptr ? 1 : 0;
      HEARTH_TRY(merge(base.dict(), target.dict(), "allOf"));
    }
    // It would speak of the properties of its own schema alone.
    if (with_properties > 1 && base.dict().find("additionalProperties") != nullptr) {
      return unsupported("additionalProperties inside allOf of several properties");
    }
    return base;
  }

  Piece any_of(const Dict& d, const Value& parts, std::string_view word, int depth) {
    if (parts.kind() != Kind::kList || parts.list().items.empty()) {
      return wrong(fmt::format("{}: want a list of schemas", word));
    }
    HEARTH_ASSIGN_OR_RETURN(const Value base, without(d, word));
    bool alone = true;
    for (const auto& [key, value] : base.dict().entries()) {
      alone = alone && among(kAnnotations, key.text());
    }
    std::vector<PiecePtr> out;
    for (const Value& part : parts.list().items) {
      Value branch = part;
      if (!alone) {
        HEARTH_ASSIGN_OR_RETURN(const Value target, target_of(part));
        HEARTH_ASSIGN_OR_RETURN(branch, without(base.dict(), ""));
        HEARTH_TRY(check_words(target.dict()));
        if (base.dict().find("properties") != nullptr &&
            target.dict().find("additionalProperties") != nullptr) {
          return unsupported("additionalProperties inside anyOf beside properties");
        }
        HEARTH_TRY(merge(branch.dict(), target.dict(), word));
      }
      HEARTH_ASSIGN_OR_RETURN(PiecePtr one, schema(branch, depth + 1));
      out.push_back(std::move(one));
    }
    return any_piece(std::move(out));
  }

  /// oneOf is anyOf where no value can be of two branches: types differ, or constants do.
  Result<void> check_disjoint(const Value& parts) {
    if (parts.kind() != Kind::kList) return wrong("oneOf: want a list of schemas");
    std::vector<Dict*> branches;
    for (const Value& part : parts.list().items) {
      HEARTH_ASSIGN_OR_RETURN(const Value target, target_of(part));
      branches.push_back(&target.dict());
    }
    for (size_t a = 0; a < branches.size(); ++a) {
      for (size_t b = a + 1; b < branches.size(); ++b) {
        HEARTH_TRY(run_.charge());
        HEARTH_ASSIGN_OR_RETURN(const bool apart, disjoint(*branches[a], *branches[b]));
        if (!apart) return unsupported("oneOf of branches that one value may both be of");
      }
    }
    return {};
  }

  Result<bool> disjoint(const Dict& a, const Dict& b) {
    for (const Dict* each : {&a, &b}) {
      const Value* const nullable = each->find("nullable");
      if (nullable != nullptr) return false;
    }
    const Value *type_a = a.find("type"), *type_b = b.find("type");
    if (type_a != nullptr && type_b != nullptr) {
      HEARTH_ASSIGN_OR_RETURN(const auto of_a, types_of(a));
      HEARTH_ASSIGN_OR_RETURN(const auto of_b, types_of(b));
      const auto numeric = [](std::string_view t) { return t == "integer" ? "number" : t; };
      bool common = false;
      for (const auto x : of_a) {
        for (const auto y : of_b) common = common || numeric(x) == numeric(y);
      }
      if (!common) return true;
    }
    const auto values = [](const Dict& d) {
      std::vector<Value> out;
      if (const Value* one = d.find("const")) out.push_back(*one);
      const Value* const list = d.find("enum");
      if (list != nullptr && list->kind() == Kind::kList) out = list->list().items;
      return out;
    };
    const std::vector<Value> of_a = values(a), of_b = values(b);
    if (!of_a.empty() && !of_b.empty()) {
      for (const Value& x : of_a) {
        for (const Value& y : of_b) {
          HEARTH_ASSIGN_OR_RETURN(const bool same, run_.equal(x, y));
          if (same) return false;
        }
      }
      return true;
    }
    // Objects that must have one property of differing constants.
    const Value *props_a = a.find("properties"), *props_b = b.find("properties");
    if (props_a == nullptr || props_b == nullptr || !props_a->is_dict() || !props_b->is_dict()) {
      return false;
    }
    for (const auto& [name, x] : props_a->dict().entries()) {
      const Value* const y = props_b->dict().find(name);
      if (y == nullptr || !x.is_dict() || !y->is_dict()) continue;
      if (!requires_property(a, name) || !requires_property(b, name)) continue;
      const std::vector<Value> vx = values(x.dict()), vy = values(y->dict());
      if (vx.empty() || vy.empty()) continue;
      bool common = false;
      for (const Value& p : vx) {
        for (const Value& q : vy) {
          HEARTH_ASSIGN_OR_RETURN(const bool same, run_.equal(p, q));
          common = common || same;
        }
      }
      if (!common) return true;
    }
    return false;
  }

  static bool requires_property(const Dict& d, const Value& name) {
    const Value* const required = d.find("required");
    if (required == nullptr || required->kind() != Kind::kList) return false;
    return std::ranges::any_of(required->list().items, [&name](const Value& each) {
      return each.is_string() && each.text() == name.text();
    });
  }

  // ---- Types.
  Result<int32_t> count(const Dict& d, std::string_view word, int32_t otherwise) {
    const Value* const value = d.find(word);
    if (value == nullptr) return otherwise;
    if (value->kind() != Kind::kInt || value->as_int() < 0) {
      return wrong(fmt::format("{}: want an integer, 0 or above", word));
    }
    if (value->as_int() > kMaxGrammarRepeat) {
      return unsupported(fmt::format("{} above {}", word, kMaxGrammarRepeat));
    }
    return static_cast<int32_t>(value->as_int());
  }

  Piece string(const Dict& d) {
    HEARTH_ASSIGN_OR_RETURN(const int32_t min, count(d, "minLength", 0));
    HEARTH_ASSIGN_OR_RETURN(const int32_t max, count(d, "maxLength", -1));
    if (max >= 0 && max < min) return wrong("maxLength is below minLength");
    const Value *pattern = d.find("pattern"), *format = d.find("format");
    const bool bounded = min > 0 || max >= 0;
    if (pattern == nullptr && format == nullptr) return string_of(min, max);
    if (bounded || (pattern != nullptr && format != nullptr)) {
      return unsupported("pattern or format beside one another or beside a length");
    }
    const Value& given = pattern != nullptr ? *pattern : *format;
    if (!given.is_string()) return wrong("pattern and format are texts");
    std::string_view regex = given.text();
    if (format != nullptr) {
      const auto found = std::ranges::find(kFormats, regex, &Format::name);
      if (found == std::end(kFormats)) {
        return unsupported(fmt::format("the format '{}'", regex.substr(0, 60)));
      }
      regex = found->pattern;
    }
    HEARTH_ASSIGN_OR_RETURN(PiecePtr inner, compile_pattern(regex, in_json_string));
    return quoted(std::move(inner));
  }

  struct Bound {
    std::optional<int64_t> value;
    bool included = true;
  };
  /// The tighter of `word` and its exclusive form; only whole numbers.
  Result<Bound> bound(const Dict& d, bool lower, bool integer) {
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
      if (!whole && !integer) return unsupported(fmt::format("{} that is not whole", word));
      if (std::abs(x) > static_cast<double>(kMostInteger)) {
        return unsupported(fmt::format("{} of more than 15 digits", word));
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

  Piece number(const Dict& d, bool integer) {
    if (const Value* multiple = d.find("multipleOf")) {
      if (!integer || multiple->kind() != Kind::kInt || multiple->as_int() != 1) {
        return unsupported("multipleOf");
      }
    }
    HEARTH_ASSIGN_OR_RETURN(const Bound low, bound(d, true, integer));
    HEARTH_ASSIGN_OR_RETURN(const Bound high, bound(d, false, integer));
    if (!low.value && !high.value) return integer ? any_integer() : any_number();
    const int64_t a = low.value.value_or(-kMostInteger), b = high.value.value_or(kMostInteger);
    const bool empty = a > b || (a == b && (!low.included || !high.included));
    if (empty) return wrong("no number lies between minimum and maximum");
    if (integer) return integer_range(a, b);
    std::vector<PiecePtr> out;
    if (b > 0 || (b == 0 && high.included)) {
      const bool from_low = a >= 0;
      out.push_back(
          real_range(std::max<int64_t>(a, 0), b, !from_low || low.included, high.included));
    }
    if (a < 0) {
      const bool to_high = b <= 0;
      // Without -0: as a number it is 0, which may lie above the maximum.
      out.push_back(seq_piece(
          {text_piece("-"),
           real_range(to_high ? -b : 0, -a, to_high && b < 0 && high.included, low.included)}));
    }
    std::erase_if(out, [](const PiecePtr& p) {
      return p->type == engine::Piece::Type::kAny && p->parts.empty();
    });
    return any_piece(std::move(out));
  }

  Piece array(const Dict& d, int depth) {
    if (const Value* unique = d.find("uniqueItems")) {
      if (unique->kind() != Kind::kBool || unique->as_int() != 0) return unsupported("uniqueItems");
    }
    HEARTH_ASSIGN_OR_RETURN(const int32_t min, count(d, "minItems", 0));
    HEARTH_ASSIGN_OR_RETURN(const int32_t max, count(d, "maxItems", -1));
    if (max >= 0 && max < min) return wrong("maxItems is below minItems");
    std::vector<Value> first;
    if (const Value* prefix = d.find("prefixItems")) {
      if (prefix->kind() != Kind::kList) return wrong("prefixItems: want a list of schemas");
      first = prefix->list().items;
    }
    const Value* const items = d.find("items");
    const bool closed = items != nullptr && items->kind() == Kind::kBool && items->as_int() == 0;
    const auto known = static_cast<int32_t>(first.size());
    if (closed && min > known) return wrong("minItems is above what prefixItems allow");
    PiecePtr tail = nothing();  // behind all of `first`
    if (!closed && (max < 0 || max > known)) {
      PiecePtr item;
      if (items == nullptr) {
        HEARTH_ASSIGN_OR_RETURN(item, any_value());
      } else {
        HEARTH_ASSIGN_OR_RETURN(item, schema(*items, depth + 1));
      }
      HEARTH_ASSIGN_OR_RETURN(item, as_rule(std::move(item)));
      const int32_t least = std::max(0, min - known), most = max < 0 ? -1 : max - known;
      if (first.empty()) return list(item, least, most);
      tail = repeat_piece(seq_piece({comma(), item}), least, most);
    }
    for (int32_t i = std::min(known, max < 0 ? known : max) - 1; i >= 0; --i) {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr item, schema(first[static_cast<size_t>(i)], depth + 1));
      PiecePtr from_here = seq_piece({i > 0 ? comma() : nothing(), std::move(item), tail});
      if (i >= min) from_here = optional_piece(std::move(from_here));
      HEARTH_ASSIGN_OR_RETURN(tail, as_rule(std::move(from_here)));
    }
    return seq_piece({text_piece("["), std::move(tail), text_piece("]")});
  }

  struct Property {
    PiecePtr piece;  ///< "name": value
    bool required = false;
  };

  /// A key that is none of `names`, plain characters only.
  PiecePtr other_key(std::vector<std::string> names) {
    std::ranges::sort(names);
    return seq_piece({text_piece("\""), other_rest(names, 0, 0), text_piece("\"")});
  }
  /// What may follow the first `at` bytes that all of `names` share. Bytes of a character that is
  /// cut by a border are cut with it: names are compared character by character.
  PiecePtr other_rest(const std::vector<std::string>& names, size_t at, int depth) {
    const CharRanges special = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    const PiecePtr any = repeat_piece(chars_piece(complement(special)), 0, kMaxKeyChars);
    bool ends = false;
    std::vector<std::pair<uint32_t, std::vector<std::string>>> next;
    for (const std::string& name : names) {
      if (name.size() == at) {
        ends = true;
        continue;
      }
      const uint32_t code = models::jinja::first_char(std::string_view(name).substr(at)).code;
      if (next.empty() || next.back().first != code)
        next.emplace_back(code, std::vector<std::string>());
      next.back().second.push_back(name);
    }
    std::vector<PiecePtr> out;
    if (!ends) out.push_back(nothing());
    CharRanges taken = special;
    for (const auto& [code, group] : next) {
      taken.emplace_back(code, code);
      const size_t bytes =
          models::jinja::first_char(std::string_view(group.front()).substr(at)).bytes;
      // Deep down a group is left out: fewer keys, all of them right.
      if (depth > 40 || code < 0x20 || code == '"' || code == '\\') continue;
      out.push_back(
          seq_piece({chars_piece({{code, code}}), other_rest(group, at + bytes, depth + 1)}));
    }
    out.push_back(seq_piece({chars_piece(complement(std::move(taken))), any}));
    return any_piece(std::move(out));
  }

  Piece object(const Dict& d, int depth) {
    std::vector<std::string> required;
    if (const Value* list = d.find("required")) {
      if (list->kind() != Kind::kList) return wrong("required: want a list of names");
      for (const Value& name : list->list().items) {
        if (!name.is_string()) return wrong("required: want a list of names");
        if (!among(required, name.text())) required.emplace_back(name.text());
      }
    }
    const Value* const more = d.find("additionalProperties");
    const Value* const named = d.find("properties");
    if (named != nullptr && !named->is_dict()) return wrong("properties: want an object");
    const bool none_named = named == nullptr || named->dict().size() == 0;
    const bool closed =
        more == nullptr ? !none_named : more->kind() == Kind::kBool && more->as_int() == 0;
    HEARTH_ASSIGN_OR_RETURN(const int32_t min, count(d, "minProperties", 0));
    HEARTH_ASSIGN_OR_RETURN(const int32_t max, count(d, "maxProperties", -1));
    const bool plain_map = none_named && required.empty() && !closed;
    // Names may come twice, so of a map one at least is all that can be promised.
    if (min > (plain_map ? 1 : static_cast<int32_t>(required.size()))) {
      return unsupported("minProperties here");
    }
    if (max >= 0 && max < min) return wrong("maxProperties is below minProperties");

    PiecePtr other_value;
    if (!closed) {
      if (more == nullptr) {
        HEARTH_ASSIGN_OR_RETURN(other_value, any_value());
      } else {
        HEARTH_ASSIGN_OR_RETURN(other_value, schema(*more, depth + 1));
        HEARTH_ASSIGN_OR_RETURN(other_value, as_rule(std::move(other_value)));
      }
      if (none_named && required.empty()) return map_of(other_value, min, max);
    }

    std::vector<Property> properties;
    std::vector<std::string> names;
    const auto add = [&](std::string_view name, PiecePtr value, bool must) -> Result<void> {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr key, constant(Value::of(name)));
      HEARTH_ASSIGN_OR_RETURN(PiecePtr whole,
                              as_rule(seq_piece({std::move(key), colon(), std::move(value)})));
      properties.push_back({std::move(whole), must});
      names.emplace_back(name);
      return {};
    };
    if (!none_named) {
      for (const auto& [key, value] : named->dict().entries()) {
        const bool must = among(required, key.text());
        if (value.kind() == Kind::kBool && value.as_int() == 0 && !must) {
          names.emplace_back(key.text());  // never there
          continue;
        }
        HEARTH_ASSIGN_OR_RETURN(PiecePtr piece, schema(value, depth + 1));
        HEARTH_TRY(add(key.text(), std::move(piece), must));
      }
    }
    for (const std::string& name : required) {
      if (among(names, name)) continue;
      if (closed && more != nullptr) {
        return wrong(fmt::format("required '{}' is no property, and no others are allowed",
                                 name.substr(0, 60)));
      }
      PiecePtr value = other_value;
      if (value == nullptr) {
        HEARTH_ASSIGN_OR_RETURN(value, any_value());
      }
      HEARTH_TRY(add(name, std::move(value), true));
    }

    int32_t most = -1;  // properties that the schema does not name
    if (max >= 0) {
      most = max - static_cast<int32_t>(properties.size());
      if (most < 0) return unsupported("maxProperties below the number of properties");
    }
    PiecePtr other;
    if (!closed) {
      HEARTH_ASSIGN_OR_RETURN(
          other, as_rule(seq_piece({other_key(std::move(names)), colon(), other_value})));
    }
    // From the end: what may stand from a property on, with something in front of it and without.
    PiecePtr after = closed ? nothing() : repeat_piece(seq_piece({comma(), other}), 0, most);
    PiecePtr first = closed ? nothing() : separated(other, 0, most);
    HEARTH_ASSIGN_OR_RETURN(after, as_rule(std::move(after)));
    HEARTH_ASSIGN_OR_RETURN(first, as_rule(std::move(first)));
    for (size_t i = properties.size(); i-- > 0;) {
      const Property& p = properties[i];
      PiecePtr here_first = seq_piece({p.piece, after});
      PiecePtr here_after = seq_piece({comma(), p.piece, after});
      if (!p.required) {
        here_first = any_piece({std::move(here_first), first});
        here_after = any_piece({std::move(here_after), after});
      }
      HEARTH_ASSIGN_OR_RETURN(first, as_rule(std::move(here_first)));
      HEARTH_ASSIGN_OR_RETURN(after, as_rule(std::move(here_after)));
    }
    return seq_piece({text_piece("{"), std::move(first), text_piece("}")});
  }

  models::jinja::Renderer run_{{}, std::tm{}};  // the values' memory, and bounds of steps
  Value root_;
  std::vector<PiecePtr> rules_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, int32_t> rule_numbers_;
  PiecePtr string_char_;
  PiecePtr any_value_;
};

}  // namespace

Result<Grammar> compile_json_schema(std::string_view schema) { return SchemaReader().run(schema); }

}  // namespace hearth::engine
