#pragma once
// events.sock: tells dashboards what happens. Works only while somebody listens; a listener that
// stops reading loses messages and holds nobody up.
//
// The socket is an XPUB: what a listener is subscribed to is decided here, from what the kernel
// says about the peer. It asks for a topic of its user's that is its alone
// (ipc/client/event_stream.h) and gets that; an administrator sees every request under it, others
// their own, with the numbers of everybody else's put out. A connection has one topic; of others it
// asks for, no memory is kept. A listener that has not said for a while that it reads is told
// nothing more until it does. Owned by the io thread.

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
#include "daemon/broker/transport/server.h"
#include "ipc/schema/watch.h"
#include "kernels/base/clock.h"
#include "kernels/base/result.h"

namespace hearth::broker {

inline constexpr size_t kMaxListeners = 64;
/// To events.sock: those that listen, and some that do not yet.
inline constexpr size_t kMaxListenerConnections = 128;

/// A live request with its owner, for the hub to show or to hide.
struct HubRequest {
  uint32_t owner = 0;
  ipc::WatchedRequest row;
};

/// Where the hub gets what it publishes; asked only while somebody listens.
struct HubSources {
  std::function<std::string()> stats;   ///< JSON reply
  std::function<std::string()> models;  ///< JSON reply
  std::function<std::vector<HubRequest>()> requests;
  /// Whether workers shall tell; called with true again for each new listener.
  std::function<void(bool on)> watch_workers;
};

class EventHub {
 public:
  static Result<std::unique_ptr<EventHub>> open(boost::asio::io_context& io, const Clock& clock,
                                                const Rights& rights,
                                                const std::filesystem::path& socket,
                                                HubSources sources);

  /// That are told; not those that have stopped reading.
  int listeners() const;
  /// Ten times a second: the snapshots that are due. Without listeners it does nothing.
  void tick();
  /// A worker's encoded WatchUpdate.
  void on_watch(const std::string& model, std::string_view payload);
  uint64_t messages_sent() const { return sent_; }

 private:
  struct Listener {
    std::string topic;
    ipc::PeerCredentials peer;
    bool reads = true;  ///< false: it is told nothing until it says so
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
  std::map<uint64_t, Listener> listeners_;        ///< by connection
  std::map<uint64_t, ipc::WatchedRequest> told_;  ///< what workers last said, by number
  std::map<uint64_t, uint32_t> owners_;           ///< of live requests, by number
  int64_t models_due_us_ = 0;
  uint64_t sent_ = 0;
};

/// Numbers of requests that `visible` refuses become 0; rows of theirs are dropped, and so is the
/// tree of prefixes, which is everybody's.
void hide_requests(ipc::WatchUpdate& update, const std::function<bool(uint64_t)>& visible);

}  // namespace hearth::broker
