#pragma once
// Queues answers for clients, per connection, within a bound.
//
// The socket's own high-water mark is small, so the backlog of a slow client is here, where deltas
// of the same request and sample are merged. A slow reader loses nothing, costs memory only up to
// the bound, and delays no other client. A second bound applies to all connections of a user
// together. Owned by the io thread.

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/broker/transport/peer_id.h"
#include "ipc/wire/socket.h"

namespace hearth::broker {

/// One message to a client, without the connection's address. Most are sent at once and never
/// copied; a queued one is an Outgoing.
struct OutgoingView {
  uint64_t number = 0;          ///< the broker's number of the request; 0: no request
  std::string_view request_id;  ///< as the client wrote it
  bool is_delta = false;
  uint32_t sample = 0;          ///< deltas only
  std::string_view payload;     ///< event: JSON; delta: DeltaHeader + text
  std::string_view ids{};       ///< delta: token ids, i32 little endian
  std::string_view logprobs{};  ///< delta: JSON array, or empty

  size_t bytes() const { return payload.size() + ids.size() + logprobs.size() + request_id.size(); }
};
/// The same, owning its memory.
struct Outgoing {
  uint64_t number = 0;
  std::string request_id;
  bool is_delta = false;
  uint32_t sample = 0;
  std::string payload;
  std::string ids;
  std::string logprobs;

  Outgoing() = default;
  explicit Outgoing(const OutgoingView& from)
      : number(from.number),
        request_id(from.request_id),
        is_delta(from.is_delta),
        sample(from.sample),
        payload(from.payload),
        ids(from.ids),
        logprobs(from.logprobs) {}
  operator OutgoingView() const {
    return {number, request_id, is_delta, sample, payload, ids, logprobs};
  }
  size_t bytes() const { return OutgoingView(*this).bytes(); }
};

class OutputBuffer {
 public:
  static constexpr size_t kConnectionsOfUser = 8;

  using SendFn = std::function<ipc::SendOutcome(const PeerId& peer, const OutgoingView& answer)>;

  /// `bytes_max`: backlog of one connection in bytes of payload. All connections of one user
  /// together may have kConnectionsOfUser times as much.
  OutputBuffer(size_t bytes_max, SendFn send) : bytes_max_(bytes_max), send_(std::move(send)) {}

  enum class Outcome {
    kSent,
    kQueued,
    kOverflow,  ///< refused: the backlog would exceed its bound
    kGone,      ///< the connection is closed; its backlog is dropped
  };
  /// Sends at once if the backlog is empty, else queues or merges. A `must_fit` answer (the last
  /// one of a request, so their number is bounded) is queued even beyond the bound.
  Outcome push(const PeerId& peer, const OutgoingView& answer, bool must_fit);

  /// Retries every backlog. Returns the connections that turned out to be closed.
  std::vector<PeerId> retry();
  /// Retries the backlog of one connection, if it has one. False: the connection is closed and its
  /// backlog dropped. Call it when the client sends: it is alive and may have made room by reading.
  bool retry(const PeerId& peer);

  /// Records that an answer to this connection was dropped. True for the first one since its
  /// backlog began, which is the only one to report.
  bool note_dropped(const PeerId& peer);

  /// The connection is closed: drops its backlog.
  void drop(const PeerId& peer);

  /// The connection does not read: take no further work from it. Its backlog is above half of its
  /// bound, or it has one while the user's backlogs are above half of theirs.
  bool is_behind(const PeerId& peer) const;

  bool has_backlog() const { return !backlogs_.empty(); }
  size_t backlog_bytes(const PeerId& peer) const;
  size_t backlog_messages(const PeerId& peer) const;
  size_t total_bytes() const;
  size_t user_bytes(uint32_t uid) const;

  uint64_t num_merged() const { return num_merged_; }

 private:
  struct Backlog {
    std::list<Outgoing> answers;
    size_t bytes = 0;
    bool told_of_drops = false;
    // Per sample, the last queued delta of a request, into which a new delta may merge. An entry is
    // removed when its delta is sent or an event of the same request is queued after it.
    std::unordered_map<uint64_t, std::vector<std::pair<uint32_t, std::list<Outgoing>::iterator>>>
        last_delta;
  };

  using Backlogs = std::unordered_map<PeerId, Backlog, PeerIdHash>;

  bool fits(const PeerId& peer, size_t backlog_bytes, size_t bytes) const;
  bool merge(const PeerId& peer, Backlog& backlog, const OutgoingView& answer);
  void enqueue(const PeerId& peer, Backlog& backlog, const OutgoingView& answer);
  void pop_front(const PeerId& peer, Backlog& backlog);
  Backlogs::iterator erase(Backlogs::iterator backlog);
  void count(const PeerId& peer, Backlog& backlog, size_t added, size_t removed);
  ipc::SendOutcome send_what_fits(const PeerId& peer, Backlog& backlog);

  size_t bytes_max_;
  SendFn send_;
  Backlogs backlogs_;
  std::unordered_map<uint32_t, size_t> user_bytes_;  // of users with a backlog
  uint64_t num_merged_ = 0;
};

/// Appends `next` to `first`; both are deltas of the same request and sample, and `next` follows.
void merge_deltas(Outgoing* first, const OutgoingView& next);

}  // namespace hearth::broker
