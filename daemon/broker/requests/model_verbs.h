#pragma once
// load, unload and swap: keeps the client of each operation, reports progress, and replies when it
// is done. The residency does the work. Owned by the io thread.

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "daemon/broker/requests/dispatcher.h"
#include "daemon/broker/requests/session.h"
#include "daemon/broker/residency/model_directory.h"
#include "daemon/broker/residency/residency.h"
#include "ipc/schema/messages.h"
#include "kernels/base/clock.h"

namespace hearth::broker {

class ModelVerbs final : public ResidencyListener {
 public:
  ModelVerbs(const Clock& clock, ModelDirectory& models, Residency& residency,
             Dispatcher& dispatcher)
      : clock_(clock), models_(models), residency_(residency), dispatcher_(dispatcher) {}

  /// Each is answered by `loading` events and one reply or error. kForbidden unless the caller is
  /// an administrator.
  void load(const Caller& caller, const std::string& id, const ipc::LoadRequest& request);
  void unload(const Caller& caller, const std::string& id, const ipc::UnloadRequest& request);
  void swap(const Caller& caller, const std::string& id, const ipc::SwapRequest& request);

  /// Loads the default role's model at start, without a client. False: the role has no model.
  bool preload();

  /// Sends new progress. Call a few times a second.
  void tick();
  /// Ends all pending operations with this error.
  void fail_all(const Error& error);
  size_t num_waiting() const { return tasks_.size(); }
  /// preload() is still in progress.
  bool preloading() const;

  void on_model_ready(const std::string& model) override;
  void on_model_stopped(const std::string& model) override;
  void on_model_asleep(const std::string& model) override;
  void on_model_lost(const std::string& model, const std::string& how) override;
  void on_model_failed(const std::string& model, const Error& error) override;

 private:
  struct Task {
    ipc::Verb verb = ipc::Verb::kLoad;
    PeerId peer;  ///< the client to answer; Door::kNone: no client
    std::string id;
    std::string role;  ///< kSwap
    std::string model;
    int64_t since_us = 0;
    ipc::LoadingEvent last;
    std::vector<std::string> pending{};  ///< replicas that it waits for
    std::vector<ModelUse> uses{};        ///< until it ends; none for kUnload
  };
  using Tasks = std::list<Task>;

  Result<void> may_ask(const Caller& caller) const;
  void begin(Task task, const ModelFile& file, int64_t keep_alive_ms,
             const std::string& draft = "auto");
  /// False: the model has no such adapter in memory. kBusy: requests use it.
  Result<bool> drop_adapter(const std::string& replica, const std::string& adapter);
  Result<void> unload(const std::string& model, bool keep, Task* task);
  void finish_loaded(const Task& task);
  void finish_unloaded(const std::string& model, bool asleep = false);
  Tasks take(const std::string& replica, bool unloads);
  Tasks take_all(const std::string& model);
  ipc::LoadingEvent now(const Task& task) const;
  void report(Task& task);

  const Clock& clock_;
  ModelDirectory& models_;
  Residency& residency_;
  Dispatcher& dispatcher_;
  Tasks tasks_;
};

}  // namespace hearth::broker
