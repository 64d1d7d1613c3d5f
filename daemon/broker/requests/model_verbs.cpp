#include "daemon/broker/requests/model_verbs.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "kernels/base/log.h"

namespace hearth::broker {
namespace {

// Operations in progress; each costs an event per tick.
constexpr size_t kMaxTasks = 64;

}  // namespace

Result<void> ModelVerbs::may_ask(const Caller& caller) const {
  if (!caller.is_admin) {
    return Error::forbidden(
        "models are loaded, unloaded and swapped by administrators: root, the daemon's "
        "user and the members of server.admin_group");
  }
  if (tasks_.size() >= kMaxTasks) {
    return Error::busy(
        fmt::format("{} such verbs are under way, limit {}", tasks_.size(), kMaxTasks));
  }
  return {};
}

// ---- Requests -----------------------------------------------------------------------------------

void ModelVerbs::load(const Caller& caller, const std::string& id,
                      const ipc::LoadRequest& request) {
  const auto refuse = [&](Error error) {
    dispatcher_.reply_error(caller.peer, id, std::move(error));
  };
  if (Result<void> may = may_ask(caller); !may) return refuse(may.take_error());
  Result<ModelFile> file = models_.resolve(request.model);
  if (!file) return refuse(file.take_error());
  std::string draft = request.draft;
  if (draft != "auto" && draft != "none" && draft != ipc::kDraftLayerName) {
    Result<ModelFile> small = models_.resolve(draft);
    if (!small) return refuse({small.error().code, small.error().message, "draft"});
    draft = small->path.string();
  }
  begin({.verb = ipc::Verb::kLoad,
         .peer = caller.peer,
         .id = id,
         .role = {},
         .model = file->name,
         .since_us = clock_.now_us(),
         .last = {}},
        *file, request.keep_alive_ms, draft);
}

void ModelVerbs::swap(const Caller& caller, const std::string& id,
                      const ipc::SwapRequest& request) {
  const auto refuse = [&](Error error) {
    dispatcher_.reply_error(caller.peer, id, std::move(error));
  };
  if (Result<void> may = may_ask(caller); !may) return refuse(may.take_error());
  Result<std::string> before = models_.model_of_role(request.role);
  if (!before) return refuse(before.take_error());
  Result<ModelFile> file = models_.resolve(request.model);
  if (!file) return refuse(file.take_error());
  begin({.verb = ipc::Verb::kSwap,
         .peer = caller.peer,
         .id = id,
         .role = request.role,
         .model = file->name,
         .since_us = clock_.now_us(),
         .last = {}},
        *file, -1);
}

void ModelVerbs::unload(const Caller& caller, const std::string& id,
                        const ipc::UnloadRequest& request) {
  const auto refuse = [&](Error error) {
    dispatcher_.reply_error(caller.peer, id, std::move(error));
  };
  if (Result<void> may = may_ask(caller); !may) return refuse(may.take_error());
  // A model whose file was deleted may still be in memory.
  Result<ModelFile> file = models_.resolve(request.model);
  const std::string model = file ? file->name : models_.target_of(request.model);
  if (!file && residency_.names_of(model).empty()) return refuse(file.take_error());
  if (!request.adapter.empty()) {
    bool was_there = false;
    for (const std::string& replica : residency_.names_of(model)) {
      Result<bool> dropped = drop_adapter(replica, request.adapter);
      if (!dropped) return refuse(dropped.take_error());
      was_there = was_there || *dropped;
    }
    return dispatcher_.reply(caller.peer, id,
                             ipc::UnloadReply{.model = model, .was_resident = was_there});
  }
  for (const Task& task : take_all(model)) {
    if (task.peer.door == Door::kNone) continue;
    dispatcher_.reply_error(task.peer, task.id,
                            Error::cancelled("the model was unloaded meanwhile"));
  }
  Task task{.verb = ipc::Verb::kUnload,
            .peer = caller.peer,
            .id = id,
            .role = {},
            .model = model,
            .since_us = clock_.now_us(),
            .last = {}};
  if (Result<void> begun = unload(model, request.keep, &task); !begun) {
    return refuse(begun.take_error());
  }
  if (task.pending.empty()) {
    const Residency::Resident* const serving = residency_.find_serving(model);
    return dispatcher_.reply(
        caller.peer, id,
        ipc::UnloadReply{.model = model, .was_resident = false, .asleep = serving != nullptr});
  }
  tasks_.push_back(std::move(task));
  report(tasks_.back());
}

// The task waits for the replicas that have to end or to fall asleep.
Result<void> ModelVerbs::unload(const std::string& model, bool keep, Task* task) {
  for (const std::string& replica : residency_.names_of(model)) {
    HEARTH_ASSIGN_OR_RETURN(const bool begun, keep ? residency_.sleep(replica)
                                                   : Result<bool>(residency_.unload(replica)));
    if (begun) task->pending.push_back(replica);
  }
  return {};
}

// By the worker's last heartbeat. It keeps the adapter if a request has begun to use it since.
Result<bool> ModelVerbs::drop_adapter(const std::string& replica, const std::string& adapter) {
  Worker* const worker = residency_.worker_of(replica);
  if (worker == nullptr) return false;
  const Result<ModelFile> file = models_.resolve_adapter(adapter);
  const std::string name = file ? file->path.stem().string() : adapter;
  // Of several, all but one are of files that were replaced.
  bool found = false;
  int32_t requests = 0;
  for (const ipc::AdapterUse& each : worker->snapshot().adapters) {
    if (each.name != name) continue;
    found = true;
    requests += each.requests;
  }
  if (requests > 0) {
    return Error::busy(fmt::format("adapter {}: {} requests use it", adapter, requests));
  }
  if (found) worker->send_drop_adapter(name);
  return found;
}

bool ModelVerbs::preload() {
  const Result<ModelFile> file = models_.resolve("default");
  if (!file) return false;
  begin({.verb = ipc::Verb::kLoad,
         .peer = {},
         .id = {},
         .role = {},
         .model = file->name,
         .since_us = clock_.now_us(),
         .last = {}},
        *file, -1);
  return true;
}

bool ModelVerbs::preloading() const {
  return std::any_of(tasks_.begin(), tasks_.end(),
                     [](const Task& task) { return task.peer.door == Door::kNone; });
}

void ModelVerbs::begin(Task task, const ModelFile& file, int64_t keep_alive_ms,
                       const std::string& draft) {
  std::string replaces;
  if (task.verb == ipc::Verb::kSwap) replaces = models_.model_of_role(task.role).value();
  const std::vector<ModelFile> replicas = residency_.replicas(file);
  for (const ModelFile& replica : replicas) {
    task.pending.push_back(replica.name);
    task.uses.push_back(residency_.use(replica.name));
  }
  tasks_.push_back(std::move(task));
  for (const ModelFile& replica : replicas) {
    residency_.load(replica, keep_alive_ms, replaces, draft);
    const Worker* worker = residency_.worker_of(replica.name);
    if (worker != nullptr && worker->is_ready()) on_model_ready(replica.name);
  }
  tick();
}

// ---- Completion ---------------------------------------------------------------------------------

// Those that waited for this replica last.
ModelVerbs::Tasks ModelVerbs::take(const std::string& replica, bool unloads) {
  Tasks taken;
  for (auto it = tasks_.begin(); it != tasks_.end();) {
    const auto here = it++;
    if ((here->verb == ipc::Verb::kUnload) != unloads) continue;
    if (std::erase(here->pending, replica) == 0 || !here->pending.empty()) continue;
    taken.splice(taken.end(), tasks_, here);
  }
  for (Task& task : taken) task.uses.clear();
  return taken;
}

// Those that load this model.
ModelVerbs::Tasks ModelVerbs::take_all(const std::string& model) {
  Tasks taken;
  for (auto it = tasks_.begin(); it != tasks_.end();) {
    const auto here = it++;
    const bool loads = here->verb != ipc::Verb::kUnload;
    if (loads && here->model == model) taken.splice(taken.end(), tasks_, here);
  }
  return taken;
}

void ModelVerbs::on_model_ready(const std::string& model) {
  for (const Task& task : take(model, false)) finish_loaded(task);
}

void ModelVerbs::finish_loaded(const Task& task) {
  const ipc::WorkerReady& facts = *residency_.find_serving(task.model)->facts;
  // An operation that waited reports at least 1 ms: 0 means that the model was already there.
  const int64_t taken_us = clock_.now_us() - task.since_us;
  const bool waited = !task.last.stage.empty();
  const int64_t load_ms = waited ? std::max<int64_t>(taken_us / 1000, 1) : 0;
  if (task.verb == ipc::Verb::kLoad) {
    if (task.peer.door == Door::kNone) return;
    return dispatcher_.reply(task.peer, task.id,
                             ipc::LoadReply{.model = task.model,
                                            .load_ms = load_ms,
                                            .weight_bytes = facts.weight_bytes,
                                            .kv_bytes = facts.kv_bytes,
                                            .draft = facts.draft});
  }
  Result<std::string> before = models_.set_role(task.role, task.model);
  if (!before) return dispatcher_.reply_error(task.peer, task.id, before.take_error());
  log_info("swap", "role={} model={} before={} us={}", task.role, task.model, *before, taken_us);
  dispatcher_.reply(
      task.peer, task.id,
      ipc::SwapReply{
          .role = task.role, .model = task.model, .previous = *before, .load_ms = load_ms});
  dispatcher_.repoint(task.role);
}

void ModelVerbs::finish_unloaded(const std::string& model, bool asleep) {
  for (const Task& task : take(model, true)) {
    dispatcher_.reply(
        task.peer, task.id,
        ipc::UnloadReply{.model = task.model, .was_resident = true, .asleep = asleep});
  }
}

void ModelVerbs::on_model_stopped(const std::string& model) { finish_unloaded(model); }

void ModelVerbs::on_model_asleep(const std::string& model) { finish_unloaded(model, true); }

// The residency restarts the model for operations that wait for it; for unloads it is now unloaded.
void ModelVerbs::on_model_lost(const std::string& model, const std::string&) {
  finish_unloaded(model);
}

void ModelVerbs::on_model_failed(const std::string& model, const Error& error) {
  finish_unloaded(model);
  for (const Task& task : take(model, false)) {
    if (residency_.find_serving(task.model) != nullptr) {
      finish_loaded(task);  // on its other devices
    } else if (task.peer.door != Door::kNone) {
      dispatcher_.reply_error(task.peer, task.id, error);
    }
  }
}

void ModelVerbs::fail_all(const Error& error) {
  for (const Task& task : std::exchange(tasks_, {})) {
    if (task.peer.door != Door::kNone) dispatcher_.reply_error(task.peer, task.id, error);
  }
}

// ---- Progress -----------------------------------------------------------------------------------

ipc::LoadingEvent ModelVerbs::now(const Task& task) const {
  ipc::LoadingEvent event;
  event.model = task.model;
  const std::string& replica = task.pending.front();
  const Residency::Resident* resident = residency_.find(replica);
  if (task.verb == ipc::Verb::kUnload) {
    event.stage = "draining";
    return event;
  }
  event.estimate_ms = residency_.estimate_ms(replica);
  const bool loads = resident != nullptr && resident->worker != nullptr &&
                     resident->worker->state() == Worker::State::kStarting;
  if (!loads) {
    const std::string reason = residency_.waiting_reason(replica);
    event.stage = reason == "recovering" ? "recovering" : "room";
    return event;
  }
  const ipc::WorkerLoadProgress* progress = resident->worker->progress();
  event.stage = progress == nullptr ? "starting" : progress->stage;
  if (progress != nullptr) {
    event.bytes_done = progress->bytes_done;
    event.bytes_total = progress->bytes_total;
  }
  return event;
}

void ModelVerbs::report(Task& task) {
  ipc::LoadingEvent event = now(task);
  const bool news = event.stage != task.last.stage || event.bytes_done != task.last.bytes_done;
  if (!news) return;
  task.last = event;
  if (task.peer.door != Door::kNone) dispatcher_.reply(task.peer, task.id, event);
}

void ModelVerbs::tick() {
  for (Task& task : tasks_) report(task);
}

}  // namespace hearth::broker
