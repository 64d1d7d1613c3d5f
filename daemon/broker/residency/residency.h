#pragma once
// Decides which models are in memory. Each has at most one worker (a model with several devices is
// several residents here, see replicas.h), which is started when first
// wanted, restarted with growing delays after a death, ended after its keep-alive, and drained to
// make room for another. A worker can also be kept asleep: it holds little memory and is woken when
// its model is wanted.
//
// Models that fit stay next to each other. KV pools take memory as they fill, within bounds that
// are shared out here. If a model does not fit, idle pools give back what their cached prefixes
// use; if that is not enough, the least recently used idle model is unloaded. If all are in use,
// the one that served longest is unloaded once its turn is over: it finishes its requests while new
// ones wait. So every wanted model gets memory, and no request is cut off. Owned by the io thread.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/broker/config/config.h"
#include "daemon/broker/residency/asked_stay.h"
#include "daemon/broker/residency/memory_budget.h"
#include "daemon/broker/residency/model_directory.h"
#include "daemon/broker/residency/replicas.h"
#include "daemon/broker/residency/worker.h"
#include "kernels/base/clock.h"

namespace hearth::broker {

class ResidencyListener {
 public:
  virtual ~ResidencyListener() = default;
  virtual void on_model_ready(const std::string& model) = 0;
  /// Its worker ended as requested; its unanswered requests go to the next worker.
  virtual void on_model_stopped(const std::string& model) = 0;
  /// Its worker sleeps; it has answered its requests.
  virtual void on_model_asleep(const std::string& model) = 0;
  /// Its worker died, with all requests in progress. It will be restarted.
  virtual void on_model_lost(const std::string& model, const std::string& how) = 0;
  /// It cannot be loaded; the next attempt is made when it is wanted again.
  virtual void on_model_failed(const std::string& model, const Error& error) = 0;
};

/// While one exists, its model is in use: a request of it waits or runs, or a load is pending.
/// Must not outlive the residency.
struct ReleaseModel {
  void operator()(int32_t* uses) const { --*uses; }
};
using ModelUse = std::unique_ptr<int32_t, ReleaseModel>;

/// Starts a worker of a model that reports to the listener.
using StartWorker =
    std::function<Result<std::unique_ptr<Worker>>(const ModelFile&, WorkerListener&)>;

class Residency final : public WorkerListener {
 public:
  struct Resident {
    ModelFile file;
    std::unique_ptr<Worker> worker;  ///< null: not running
    bool wanted = false;             ///< to be started as soon as allowed
    bool insisted = false;           ///< an administrator loads it: it waits for no turns
    bool allowed = false;            ///< an administrator loaded it: requests may load it again
    bool parked = false;             ///< unloaded after its keep-alive or for another
    std::string replaces;            ///< the model in use to unload first for it
    int64_t wanted_since_us = 0;
    int64_t ready_since_us = 0;
    int64_t last_used_us = 0;
    int64_t not_before_us = 0;   ///< earliest restart after a death
    int64_t keep_alive_ms = -1;  ///< -1: as configured
    std::string draft = "auto";  ///< auto: as configured
    int32_t failures_in_row = 0;
    int32_t restarts = 0;
    std::optional<ipc::WorkerPlan> plan;  ///< known once a worker has read the file
    uint64_t kv_bound_bytes = 0;          ///< sent to its worker; 0: none yet
    /// Of a model in stages: the bound that each budget allows.
    std::map<const MemoryBudget*, uint64_t> stage_bounds;
    std::optional<ipc::WorkerReady> facts;  ///< known once it has been resident
    std::optional<Error> doomed;            ///< its worker is being killed because of this
    std::optional<Error> problem;           ///< why the last attempt failed
  };

  Residency(const Clock& clock, const Config& config, MemoryBudget budget, StartWorker start);

  /// Call before anything else. Listeners are called in this order.
  void add_listener(ResidencyListener& listener) { listeners_.push_back(&listener); }

  ModelUse use(const std::string& model);
  bool in_use(const std::string& model) const;
  /// The same of any replica of the model.
  bool model_in_use(const std::string& model) const;

  /// Its worker, if it is ready for requests. Otherwise null, and a worker is started when there is
  /// room.
  Worker* want(const ModelFile& file);
  /// kUnavailable if requests may not load this model, whose name this is.
  Result<void> may_want(const std::string& model) const;
  /// Its residents, in the order of its devices.
  std::vector<ModelFile> replicas(const ModelFile& model) const {
    return replicas_of(model, config_);
  }
  /// A resident that can serve the model of that name, or wake for it; null: none.
  const Resident* find_serving(const std::string& model) const;
  /// The names of its residents, also of devices that it had before.
  std::vector<std::string> names_of(const std::string& model) const;
  /// Memory of the device that is its own; 0: it shares that of all models.
  uint64_t budget_bytes(const Resident& resident) const;
  /// Like want(), for an administrator: it may unload models in use (`replaces` first).
  /// `keep_alive_ms` -1: as configured. If `draft` is neither auto nor the current draft, the
  /// worker is drained and the next one gets that draft, until the model is unloaded.
  void load(const ModelFile& file, int64_t keep_alive_ms, const std::string& replaces,
            const std::string& draft = "auto");
  /// Drains it. False: it had no worker.
  bool unload(const std::string& model);
  /// Its worker finishes its requests and sleeps. False: it has no worker, or sleeps already.
  /// kUnsupported: it cannot; kBusy: it is not ready.
  Result<bool> sleep(const std::string& model);

  /// Its worker in any state; null: none.
  Worker* worker_of(const std::string& model);
  /// Null: not wanted since the daemon started.
  const Resident* find(const std::string& model) const;

  /// Why a wanted model is not ready: "loading", "recovering" (its worker died) or "busy" (other
  /// models occupy the memory).
  std::string waiting_reason(const std::string& model) const;
  /// Time until it is ready, estimated from the loading progress; 0: unknown.
  int64_t estimate_ms(const std::string& model) const;
  /// The memory that it takes or would take; 0: unknown.
  uint64_t memory_bytes(const Resident& resident) const;
  int64_t keep_alive_ms(const Resident& resident) const;
  /// A request of this user uses the model.
  void note_user(const std::string& model, uint32_t owner) { stays_[model].note_user(owner); }
  /// A request of this user asks it to stay for so long, see AskedStay. False: it stays as long as
  /// without.
  bool keep_alive(const std::string& model, uint32_t owner, int64_t ms);
  /// Host memory that workers on a GPU may still take for prefixes.
  uint64_t host_bytes_to_come() const;

  /// Starts what is due, makes room, ends idle and silent workers. Call a few times a second.
  void tick();

  /// Before the machine sleeps: workers for which `closes` holds end at once, their requests wait,
  /// and nothing is started. resume() restarts them.
  void suspend(const std::function<bool(const Worker&)>& closes);
  void resume();
  bool suspended() const { return suspended_; }

  /// Asks every worker to finish its requests and exit; starts no more.
  void drain();
  bool empty() const { return num_running() == 0; }  ///< no process is left

  const std::map<std::string, Resident>& residents() const { return residents_; }
  /// The models that have a process, by name; not parked or failed ones.
  std::vector<std::string> running() const;

  void on_worker_plan(Worker& worker) override;
  void on_worker_ready(Worker& worker) override;
  void on_worker_short(Worker& worker) override;
  void on_worker_asleep(Worker& worker) override;
  void on_worker_ended(Worker& worker, const std::string& how) override;

 private:
  Resident& resident_of(const Worker& worker);
  Resident& wanted_now(const ModelFile& file);
  void start(Resident& resident);
  void wake(Resident& resident);
  void serve(Resident& resident);
  void give_up(Resident& resident, Error error);
  void on_death(Resident& resident, const std::string& how, bool was_ready);
  void want_again_if_in_use(Resident& resident);
  void back_off(Resident& resident);
  void wait_for_room(Resident& resident);
  std::optional<Error> never_fits(const Resident& resident) const;
  void look_after(Resident& resident);
  size_t num_running() const;
  bool is_full(const Resident& wanted) const;
  /// Without what requests ask.
  int64_t own_keep_alive_ms(const std::string& model) const;
  struct Budget;
  /// To be loaded: without what its pools take beyond their floor. On all devices, and of one
  /// budget.
  uint64_t needed_bytes(const Resident& resident) const;
  uint64_t needed_in(const Resident& resident, const Budget& budget) const;
  /// Now. The same.
  uint64_t taken_bytes(const Resident& resident) const;
  uint64_t taken_in(const Resident& resident, const Budget& budget) const;
  uint64_t stage_bytes(const Resident& resident, const Budget& budget, uint64_t pool_bytes) const;
  /// Of its KV, the share in this budget.
  double kv_share(const Resident& resident, const Budget& budget) const;
  uint64_t bound_in(Resident& resident, const Budget& budget, uint64_t bytes) const;
  bool has_pools(const Resident& resident) const;
  /// Memory for the models of one device, or of all devices without a budget of their own.
  struct Budget {
    MemoryBudget memory;
    uint64_t waiting_bytes = 0;    ///< kept for a model that will be loaded
    uint64_t reclaim_bytes = 0;    ///< to be taken from idle pools
    int64_t reclaim_since_us = 0;  ///< idle pools are asked since then; 0: they are not
  };
  const Budget& budget_at(const std::string& device) const;
  Budget& budget_at(const std::string& device);
  /// One, or of a model in stages those of its devices.
  std::vector<const Budget*> budgets_of(const Resident& resident) const;
  bool uses(const Resident& resident, const Budget& budget) const;
  /// `resident` null: all of this budget.
  MemoryBudget::InUse taken_by_others(const Budget& budget, const Resident* resident) const;
  bool has_room(const Resident& wanted) const;
  void share_memory();
  void share_memory(Budget& budget);
  bool reclaim(Budget& budget, uint64_t bytes);
  Resident* stalled(const Budget& budget);
  void mind_memory(Budget& budget, Resident* waiting);
  bool gives_room(const Resident& resident, const Resident& wanted, const Budget& budget) const;
  void make_room(const Resident& wanted, const Budget& budget);
  void leave(const Resident& resident);
  Resident* who_leaves_for(const Resident& wanted, const Budget& budget);

  const Clock& clock_;
  const Config& config_;
  Budget shared_;                          // of devices without a budget of their own
  std::map<std::string, Budget> budgets_;  // of the others, by name
  StartWorker start_worker_;
  std::vector<ResidencyListener*> listeners_;
  std::map<std::string, Resident> residents_;
  std::map<std::string, int32_t> uses_;     // by model; an entry stays, because leases point to it
  std::map<std::string, AskedStay> stays_;  // by model, while it is in memory or wanted
  std::vector<std::string> to_resume_;
  bool suspended_ = false;
  bool draining_ = false;
};

}  // namespace hearth::broker
