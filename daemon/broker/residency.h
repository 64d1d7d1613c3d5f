#pragma once
// Which models are in memory: at most one worker each, started when first wanted, restarted with
// growing delays when it dies, drained to make room for another model. Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "daemon/broker/model_directory.h"
#include "daemon/broker/runtime_dir.h"
#include "daemon/broker/worker_process.h"

namespace hearth::broker {

class ResidencyListener {
 public:
  virtual ~ResidencyListener() = default;
  /// Requests of `model` wait in the broker or run in its worker.
  virtual bool model_in_use(const std::string& model) const = 0;
  virtual void on_model_ready(const std::string& model) = 0;
  virtual void on_model_answer(const std::string& model, uint64_t number,
                               const ipc::Answer& answer) = 0;
  /// Its worker ended as it was told to; what it had not answered is the next one's.
  virtual void on_model_stopped(const std::string& model) = 0;
  /// Its worker died with whatever it was doing. It is started again.
  virtual void on_model_lost(const std::string& model, const std::string& how) = 0;
  /// It cannot be loaded; nothing is tried again until somebody wants it.
  virtual void on_model_failed(const std::string& model, const Error& error) = 0;
};

class Residency final : public WorkerListener {
 public:
  struct Resident {
    ModelFile file;
    std::unique_ptr<WorkerProcess> worker;  ///< null: not running at the moment
    bool wanted = false;                    ///< to be started as soon as allowed
    int64_t wanted_since_us = 0;
    int64_t last_used_us = 0;
    int64_t not_before_us = 0;  ///< back-off
    int32_t failures_in_row = 0;
    int32_t restarts = 0;
    std::optional<ipc::WorkerReady> facts;  ///< known once it has been resident
    std::optional<Error> problem;           ///< why the last attempt failed
  };

  Residency(boost::asio::io_context& io, const ipc::Context& context, const Clock& clock,
            const Config& config, const RuntimeDir& runtime_dir, ResidencyListener& listener);

  /// Its worker, if it is ready for requests; otherwise null, and it is started when there is room.
  WorkerProcess* want(const ModelFile& file);
  /// Its worker, whatever its state; null: none.
  WorkerProcess* worker_of(const std::string& model);

  /// Why a wanted model is not ready: "loading", "recovering" (its worker died) or "busy" (other
  /// models fill the room).
  std::string waiting_reason(const std::string& model) const;
  /// Until it is ready, as far as loading shows; 0: not known.
  int64_t estimate_ms(const std::string& model) const;

  /// Starts what is due, makes room, kills what is silent. Call a few times a second.
  void tick();

  /// Asks every worker to end its requests and exit; nothing is started any more.
  void drain();
  bool empty() const;  ///< no process is left

  const std::map<std::string, Resident>& residents() const { return residents_; }

  void on_worker_ready(WorkerProcess& worker) override;
  void on_worker_news(WorkerProcess& worker) override;
  void on_worker_answer(WorkerProcess& worker, uint64_t number, const ipc::Answer& answer) override;
  void on_worker_ended(WorkerProcess& worker, const std::string& how) override;

 private:
  Resident& resident_of(const WorkerProcess& worker);
  void start(Resident& resident);
  void give_up(Resident& resident, Error error);
  void on_death(Resident& resident, const std::string& how, bool was_ready);
  void want_again_if_in_use(Resident& resident);
  void back_off(Resident& resident);
  size_t num_running() const;
  void make_room();

  boost::asio::io_context& io_;
  const ipc::Context& context_;
  const Clock& clock_;
  const Config& config_;
  const RuntimeDir& runtime_dir_;
  ResidencyListener& listener_;
  std::map<std::string, Resident> residents_;
  uint64_t workers_started_ = 0;
  bool draining_ = false;
};

}  // namespace hearth::broker
