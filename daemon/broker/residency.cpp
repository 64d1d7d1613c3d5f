#include "daemon/broker/residency.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/log.h"

namespace hearth::broker {
namespace {

// Deaths in a row before `ready` after which a model is given up: a file that crashes its reader,
// a machine without the memory for it.
constexpr int32_t kLoadAttempts = 3;
// After giving up, a new request waits so long for the next attempt: no storm of processes.
constexpr int64_t kAfterGivingUpUs = 1'000'000;
// A worker that served for so long starts the counting of failures anew.
constexpr int64_t kStableUs = 30'000'000;

}  // namespace

Residency::Residency(boost::asio::io_context& io, const ipc::Context& context, const Clock& clock,
                     const Config& config, const RuntimeDir& runtime_dir,
                     ResidencyListener& listener)
    : io_(io),
      context_(context),
      clock_(clock),
      config_(config),
      runtime_dir_(runtime_dir),
      listener_(listener) {}

WorkerProcess* Residency::want(const ModelFile& file) {
  Resident& resident = residents_[file.name];
  resident.last_used_us = clock_.now_us();
  if (resident.worker != nullptr && resident.worker->is_ready()) return resident.worker.get();
  // One on its way out is followed by another once it has gone.
  const bool on_its_way_in =
      resident.worker != nullptr && resident.worker->state() == WorkerProcess::State::kStarting;
  if (!resident.wanted && !on_its_way_in) {
    resident.file = file;
    resident.wanted = true;
    resident.wanted_since_us = clock_.now_us();
    tick();
  }
  return nullptr;
}

WorkerProcess* Residency::worker_of(const std::string& model) {
  const auto it = residents_.find(model);
  return it == residents_.end() ? nullptr : it->second.worker.get();
}

std::string Residency::waiting_reason(const std::string& model) const {
  const auto it = residents_.find(model);
  if (it == residents_.end()) return "loading";
  const Resident& resident = it->second;
  if (resident.worker == nullptr && resident.failures_in_row == 0 &&
      num_running() >= static_cast<size_t>(config_.limits.max_resident)) {
    return "busy";
  }
  return resident.failures_in_row > 0 ? "recovering" : "loading";
}

int64_t Residency::estimate_ms(const std::string& model) const {
  const auto it = residents_.find(model);
  if (it == residents_.end() || it->second.worker == nullptr) return 0;
  const WorkerProcess& worker = *it->second.worker;
  const double share = worker.load_share();
  if (share <= 0) return 0;
  const double taken_ms =
      static_cast<double>(clock_.now_us() - worker.starting_since_us()) / 1000.0;
  return static_cast<int64_t>(taken_ms * (1 - share) / share);
}

size_t Residency::num_running() const {
  return static_cast<size_t>(
      std::count_if(residents_.begin(), residents_.end(),
                    [](const auto& entry) { return entry.second.worker != nullptr; }));
}

bool Residency::empty() const { return num_running() == 0; }

void Residency::tick() {
  const int64_t now_us = clock_.now_us();
  for (auto& [name, resident] : residents_) {
    if (resident.worker == nullptr) continue;
    resident.worker->check_timeouts();
    if (resident.worker->is_ready() && resident.failures_in_row > 0 &&
        now_us - resident.worker->starting_since_us() > kStableUs) {
      resident.failures_in_row = 0;
    }
  }
  if (draining_) return;

  std::vector<Resident*> due;
  for (auto& [name, resident] : residents_) {
    if (resident.wanted && resident.worker == nullptr && resident.not_before_us <= now_us) {
      due.push_back(&resident);
    }
  }
  std::sort(due.begin(), due.end(), [](const Resident* a, const Resident* b) {
    return a->wanted_since_us < b->wanted_since_us;
  });
  for (Resident* resident : due) {
    if (num_running() < static_cast<size_t>(config_.limits.max_resident)) {
      start(*resident);
    } else {
      make_room();
    }
  }
}

// Drains the model that was not used for the longest time, unless one is already on its way out.
void Residency::make_room() {
  Resident* oldest = nullptr;
  for (auto& [name, resident] : residents_) {
    if (resident.worker == nullptr) continue;
    const WorkerProcess::State state = resident.worker->state();
    if (state == WorkerProcess::State::kDraining || state == WorkerProcess::State::kEnding) return;
    if (listener_.model_in_use(name)) continue;
    if (oldest == nullptr || resident.last_used_us < oldest->last_used_us) oldest = &resident;
  }
  if (oldest == nullptr) return;
  log_info("model_unload", "model={} why=room", oldest->file.name);
  oldest->worker->drain();
}

void Residency::start(Resident& resident) {
  const Result<std::filesystem::path> program = find_worker_program(config_.worker);
  if (!program) return give_up(resident, program.error());
  const std::filesystem::path socket = runtime_dir_.worker_socket(++workers_started_);
  const WorkerProcess::Setup setup{
      .argv = worker_arguments(*program, config_.worker, resident.file.path, socket,
                               config_.server.state_dir, config_.server.log_level),
      .socket = socket,
      .heartbeat_timeout_ms = config_.worker.heartbeat_timeout_ms,
      .load_timeout_ms = config_.worker.load_timeout_ms};
  auto worker = WorkerProcess::start(io_, context_, clock_, setup, *this);
  if (!worker) return give_up(resident, worker.error());
  resident.worker = std::move(worker).value();
  resident.wanted = false;
  log_info("worker_started", "model={} pid={}", resident.file.name, resident.worker->pid());
}

void Residency::give_up(Resident& resident, Error error) {
  log_error("model_failed", "model={} code={} error=\"{}\"", resident.file.name, name(error.code),
            error.message);
  resident.wanted = false;
  resident.failures_in_row = 0;
  resident.not_before_us = clock_.now_us() + kAfterGivingUpUs;
  resident.problem = error;
  listener_.on_model_failed(resident.file.name, error);
}

void Residency::back_off(Resident& resident) {
  const int64_t base_ms = config_.worker.restart_delay_ms;
  const int64_t max_ms = std::max(base_ms, config_.worker.restart_delay_max_ms);
  const int32_t doublings = std::min(resident.failures_in_row, 20);
  const int64_t delay_ms = std::min(max_ms, base_ms << doublings);
  ++resident.failures_in_row;
  resident.not_before_us = clock_.now_us() + delay_ms * 1000;
}

void Residency::drain() {
  draining_ = true;
  for (auto& [name, resident] : residents_) {
    resident.wanted = false;
    if (resident.worker != nullptr) resident.worker->drain();
  }
}

Residency::Resident& Residency::resident_of(const WorkerProcess& worker) {
  const auto it = std::find_if(residents_.begin(), residents_.end(), [&](const auto& entry) {
    return entry.second.worker.get() == &worker;
  });
  HEARTH_CHECK(it != residents_.end());
  return it->second;
}

void Residency::on_worker_ready(WorkerProcess& worker) {
  Resident& resident = resident_of(worker);
  resident.facts = *worker.facts();
  resident.problem.reset();
  log_info("model_ready", "model={} pid={} device=\"{}\" load_ms={} context={} kv_bytes={}",
           resident.file.name, worker.pid(), resident.facts->device, resident.facts->load_ms,
           resident.facts->context_length, resident.facts->kv_bytes);
  listener_.on_model_ready(resident.file.name);
}

void Residency::on_worker_news(WorkerProcess&) {}

void Residency::on_worker_answer(WorkerProcess& worker, uint64_t number,
                                 const ipc::Answer& answer) {
  listener_.on_model_answer(resident_of(worker).file.name, number, answer);
}

void Residency::on_worker_ended(WorkerProcess& worker, const std::string& how) {
  Resident& resident = resident_of(worker);
  const std::string model = resident.file.name;
  const std::optional<Error> failure = worker.failure();
  const bool stopped = worker.said_stopped();
  const bool was_ready = worker.facts() != nullptr;
  resident.worker.reset();  // `worker` is gone from here on
  if (failure) {
    give_up(resident, *failure);
  } else if (stopped || draining_) {
    log_info("worker_ended", "model={} how=\"{}\"", model, how);
    // Requests may have come while it was on its way out, or while it loaded in vain.
    if (!draining_) {
      listener_.on_model_stopped(model);
      want_again_if_in_use(resident);
    }
  } else {
    on_death(resident, how, was_ready);
  }
  tick();  // somebody may wait for the room
}

void Residency::on_death(Resident& resident, const std::string& how, bool was_ready) {
  const std::string model = resident.file.name;
  back_off(resident);
  log_error("worker_died", "model={} how=\"{}\" in_row={} retry_in_ms={}", model, how,
            resident.failures_in_row, (resident.not_before_us - clock_.now_us()) / 1000);
  if (!was_ready && resident.failures_in_row >= kLoadAttempts) {
    return give_up(resident,
                   Error{ErrorCode::kUnavailable,
                         fmt::format("the worker of model {} ended {} times in a row, last while "
                                     "loading: {}",
                                     model, resident.failures_in_row, how),
                         "model"});
  }
  ++resident.restarts;
  listener_.on_model_lost(model, how);
  want_again_if_in_use(resident);
}

void Residency::want_again_if_in_use(Resident& resident) {
  if (resident.wanted || !listener_.model_in_use(resident.file.name)) return;
  resident.wanted = true;
  resident.wanted_since_us = clock_.now_us();
}

}  // namespace hearth::broker
