#pragma once
// The token log of each generate request: what was sent, in the one place that serves a worker's
// death (the next worker resumes from the tokens), attach (the answers are sent again, while the
// request runs and for a short time after its end) and fork (another request continues from them).
//
// Logs are bounded in bytes per owner and in total. Beyond the bound, logs of ended requests are
// dropped first, the oldest before the others, then the older half of the text of the owner's
// largest live one. The tokens of a live request always stay: its worker may die. They are bounded
// by admission and count here only after its end. Owned by the io thread.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/broker/config/config.h"
#include "daemon/broker/transport/output_buffer.h"
#include "ipc/schema/deltas.h"
#include "ipc/schema/requests.h"
#include "ipc/wire/frames.h"
#include "kernels/base/result.h"

namespace hearth::broker {

/// Before each delta in a log.
struct DeltaSizes {
  uint32_t payload = 0;   ///< bytes of the DeltaHeader and what follows it
  uint32_t logprobs = 0;  ///< bytes of their JSON list; 0: none
};

/// What one request was answered. Events other than deltas are kept as JSON.
struct TokenLog {
  struct Sample {
    std::vector<int32_t> ids;  ///< all tokens sent, in order
    /// The deltas to send again, each a DeltaSizes with its payload and log probabilities, in one
    /// buffer: a token adds to as few places in memory as possible. The bound may drop the
    /// beginning.
    std::string deltas;
    int64_t last_tokens_us = 0;  ///< when the last of them arrived; 0: none has
    bool tail_sent = false;     ///< the delta without tokens that ends a text was sent; at most one
    std::string finish_reason;  ///< of its sample_done, once sent
    std::string done;           ///< its sample_done
  };

  // What each token changes comes first.
  size_t bytes = 0;
  std::vector<Sample> samples;
  uint32_t owner = 0;
  uint64_t number = 0;
  std::string id;
  std::string model;        ///< its file's name
  std::string fingerprint;  ///< of that file, when the request last went to a worker; "": never
  std::shared_ptr<const ipc::ComputeRequest> request;  ///< a generate request
  std::vector<int32_t> prefix;                         ///< of a fork: the tokens after its prompt
  std::string started;
  std::string prompt_logprobs;
  std::string last;  ///< done or error; empty while it runs
  int64_t ended_us = 0;
  bool is_remote = false;  ///< a remote answers: texts without tokens

  bool live() const { return last.empty(); }
  const ipc::GenerateRequest& generate() const { return std::get<ipc::GenerateRequest>(*request); }
  int64_t num_tokens() const;  ///< sent, over all samples
  /// Per sample, the tokens sent, for another worker to continue from; empty if none were.
  std::vector<std::vector<int32_t>> resume() const;
};

class TokenLogs {
 public:
  explicit TokenLogs(const LimitsConfig& limits) : limits_(limits) {}
  void set_limits(const LimitsConfig& limits) { limits_ = limits; }

  /// A request begins; the log of an ended one under the same id is dropped. The log stays where it
  /// is while the request lives.
  TokenLog& begin(uint64_t number, uint32_t owner, const std::string& id, const std::string& model,
                  std::shared_ptr<const ipc::ComputeRequest> request,
                  std::vector<int32_t> prefix = {});
  /// Checks a worker's delta against the log and appends it. False: drop it, because the client
  /// already has it (a resumed worker repeats only the end of a text). kInternal: the worker
  /// violated the protocol as the message describes, and nothing was appended.
  Result<bool> add(TokenLog& log, const ipc::DeltaHeader& header, const ipc::Answer& delta);
  /// Appends the payload of a delta of text without tokens, as remotes send it.
  void add_text(TokenLog& log, uint32_t sample, std::string_view payload);
  /// Records a sent event that a client which attaches later needs.
  void note(TokenLog& log, std::string TokenLog::*event, std::string_view json);
  void note_sample_done(TokenLog& log, size_t sample, std::string reason, std::string_view json);
  /// Records the end. This may drop the log.
  void end(TokenLog& log, std::string last, int64_t now_us);
  /// Drops logs whose time has expired.
  void tick(int64_t now_us);

  /// Null if there is none or it belongs to another owner.
  TokenLog* find(uint32_t owner, const std::string& id);
  size_t bytes() const { return bytes_; }
  size_t owner_bytes(uint32_t owner) const;

 private:
  void append(TokenLog& log, uint32_t sample, std::string_view payload, std::string_view logprobs);
  void grow(TokenLog& log, size_t bytes);
  void shrink(TokenLog& log, size_t bytes);
  void bound(uint32_t owner);
  bool drop_oldest_ended(uint32_t owner);
  bool drop_oldest_ended();
  void halve(TokenLog& log);
  void drop(uint64_t number);

  LimitsConfig limits_;
  std::map<uint64_t, TokenLog> logs_;  // by the request's number: in order of arrival
  std::map<std::pair<uint32_t, std::string>, uint64_t> by_id_;
  struct Owner {
    size_t bytes = 0;
    std::set<std::pair<int64_t, uint64_t>> ended;  // end time and number: the oldest first
  };
  std::map<uint32_t, Owner> owners_;  // owners with logs
  size_t bytes_ = 0;
};

/// The first token of a sample that a replay from token `from` would send: the first token of the
/// delta that contains it, or the first one kept. The sample's number of tokens if nothing is left
/// to send.
uint32_t replay_from(const TokenLog::Sample& sample, uint32_t from);
/// The replay as one delta; not a delta if there is nothing to send.
Outgoing replay_delta(const TokenLog::Sample& sample, uint32_t index, uint32_t from);

}  // namespace hearth::broker
