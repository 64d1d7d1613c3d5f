#include "daemon/broker/residency/residency.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/log.h"
#include "kernels/base/numbers.h"

namespace hearth::broker {
namespace {

// Deaths in a row before `ready` after which a model is reported as failed: its file may crash the
// reader, or the machine may lack memory for it.
constexpr int32_t kLoadAttempts = 3;
// Delay after such a failure before a new request starts another attempt, to bound the number of
// processes.
constexpr int64_t kAfterGivingUpUs = 1'000'000;
// A worker that served this long resets the count of failures.
constexpr int64_t kStableUs = 30'000'000;

}  // namespace

Residency::Residency(const Clock& clock, const Config& config, MemoryBudget budget,
                     StartWorker start)
    : clock_(clock),
      config_(config),
      shared_{.memory = std::move(budget)},
      start_worker_(std::move(start)) {
  for (const auto& [name, device] : config.devices) {
    if (device.memory_bytes == 0) continue;
    const auto bytes = narrow<uint64_t>(device.memory_bytes);
    budgets_.emplace(name, Budget{.memory = shared_.memory.with(bytes)});
  }
}

// ---- Wanted models ------------------------------------------------------------------------------

Residency::Resident& Residency::wanted_now(const ModelFile& file) {
  Resident& resident = residents_[file.name];
  const int64_t now_us = clock_.now_us();
  resident.last_used_us = now_us;
  // A worker that is leaving is replaced once it has gone.
  const bool on_its_way_in =
      resident.worker != nullptr && !resident.worker->is_leaving() && !resident.worker->is_asleep();
  if (!resident.wanted && !on_its_way_in) {
    const bool other = resident.file.path != file.path || resident.file.bytes != file.bytes;
    if (resident.worker != nullptr && resident.worker->is_asleep() &&
        (other || resident.file.changed_ns != file.changed_ns)) {
      resident.worker->drain();
    }
    // Another file with that name, or other devices.
    if (other || resident.file.stages != file.stages) resident.plan.reset();
    resident.file = file;
    resident.wanted = true;
    resident.wanted_since_us = now_us;
  }
  return resident;
}

Worker* Residency::want(const ModelFile& file) {
  const auto known = residents_.find(file.name);
  if (known != residents_.end() && known->second.worker != nullptr &&
      known->second.worker->is_ready()) {
    known->second.last_used_us = clock_.now_us();
    return known->second.worker.get();
  }
  const bool news = known == residents_.end() || !known->second.wanted;
  wanted_now(file);
  if (news) tick();
  return nullptr;
}

Result<void> Residency::may_want(const std::string& model) const {
  if (config_.residency.load_on_demand) return {};
  for (const auto& [name, resident] : residents_) {
    if (resident.file.model() != model) continue;
    if (resident.allowed || resident.worker != nullptr) return {};
  }
  return Error::unavailable(
      fmt::format("model {} is not in memory, and residency.load_on_demand is off: an "
                  "administrator may load it",
                  model),
      "model");
}

void Residency::load(const ModelFile& file, int64_t keep_alive_ms, const std::string& replaces,
                     const std::string& draft) {
  if (Resident& known = residents_[file.name]; draft != "auto" && known.draft != draft) {
    known.draft = draft;
    if (known.worker != nullptr && !known.worker->is_leaving()) {
      log_info("model_unload", "model={} why=draft", file.name);
      known.worker->drain();
    }
  }
  Resident& resident = wanted_now(file);
  stays_[file.name].note_administrator();
  resident.allowed = true;
  resident.insisted = true;
  resident.replaces = replaces;
  resident.not_before_us = 0;
  if (keep_alive_ms >= 0) resident.keep_alive_ms = keep_alive_ms;
  if (resident.worker != nullptr && resident.worker->is_ready()) {
    resident.insisted = false;
  } else {
    tick();
  }
}

bool Residency::unload(const std::string& model) {
  const auto it = residents_.find(model);
  if (it == residents_.end()) return false;
  Resident& resident = it->second;
  resident.allowed = false;
  resident.insisted = false;
  resident.draft = "auto";
  resident.parked = false;
  resident.wanted = resident.wanted && in_use(model);  // waiting requests load it again
  if (resident.worker == nullptr) return false;
  log_info("model_unload", "model={} why=asked", model);
  resident.worker->drain();
  return true;
}

Result<bool> Residency::sleep(const std::string& model) {
  const auto it = residents_.find(model);
  if (it == residents_.end() || it->second.worker == nullptr) return false;
  Resident& resident = it->second;
  if (resident.worker->is_asleep()) return false;
  if (!resident.worker->is_ready()) {
    return Error::busy(fmt::format("model {} is not ready: it loads, or it leaves memory", model));
  }
  if (!resident.facts->can_sleep) {
    return Error::unsupported(
        fmt::format("model {} cannot sleep: it is on a GPU, in stages, or read from its file "
                    "(mapping = \"file\"); unload it without keeping it",
                    model),
        "keep");
  }
  log_info("model_sleep", "model={}", model);
  resident.wanted = false;
  resident.worker->sleep();
  return true;
}

Worker* Residency::worker_of(const std::string& model) {
  const auto it = residents_.find(model);
  return it == residents_.end() ? nullptr : it->second.worker.get();
}

const Residency::Resident* Residency::find(const std::string& model) const {
  const auto it = residents_.find(model);
  return it == residents_.end() ? nullptr : &it->second;
}

std::vector<std::string> Residency::names_of(const std::string& model) const {
  std::vector<std::string> names;
  for (const auto& [name, resident] : residents_) {
    if (resident.file.model() == model) names.push_back(name);
  }
  return names;
}

const Residency::Resident* Residency::find_serving(const std::string& model) const {
  for (const auto& [name, resident] : residents_) {
    if (resident.file.model() != model || resident.worker == nullptr) continue;
    if (resident.worker->is_ready() || resident.worker->is_asleep()) return &resident;
  }
  return nullptr;
}

// ---- Status and estimates -----------------------------------------------------------------------

std::string Residency::waiting_reason(const std::string& model) const {
  const Resident* resident = find(model);
  if (resident == nullptr) return "loading";
  if (resident->failures_in_row > 0) return "recovering";
  const bool not_yet = resident->worker == nullptr || resident->worker->is_leaving() ||
                       resident->worker->is_asleep();
  return not_yet && resident->wanted && !has_room(*resident) ? "busy" : "loading";
}

int64_t Residency::estimate_ms(const std::string& model) const {
  const Resident* resident = find(model);
  if (resident == nullptr) return 0;
  if (resident->worker == nullptr || resident->worker->is_leaving()) {
    return resident->facts ? resident->facts->load_ms : 0;
  }
  const Worker& worker = *resident->worker;
  if (worker.is_asleep()) return 1;
  const int64_t taken_ms = (clock_.now_us() - worker.starting_since_us()) / 1000;
  if (resident->facts) return std::max<int64_t>(resident->facts->load_ms - taken_ms, 1);
  const double share = worker.load_share();
  if (share <= 0) return 0;
  return static_cast<int64_t>(as_double(taken_ms) * (1 - share) / share);
}

uint64_t Residency::host_bytes_to_come() const {
  uint64_t bytes = 0;
  for (const auto& [name, resident] : residents_) {
    if (resident.worker == nullptr || resident.worker->plan() == nullptr) continue;
    const uint64_t bound = resident.worker->plan()->host_bytes;
    bytes += bound - std::min(bound, resident.worker->snapshot().store.ram_bytes);
  }
  return bytes;
}

int64_t Residency::own_keep_alive_ms(const std::string& model) const {
  const Resident* const resident = find(model);
  if (resident == nullptr) return config_.keep_alive_ms(model);
  if (resident->keep_alive_ms >= 0) return resident->keep_alive_ms;
  return config_.keep_alive_ms(resident->file.model());
}

int64_t Residency::keep_alive_ms(const Resident& resident) const {
  const int64_t own_ms = own_keep_alive_ms(resident.file.name);
  const auto stay = stays_.find(resident.file.name);
  if (stay == stays_.end()) return own_ms;
  return stay->second.granted_ms(own_ms, config_.residency.keep_alive_max_ms);
}

bool Residency::keep_alive(const std::string& model, uint32_t owner, int64_t ms) {
  AskedStay& stay = stays_[model];
  stay.ask(owner, ms);
  return !stay.denied(own_keep_alive_ms(model), config_.residency.keep_alive_max_ms);
}

size_t Residency::num_running() const {
  return std::ranges::count_if(residents_,
                               [](const auto& entry) { return entry.second.worker != nullptr; });
}

std::vector<std::string> Residency::running() const {
  std::vector<std::string> out;
  for (const auto& [name, resident] : residents_) {
    if (resident.worker != nullptr) out.push_back(resident.file.model());
  }
  return out;
}

bool Residency::in_use(const std::string& model) const {
  const auto it = uses_.find(model);
  return it != uses_.end() && it->second > 0;
}

bool Residency::model_in_use(const std::string& model) const {
  return std::ranges::any_of(residents_, [&](const auto& entry) {
    return entry.second.file.model() == model && in_use(entry.first);
  });
}

ModelUse Residency::use(const std::string& model) {
  int32_t& uses = uses_[model];
  ++uses;
  return ModelUse(&uses);
}

// ---- Time --------------------------------------------------------------------------------------

void Residency::tick() {
  for (auto& [name, resident] : residents_) {
    if (resident.worker != nullptr) look_after(resident);
  }
  if (draining_ || suspended_) return;

  const int64_t now_us = clock_.now_us();
  std::vector<Resident*> due;
  for (auto& [name, resident] : residents_) {
    if (!resident.wanted || resident.not_before_us > now_us) continue;
    if (resident.worker != nullptr && !resident.worker->is_asleep()) continue;
    // The requests that waited may have been cancelled or moved to another model with their role.
    resident.wanted = resident.insisted || model_in_use(resident.file.model());
    if (resident.wanted) due.push_back(&resident);
  }
  std::sort(due.begin(), due.end(), [](const Resident* a, const Resident* b) {
    if (a->insisted != b->insisted) return a->insisted;
    return a->wanted_since_us < b->wanted_since_us;
  });
  std::map<const Budget*, Resident*> waiting;
  for (Resident* resident : due) {
    // Changed by a listener.
    const bool sleeps = resident->worker != nullptr && resident->worker->is_asleep();
    if ((resident->worker != nullptr && !sleeps) || !resident->wanted) continue;
    // Those after one that waits for the same memory wait too; otherwise a stream of small models
    // could keep a large one out forever.
    const std::vector<const Budget*> budgets = budgets_of(*resident);
    const bool waits = std::ranges::any_of(
        budgets, [&](const Budget* budget) { return waiting.contains(budget); });
    if (waits) continue;
    if (!has_room(*resident)) {
      for (const Budget* budget : budgets) waiting[budget] = resident;
      continue;
    }
    if (resident->file.stages.empty()) budget_at(resident->file.device).reclaim_since_us = 0;
    for (const std::string& stage : resident->file.stages) budget_at(stage).reclaim_since_us = 0;
    sleeps ? wake(*resident) : start(*resident);
  }
  const auto mind = [&](Budget& budget) {
    const auto found = waiting.find(&budget);
    mind_memory(budget, found == waiting.end() ? nullptr : found->second);
  };
  mind(shared_);
  for (auto& [name, budget] : budgets_) mind(budget);
}

void Residency::look_after(Resident& resident) {
  const int64_t now_us = clock_.now_us();
  Worker& worker = *resident.worker;
  worker.check_timeouts();
  if (!worker.is_ready()) return;
  if (resident.failures_in_row > 0 && now_us - worker.starting_since_us() > kStableUs) {
    resident.failures_in_row = 0;
  }
  if (in_use(resident.file.name)) {
    resident.last_used_us = now_us;
    return;
  }
  const int64_t keep_ms = keep_alive_ms(resident);
  if (keep_ms > 0 && now_us - resident.last_used_us >= keep_ms * 1000) {
    log_info("model_unload", "model={} why=idle keep_alive_ms={}", resident.file.name, keep_ms);
    resident.parked = true;
    worker.drain();
  }
}

// ---- Starts and ends of workers -----------------------------------------------------------------

void Residency::start(Resident& resident) {
  ModelFile file = resident.file;
  file.draft = resident.draft;
  Result<std::unique_ptr<Worker>> worker = start_worker_(file, *this);
  if (!worker) return give_up(resident, worker.error());
  resident.worker = std::move(worker).value();
  resident.kv_bound_bytes = 0;
  resident.stage_bounds.clear();
  resident.wanted = false;
  resident.parked = false;
  log_info("worker_started", "model={} pid={}", resident.file.name, resident.worker->pid());
}

void Residency::wake(Resident& resident) {
  resident.worker->wake();
  resident.wanted = false;
  resident.parked = false;
  log_info("model_wake", "model={} pid={}", resident.file.name, resident.worker->pid());
  serve(resident);
}

void Residency::give_up(Resident& resident, Error error) {
  const std::string model = resident.file.name;
  log_error("model_failed", "model={} code={} error=\"{}\"", model, name(error.code),
            error.message);
  resident.wanted = false;
  resident.insisted = false;
  resident.failures_in_row = 0;
  resident.not_before_us = clock_.now_us() + kAfterGivingUpUs;
  resident.problem = error;
  for (ResidencyListener* listener : listeners_) listener->on_model_failed(model, error);
}

void Residency::back_off(Resident& resident) {
  const int64_t base_ms = config_.worker.restart_delay_ms;
  const int64_t max_ms = std::max(base_ms, config_.worker.restart_delay_max_ms);
  const int32_t doublings = std::min(resident.failures_in_row, 20);
  const int64_t delay_ms = std::min(max_ms, base_ms << doublings);
  ++resident.failures_in_row;
  resident.not_before_us = clock_.now_us() + delay_ms * 1000;
}

void Residency::suspend(const std::function<bool(const Worker&)>& closes) {
  if (suspended_ || draining_) return;
  suspended_ = true;
  for (auto& [name, resident] : residents_) {
    if (resident.worker == nullptr || !closes(*resident.worker)) continue;
    const bool served = !resident.worker->is_leaving() && !resident.worker->is_asleep();
    if (served) to_resume_.push_back(name);
    log_info("model_unload", "model={} why=sleep", name);
    resident.parked = true;
    resident.worker->stop();
  }
}

void Residency::resume() {
  if (!suspended_) return;
  suspended_ = false;
  for (const std::string& name : std::exchange(to_resume_, {})) {
    wanted_now(residents_[name].file).insisted = true;
  }
  tick();
}

void Residency::drain() {
  draining_ = true;
  for (auto& [name, resident] : residents_) {
    resident.wanted = false;
    if (resident.worker != nullptr) resident.worker->drain();
  }
}

Residency::Resident& Residency::resident_of(const Worker& worker) {
  const auto it = std::find_if(residents_.begin(), residents_.end(), [&](const auto& entry) {
    return entry.second.worker.get() == &worker;
  });
  HEARTH_CHECK(it != residents_.end());
  return it->second;
}

// Replaces the estimate from the file's size by the worker's plan, before the memory is taken.
void Residency::on_worker_plan(Worker& worker) {
  Resident& resident = resident_of(worker);
  const ipc::WorkerPlan& plan = *worker.plan();
  resident.plan = plan;
  resident.doomed = never_fits(resident);
  if (resident.doomed) return worker.kill("it does not fit");
  for (const Budget* budget : budgets_of(resident)) {
    const MemoryBudget::InUse others = taken_by_others(*budget, &resident);
    if (plan.device_free_bytes > 0) {
      budget_at(resident.file.device).memory.found_device(plan.device_free_bytes, others);
    }
    const uint64_t bytes = needed_in(resident, *budget);
    // Without a budget, the check of free memory just made is more accurate than estimates.
    if (budget->memory.budget_bytes() == 0 || budget->memory.fits(bytes, others)) continue;
    log_info("model_waits", "model={} bytes={} others={} budget={}", resident.file.name, bytes,
             others.bytes, budget->memory.budget_bytes());
    return wait_for_room(resident);
  }
}

void Residency::wait_for_room(Resident& resident) {
  if (!resident.wanted) {
    resident.wanted = true;
    resident.wanted_since_us = resident.worker->starting_since_us();
  }
  resident.worker->drain();
}

// Even alone. The worker of a model in stages checks the devices' budgets itself.
std::optional<Error> Residency::never_fits(const Resident& resident) const {
  const ipc::WorkerPlan& plan = *resident.plan;
  for (const Budget* budget : budgets_of(resident)) {
    const bool staged = !resident.file.stages.empty();
    const uint64_t most = staged ? stage_bytes(resident, *budget, plan.kv_bytes)
                                 : plan.weight_bytes + plan.kv_bytes + plan.other_bytes;
    if (!budget->memory.hopeless(most)) continue;
    const bool own = budget != &shared_ && !staged;
    return Error::out_of_memory(
        fmt::format("model {} takes {} bytes (weights {}, KV {}), {} is {}", resident.file.name,
                    most, plan.weight_bytes, plan.kv_bytes,
                    own ? fmt::format("devices.{}.memory_bytes", resident.file.device)
                        : "residency.memory_bytes",
                    budget->memory.budget_bytes()),
        "model");
  }
  return std::nullopt;
}

void Residency::on_worker_ready(Worker& worker) {
  Resident& resident = resident_of(worker);
  resident.facts = *worker.facts();
  log_info("model_ready", "model={} pid={} device=\"{}\" load_ms={} context={} kv_bytes={}",
           resident.file.name, worker.pid(), resident.facts->device, resident.facts->load_ms,
           resident.facts->context_length, resident.facts->kv_bytes);
  serve(resident);
}

void Residency::serve(Resident& resident) {
  resident.problem.reset();
  resident.insisted = false;
  resident.replaces.clear();
  resident.ready_since_us = resident.last_used_us = clock_.now_us();
  share_memory();  // before its first request
  for (ResidencyListener* listener : listeners_) listener->on_model_ready(resident.file.name);
}

void Residency::on_worker_asleep(Worker& worker) {
  Resident& resident = resident_of(worker);
  resident.parked = true;
  log_info("model_asleep", "model={} pid={} bytes={}", resident.file.name, worker.pid(),
           taken_bytes(resident));
  for (ResidencyListener* listener : listeners_) listener->on_model_asleep(resident.file.name);
  tick();  // it may be wanted again, and others may have waited for the room
}

void Residency::on_worker_ended(Worker& worker, const std::string& how) {
  Resident& resident = resident_of(worker);
  const std::string model = resident.file.name;
  const std::optional<Error> failure =
      resident.doomed ? std::exchange(resident.doomed, std::nullopt) : worker.failure();
  const bool stopped = worker.said_stopped();
  const bool was_ready = worker.facts() != nullptr;
  resident.worker.reset();  // `worker` is destroyed here
  if (failure) {
    give_up(resident, *failure);
  } else if (stopped || draining_) {
    log_info("worker_ended", "model={} how=\"{}\"", model, how);
    // Requests may have arrived while it was leaving, or while it failed to load.
    if (!draining_) {
      if (!in_use(model)) stays_.erase(model);
      for (ResidencyListener* listener : listeners_) listener->on_model_stopped(model);
      want_again_if_in_use(resident);
    }
  } else {
    on_death(resident, how, was_ready);
  }
  tick();  // another model may wait for the room
}

void Residency::on_death(Resident& resident, const std::string& how, bool was_ready) {
  const std::string model = resident.file.name;
  back_off(resident);
  log_error("worker_died", "model={} how=\"{}\" in_row={} retry_in_ms={}", model, how,
            resident.failures_in_row, (resident.not_before_us - clock_.now_us()) / 1000);
  if (!was_ready && resident.failures_in_row >= kLoadAttempts) {
    return give_up(
        resident,
        Error::unavailable(fmt::format("the worker of model {} ended {} times in a row, last while "
                                       "loading: {}",
                                       model, resident.failures_in_row, how),
                           "model"));
  }
  ++resident.restarts;
  for (ResidencyListener* listener : listeners_) listener->on_model_lost(model, how);
  want_again_if_in_use(resident);
}

void Residency::want_again_if_in_use(Resident& resident) {
  if (resident.wanted || !in_use(resident.file.name)) return;
  resident.wanted = true;
  resident.wanted_since_us = clock_.now_us();
}

}  // namespace hearth::broker
