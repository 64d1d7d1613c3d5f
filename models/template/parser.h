#pragma once
// From tokens to statements. Grammar and precedence are those of Jinja's documentation ("Template
// Designer Documentation"), as far as chat templates go.

#include "kernels/base/result.h"
#include "models/template/ast.h"

namespace hearth::models::jinja {

/// Bounds of one template.
inline constexpr size_t kMaxTemplateBytes = 1 << 20;
inline constexpr int kMaxNesting = 64;      ///< of brackets, of statements
inline constexpr int kMaxExpression = 400;  ///< depth of an expression's tree

/// kUnsupported names the line and the construct; kTooLarge over a bound.
Result<Body> parse_template(std::string_view source);

}  // namespace hearth::models::jinja
