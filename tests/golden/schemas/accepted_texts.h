#pragma once
// Whether a grammar accepts a text.

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/constraint.h"

namespace hearth::golden {

using namespace engine;

/// All bytes, and texts of several bytes that end and begin inside characters.
inline std::shared_ptr<const TokenTrie> small_vocabulary() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> out = {"",     "\"",   "{\"",    "\":",      "\": ",      ", \"",
                                    "true", "null", "12",     "abc",      "}}",        "]}",
                                    "[[",   "\xC3", "\xA9\"", "\xF0\x9F", "\\\"",      "\\u00",
                                    "e-1",  "fal",  "se}",    "\xC3\xA9", "\"first\"", "99"};
    for (int b = 0; b < 256; ++b) out.emplace_back(1, static_cast<char>(b));
    return out;
  }();
  const std::vector<std::string_view> pieces(texts.begin(), texts.end());
  return std::make_shared<TokenTrie>(pieces);
}

inline Constraint constraint_of(const Result<Grammar>& grammar) {
  REQUIRE_MESSAGE(grammar.ok(), (grammar.ok() ? "" : grammar.error().message));
  return Constraint(*grammar, small_vocabulary());
}

inline bool accepts(Constraint& c, std::string_view text) {
  int32_t state = Constraint::kStart;
  for (const char byte : text) {
    state = c.advance_byte(state, static_cast<uint8_t>(byte));
    if (state == Constraint::kDead) return false;
  }
  return c.accepts(state);
}

struct ValueCase {
  const char* schema;
  std::vector<const char*> good, bad;
};

inline void check_values(const std::vector<ValueCase>& cases) {
  for (const ValueCase& each : cases) {
    INFO(each.schema);
    Constraint c = constraint_of(compile_json_schema(each.schema));
    for (const char* text : each.good) CHECK_MESSAGE(accepts(c, text), text);
    for (const char* text : each.bad) CHECK_MESSAGE(!accepts(c, text), text);
  }
}

}  // namespace hearth::golden
