#pragma once
// The live requests: who asked (connection, id, owner), what was asked, which worker has it, and
// the log of tokens already sent, from which another worker can go on. Owned by the io thread.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/broker/transport/peer_id.h"
#include "ipc/schema/messages.h"
#include "kernels/base/result.h"

namespace hearth::broker {

/// What was sent of one sample.
struct SampleLog {
  std::vector<int32_t> ids;   ///< tokens sent, in order
  bool tail_sent = false;     ///< the delta without tokens that ends a text; at most one
  std::string finish_reason;  ///< of its sample_done, once that was sent
};

/// Tokens that a request may make: n times max_tokens; 0 of one that makes none.
int64_t max_output_tokens_of(const ipc::ClientRequest& request);

/// Somebody who reads the answers beside the connection that asked.
struct Watcher {
  PeerId peer;
  std::string id;       ///< of the message that attached
  uint64_t number = 0;  ///< in the output buffer, where a request's own deltas merge by its number
};

struct ReplayLog;

/// Of a request that was sent no QueuedEvent.
inline const ipc::QueuedEvent kNotQueued{.reason = {}, .position = -1, .estimate_ms = 0};

struct LiveRequest {
  enum class State {
    kWaiting,    ///< in the broker: its model loads, recovers, or waits for room
    kForwarded,  ///< a worker has it
  };

  uint64_t number = 0;  ///< the broker's, never reused
  PeerId peer;          ///< connection that asked
  std::string id;       ///< as the client wrote it
  uint32_t owner = 0;   ///< uid
  std::string named;    ///< the role or model that it asked for
  std::string model;    ///< what that meant; change it by RequestTable::move_to_model
  size_t bytes = 0;     ///< of the message, held until the end
  int64_t received_us = 0;

  State state = State::kWaiting;
  bool muted = false;       ///< nobody reads it any more; only the worker's end is awaited
  bool cancelling = false;  ///< the worker was told
  uint64_t encoding = 0;    ///< it is being put into a worker's words: which time; 0: it is not
  bool left = false;        ///< detached: the connection that asked reads no more, and it goes on
  int32_t resumed = 0;      ///< worker deaths it was present at
  int32_t deaths = 0;       ///< of them, those that it may have caused
  bool went_on = false;     ///< a token has come since the last of them
  std::string fingerprint;  ///< of the model's file when a worker was given it last; "": never

  // What the client was sent.
  bool started = false;
  bool prompt_logprobs = false;
  int32_t prompt_tokens = 0;
  int64_t first_delta_us = 0;  ///< 0: none yet
  std::vector<SampleLog> samples;
  ReplayLog* log = nullptr;  ///< of a generate request
  std::vector<Watcher> watchers;

  /// generate (its seed set), tokenize or embed. Shared with the side thread that encodes it and
  /// with the log that outlives it; nobody copies or changes it.
  std::shared_ptr<const ipc::ClientRequest> request;

  // Of a fork: see ipc::WorkerEnvelope.
  std::vector<int32_t> prefix;
  uint64_t fork_of = 0;
  int32_t fork_sample = 0;

  ipc::QueuedEvent queued = kNotQueued;  ///< the last one that was sent
  int64_t queued_said_us = 0;

  bool is_generate() const { return std::holds_alternative<ipc::GenerateRequest>(*request); }
  const ipc::GenerateRequest& generate() const { return std::get<ipc::GenerateRequest>(*request); }
  int64_t output_tokens() const;
  /// At most, of all samples.
  int64_t max_output_tokens() const { return max_output_tokens_of(*request); }
  /// Nothing was computed of it that was shown: another model may still take it.
  bool untouched() const {
    return state == State::kWaiting && !started && deaths == 0 && output_tokens() == 0;
  }
  /// It may kill its worker: no other such request is there at the same time.
  bool is_tried() const { return deaths >= 2 || (deaths == 1 && !went_on); }
  /// Per sample, tokens sent; empty when none were.
  std::vector<std::vector<int32_t>> resume() const;
};

class RequestTable {
 public:
  /// kInvalidArgument when the owner has a live request of that id.
  Result<LiveRequest*> add(LiveRequest request);
  LiveRequest* find(uint64_t number);
  LiveRequest* find(uint32_t owner, const std::string& id);
  /// Requests of any owner with that id, for an administrator.
  LiveRequest* find_any_owner(const std::string& id);
  void erase(uint64_t number);

  size_t size() const { return by_number_.size(); }
  struct OwnerUse {
    size_t requests = 0;
    size_t bytes = 0;    ///< of their messages
    int64_t tokens = 0;  ///< that they may make at most
  };
  OwnerUse owner_use(uint32_t owner) const;
  size_t owner_size(uint32_t owner) const { return owner_use(owner).requests; }
  size_t model_size(const std::string& model) const;
  void move_to_model(LiveRequest& request, const std::string& model);
  size_t queued_bytes() const { return queued_bytes_; }

  /// In order of arrival.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& [number, request] : by_number_) visit(*request);
  }
  /// Numbers in order of arrival of those for which `want(request)` holds.
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

  std::vector<Entry> by_number_;  // ascending: order of arrival; found once a token
  std::map<std::pair<uint32_t, std::string>, uint64_t> by_owner_and_id_;
  std::map<uint32_t, OwnerUse> owners_;
  std::map<std::string, size_t> model_sizes_;
  size_t queued_bytes_ = 0;
  uint64_t last_number_ = 0;
};

/// Checks a worker's delta against the request's log and appends its tokens. False: drop it, the
/// client has it already (a resumed worker repeats only the end of a text). kInternal: the worker
/// broke the protocol; the message says how.
Result<bool> accept_delta(LiveRequest* request, const ipc::DeltaHeader& header,
                          std::string_view ids);

}  // namespace hearth::broker
