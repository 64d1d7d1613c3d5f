#pragma once
// ZeroMQ sockets as move-only values. Nothing throws, nothing waits: sends and receives are
// non-blocking and their expected outcomes are enums. One thread per socket, the one that opened
// it; a Context outlives its sockets and may be shared by threads.
//
// What bounds a peer: ZMQ_MAXMSGSIZE per frame (the peer is disconnected), kMaxFrames per message
// (the message is dropped), the high-water marks in messages. A peer may still send one message of
// endless frames, which libzmq gathers before its user sees the message. So the daemon listens with
// it only on TCP with CURVE keys, and not on Unix sockets (daemon/broker/transport).

#include <poll.h>
#include <zmq.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::ipc {

/// Owns one frame's bytes. Moving is cheap; forwarding a received frame copies nothing.
class Frame {
 public:
  Frame();
  explicit Frame(std::string_view bytes);
  ~Frame();
  Frame(Frame&& other) noexcept;
  Frame& operator=(Frame&& other) noexcept;
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  std::string_view view() const;
  zmq_msg_t* handle() const { return &message_; }

 private:
  mutable zmq_msg_t message_;  // libzmq's readers take no const
};

using Message = std::vector<Frame>;

/// Appends frames with these bytes.
template <class... Views>
void append(Message& message, const Views&... bytes) {
  (message.emplace_back(std::string_view(bytes)), ...);
}
/// Views of frames [from, end).
std::vector<std::string_view> views(const Message& message, size_t from = 0);

/// The process at the other end of an ipc connection, as the kernel reports it (SO_PEERCRED).
struct PeerCredentials {
  uint32_t uid = 0;
  uint32_t gid = 0;
  int32_t pid = 0;
  bool operator==(const PeerCredentials&) const = default;
};
/// "localhost:uid:gid:pid"; nothing for any other form.
std::optional<PeerCredentials> parse_peer_address(std::string_view address);
/// Of the connection that a received frame came by; nothing where the transport is not ipc.
std::optional<PeerCredentials> peer_of(const Frame& frame);

class Context {
 public:
  static Result<Context> create();
  void* handle() const { return handle_.get(); }

 private:
  struct Terminate {
    void operator()(void* context) const;
  };
  explicit Context(void* handle) : handle_(handle) {}
  std::unique_ptr<void, Terminate> handle_;
};

enum class SocketType { kRouter, kDealer, kXPub, kSub, kRep };

struct SocketOptions {
  int send_high_water = 256;           ///< messages per peer; beyond: kWouldBlock
  int receive_high_water = 256;        ///< messages per peer; beyond, the peer's sends wait
  int64_t max_frame_bytes = 33 << 20;  ///< a bigger frame ends the connection; -1: no bound
  bool reconnect = true;  ///< false: a connection that ends stays ended (sends are kWouldBlock)
  std::string
      routing_id;  ///< what a ROUTER at the other end knows this socket by; empty: its choice
};

enum class SendOutcome {
  kSent,
  kWouldBlock,   ///< the peer's queue is full, or a DEALER has no peer: keep it, try later
  kUnreachable,  ///< ROUTER: no such peer (any more)
  kFailed,       ///< the socket is unusable, or the connection ended amid the frames
};

enum class ReceiveOutcome {
  kReceived,
  kWouldBlock,  ///< nothing waits
  kMalformed,   ///< more than kMaxFrames; the first frames are delivered, the rest dropped
  kFailed,
};

class Socket {
 public:
  /// ROUTERs are mandatory: an unknown peer is an outcome, not a silence. Linger is 0.
  static Result<Socket> open(const Context& context, SocketType type,
                             const SocketOptions& options = {});

  /// "ipc:///run/hearth/api.sock". kIo with the endpoint and the system's reason.
  Result<void> bind(const std::string& endpoint);
  Result<void> connect(const std::string& endpoint);

  /// Sends all frames or none. `message` is empty after kSent and kFailed, else untouched.
  SendOutcome send(Message& message);
  ReceiveOutcome receive(Message& out);

  /// SUB: topics starting with `prefix`.
  Result<void> subscribe(std::string_view prefix);
  Result<void> unsubscribe(std::string_view prefix);

  /// Edge-triggered: after it is readable, and after every send, drain until kWouldBlock (or ask
  /// readable()) before waiting on it again.
  int fd() const;
  bool readable() const;
  void* handle() const { return handle_.get(); }

 private:
  struct Close {
    void operator()(void* socket) const;
  };
  explicit Socket(void* handle) : handle_(handle) {}
  std::unique_ptr<void, Close> handle_;
};

/// One thing to wait for: a socket (readable), or else a file descriptor with poll(2) events.
struct PollItem {
  const Socket* socket = nullptr;
  int fd = -1;
  short events = POLLIN;
  bool ready = false;  ///< out
};
/// Waits until one is ready or `timeout_ms` has passed (-1: no limit); the number of ready ones, 0
/// also when a signal came.
int poll(std::span<PollItem> items, int timeout_ms);

}  // namespace hearth::ipc
