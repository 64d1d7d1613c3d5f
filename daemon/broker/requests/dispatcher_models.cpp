// The dispatcher's part in which model serves a name, and how long it stays in memory.

#include <fmt/core.h>

#include "daemon/broker/requests/dispatcher.h"

namespace hearth::broker {

// A model whose file was deleted is served as long as it stays in memory.
Result<ModelFile> Dispatcher::file_of(const std::string& name) {
  Result<ModelFile> file = models_.resolve(name);
  if (file.ok() || file.error().code != ErrorCode::kNotFound) return file;
  const Residency::Resident* resident = residency_.find(models_.target_of(name));
  if (resident == nullptr || resident->worker == nullptr) return file;
  if (!resident->worker->is_ready() && !resident->worker->is_asleep()) return file;
  return resident->file;
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
    request->move_to_model(file->name, residency_.use(file->name));
    residency_.note_user(file->name, request->owner);
    place(*request, *file);
  }
}

bool Dispatcher::keep_alive(const Caller& caller, const std::string& name, int64_t ms) {
  const Result<ModelFile> file = file_of(name);
  return file.ok() && residency_.keep_alive(file->name, caller.uid, ms);
}

Result<void> Dispatcher::release(const Caller& caller, const std::string& name) {
  HEARTH_ASSIGN_OR_RETURN(const ModelFile file, file_of(name));
  const Residency::Resident* const resident = residency_.find(file.name);
  if (resident == nullptr || resident->worker == nullptr) return {};
  if (residency_.keep_alive(file.name, caller.uid, 0)) return {};
  return Error::forbidden(
      fmt::format("model {} stays in memory: other users have used it since it was loaded, or an "
                  "administrator loaded it",
                  file.name),
      "keep_alive");
}

}  // namespace hearth::broker
