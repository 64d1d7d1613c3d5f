#pragma once
// The live requests: the client (connection, id, owner), the request, its model, and its token log,
// from which another worker can continue. Owned by the io thread.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/broker/requests/token_log.h"
#include "daemon/broker/residency/residency.h"
#include "daemon/broker/transport/peer_id.h"
#include "daemon/http/model_traffic.h"
#include "ipc/schema/messages.h"
#include "kernels/base/numbers.h"
#include "kernels/base/result.h"

namespace hearth::broker {

/// The most tokens that a request may generate: n times max_tokens; 0 if it generates none.
int64_t max_output_tokens_of(const ipc::ComputeRequest& request);

/// A client that reads the answers in addition to the connection that made the request.
struct Watcher {
  PeerId peer;
  std::string id;       ///< of the attach message
  uint64_t number = 0;  ///< in the output buffer, where deltas of a request merge by its number
};

/// The initial value of `queued`: no QueuedEvent was sent.
inline const ipc::QueuedEvent kNotQueued{.reason = {}, .position = -1, .estimate_ms = 0};

struct LiveRequest {
  enum class State {
    kWaiting,    ///< in the broker: its model loads or recovers, or it waits for room
    kForwarded,  ///< a worker has it
    kRemote,     ///< a remote has it
  };

  // What each token needs comes first.
  std::string replica;  ///< the resident whose worker has it or will have it; see move_to()
  State state = State::kWaiting;
  int32_t deaths = 0;           ///< of its workers that it may have caused
  bool muted = false;           ///< no client reads it; only the worker's end is awaited
  bool left = false;            ///< detached: its connection is gone, and it continues
  bool cancelling = false;      ///< the worker was asked to cancel it
  bool ends_reasoning = false;  ///< as its client asked; any worker of it learns that
  bool went_on = false;         ///< a token has arrived since the last of `deaths`
  TokenLog* log = nullptr;      ///< of a generate request, until its end; null: of any other
  http::ModelTraffic* traffic = nullptr;  ///< the dispatcher's, of `model`; set when forwarded
  int64_t first_delta_us = 0;             ///< 0: none yet
  std::vector<Watcher> watchers;
  PeerId peer;          ///< the connection that made the request
  uint64_t number = 0;  ///< the broker's, never reused
  std::string id;       ///< as the client wrote it

  uint32_t owner = 0;         ///< uid
  int32_t resumed = 0;        ///< worker deaths while it ran
  int32_t prompt_tokens = 0;  ///< as its worker reported
  std::string named;          ///< the role or model that it named
  std::string model;          ///< the model of `replica`
  ModelUse use;               ///< of `replica`
  size_t bytes = 0;           ///< of the message; counted until the end
  int64_t received_us = 0;
  uint64_t encoding = 0;  ///< number of the encoding in progress on the side thread; 0: none

  /// Its seed is set. Shared with the side thread that encodes it
  /// and with the log that outlives it; never copied or changed.
  std::shared_ptr<const ipc::ComputeRequest> request;

  std::vector<std::filesystem::path> adapters{};  ///< files of GenerateRequest::adapter, in order

  // For a fork: see ipc::WorkerEnvelope. The log has its prefix.
  uint64_t fork_of = 0;
  int32_t fork_sample = 0;

  ipc::QueuedEvent queued = kNotQueued;  ///< the last one sent
  int64_t queued_said_us = 0;

  // What remotes have to do with it: dispatcher_remote.cpp.
  bool may_leave = false;        ///< its client lets a remote answer it, and none has failed to
  bool chose_seed = false;       ///< its client did
  bool recalled = false;         ///< from its worker, whose last answer is still to come
  std::string remote{};          ///< host of the remote that has it; "": none
  std::string remote_model{};    ///< as that names it, once its answer has begun
  std::string remote_failure{};  ///< why the remote's answer did not begin; "": it did not fail
  int64_t left_us = 0;           ///< when it was sent there

  bool is_generate() const { return std::holds_alternative<ipc::GenerateRequest>(*request); }
  const ipc::GenerateRequest& generate() const { return std::get<ipc::GenerateRequest>(*request); }
  bool started() const { return log != nullptr && !log->started.empty(); }
  int32_t output_tokens() const { return log == nullptr ? 0 : narrow<int32_t>(log->num_tokens()); }
  /// The upper bound, over all samples.
  int64_t max_output_tokens() const { return max_output_tokens_of(*request); }
  /// No output was sent and it killed no worker: another model may still take it.
  bool untouched() const {
    return state == State::kWaiting && !recalled && !started() && deaths == 0 &&
           output_tokens() == 0;
  }
  void move_to(const ModelFile& to, ModelUse its_use);
  /// It may kill its worker, so it does not run together with another such request.
  bool is_tried() const { return deaths >= 2 || (deaths == 1 && !went_on); }
};

class RequestTable {
 public:
  /// kInvalidArgument if the owner has a live request with that id.
  Result<LiveRequest*> add(LiveRequest request);
  LiveRequest* find(uint64_t number);
  LiveRequest* find(uint32_t owner, const std::string& id);
  /// A request of any owner with that id, for an administrator.
  LiveRequest* find_any_owner(const std::string& id);
  void erase(uint64_t number);

  size_t size() const { return by_number_.size(); }
  struct OwnerUse {
    size_t requests = 0;
    size_t bytes = 0;    ///< of their messages
    int64_t tokens = 0;  ///< upper bound on the tokens they may generate
  };
  OwnerUse owner_use(uint32_t owner) const;
  size_t owner_size(uint32_t owner) const { return owner_use(owner).requests; }
  size_t queued_bytes() const { return queued_bytes_; }

  /// In order of arrival.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& [number, request] : by_number_) visit(*request);
  }
  /// Numbers of the requests for which `want(request)` holds, in order of arrival.
  template <typename Want>
  std::vector<uint64_t> numbers(Want want) const {
    std::vector<uint64_t> out;
    for (const auto& [number, request] : by_number_) {
      if (want(*request)) out.push_back(number);
    }
    return out;
  }

 private:
  using Entry = std::pair<uint64_t, std::unique_ptr<LiveRequest>>;
  std::vector<Entry>::iterator at_or_behind(uint64_t number);

  std::vector<Entry> by_number_;  // ascending, which is order of arrival; searched once per token
  std::map<std::pair<uint32_t, std::string>, uint64_t> by_owner_and_id_;
  std::map<uint32_t, OwnerUse> owners_;
  size_t queued_bytes_ = 0;
  uint64_t last_number_ = 0;
};

}  // namespace hearth::broker
