#include "daemon/broker/observe/event_hub.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ipc/client/event_stream.h"
#include "kernels/base/log.h"
#include "kernels/base/numbers.h"

namespace hearth::broker {
namespace {

// Unread bytes per listener, enough for seconds of messages. Beyond it, messages are lost.
constexpr size_t kListenerBytes = 1 << 20;
constexpr int64_t kModelsEveryUs = 1'000'000;
constexpr int64_t kMaxOfUser = 16;  // one user cannot take all the places
constexpr size_t kMaxTopicBytes = 64;
constexpr int64_t kForgetUs = 3'600'000'000;  // a listener silent for this long loses its place

}  // namespace

void hide_requests(ipc::WatchUpdate& update, const std::function<bool(uint64_t)>& visible) {
  for (ipc::WatchedStep& step : update.steps) {
    for (ipc::WatchedChunk& chunk : step.prefills) {
      if (!visible(chunk.request)) chunk.request = 0;
    }
  }
  for (ipc::PoolUpdate& pool : update.pools) {
    for (ipc::BlockRun& run : pool.runs) {
      if (run.request != 0 && !visible(run.request)) run.request = 0;
    }
  }
  update.has_prefixes = false;
  update.prefixes.clear();
  std::erase_if(update.requests,
                [&](const ipc::WatchedRequest& row) { return !visible(row.number); });
}

Result<std::unique_ptr<EventHub>> EventHub::open(boost::asio::io_context& io, const Clock& clock,
                                                 Acceptor& acceptor, LoopShares& shares,
                                                 const Rights& rights,
                                                 const std::filesystem::path& path,
                                                 HubSources sources) {
  TransportLimits limits;
  limits.message = {.kept_frames = 1, .kept_bytes = 1024, .max_frames = 8, .max_bytes = 1024};
  limits.connections = kMaxListenerConnections;
  limits.connections_per_user = kMaxListenerConnections / 2;
  limits.unsent_bytes = kListenerBytes;
  std::unique_ptr<EventHub> hub(new EventHub(clock, rights, std::move(sources)));
  TransportHandlers handlers;
  handlers.on_subscription = [raw = hub.get()](const TransportPeer& peer, bool on,
                                               std::string_view topic) {
    raw->on_subscription(peer, on, topic);
  };
  handlers.on_gone = [raw = hub.get()](const TransportPeer& peer) { raw->leave(peer.number); };
  HEARTH_ASSIGN_OR_RETURN(
      hub->socket_, TransportServer::open(io, clock, acceptor, shares, path, SocketKind::kXPub,
                                          limits, std::move(handlers)));
  return hub;
}

int EventHub::listeners() const {
  return narrow<int>(
      std::ranges::count_if(listeners_, [](const auto& each) { return each.second.reads; }));
}

void EventHub::on_subscription(const TransportPeer& peer, bool on, std::string_view topic) {
  if (topic.starts_with(ipc::kStreamAlive)) {
    return on_alive(peer, topic.substr(ipc::kStreamAlive.size()));
  }
  if (!on) {
    const auto found = listeners_.find(peer.number);
    if (found != listeners_.end() && found->second.topic == topic) leave(peer.number);
    return;
  }
  if (!join(peer, topic)) log_debug("events_refused", "topic_bytes={}", topic.size());
}

bool EventHub::join(const TransportPeer& peer, std::string_view topic) {
  const uint32_t uid = peer.credentials.uid;
  if (!topic.starts_with(ipc::stream_topic_prefix(uid)) || topic.size() > kMaxTopicBytes ||
      listeners_.size() >= kMaxListeners || listeners_.contains(peer.number)) {
    return false;
  }
  const auto of_user = std::ranges::count_if(
      listeners_, [uid](const auto& each) { return each.second.peer.uid == uid; });
  if (of_user >= kMaxOfUser) return false;
  Listener& listener = listeners_[peer.number];
  listener.topic = topic;
  listener.peer = peer.credentials;
  begin(listener);
  return true;
}

void EventHub::leave(uint64_t connection) {
  if (listeners_.erase(connection) > 0) when_nobody_listens();
}

void EventHub::begin(Listener& listener) {
  listener.reads = true;
  listener.heard_us = clock_.now_us();
  models_due_us_ = 0;
  sources_.watch_workers(true);
}

void EventHub::on_alive(const TransportPeer& peer, std::string_view topic) {
  const auto found = listeners_.find(peer.number);
  if (found == listeners_.end()) {
    // It was forgotten, or refused when all places were taken; there may be one now.
    join(peer, topic);
    return;
  }
  if (found->second.topic != topic) return;
  if (!found->second.reads) return begin(found->second);
  found->second.heard_us = clock_.now_us();
}

void EventHub::drop_silent() {
  bool dropped = false;
  for (auto& [connection, listener] : listeners_) {
    if (!listener.reads || clock_.now_us() - listener.heard_us <= ipc::kStreamLeaseUs) continue;
    listener.reads = false;
    dropped = true;
    log_info("events_dropped", "uid={} why=\"it has stopped reading\"", listener.peer.uid);
  }
  std::erase_if(listeners_, [this](const auto& each) {
    return !each.second.reads && clock_.now_us() - each.second.heard_us > kForgetUs;
  });
  if (dropped) when_nobody_listens();
}

void EventHub::when_nobody_listens() {
  if (listeners() > 0) return;
  published_.clear();
  owners_.clear();
  sources_.watch_workers(false);
}

void EventHub::publish(uint64_t connection, const Listener& listener, std::string_view kind,
                       std::string_view model, std::string_view payload) {
  const std::array<std::string_view, 4> frames = {listener.topic, kind, model, payload};
  ++sent_;
  socket_->send(connection, frames);  // lost if the listener reads too slowly
}

void EventHub::tick() {
  socket_->tick();
  if (listeners_.empty()) return;
  drop_silent();
  if (listeners() == 0) return;
  const int64_t now_us = clock_.now_us();
  publish_to_all("stats", sources_.stats());
  if (now_us >= models_due_us_) {
    models_due_us_ = now_us + kModelsEveryUs;
    publish_to_all("models", sources_.models());
  }
  publish_requests();
}

void EventHub::publish_to_all(std::string_view kind, std::string_view payload) {
  for (const auto& [connection, listener] : listeners_) {
    if (listener.reads) publish(connection, listener, kind, "", payload);
  }
}

void EventHub::publish_requests() {
  std::vector<HubRequest> live = sources_.requests();
  owners_.clear();
  for (HubRequest& each : live) {
    owners_[each.row.number] = each.owner;
    const auto published = published_.find(each.row.number);
    if (published == published_.end()) continue;
    const ipc::WatchedRequest& from = published->second;
    ipc::WatchedRequest& row = each.row;
    if (row.waiting_for.empty()) row.waiting_for = from.waiting_for;
    if (row.queue_position == 0) row.queue_position = from.queue_position;
    const int32_t sent = row.output_tokens;  // to the client, known only to the broker
    static_cast<ipc::WatchedProgress&>(row) = from;
    row.output_tokens = sent;
  }
  std::erase_if(published_, [this](const auto& each) { return !owners_.contains(each.first); });
  for (const auto& [connection, listener] : listeners_) {
    if (!listener.reads) continue;
    ipc::WatchUpdate update;
    update.now_us = clock_.now_us();
    for (const HubRequest& each : live) {
      if (may_see(listener, each.owner)) update.requests.push_back(each.row);
    }
    publish(connection, listener, "requests", "", ipc::encode_watch(update));
  }
}

void EventHub::on_watch(const std::string& model, std::string_view payload) {
  if (listeners() == 0) return;
  Result<ipc::WatchUpdate> update = ipc::decode_watch(payload);
  if (!update) {
    log_warn("watch_message", "model={} error=\"{}\"", model, update.error().message);
    return;
  }
  for (const ipc::WatchedRequest& row : update->requests) published_[row.number] = row;
  update->requests.clear();
  std::string whole;
  for (const auto& [connection, listener] : listeners_) {
    if (!listener.reads) continue;
    if (rights_.is_admin(listener.peer)) {
      if (whole.empty()) whole = ipc::encode_watch(*update);
      publish(connection, listener, "watch", model, whole);
      continue;
    }
    ipc::WatchUpdate own = *update;
    hide_requests(own, [this, uid = listener.peer.uid](uint64_t number) {
      const auto owner = owners_.find(number);
      return owner != owners_.end() && owner->second == uid;
    });
    publish(connection, listener, "watch", model, ipc::encode_watch(own));
  }
}

}  // namespace hearth::broker
