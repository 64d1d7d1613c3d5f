#pragma once
// One client's connection to a Unix socket of the daemon: handshake, messages in, messages out,
// bounds and deadlines. Owned and used by the io thread.

#include <array>
#include <boost/asio/local/stream_protocol.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "daemon/broker/transport/zmtp.h"
#include "ipc/wire/socket.h"

namespace hearth::broker {

/// What the server at this end of a connection is, as ZMTP names it.
enum class SocketKind {
  kRouter,  ///< peers send messages and are sent messages
  kXPub,    ///< peers subscribe and are sent messages
};

struct TransportLimits {
  zmtp::Limits message;
  size_t connections = 1024;
  size_t connections_per_user = 256;
  /// Of messages over kSmallMessageBytes that are being received, of one user. More of them wait
  /// in their sockets.
  size_t receiving_bytes_per_user = 33 << 20;
  size_t unsent_bytes = 64 << 10;  ///< of one connection; beyond, send() refuses
  size_t unsent_bytes_per_user = 32 << 20;
  int64_t handshake_timeout_us = 5'000'000;
  int64_t message_timeout_us = 60'000'000;  ///< from a message's first byte to its last
  int64_t write_timeout_us = 60'000'000;    ///< without a byte taken by a peer that is owed some
};

/// Below this a message is received without regard to what its user's others take.
inline constexpr size_t kSmallMessageBytes = 64 << 10;

struct TransportPeer {
  uint64_t number = 0;  ///< given by the server, never twice
  ipc::PeerCredentials credentials;
};

class Connection;

/// What a connection asks of the server that accepted it. Outlives it.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  virtual const TransportLimits& limits() const = 0;
  virtual SocketKind kind() const = 0;
  virtual void on_message(const TransportPeer& peer, zmtp::Message message) = 0;
  virtual void on_subscription(const TransportPeer& peer, const zmtp::Subscription& topic) = 0;
  /// After a send() that was refused: there is room again.
  virtual void on_writable(const TransportPeer& peer) = 0;
  virtual void on_closed(Connection& connection) = 0;
  /// Calls flush() soon, from the loop.
  virtual void flush_soon(std::shared_ptr<Connection> connection) = 0;
  virtual void post(std::function<void()> work) = 0;
  /// Runs `work` soon; users take turns, however many connections each has.
  virtual void take_turn(uint32_t uid, std::function<void()> work) = 0;

  /// Of the user's share of bytes being received. False: wait; retry_claim() follows.
  virtual bool claim(Connection& connection, size_t bytes) = 0;
  virtual void unclaim(Connection& connection, size_t bytes) = 0;
  /// Whether the user may have so many more bytes unsent. False: on_writable() follows.
  virtual bool may_queue(Connection& connection, size_t bytes) = 0;
  virtual void queued(const Connection& connection, size_t bytes) = 0;
  virtual void unqueued(const Connection& connection, size_t bytes) = 0;

  virtual std::span<char> scratch() = 0;
  virtual int64_t now_us() const = 0;
};

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::local::stream_protocol::socket;

  Connection(ConnectionHost& host, Socket socket, const TransportPeer& peer);

  const TransportPeer& peer() const { return peer_; }
  void start();
  /// kWouldBlock: too much is unsent; on_writable() follows. kUnreachable: closed.
  ipc::SendOutcome send(std::span<const std::string_view> frames);
  void flush();
  /// Nothing more is read until release() was called as often.
  void hold() { ++holds_; }
  void release();
  void retry_claim();
  void wrote_enough();
  void check_deadlines(int64_t now_us);
  /// Ends it; on_closed() is called from here.
  void close();
  size_t unsent_bytes() const { return out_.size() - written_; }
  bool is_blocked() const { return blocked_; }
  bool is_open() const { return state_ == State::kOpen; }  ///< its handshake was done

 private:
  enum class State { kGreeting, kReady, kOpen };

  void read();
  void on_read(const boost::system::error_code& error, size_t bytes);
  void on_turn(size_t bytes);
  void take(std::string_view bytes);
  void on_event(zmtp::Event event);
  void on_command(const zmtp::Command& command);
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
  size_t claimed_ = 0;   // of the user's share, for the message at hand
  std::string pending_;  // read, and not looked at while held
  std::string out_;      // to be written
  size_t written_ = 0;   // of it
  bool flush_soon_ = false;
  bool waits_for_room_ = false;
  bool blocked_ = false;     // a send() was refused
  int64_t since_us_;         // of the handshake; then of the message at hand, below 0 outside one
  int64_t progress_us_ = 0;  // of writing
  std::array<char, 4096> in_;
};

}  // namespace hearth::broker
