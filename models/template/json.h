#pragma once
// JSON as the template language sees it: into values, and out of them as Python's json.dumps
// writes.

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/base/result.h"
#include "models/template/runtime.h"

namespace hearth::models::jinja {

inline constexpr int kMaxJsonDepth = 64;

/// A whole JSON text. Objects keep their order; a key given twice has its last value. kProtocol
/// names the byte, counted from 1, where it is not JSON or not UTF-8; kTooLarge when nested deeper
/// than kMaxJsonDepth.
Result<Value> parse_json(Arena& arena, std::string_view text);

struct JsonStyle {
  int64_t indent = -1;  ///< -1: all in one line
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::string item_separator;  ///< empty: json.dumps' own
  std::string key_separator;
};
/// Errors name what has no JSON form.
Result<std::string> to_json(Runtime& run, const Value& value, const JsonStyle& style);

}  // namespace hearth::models::jinja
