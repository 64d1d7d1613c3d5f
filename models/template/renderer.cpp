#include "models/template/renderer.h"

#include <algorithm>

namespace hearth::models::jinja {

Scope& Renderer::root() {
  if (scopes_.empty()) scope_ = &scopes_.emplace_back();
  return scopes_.front();
}

Scope* Renderer::new_scope(Scope* outer) {
  arena().count(sizeof(Scope) + 4 * sizeof(Value));
  Scope& scope = scopes_.emplace_back();
  scope.outer = outer;
  return &scope;
}

Result<TracedText> Renderer::render(const Body& body) {
  root();
  TracedText out;
  out_ = &out;
  HEARTH_TRY(run_body(body));
  return out;
}

Result<void> Renderer::write(std::string_view text) {
  HEARTH_TRY(room(out_->text.size(), text.size()));
  HEARTH_TRY(charge_bytes(text.size()));
  append(*out_, text);
  return {};
}

Result<void> Renderer::write(const TracedText& text) {
  HEARTH_TRY(room(out_->text.size(), text.text.size()));
  HEARTH_TRY(charge_bytes(text.text.size()));
  out_->add(text);
  return {};
}

// ---- Statements -----------------------------------------------------------------------------

Result<Renderer::Flow> Renderer::run_body(const Body& body) {
  const Deeper deeper(*this);
  HEARTH_TRY(deeper.check());
  for (const auto& statement : body) {
    HEARTH_ASSIGN_OR_RETURN(const Flow flow, run_statement(*statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Renderer::Flow> Renderer::run_statement(const Statement& s) {
  set_line(s.line);
  HEARTH_TRY(charge());
  switch (s.type) {
    case Statement::Type::kText: HEARTH_TRY(write(s.text)); return Flow::kNext;
    case Statement::Type::kOutput: {
      HEARTH_ASSIGN_OR_RETURN(const Value value, evaluate(*s.value));
      if (value.is_string()) {
        HEARTH_TRY(write(value.text()));
      } else {
        HEARTH_ASSIGN_OR_RETURN(const TracedText text, str(value));
        HEARTH_TRY(write(text));
      }
      return Flow::kNext;
    }
    case Statement::Type::kIf: return run_if(s);
    case Statement::Type::kFor: {
      HEARTH_ASSIGN_OR_RETURN(const Value over, evaluate(*s.value));
      HEARTH_TRY(run_for(s, over, 0));
      return Flow::kNext;
    }
    case Statement::Type::kSet: {
      HEARTH_ASSIGN_OR_RETURN(const Value value, evaluate(*s.value));
      HEARTH_TRY(assign(s.target, value));
      return Flow::kNext;
    }
    case Statement::Type::kSetBlock: {
      HEARTH_ASSIGN_OR_RETURN(TracedText written, captured(s.body));
      Value value = text(std::move(written));
      if (s.value != nullptr) {
        HEARTH_ASSIGN_OR_RETURN(value, filter_expr(*s.value, value));
      }
      HEARTH_TRY(assign(s.target, value));
      return Flow::kNext;
    }
    case Statement::Type::kMacro:
      scope_->set(s.macro.name, make_macro(s.macro));
      return Flow::kNext;
    case Statement::Type::kCallBlock: HEARTH_TRY(run_call_block(s)); return Flow::kNext;
    case Statement::Type::kFilterBlock: {
      HEARTH_ASSIGN_OR_RETURN(TracedText written, captured(s.body));
      HEARTH_ASSIGN_OR_RETURN(const Value value, filter_expr(*s.value, text(std::move(written))));
      HEARTH_ASSIGN_OR_RETURN(const Value shown, str_value(value));
      HEARTH_TRY(write(shown.text()));
      return Flow::kNext;
    }
    case Statement::Type::kWith: {
      Scope* const inner = new_scope(scope_);
      for (const auto& [target, value] : s.assignments) {
        HEARTH_ASSIGN_OR_RETURN(const Value v, evaluate(*value));
        inner->set(target.name, v);
      }
      Scope* const outer = std::exchange(scope_, inner);
      Result<Flow> flow = run_body(s.body);
      scope_ = outer;
      return flow;
    }
    case Statement::Type::kGeneration: {
      HEARTH_ASSIGN_OR_RETURN(const TracedText written, captured(s.body));
      HEARTH_TRY(write(written));
      return Flow::kNext;
    }
    case Statement::Type::kBreak: return Flow::kBreak;
    case Statement::Type::kContinue: return Flow::kContinue;
  }
  return Flow::kNext;
}

Result<Renderer::Flow> Renderer::run_if(const Statement& s) {
  for (const auto& [condition, body] : s.branches) {
    HEARTH_ASSIGN_OR_RETURN(const Value value, evaluate(*condition));
    if (truth(value)) return run_body(body);
  }
  return run_body(s.otherwise);
}

Result<void> Renderer::run_for(const Statement& s, const Value& over, int64_t depth) {
  HEARTH_ASSIGN_OR_RETURN(List * items, iterate(over));
  Scope* const outer = scope_;
  if (s.condition != nullptr) {
    List* const kept = arena().new_list();
    scope_ = new_scope(outer);
    for (size_t i = 0; i < items->items.size(); ++i) {
      scope_->names.clear();
      const Value item = items->items[i];
      HEARTH_TRY(assign(s.target, item));
      HEARTH_ASSIGN_OR_RETURN(const Value keep, evaluate(*s.condition));
      if (truth(keep)) HEARTH_TRY(add(*kept, item));
    }
    scope_ = outer;
    items = kept;
  }
  if (items->items.empty()) {
    scope_ = new_scope(outer);
    HEARTH_TRY(run_body(s.otherwise));
    scope_ = outer;
    return {};
  }
  arena().count(sizeof(LoopState));
  LoopState& loop = loops_.emplace_back();
  loop.items = items;
  loop.size = items->items.size();
  loop.depth = depth;
  loop.statement = &s;
  loop.scope = outer;
  Callable as_value;
  as_value.type = Callable::Type::kLoop;
  as_value.loop = &loop;
  const Value loop_value = Value::of(arena().new_callable(std::move(as_value)));
  Scope* inner = nullptr;
  // The list may change during the loop; its initial size is the bound.
  for (; loop.index < std::min(loop.size, items->items.size()); ++loop.index) {
    HEARTH_TRY(charge());
    if (inner == nullptr || inner->kept) {
      inner = new_scope(outer);
    } else {
      inner->names.clear();
    }
    scope_ = inner;
    inner->set("loop", loop_value);
    HEARTH_TRY(assign(s.target, items->items[loop.index]));
    HEARTH_ASSIGN_OR_RETURN(const Flow flow, run_body(s.body));
    if (flow == Flow::kBreak) break;
  }
  scope_ = outer;
  return {};
}

Result<void> Renderer::run_call_block(const Statement& s) {
  const Expr& call_expr = *s.value;
  HEARTH_ASSIGN_OR_RETURN(const Value callee, evaluate(*call_expr.a));
  HEARTH_ASSIGN_OR_RETURN(CallArguments arguments, arguments_of(call_expr.arguments));
  arguments.named.emplace_back("caller", make_macro(s.macro));
  HEARTH_ASSIGN_OR_RETURN(const Value value, call(callee, arguments));
  HEARTH_ASSIGN_OR_RETURN(const Value shown, str_value(value));
  return write(shown.text());
}

Result<TracedText> Renderer::captured(const Body& body) {
  TracedText written;
  TracedText* const out = std::exchange(out_, &written);
  Scope* const outer = std::exchange(scope_, new_scope(scope_));
  const Result<Flow> flow = run_body(body);
  scope_ = outer;
  out_ = out;
  if (!flow.ok()) return flow.error();
  return written;
}

Value Renderer::make_macro(const Macro& macro) {
  for (Scope* scope = scope_; scope != nullptr && !scope->kept; scope = scope->outer) {
    scope->kept = true;
  }
  Callable callable;
  callable.type = Callable::Type::kMacro;
  callable.name = macro.name;
  callable.macro = &macro;
  callable.scope = scope_;
  return Value::of(arena().new_callable(std::move(callable)));
}

Result<void> Renderer::assign(const Target& target, const Value& value) {
  if (target.parts.empty()) {
    if (target.attribute.empty()) {
      scope_->set(target.name, value);
      return {};
    }
    const Value space = lookup(target.name);
    if (space.kind() != Kind::kNamespace) {
      return fail(fmt::format("'{}' is not a namespace: cannot set its '{}'",
                              target.name.substr(0, 40), target.attribute.substr(0, 40)));
    }
    arena().count(4 * sizeof(Value));
    space.dict().set(target.attribute, value);
    return {};
  }
  if (value.is_undefined()) return undefined_error(value);
  HEARTH_ASSIGN_OR_RETURN(const List* items, iterate(value));
  if (items->items.size() != target.parts.size()) {
    return fail(fmt::format("{} values for {} names", items->items.size(), target.parts.size()));
  }
  const std::vector<Value> values = items->items;
  for (size_t i = 0; i < values.size(); ++i) HEARTH_TRY(assign(target.parts[i], values[i]));
  return {};
}

// ---- Expressions ----------------------------------------------------------------------------

Value Renderer::lookup(std::string_view name) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->outer) {
    if (const Value* found = scope->find(name)) return *found;
  }
  static constexpr std::string_view kFunctions[] = {
      "range", "dict", "namespace", "raise_exception", "strftime_now", "cycler", "joiner"};
  if (std::ranges::find(kFunctions, name) != std::end(kFunctions)) {
    Callable callable;
    callable.name = name;
    return Value::of(arena().new_callable(std::move(callable)));
  }
  return Value::undefined(name);
}

Result<Value> Renderer::evaluate(const Expr& e) {
  const Deeper deeper(*this);
  HEARTH_TRY(deeper.check());
  HEARTH_TRY(charge());
  set_line(e.line);
  return evaluate_inner(e);
}

Result<Value> Renderer::optional_part(const ExprPtr& e) {
  if (e == nullptr) return Value::none();
  return evaluate(*e);
}

Result<Value> Renderer::evaluate_inner(const Expr& e) {
  switch (e.type) {
    case Expr::Type::kConstant: return constant(e);
    case Expr::Type::kName: return lookup(e.name);
    case Expr::Type::kAttribute: {
      HEARTH_ASSIGN_OR_RETURN(const Value value, evaluate(*e.a));
      return attribute_of(value, e.name);
    }
    case Expr::Type::kItem: {
      HEARTH_ASSIGN_OR_RETURN(const Value value, evaluate(*e.a));
      HEARTH_ASSIGN_OR_RETURN(const Value key, evaluate(*e.b));
      if (value.kind() == Kind::kCallable && key.is_string()) {
        return attribute_of(value, key.text());
      }
      return item(value, key);
    }
    case Expr::Type::kSlice: {
      HEARTH_ASSIGN_OR_RETURN(const Value value, evaluate(*e.a));
      HEARTH_ASSIGN_OR_RETURN(const Value start, optional_part(e.b));
      HEARTH_ASSIGN_OR_RETURN(const Value stop, optional_part(e.c));
      HEARTH_ASSIGN_OR_RETURN(const Value step, optional_part(e.d));
      return slice(value, start, stop, step);
    }
    case Expr::Type::kCall: {
      HEARTH_ASSIGN_OR_RETURN(const Value callee, evaluate(*e.a));
      HEARTH_ASSIGN_OR_RETURN(const CallArguments arguments, arguments_of(e.arguments));
      set_line(e.line);
      return call(callee, arguments);
    }
    case Expr::Type::kFilter: return filter_expr(e, std::nullopt);
    case Expr::Type::kTest: {
      HEARTH_ASSIGN_OR_RETURN(const Value value, evaluate(*e.a));
      HEARTH_ASSIGN_OR_RETURN(const CallArguments arguments, arguments_of(e.arguments));
      HEARTH_ASSIGN_OR_RETURN(const bool answer, apply_test(*this, e.name, value, arguments));
      return Value::of(answer);
    }
    case Expr::Type::kNot: {
      HEARTH_ASSIGN_OR_RETURN(const Value value, evaluate(*e.a));
      return Value::of(!truth(value));
    }
    case Expr::Type::kNegate:
    case Expr::Type::kPlus: {
      HEARTH_ASSIGN_OR_RETURN(const Value value, evaluate(*e.a));
      if (e.type == Expr::Type::kNegate) {
        return value.kind() == Kind::kFloat ? Result<Value>(Value::of(-value.as_float()))
                                            : binary("-", Value::of(int64_t{0}), value);
      }
      return binary("+", Value::of(int64_t{0}), value);
    }
    case Expr::Type::kBinary: return binary_expr(e);
    case Expr::Type::kCompare: return compare_expr(e);
    case Expr::Type::kConcat: return concat_expr(e);
    case Expr::Type::kIf: {
      HEARTH_ASSIGN_OR_RETURN(const Value condition, evaluate(*e.b));
      if (truth(condition)) return evaluate(*e.a);
      if (e.c == nullptr) return Value::undefined("an inline if without else");
      return evaluate(*e.c);
    }
    case Expr::Type::kList:
    case Expr::Type::kTuple: {
      std::vector<Value> items;
      items.reserve(e.items.size());
      for (const ExprPtr& each : e.items) {
        HEARTH_ASSIGN_OR_RETURN(const Value value, evaluate(*each));
        items.push_back(value);
      }
      return list(std::move(items), e.type == Expr::Type::kList ? Kind::kList : Kind::kTuple);
    }
    case Expr::Type::kDict: return dict_expr(e);
  }
  return Value();
}

Result<Value> Renderer::constant(const Expr& e) const {
  switch (e.constant) {
    case Kind::kBool: return Value::of(e.integer != 0);
    case Kind::kInt: return Value::of(e.integer);
    case Kind::kFloat: return Value::of(e.number);
    case Kind::kString: return Value::of(std::string_view(e.name));
    default: return Value::none();
  }
}

Result<Value> Renderer::binary_expr(const Expr& e) {
  HEARTH_ASSIGN_OR_RETURN(const Value a, evaluate(*e.a));
  if (e.name == "and") return truth(a) ? evaluate(*e.b) : Result<Value>(a);
  if (e.name == "or") return truth(a) ? Result<Value>(a) : evaluate(*e.b);
  HEARTH_ASSIGN_OR_RETURN(const Value b, evaluate(*e.b));
  set_line(e.line);
  return binary(e.name, a, b);
}

Result<Value> Renderer::compare_expr(const Expr& e) {
  HEARTH_ASSIGN_OR_RETURN(Value left, evaluate(*e.a));
  for (size_t i = 0; i < e.operators.size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const Value right, evaluate(*e.items[i]));
    set_line(e.line);
    const std::string_view op = e.operators[i];
    bool holds = false;
    if (op == "in" || op == "not in") {
      HEARTH_ASSIGN_OR_RETURN(holds, contains(right, left));
      holds = holds == (op == "in");
    } else if (op == "==" || op == "!=") {
      HEARTH_ASSIGN_OR_RETURN(holds, equal(left, right));
      holds = holds == (op == "==");
    } else {
      const bool greater = op.front() == '>';
      HEARTH_ASSIGN_OR_RETURN(holds, greater ? less(right, left) : less(left, right));
      if (!holds && op.size() == 2) {
        HEARTH_ASSIGN_OR_RETURN(holds, equal(left, right));
      }
    }
    if (!holds) return Value::of(false);
    left = right;
  }
  return Value::of(true);
}

Result<Value> Renderer::concat_expr(const Expr& e) {
  TracedText out;
  for (const ExprPtr& each : e.items) {
    HEARTH_ASSIGN_OR_RETURN(const Value value, evaluate(*each));
    HEARTH_ASSIGN_OR_RETURN(const Value shown, str_value(value));
    HEARTH_TRY(room(out.text.size(), shown.text().size()));
    HEARTH_TRY(charge_bytes(shown.text().size()));
    append(out, shown.text());
  }
  return text(std::move(out));
}

Result<Value> Renderer::dict_expr(const Expr& e) {
  Dict* const out = arena().new_dict();
  for (size_t i = 0; i < e.items.size(); i += 2) {
    HEARTH_ASSIGN_OR_RETURN(const Value key, evaluate(*e.items[i]));
    HEARTH_ASSIGN_OR_RETURN(const Value value, evaluate(*e.items[i + 1]));
    HEARTH_TRY(check_key(key));
    arena().count(4 * sizeof(Value));
    out->set(key, value);
  }
  return Value::of(out);
}

// `input`: the value for the innermost filter if the expression has none.
Result<Value> Renderer::filter_expr(const Expr& e, const std::optional<Value>& input) {
  Value value;
  if (e.a == nullptr) {
    value = input.value_or(Value());
  } else if (e.a->type == Expr::Type::kFilter) {
    const Deeper deeper(*this);
    HEARTH_TRY(deeper.check());
    HEARTH_ASSIGN_OR_RETURN(value, filter_expr(*e.a, input));
  } else {
    HEARTH_ASSIGN_OR_RETURN(value, evaluate(*e.a));
  }
  HEARTH_ASSIGN_OR_RETURN(const CallArguments arguments, arguments_of(e.arguments));
  set_line(e.line);
  return apply_filter(*this, e.name, value, arguments);
}

Result<CallArguments> Renderer::arguments_of(const Arguments& arguments) {
  CallArguments out;
  for (const ExprPtr& each : arguments.positional) {
    HEARTH_ASSIGN_OR_RETURN(const Value value, evaluate(*each));
    out.positional.push_back(value);
  }
  for (const auto& [name, each] : arguments.named) {
    HEARTH_ASSIGN_OR_RETURN(const Value value, evaluate(*each));
    out.named.emplace_back(name, value);
  }
  return out;
}

}  // namespace hearth::models::jinja
