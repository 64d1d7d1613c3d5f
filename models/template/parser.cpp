#include "models/template/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "models/template/lexer.h"
#include "models/tokenizer/utf8.h"

namespace hearth::models::jinja {
namespace {

using Type = Token::Type;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Body> run() {
    Body body;
    HEARTH_TRY(parse_body({}, body));
    if (!is(Type::kEnd)) return fail(fmt::format("unexpected '{}'", shown()));
    return body;
  }

 private:
  // ---- Tokens ----
  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is(Type type) const { return now().type == type; }
  bool is_op(std::string_view op) const { return is(Type::kOperator) && now().text == op; }
  bool is_name(std::string_view name) const { return is(Type::kName) && now().text == name; }
  Token take() {
    Token token = now();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool skip_op(std::string_view op) {
    if (!is_op(op)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    take();
    return true;
  }
  std::string shown() const {
    switch (now().type) {
      case Type::kEnd: return "end of template";
      case Type::kText: return "text";
      case Type::kVariableBegin: return "{{";
      case Type::kVariableEnd: return "}}";
      case Type::kBlockBegin: return "{%";
      case Type::kBlockEnd: return "%}";
      case Type::kString: return "a string";
      case Type::kInteger:
      case Type::kFloat: return "a number";
      default: return now().text.substr(0, 40);
    }
  }
  Error fail(const std::string& what, int line) const {
    return {ErrorCode::kUnsupported, fmt::format("chat template, line {}: {}", line, what), ""};
  }
  Error fail(const std::string& what) const { return fail(what, now().line); }
  Error too_deep() const {
    return {ErrorCode::kTooLarge,
            fmt::format("chat template, line {}: nested too deeply", now().line), ""};
  }
  Result<void> want_op(std::string_view op) {
    if (skip_op(op)) return {};
    return fail(fmt::format("met '{}', want '{}'", shown(), op));
  }
  Result<std::string> want_name() {
    if (!is(Type::kName)) return fail(fmt::format("met '{}', want a name", shown()));
    return take().text;
  }
  Result<void> want_block_end() {
    if (is(Type::kBlockEnd)) {
      take();
      return {};
    }
    return fail(fmt::format("met '{}', want the end of the statement, %}}", shown()));
  }

  struct Nested {
    explicit Nested(int& counter) : depth(counter) { ++depth; }
    ~Nested() { --depth; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    int& depth;
  };

  // ---- Statements ----
  using Names = std::initializer_list<std::string_view>;

  /// Up to a block that begins with one of `ends`; its name is the current token then.
  Result<void> parse_body(Names ends, Body& out) {
    const Nested nested(depth_);
    if (depth_ > kMaxNesting) return too_deep();
    while (!is(Type::kEnd)) {
      if (is(Type::kText)) {
        Token token = take();
        Statement& s = add(out, Statement::Type::kText, token.line);
        s.text = std::move(token.text);
        continue;
      }
      if (is(Type::kVariableBegin)) {
        const int line = take().line;
        HEARTH_ASSIGN_OR_RETURN(ExprPtr value, parse_tuple(false));
        if (!is(Type::kVariableEnd)) return fail(fmt::format("met '{}', want '}}}}'", shown()));
        take();
        add(out, Statement::Type::kOutput, line).value = std::move(value);
        continue;
      }
      take();  // a block's begin
      if (is(Type::kName) && std::ranges::find(ends, now().text) != ends.end()) return {};
      HEARTH_TRY(parse_statement(out));
    }
    if (ends.size() > 0) {
      return fail(fmt::format("the template ends without '{}'", *(ends.end() - 1)));
    }
    return {};
  }

  static Statement& add(Body& out, Statement::Type type, int line) {
    Statement& s = *out.emplace_back(std::make_unique<Statement>());
    s.type = type;
    s.line = line;
    return s;
  }

  Result<void> end_block() {
    take();
    return want_block_end();
  }

  Result<void> parse_statement(Body& out) {
    const int line = now().line;
    HEARTH_ASSIGN_OR_RETURN(const std::string name, want_name());
    if (name == "if") return parse_if(add(out, Statement::Type::kIf, line));
    if (name == "for") return parse_for(add(out, Statement::Type::kFor, line));
    if (name == "set") return parse_set(out, line);
    if (name == "macro") return parse_macro(add(out, Statement::Type::kMacro, line));
    if (name == "call") return parse_call_block(add(out, Statement::Type::kCallBlock, line));
    if (name == "filter") {
      Statement& s = add(out, Statement::Type::kFilterBlock, line);
      HEARTH_ASSIGN_OR_RETURN(s.value, parse_filters(nullptr, true));
      HEARTH_TRY(want_block_end());
      HEARTH_TRY(parse_body({"endfilter"}, s.body));
      return end_block();
    }
    if (name == "with") return parse_with(add(out, Statement::Type::kWith, line));
    if (name == "generation") {
      Statement& s = add(out, Statement::Type::kGeneration, line);
      HEARTH_TRY(want_block_end());
      HEARTH_TRY(parse_body({"endgeneration"}, s.body));
      return end_block();
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return fail(fmt::format("'{}' outside of a loop", name), line);
      add(out, name == "break" ? Statement::Type::kBreak : Statement::Type::kContinue, line);
      return want_block_end();
    }
    return fail(fmt::format("the statement '{}' is not supported", name.substr(0, 40)), line);
  }

  Result<void> parse_if(Statement& s) {
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(ExprPtr condition, parse_tuple(false, false));
      HEARTH_TRY(want_block_end());
      auto& branch = s.branches.emplace_back(std::move(condition), Body());
      HEARTH_TRY(parse_body({"elif", "else", "endif"}, branch.second));
      if (skip_name("elif")) continue;
      break;
    }
    if (skip_name("else")) {
      HEARTH_TRY(want_block_end());
      HEARTH_TRY(parse_body({"endif"}, s.otherwise));
    }
    return end_block();
  }

  Result<void> parse_for(Statement& s) {
    HEARTH_ASSIGN_OR_RETURN(s.target, parse_target(false));
    if (!skip_name("in")) return fail(fmt::format("met '{}', want 'in'", shown()));
    HEARTH_ASSIGN_OR_RETURN(s.value, parse_tuple(false, false));
    if (skip_name("if")) {
      HEARTH_ASSIGN_OR_RETURN(s.condition, parse_expression());
    }
    s.recursive = skip_name("recursive");
    HEARTH_TRY(want_block_end());
    ++loops_;
    HEARTH_TRY(parse_body({"else", "endfor"}, s.body));
    --loops_;
    if (skip_name("else")) {
      HEARTH_TRY(want_block_end());
      HEARTH_TRY(parse_body({"endfor"}, s.otherwise));
    }
    return end_block();
  }

  Result<Target> parse_target(bool with_attribute) {
    const Nested nested(depth_);
    if (depth_ > kMaxNesting) return too_deep();
    std::vector<Target> parts;
    bool several = false;
    while (true) {
      if (skip_op("(")) {
        HEARTH_ASSIGN_OR_RETURN(Target inner, parse_target(false));
        HEARTH_TRY(want_op(")"));
        parts.push_back(std::move(inner));
      } else {
        Target target;
        HEARTH_ASSIGN_OR_RETURN(target.name, want_name());
        if (with_attribute && parts.empty() && skip_op(".")) {
          HEARTH_ASSIGN_OR_RETURN(target.attribute, want_name());
          return target;
        }
        parts.push_back(std::move(target));
      }
      if (!skip_op(",")) break;
      several = true;
      if (!is(Type::kName) && !is_op("(")) break;
      if (is_name("in")) break;
    }
    if (!several) return std::move(parts.front());
    Target target;
    target.parts = std::move(parts);
    return target;
  }

  Result<void> parse_set(Body& out, int line) {
    Statement& s = add(out, Statement::Type::kSet, line);
    HEARTH_ASSIGN_OR_RETURN(s.target, parse_target(true));
    if (skip_op("=")) {
      HEARTH_ASSIGN_OR_RETURN(s.value, parse_tuple(false));
      return want_block_end();
    }
    s.type = Statement::Type::kSetBlock;
    if (is_op("|")) {
      HEARTH_ASSIGN_OR_RETURN(s.value, parse_filters(nullptr, false));
    }
    HEARTH_TRY(want_block_end());
    HEARTH_TRY(parse_body({"endset"}, s.body));
    return end_block();
  }

  Result<void> parse_signature(Macro& macro) {
    HEARTH_TRY(want_op("("));
    while (!is_op(")")) {
      if (!macro.parameters.empty()) HEARTH_TRY(want_op(","));
      if (is_op(")")) break;
      HEARTH_ASSIGN_OR_RETURN(std::string name, want_name());
      macro.parameters.push_back(std::move(name));
      if (skip_op("=")) {
        HEARTH_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
        macro.defaults.push_back(std::move(value));
      } else if (!macro.defaults.empty()) {
        return fail("a parameter without a default behind one that has one");
      }
    }
    return want_op(")");
  }

  // A body of its own: a loop around it is not one that `break` could leave.
  Result<void> parse_macro_body(Macro& macro, std::string_view end) {
    const int outer = std::exchange(loops_, 0);
    HEARTH_TRY(parse_body({end}, macro.body));
    loops_ = outer;
    return end_block();
  }

  Result<void> parse_macro(Statement& s) {
    HEARTH_ASSIGN_OR_RETURN(s.macro.name, want_name());
    HEARTH_TRY(parse_signature(s.macro));
    HEARTH_TRY(want_block_end());
    return parse_macro_body(s.macro, "endmacro");
  }

  Result<void> parse_call_block(Statement& s) {
    s.macro.name = "caller";
    if (is_op("(")) HEARTH_TRY(parse_signature(s.macro));
    HEARTH_ASSIGN_OR_RETURN(s.value, parse_expression());
    if (s.value->type != Expr::Type::kCall) return fail("want a call", s.line);
    HEARTH_TRY(want_block_end());
    return parse_macro_body(s.macro, "endcall");
  }

  Result<void> parse_with(Statement& s) {
    while (!is(Type::kBlockEnd)) {
      if (!s.assignments.empty()) HEARTH_TRY(want_op(","));
      Target target;
      HEARTH_ASSIGN_OR_RETURN(target.name, want_name());
      HEARTH_TRY(want_op("="));
      HEARTH_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      s.assignments.emplace_back(std::move(target), std::move(value));
    }
    HEARTH_TRY(want_block_end());
    HEARTH_TRY(parse_body({"endwith"}, s.body));
    return end_block();
  }

  // ---- Expressions ----
  ExprPtr make(Expr::Type type, int line) const {
    auto e = std::make_unique<Expr>();
    e->type = type;
    e->line = line;
    return e;
  }

  /// Counts the depth of the tree; too deep is an error.
  Result<ExprPtr> done(ExprPtr e) {
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

  Result<ExprPtr> parse_expression(bool with_condition = true) {
    const Nested nested(depth_);
    if (depth_ > kMaxNesting) return too_deep();
    return with_condition ? parse_condition() : parse_or();
  }

  Result<ExprPtr> parse_condition() {
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

  /// Operators of one level, from the left. `binds` parses what they join.
  template <typename Level>
  Result<ExprPtr> parse_binary(std::initializer_list<std::string_view> operators, Type type,
                               Level&& level) {
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

  Result<ExprPtr> parse_or() {
    return parse_binary({"or"}, Type::kName, [this] { return parse_and(); });
  }
  Result<ExprPtr> parse_and() {
    return parse_binary({"and"}, Type::kName, [this] { return parse_not(); });
  }
  Result<ExprPtr> parse_not() {
    if (!is_name("not")) return parse_compare();
    const Nested nested(depth_);
    if (depth_ > kMaxNesting) return too_deep();
    ExprPtr e = make(Expr::Type::kNot, take().line);
    HEARTH_ASSIGN_OR_RETURN(e->a, parse_not());
    return done(std::move(e));
  }

  Result<ExprPtr> parse_compare() {
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

  Result<ExprPtr> parse_sum() {
    return parse_binary({"+", "-"}, Type::kOperator, [this] { return parse_concat(); });
  }
  Result<ExprPtr> parse_concat() {
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
  Result<ExprPtr> parse_product() {
    return parse_binary({"*", "/", "//", "%"}, Type::kOperator, [this] { return parse_power(); });
  }
  Result<ExprPtr> parse_power() {
    return parse_binary({"**"}, Type::kOperator, [this] { return parse_unary(true); });
  }

  Result<ExprPtr> parse_unary(bool with_filter) {
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

  Result<ExprPtr> parse_primary() {
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

  /// `a` or `a, b`: a tuple where there is a comma, or nothing between brackets.
  Result<ExprPtr> parse_tuple(bool in_brackets, bool with_condition = true) {
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

  Result<ExprPtr> parse_postfix(ExprPtr e) {
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

  Result<ExprPtr> parse_subscript(ExprPtr e, int line) {
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

  Result<void> parse_arguments(Arguments& out) {
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
      if (!out.named.empty()) return fail("an argument without a name behind one with a name");
      HEARTH_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      out.positional.push_back(std::move(value));
    }
    return want_op(")");
  }

  Result<ExprPtr> parse_call(ExprPtr e) {
    ExprPtr out = make(Expr::Type::kCall, now().line);
    HEARTH_TRY(parse_arguments(out->arguments));
    out->a = std::move(e);
    return done(std::move(out));
  }

  Result<std::string> dotted_name() {
    HEARTH_ASSIGN_OR_RETURN(std::string name, want_name());
    while (skip_op(".")) {
      HEARTH_ASSIGN_OR_RETURN(const std::string more, want_name());
      name += "." + more;
    }
    return name;
  }

  /// Filters, tests and calls behind an expression. `inside`: the first filter has no "|".
  Result<ExprPtr> parse_filters(ExprPtr e, bool inside) {
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

  Result<ExprPtr> parse_test(ExprPtr e) {
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

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Result<Body> parse_template(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return Error{
        ErrorCode::kTooLarge,
        fmt::format("chat template: {} bytes, want at most {}", source.size(), kMaxTemplateBytes),
        ""};
  }
  for (std::string_view rest = source; !rest.empty();) {
    const Utf8Char c = front_char(rest);
    if (c.kind != Utf8Char::Kind::kWhole) {
      return Error{
          ErrorCode::kUnsupported,
          fmt::format("chat template: byte {} is no UTF-8", source.size() - rest.size() + 1), ""};
    }
    rest.remove_prefix(c.bytes);
  }
  HEARTH_ASSIGN_OR_RETURN(std::vector<Token> tokens, tokenize_template(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace hearth::models::jinja
