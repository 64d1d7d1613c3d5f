#include "ipc/schema/sampling.h"

#include <cmath>

#include "ipc/schema/field_table.h"

namespace hearth::ipc {

bool set_sampling(std::string_view name, double value, SamplingSettings* settings) {
  const Field* field = find_field(Verb::kGenerate, name);
  if (field == nullptr || !(value >= field->min && value <= field->max)) return false;
  if (field->type == FieldType::kInteger && value != std::floor(value)) return false;
  const auto integer = [value] { return static_cast<int32_t>(value); };
  const auto number = [value] { return static_cast<float>(value); };
  if (name == "temperature") {
    settings->temperature = number();
  } else if (name == "top_k") {
    settings->top_k = integer();
  } else if (name == "top_p") {
    settings->top_p = number();
  } else if (name == "min_p") {
    settings->min_p = number();
  } else if (name == "repetition_penalty") {
    settings->repetition_penalty = number();
  } else if (name == "penalty_window") {
    settings->penalty_window = integer();
  } else {
    return false;
  }
  return true;
}

}  // namespace hearth::ipc
