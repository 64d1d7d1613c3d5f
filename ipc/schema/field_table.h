#pragma once
// The one table of request fields. The codec checks every value against it, and the protocol page
// and the command line's help are written from it, so that none of them can say something else.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ipc/schema/requests.h"

namespace hearth::ipc {

enum class FieldType {
  kBool,
  kInteger,    ///< a JSON number without fraction or exponent, min..max
  kSeed,       ///< an integer 0 .. 2^64-1
  kNumber,     ///< a JSON number, min..max
  kText,       ///< a string of min..max bytes, any characters
  kName,       ///< a string of min..max bytes without control characters
  kChoice,     ///< one of `choices`
  kTextList,   ///< min_items..max_items strings of min..max bytes
  kIdList,     ///< min_items..max_items integers min..max
  kIdLists,    ///< min_items..max_items such lists, none of them empty
  kLogitBias,  ///< max_items pairs [token id, number min..max]
  kObjects,    ///< min_items..max_items JSON objects, whatever they hold
  kObject,     ///< a JSON object, whatever it holds
};

struct Field {
  std::string_view name;
  FieldType type;
  uint32_t verbs;  ///< bit `1 << Verb`
  double min;      ///< of the value, of each list item, or of a string's bytes
  double max;
  size_t min_items;
  size_t max_items;
  std::string_view unit;           ///< "tokens", "ms", "bytes", or empty
  std::string_view default_value;  ///< as JSON; empty: see `meaning`
  std::string_view meaning;        ///< one sentence
};

/// Token ids on the wire; the model's vocabulary bounds them further.
inline constexpr int32_t kMaxTokenId = 16'777'215;

/// All fields, in the order of the protocol page.
std::span<const Field> request_fields();
/// The field of that name of that verb; null: there is none.
const Field* find_field(Verb verb, std::string_view name);
inline bool has_verb(const Field& field, Verb verb) {
  return (field.verbs >> static_cast<int>(verb) & 1u) != 0;
}
/// The values of a kChoice field.
std::span<const std::string_view> choices(const Field& field);

}  // namespace hearth::ipc
