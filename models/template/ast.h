#pragma once
// A parsed template. Immutable; all its renderings share it.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/template/value.h"

namespace hearth::models::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Expr {
  enum class Type {
    kConstant,   ///< `text`, `integer` or `number`, selected by `constant`
    kName,       ///< `name`
    kAttribute,  ///< a.name
    kItem,       ///< a[b]
    kSlice,      ///< a[b:c:d]; each may be absent
    kCall,       ///< a(arguments)
    kFilter,     ///< a | name(arguments); without a: the content of a filter block
    kTest,       ///< a is name(arguments)
    kNot,
    kNegate,
    kPlus,
    kBinary,   ///< a name b: + - * / // % ** and or
    kCompare,  ///< a, then `operators` with `items`: a < b < c
    kConcat,   ///< `items` joined by ~
    kIf,       ///< a if b else c; no c: undefined
    kList,     ///< `items`
    kTuple,
    kDict,  ///< `items`: key, value, key, value
  };
  Type type = Type::kConstant;
  int line = 1;
  int depth = 1;  ///< of the tree below
  Kind constant = Kind::kNone;
  int64_t integer = 0;
  double number = 0;
  std::string name;  ///< or the constant string
  ExprPtr a, b, c, d;
  std::vector<ExprPtr> items;
  std::vector<std::string> operators;
  Arguments arguments;
};

/// What `for` and `set` assign to: a name, a name's attribute, or several of them.
struct Target {
  std::string name;
  std::string attribute;  ///< set ns.attribute
  std::vector<Target> parts;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

/// A macro, or the body of a call block.
struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  ///< of the last parameters
  Body body;
};

struct Statement {
  enum class Type {
    kText,
    kOutput,  ///< {{ value }}
    kIf,      ///< branches; the last may have no condition
    kFor,
    kSet,       ///< target = value
    kSetBlock,  ///< target = the rendered body, through `value`'s filters
    kMacro,
    kCallBlock,    ///< value(...) with the macro as caller
    kFilterBlock,  ///< the body through `value`'s filters
    kWith,
    kGeneration,  ///< marks text that the model wrote; rendered without change
    kBreak,
    kContinue,
  };
  Type type = Type::kText;
  int line = 1;
  std::string text;
  ExprPtr value;
  ExprPtr condition;  ///< for ... if condition
  Target target;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<Target, ExprPtr>> assignments;  ///< with
  Body body;
  Body otherwise;
  bool recursive = false;
  Macro macro;
};

}  // namespace hearth::models::jinja
