#include "models/template/filters.h"

#include <algorithm>

namespace hearth::models::jinja {

Result<std::string_view> text_of(Runtime& run, const Value& value) {
  HEARTH_ASSIGN_OR_RETURN(const Value text, run.str_value(value));
  HEARTH_TRY(run.charge_bytes(text.text().size()));
  return text.text();
}

Result<std::string_view> text_or(Runtime& run, const Value* value, std::string_view otherwise) {
  if (value == nullptr) return otherwise;
  return text_of(run, *value);
}

Result<Value> apply_filter(Runtime& run, std::string_view name, const Value& value,
                           const CallArguments& arguments) {
  HEARTH_TRY(run.charge());
  for (const auto table : {text_filters(), number_filters(), sequence_filters()}) {
    const auto found = std::ranges::find(table, name, &NamedFilter::name);
    if (found != table.end()) return found->filter(run, value, arguments);
  }
  return run.unsupported(fmt::format("the filter '{}' is not supported", name.substr(0, 40)));
}

}  // namespace hearth::models::jinja
