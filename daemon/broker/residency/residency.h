#pragma once
// Which models are in memory: at most one worker each, started when first wanted, restarted with
// growing delays when it dies, gone again after its keep-alive, drained to make room for another.
//
// Models that fit stay beside each other. Where one does not, the least recently used idle one
// leaves; where all are in use, the one that served longest, once it has had its turn: it ends the
// requests it has, and what comes meanwhile waits. So every model that is wanted gets memory, and
// no request is cut off. Owned by the io thread.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/broker/config/config.h"
#include "daemon/broker/residency/memory_budget.h"
#include "daemon/broker/residency/model_directory.h"
#include "daemon/broker/residency/worker.h"
#include "kernels/base/clock.h"

namespace hearth::broker {

class ResidencyListener {
 public:
  virtual ~ResidencyListener() = default;
  /// Requests of `model` wait in the broker or run in its worker, or somebody waits for it.
  virtual bool model_in_use(const std::string& model) const = 0;
  virtual void on_model_ready(const std::string& model) = 0;
  virtual void on_model_answer(const std::string&, uint64_t, const ipc::Answer&) {}
  /// Its worker ended as it was told to; what it had not answered is the next one's.
  virtual void on_model_stopped(const std::string& model) = 0;
  /// Its worker died with whatever it was doing. It is started again.
  virtual void on_model_lost(const std::string& model, const std::string& how) = 0;
  /// It cannot be loaded; nothing is tried again until somebody wants it.
  virtual void on_model_failed(const std::string& model, const Error& error) = 0;
};

/// Starts a worker of a model, which speaks to the listener.
using StartWorker =
    std::function<Result<std::unique_ptr<Worker>>(const ModelFile&, WorkerListener&)>;

class Residency final : public WorkerListener {
 public:
  struct Resident {
    ModelFile file;
    std::unique_ptr<Worker> worker;  ///< null: not running at the moment
    bool wanted = false;             ///< to be started as soon as allowed
    bool insisted = false;  ///< by an administrator: others in use need not have had a turn
    bool allowed = false;   ///< an administrator loaded it: requests may bring it back
    bool parked = false;    ///< left after its keep-alive or for another
    std::string replaces;   ///< goes before others where one in use must leave
    int64_t wanted_since_us = 0;
    int64_t ready_since_us = 0;
    int64_t last_used_us = 0;
    int64_t not_before_us = 0;   ///< back-off
    int64_t keep_alive_ms = -1;  ///< -1: as configured
    std::string draft = "auto";  ///< auto: as configured
    int32_t failures_in_row = 0;
    int32_t restarts = 0;
    std::optional<uint64_t> plan_bytes;     ///< known once a worker has read the file
    std::optional<ipc::WorkerReady> facts;  ///< known once it has been resident
    std::optional<Error> doomed;            ///< its worker is killed for this
    std::optional<Error> problem;           ///< why the last attempt failed
  };

  Residency(const Clock& clock, const Config& config, MemoryBudget budget, StartWorker start);

  /// Before anything else. Told in this order.
  void add_listener(ResidencyListener& listener) { listeners_.push_back(&listener); }

  /// Its worker, if it is ready for requests; otherwise null, and it is started when there is room.
  Worker* want(const ModelFile& file);
  /// kUnavailable where requests may not bring this model into memory.
  Result<void> may_want(const std::string& model) const;
  /// As want(), for an administrator: soon, at the cost of models in use (first of all `replaces`).
  /// `keep_alive_ms` -1: as configured. A `draft` other than auto and the one it has: its worker is
  /// drained, and the next one has that draft, until the model is unloaded.
  void load(const ModelFile& file, int64_t keep_alive_ms, const std::string& replaces,
            const std::string& draft = "auto");
  /// Drains it. False: it had no worker.
  bool unload(const std::string& model);

  /// Its worker, whatever its state; null: none.
  Worker* worker_of(const std::string& model);
  /// Null: never wanted since the start.
  const Resident* find(const std::string& model) const;

  /// Why a wanted model is not ready: "loading", "recovering" (its worker died) or "busy" (other
  /// models fill the room).
  std::string waiting_reason(const std::string& model) const;
  /// Until it is ready, as far as loading shows; 0: not known.
  int64_t estimate_ms(const std::string& model) const;
  /// What it takes or would take; 0: not known.
  uint64_t memory_bytes(const Resident& resident) const;
  int64_t keep_alive_ms(const Resident& resident) const;
  /// Of the host's memory, what workers on a GPU may still come to take for prefixes.
  uint64_t host_bytes_to_come() const;

  /// Starts what is due, makes room, ends what is idle or silent. Call a few times a second.
  void tick();

  /// Before the machine sleeps: workers for which `closes` holds end at once, their requests wait,
  /// nothing is started. resume() brings back what was there.
  void suspend(const std::function<bool(const Worker&)>& closes);
  void resume();
  bool suspended() const { return suspended_; }

  /// Asks every worker to end its requests and exit; nothing is started any more.
  void drain();
  bool empty() const { return num_running() == 0; }  ///< no process is left

  const std::map<std::string, Resident>& residents() const { return residents_; }
  /// The models that have a process now: not those that were parked, or failed.
  std::vector<std::string> running() const;

  void on_worker_plan(Worker& worker) override;
  void on_worker_ready(Worker& worker) override;
  void on_worker_answer(Worker& worker, uint64_t number, const ipc::Answer& answer) override;
  void on_worker_ended(Worker& worker, const std::string& how) override;
  void on_worker_watch(Worker& worker, std::string_view update) override;

  /// Who is told what watched workers say: model and encoded WatchUpdate.
  void set_watcher(std::function<void(const std::string&, std::string_view)> watcher) {
    watcher_ = std::move(watcher);
  }

 private:
  Resident& resident_of(const Worker& worker);
  Resident& wanted_now(const ModelFile& file);
  void start(Resident& resident);
  void give_up(Resident& resident, Error error);
  void on_death(Resident& resident, const std::string& how, bool was_ready);
  void want_again_if_in_use(Resident& resident);
  void back_off(Resident& resident);
  void look_after(Resident& resident);
  bool in_use(const std::string& model) const;
  size_t num_running() const;
  uint64_t known_bytes(const Resident& resident) const;
  MemoryBudget::InUse taken_beside(const Resident& resident) const;
  bool has_room(const Resident& wanted) const;
  void make_room(const Resident& wanted);
  Resident* who_leaves_for(const Resident& wanted);

  const Clock& clock_;
  const Config& config_;
  MemoryBudget budget_;  // of the one device that workers are started for
  StartWorker start_worker_;
  std::vector<ResidencyListener*> listeners_;
  std::map<std::string, Resident> residents_;
  std::function<void(const std::string&, std::string_view)> watcher_;
  std::vector<std::string> to_resume_;
  bool suspended_ = false;
  bool draining_ = false;
};

}  // namespace hearth::broker
