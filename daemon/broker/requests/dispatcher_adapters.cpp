// The dispatcher's part for adapters: a request names them, its worker gets their files.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "daemon/broker/requests/dispatcher.h"
#include "ipc/text/adapter_names.h"

namespace hearth::broker {

// MODEL:ADAPTER names both, for clients that can set nothing but a model, unless a model or a role
// has that name.
void Dispatcher::split_adapter(ipc::ComputeRequest& request) {
  auto* const generate = std::get_if<ipc::GenerateRequest>(&request);
  if (generate == nullptr || !generate->adapter.empty()) return;
  const size_t colon = generate->model.rfind(':');
  if (colon == std::string::npos || models_.resolve(generate->model)) return;
  const std::string adapter = generate->model.substr(colon + 1);
  if (!models_.resolve_adapter(adapter)) return;
  generate->adapter = adapter;
  generate->model.resize(colon);
}

Result<std::vector<std::filesystem::path>> Dispatcher::adapters_of(
    const ipc::ComputeRequest& request) {
  std::vector<std::filesystem::path> files;
  const auto* const generate = std::get_if<ipc::GenerateRequest>(&request);
  if (generate == nullptr || generate->adapter.empty()) return files;
  HEARTH_ASSIGN_OR_RETURN(const auto choices, ipc::parse_adapters(generate->adapter));
  for (const ipc::AdapterChoice& choice : choices) {
    HEARTH_ASSIGN_OR_RETURN(const ModelFile file, models_.resolve_adapter(choice.name));
    files.push_back(file.path);
  }
  return files;
}

}  // namespace hearth::broker
