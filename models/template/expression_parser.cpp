#include "models/template/expression_parser.h"

namespace hearth::models::jinja {

ExprPtr ExpressionParser::make(Expr::Type type, int line) const {
  auto e = std::make_unique<Expr>();
  e->type = type;
  e->line = line;
  return e;
}

Result<ExprPtr> ExpressionParser::done(ExprPtr e) {
  int below = 0;
  const auto look = [&below](const ExprPtr& child) {
    if (child != nullptr) below = std::max(below, child->depth);
  };
  for (const ExprPtr* child : {&e->a, &e->b, &e->c, &e->d}) look(*child);
  for (const ExprPtr& child : e->items) look(child);
  for (const ExprPtr& child : e->arguments.positional) look(child);
  for (const auto& [name, child] : e->arguments.named) look(child);
  e->depth = below + 1;
  if (e->depth > kMaxExpression) return too_deep();
  return e;
}

Result<ExprPtr> ExpressionParser::parse_expression(bool with_condition) {
  const Nested nested(depth_);
  if (depth_ > kMaxNesting) return too_deep();
  return with_condition ? parse_condition() : parse_or();
}

Result<ExprPtr> ExpressionParser::parse_condition() {
  HEARTH_ASSIGN_OR_RETURN(ExprPtr left, parse_or());
  while (is_name("if")) {
    ExprPtr e = make(Expr::Type::kIf, take().line);
    HEARTH_ASSIGN_OR_RETURN(e->b, parse_or());
    if (skip_name("else")) {
      HEARTH_ASSIGN_OR_RETURN(e->c, parse_expression());
    }
    e->a = std::move(left);
    HEARTH_ASSIGN_OR_RETURN(left, done(std::move(e)));
  }
  return left;
}

template <typename Level>
Result<ExprPtr> ExpressionParser::parse_binary(std::initializer_list<std::string_view> operators,
                                               Type type, Level&& level) {
  HEARTH_ASSIGN_OR_RETURN(ExprPtr left, level());
  while (is(type) && std::ranges::find(operators, now().text) != operators.end()) {
    ExprPtr e = make(Expr::Type::kBinary, now().line);
    e->name = take().text;
    e->a = std::move(left);
    HEARTH_ASSIGN_OR_RETURN(e->b, level());
    HEARTH_ASSIGN_OR_RETURN(left, done(std::move(e)));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::parse_or() {
  return parse_binary({"or"}, Type::kName, [this] { return parse_and(); });
}

Result<ExprPtr> ExpressionParser::parse_and() {
  return parse_binary({"and"}, Type::kName, [this] { return parse_not(); });
}

Result<ExprPtr> ExpressionParser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nested nested(depth_);
  if (depth_ > kMaxNesting) return too_deep();
  ExprPtr e = make(Expr::Type::kNot, take().line);
  HEARTH_ASSIGN_OR_RETURN(e->a, parse_not());
  return done(std::move(e));
}

Result<ExprPtr> ExpressionParser::parse_compare() {
  HEARTH_ASSIGN_OR_RETURN(ExprPtr left, parse_sum());
  ExprPtr e;
  while (true) {
    std::string op;
    if (is(Type::kOperator) && (now().text == "==" || now().text == "!=" || now().text == "<" ||
                                now().text == "<=" || now().text == ">" || now().text == ">=")) {
      op = take().text;
    } else if (is_name("in")) {
      op = take().text;
    } else if (is_name("not") && next().type == Type::kName && next().text == "in") {
      take();
      take();
      op = "not in";
    } else {
      break;
    }
    if (e == nullptr) e = make(Expr::Type::kCompare, now().line);
    e->operators.push_back(std::move(op));
    HEARTH_ASSIGN_OR_RETURN(ExprPtr right, parse_sum());
    e->items.push_back(std::move(right));
  }
  if (e == nullptr) return left;
  e->a = std::move(left);
  return done(std::move(e));
}

Result<ExprPtr> ExpressionParser::parse_sum() {
  return parse_binary({"+", "-"}, Type::kOperator, [this] { return parse_concat(); });
}

Result<ExprPtr> ExpressionParser::parse_concat() {
  HEARTH_ASSIGN_OR_RETURN(ExprPtr first, parse_product());
  if (!is_op("~")) return first;
  ExprPtr e = make(Expr::Type::kConcat, now().line);
  e->items.push_back(std::move(first));
  while (skip_op("~")) {
    HEARTH_ASSIGN_OR_RETURN(ExprPtr more, parse_product());
    e->items.push_back(std::move(more));
  }
  return done(std::move(e));
}

Result<ExprPtr> ExpressionParser::parse_product() {
  return parse_binary({"*", "/", "//", "%"}, Type::kOperator, [this] { return parse_power(); });
}

Result<ExprPtr> ExpressionParser::parse_power() {
  return parse_binary({"**"}, Type::kOperator, [this] { return parse_unary(true); });
}

Result<ExprPtr> ExpressionParser::parse_unary(bool with_filter) {
  ExprPtr e;
  if (is_op("-") || is_op("+")) {
    const Nested nested(depth_);
    if (depth_ > kMaxNesting) return too_deep();
    const Expr::Type sign = is_op("-") ? Expr::Type::kNegate : Expr::Type::kPlus;
    e = make(sign, take().line);
    HEARTH_ASSIGN_OR_RETURN(e->a, parse_unary(false));
    HEARTH_ASSIGN_OR_RETURN(e, done(std::move(e)));
  } else {
    HEARTH_ASSIGN_OR_RETURN(e, parse_primary());
  }
  HEARTH_ASSIGN_OR_RETURN(e, parse_postfix(std::move(e)));
  if (!with_filter) return e;
  return parse_filters(std::move(e), false);
}

Result<ExprPtr> ExpressionParser::parse_primary() {
  const int line = now().line;
  if (is(Type::kName)) {
    const std::string name = take().text;
    ExprPtr e = make(Expr::Type::kConstant, line);
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      e->constant = Kind::kBool;
      e->integer = name == "true" || name == "True" ? 1 : 0;
    } else if (name == "none" || name == "None") {
      e->constant = Kind::kNone;
    } else {
      e->type = Expr::Type::kName;
      e->name = name;
    }
    return e;
  }
  if (is(Type::kString)) {
    ExprPtr e = make(Expr::Type::kConstant, line);
    e->constant = Kind::kString;
    while (is(Type::kString)) e->name += take().text;
    return e;
  }
  if (is(Type::kInteger) || is(Type::kFloat)) {
    ExprPtr e = make(Expr::Type::kConstant, line);
    const Token token = take();
    e->constant = token.type == Type::kInteger ? Kind::kInt : Kind::kFloat;
    e->integer = token.integer;
    e->number = token.number;
    return e;
  }
  if (skip_op("(")) {
    HEARTH_ASSIGN_OR_RETURN(ExprPtr e, parse_tuple(true));
    HEARTH_TRY(want_op(")"));
    return e;
  }
  if (skip_op("[")) {
    ExprPtr e = make(Expr::Type::kList, line);
    while (!is_op("]")) {
      if (!e->items.empty()) HEARTH_TRY(want_op(","));
      if (is_op("]")) break;
      HEARTH_ASSIGN_OR_RETURN(ExprPtr item, parse_expression());
      e->items.push_back(std::move(item));
    }
    take();
    return done(std::move(e));
  }
  if (skip_op("{")) {
    ExprPtr e = make(Expr::Type::kDict, line);
    while (!is_op("}")) {
      if (!e->items.empty()) HEARTH_TRY(want_op(","));
      if (is_op("}")) break;
      HEARTH_ASSIGN_OR_RETURN(ExprPtr key, parse_expression());
      HEARTH_TRY(want_op(":"));
      HEARTH_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      e->items.push_back(std::move(key));
      e->items.push_back(std::move(value));
    }
    take();
    return done(std::move(e));
  }
  return fail(fmt::format("met '{}', want an expression", shown()));
}

Result<ExprPtr> ExpressionParser::parse_tuple(bool in_brackets, bool with_condition) {
  ExprPtr tuple = make(Expr::Type::kTuple, now().line);
  bool comma = false;
  while (true) {
    if (!tuple->items.empty()) {
      if (!skip_op(",")) break;
      comma = true;
    }
    if (is(Type::kVariableEnd) || is(Type::kBlockEnd) || is_op(")")) break;
    HEARTH_ASSIGN_OR_RETURN(ExprPtr item, parse_expression(with_condition));
    tuple->items.push_back(std::move(item));
  }
  if (tuple->items.size() == 1 && !comma) return std::move(tuple->items.front());
  if (tuple->items.empty() && !in_brackets) {
    return fail(fmt::format("met '{}', want an expression", shown()));
  }
  return done(std::move(tuple));
}

Result<ExprPtr> ExpressionParser::parse_postfix(ExprPtr e) {
  while (true) {
    const int line = now().line;
    if (skip_op(".")) {
      ExprPtr out = make(Expr::Type::kAttribute, line);
      if (is(Type::kInteger)) {
        out->type = Expr::Type::kItem;
        out->b = make(Expr::Type::kConstant, line);
        out->b->constant = Kind::kInt;
        out->b->integer = take().integer;
      } else {
        HEARTH_ASSIGN_OR_RETURN(out->name, want_name());
      }
      out->a = std::move(e);
      HEARTH_ASSIGN_OR_RETURN(e, done(std::move(out)));
    } else if (skip_op("[")) {
      HEARTH_ASSIGN_OR_RETURN(e, parse_subscript(std::move(e), line));
    } else if (is_op("(")) {
      HEARTH_ASSIGN_OR_RETURN(e, parse_call(std::move(e)));
    } else {
      return e;
    }
  }
}

Result<ExprPtr> ExpressionParser::parse_subscript(ExprPtr e, int line) {
  ExprPtr out = make(Expr::Type::kItem, line);
  ExprPtr parts[3];
  int colons = 0;
  while (!is_op("]")) {
    if (skip_op(":")) {
      if (++colons > 2) return fail("a slice of more than three parts");
      continue;
    }
    if (parts[colons] != nullptr) return fail(fmt::format("met '{}', want ']'", shown()));
    HEARTH_ASSIGN_OR_RETURN(parts[colons], parse_expression());
  }
  take();
  out->a = std::move(e);
  if (colons == 0) {
    if (parts[0] == nullptr) return fail("a subscript without an expression");
    out->b = std::move(parts[0]);
    return done(std::move(out));
  }
  out->type = Expr::Type::kSlice;
  out->b = std::move(parts[0]);
  out->c = std::move(parts[1]);
  out->d = std::move(parts[2]);
  return done(std::move(out));
}

Result<void> ExpressionParser::parse_arguments(Arguments& out) {
  HEARTH_TRY(want_op("("));
  bool first = true;
  while (!is_op(")")) {
    if (!first) HEARTH_TRY(want_op(","));
    if (is_op(")")) break;
    first = false;
    if (is_op("*") || is_op("**")) {
      return fail("arguments from a list or a dictionary (*, **) are not supported");
    }
    if (is(Type::kName) && next().type == Type::kOperator && next().text == "=") {
      std::string name = take().text;
      take();
      HEARTH_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      out.named.emplace_back(std::move(name), std::move(value));
      continue;
    }
    if (!out.named.empty()) return fail("an argument without a name after one with a name");
    HEARTH_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
    out.positional.push_back(std::move(value));
  }
  return want_op(")");
}

Result<ExprPtr> ExpressionParser::parse_call(ExprPtr e) {
  ExprPtr out = make(Expr::Type::kCall, now().line);
  HEARTH_TRY(parse_arguments(out->arguments));
  out->a = std::move(e);
  return done(std::move(out));
}

Result<std::string> ExpressionParser::dotted_name() {
  HEARTH_ASSIGN_OR_RETURN(std::string name, want_name());
  while (skip_op(".")) {
    HEARTH_ASSIGN_OR_RETURN(const std::string more, want_name());
    name += "." + more;
  }
  return name;
}

Result<ExprPtr> ExpressionParser::parse_filters(ExprPtr e, bool inside) {
  while (true) {
    if (inside || is_op("|")) {
      ExprPtr out = make(Expr::Type::kFilter, now().line);
      if (!inside) take();
      inside = false;
      HEARTH_ASSIGN_OR_RETURN(out->name, dotted_name());
      if (is_op("(")) HEARTH_TRY(parse_arguments(out->arguments));
      out->a = std::move(e);
      HEARTH_ASSIGN_OR_RETURN(e, done(std::move(out)));
    } else if (e != nullptr && is_name("is")) {
      HEARTH_ASSIGN_OR_RETURN(e, parse_test(std::move(e)));
    } else if (e != nullptr && is_op("(")) {
      HEARTH_ASSIGN_OR_RETURN(e, parse_call(std::move(e)));
    } else {
      return e;
    }
  }
}

Result<ExprPtr> ExpressionParser::parse_test(ExprPtr e) {
  ExprPtr out = make(Expr::Type::kTest, take().line);
  const bool negated = skip_name("not");
  HEARTH_ASSIGN_OR_RETURN(out->name, dotted_name());
  const bool word = is(Type::kName) && now().text != "else" && now().text != "or" &&
                    now().text != "and" && now().text != "is" && now().text != "if" &&
                    now().text != "in" && now().text != "not";
  if (is_op("(")) {
    HEARTH_TRY(parse_arguments(out->arguments));
  } else if (is_name("is")) {
    return fail("tests cannot be chained with 'is'");
  } else if (word || is(Type::kString) || is(Type::kInteger) || is(Type::kFloat) || is_op("[") ||
             is_op("{")) {
    const Nested nested(depth_);
    if (depth_ > kMaxNesting) return too_deep();
    HEARTH_ASSIGN_OR_RETURN(ExprPtr argument, parse_primary());
    HEARTH_ASSIGN_OR_RETURN(argument, parse_postfix(std::move(argument)));
    out->arguments.positional.push_back(std::move(argument));
  }
  out->a = std::move(e);
  if (!negated) return done(std::move(out));
  ExprPtr outer = make(Expr::Type::kNot, out->line);
  HEARTH_ASSIGN_OR_RETURN(outer->a, done(std::move(out)));
  return done(std::move(outer));
}

}  // namespace hearth::models::jinja
