#include "models/template/parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>

#include "models/template/expression_parser.h"
#include "models/tokenizer/text/utf8.h"

namespace hearth::models::jinja {
namespace {

/// Parses statements and the text between them.
class Parser : ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<Body> run() {
    Body body;
    HEARTH_TRY(parse_body({}, body));
    if (!is(Type::kEnd)) return fail(fmt::format("unexpected '{}'", shown()));
    return body;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  /// Parses up to a block that begins with one of `ends`, and stops at that name.
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
      take();  // the beginning of the block
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
        return fail("a parameter without a default after one that has one");
      }
    }
    return want_op(")");
  }

  // `break` inside a macro cannot leave a loop outside it.
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

  int loops_ = 0;
};

}  // namespace

Result<Body> parse_template(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return Error::too_large(
        fmt::format("chat template: {} bytes, want at most {}", source.size(), kMaxTemplateBytes));
  }
  for (std::string_view rest = source; !rest.empty();) {
    const Utf8Char c = front_char(rest);
    if (c.kind != Utf8Char::Kind::kWhole) {
      return Error::unsupported(
          fmt::format("chat template: byte {} is not UTF-8", source.size() - rest.size() + 1));
    }
    rest.remove_prefix(c.bytes);
  }
  HEARTH_ASSIGN_OR_RETURN(std::vector<Token> tokens, tokenize_template(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace hearth::models::jinja
