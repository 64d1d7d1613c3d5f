#pragma once
// Bounded JSON for the codec: depth, number of values and bytes have limits, a key given twice is
// an error, and the parser's own messages (which quote the input) never leave. Included by .cpp
// files only: nlohmann's header costs seconds.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kernels/base/result.h"

namespace hearth::ipc {

/// Keeps the order of the keys: an event's "event" stands first.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  size_t max_bytes = 32u << 20;
  int max_depth = 16;
  size_t max_values = 2u << 20;  ///< of all kinds together; bounds the memory of a parsed text
  size_t max_object_keys = 256;  ///< per object
};

/// The object that `text` is. kProtocol where it is not one (the byte, counted from 1, and, where
/// known, the top-level field are named), kTooLarge over a limit, kInvalidArgument for a key given
/// twice.
Result<Json> parse_json_object(std::string_view text, const JsonLimits& limits);

std::string dump_json(const Json& json);

/// What a value is, for an error: "-1", "true", "a string of 12 bytes", "an object". Never quotes.
std::string describe(const Json& value);

/// Up to 40 visible ASCII characters of a name that came from outside, for an error.
std::string printable(std::string_view name);

}  // namespace hearth::ipc
