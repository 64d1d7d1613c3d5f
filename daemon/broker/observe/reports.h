#pragma once
// Builds the replies to models, ps, stats and health from the broker's tables. Reads only; owned by
// the io thread.

#include "daemon/broker/batches/batch_runner.h"
#include "daemon/broker/config/config.h"
#include "daemon/broker/observe/event_hub.h"
#include "daemon/broker/requests/dispatcher.h"
#include "daemon/broker/requests/session.h"
#include "daemon/broker/residency/model_directory.h"
#include "daemon/broker/residency/model_facts.h"
#include "daemon/broker/residency/residency.h"
#include "daemon/broker/responses/response_keeper.h"
#include "daemon/http/model_traffic.h"
#include "ipc/schema/messages.h"
#include "kernels/base/clock.h"

namespace hearth::broker {

/// One run of the daemon.
struct Instance {
  std::string id;  ///< random, new at each start
  std::string version;
  int64_t started_us = 0;
  bool draining = false;
};

class Reports {
 public:
  Reports(const Clock& clock, const Instance& instance, const Config& config,
          ModelDirectory& directory, const ModelFacts& files, const Residency& residency,
          const Dispatcher& dispatcher)
      : clock_(clock),
        instance_(instance),
        config_(config),
        files_(files),
        directory_(directory),
        residency_(residency),
        dispatcher_(dispatcher) {}

  /// Health names why answers are not kept.
  void set_kept(const ResponseKeeper& responses, const BatchRunner& batches) {
    responses_ = &responses;
    batches_ = &batches;
  }

  ipc::PongReply pong() const;
  ipc::ModelsReply models() const;
  /// Of a loaded model's file; "": none of this name is.
  std::string fingerprint(const std::string& model) const;
  /// The caller's requests; all requests for an administrator.
  ipc::PsReply ps(const Caller& caller) const;
  ipc::StatsReply stats() const;
  /// Every live request, for the event hub.
  std::vector<HubRequest> hub_requests() const;
  ipc::HealthReply health() const;
  /// Whether some model can be served. kUnavailable names what is wrong with the models.
  Result<void> servable() const;
  /// Of models with a worker, and of those that had requests.
  http::ModelTraffics traffic() const;
  /// A one-line status for the service manager.
  std::string service_status() const;

 private:
  ipc::ModelEntry model_entry(const ModelFile& file) const;
  ipc::ReplicaEntry replica_entry(const Residency::Resident& resident) const;
  void add_resident(const Residency::Resident& resident, ipc::ModelEntry* entry) const;
  void add_file_facts(const ModelFile& file, ipc::ModelEntry* entry) const;

  const Clock& clock_;
  const Instance& instance_;
  const Config& config_;
  const ModelFacts& files_;
  ModelDirectory& directory_;
  const Residency& residency_;
  const Dispatcher& dispatcher_;
  const ResponseKeeper* responses_ = nullptr;
  const BatchRunner* batches_ = nullptr;
};

}  // namespace hearth::broker
