#pragma once
// Translates a JSON schema into rules. json_schema.cpp lists the supported keywords.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/grammar/json_pieces.h"
#include "engine/grammar/rule_set.h"
#include "engine/grammar/text_sets.h"
#include "models/template/renderer.h"

namespace hearth::engine {

using models::jinja::Dict;
using models::jinja::Kind;
using models::jinja::Value;

inline constexpr int kMaxSchemaDepth = 24;
/// Values of a schema that are listed.
inline constexpr int32_t kMostListed = 1024;

// The keywords.
inline constexpr std::string_view kAnnotations[] = {
    "title",    "description", "default",  "examples",  "$schema", "$id",
    "$comment", "deprecated",  "readOnly", "writeOnly", "$defs",   "definitions"};
inline constexpr std::string_view kObjectWords[] = {"properties",           "required",
                                                    "additionalProperties", "minProperties",
                                                    "maxProperties",        "patternProperties"};
inline constexpr std::string_view kArrayWords[] = {"items", "prefixItems", "minItems", "maxItems",
                                                   "uniqueItems"};
inline constexpr std::string_view kStringWords[] = {"minLength", "maxLength", "pattern", "format",
                                                    "lark"};
inline constexpr std::string_view kNumberWords[] = {"minimum", "maximum", "exclusiveMinimum",
                                                    "exclusiveMaximum", "multipleOf"};
inline constexpr std::string_view kTypes[] = {"object",  "array",   "string", "number",
                                              "integer", "boolean", "null"};

template <typename Words>
bool among(const Words& words, std::string_view word) {
  return std::ranges::find(words, word) != std::end(words);
}

/// One of the parameters of a function.
struct SchemaParameter {
  std::string name;
  bool required = false;
  bool string = false;  ///< its values are always strings: `piece` is their text, not JSON
  PiecePtr piece;       ///< null: any text
};

class SchemaReader {
 public:
  /// `relaxed`: not null if the schema may lose what cannot be promised; this is then named there.
  explicit SchemaReader(RuleSet& rules, std::vector<std::string>* relaxed = nullptr)
      : rules_(rules), json_(rules), relaxed_(relaxed) {}

  /// A piece that matches all texts of the schema; its rules are added to the others. Call once.
  Result<PiecePtr> read(std::string_view text);
  /// The properties of an object's schema, for call formats that write each by itself. Others that
  /// the schema would allow are left out. Call once, in place of read().
  Result<std::vector<SchemaParameter>> parameters(std::string_view text);
  /// Whether a schema allows nothing but strings.
  static bool is_string(const Value& schema);

 private:
  static Error wrong(const std::string& what) {
    return Error::invalid("json_schema: " + what, "json_schema");
  }
  static Error unsupported(const std::string& what) {
    return Error::unsupported("json_schema: " + what + " is not supported", "json_schema");
  }

  /// The source as a value, without the members that are null.
  Result<Value> parsed(std::string_view text);

  /// Leaves a keyword out and records it, or refuses it.
  Result<void> leave_out(const std::string& what);

  /// A constant as its JSON text.
  Result<PiecePtr> constant(const Value& value);
  Result<PiecePtr> schema(const Value& s, int depth);
  Result<void> check_words(const Dict& d);
  Result<std::vector<PiecePtr>> by_type(const Dict& d, int depth);
  Result<PiecePtr> of_type(const Dict& d, std::string_view type, int depth);
  /// The types that are named, or the one that the keywords imply; none: any.
  static Result<std::vector<std::string_view>> types_of(const Dict& d);
  static bool is_of(const Value& value, std::string_view type);
  Result<std::vector<Value>> allowed_values(const Dict& d,
                                            const std::vector<std::string_view>& types);

  // ---- References, allOf, anyOf, oneOf.
  Result<PiecePtr> reference(const Dict& d, int depth);
  /// "#/$defs/name".
  Result<Value> resolve(std::string_view pointer);
  Result<Value> target_of(const Value& s);
  /// Copies the keywords of `from` to `to`; except for properties and required, keywords in both
  /// must be equal.
  Result<void> merge(Dict& to, const Dict& from, std::string_view where);
  Result<Value> without(const Dict& d, std::string_view word);
  Result<Value> all_of(const Dict& d);
  Result<PiecePtr> any_of(const Dict& d, const Value& parts, std::string_view word, int depth);
  /// oneOf equals anyOf if no value can match two branches, because their types or constants
  /// differ.
  Result<void> check_disjoint(const Value& parts);
  Result<bool> disjoint(const Dict& a, const Dict& b);
  static bool requires_property(const Dict& d, const Value& name);

  // ---- Types.
  struct Bound {
    std::optional<int64_t> value;
    bool included = true;
  };
  Result<int32_t> count(const Dict& d, std::string_view word, int32_t otherwise);
  Result<PiecePtr> string(const Dict& d);
  /// The text of such a string, without quotes.
  Result<PiecePtr> plain_string(const Dict& d);
  /// The texts of the grammar `lark`, without quotes; null: it was left out.
  Result<PiecePtr> lark_text(const Dict& d, PiecePtr (*encode)(const CharRanges&));
  /// pattern or format, whichever it has, as a regular expression; none: it was left out.
  Result<std::optional<std::string_view>> regex_of(const Dict& d);
  /// Its texts of `min` to `max` characters, or of any number (-1); null: it was left out.
  Result<PiecePtr> pattern_of(std::string_view regex, int32_t min, int32_t max,
                              PiecePtr (*encode)(const CharRanges&));
  /// All of its texts, of single characters; null: it was left out.
  Result<PiecePtr> plain_pattern(std::string_view regex);
  /// The tighter of `word` and its exclusive form; only whole numbers.
  Result<Bound> bound(const Dict& d, bool lower, bool integer);
  Result<PiecePtr> number(const Dict& d, bool integer);
  /// multipleOf, with the bounds of `d`; null: it was left out.
  Result<PiecePtr> multiples(double of, bool integer, const Dict& d);
  /// uniqueItems of values that can be listed, in their order. Null: they cannot, or are too many.
  Result<PiecePtr> distinct(const Value& items, int32_t min, int32_t max);
  /// The values of a schema that allows only a few, all different; none: it is not of this kind.
  Result<std::vector<Value>> listed(const Value& schema, int depth);
  Result<std::vector<Value>> listed_of_type(const Dict& d, std::string_view type);
  /// Appends those that `out` has not.
  Result<void> add_new(const std::vector<Value>& values, std::vector<Value>* out);
  /// Whether two JSON values are equal.
  Result<bool> same(const Value& a, const Value& b);
  Result<bool> are_apart(const std::vector<Value>& schemas);
  /// uniqueItems of prefixItems of which no two can be equal. May lower `max` (-1: none) to leave
  /// out items that could be.
  Result<bool> distinct_prefix(const Dict& d, int32_t min, int32_t* max);
  Result<PiecePtr> array(const Dict& d, int depth);

  /// A key that is none of `names`, plain characters only.
  PiecePtr other_key(std::vector<std::string> names);
  /// What may follow the first `at` bytes that all of `names` share. Names are compared character
  /// by character, so a character is never divided.
  PiecePtr other_rest(const std::vector<std::string>& names, size_t at, int depth);
  Result<PiecePtr> object(const Dict& d, int depth);
  static Result<std::vector<std::string>> required_names(const Dict& d);
  /// Patterns of patternProperties whose schemas are alike.
  struct KeyPattern {
    PiecePtr key;    ///< the texts that match, of single characters
    Value value;     ///< the schema of their values
    PiecePtr piece;  ///< its texts
  };
  /// No key matches two of them. Empty: there are none.
  using KeyPatterns = std::vector<KeyPattern>;
  Result<KeyPatterns> key_patterns(const Dict& d, int depth);
  Result<bool> share_keys(const KeyPatterns& patterns);
  /// The one that a name matches; null: there is none.
  Result<const KeyPattern*> matching(const KeyPatterns& patterns, std::string_view name);
  /// The schema of a property that is named.
  Result<Value> with_patterns(const KeyPatterns& patterns, std::string_view name,
                              const Value& value);
  /// A key that matches and is none of `names`; null: there is none.
  Result<PiecePtr> pattern_key(const KeyPattern& pattern, std::vector<std::string> names);
  /// A property that is not named; null: there is none.
  Result<PiecePtr> other_property(const KeyPatterns& patterns, const PiecePtr& other_value,
                                  const std::vector<std::string>& names);

  RuleSet& rules_;
  JsonPieces json_;
  std::vector<std::string>* const relaxed_;
  models::jinja::Renderer run_{{}, std::tm{}};  // the values' memory, and bounds of steps
  Value root_;
  std::unordered_map<std::string, int32_t> rule_numbers_;
  int64_t text_set_steps_ = kTextSetSteps;
};

}  // namespace hearth::engine
