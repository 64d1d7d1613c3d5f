#pragma once
// Parses JSON to values of the template language, and writes values as Python's json.dumps does.

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/base/result.h"
#include "models/template/runtime.h"

namespace hearth::models::jinja {

inline constexpr int kMaxJsonDepth = 64;

/// Parses a complete JSON text. Objects keep their order; of a repeated key the last value counts.
/// kProtocol names the first byte, counted from 1, that is not valid JSON or UTF-8; kTooLarge if
/// nested deeper than kMaxJsonDepth. Its strings and keys are data (text_store.h).
Result<Value> parse_json(Arena& arena, std::string_view text);

struct JsonStyle {
  int64_t indent = -1;  ///< -1: all in one line
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::string item_separator;  ///< empty: the default of json.dumps
  std::string key_separator;
};
/// Errors name the value that has no JSON form.
Result<TracedText> to_json(Runtime& run, const Value& value, const JsonStyle& style);

}  // namespace hearth::models::jinja
