#pragma once
// What was sent of each generate request, to be sent again to whoever attaches: for as long as it
// runs and a short while after its end, bounded in bytes per owner and in all. Where the bound is
// met, requests that have ended go first, the oldest before the others, then the older half of the
// largest live one of that owner. Owned by the io thread.

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

/// One request's answers. What is not a delta is kept as its JSON.
struct ReplayLog {
  /// A delta, by where it ends in the sample's text and logprobs.
  struct Mark {
    ipc::DeltaHeader header;
    size_t text_end = 0;
    size_t logprobs_end = 0;
  };
  struct Sample {
    std::vector<Mark> marks;
    std::string text;          ///< or parts, where a delta has some
    std::string logprobs;      ///< members of the JSON list, each with a comma behind it
    std::vector<int32_t> ids;  ///< all of them, once the request has ended
    std::string done;          ///< sample_done
  };

  uint64_t number = 0;
  uint32_t owner = 0;
  std::string id;
  std::string model;        ///< the file
  std::string fingerprint;  ///< of it, when a worker was given the request last
  std::shared_ptr<const ipc::ClientRequest> request;  ///< of verb generate
  std::vector<int32_t> prefix;  ///< of a fork: the tokens behind its prompt; once it has ended
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

  /// A request begins; what was kept under its id is another's and goes.
  ReplayLog& begin(uint64_t number, uint32_t owner, const std::string& id,
                   std::shared_ptr<const ipc::ClientRequest> request);
  /// A delta is sent.
  void add(ReplayLog& log, const OutgoingView& delta);
  /// An event is sent that a later reader needs.
  void note(ReplayLog& log, std::string ReplayLog::*event, std::string_view json);
  void note_sample_done(ReplayLog& log, size_t sample, std::string_view json);
  /// The request has ended; what it was and made is in the log by now.
  void end(ReplayLog& log, std::string last, int64_t now_us);
  /// Drops what ended too long ago.
  void tick(int64_t now_us);

  /// Null: there is none, or it is somebody else's.
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
    std::set<std::pair<int64_t, uint64_t>> ended;  // when, and which: the oldest first
  };
  std::map<uint32_t, Owner> owners_;  // that have logs
  size_t bytes_ = 0;
};

/// The first token of a sample that would be sent again from token `from` on: that of the delta
/// that holds it, or the first that is kept. `num_tokens`: those that there are; what is returned
/// when nothing is left to be sent.
uint32_t replay_from(const ReplayLog::Sample& sample, uint32_t from, uint32_t num_tokens);
/// That as one delta; no payload: nothing. `ids`: all of the sample.
Outgoing replay_delta(const ReplayLog::Sample& sample, uint32_t index, uint32_t from,
                      std::span<const int32_t> ids);

}  // namespace hearth::broker
