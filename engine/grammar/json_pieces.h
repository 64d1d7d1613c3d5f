#pragma once
// Grammars of the parts of JSON texts.

#include <cstdint>

#include "engine/grammar/grammar.h"
#include "engine/grammar/rule_set.h"

namespace hearth::engine {

inline constexpr int32_t kMaxKeyChars = 64;  ///< of properties that a schema does not name
inline constexpr int64_t kMostInteger = 999'999'999'999'999;
inline constexpr int kMostDecimals = 15;

PiecePtr nothing_piece();
PiecePtr digit_piece();
PiecePtr comma_piece();  ///< with at most one blank after it
PiecePtr colon_piece();
/// Characters in a JSON string: as themselves, or escaped where necessary.
PiecePtr in_json_string(const CharRanges& chars);

PiecePtr integer_range(int64_t low, int64_t high);
/// Numbers from low to high, both 0 or above, with or without digits after a point.
/// `decimals`: at most so many.
PiecePtr real_range(int64_t low, int64_t high, bool low_in, bool high_in,
                    int decimals = kMostDecimals);

/// Of a JSON value's texts, those that are objects; null: none is. The rules that it names have
/// their bodies.
PiecePtr only_objects(const PiecePtr& value, const RuleSet& rules);

/// Those that need rules, each made once.
class JsonPieces {
 public:
  explicit JsonPieces(RuleSet& rules) : rules_(rules) {}

  static PiecePtr quoted(PiecePtr inner);
  Result<PiecePtr> string_of(int32_t min, int32_t max);
  static PiecePtr natural();
  static PiecePtr any_integer();
  /// With fewer decimals than kMostDecimals, also without an exponent.
  static PiecePtr any_number(int decimals = kMostDecimals);
  /// Any JSON value, through a rule.
  Result<PiecePtr> any_value();
  /// [item, ...], min to max of them.
  static PiecePtr list(const PiecePtr& item, int32_t min, int32_t max);
  static PiecePtr separated(const PiecePtr& item, int32_t min, int32_t max);
  Result<PiecePtr> map_of(const PiecePtr& value, int32_t min, int32_t max);
  /// {entry, ...}
  static PiecePtr map_of_entries(const PiecePtr& entry, int32_t min, int32_t max);

 private:
  Result<PiecePtr> string_char();

  RuleSet& rules_;
  PiecePtr string_char_;
  PiecePtr any_value_;
};

}  // namespace hearth::engine
