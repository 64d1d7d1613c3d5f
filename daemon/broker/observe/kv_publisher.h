#pragma once
// KV events for routers, as vLLM publishes them (docs/kv-events.md): numbers the workers' events,
// publishes them to subscribers, and keeps the last ones for replays.
//
// A subscriber that does not read loses messages, which it sees in their numbers, and delays
// nothing. Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/residency/worker.h"
#include "daemon/broker/transport/server.h"
#include "kernels/base/clock.h"
#include "kernels/base/result.h"

namespace hearth::broker {

struct KvPublisherConfig {
  std::string pod;
  size_t buffer_bytes = 0;  ///< of kept messages
  std::filesystem::path events_socket, replay_socket;
  std::optional<TcpAddress> events_address, replay_address;
  std::function<double()> now_s;  ///< seconds since 1970
  /// Whether that user is sent events, which contain the tokens of prompts.
  std::function<bool(const ipc::PeerCredentials& peer)> may_subscribe;
};

/// [ts, events, data_parallel_rank] around a worker's array of events.
std::string kv_payload(double now_s, std::string_view events);
/// The events of a cache that is empty: one AllBlocksCleared.
std::string kv_cleared();

class KvPublisher final : public KvEventSink {
 public:
  static Result<std::unique_ptr<KvPublisher>> open(boost::asio::io_context& io, const Clock& clock,
                                                   Acceptor& acceptor, LoopShares& shares,
                                                   KvPublisherConfig config);

  void on_kv_events(const std::string& model, uint64_t number, std::string_view events) override;
  void on_kv_gone(const std::string& model, uint64_t number) override;
  void tick();

  uint64_t num_published() const { return next_sequence_; }
  uint64_t num_lost() const { return lost_; }  ///< sends to subscribers that did not read
  /// Ports of TCP; 0: none.
  uint16_t events_port() const;
  uint16_t replay_port() const;

 private:
  struct Kept {
    std::string topic;
    std::string payload;
    size_t bytes() const { return topic.size() + payload.size() + sizeof(Kept); }
  };
  /// A replay under way: messages [next, end).
  struct Replay {
    uint64_t next = 0;
    uint64_t end = 0;
  };
  /// A socket that publishes or replays, and its connections.
  struct Door {
    std::unique_ptr<TransportServer> server;
    std::map<uint64_t, std::set<std::string, std::less<>>> topics;  ///< of subscribers
    std::map<uint64_t, Replay> replays;  ///< one at a time of each connection
    std::set<uint64_t> refused;          ///< what was logged
  };
  using Doors = std::vector<std::unique_ptr<Door>>;
  /// The newest worker of a model.
  struct Source {
    uint64_t number = 0;
    bool alive = false;
  };

  KvPublisher(const Clock& clock, KvPublisherConfig config)
      : clock_(clock), config_(std::move(config)) {}
  Result<void> listen(boost::asio::io_context& io, Acceptor& acceptor, LoopShares& shares);
  TransportHandlers handlers_of(Door& door);
  /// Logs the first refusal of a connection.
  void refuse(Door& door, const TransportPeer& peer, std::string_view want);
  void on_subscription(Door& door, const TransportPeer& peer, bool on, std::string_view topic);
  void on_request(Door& door, const TransportPeer& peer, const zmtp::Message& message);
  void continue_replay(Door& door, uint64_t connection);
  void publish(const std::string& model, std::string_view events);

  const Clock& clock_;
  const KvPublisherConfig config_;
  Doors events_doors_, replay_doors_;      ///< TCP last
  std::map<std::string, Source> sources_;  ///< by model
  std::deque<Kept> kept_;                  ///< the last messages, up to next_sequence_ - 1
  size_t kept_bytes_ = 0;
  uint64_t next_sequence_ = 0;
  uint64_t lost_ = 0, lost_logged_ = 0;
  int64_t log_due_us_ = 0;
};

}  // namespace hearth::broker
