#pragma once
// events.sock: publishes the daemon's state to dashboards. Works only while a client listens; a
// listener that stops reading loses messages and delays nothing.
//
// The socket is an XPUB. The hub decides each connection's subscriptions from the peer's
// credentials, which the kernel reports. A listener asks for its own topic, which belongs to its
// user (ipc/client/event_stream.h). An administrator sees every request on it; other users see
// their own, and the numbers of all other requests are replaced by 0. A connection has one topic;
// requests for others cost no memory. A listener whose lease expired is sent nothing until it
// renews it. Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/requests/session.h"
#include "daemon/broker/residency/worker.h"
#include "daemon/broker/transport/server.h"
#include "ipc/schema/watch.h"
#include "kernels/base/clock.h"
#include "kernels/base/result.h"

namespace hearth::broker {

inline constexpr size_t kMaxListeners = 64;
/// Connections to events.sock, including those that do not listen yet.
inline constexpr size_t kMaxListenerConnections = 128;

/// A live request. Its owner decides which listeners see it.
struct HubRequest {
  uint32_t owner = 0;
  ipc::WatchedRequest row;
};

/// Sources of the published data; called only while a client listens.
struct HubSources {
  std::function<std::string()> stats;   ///< JSON reply
  std::function<std::string()> models;  ///< JSON reply
  std::function<std::vector<HubRequest>()> requests;
  /// Turns the workers' updates on or off; called with true again for each new listener.
  std::function<void(bool on)> watch_workers;
};

class EventHub final : public WatchSink {
 public:
  static Result<std::unique_ptr<EventHub>> open(boost::asio::io_context& io, const Clock& clock,
                                                Acceptor& acceptor, LoopShares& shares,
                                                const Rights& rights,
                                                const std::filesystem::path& socket,
                                                HubSources sources);

  /// Listeners that are sent messages; not those that stopped reading.
  int listeners() const;
  /// Call ten times a second: publishes the snapshots that are due. Does nothing without listeners.
  void tick();
  void on_watch(const std::string& model, std::string_view payload) override;
  uint64_t messages_sent() const { return sent_; }

 private:
  struct Listener {
    std::string topic;
    ipc::PeerCredentials peer;
    bool reads = true;  ///< false: it is sent nothing until it renews its lease
    int64_t heard_us = 0;
  };

  EventHub(const Clock& clock, const Rights& rights, HubSources sources)
      : clock_(clock), rights_(rights), sources_(std::move(sources)) {}
  void on_subscription(const TransportPeer& peer, bool on, std::string_view topic);
  void on_alive(const TransportPeer& peer, std::string_view topic);
  bool join(const TransportPeer& peer, std::string_view topic);
  void leave(uint64_t connection);
  void begin(Listener& listener);
  void drop_silent();
  void when_nobody_listens();
  bool may_see(const Listener& listener, uint32_t owner) const {
    return rights_.is_admin(listener.peer) || listener.peer.uid == owner;
  }
  void publish(uint64_t connection, const Listener& listener, std::string_view kind,
               std::string_view model, std::string_view payload);
  void publish_to_all(std::string_view kind, std::string_view payload);
  void publish_requests();

  const Clock& clock_;
  const Rights& rights_;
  HubSources sources_;
  std::unique_ptr<TransportServer> socket_;
  std::map<uint64_t, Listener> listeners_;  ///< by connection
  std::map<uint64_t, ipc::WatchedRequest>
      published_;                        ///< requests last reported by workers, by number
  std::map<uint64_t, uint32_t> owners_;  ///< of live requests, by number
  int64_t models_due_us_ = 0;
  uint64_t sent_ = 0;
};

/// Replaces the numbers of requests that `visible` refuses by 0. Drops their rows and the prefix
/// tree, which all users share.
void hide_requests(ipc::WatchUpdate& update, const std::function<bool(uint64_t)>& visible);

}  // namespace hearth::broker
