#pragma once
// A template's text as tokens. Whitespace as transformers sets it: trim_blocks (the newline behind
// a block or a comment goes) and lstrip_blocks (so do blanks in front of one that begins its line),
// and the signs - and + inside the delimiters. One newline at the end of the source goes.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::models::jinja {

struct Token {
  enum class Type {
    kText,  ///< between the delimiters; in `text`
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,  ///< its value in `text`
    kInteger,
    kFloat,
    kOperator,  ///< "+", "==", "(", ...
    kEnd,
  };
  Type type = Type::kEnd;
  std::string text;
  int64_t integer = 0;
  double number = 0;
  int line = 1;
};

/// kUnsupported names the line, and what was met.
Result<std::vector<Token>> tokenize_template(std::string_view source);

}  // namespace hearth::models::jinja
