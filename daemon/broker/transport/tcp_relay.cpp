#include "daemon/broker/transport/tcp_relay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/chars.h"
#include "kernels/base/log.h"

namespace hearth::broker {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::local::stream_protocol;
using boost::system::error_code;

constexpr size_t kGreetingBytes = 64;
constexpr size_t kMostBytes = 1024;  // bytes of a server before READY: its greeting and a WELCOME
// Wait imposed on an address after refused keys: doubles from the first value up to the second.
constexpr int64_t kPenaltyUs = 100'000;
constexpr int64_t kMaxPenaltyUs = 30'000'000;
constexpr size_t kMaxAddresses = 4096;

// An abstract name begins with a zero byte.
std::string unix_name(const sockaddr_un& address, socklen_t bytes) {
  constexpr size_t kPathAt = offsetof(sockaddr_un, sun_path);
  if (address.sun_family != AF_UNIX || bytes <= kPathAt) return "";
  return std::string(address.sun_path, std::min<size_t>(bytes - kPathAt, sizeof address.sun_path));
}

Result<tcp::endpoint> parse_address(const std::string& text) {
  const auto wrong = [&] {
    return Error::invalid(
        fmt::format("server.tcp is \"{}\": want ADDRESS:PORT, as 127.0.0.1:7117", text),
        "server.tcp");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong();
  std::string host = text.substr(0, colon);
  uint16_t port = 0;
  const char* const last = text.data() + text.size();
  const auto [end, problem] = std::from_chars(text.data() + colon + 1, last, port);
  if (problem != std::errc{} || end != last) return wrong();
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  error_code error;
  const auto address =
      host == "*" ? asio::ip::make_address("0.0.0.0", error) : asio::ip::make_address(host, error);
  if (error) return wrong();
  return tcp::endpoint(address, port);
}

class Relay;

// A client's socket, its socket to libzmq, and the bytes relayed between them.
class Pair : public std::enable_shared_from_this<Pair> {
 public:
  Pair(Relay& relay, uint64_t number, std::string address, tcp::socket outer, asio::io_context& io,
       int64_t now_us)
      : relay_(relay),
        number_(number),
        address_(std::move(address)),
        outer_(std::move(outer)),
        inner_(io),
        began_us_(now_us) {}

  void start(const std::filesystem::path& inner);
  void close();
  bool admitted() const { return handshake_.admitted(); }
  const std::string& address() const { return address_; }
  uint64_t number() const { return number_; }
  int64_t began_us() const { return began_us_; }
  const std::string& name() const { return name_; }
  size_t undelivered() const { return undelivered_; }
  int64_t paused_since_us() const { return paused_since_us_; }  ///< kNotPaused: not paused
  static constexpr int64_t kNotPaused = INT64_MAX;

  /// A message was delivered. Returns the number of bytes that this frees.
  size_t delivered() { return std::exchange(undelivered_, 0); }
  void resume();
  std::optional<uint32_t> uid;  // known once a message was delivered

 private:
  void pump_in();
  void pump_out();
  void on_bytes(size_t bytes);

  Relay& relay_;
  const uint64_t number_;
  const std::string address_;
  tcp::socket outer_;
  stream_protocol::socket inner_;
  const int64_t began_us_;
  CurveHandshake handshake_;
  std::string name_;        // of inner_
  size_t bytes_in_ = 0;     // before the key was admitted
  size_t undelivered_ = 0;  // bytes since the last delivered message
  int64_t paused_since_us_ = kNotPaused;
  bool closed_ = false;
  std::array<char, 16384> in_;
  std::array<char, 16384> out_;
};

class Relay final : public TcpRelay {
 public:
  Relay(asio::io_context& io, const Clock& clock, std::filesystem::path inner,
        const RelayLimits& limits)
      : io_(io), clock_(clock), inner_(std::move(inner)), limits_(limits), acceptor_(io) {}
  ~Relay() override {
    *alive_ = false;
    for (const auto& [number, pair] : std::exchange(pairs_, {})) pair->close();
  }

  Result<void> listen(const std::string& address);
  void tick() override;
  size_t num_connections() const override { return pairs_.size(); }
  uint16_t port() const override {
    error_code ignored;
    return acceptor_.local_endpoint(ignored).port();
  }

  void delivered(std::string_view name, uint32_t uid) override;

  const RelayLimits& limits() const { return limits_; }
  int64_t now_us() const { return clock_.now_us(); }
  void named(const Pair& pair) { names_[pair.name()] = pair.number(); }
  void closed(Pair& pair);
  /// Counts bytes sent towards libzmq.
  void add_undelivered(const Pair& pair, size_t bytes);
  bool may_read(const Pair& pair) const;

 private:
  struct Address {
    size_t connections = 0;
    size_t undelivered = 0;
    int64_t penalty_us = 0;
    int64_t not_before_us = 0;
  };
  void accept();
  void admit(tcp::socket socket);
  void freed(const std::string& address, size_t bytes);
  std::shared_ptr<Pair> stalled() const;

  asio::io_context& io_;
  const Clock& clock_;
  const std::filesystem::path inner_;
  const RelayLimits limits_;
  tcp::acceptor acceptor_;
  bool accepting_ = false;
  std::map<uint64_t, std::shared_ptr<Pair>> pairs_;
  std::map<std::string, Address> addresses_;
  std::map<std::string, uint64_t, std::less<>> names_;  // of inner sockets -> pair
  std::map<uint32_t, size_t> users_;                    // pairs by user, above 0
  size_t undelivered_ = 0;
  uint64_t last_number_ = 0;
  uint64_t refused_ = 0;
  uint64_t refused_logged_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

void Pair::start(const std::filesystem::path& inner) {
  error_code error;
  inner_.open(stream_protocol(), error);
  // A name chosen by the kernel, which identifies the connection on which a message reached libzmq.
  sockaddr_un any{};
  any.sun_family = AF_UNIX;
  if (!error && ::bind(inner_.native_handle(), reinterpret_cast<sockaddr*>(&any),
                       sizeof any.sun_family) == 0) {
    sockaddr_un bound{};
    socklen_t bytes = sizeof bound;
    ::getsockname(inner_.native_handle(), reinterpret_cast<sockaddr*>(&bound), &bytes);
    name_ = unix_name(bound, bytes);
  }
  if (!error && !name_.empty()) inner_.connect(stream_protocol::endpoint(inner.string()), error);
  if (error || name_.empty()) return close();
  relay_.named(*this);
  ::fcntl(inner_.native_handle(), F_SETFD, FD_CLOEXEC);
  pump_in();
  pump_out();
}

void Pair::pump_in() {
  if (!relay_.may_read(*this)) {
    paused_since_us_ = relay_.now_us();
    return;
  }
  outer_.async_read_some(asio::buffer(in_),
                         [self = shared_from_this()](const error_code& error, size_t bytes) {
                           if (self->closed_) return;
                           error ? self->close() : self->on_bytes(bytes);
                         });
}

void Pair::on_bytes(size_t bytes) {
  if (!admitted()) {
    bytes_in_ += bytes;
    if (bytes_in_ > relay_.limits().handshake_bytes) return close();
  } else {
    undelivered_ += bytes;
    relay_.add_undelivered(*this, bytes);
  }
  asio::async_write(inner_, asio::buffer(in_.data(), bytes),
                    [self = shared_from_this()](const error_code& failed, size_t) {
                      if (self->closed_) return;
                      failed ? self->close() : self->pump_in();
                    });
}

void Pair::resume() {
  if (closed_ || paused_since_us_ == kNotPaused || !relay_.may_read(*this)) return;
  paused_since_us_ = kNotPaused;
  pump_in();
}

void Pair::pump_out() {
  inner_.async_read_some(asio::buffer(out_),
                         [self = shared_from_this()](const error_code& error, size_t bytes) {
                           if (self->closed_) return;
                           if (error) return self->close();
                           self->handshake_.push(std::string_view(self->out_.data(), bytes));
                           asio::async_write(self->outer_, asio::buffer(self->out_.data(), bytes),
                                             [self](const error_code& failed, size_t) {
                                               if (self->closed_) return;
                                               failed ? self->close() : self->pump_out();
                                             });
                         });
}

void Pair::close() {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();
  error_code ignored;
  outer_.close(ignored);
  inner_.close(ignored);
  relay_.closed(*this);
}

Result<void> Relay::listen(const std::string& text) {
  HEARTH_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, parse_address(text));
  error_code error;
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return Error::io(fmt::format("server.tcp {}: {}", text, error.message()));
  }
  ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
  accept();
  return {};
}

void Relay::accept() {
  if (std::exchange(accepting_, true)) return;
  acceptor_.async_accept([this, alive = alive_](const error_code& error, tcp::socket socket) {
    if (!*alive || error == asio::error::operation_aborted) return;
    accepting_ = false;
    if (error) return;  // for example out of descriptors: the next tick retries
    admit(std::move(socket));
    accept();
  });
}

void Relay::admit(tcp::socket socket) {
  ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
  error_code error;
  const std::string from = socket.remote_endpoint(error).address().to_string();
  if (error) return;
  const int64_t now = clock_.now_us();
  if (addresses_.size() >= kMaxAddresses && !addresses_.contains(from)) {
    std::erase_if(addresses_, [](const auto& each) { return each.second.connections == 0; });
  }
  Address& address = addresses_[from];
  if (pairs_.size() >= limits_.connections || now < address.not_before_us ||
      address.connections >= limits_.connections_per_address) {
    ++refused_;
    return;
  }
  ++address.connections;
  socket.set_option(tcp::no_delay(true), error);
  const uint64_t number = ++last_number_;
  auto pair = std::make_shared<Pair>(*this, number, from, std::move(socket), io_, now);
  pairs_.emplace(number, pair);
  pair->start(inner_);
}

bool Relay::may_read(const Pair& pair) const {
  const auto address = addresses_.find(pair.address());
  return pair.undelivered() < limits_.undelivered_bytes &&
         undelivered_ < limits_.undelivered_total &&
         (address == addresses_.end() ||
          address->second.undelivered < limits_.undelivered_per_address);
}

void Relay::add_undelivered(const Pair& pair, size_t bytes) {
  undelivered_ += bytes;
  addresses_[pair.address()].undelivered += bytes;
}

void Relay::freed(const std::string& address, size_t bytes) {
  if (bytes == 0) return;
  undelivered_ -= bytes;
  addresses_[address].undelivered -= bytes;
  std::vector<std::shared_ptr<Pair>> paused;
  for (const auto& [number, pair] : pairs_) {
    if (pair->paused_since_us() != Pair::kNotPaused) paused.push_back(pair);
  }
  for (const auto& pair : paused) pair->resume();
}

void Relay::delivered(std::string_view name, uint32_t uid) {
  const auto found = names_.find(name);
  if (found == names_.end()) return;
  const std::shared_ptr<Pair> pair = pairs_.at(found->second);
  if (!pair->uid) {
    pair->uid = uid;
    if (++users_[uid] > limits_.connections_per_user) {
      log_warn("tcp_connections_of_user", "uid={} limit={}", uid, limits_.connections_per_user);
      return pair->close();
    }
  }
  freed(pair->address(), pair->delivered());
}

// If any pair has been paused for too long: the pair with the most undelivered bytes. Else null.
std::shared_ptr<Pair> Relay::stalled() const {
  std::shared_ptr<Pair> most;
  bool waits = false;
  for (const auto& [number, pair] : pairs_) {
    if (pair->paused_since_us() != Pair::kNotPaused &&
        clock_.now_us() - pair->paused_since_us() > limits_.undelivered_timeout_us) {
      waits = true;
    }
    if (most == nullptr || pair->undelivered() > most->undelivered()) most = pair;
  }
  return waits ? most : nullptr;
}

void Relay::closed(Pair& pair) {
  if (pairs_.erase(pair.number()) == 0) return;
  names_.erase(pair.name());
  if (pair.uid && --users_[*pair.uid] == 0) users_.erase(*pair.uid);
  freed(pair.address(), pair.delivered());
  Address& address = addresses_[pair.address()];
  --address.connections;
  if (pair.admitted()) {
    address.penalty_us = address.not_before_us = 0;
    return;
  }
  log_warn("tcp_client_refused", "address={}", pair.address());
  address.penalty_us = std::clamp(address.penalty_us * 2, kPenaltyUs, kMaxPenaltyUs);
  address.not_before_us = clock_.now_us() + address.penalty_us;
}

void Relay::tick() {
  accept();
  if (refused_ != std::exchange(refused_logged_, refused_)) {
    log_warn("tcp_connections_refused", "total={}", refused_);
  }
  const int64_t now = clock_.now_us();
  std::vector<std::shared_ptr<Pair>> late;
  for (const auto& [number, pair] : pairs_) {
    if (!pair->admitted() && now - pair->began_us() > limits_.handshake_timeout_us) {
      late.push_back(pair);
    }
  }
  for (const auto& pair : late) pair->close();
  if (const std::shared_ptr<Pair> pair = stalled()) {
    log_warn("tcp_message_without_end", "address={} bytes={}", pair->address(),
             pair->undelivered());
    pair->close();
  }
}

}  // namespace

std::string peer_name(int fd) {
  sockaddr_un peer{};
  socklen_t bytes = sizeof peer;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) return "";
  return unix_name(peer, bytes);
}

void CurveHandshake::push(std::string_view bytes) {
  if (admitted_ || bytes_.size() >= kMostBytes) return;
  bytes_.append(bytes.substr(0, kMostBytes - bytes_.size()));
  // Commands as ZMTP frames: flags, size in one byte, length of the name, name.
  size_t at = kGreetingBytes;
  while (at + 2 < bytes_.size()) {
    const size_t size = byte_of(bytes_[at + 1]);
    if (bytes_[at] != 4) return;
    if (std::string_view(bytes_).substr(at + 2).starts_with("\x05READY")) admitted_ = true;
    if (admitted_) break;
    at += 2 + size;
  }
  if (admitted_) bytes_ = {};
}

Result<std::unique_ptr<TcpRelay>> TcpRelay::open(asio::io_context& io, const Clock& clock,
                                                 const std::string& address,
                                                 std::filesystem::path inner,
                                                 const RelayLimits& limits) {
  auto relay = std::make_unique<Relay>(io, clock, std::move(inner), limits);
  HEARTH_TRY(relay->listen(address));
  return std::unique_ptr<TcpRelay>(std::move(relay));
}

}  // namespace hearth::broker
