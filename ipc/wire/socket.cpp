#include "ipc/wire/socket.h"

#include <fmt/core.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "ipc/wire/frames.h"
#include "kernels/base/check.h"
#include "kernels/base/sizes.h"

namespace hearth::ipc {
namespace {

Error io_error(std::string_view what) {
  return Error::io(fmt::format("{}: {}", what, zmq_strerror(zmq_errno())));
}

int to_zmq(SocketType type) {
  switch (type) {
    case SocketType::kRouter: return ZMQ_ROUTER;
    case SocketType::kDealer: return ZMQ_DEALER;
    case SocketType::kXPub: return ZMQ_XPUB;
    case SocketType::kSub: return ZMQ_SUB;
    case SocketType::kRep: return ZMQ_REP;
  }
  return ZMQ_DEALER;
}

/// Drops what is left of a message whose first frames were refused.
void drop_rest(void* socket) {
  Frame frame;
  while (zmq_msg_recv(frame.handle(), socket, ZMQ_DONTWAIT) >= 0) {
    if (zmq_msg_more(frame.handle()) == 0) return;
  }
}

template <class T>
bool take_number(std::string_view& text, T& out) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (problem != std::errc{}) return false;
  text.remove_prefix(end - text.data());
  return true;
}
bool take_colon(std::string_view& text) {
  if (!text.starts_with(':')) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

Frame::Frame() { zmq_msg_init(&message_); }
Frame::Frame(std::string_view bytes) {
  // Fails only without memory, as every other allocation of ours does.
  HEARTH_CHECK(zmq_msg_init_size(&message_, bytes.size()) == 0, "{} bytes", bytes.size());
  if (!bytes.empty()) std::memcpy(zmq_msg_data(&message_), bytes.data(), bytes.size());
}
Frame::~Frame() { zmq_msg_close(&message_); }
Frame::Frame(Frame&& other) noexcept : Frame() { zmq_msg_move(&message_, &other.message_); }
Frame& Frame::operator=(Frame&& other) noexcept {
  if (this != &other) zmq_msg_move(&message_, &other.message_);
  return *this;
}
std::string_view Frame::view() const {
  return {static_cast<const char*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
}

std::vector<std::string_view> views(const Message& message, size_t from) {
  std::vector<std::string_view> out;
  out.reserve(message.size());
  for (size_t i = from; i < message.size(); ++i) out.push_back(message[i].view());
  return out;
}

std::optional<PeerCredentials> parse_peer_address(std::string_view address) {
  constexpr std::string_view kHost = "localhost";
  if (!address.starts_with(kHost)) return std::nullopt;
  address.remove_prefix(kHost.size());
  PeerCredentials peer;
  if (!take_colon(address) || !take_number(address, peer.uid) || !take_colon(address) ||
      !take_number(address, peer.gid) || !take_colon(address) || !take_number(address, peer.pid) ||
      !address.empty()) {
    return std::nullopt;
  }
  return peer;
}

std::optional<PeerCredentials> peer_of(const Frame& frame) {
  const char* address = zmq_msg_gets(frame.handle(), "Peer-Address");
  if (address == nullptr) return std::nullopt;
  return parse_peer_address(address);
}

void Context::Terminate::operator()(void* context) const { zmq_ctx_term(context); }

Result<Context> Context::create() {
  void* handle = zmq_ctx_new();
  if (handle == nullptr) return io_error("zmq context");
  return Context(handle);
}

void Socket::Close::operator()(void* socket) const { zmq_close(socket); }

Result<Socket> Socket::open(const Context& context, SocketType type, const SocketOptions& options) {
  void* handle = zmq_socket(context.handle(), to_zmq(type));
  if (handle == nullptr) return io_error("zmq socket");
  Socket socket(handle);
  const auto set_int = [handle](int option, int value) {
    return zmq_setsockopt(handle, option, &value, sizeof value) == 0;
  };
  bool ok = set_int(ZMQ_LINGER, 0) && set_int(ZMQ_SNDHWM, options.send_high_water) &&
            set_int(ZMQ_RCVHWM, options.receive_high_water) &&
            zmq_setsockopt(handle, ZMQ_MAXMSGSIZE, &options.max_frame_bytes,
                           sizeof options.max_frame_bytes) == 0;
  if (type == SocketType::kRouter) ok = ok && set_int(ZMQ_ROUTER_MANDATORY, 1);
  if (!options.reconnect) ok = ok && set_int(ZMQ_RECONNECT_IVL, -1);
  if (!options.routing_id.empty()) {
    ok = ok && zmq_setsockopt(handle, ZMQ_ROUTING_ID, options.routing_id.data(),
                              options.routing_id.size()) == 0;
  }
  if (!ok) return io_error("zmq socket options");
  return socket;
}

Result<void> Socket::bind(const std::string& endpoint) {
  if (zmq_bind(handle_.get(), endpoint.c_str()) == 0) return {};
  return io_error(fmt::format("bind {}", endpoint));
}

Result<void> Socket::connect(const std::string& endpoint) {
  if (zmq_connect(handle_.get(), endpoint.c_str()) == 0) return {};
  return io_error(fmt::format("connect {}", endpoint));
}

Result<void> Socket::subscribe(std::string_view prefix) {
  if (zmq_setsockopt(handle_.get(), ZMQ_SUBSCRIBE, prefix.data(), prefix.size()) == 0) return {};
  return io_error("subscribe");
}

Result<void> Socket::unsubscribe(std::string_view prefix) {
  if (zmq_setsockopt(handle_.get(), ZMQ_UNSUBSCRIBE, prefix.data(), prefix.size()) == 0) return {};
  return io_error("unsubscribe");
}

SendOutcome Socket::send(Message& message) {
  for (size_t i = 0; i < message.size(); ++i) {
    const int more = i + 1 < message.size() ? ZMQ_SNDMORE : 0;
    int sent = -1;
    do {
      sent = zmq_msg_send(message[i].handle(), handle_.get(), ZMQ_DONTWAIT | more);
    } while (sent < 0 && zmq_errno() == EINTR);
    if (sent >= 0) continue;
    const int problem = zmq_errno();
    if (i == 0 && problem == EAGAIN) return SendOutcome::kWouldBlock;
    if (i == 0 && problem == EHOSTUNREACH) return SendOutcome::kUnreachable;
    // libzmq accepts the later frames of a message it began, unless the connection ends between
    // them; then it drops the message as a whole, and the frames already handed over are gone.
    message.clear();
    return SendOutcome::kFailed;
  }
  message.clear();
  return SendOutcome::kSent;
}

ReceiveOutcome Socket::receive(Message& out) {
  out.clear();
  while (true) {
    Frame frame;
    int size = -1;
    do {
      size = zmq_msg_recv(frame.handle(), handle_.get(), ZMQ_DONTWAIT);
    } while (size < 0 && zmq_errno() == EINTR);
    if (size < 0) {
      // Messages arrive whole, so only the first frame can be one that is not there yet.
      return zmq_errno() == EAGAIN && out.empty() ? ReceiveOutcome::kWouldBlock
                                                  : ReceiveOutcome::kFailed;
    }
    const bool more = zmq_msg_more(frame.handle()) != 0;
    out.push_back(std::move(frame));
    if (!more) return ReceiveOutcome::kReceived;
    if (out.size() == kMaxFrames) {
      drop_rest(handle_.get());
      return ReceiveOutcome::kMalformed;
    }
  }
}

int Socket::fd() const {
  int fd = -1;
  size_t size = sizeof fd;
  if (zmq_getsockopt(handle_.get(), ZMQ_FD, &fd, &size) != 0) return -1;
  return fd;
}

bool Socket::readable() const {
  int events = 0;
  size_t size = sizeof events;
  return zmq_getsockopt(handle_.get(), ZMQ_EVENTS, &events, &size) == 0 &&
         (events & ZMQ_POLLIN) != 0;
}

int poll(std::span<PollItem> items, int timeout_ms) {
  std::vector<zmq_pollitem_t> native;
  native.reserve(items.size());
  for (const PollItem& item : items) {
    short events = 0;
    if (item.events & POLLIN) events |= ZMQ_POLLIN;
    if (item.events & POLLOUT) events |= ZMQ_POLLOUT;
    native.push_back(
        {item.socket != nullptr ? item.socket->handle() : nullptr, item.fd, events, 0});
  }
  const int ready = zmq_poll(native.data(), size32(native), timeout_ms);
  for (size_t i = 0; i < items.size(); ++i) items[i].ready = ready > 0 && native[i].revents != 0;
  return ready > 0 ? ready : 0;
}

}  // namespace hearth::ipc
