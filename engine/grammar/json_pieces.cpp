#include "engine/grammar/json_pieces.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hearth::engine {
namespace {

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

/// A JSON value is an object if its first byte is a brace, so the first piece of each way decides.
class ObjectFilter {
 public:
  explicit ObjectFilter(const RuleSet& rules) : rules_(rules) {}

  /// Null: none of its texts is an object.
  PiecePtr of(const PiecePtr& value) {
    using Type = Piece::Type;
    switch (value->type) {
      case Type::kText: return value->text.starts_with('{') ? value : nullptr;
      case Type::kRule: return of_rule(value);
      case Type::kAny: {
        std::vector<PiecePtr> parts;
        for (const PiecePtr& part : value->parts) {
          if (PiecePtr objects = of(part)) parts.push_back(std::move(objects));
        }
        if (parts == value->parts) return value;
        return parts.empty() ? nullptr : any_piece(std::move(parts));
      }
      case Type::kSeq: {
        PiecePtr first = value->parts.empty() ? nullptr : of(value->parts[0]);
        if (first == nullptr || first == value->parts[0]) return first ? value : nullptr;
        std::vector<PiecePtr> parts = value->parts;
        parts[0] = std::move(first);
        return seq_piece(std::move(parts));
      }
      case Type::kChars:
      case Type::kBytes:
      case Type::kRepeat: break;  // numbers begin with these
    }
    return nullptr;
  }

 private:
  PiecePtr of_rule(const PiecePtr& value) {
    // A rule that begins with itself stays, and is refused where the grammar is compiled.
    const auto [known, added] = rules_seen_.emplace(value->rule, value);
    if (!added) return known->second;
    const PiecePtr& body = rules_.body(value->rule);
    if (body == nullptr) return value;
    PiecePtr objects = of(body);
    if (objects == body) objects = value;
    rules_seen_[value->rule] = objects;
    return objects;
  }

  const RuleSet& rules_;
  std::unordered_map<int32_t, PiecePtr> rules_seen_;
};

}  // namespace

PiecePtr only_objects(const PiecePtr& value, const RuleSet& rules) {
  return ObjectFilter(rules).of(value);
}

PiecePtr nothing_piece() { return text_piece(""); }
PiecePtr digit_piece() { return chars_piece({{'0', '9'}}); }
PiecePtr comma_piece() { return seq_piece({text_piece(","), optional_piece(text_piece(" "))}); }
PiecePtr colon_piece() { return seq_piece({text_piece(":"), optional_piece(text_piece(" "))}); }

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
    if (has(c)) out.push_back(text_piece(std::string{'\\', letter}));
  }
  for (uint32_t c = 0; c < 0x20; ++c) {
    const bool has_short = (c >= 8 && c <= 10) || c == 12 || c == 13;
    if (has(c) && !has_short) out.push_back(text_piece(fmt::format("\\u{:04x}", c)));
  }
  return any_piece(std::move(out));
}

Result<PiecePtr> JsonPieces::string_char() {
  if (string_char_ == nullptr) {
    HEARTH_ASSIGN_OR_RETURN(string_char_, rules_.as_rule(any_string_char()));
  }
  return string_char_;
}

PiecePtr JsonPieces::quoted(PiecePtr inner) {
  return seq_piece({text_piece("\""), std::move(inner), text_piece("\"")});
}

Result<PiecePtr> JsonPieces::string_of(int32_t min, int32_t max) {
  HEARTH_ASSIGN_OR_RETURN(PiecePtr c, string_char());
  return quoted(repeat_piece(std::move(c), min, max));
}

PiecePtr JsonPieces::natural() {
  return any_piece({text_piece("0"),
                    seq_piece({chars_piece({{'1', '9'}}), repeat_piece(digit_piece(), 0, 14)})});
}

PiecePtr JsonPieces::any_integer() {
  return seq_piece({optional_piece(text_piece("-")), natural()});
}

PiecePtr JsonPieces::any_number(int decimals) {
  if (decimals < kMostDecimals) {
    return seq_piece(
        {any_integer(),
         optional_piece(seq_piece({text_piece("."), repeat_piece(digit_piece(), 1, decimals)}))});
  }
  return seq_piece(
      {any_integer(),
       optional_piece(seq_piece({text_piece("."), repeat_piece(digit_piece(), 1, 15)})),
       optional_piece(seq_piece({chars_piece({{'e', 'e'}, {'E', 'E'}}),
                                 optional_piece(chars_piece({{'+', '+'}, {'-', '-'}})),
                                 repeat_piece(digit_piece(), 1, 2)}))});
}

Result<PiecePtr> JsonPieces::any_value() {
  if (any_value_ != nullptr) return any_value_;
  HEARTH_ASSIGN_OR_RETURN(const int32_t rule, rules_.add(nullptr, "any value"));
  any_value_ = rule_piece(rule);
  HEARTH_ASSIGN_OR_RETURN(PiecePtr text, string_of(0, -1));
  const PiecePtr any_list = list(any_value_, 0, -1);
  HEARTH_ASSIGN_OR_RETURN(const PiecePtr any_map, map_of(any_value_, 0, -1));
  rules_.set(rule, any_piece({any_map, any_list, std::move(text), any_number(), text_piece("true"),
                              text_piece("false"), text_piece("null")}));
  return any_value_;
}

PiecePtr JsonPieces::list(const PiecePtr& item, int32_t min, int32_t max) {
  return seq_piece({text_piece("["), separated(item, min, max), text_piece("]")});
}

PiecePtr JsonPieces::separated(const PiecePtr& item, int32_t min, int32_t max) {
  if (max == 0) return nothing_piece();
  const PiecePtr more =
      repeat_piece(seq_piece({comma_piece(), item}), std::max(0, min - 1), max < 0 ? -1 : max - 1);
  const PiecePtr some = seq_piece({item, more});
  return min == 0 ? optional_piece(some) : some;
}

Result<PiecePtr> JsonPieces::map_of(const PiecePtr& value, int32_t min, int32_t max) {
  HEARTH_ASSIGN_OR_RETURN(PiecePtr key, string_of(0, kMaxKeyChars));
  HEARTH_ASSIGN_OR_RETURN(const PiecePtr entry,
                          rules_.as_rule(seq_piece({std::move(key), colon_piece(), value})));
  return map_of_entries(entry, min, max);
}

PiecePtr JsonPieces::map_of_entries(const PiecePtr& entry, int32_t min, int32_t max) {
  return seq_piece({text_piece("{"), separated(entry, min, max), text_piece("}")});
}

}  // namespace hearth::engine
