// The dispatcher's part in which model serves a name, and how long it stays in memory.

#include <fmt/core.h>

#include "daemon/broker/requests/dispatcher.h"

namespace hearth::broker {

// A model whose file was deleted is served as long as it stays in memory.
Result<ModelFile> Dispatcher::file_of(const std::string& name) {
  Result<ModelFile> file = models_.resolve(name);
  if (file.ok() || file.error().code != ErrorCode::kNotFound) return file;
  const Residency::Resident* resident = residency_.find_serving(models_.target_of(name));
  if (resident == nullptr) return file;
  ModelFile kept = resident->file;
  kept.name = kept.model();
  kept.replica_of.clear();
  return kept;
}

/// The same for requests, which may not load every model.
Result<ModelFile> Dispatcher::servable_file_of(const std::string& name) {
  HEARTH_ASSIGN_OR_RETURN(ModelFile file, file_of(name));
  HEARTH_TRY(residency_.may_want(file.name));
  return file;
}

void Dispatcher::repoint(const std::string& role) {
  const Result<ModelFile> file = models_.resolve(role);
  if (!file) return;  // waiting requests keep their model
  const std::vector<uint64_t> waiting = table_.numbers([&](const LiveRequest& request) {
    return request.named == role && request.model != file->name && request.untouched() &&
           !request.muted;
  });
  for (const uint64_t number : waiting) {
    LiveRequest* request = table_.find(number);
    if (request == nullptr) continue;  // an earlier one found that the model cannot start
    move_to(*request, route(*request, *file));
    place(*request, *file);
  }
}

bool Dispatcher::keep_alive(const Caller& caller, const std::string& name, int64_t ms) {
  const Result<ModelFile> file = file_of(name);
  if (!file.ok()) return false;
  bool granted = true;
  for (const ModelFile& each : residency_.replicas(*file)) {
    granted = residency_.keep_alive(each.name, caller.uid, ms) && granted;
  }
  return granted;
}

Result<void> Dispatcher::release(const Caller& caller, const std::string& name) {
  HEARTH_ASSIGN_OR_RETURN(const ModelFile file, file_of(name));
  if (residency_.find_serving(file.name) == nullptr) return {};
  if (keep_alive(caller, name, 0)) return {};
  return Error::forbidden(
      fmt::format("model {} stays in memory: other users have used it since it was loaded, or an "
                  "administrator loaded it",
                  file.name),
      "keep_alive");
}

}  // namespace hearth::broker
