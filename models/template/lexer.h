#pragma once
// Splits a template's source into tokens. Whitespace follows the settings of transformers:
// trim_blocks (removes the newline after a block or comment), lstrip_blocks (removes blanks before
// one that begins its line), and the signs - and + inside the delimiters. One newline at the end of
// the source is removed.

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

/// kUnsupported names the line and the text met.
Result<std::vector<Token>> tokenize_template(std::string_view source);

}  // namespace hearth::models::jinja
