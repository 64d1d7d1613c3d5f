#pragma once
// TLS in front of the HTTP server: each connection is deciphered and passed on through a socket
// pair, whose other end the server serves like any connection. Bytes in both directions are bounded
// by the buffers of the sockets and 16 KiB of ours. Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>

#include "kernels/base/result.h"

namespace hearth::http {

/// A certificate with its key; connections keep the one with which they began.
class TlsIdentity {
 public:
  /// PEM: the certificate with the ones that sign it in order, and its key. Each error names the
  /// file: kIo, kForbidden if other users may read the key, kInvalidArgument if the two do not
  /// belong together or the certificate has expired or does not hold yet.
  static Result<std::shared_ptr<const TlsIdentity>> load(const std::filesystem::path& certificate,
                                                         const std::filesystem::path& key);
  virtual ~TlsIdentity() = default;
};

/// Bounds the handshakes of one peer, each of which takes the loop a millisecond or so.
class HandshakeRate {
 public:
  static constexpr int64_t kEachMs = 20;
  static constexpr int64_t kAtOnce = 100;
  /// False: too many; close the connection unserved.
  bool take(int64_t now_ms);

 private:
  int64_t paid_ms_ = 0;  // when those so far are paid for, one each kEachMs
};

/// The connections of one listener.
class TlsDoor {
 public:
  /// `write_ms`: without progress by the peer.
  struct Deadlines {
    int64_t handshake_ms = 0;
    int64_t write_ms = 0;
  };
  static std::unique_ptr<TlsDoor> create(boost::asio::io_context& io, Deadlines deadlines);
  virtual ~TlsDoor() = default;

  /// Takes over `fd`, which does not block. After the handshake, `serve` gets the end of a socket
  /// pair, which is its to close; without one it is not called. `ended` is called at the end in
  /// either case.
  virtual void begin(int fd, std::shared_ptr<const TlsIdentity> identity,
                     std::function<void(int fd)> serve, std::function<void()> ended) = 0;
  /// Ends connections whose deadline has passed.
  virtual void tick(int64_t now_ms) = 0;
  virtual size_t size() const = 0;
  /// All that the server has answered was passed to the peers' sockets.
  virtual bool idle() const = 0;
};

}  // namespace hearth::http
