// Tests, which follow `is`.

#include <algorithm>
#include <optional>

#include "models/template/runtime.h"
#include "models/template/text.h"

namespace hearth::models::jinja {
namespace {

enum class Compare { kNone, kEq, kNe, kLt, kLe, kGt, kGe };

Compare comparison(std::string_view name) {
  if (name == "eq" || name == "equalto" || name == "==") return Compare::kEq;
  if (name == "ne" || name == "!=") return Compare::kNe;
  if (name == "lt" || name == "lessthan" || name == "<") return Compare::kLt;
  if (name == "le" || name == "<=") return Compare::kLe;
  if (name == "gt" || name == "greaterthan" || name == ">") return Compare::kGt;
  if (name == "ge" || name == ">=") return Compare::kGe;
  return Compare::kNone;
}

Result<bool> compare(Runtime& run, Compare how, const Value& a, const Value& b) {
  switch (how) {
    case Compare::kLt: return run.less(a, b);
    case Compare::kGt: return run.less(b, a);
    case Compare::kLe:
    case Compare::kGe: {
      HEARTH_ASSIGN_OR_RETURN(const bool strictly,
                              how == Compare::kLe ? run.less(a, b) : run.less(b, a));
      if (strictly) return true;
      return run.equal(a, b);
    }
    default: {
      HEARTH_ASSIGN_OR_RETURN(const bool same, run.equal(a, b));
      return same == (how == Compare::kEq);
    }
  }
}

/// Tests of the value alone; empty if none has that name.
std::optional<bool> plain(std::string_view name, const Value& v) {
  const Kind kind = v.kind();
  if (name == "defined") return kind != Kind::kUndefined;
  if (name == "undefined") return kind == Kind::kUndefined;
  if (name == "none") return kind == Kind::kNone;
  if (name == "boolean") return kind == Kind::kBool;
  if (name == "true") return kind == Kind::kBool && v.as_int() != 0;
  if (name == "false") return kind == Kind::kBool && v.as_int() == 0;
  if (name == "integer") return kind == Kind::kInt;
  if (name == "float") return kind == Kind::kFloat;
  if (name == "number") return v.is_number();
  if (name == "string") return kind == Kind::kString;
  if (name == "mapping") return kind == Kind::kDict;
  if (name == "sequence" || name == "iterable") {
    // An undefined value has length 0 and counts as both.
    return v.is_string() || v.is_sequence() || v.is_dict() || v.is_undefined();
  }
  if (name == "callable") return kind == Kind::kCallable || kind == Kind::kUndefined;
  if (name == "escaped") return v.is_markup();
  return std::nullopt;
}

}  // namespace

Result<bool> apply_test(Runtime& run, std::string_view name, const Value& value,
                        const CallArguments& arguments) {
  HEARTH_TRY(run.charge());
  if (const std::optional<bool> answer = plain(name, value)) {
    HEARTH_TRY(run.bind(arguments, name, {}));
    return *answer;
  }
  if (name == "odd" || name == "even") {
    HEARTH_TRY(run.bind(arguments, name, {}));
    if (!value.is_int()) return run.fail(fmt::format("'{}' of {}", name, type_name(value)));
    return ((value.as_int() & 1) != 0) == (name == "odd");
  }
  if (name == "upper" || name == "lower") {
    HEARTH_TRY(run.bind(arguments, name, {}));
    HEARTH_ASSIGN_OR_RETURN(const Value text, run.str_value(value));
    HEARTH_ASSIGN_OR_RETURN(const Value answer,
                            call_method(run, text, name == "upper" ? "isupper" : "islower", {}));
    return truth(answer);
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<const Value*> a, run.bind(arguments, name, {"other"}));
  const Compare how = comparison(name);
  const bool known =
      how != Compare::kNone || name == "in" || name == "sameas" || name == "divisibleby";
  if (!known) {
    return run.unsupported(fmt::format("the test '{}' is not supported", name.substr(0, 40)));
  }
  if (a[0] == nullptr) return run.fail(fmt::format("the test '{}' wants an argument", name));
  if (how != Compare::kNone) return compare(run, how, value, *a[0]);
  if (name == "in") return run.contains(*a[0], value);
  if (name == "divisibleby") {
    if (!value.is_int() || !a[0]->is_int()) return run.fail("'divisibleby' wants integers");
    if (a[0]->as_int() == 0) return run.fail("division by zero");
    return a[0]->as_int() == -1 || value.as_int() % a[0]->as_int() == 0;
  }
  // sameas: the same object; for small values, an equal value of the same kind.
  if (value.kind() != a[0]->kind()) return false;
  if (value.is_sequence() || value.is_dict()) return value.identity() == a[0]->identity();
  return run.equal(value, *a[0]);
}

}  // namespace hearth::models::jinja
