// Objects.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/grammar/schema_reader.h"
#include "engine/grammar/text_automaton.h"
#include "engine/grammar/text_length.h"
#include "kernels/base/numbers.h"
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

Result<SchemaReader::KeyPatterns> SchemaReader::key_patterns(const Dict& d, int depth) {
  KeyPatterns out;
  const Value* const given = d.find("patternProperties");
  if (given == nullptr) return out;
  if (!given->is_dict()) return wrong("patternProperties: want an object");
  for (const auto& [pattern, value] : given->dict().entries()) {
    HEARTH_ASSIGN_OR_RETURN(PiecePtr key, plain_pattern(pattern.text()));
    if (key == nullptr) return KeyPatterns();
    KeyPattern* alike = nullptr;
    for (KeyPattern& each : out) {
      HEARTH_ASSIGN_OR_RETURN(const bool equal, same(each.value, value));
      if (equal) alike = &each;
    }
    if (alike == nullptr) {
      out.push_back({.key = std::move(key), .value = value, .piece = nullptr});
    } else {
      alike->key = any_piece({alike->key, std::move(key)});
    }
  }
  // The value of a key that matches two of them would have to be of both schemas.
  HEARTH_ASSIGN_OR_RETURN(const bool shared, share_keys(out));
  if (shared) {
    HEARTH_TRY(leave_out("patternProperties of different schemas that one key may match"));
    return KeyPatterns();
  }
  for (KeyPattern& each : out) {
    HEARTH_ASSIGN_OR_RETURN(PiecePtr one, schema(each.value, depth + 1));
    HEARTH_ASSIGN_OR_RETURN(each.piece, rules_.as_rule(std::move(one)));
  }
  return out;
}

/// Whether a key may match two of the patterns. Also true if that takes too much to decide.
Result<bool> SchemaReader::share_keys(const KeyPatterns& patterns) {
  if (patterns.size() < 2) return false;
  std::vector<TextAutomaton> automata;
  for (const KeyPattern& each : patterns) {
    HEARTH_ASSIGN_OR_RETURN(TextAutomaton one, TextAutomaton::of(each.key));
    text_set_steps_ -= narrow<int64_t>(one.num_nodes());
    if (text_set_steps_ < 0) return true;
    automata.push_back(std::move(one));
  }
  for (size_t a = 0; a < automata.size(); ++a) {
    for (size_t b = a + 1; b < automata.size(); ++b) {
      if (TextAutomaton::share_text(automata[a], automata[b], &text_set_steps_).value_or(true)) {
        return true;
      }
    }
  }
  return false;
}

Result<const SchemaReader::KeyPattern*> SchemaReader::matching(const KeyPatterns& patterns,
                                                               std::string_view name) {
  for (const KeyPattern& each : patterns) {
    const std::optional<bool> found = matches_text(each.key, name, &text_set_steps_);
    if (!found) HEARTH_TRY(leave_out("patternProperties of this pattern next to properties"));
    if (found.value_or(false)) return &each;
  }
  return nullptr;
}

// Its own schema and that of the pattern.
Result<Value> SchemaReader::with_patterns(const KeyPatterns& patterns, std::string_view name,
                                          const Value& value) {
  HEARTH_ASSIGN_OR_RETURN(const KeyPattern* const pattern, matching(patterns, name));
  if (pattern == nullptr) return value;
  HEARTH_ASSIGN_OR_RETURN(const bool equal, same(value, pattern->value));
  const auto is_bool = [](const Value& of, int wanted) {
    return of.kind() == Kind::kBool && of.as_int() == wanted;
  };
  if (equal || is_bool(value, 0) || is_bool(pattern->value, 1)) return value;
  if (is_bool(value, 1)) return pattern->value;
  Dict* const both = run_.arena().new_dict();
  HEARTH_ASSIGN_OR_RETURN(const Value list, run_.list({value, pattern->value}));
  both->set("allOf", list);
  return Value::of(both);
}

Result<PiecePtr> SchemaReader::pattern_key(const KeyPattern& pattern,
                                           std::vector<std::string> names) {
  std::optional<PiecePtr> key = pattern.key;
  if (!names.empty()) key = without_texts(pattern.key, std::move(names), &text_set_steps_);
  if (!key) {
    HEARTH_TRY(leave_out("patternProperties of this pattern next to properties"));
    return PiecePtr();
  }
  if ((*key)->type == Piece::Type::kAny && (*key)->parts.empty()) return PiecePtr();
  PiecePtr fitting = with_length(*key, 0, kMaxKeyChars);
  if (fitting == nullptr) {
    HEARTH_TRY(leave_out("patternProperties of long keys alone"));
    return PiecePtr();
  }
  return JsonPieces::quoted(encoded(fitting, in_json_string));
}

Result<PiecePtr> SchemaReader::other_property(const KeyPatterns& patterns,
                                              const PiecePtr& other_value,
                                              const std::vector<std::string>& names) {
  std::vector<PiecePtr> ways;
  for (const KeyPattern& each : patterns) {
    HEARTH_ASSIGN_OR_RETURN(PiecePtr key, pattern_key(each, names));
    if (key != nullptr) ways.push_back(seq_piece({std::move(key), colon_piece(), each.piece}));
  }
  if (patterns.empty() && other_value != nullptr) {
    ways.push_back(seq_piece({other_key(names), colon_piece(), other_value}));
  }
  if (ways.empty()) return PiecePtr();
  return rules_.as_rule(any_piece(std::move(ways)));
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
  if (max >= 0 && max < min) return wrong("maxProperties is below minProperties");
  HEARTH_ASSIGN_OR_RETURN(const KeyPatterns patterns, key_patterns(d, depth));
  const bool by_pattern = !patterns.empty();
  const bool plain_map = none_named && required.empty() && (by_pattern || !closed);
  // A map's names may repeat, so the only lower bound that can be promised is one.
  if (min > (plain_map ? 1 : size32(required))) {
    HEARTH_TRY(leave_out("minProperties here"));
    min = 0;
  }

  if (plain_map && by_pattern) {
    HEARTH_ASSIGN_OR_RETURN(const PiecePtr entry, other_property(patterns, nullptr, {}));
    if (entry != nullptr) return JsonPieces::map_of_entries(entry, min, max);
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
    for (const auto& [key, own] : named->dict().entries()) {
      HEARTH_ASSIGN_OR_RETURN(const Value value, with_patterns(patterns, key.text(), own));
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
    HEARTH_ASSIGN_OR_RETURN(const KeyPattern* const pattern, matching(patterns, name));
    if (closed && more != nullptr && pattern == nullptr) {
      return wrong(fmt::format("required '{}' is not a property, and no others are allowed",
                               name.substr(0, 60)));
    }
    PiecePtr value = pattern != nullptr ? pattern->piece : other_value;
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
  HEARTH_ASSIGN_OR_RETURN(const PiecePtr other, other_property(patterns, other_value, names));
  // From the end: the pieces that may follow from each property on, with and without a property
  // before it.
  PiecePtr after =
      other == nullptr ? nothing_piece() : repeat_piece(seq_piece({comma_piece(), other}), 0, most);
  PiecePtr first = other == nullptr ? nothing_piece() : JsonPieces::separated(other, 0, most);
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
