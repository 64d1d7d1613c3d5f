#include "models/convert/head_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace hearth::models {

Result<void> HeadPlanner::add(const std::string& from, const std::string& to,
                              std::vector<uint64_t> shape, Edit edit) {
  const SafeTensor* tensor = in_.tensor(from);
  if (tensor == nullptr) return Error::corrupt(fmt::format("{}: missing", from));
  if (tensor->shape != shape) {
    return Error::corrupt(fmt::format("{}: shape [{}], want [{}]", from,
                                      fmt::join(tensor->shape, ","), fmt::join(shape, ",")));
  }
  HEARTH_TRY(tensor->dtype());
  use(tensor);
  PlannedTensor& planned = out_.tensors.emplace_back();
  planned.name = to;
  planned.dims.assign(shape.rbegin(), shape.rend());
  planned.edit = std::move(edit);
  planned.parts.push_back({tensor, 0, tensor->num_elements()});
  return {};
}

void HeadPlanner::set(std::string_view key, FamilyKeys::Value value) {
  out_.keys.entries.emplace_back(fmt::format("{}.{}", out_.keys.architecture, key),
                                 std::move(value));
}

Result<HeadPlan> HeadPlanner::finish(std::string_view kind) {
  for (const auto& [name, values] : out_.keys.vectors) {
    PlannedTensor& tensor = out_.tensors.emplace_back();
    tensor.name = name;
    tensor.dims = {values.size()};
    tensor.values = values;
  }
  for (const auto& [name, tensor] : in_.tensors()) {
    if (used_.contains(tensor)) continue;
    return Error::unsupported(fmt::format("{}: not a tensor of {}", printable(name), kind));
  }
  return std::move(out_);
}

Json with_keys_of(const Json& config, std::initializer_list<const char*> objects) {
  Json out = config;
  for (const char* name : objects) {
    const Json* found = find(config, name);
    if (found != nullptr && found->is_object()) out.update(*found);
  }
  return out;
}

bool has_architecture_with(const Json& config, std::string_view part) {
  const Json* names = find(config, "architectures");
  const auto contains = [part](const Json& name) {
    return name.is_string() && name.get<std::string>().find(part) != std::string::npos;
  };
  return names != nullptr && names->is_array() && std::ranges::any_of(*names, contains);
}

}  // namespace hearth::models
