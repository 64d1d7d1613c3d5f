#include "daemon/broker/observe/reports.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "kernels/base/sizes.h"

namespace hearth::broker {
namespace {

// Workers send four heartbeats a second; a worker that misses six is reported as unhealthy.
constexpr int64_t kSilentUs = 1'500'000;

std::string state_of(const Residency::Resident& resident) {
  if (resident.worker != nullptr) {
    switch (resident.worker->state()) {
      case Worker::State::kStarting: return "loading";
      case Worker::State::kReady: return "resident";
      case Worker::State::kAsleep: return "asleep";
      case Worker::State::kDraining:
      case Worker::State::kSettling:
      case Worker::State::kEnding: return "draining";
    }
  }
  if (resident.wanted) return "loading";
  if (resident.problem) return "failed";
  return resident.parked ? "parked" : "found";
}

/// Of the residents of a model: the one that serves first.
int rank_of(const Residency::Resident* resident) {
  if (resident->worker == nullptr) return resident->wanted ? 4 : 5;
  switch (resident->worker->state()) {
    case Worker::State::kReady: return 0;
    case Worker::State::kAsleep: return 1;
    case Worker::State::kStarting: return 2;
    case Worker::State::kSettling:
    case Worker::State::kDraining:
    case Worker::State::kEnding: return 3;
  }
  return 5;
}

std::string worker_state(Worker::State state) {
  switch (state) {
    case Worker::State::kStarting: return "starting";
    case Worker::State::kReady: return "ready";
    case Worker::State::kDraining:
    case Worker::State::kSettling: return "draining";
    case Worker::State::kAsleep: return "asleep";
    case Worker::State::kEnding: return "lost";
  }
  return "lost";
}

std::string request_state(const LiveRequest& request) {
  if (request.state == LiveRequest::State::kWaiting) {
    return request.deaths > 0 ? "recovering" : "queued";
  }
  if (request.state == LiveRequest::State::kRemote) return "remote";
  if (!request.started()) return "waiting";
  return request.first_delta_us == 0 ? "prefill" : "decode";
}

}  // namespace

ipc::PongReply Reports::pong() const {
  return {.instance = instance_.id,
          .pid = ::getpid(),
          .version = instance_.version,
          .uptime_ms = (clock_.now_us() - instance_.started_us) / 1000,
          .draining = instance_.draining};
}

// Adds the facts that a worker will report once it has loaded the file.
void Reports::add_file_facts(const ModelFile& file, ipc::ModelEntry* entry) const {
  const ipc::FileFacts* facts = files_.find(file);
  if (facts == nullptr || facts->context_length == 0) return;
  entry->architecture = facts->architecture;
  entry->file_type = facts->file_type;
  entry->num_parameters = facts->num_parameters;
  const int64_t configured = config_.worker_of(file.name).context_length;
  entry->context_length =
      static_cast<int32_t>(configured > 0 ? std::min<int64_t>(facts->context_length, configured)
                                          : facts->context_length);
  entry->sampling = ipc::with(ipc::with({}, config_.sampling.of(file.name)), facts->sampling);
  entry->chat_template = facts->chat_template;
  entry->abilities = abilities_of(*facts, config_.worker_of(file.name).tool_form);
}

ipc::ModelEntry Reports::model_entry(const ModelFile& file) const {
  ipc::ModelEntry entry;
  entry.name = file.name;
  entry.roles = directory_.roles_of(file.name);
  entry.state = "found";
  entry.file_bytes = file.bytes;
  entry.problem = file.problem;
  add_file_facts(file, &entry);
  std::vector<const Residency::Resident*> residents;
  for (const ModelFile& replica : residency_.replicas(file)) {
    const Residency::Resident* const resident = residency_.find(replica.name);
    if (resident == nullptr) continue;
    residents.push_back(resident);
    if (!replica.replica_of.empty()) entry.replicas.push_back(replica_entry(*resident));
  }
  if (residents.empty()) return entry;
  // The one that serves, or is nearest to it, is described.
  add_resident(**std::ranges::min_element(residents, {}, rank_of), &entry);
  for (const ipc::ReplicaEntry& replica : entry.replicas) {
    if (replica.worker_pid == entry.worker_pid) continue;
    entry.memory_bytes += replica.memory_bytes;
  }
  return entry;
}

ipc::ReplicaEntry Reports::replica_entry(const Residency::Resident& resident) const {
  ipc::ReplicaEntry entry;
  entry.device = resident.file.device;
  entry.state = state_of(resident);
  if (resident.problem) entry.problem = resident.problem->message;
  entry.worker_pid = resident.worker == nullptr ? 0 : resident.worker->pid();
  entry.memory_bytes = residency_.memory_bytes(resident);
  entry.budget_bytes = residency_.budget_bytes(resident);
  dispatcher_.requests().for_each([&](const LiveRequest& request) {
    if (request.replica == resident.file.name) ++entry.requests;
  });
  return entry;
}

void Reports::add_resident(const Residency::Resident& resident, ipc::ModelEntry* out) const {
  ipc::ModelEntry& entry = *out;
  entry.state = state_of(resident);
  entry.memory_bytes = residency_.memory_bytes(resident);
  entry.keep_alive_ms = residency_.keep_alive_ms(resident);
  if (resident.problem) entry.problem = resident.problem->message;
  if (resident.plan && !resident.file.stages.empty()) entry.stages = resident.plan->stages;
  if (resident.facts) {
    entry.architecture = resident.facts->architecture;
    entry.file_type = resident.facts->file_type;
    entry.num_parameters = resident.facts->num_parameters;
    entry.context_length = resident.facts->context_length;
    entry.sampling = resident.facts->sampling;
    if (resident.facts->experts.bytes > 0) entry.experts = resident.facts->experts;
    entry.chat_template = resident.facts->chat_template;
  }
  if (resident.worker == nullptr) return;
  entry.load_share = resident.worker->load_share();
  entry.worker_pid = resident.worker->pid();
  if (resident.worker->facts() != nullptr) {
    entry.device = resident.facts->device;
    entry.idle_ms = (clock_.now_us() - resident.last_used_us) / 1000;
    entry.weight_bytes = resident.facts->weight_bytes;
    entry.kv_bytes = resident.facts->kv_bytes;
    entry.kv_bytes_used = resident.worker->snapshot().kv_bytes_used;
    entry.kv_backed_bytes = resident.worker->snapshot().kv_backed_bytes;
    entry.kv_bound_bytes = resident.worker->snapshot().kv_bound_bytes;
    entry.draft = resident.facts->draft;
    entry.gpu = resident.worker->snapshot().gpu;
    entry.adapters = resident.worker->snapshot().adapters;
  }
}

ipc::ModelsReply Reports::models() const {
  directory_.rescan();
  ipc::ModelsReply reply;
  for (const auto& [name, file] : directory_.models()) {
    if (!directory_.is_heads(name)) reply.models.push_back(model_entry(file));
  }
  for (const auto& [name, file] : directory_.adapters()) {
    reply.adapters.push_back({name, file.bytes});
  }
  for (const auto& dir : directory_.dirs()) reply.folders.push_back(dir.string());
  return reply;
}

std::string Reports::fingerprint(const std::string& model) const {
  for (const std::string& name : residency_.names_of(model)) {
    const Residency::Resident* const resident = residency_.find(name);
    if (resident->facts) return resident->facts->fingerprint;
  }
  return "";
}

ipc::PsReply Reports::ps(const Caller& caller) const {
  ipc::PsReply reply;
  dispatcher_.requests().for_each([&](const LiveRequest& request) {
    if (!may_touch(caller, request.owner)) return;
    reply.requests.push_back({.id = request.id,
                              .owner = dispatcher_.owners().name(request.owner),
                              .model = request.model,
                              .state = request_state(request),
                              .priority = request.is_generate() ? request.generate().priority : "",
                              .prompt_tokens = request.prompt_tokens,
                              .output_tokens = request.output_tokens(),
                              .age_ms = (clock_.now_us() - request.received_us) / 1000});
    if (!request.remote.empty()) reply.requests.back().remote = request.remote;
  });
  std::set<std::string> listed;
  for (const auto& [name, resident] : residency_.residents()) {
    if (resident.worker == nullptr && !resident.wanted) continue;
    ModelFile file = resident.file;
    file.name = resident.file.model();
    file.replica_of.clear();
    if (listed.insert(file.name).second) reply.models.push_back(model_entry(file));
  }
  return reply;
}

std::vector<HubRequest> Reports::hub_requests() const {
  std::vector<HubRequest> out;
  dispatcher_.requests().for_each([&](const LiveRequest& request) {
    if (!request.is_generate()) return;
    HubRequest& each = out.emplace_back();
    each.owner = request.owner;
    ipc::WatchedRequest& row = each.row;
    row.number = request.number;
    row.id = request.id;
    row.owner = dispatcher_.owners().name(request.owner);
    row.model = request.model;
    row.priority = request.generate().priority;
    row.state = request_state(request);
    if (!request.started()) {
      row.waiting_for = request.queued.reason;
      row.queue_position = std::max(0, request.queued.position);
      row.estimate_ms = request.queued.estimate_ms;
    }
    if (!request.remote.empty()) row.waiting_for = request.remote;
    row.age_ms = (clock_.now_us() - request.received_us) / 1000;
    row.prompt_tokens = request.prompt_tokens;
    row.output_tokens = request.output_tokens();
    if (request.first_delta_us != 0) row.ttft_us = request.first_delta_us - request.received_us;
  });
  return out;
}

ipc::StatsReply Reports::stats() const {
  const RequestCounters& counters = dispatcher_.counters();
  ipc::StatsReply reply;
  reply.instance = instance_.id;
  reply.version = instance_.version;
  reply.uptime_ms = (clock_.now_us() - instance_.started_us) / 1000;
  reply.requests_live = size32(dispatcher_.requests());
  reply.requests_total = counters.total;
  reply.requests_done = counters.done;
  reply.requests_failed = counters.failed;
  reply.requests_cancelled = counters.cancelled;
  reply.output_tokens_total = counters.output_tokens;
  reply.remotes = dispatcher_.remote_stats();
  for (const auto& [name, resident] : residency_.residents()) {
    if (resident.worker == nullptr) continue;
    const Worker& worker = *resident.worker;
    reply.workers.push_back({.model = name,
                             .device = worker.facts() != nullptr ? worker.facts()->device : "",
                             .state = worker_state(worker.state()),
                             .pid = worker.pid(),
                             .restarts = resident.restarts,
                             .heartbeat_age_ms = (clock_.now_us() - worker.last_sign_us()) / 1000,
                             .snapshot = worker.snapshot()});
  }
  return reply;
}

ipc::HealthReply Reports::health() const {
  ipc::HealthReply reply;
  directory_.refresh();
  if (directory_.models().empty()) {
    reply.problems.emplace_back("the model directories contain no model");
  }
  for (const auto& [name, resident] : residency_.residents()) {
    if (resident.problem) {
      reply.problems.push_back(fmt::format("model {}: {}", name, resident.problem->message));
    } else if (resident.worker != nullptr && resident.worker->is_ready() &&
               clock_.now_us() - resident.worker->last_sign_us() > kSilentUs) {
      reply.problems.push_back(
          fmt::format("model {}: its worker has given no sign of life for {} ms", name,
                      (clock_.now_us() - resident.worker->last_sign_us()) / 1000));
    } else if (resident.failures_in_row > 0 && resident.worker == nullptr) {
      reply.problems.push_back(fmt::format("model {}: its worker died {} times in a row", name,
                                           resident.failures_in_row));
    }
  }
  if (responses_ != nullptr && !responses_->problem().empty()) {
    reply.problems.push_back("answers of /v1/responses are not kept: " + responses_->problem());
  }
  if (batches_ != nullptr && !batches_->problem().empty()) {
    reply.problems.push_back("files and batches cannot be used: " + batches_->problem());
  }
  reply.status = instance_.draining ? "draining" : reply.problems.empty() ? "ok" : "degraded";
  return reply;
}

// A model whose last load failed counts as unservable: every request for it would meet the same
// error until a load succeeds.
Result<void> Reports::servable() const {
  directory_.refresh();
  std::string problem;
  for (const auto& [name, resident] : residency_.residents()) {
    // Its file may be gone; it is served as long as it stays in memory.
    if (resident.worker != nullptr && resident.worker->is_ready()) return {};
  }
  for (const auto& [name, file] : directory_.models()) {
    const Residency::Resident* resident = residency_.find(residency_.replicas(file).front().name);
    if (!file.problem.empty()) {
      problem = fmt::format("model {}: {}", name, file.problem);
    } else if (resident != nullptr && state_of(*resident) == "failed") {
      problem = fmt::format("model {}: {}", name, resident->problem->message);
    } else if (const Result<void> may = residency_.may_want(name); !may) {
      problem = may.error().message;
    } else {
      return {};
    }
  }
  if (problem.empty()) problem = "the model directories contain no model";
  return Error::unavailable("no model can be served; " + problem);
}

http::ModelTraffics Reports::traffic() const {
  http::ModelTraffics traffic = dispatcher_.traffic();
  for (const auto& [name, resident] : residency_.residents()) {
    if (resident.worker == nullptr) continue;
    http::ModelTraffic& its = traffic[resident.file.model()];
    if (resident.worker->facts() == nullptr) continue;
    its.block_size = resident.worker->facts()->block_size;
    its.num_blocks = resident.worker->facts()->num_blocks;
  }
  return traffic;
}

std::string Reports::service_status() const {
  std::string status = fmt::format("{} live requests; models:", dispatcher_.requests().size());
  if (instance_.draining) status = "stopping; " + status;
  if (residency_.suspended()) status = "asleep; " + status;
  for (const auto& [name, resident] : residency_.residents()) {
    if (resident.worker == nullptr) {
      if (resident.problem) status += fmt::format(" {} (failed)", name);
    } else if (resident.worker->is_ready()) {
      status += " " + name;
    } else if (resident.worker->is_leaving()) {
      status += fmt::format(" {} (leaving)", name);
    } else if (resident.worker->is_asleep()) {
      status += fmt::format(" {} (asleep)", name);
    } else {
      // In steps of ten percent: finer steps would notify systemd at every tick.
      const int percent = static_cast<int>(resident.worker->load_share() * 10) * 10;
      status += fmt::format(" {} (loading, {} %)", name, percent);
    }
  }
  return status;
}

}  // namespace hearth::broker
