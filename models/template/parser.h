#pragma once
// Parses tokens to statements. Grammar and precedence follow Jinja's documentation ("Template
// Designer Documentation"), for the subset that chat templates use.

#include "kernels/base/result.h"
#include "models/template/ast.h"

namespace hearth::models::jinja {

/// Bounds of one template.
inline constexpr size_t kMaxTemplateBytes = 1 << 20;
inline constexpr int kMaxNesting = 64;      ///< of brackets, of statements
inline constexpr int kMaxExpression = 400;  ///< depth of an expression's tree

/// kUnsupported names the line and the construct; kTooLarge: a bound is exceeded.
Result<Body> parse_template(std::string_view source);

}  // namespace hearth::models::jinja
