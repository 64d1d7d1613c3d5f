#pragma once
// Filters, as Jinja's documentation lists them, in three tables, and where they are looked up.

#include <span>
#include <string_view>
#include <vector>

#include "models/template/runtime.h"

namespace hearth::models::jinja {

/// A call's arguments in the order of their names; null where absent.
using Bound = std::vector<const Value*>;
using Filter = Result<Value> (*)(Runtime&, const Value&, const CallArguments&);

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

std::span<const NamedFilter> text_filters();
std::span<const NamedFilter> number_filters();
std::span<const NamedFilter> sequence_filters();

/// str(value), whose bytes count as work; `otherwise` where there is no value.
Result<std::string_view> text_of(Runtime& run, const Value& value);
Result<std::string_view> text_or(Runtime& run, const Value* value, std::string_view otherwise);

}  // namespace hearth::models::jinja
