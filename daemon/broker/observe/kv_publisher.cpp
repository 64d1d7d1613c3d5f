#include "daemon/broker/observe/kv_publisher.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "kernels/base/little_endian.h"
#include "kernels/base/log.h"
#include "kernels/base/numbers.h"

namespace hearth::broker {
namespace {

constexpr size_t kKvConnections = 32;  // of one socket; they are routers
constexpr size_t kKvTopics = 64;       // of one connection
constexpr size_t kKvTopicBytes = 256;
// Unread bytes of a connection. A subscriber beyond it loses messages; a replay waits.
constexpr size_t kKvUnsentBytes = 1 << 20;
constexpr uint64_t kEndOfReplay = UINT64_MAX;
constexpr int64_t kKvLogEveryUs = 10'000'000;

std::string big_endian(uint64_t value) {
  std::string out;
  append_u64(out, value);
  std::ranges::reverse(out);
  return out;
}

uint64_t from_big_endian(std::string bytes) {
  std::ranges::reverse(bytes);
  return load_u64(bytes.data());
}

TransportLimits kv_limits() {
  TransportLimits out;
  out.message = {.kept_frames = 4, .kept_bytes = 1024, .max_frames = 8, .max_bytes = 1024};
  out.connections = kKvConnections;
  out.connections_per_user = kKvConnections / 2;
  out.unsent_bytes = kKvUnsentBytes;
  return out;
}

}  // namespace

std::string kv_payload(double now_s, std::string_view events) {
  std::string out = "\x93\xcb" + big_endian(std::bit_cast<uint64_t>(now_s));
  out += events;
  out += '\0';
  return out;
}

std::string kv_cleared() {
  using namespace std::string_literals;
  return "\x91\x81\xa4type\xb0"s + "AllBlocksCleared";
}

Result<std::unique_ptr<KvPublisher>> KvPublisher::open(boost::asio::io_context& io,
                                                       const Clock& clock, Acceptor& acceptor,
                                                       LoopShares& shares,
                                                       KvPublisherConfig config) {
  std::unique_ptr<KvPublisher> out(new KvPublisher(clock, std::move(config)));
  HEARTH_TRY(out->listen(io, acceptor, shares));
  return out;
}

Result<void> KvPublisher::listen(boost::asio::io_context& io, Acceptor& acceptor,
                                 LoopShares& shares) {
  const auto on_unix = [&](Doors& doors, SocketKind kind,
                           const std::filesystem::path& path) -> Result<void> {
    Door& door = *doors.emplace_back(std::make_unique<Door>());
    HEARTH_ASSIGN_OR_RETURN(
        door.server, TransportServer::open(io, clock_, acceptor, shares, path, kind, kv_limits(),
                                           handlers_of(door)));
    return {};
  };
  const auto on_tcp = [&](Doors& doors, SocketKind kind,
                          const std::optional<TcpAddress>& address) -> Result<void> {
    if (!address) return {};
    Door& door = *doors.emplace_back(std::make_unique<Door>());
    HEARTH_ASSIGN_OR_RETURN(door.server,
                            TransportServer::open_tcp(io, clock_, acceptor, shares, *address, kind,
                                                      kv_limits(), handlers_of(door)));
    return {};
  };
  HEARTH_TRY(on_unix(events_doors_, SocketKind::kXPub, config_.events_socket));
  HEARTH_TRY(on_tcp(events_doors_, SocketKind::kXPub, config_.events_address));
  HEARTH_TRY(on_unix(replay_doors_, SocketKind::kRouter, config_.replay_socket));
  HEARTH_TRY(on_tcp(replay_doors_, SocketKind::kRouter, config_.replay_address));
  log_info("kv_events", "pod={} socket={} port={} replay_socket={} replay_port={}", config_.pod,
           config_.events_socket.string(), events_port(), config_.replay_socket.string(),
           replay_port());
  return {};
}

uint16_t KvPublisher::events_port() const { return events_doors_.back()->server->port(); }
uint16_t KvPublisher::replay_port() const { return replay_doors_.back()->server->port(); }

TransportHandlers KvPublisher::handlers_of(Door& door) {
  TransportHandlers handlers;
  handlers.on_subscription = [this, &door](const TransportPeer& peer, bool on,
                                           std::string_view topic) {
    on_subscription(door, peer, on, topic);
  };
  handlers.on_message = [this, &door](const TransportPeer& peer, const zmtp::Message& message) {
    on_request(door, peer, message);
  };
  handlers.on_writable = [this, &door](const TransportPeer& peer) {
    continue_replay(door, peer.number);
  };
  handlers.on_gone = [&door](const TransportPeer& peer) {
    door.topics.erase(peer.number);
    door.replays.erase(peer.number);
    door.refused.erase(peer.number);
  };
  return handlers;
}

void KvPublisher::refuse(Door& door, const TransportPeer& peer, std::string_view want) {
  if (!door.refused.insert(peer.number).second) return;
  log_info("kv_events_refused", "uid={} want=\"{}\"", peer.credentials.uid, want);
}

// ---- Publishing --------------------------------------------------------------------------------

void KvPublisher::on_subscription(Door& door, const TransportPeer& peer, bool on,
                                  std::string_view topic) {
  if (!config_.may_subscribe(peer.credentials)) return refuse(door, peer, "an administrator");
  auto& topics = door.topics[peer.number];
  if (!on) {
    if (const auto found = topics.find(topic); found != topics.end()) topics.erase(found);
    return;
  }
  if (topic.size() > kKvTopicBytes || topics.size() >= kKvTopics) {
    return refuse(door, peer, fmt::format("{} topics of {} bytes", kKvTopics, kKvTopicBytes));
  }
  topics.emplace(topic);
}

void KvPublisher::on_kv_events(const std::string& model, uint64_t number, std::string_view events) {
  Source& source = sources_[model];
  // A worker that drains caches what no router should be sent to.
  if (number < source.number) return;
  if (number > source.number || !source.alive) {
    // For subscribers of an earlier worker or daemon: what they know is gone.
    source = {.number = number, .alive = true};
    publish(model, kv_cleared());
  }
  publish(model, events);
}

void KvPublisher::on_kv_gone(const std::string& model, uint64_t number) {
  const auto source = sources_.find(model);
  if (source == sources_.end() || source->second.number != number || !source->second.alive) return;
  source->second.alive = false;
  publish(model, kv_cleared());
}

void KvPublisher::publish(const std::string& model, std::string_view events) {
  Kept message{.topic = "kv@" + config_.pod + "@" + model,
               .payload = kv_payload(config_.now_s(), events)};
  const std::string sequence = big_endian(next_sequence_++);
  const std::array<std::string_view, 3> frames = {message.topic, sequence, message.payload};
  for (const auto& door : events_doors_) {
    for (const auto& [connection, topics] : door->topics) {
      const bool wanted = std::ranges::any_of(
          topics, [&](const std::string& topic) { return message.topic.starts_with(topic); });
      if (wanted && door->server->send(connection, frames) != ipc::SendOutcome::kSent) ++lost_;
    }
  }
  kept_bytes_ += message.bytes();
  kept_.push_back(std::move(message));
  while (kept_bytes_ > config_.buffer_bytes) {
    kept_bytes_ -= kept_.front().bytes();
    kept_.pop_front();
  }
}

// ---- Replays -----------------------------------------------------------------------------------

void KvPublisher::on_request(Door& door, const TransportPeer& peer, const zmtp::Message& message) {
  if (!config_.may_subscribe(peer.credentials)) return refuse(door, peer, "an administrator");
  const bool valid = message.num_frames == 2 && message.whole && message.frames[0].empty() &&
                     message.frames[1].size() == sizeof(uint64_t);
  if (!valid) return refuse(door, peer, "an empty frame, and a number of 8 bytes");
  door.replays[peer.number] = {.next = from_big_endian(message.frames[1]), .end = next_sequence_};
  door.server->hold(peer.number);
  continue_replay(door, peer.number);
}

// Until the connection is full; on_writable continues.
void KvPublisher::continue_replay(Door& door, uint64_t connection) {
  const auto found = door.replays.find(connection);
  if (found == door.replays.end()) return;
  Replay& replay = found->second;
  const auto send = [&](std::string_view topic, uint64_t sequence, std::string_view payload) {
    const std::string number = big_endian(sequence);
    const std::array<std::string_view, 4> frames = {"", topic, number, payload};
    return door.server->send(connection, frames) == ipc::SendOutcome::kSent;
  };
  while (true) {
    // The buffer may have lost messages meanwhile.
    const uint64_t first = next_sequence_ - kept_.size();
    replay.next = std::max(replay.next, first);
    if (replay.next >= replay.end) break;
    const Kept& message = kept_[replay.next - first];
    if (!send(message.topic, replay.next, message.payload)) return;
    ++replay.next;
  }
  if (!send("", kEndOfReplay, "")) return;
  door.replays.erase(found);
  door.server->release(connection);
}

void KvPublisher::tick() {
  for (const auto& door : events_doors_) door->server->tick();
  for (const auto& door : replay_doors_) door->server->tick();
  if (lost_ == lost_logged_ || clock_.now_us() < log_due_us_) return;
  log_due_us_ = clock_.now_us() + kKvLogEveryUs;
  log_warn("kv_events_lost", "count={} total={} why=\"a subscriber does not read\"",
           lost_ - lost_logged_, lost_);
  lost_logged_ = lost_;
}

}  // namespace hearth::broker
