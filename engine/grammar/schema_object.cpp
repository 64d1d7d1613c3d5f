// Objects.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/grammar/schema_reader.h"
#include "engine/grammar/text_length.h"
#include "kernels/base/sizes.h"
#include "models/template/json.h"
#include "models/template/text.h"

namespace hearth::engine {
namespace {

struct Property {
  PiecePtr piece;  ///< "name": value
  bool required = false;
};

}  // namespace

PiecePtr SchemaReader::other_key(std::vector<std::string> names) {
  std::ranges::sort(names);
  return seq_piece({text_piece("\""), other_rest(names, 0, 0), text_piece("\"")});
}

PiecePtr SchemaReader::other_rest(const std::vector<std::string>& names, size_t at, int depth) {
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
  if (!ends) out.push_back(nothing_piece());
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

Result<std::vector<std::string>> SchemaReader::required_names(const Dict& d) {
  std::vector<std::string> out;
  const Value* const list = d.find("required");
  if (list == nullptr) return out;
  if (list->kind() != Kind::kList) return wrong("required: want a list of names");
  for (const Value& name : list->list().items) {
    if (!name.is_string()) return wrong("required: want a list of names");
    if (!among(out, name.text())) out.emplace_back(name.text());
  }
  return out;
}

Result<PiecePtr> SchemaReader::pattern_map(const Dict& d, bool alone, int32_t min, int32_t max,
                                           int depth) {
  const Value* const given = d.find("patternProperties");
  if (given == nullptr) return PiecePtr();
  if (!given->is_dict()) return wrong("patternProperties: want an object");
  const Dict& patterns = given->dict();
  if (patterns.size() == 0) return PiecePtr();
  if (!alone) {
    HEARTH_TRY(leave_out("patternProperties next to other properties"));
    return PiecePtr();
  }
  const Value& value = patterns.entries().front().second;
  std::vector<PiecePtr> keys;
  for (const auto& [pattern, other] : patterns.entries()) {
    // A key may match two patterns, so their values have to be alike.
    HEARTH_ASSIGN_OR_RETURN(const bool same, run_.equal(value, other));
    PiecePtr key;
    if (same) {
      HEARTH_ASSIGN_OR_RETURN(key, pattern_of(pattern.text(), 0, kMaxKeyChars, in_json_string));
    } else {
      HEARTH_TRY(leave_out("patternProperties of different schemas"));
    }
    if (key == nullptr) return PiecePtr();
    keys.push_back(std::move(key));
  }
  HEARTH_ASSIGN_OR_RETURN(PiecePtr one, schema(value, depth + 1));
  HEARTH_ASSIGN_OR_RETURN(one, rules_.as_rule(std::move(one)));
  return json_.map_of(JsonPieces::quoted(any_piece(std::move(keys))), one, min, max);
}

Result<PiecePtr> SchemaReader::object(const Dict& d, int depth) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> required, required_names(d));
  const Value* const more = d.find("additionalProperties");
  const Value* const named = d.find("properties");
  if (named != nullptr && !named->is_dict()) return wrong("properties: want an object");
  const bool none_named = named == nullptr || named->dict().size() == 0;
  const bool closed =
      more == nullptr ? !none_named : more->kind() == Kind::kBool && more->as_int() == 0;
  HEARTH_ASSIGN_OR_RETURN(int32_t min, count(d, "minProperties", 0));
  HEARTH_ASSIGN_OR_RETURN(const int32_t max, count(d, "maxProperties", -1));
  const bool plain_map = none_named && required.empty() && !closed;
  // A map's names may repeat, so the only lower bound that can be promised is one.
  if (max >= 0 && max < min) return wrong("maxProperties is below minProperties");
  HEARTH_ASSIGN_OR_RETURN(
      PiecePtr map, pattern_map(d, none_named && required.empty() && min <= 1, min, max, depth));
  if (map != nullptr) return map;
  if (min > (plain_map ? 1 : size32(required))) {
    HEARTH_TRY(leave_out("minProperties here"));
    min = 0;
  }

  PiecePtr other_value;
  if (!closed) {
    if (more == nullptr) {
      HEARTH_ASSIGN_OR_RETURN(other_value, json_.any_value());
    } else {
      HEARTH_ASSIGN_OR_RETURN(other_value, schema(*more, depth + 1));
      HEARTH_ASSIGN_OR_RETURN(other_value, rules_.as_rule(std::move(other_value)));
    }
    if (none_named && required.empty()) return json_.map_of(other_value, min, max);
  }

  std::vector<Property> properties;
  std::vector<std::string> names;
  const auto add = [&](std::string_view name, PiecePtr value, bool must) -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(PiecePtr key, constant(Value::of(name)));
    HEARTH_ASSIGN_OR_RETURN(
        PiecePtr whole,
        rules_.as_rule(seq_piece({std::move(key), colon_piece(), std::move(value)})));
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
      return wrong(fmt::format("required '{}' is not a property, and no others are allowed",
                               name.substr(0, 60)));
    }
    PiecePtr value = other_value;
    if (value == nullptr) {
      HEARTH_ASSIGN_OR_RETURN(value, json_.any_value());
    }
    HEARTH_TRY(add(name, std::move(value), true));
  }

  int32_t most = -1;  // properties that the schema does not name
  if (max >= 0) {
    most = max - size32(properties);
    if (most < 0) HEARTH_TRY(leave_out("maxProperties below the number of properties"));
  }
  PiecePtr other;
  if (!closed) {
    HEARTH_ASSIGN_OR_RETURN(
        other,
        rules_.as_rule(seq_piece({other_key(std::move(names)), colon_piece(), other_value})));
  }
  // From the end: the pieces that may follow from each property on, with and without a property
  // before it.
  PiecePtr after =
      closed ? nothing_piece() : repeat_piece(seq_piece({comma_piece(), other}), 0, most);
  PiecePtr first = closed ? nothing_piece() : JsonPieces::separated(other, 0, most);
  HEARTH_ASSIGN_OR_RETURN(after, rules_.as_rule(std::move(after)));
  HEARTH_ASSIGN_OR_RETURN(first, rules_.as_rule(std::move(first)));
  for (size_t i = properties.size(); i-- > 0;) {
    const Property& p = properties[i];
    PiecePtr here_first = seq_piece({p.piece, after});
    PiecePtr here_after = seq_piece({comma_piece(), p.piece, after});
    if (!p.required) {
      here_first = any_piece({std::move(here_first), first});
      here_after = any_piece({std::move(here_after), after});
    }
    HEARTH_ASSIGN_OR_RETURN(first, rules_.as_rule(std::move(here_first)));
    HEARTH_ASSIGN_OR_RETURN(after, rules_.as_rule(std::move(here_after)));
  }
  return seq_piece({text_piece("{"), std::move(first), text_piece("}")});
}

}  // namespace hearth::engine
