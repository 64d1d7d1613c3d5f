#pragma once
// One client's connection to a Unix or TCP socket of the daemon: handshake, messages in both
// directions, bounds and deadlines. Owned and used by the io thread.

#include <array>
#include <boost/asio/generic/stream_protocol.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "daemon/broker/transport/zmtp.h"
#include "ipc/wire/socket.h"

namespace hearth::broker {

/// The type of the socket at this end, in ZMTP's terms.
enum class SocketKind {
  kRouter,  ///< peers send and receive messages
  kXPub,    ///< peers subscribe and receive messages
};

struct TransportLimits {
  zmtp::Limits message;
  size_t connections = 1024;
  size_t connections_per_user = 256;
  /// Bytes of messages over kSmallMessageBytes that one user has in reception. Further ones wait in
  /// their sockets.
  size_t receiving_bytes_per_user = 33 << 20;
  size_t unsent_bytes = 64 << 10;  ///< of one connection; above it, send() refuses
  size_t unsent_bytes_per_user = 32 << 20;
  int64_t handshake_timeout_us = 5'000'000;
  int64_t message_timeout_us = 60'000'000;  ///< from a message's first byte to its last
  int64_t write_timeout_us = 60'000'000;    ///< without progress by a peer that has unsent bytes
};

/// Smaller messages are received regardless of the user's share.
inline constexpr size_t kSmallMessageBytes = 64 << 10;

struct TransportPeer {
  uint64_t number = 0;  ///< assigned by the server, never reused
  ipc::PeerCredentials credentials;
};

class Connection;

/// The server that accepted a connection, as the connection sees it. Outlives it.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  virtual const TransportLimits& limits() const = 0;
  virtual SocketKind kind() const = 0;
  virtual void on_message(const TransportPeer& peer, zmtp::Message message) = 0;
  virtual void on_subscription(const TransportPeer& peer, const zmtp::Subscription& topic) = 0;
  /// There is room again after a refused send().
  virtual void on_writable(const TransportPeer& peer) = 0;
  virtual void on_closed(Connection& connection) = 0;
  /// Calls flush() soon, from the loop.
  virtual void flush_soon(std::shared_ptr<Connection> connection) = 0;
  virtual void post(std::function<void()> work) = 0;
  /// Runs `work` soon; users take turns, however many connections each has.
  virtual void take_turn(uint32_t uid, std::function<void()> work) = 0;

  /// Takes `bytes` from the user's share of bytes in reception. False: wait; retry_claim() follows.
  virtual bool claim(Connection& connection, size_t bytes) = 0;
  virtual void unclaim(Connection& connection, size_t bytes) = 0;
  /// Whether the user may have `bytes` more unsent. False: on_writable() follows.
  virtual bool may_queue(Connection& connection, size_t bytes) = 0;
  virtual void queued(const Connection& connection, size_t bytes) = 0;
  virtual void unqueued(const Connection& connection, size_t bytes) = 0;

  virtual std::span<char> scratch() = 0;
  virtual int64_t now_us() const = 0;
};

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;

  Connection(ConnectionHost& host, Socket socket, const TransportPeer& peer);

  const TransportPeer& peer() const { return peer_; }
  void start();
  /// kWouldBlock: too many bytes are unsent; on_writable() follows. kUnreachable: closed.
  ipc::SendOutcome send(std::span<const std::string_view> frames);
  void flush();
  /// Stops reading until release() has been called as many times.
  void hold() { ++holds_; }
  void release();
  void retry_claim();
  void wrote_enough();
  void check_deadlines(int64_t now_us);
  /// Closes it and calls on_closed().
  void close();
  size_t unsent_bytes() const { return out_.size() - written_; }
  bool is_blocked() const { return blocked_; }
  bool is_open() const { return state_ == State::kOpen; }  ///< the handshake is complete

 private:
  enum class State { kGreeting, kReady, kOpen };

  void read();
  void on_read(const boost::system::error_code& error, size_t bytes);
  void on_turn(size_t bytes);
  void take(std::string_view bytes);
  void on_event(zmtp::Event event);
  void on_command(const zmtp::Command& command);
  void on_greeting();
  void on_message(zmtp::Message message);
  void resume();
  bool claim_memory();
  void fail(const Error& error);
  void append(std::string_view bytes);
  void wait_for_room();

  ConnectionHost& host_;
  Socket socket_;
  const TransportPeer peer_;
  zmtp::Decoder decoder_;
  State state_ = State::kGreeting;
  bool closed_ = false;
  bool reading_ = false;
  bool taking_ = false;    // inside take()
  bool resuming_ = false;  // resume() is posted
  int holds_ = 0;
  bool waits_for_claim_ = false;
  size_t claimed_ = 0;   // of the user's share, for the current message
  std::string pending_;  // read, but not decoded while held
  std::string out_;      // bytes to write
  size_t written_ = 0;   // bytes of out_ already written
  bool flush_soon_ = false;
  bool waits_for_room_ = false;
  bool blocked_ = false;     // a send() was refused
  int64_t since_us_;         // start of handshake, then of message; negative between messages
  int64_t progress_us_ = 0;  // time of the last write progress
  std::array<char, 4096> in_;
};

}  // namespace hearth::broker
