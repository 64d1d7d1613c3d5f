#pragma once
// Keeps the answers of each generate request, to send them again to a client that attaches: while
// the request runs and for a short time after its end, bounded in bytes per owner and in total.
// Beyond the bound, ended requests are dropped first, the oldest before the others, then the older
// half of the owner's largest live one. Owned by the io thread.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/broker/config/config.h"
#include "daemon/broker/transport/output_buffer.h"
#include "ipc/schema/deltas.h"
#include "ipc/schema/requests.h"

namespace hearth::broker {

/// The answers of one request. Events other than deltas are kept as JSON.
struct ReplayLog {
  /// A delta, located by its end in the sample's text and logprobs.
  struct Mark {
    ipc::DeltaHeader header;
    size_t text_end = 0;
    size_t logprobs_end = 0;
  };
  struct Sample {
    std::vector<Mark> marks;
    std::string text;          ///< or its encoded parts, if a delta has any
    std::string logprobs;      ///< members of the JSON list, each followed by a comma
    std::vector<int32_t> ids;  ///< all tokens, set when the request ends
    std::string done;          ///< sample_done
  };

  uint64_t number = 0;
  uint32_t owner = 0;
  std::string id;
  std::string model;        ///< its file's name
  std::string fingerprint;  ///< of that file, when the request last went to a worker
  std::shared_ptr<const ipc::ClientRequest> request;  ///< a generate request
  std::vector<int32_t> prefix;  ///< of a fork: the tokens after its prompt; set at the end
  std::string started;
  std::string prompt_logprobs;
  std::vector<Sample> samples;
  std::string last;  ///< done or error; empty while it runs
  int64_t ended_us = 0;
  size_t bytes = 0;

  bool live() const { return last.empty(); }
  const ipc::GenerateRequest& generate() const { return std::get<ipc::GenerateRequest>(*request); }
};

class Replay {
 public:
  explicit Replay(const LimitsConfig& limits) : limits_(limits) {}
  void set_limits(const LimitsConfig& limits) { limits_ = limits; }

  /// A request begins; an older log under the same id is dropped.
  ReplayLog& begin(uint64_t number, uint32_t owner, const std::string& id,
                   std::shared_ptr<const ipc::ClientRequest> request);
  /// Records a delta that was sent.
  void add(ReplayLog& log, const OutgoingView& delta);
  /// Records a sent event that a client which attaches later needs.
  void note(ReplayLog& log, std::string ReplayLog::*event, std::string_view json);
  void note_sample_done(ReplayLog& log, size_t sample, std::string_view json);
  /// Records the end; call it once the log has the request's tokens.
  void end(ReplayLog& log, std::string last, int64_t now_us);
  /// Drops logs whose time has expired.
  void tick(int64_t now_us);

  /// Null if there is none or it belongs to another owner.
  ReplayLog* find(uint32_t owner, const std::string& id);
  size_t bytes() const { return bytes_; }
  size_t owner_bytes(uint32_t owner) const;

 private:
  void grow(ReplayLog& log, size_t bytes);
  void shrink(ReplayLog& log, size_t bytes);
  void bound(uint32_t owner);
  bool drop_oldest_ended(uint32_t owner);
  bool drop_oldest_ended();
  void halve(ReplayLog& log);
  void drop(uint64_t number);

  LimitsConfig limits_;
  std::map<uint64_t, ReplayLog> logs_;  // by the request's number: in order of arrival
  std::map<std::pair<uint32_t, std::string>, uint64_t> by_id_;
  struct Owner {
    size_t bytes = 0;
    std::set<std::pair<int64_t, uint64_t>> ended;  // end time and number: the oldest first
  };
  std::map<uint32_t, Owner> owners_;  // owners with logs
  size_t bytes_ = 0;
};

/// The first token of a sample that a replay from token `from` would send: the first token of the
/// delta that contains it, or the first one kept. Returns `num_tokens`, the number of tokens of the
/// sample, if nothing is left to send.
uint32_t replay_from(const ReplayLog::Sample& sample, uint32_t from, uint32_t num_tokens);
/// The replay as one delta, with an empty payload if there is nothing to send. `ids`: all tokens of
/// the sample.
Outgoing replay_delta(const ReplayLog::Sample& sample, uint32_t index, uint32_t from,
                      std::span<const int32_t> ids);

}  // namespace hearth::broker
