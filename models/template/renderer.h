#pragma once
// One rendering of a parsed template: names, expressions, statements, output.
//
// Names: loops, macros, call, with and set blocks open a scope; `if` does not. A variable ends with
// its scope, so templates keep longer-lived values in a namespace().

#include <ctime>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/template/ast.h"
#include "models/template/runtime.h"

namespace hearth::models::jinja {

struct Scope {
  Scope* outer = nullptr;
  std::vector<std::pair<std::string_view, Value>> names;
  bool kept = false;  ///< a macro may still refer to it

  Value* find(std::string_view name) {
    for (auto& [known, value] : names) {
      if (known == name) return &value;
    }
    return nullptr;
  }
  void set(std::string_view name, const Value& value) {
    if (Value* there = find(name)) {
      *there = value;
    } else {
      names.emplace_back(name, value);
    }
  }
};

/// A running loop; `loop` in its body.
class LoopState {
 public:
  List* items = nullptr;
  size_t size = 0;
  size_t index = 0;
  int64_t depth = 0;  ///< recursion depth of a recursive loop
  const Statement* statement = nullptr;
  Scope* scope = nullptr;  ///< around the loop
  std::optional<Value> last_changed;
};

class Renderer : public Runtime {
 public:
  /// `now`: the time for strftime_now.
  Renderer(const Limits& limits, const std::tm& now) : Runtime(limits), now_(now) {}

  /// Defines a global name of the template.
  void set_global(std::string_view name, const Value& value) { root().set(name, value); }
  Result<TracedText> render(const Body& body);
  Result<Value> call(const Value& callee, const CallArguments& arguments) override;

 private:
  enum class Flow { kNext, kBreak, kContinue };

  /// Counts the nesting depth, which bounds the recursion of the C++ functions here.
  class Deeper {
   public:
    explicit Deeper(Renderer& r) : renderer_(r) { ++renderer_.depth_; }
    ~Deeper() { --renderer_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    Result<void> check() const {
      if (renderer_.depth_ <= renderer_.limits().max_depth) return {};
      return renderer_.too_large("nested too deeply");
    }

   private:
    Renderer& renderer_;
  };

  Scope& root();
  Scope* new_scope(Scope* outer);
  Value lookup(std::string_view name);
  /// Writes a text and its origin.
  Result<void> write(std::string_view text);
  Result<void> write(const TracedText& text);
  Result<void> assign(const Target& target, const Value& value);

  // Statements.
  Result<Flow> run_body(const Body& body);
  Result<Flow> run_statement(const Statement& s);
  Result<Flow> run_if(const Statement& s);
  Result<void> run_for(const Statement& s, const Value& over, int64_t depth);
  Result<void> run_call_block(const Statement& s);
  /// The output of a body, which runs in its own scope.
  Result<TracedText> captured(const Body& body);
  Value make_macro(const Macro& macro);

  // Expressions.
  Result<Value> evaluate(const Expr& e);
  Result<Value> evaluate_inner(const Expr& e);
  Result<Value> constant(const Expr& e) const;
  Result<Value> binary_expr(const Expr& e);
  Result<Value> compare_expr(const Expr& e);
  Result<Value> concat_expr(const Expr& e);
  Result<Value> dict_expr(const Expr& e);
  Result<Value> filter_expr(const Expr& e, const std::optional<Value>& input);
  Result<CallArguments> arguments_of(const Arguments& arguments);
  Result<Value> optional_part(const ExprPtr& e);

  // Calls.
  Result<Value> attribute_of(const Value& value, std::string_view name);
  Result<Value> loop_attribute(const Value& loop, std::string_view name);
  Result<Value> call_function(std::string_view name, const CallArguments& arguments);
  Result<Value> call_macro(const Callable& callee, const CallArguments& arguments);
  Result<Value> call_object_method(Callable& object, std::string_view name,
                                   const CallArguments& arguments);

  const std::tm now_;
  std::deque<Scope> scopes_;
  std::deque<LoopState> loops_;
  Scope* scope_ = nullptr;
  TracedText* out_ = nullptr;
  int depth_ = 0;
};

}  // namespace hearth::models::jinja
