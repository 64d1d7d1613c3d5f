// JSON schemas (draft 2020-12, the part that a generator can promise) as grammars. The output is
// always valid, but not all valid JSON is generated:
//   objects   properties in the order of the schema; others, with short names, only if
//             additionalProperties allows them or if the schema names none at all
//   blanks    at most one, after a comma or a colon
//   numbers   at most 15 digits on each side of the point, exponents of one or two digits
// A keyword that is not known, or cannot be promised, is an error that names it.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/grammar/schema_reader.h"
#include "models/template/json.h"
#include "models/template/text.h"

namespace hearth::engine {
namespace {

// Clients write members that they do not use as null; where null is a value, it stays.
void drop_nulls(const Value& schema) {
  static constexpr std::string_view kValues[] = {"const", "default", "enum", "examples"};
  if (schema.kind() == Kind::kList) {
    for (const Value& item : schema.list().items) drop_nulls(item);
  }
  if (!schema.is_dict()) return;
  schema.dict().erase_if([](const Dict::Entry& entry) {
    return entry.second.kind() == Kind::kNone && !among(kValues, entry.first.text());
  });
  for (const auto& [key, value] : schema.dict().entries()) {
    if (!among(kValues, key.text())) drop_nulls(value);
  }
}

}  // namespace

Result<Value> SchemaReader::parsed(std::string_view text) {
  Result<Value> root = models::jinja::parse_json(run_.arena(), text);
  if (!root.ok()) return wrong(root.error().message);
  drop_nulls(*root);
  return root;
}

Result<PiecePtr> SchemaReader::read(std::string_view text) {
  HEARTH_ASSIGN_OR_RETURN(root_, parsed(text));
  HEARTH_ASSIGN_OR_RETURN(const int32_t whole, rules_.add(nullptr, "#"));
  rule_numbers_.emplace("#", whole);
  HEARTH_ASSIGN_OR_RETURN(PiecePtr body, schema(root_, 0));
  rules_.set(whole, std::move(body));
  return rule_piece(whole);
}

Result<void> SchemaReader::leave_out(const std::string& what) {
  constexpr size_t kMostNames = 32;
  if (relaxed_ == nullptr) return unsupported(what);
  if (!among(*relaxed_, what) && relaxed_->size() < kMostNames) relaxed_->push_back(what);
  return {};
}

Result<PiecePtr> SchemaReader::constant(const Value& value) {
  if (value.is_dict() || value.is_sequence()) {
    std::vector<PiecePtr> out = {text_piece(value.is_dict() ? "{" : "[")};
    HEARTH_TRY(run_.charge());
    if (value.is_dict()) {
      for (const auto& [key, item] : value.dict().entries()) {
        if (out.size() > 1) out.push_back(comma_piece());
        HEARTH_ASSIGN_OR_RETURN(PiecePtr name, constant(key));
        HEARTH_ASSIGN_OR_RETURN(PiecePtr one, constant(item));
        out.insert(out.end(), {std::move(name), colon_piece(), std::move(one)});
      }
    } else {
      for (const Value& item : value.list().items) {
        if (out.size() > 1) out.push_back(comma_piece());
        HEARTH_ASSIGN_OR_RETURN(PiecePtr one, constant(item));
        out.push_back(std::move(one));
      }
    }
    out.push_back(text_piece(value.is_dict() ? "}" : "]"));
    return seq_piece(std::move(out));
  }
  HEARTH_ASSIGN_OR_RETURN(models::TracedText text, models::jinja::to_json(run_, value, {}));
  return text_piece(std::move(text.text));
}

Result<PiecePtr> SchemaReader::schema(const Value& s, int depth) {
  if (depth > kMaxSchemaDepth) {
    return Error::too_large("json_schema: nested too deeply", "json_schema");
  }
  if (s.kind() == Kind::kBool) {
    if (s.as_int() != 0) return json_.any_value();
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

Result<void> SchemaReader::check_words(const Dict& d) {
  static constexpr std::string_view kOthers[] = {"type",  "enum",  "const", "anyOf",
                                                 "oneOf", "allOf", "$ref",  "nullable"};
  for (const auto& [key, value] : d.entries()) {
    const std::string_view word = key.text();
    if (among(kAnnotations, word) || among(kOthers, word) || among(kObjectWords, word) ||
        among(kArrayWords, word) || among(kStringWords, word) || among(kNumberWords, word)) {
      continue;
    }
    HEARTH_TRY(leave_out(fmt::format("the keyword '{}'", word.substr(0, 60))));
  }
  return {};
}

Result<std::vector<PiecePtr>> SchemaReader::by_type(const Dict& d, int depth) {
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
    HEARTH_ASSIGN_OR_RETURN(PiecePtr any, json_.any_value());
    out.push_back(std::move(any));
    return out;
  }
  for (const std::string_view type : types) {
    HEARTH_ASSIGN_OR_RETURN(PiecePtr one, of_type(d, type, depth));
    out.push_back(std::move(one));
  }
  return out;
}

Result<PiecePtr> SchemaReader::of_type(const Dict& d, std::string_view type, int depth) {
  if (type == "object") return object(d, depth);
  if (type == "array") return array(d, depth);
  if (type == "string") return string(d);
  if (type == "integer" || type == "number") return number(d, type == "integer");
  if (type == "boolean") return any_piece({text_piece("true"), text_piece("false")});
  return text_piece("null");
}

Result<std::vector<std::string_view>> SchemaReader::types_of(const Dict& d) {
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
    // An integer is also a number: with both, a text could match in two ways.
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

bool SchemaReader::is_of(const Value& value, std::string_view type) {
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

Result<std::vector<Value>> SchemaReader::allowed_values(
    const Dict& d, const std::vector<std::string_view>& types) {
  for (const auto& [key, value] : d.entries()) {
    const std::string_view word = key.text();
    const bool with = word == "type" || word == "enum" || word == "const" || word == "nullable" ||
                      among(kAnnotations, word);
    if (!with) HEARTH_TRY(leave_out(fmt::format("'{}' together with enum or const", word)));
  }
  std::vector<Value> values;
  const Value* const one = d.find("const");
  if (const Value* list = d.find("enum")) {
    if (list->kind() != Kind::kList) return wrong("enum: want a list");
    if (one != nullptr) return unsupported("enum together with const");
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

Result<Grammar> compile_json_schema(std::string_view schema, std::vector<std::string>* relaxed) {
  RuleSet rules;
  SchemaReader reader(rules, relaxed);
  auto out = [&]() -> Result<Grammar> {
    HEARTH_TRY(reader.read(schema));
    return rules.compile();
  }();
  if (out.ok()) return out;
  Error error = out.error();
  if (error.field.empty()) error.message = "json_schema: " + error.message;
  error.field = "json_schema";
  return error;
}

}  // namespace hearth::engine
