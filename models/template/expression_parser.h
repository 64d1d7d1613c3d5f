#pragma once
// Parses expressions, from Jinja's lowest precedence (a if b else c) to names and literals.

#include <initializer_list>
#include <string>
#include <string_view>

#include "kernels/base/result.h"
#include "models/template/ast.h"
#include "models/template/parser.h"
#include "models/template/token_cursor.h"

namespace hearth::models::jinja {

class ExpressionParser : protected TokenCursor {
 protected:
  using TokenCursor::TokenCursor;

  ExprPtr make(Expr::Type type, int line) const;
  /// Sets the depth of the tree; an error if it is too deep.
  Result<ExprPtr> done(ExprPtr e);
  Result<ExprPtr> parse_expression(bool with_condition = true);
  Result<ExprPtr> parse_condition();
  /// Parses operators of one level, left-associative. `level` parses the operands.
  template <typename Level>
  Result<ExprPtr> parse_binary(std::initializer_list<std::string_view> operators, Type type,
                               Level&& level);
  Result<ExprPtr> parse_or();
  Result<ExprPtr> parse_and();
  Result<ExprPtr> parse_not();
  Result<ExprPtr> parse_compare();
  Result<ExprPtr> parse_sum();
  Result<ExprPtr> parse_concat();
  Result<ExprPtr> parse_product();
  Result<ExprPtr> parse_power();
  Result<ExprPtr> parse_unary(bool with_filter);
  Result<ExprPtr> parse_primary();
  /// `a` or `a, b`: a tuple if there is a comma, or nothing between brackets.
  Result<ExprPtr> parse_tuple(bool in_brackets, bool with_condition = true);
  Result<ExprPtr> parse_postfix(ExprPtr e);
  Result<ExprPtr> parse_subscript(ExprPtr e, int line);
  Result<void> parse_arguments(Arguments& out);
  Result<ExprPtr> parse_call(ExprPtr e);
  Result<std::string> dotted_name();
  /// Parses filters, tests and calls after an expression. `inside`: the first filter has no "|".
  Result<ExprPtr> parse_filters(ExprPtr e, bool inside);
  Result<ExprPtr> parse_test(ExprPtr e);
};

}  // namespace hearth::models::jinja
