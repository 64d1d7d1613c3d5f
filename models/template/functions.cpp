// The callables of templates: global functions, macros, loops, cyclers.

#include <algorithm>

#include "models/template/renderer.h"

namespace hearth::models::jinja {
namespace {

/// The bound of Jinja's sandbox.
constexpr int64_t kMaxRange = 100'000;

Result<Value> range(Runtime& run, const CallArguments& arguments) {
  HEARTH_ASSIGN_OR_RETURN(const auto a, run.bind(arguments, "range", {"start", "stop", "step"}));
  if (a[0] == nullptr) return run.fail("range wants a number");
  int64_t start = 0, stop = 0;
  HEARTH_ASSIGN_OR_RETURN(start, run.integer(a[0], "range", 0));
  HEARTH_ASSIGN_OR_RETURN(stop, run.integer(a[1], "range", 0));
  HEARTH_ASSIGN_OR_RETURN(const int64_t step, run.integer(a[2], "range", 1));
  if (a[1] == nullptr) {
    stop = start;
    start = 0;
  }
  if (step == 0) return run.fail("range: a step of zero");
  std::vector<Value> out;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (std::ssize(out) >= kMaxRange) {
      return run.too_large(fmt::format("range of more than {} numbers", kMaxRange));
    }
    out.push_back(Value::of(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  HEARTH_TRY(run.charge(out.size()));
  return run.list(std::move(out));
}

Result<Value> make_dict(Runtime& run, const CallArguments& arguments, Kind kind) {
  Dict* const out = run.arena().new_dict();
  if (arguments.positional.size() > 1 ||
      (arguments.positional.size() == 1 && !arguments.positional[0].is_dict())) {
    return run.unsupported("dict and namespace of anything but a dictionary and names");
  }
  if (!arguments.positional.empty()) {
    for (const auto& [key, value] : arguments.positional[0].dict().entries()) out->set(key, value);
  }
  for (const auto& [name, value] : arguments.named) out->set(name, value);
  HEARTH_TRY(run.charge(out->size()));
  run.arena().count(out->size() * 4 * sizeof(Value));
  return Value::of(out, kind);
}

}  // namespace

Result<Value> Renderer::call_function(std::string_view name, const CallArguments& arguments) {
  if (name == "range") return range(*this, arguments);
  if (name == "dict") return make_dict(*this, arguments, Kind::kDict);
  if (name == "namespace") return make_dict(*this, arguments, Kind::kNamespace);
  if (name == "raise_exception") {
    HEARTH_ASSIGN_OR_RETURN(const auto a, bind(arguments, name, {"message"}));
    TracedText message;
    if (a[0] != nullptr) {
      HEARTH_ASSIGN_OR_RETURN(message, str(*a[0]));
    }
    return fail(fmt::format("the template refuses: {}", message.text.substr(0, 1000)));
  }
  if (name == "strftime_now") {
    HEARTH_ASSIGN_OR_RETURN(const auto a, bind(arguments, name, {"format"}));
    if (a[0] == nullptr || !a[0]->is_string()) return fail("strftime_now wants a format");
    const std::string format(a[0]->text());
    if (format.empty()) return Value::of(std::string_view());
    if (format.size() > 256) return fail("strftime_now: a format of more than 256 bytes");
    char buffer[4096];
    const size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &now_);
    return text_from(a[0]->text(), std::string(buffer, size));
  }
  Callable object;
  if (name == "cycler") {
    if (arguments.positional.empty() || !arguments.named.empty()) {
      return fail("cycler wants at least one item");
    }
    object.type = Callable::Type::kCycler;
    object.items = arena().new_list();
    object.items->items = arguments.positional;
  } else {
    HEARTH_ASSIGN_OR_RETURN(const auto a, bind(arguments, name, {"sep"}));
    object.type = Callable::Type::kJoiner;
    object.self = a[0] == nullptr ? Value::of(std::string_view(", ")) : *a[0];
  }
  return Value::of(arena().new_callable(std::move(object)));
}

Result<Value> Renderer::call(const Value& callee, const CallArguments& arguments) {
  const Deeper deeper(*this);
  HEARTH_TRY(deeper.check());
  HEARTH_TRY(charge());
  if (callee.is_undefined()) return undefined_error(callee);
  if (callee.kind() != Kind::kCallable) {
    return fail(fmt::format("'{}' cannot be called", type_name(callee)));
  }
  Callable& c = callee.callable();
  switch (c.type) {
    case Callable::Type::kFunction: return call_function(c.name, arguments);
    case Callable::Type::kMacro: return call_macro(c, arguments);
    case Callable::Type::kMethod:
      if (c.self.kind() == Kind::kCallable) {
        return call_object_method(c.self.callable(), c.name, arguments);
      }
      return call_method(*this, c.self, c.name, arguments);
    case Callable::Type::kJoiner:
      if (c.position++ == 0) return Value::of(std::string_view());
      return c.self;
    case Callable::Type::kCycler: return fail("a cycler cannot be called: want its next()");
    case Callable::Type::kLoop: {
      if (!c.loop->statement->recursive) return fail("the loop is not recursive");
      HEARTH_ASSIGN_OR_RETURN(const auto a, bind(arguments, "loop", {"items"}));
      if (a[0] == nullptr) return fail("loop wants what to go over");
      TracedText written;
      TracedText* const out = std::exchange(out_, &written);
      Scope* const outer = std::exchange(scope_, c.loop->scope);
      const Result<void> done = run_for(*c.loop->statement, *a[0], c.loop->depth + 1);
      scope_ = outer;
      out_ = out;
      if (!done.ok()) return done.error();
      return text(std::move(written));
    }
  }
  return Value();
}

Result<Value> Renderer::call_macro(const Callable& callee, const CallArguments& arguments) {
  const Macro& macro = *callee.macro;
  const std::vector<std::string>& names = macro.parameters;
  if (arguments.positional.size() > names.size()) {
    return fail(fmt::format("macro '{}' takes {} arguments, met {}", macro.name.substr(0, 40),
                            names.size(), arguments.positional.size()));
  }
  Scope* const inner = new_scope(callee.scope);
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    inner->set(names[i], arguments.positional[i]);
  }
  for (const auto& [name, value] : arguments.named) {
    if (name == "caller") {
      inner->set(name, value);
      continue;
    }
    if (std::ranges::find(names, name) == names.end() || inner->find(name) != nullptr) {
      return fail(fmt::format("macro '{}': unexpected argument '{}'", macro.name.substr(0, 40),
                              name.substr(0, 40)));
    }
    inner->set(name, value);
  }
  TracedText written;
  TracedText* const out = std::exchange(out_, &written);
  Scope* const outer = std::exchange(scope_, inner);
  const int at_line = line();
  const auto body = [&]() -> Result<void> {
    const size_t without_default = names.size() - macro.defaults.size();
    for (size_t i = 0; i < names.size(); ++i) {
      if (inner->find(names[i]) != nullptr) continue;
      Value value = Value::undefined(names[i]);
      if (i >= without_default) {
        HEARTH_ASSIGN_OR_RETURN(value, evaluate(*macro.defaults[i - without_default]));
      }
      inner->set(names[i], value);
    }
    HEARTH_TRY(run_body(macro.body));
    return {};
  };
  const Result<void> done = body();
  scope_ = outer;
  out_ = out;
  if (!done.ok()) return done.error();
  set_line(at_line);
  return text(std::move(written));
}

Result<Value> Renderer::attribute_of(const Value& value, std::string_view name) {
  if (value.kind() != Kind::kCallable) return attribute(value, name);
  Callable& c = value.callable();
  if (c.type == Callable::Type::kLoop) return loop_attribute(value, name);
  const bool method = c.type == Callable::Type::kCycler && (name == "next" || name == "reset");
  if (c.type == Callable::Type::kCycler && name == "current") {
    return c.items->items[c.position % c.items->items.size()];
  }
  if (c.type == Callable::Type::kMacro && name == "name") return Value::of(c.name);
  if (!method) return Value::undefined(name);
  Callable bound;
  bound.type = Callable::Type::kMethod;
  bound.name = name;
  bound.self = value;
  return Value::of(arena().new_callable(std::move(bound)));
}

Result<Value> Renderer::loop_attribute(const Value& loop, std::string_view name) {
  const LoopState& l = *loop.callable().loop;
  const int64_t index = l.index, size = l.size;
  const auto neighbour = [&](size_t at, std::string_view what) {
    return at < l.items->items.size() && at < l.size ? l.items->items[at] : Value::undefined(what);
  };
  if (name == "index") return Value::of(index + 1);
  if (name == "index0") return Value::of(index);
  if (name == "revindex") return Value::of(size - index);
  if (name == "revindex0") return Value::of(size - index - 1);
  if (name == "first") return Value::of(index == 0);
  if (name == "last") return Value::of(index + 1 == size);
  if (name == "length") return Value::of(size);
  if (name == "depth") return Value::of(l.depth + 1);
  if (name == "depth0") return Value::of(l.depth);
  if (name == "previtem") {
    return l.index == 0 ? Value::undefined(name) : neighbour(l.index - 1, name);
  }
  if (name == "nextitem") return neighbour(l.index + 1, name);
  if (name != "cycle" && name != "changed") return Value::undefined(name);
  Callable bound;
  bound.type = Callable::Type::kMethod;
  bound.name = name;
  bound.self = loop;
  return Value::of(arena().new_callable(std::move(bound)));
}

Result<Value> Renderer::call_object_method(Callable& object, std::string_view name,
                                           const CallArguments& arguments) {
  if (!arguments.named.empty()) return fail(fmt::format("{} takes no names", name));
  const std::vector<Value>& given = arguments.positional;
  if (object.type == Callable::Type::kLoop) {
    LoopState& loop = *object.loop;
    if (name == "cycle") {
      if (given.empty()) return fail("cycle wants at least one item");
      return given[loop.index % given.size()];
    }
    HEARTH_ASSIGN_OR_RETURN(const Value now, list(given, Kind::kTuple));
    bool same = false;
    if (loop.last_changed.has_value()) {
      HEARTH_ASSIGN_OR_RETURN(same, equal(*loop.last_changed, now));
    }
    loop.last_changed = now;
    return Value::of(!same);
  }
  if (!given.empty()) return fail(fmt::format("{} takes no arguments", name));
  if (name == "reset") {
    object.position = 0;
    return Value::none();
  }
  return object.items->items[object.position++ % object.items->items.size()];
}

}  // namespace hearth::models::jinja
