#include "daemon/broker/transport/connection.h"

#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <cerrno>
#include <utility>

#include "kernels/base/log.h"
#include "kernels/base/match.h"

namespace hearth::broker {
namespace {

using boost::system::error_code;

// Buffer memory that an idle connection may keep.
constexpr size_t kIdleBytes = 16 << 10;
constexpr int64_t kNever = -1;

std::string_view name_of(SocketKind kind) {
  switch (kind) {
    case SocketKind::kRouter: return "ROUTER";
    case SocketKind::kXPub: return "XPUB";
  }
  return "";
}

// The socket types that may connect, from RFC 28 and 29.
bool may_talk(SocketKind kind, std::string_view peer_type) {
  switch (kind) {
    case SocketKind::kRouter:
      return peer_type == "DEALER" || peer_type == "REQ" || peer_type == "ROUTER";
    case SocketKind::kXPub: return peer_type == "SUB" || peer_type == "XSUB";
  }
  return false;
}

}  // namespace

Connection::Connection(ConnectionHost& host, Socket socket, const TransportPeer& peer)
    : host_(host),
      socket_(std::move(socket)),
      peer_(peer),
      decoder_(host.limits().message),
      since_us_(host.now_us()) {}

void Connection::start() {
  append(zmtp::greeting());
  flush();
  read();
}

// ---- Input --------------------------------------------------------------------------------------

void Connection::read() {
  if (reading_ || closed_ || holds_ > 0 || waits_for_claim_) return;
  reading_ = true;
  socket_.async_read_some(boost::asio::buffer(in_),
                          [self = shared_from_this()](const error_code& error, size_t bytes) {
                            self->on_read(error, bytes);
                          });
}

void Connection::on_read(const error_code& error, size_t bytes) {
  if (closed_) return;
  if (error) return close();
  host_.take_turn(peer_.credentials.uid,
                  [self = shared_from_this(), bytes] { self->on_turn(bytes); });
}

// No read is started before this point, because in_ holds the received bytes.
void Connection::on_turn(size_t bytes) {
  if (closed_) return;
  reading_ = false;
  take(std::string_view(in_.data(), bytes));
  // There is probably more. Read once more only, so that a flood on one connection does not starve
  // others.
  if (bytes == in_.size() && !closed_ && holds_ == 0 && !waits_for_claim_) {
    const std::span<char> room = host_.scratch();
    const ssize_t n = ::recv(socket_.native_handle(), room.data(), room.size(), MSG_DONTWAIT);
    if (n > 0) take(std::string_view(room.data(), n));
    if (n == 0) return close();
  }
  read();
}

void Connection::take(std::string_view bytes) {
  const auto self = shared_from_this();
  taking_ = true;
  while (!closed_) {
    if (holds_ > 0) {
      pending_.append(bytes);
      break;
    }
    Result<std::optional<zmtp::Event>> event = decoder_.next(&bytes);
    if (!event) {
      fail(event.error());
      break;
    }
    if (!*event) break;
    on_event(std::move(**event));
  }
  taking_ = false;
  if (closed_ || holds_ > 0 || state_ != State::kOpen) return;
  if (!decoder_.is_midway()) {
    since_us_ = kNever;
  } else if (since_us_ == kNever) {
    since_us_ = host_.now_us();
  }
  waits_for_claim_ = !claim_memory();
}

// Takes the memory for a large message from its user's share before the rest is read.
bool Connection::claim_memory() {
  const size_t want = decoder_.message_bytes();
  if (want <= kSmallMessageBytes || want <= claimed_) return true;
  if (!host_.claim(*this, want - claimed_)) return false;
  claimed_ = want;
  decoder_.reserve();
  return true;
}

void Connection::retry_claim() {
  if (closed_ || !waits_for_claim_) return;
  waits_for_claim_ = !claim_memory();
  read();
}

void Connection::on_event(zmtp::Event event) {
  match(
      event, [this](const zmtp::Greeting&) { on_greeting(); },
      [this](const zmtp::Command& command) { on_command(command); },
      [this](zmtp::Message& message) { on_message(std::move(message)); });
}

void Connection::on_greeting() {
  state_ = State::kReady;
  std::string ready;
  zmtp::append_ready(ready, name_of(host_.kind()));
  append(ready);
  flush();
}

void Connection::on_message(zmtp::Message message) {
  if (state_ != State::kOpen) {
    return fail(Error::protocol("met a message before READY"));
  }
  since_us_ = kNever;
  switch (host_.kind()) {
    case SocketKind::kRouter: host_.on_message(peer_, std::move(message)); break;
    case SocketKind::kXPub:
      if (const auto topic = zmtp::subscription_of(message)) host_.on_subscription(peer_, *topic);
      break;
  }
  if (holds_ == 0 && claimed_ > 0) host_.unclaim(*this, std::exchange(claimed_, 0));
}

void Connection::on_command(const zmtp::Command& command) {
  if (state_ == State::kReady) {
    if (command.name != "READY") {
      return fail(Error::protocol("handshake: want READY"));
    }
    const Result<std::string> type = zmtp::socket_type_of(command.data);
    if (!type) return fail(type.error());
    if (!may_talk(host_.kind(), *type)) {
      return fail(Error::protocol("handshake: met a socket of the wrong type"));
    }
    state_ = State::kOpen;
    since_us_ = kNever;
    return;
  }
  if (command.name == "PING") {
    const std::optional<std::string_view> context = zmtp::pong_of(command);
    // A peer that sends pings but does not read gets no answer.
    if (!context || unsent_bytes() > host_.limits().unsent_bytes) return;
    std::string pong;
    zmtp::append_command(pong, "PONG", *context);
    return append(pong);
  }
  if (host_.kind() == SocketKind::kXPub) {
    if (const auto topic = zmtp::subscription_of(command)) host_.on_subscription(peer_, *topic);
  }
}

void Connection::release() {
  if (holds_ == 0 || --holds_ > 0) return;
  if (claimed_ > 0) host_.unclaim(*this, std::exchange(claimed_, 0));
  // Not here: the caller may be inside the code that made room.
  if (taking_ || closed_ || std::exchange(resuming_, true)) return;
  host_.post([self = shared_from_this()] {
    self->resuming_ = false;
    self->resume();
  });
}

void Connection::resume() {
  if (closed_ || holds_ > 0) return;
  if (!pending_.empty()) take(std::exchange(pending_, {}));
  read();
}

void Connection::fail(const Error& error) {
  log_debug("connection_failed", "number={} uid={} error=\"{}\"", peer_.number,
            peer_.credentials.uid, error.message);
  if (state_ != State::kOpen) {
    std::string last;
    zmtp::append_error(last, error.message);
    append(last);
    flush();
  }
  close();
}

// ---- Output -------------------------------------------------------------------------------------

ipc::SendOutcome Connection::send(std::span<const std::string_view> frames) {
  if (closed_ || state_ != State::kOpen) return ipc::SendOutcome::kUnreachable;
  size_t bytes = 0;
  for (const std::string_view frame : frames) bytes += frame.size();
  // A single message larger than the bound is sent if nothing else is unsent.
  const size_t unsent = unsent_bytes();
  if ((unsent > 0 && unsent + bytes > host_.limits().unsent_bytes) ||
      (bytes > kSmallMessageBytes && !host_.may_queue(*this, bytes))) {
    blocked_ = true;
    return ipc::SendOutcome::kWouldBlock;
  }
  const size_t before = out_.size();
  for (size_t i = 0; i < frames.size(); ++i) {
    zmtp::append_frame(out_, frames[i], i + 1 < frames.size());
  }
  host_.queued(*this, out_.size() - before);
  if (unsent == 0) progress_us_ = host_.now_us();
  if (!waits_for_room_ && !std::exchange(flush_soon_, true)) host_.flush_soon(shared_from_this());
  return ipc::SendOutcome::kSent;
}

// For handshakes and PONGs, which are not subject to the bounds.
void Connection::append(std::string_view bytes) {
  if (unsent_bytes() == 0) progress_us_ = host_.now_us();
  out_ += bytes;
  host_.queued(*this, bytes.size());
  if (!waits_for_room_ && !std::exchange(flush_soon_, true)) host_.flush_soon(shared_from_this());
}

void Connection::flush() {
  flush_soon_ = false;
  if (closed_ || waits_for_room_) return;
  while (written_ < out_.size()) {
    const ssize_t n = ::send(socket_.native_handle(), out_.data() + written_,
                             out_.size() - written_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      wait_for_room();
      break;
    }
    if (n < 0) {
      // Not here: the server may be in the middle of accepting this connection.
      host_.post([self = shared_from_this()] { self->close(); });
      return;
    }
    written_ += n;
    progress_us_ = host_.now_us();
    host_.unqueued(*this, n);
  }
  if (written_ == out_.size()) {
    out_.clear();
    written_ = 0;
    if (out_.capacity() > kIdleBytes) out_.shrink_to_fit();
  } else if (written_ > kIdleBytes && written_ > out_.size() / 2) {
    out_.erase(0, written_);
    written_ = 0;
  }
  wrote_enough();
}

void Connection::wrote_enough() {
  if (closed_ || !blocked_ || unsent_bytes() > host_.limits().unsent_bytes / 2) return;
  blocked_ = false;
  host_.on_writable(peer_);
}

void Connection::wait_for_room() {
  waits_for_room_ = true;
  socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const error_code& error) {
    self->waits_for_room_ = false;
    if (error || self->closed_) return;
    self->flush();
  });
}

// ---- Deadlines and closing ----------------------------------------------------------------------

void Connection::check_deadlines(int64_t now_us) {
  const TransportLimits& limits = host_.limits();
  const char* why = nullptr;
  if (state_ != State::kOpen) {
    if (now_us - since_us_ > limits.handshake_timeout_us) why = "handshake";
  } else if (since_us_ != kNever && holds_ == 0 && now_us - since_us_ > limits.message_timeout_us) {
    why = "a message that does not end";
  }
  if (unsent_bytes() > 0 && now_us - progress_us_ > limits.write_timeout_us) {
    why = "it does not read";
  }
  if (why == nullptr) return;
  log_info("connection_timeout", "number={} uid={} why=\"{}\"", peer_.number, peer_.credentials.uid,
           why);
  close();
}

void Connection::close() {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();  // the server may hold the last reference
  if (claimed_ > 0) host_.unclaim(*this, std::exchange(claimed_, 0));
  host_.unqueued(*this, unsent_bytes());
  error_code ignored;
  socket_.close(ignored);
  host_.on_closed(*this);
}

}  // namespace hearth::broker
