// The parameters of functions, for call formats that write each of them by itself and strings
// without quotes.

#include "engine/grammar/schema_reader.h"
#include "models/template/json.h"

namespace hearth::engine {
namespace {

/// Text that cannot contain a mark of the format: all of them begin with this character.
constexpr CharRanges::value_type kMarkBegin = {'<', '<'};

PiecePtr plain_chars(const CharRanges& chars) { return chars_piece(chars); }

}  // namespace

bool SchemaReader::is_string(const Value& schema) {
  if (!schema.is_dict()) return false;
  const Dict& d = schema.dict();
  const Value *type = d.find("type"), *values = d.find("enum"), *one = d.find("const");
  const Value* const nullable = d.find("nullable");
  if (nullable != nullptr && nullable->kind() == Kind::kBool && nullable->as_int() != 0) {
    return false;
  }
  if (type != nullptr) return type->is_string() && type->text() == "string";
  if (one != nullptr) return one->is_string();
  return values != nullptr && values->kind() == Kind::kList && !values->list().items.empty() &&
         std::ranges::all_of(values->list().items, &Value::is_string);
}

Result<PiecePtr> SchemaReader::plain_string(const Dict& d) {
  HEARTH_TRY(check_words(d));
  if (d.find("enum") != nullptr || d.find("const") != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> values, allowed_values(d, {"string"}));
    std::vector<PiecePtr> out;
    for (const Value& value : values) out.push_back(text_piece(std::string(value.text())));
    return any_piece(std::move(out));
  }
  HEARTH_ASSIGN_OR_RETURN(const int32_t min, count(d, "minLength", 0));
  HEARTH_ASSIGN_OR_RETURN(const int32_t max, count(d, "maxLength", -1));
  if (max >= 0 && max < min) return wrong("maxLength is below minLength");
  if (d.find("lark") != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(PiecePtr text, lark_text(d, plain_chars));
    if (text != nullptr) return text;
  }
  const bool bounded = min > 0 || max >= 0;
  if (d.find("pattern") == nullptr && d.find("format") == nullptr) {
    if (!bounded) return PiecePtr();
    HEARTH_ASSIGN_OR_RETURN(PiecePtr one, rules_.as_rule(chars_piece(complement({kMarkBegin}))));
    return repeat_piece(std::move(one), min, max);
  }
  HEARTH_ASSIGN_OR_RETURN(const std::optional<std::string_view> regex, regex_of(d));
  if (!regex) return PiecePtr();
  return pattern_of(*regex, min, max, plain_chars);
}

Result<std::vector<SchemaParameter>> SchemaReader::parameters(std::string_view text) {
  HEARTH_ASSIGN_OR_RETURN(root_, parsed(text));
  HEARTH_ASSIGN_OR_RETURN(const Value whole, target_of(root_));
  const Dict& d = whole.dict();
  HEARTH_TRY(check_words(d));
  for (const std::string_view word : {"allOf", "anyOf", "oneOf"}) {
    if (d.find(word) != nullptr) {
      return unsupported(fmt::format("{} of whole parameters in this model's calls", word));
    }
  }
  std::vector<std::string_view> required;
  if (const Value* names = d.find("required")) {
    if (names->kind() != Kind::kList) return wrong("required: want a list");
    for (const Value& name : names->list().items) {
      if (!name.is_string()) return wrong("required: want names");
      required.push_back(name.text());
    }
  }
  HEARTH_ASSIGN_OR_RETURN(const KeyPatterns patterns, key_patterns(d, 0));
  std::vector<SchemaParameter> out;
  const Value* const properties = d.find("properties");
  if (properties != nullptr && !properties->is_dict()) return wrong("properties: want an object");
  if (properties != nullptr) {
    for (const auto& [name, value] : properties->dict().entries()) {
      SchemaParameter one{std::string(name.text()), among(required, name.text()), is_string(value),
                          nullptr};
      if (one.name.empty() || one.name.find_first_of("<>\"") != std::string::npos) {
        return unsupported("a property's name that is empty or has <, > or quotes");
      }
      HEARTH_ASSIGN_OR_RETURN(const Value both, with_patterns(patterns, one.name, value));
      HEARTH_ASSIGN_OR_RETURN(const bool alone, same(both, value));
      if (!alone) HEARTH_TRY(leave_out("patternProperties of a parameter in this model's calls"));
      HEARTH_ASSIGN_OR_RETURN(one.piece,
                              one.string ? plain_string(value.dict()) : schema(value, 1));
      out.push_back(std::move(one));
    }
  }
  for (const std::string_view name : required) {
    if (std::ranges::find(out, name, &SchemaParameter::name) == out.end()) {
      return unsupported(
          fmt::format("required '{}', which is not a property,", name.substr(0, 60)));
    }
  }
  return out;
}

}  // namespace hearth::engine
