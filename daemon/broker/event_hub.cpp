#include "daemon/broker/event_hub.h"

#include <sys/stat.h>
#include <zmq.h>

#include <algorithm>
#include <utility>

#include "ipc/event_stream.h"
#include "ipc/paths.h"
#include "kernels/base/log.h"

namespace hearth::broker {
namespace {

// A listener's queue: ten seconds and more of messages. Beyond, it loses them.
constexpr int kListenerHighWater = 512;
constexpr int64_t kModelsEveryUs = 1'000'000;
constexpr size_t kMaxListeners = 64;
constexpr int64_t kMaxOfUser = 16;  // nobody takes all the places
constexpr size_t kMaxTopicBytes = 64;
constexpr int64_t kForgetUs = 3'600'000'000;  // silent for so long, it gives its place to others
constexpr size_t kMaxRefused = 1024;

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

Result<std::unique_ptr<EventHub>> EventHub::open(boost::asio::io_context& io,
                                                 const ipc::Context& context, const Clock& clock,
                                                 const Rights& rights,
                                                 const std::filesystem::path& path,
                                                 HubSources sources) {
  const ipc::SocketOptions options{.send_high_water = kListenerHighWater,
                                   .receive_high_water = 256,
                                   .max_frame_bytes = 1024,
                                   .reconnect = true,
                                   .routing_id = {}};
  HEARTH_ASSIGN_OR_RETURN(ipc::Socket socket,
                          ipc::Socket::open(context, ipc::SocketType::kXPub, options));
  const int manual = 1;
  if (zmq_setsockopt(socket.handle(), ZMQ_XPUB_MANUAL, &manual, sizeof manual) != 0) {
    return Error{ErrorCode::kIo, "events.sock: subscriptions cannot be controlled", ""};
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string endpoint, ipc::ipc_endpoint(path));
  HEARTH_TRY(socket.bind(endpoint));
  if (::chmod(path.c_str(), 0660) != 0) {
    return Error{ErrorCode::kIo, "chmod " + path.string(), ""};
  }
  std::unique_ptr<EventHub> hub(new EventHub(clock, rights, std::move(sources)));
  hub->handle_ = socket.handle();
  hub->socket_ = std::make_unique<ZmqOnAsio>(
      io, std::move(socket),
      [raw = hub.get()](ipc::Message& message, bool) { raw->on_subscription(message); });
  return hub;
}

int EventHub::listeners() const {
  return static_cast<int>(
      std::ranges::count_if(listeners_, [](const auto& each) { return each.second.reads; }));
}

void EventHub::on_subscription(ipc::Message& message) {
  if (message.empty()) return;
  const std::string_view bytes = message.front().view();
  if (bytes.empty() || (bytes.front() != 0 && bytes.front() != 1)) return;
  const bool joins = bytes.front() == 1;
  const std::string topic(bytes.substr(1));
  const std::optional<ipc::PeerCredentials> peer = ipc::peer_of(message.front());
  if (topic.starts_with(ipc::kStreamAlive)) {
    return on_alive(topic.substr(ipc::kStreamAlive.size()), peer);
  }
  if (!joins) return on_leave(topic);
  if (!peer || !join(topic, *peer)) {
    log_debug("events_refused", "topic_bytes={}", topic.size());
    if (refused_.size() < kMaxRefused || refused_.contains(topic)) ++refused_[topic];
  }
}

bool EventHub::join(const std::string& topic, const ipc::PeerCredentials& peer) {
  if (!topic.starts_with(ipc::stream_topic_prefix(peer.uid)) || topic.size() > kMaxTopicBytes ||
      listeners_.size() >= kMaxListeners || listeners_.contains(topic)) {
    return false;
  }
  const auto of_user = std::ranges::count_if(
      listeners_, [&peer](const auto& each) { return each.second.uid == peer.uid; });
  if (of_user >= kMaxOfUser ||
      zmq_setsockopt(handle_, ZMQ_SUBSCRIBE, topic.data(), topic.size()) != 0) {
    return false;
  }
  Listener& listener = listeners_[topic];
  listener.uid = peer.uid;
  listener.admin = rights_.is_admin(peer);
  begin(listener);
  return true;
}

// Of a connection that has ended the peer is not known any more. One that was refused takes
// nobody's place: while there are such of that topic, they are taken to be the ones that go.
void EventHub::on_leave(const std::string& topic) {
  const auto refused = refused_.find(topic);
  if (refused != refused_.end()) {
    if (--refused->second <= 0) refused_.erase(refused);
    return;
  }
  if (listeners_.erase(topic) == 0) return;
  zmq_setsockopt(handle_, ZMQ_UNSUBSCRIBE, topic.data(), topic.size());
  when_nobody_listens();
}

void EventHub::begin(Listener& listener) {
  listener.reads = true;
  listener.heard_us = clock_.now_us();
  models_due_us_ = 0;
  sources_.watch_workers(true);
}

void EventHub::on_alive(const std::string& topic, const std::optional<ipc::PeerCredentials>& peer) {
  const auto found = listeners_.find(topic);
  if (found == listeners_.end()) {
    // Forgotten, or refused for want of places: now there may be one.
    if (peer && join(topic, *peer)) refused_.erase(topic);
    return;
  }
  // The topic is known to its listener alone, so the peer need not be asked.
  if (!found->second.reads) return begin(found->second);
  found->second.heard_us = clock_.now_us();
}

void EventHub::drop_silent() {
  bool dropped = false;
  for (auto& [topic, listener] : listeners_) {
    if (!listener.reads || clock_.now_us() - listener.heard_us <= ipc::kStreamLeaseUs) continue;
    listener.reads = false;
    dropped = true;
    log_info("events_dropped", "uid={} why=\"it has stopped reading\"", listener.uid);
  }
  std::erase_if(listeners_, [this](const auto& each) {
    return !each.second.reads && clock_.now_us() - each.second.heard_us > kForgetUs;
  });
  if (dropped) when_nobody_listens();
}

void EventHub::when_nobody_listens() {
  if (listeners() > 0) return;
  told_.clear();
  owners_.clear();
  sources_.watch_workers(false);
}

void EventHub::publish(const std::string& topic, std::string_view kind, std::string_view model,
                       std::string_view payload) {
  ipc::Message message;
  ipc::append(message, topic, kind, model, payload);
  ++sent_;
  socket_->send(message);  // a full queue drops it, as an XPUB does
}

void EventHub::tick() {
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
  for (const auto& [topic, listener] : listeners_) {
    if (listener.reads) publish(topic, kind, "", payload);
  }
}

void EventHub::publish_requests() {
  std::vector<HubRequest> live = sources_.requests();
  owners_.clear();
  for (HubRequest& each : live) {
    owners_[each.row.number] = each.owner;
    const auto said = told_.find(each.row.number);
    if (said == told_.end()) continue;
    const ipc::WatchedRequest& from = said->second;
    ipc::WatchedRequest& row = each.row;
    if (row.waiting_for.empty()) row.waiting_for = from.waiting_for;
    if (row.queue_position == 0) row.queue_position = from.queue_position;
    const int32_t sent = row.output_tokens;  // to the client: the broker knows better
    static_cast<ipc::WatchedProgress&>(row) = from;
    row.output_tokens = sent;
  }
  std::erase_if(told_, [this](const auto& each) { return !owners_.contains(each.first); });
  for (const auto& [topic, listener] : listeners_) {
    if (!listener.reads) continue;
    ipc::WatchUpdate update;
    update.now_us = clock_.now_us();
    for (const HubRequest& each : live) {
      if (may_see(listener, each.owner)) update.requests.push_back(each.row);
    }
    publish(topic, "requests", "", ipc::encode_watch(update));
  }
}

void EventHub::on_watch(const std::string& model, std::string_view payload) {
  if (listeners() == 0) return;
  Result<ipc::WatchUpdate> update = ipc::decode_watch(payload);
  if (!update) {
    log_warn("watch_message", "model={} error=\"{}\"", model, update.error().message);
    return;
  }
  for (const ipc::WatchedRequest& row : update->requests) told_[row.number] = row;
  update->requests.clear();
  std::string whole;
  for (const auto& [topic, listener] : listeners_) {
    if (!listener.reads) continue;
    if (listener.admin) {
      if (whole.empty()) whole = ipc::encode_watch(*update);
      publish(topic, "watch", model, whole);
      continue;
    }
    ipc::WatchUpdate own = *update;
    hide_requests(own, [this, uid = listener.uid](uint64_t number) {
      const auto owner = owners_.find(number);
      return owner != owners_.end() && owner->second == uid;
    });
    publish(topic, "watch", model, ipc::encode_watch(own));
  }
}

}  // namespace hearth::broker
