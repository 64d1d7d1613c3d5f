#pragma once
// A position among a template's tokens, with the checks and steps that parsers need.

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/template/lexer.h"

namespace hearth::models::jinja {

class TokenCursor {
 public:
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  using Type = Token::Type;

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
    return Error::unsupported(fmt::format("chat template, line {}: {}", line, what));
  }
  Error fail(const std::string& what) const { return fail(what, now().line); }
  Error too_deep() const {
    return Error::too_large(fmt::format("chat template, line {}: nested too deeply", now().line));
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

  int depth_ = 0;  ///< nesting of brackets and statements

 private:
  const std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace hearth::models::jinja
