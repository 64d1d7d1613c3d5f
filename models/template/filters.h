#pragma once
// Jinja's filters, as its documentation lists them, in three tables.

#include <span>
#include <string_view>
#include <vector>

#include "models/template/runtime.h"

namespace hearth::models::jinja {

/// A call's arguments in the order of the declared names; null if absent.
using Bound = std::vector<const Value*>;
using Filter = Result<Value> (*)(Runtime&, const Value&, const CallArguments&);

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

std::span<const NamedFilter> text_filters();
std::span<const NamedFilter> number_filters();
std::span<const NamedFilter> sequence_filters();

/// str(value), charged by its bytes; text_or returns `otherwise` if `value` is null.
Result<std::string_view> text_of(Runtime& run, const Value& value);
Result<std::string_view> text_or(Runtime& run, const Value* value, std::string_view otherwise);

}  // namespace hearth::models::jinja
