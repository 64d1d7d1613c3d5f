#pragma once
// Bounded JSON for the codec: depth, memory of the values and bytes are limited, and a duplicate
// key is an error. Included by .cpp files only, because nlohmann's header takes seconds to compile.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/base/result.h"

namespace hearth::ipc {

/// Keeps the order of the keys, so that an event begins with "event".
using Json = nlohmann::ordered_json;

struct JsonLimits {
  size_t max_bytes = 32u << 20;
  int max_depth = 16;
  size_t max_value_bytes = 32u << 20;  ///< memory of the values, without the text of strings
  size_t max_object_keys = 256;        ///< per object
  bool last_key_applies = false;       ///< of equal keys in an object, instead of an error
};

/// Destroys all values in place. The library's destructor first gathers them in a list of its own,
/// which doubles the memory of a long list.
void discard(Json& json);

/// A parsed text that may be long.
struct LargeJson : Json {
  LargeJson(Json&& json) : Json(std::move(json)) {}
  LargeJson(const LargeJson&) = delete;
  LargeJson& operator=(const LargeJson&) = delete;
  ~LargeJson() { discard(*this); }
};

/// Parses `text`, a JSON object. kProtocol if it is not one (naming the byte, counted from 1, and
/// the top-level field if known), kTooLarge above a limit, kInvalidArgument for a duplicate key.
/// `value_bytes`: increased by what is counted against max_value_bytes, unless an error is
/// returned.
Result<Json> parse_json_object(std::string_view text, const JsonLimits& limits,
                               size_t* value_bytes = nullptr);

/// Invalid UTF-8 in a text becomes U+FFFD.
std::string dump_json(const Json& json);
void append_json(const Json& json, std::string* out);
/// Appends `text` as a JSON string.
void append_text(std::string_view text, std::string* out);

/// The text is a JSON value.
bool is_json(std::string_view text);

/// Describes a value for an error: "-1", "true", "a string of 12 bytes", "an object". Quotes no
/// text.
std::string describe(const Json& value);

/// Up to 40 visible ASCII characters of an untrusted name, for an error.
std::string printable(std::string_view name);

}  // namespace hearth::ipc
