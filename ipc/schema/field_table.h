#pragma once
// The request fields as data: name, type, range, unit, default and meaning. The codec checks every
// value against them; the protocol page and the command line's help are written from them. They
// are declared in request_fields.h.

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
  kObjects,    ///< min_items..max_items JSON objects with any members
  kObject,     ///< a JSON object with any members
};

struct Field {
  std::string_view name;
  FieldType type = FieldType::kBool;
  std::string_view unit = "";     ///< "tokens", "ms", "bytes", or empty
  std::string_view meaning = "";  ///< one sentence
  double min = 0;                 ///< of the value, of each list item, or of a string's bytes
  double max = 0;
  size_t min_items = 0;
  size_t max_items = 0;
  std::span<const std::string_view> choices = {};
  /// This field or another one must be given, so an empty value differs from an absent one.
  bool one_of_several = false;
  /// As JSON, from the struct; empty where an absent field has no value. Filled in by fields().
  std::string_view default_value = "";
};

/// Token ids on the wire; the model's vocabulary bounds them further.
inline constexpr int32_t kMaxTokenId = 16'777'215;

/// The fields of a verb, in the order of the protocol page.
std::span<const Field> fields(Verb verb);
/// The field of that name of that verb; null if there is none.
const Field* find_field(Verb verb, std::string_view name);

}  // namespace hearth::ipc
