#include "daemon/http/server.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/http/connection.h"
#include "daemon/http/peer.h"
#include "daemon/http/tls.h"
#include "kernels/base/log.h"

namespace hearth::http {
namespace {

namespace asio = boost::asio;
// Bound on a user's incoming bytes, in addition to one request of the largest size, and on a user's
// answers that wait to be written.
constexpr size_t kShareBytes = 8 << 20;
// Wrong keys without a delay; each further one doubles the wait.
constexpr int kFreeWrongKeys = 5;
constexpr int64_t kKeyPauseMs = 100;
constexpr int64_t kMaxKeyPauseMs = 10'000;
// Connections of peers that the kernel cannot name or that no rule admits.
constexpr size_t kStrangers = 8;
constexpr uint32_t kNobody = UINT32_MAX;
// Between two reports of connections that come from elsewhere than the trusted proxy.
constexpr int64_t kStrangersEveryMs = 1'000;

class Server final : public HttpServer, public ConnectionHost {
 public:
  Server(asio::io_context& io, const ServerConfig& settings, Backend& broker)
      : io_(io), config_(settings), backend_(broker) {}
  ~Server() override {
    for (const uint64_t listener : listeners_) backend_.accept_no_more(listener);
    door_.reset();
    std::error_code ignored;
    if (bound_) std::filesystem::remove(config_.socket, ignored);
    for (const auto& [number, connection] : std::exchange(connections_, {})) connection->close();
  }

  Result<void> listen();

  ipc::SendOutcome deliver(uint64_t exchange, const ipc::Answer& answer) override {
    const auto found = at_or_behind(exchange);
    if (found == exchanges_.end() || found->first != exchange) {
      return ipc::SendOutcome::kUnreachable;
    }
    const std::shared_ptr<Connection> connection = found->second;
    return connection->deliver(answer);
  }
  void serve_own(int fd, uint32_t uid) override;
  uint16_t port() const override { return endpoint_ ? endpoint_->port : 0; }
  bool idle() const override {
    for (const auto& [number, connection] : connections_) {
      if (!connection->is_own() && !connection->idle()) return false;
    }
    return door_ == nullptr || door_->idle();
  }

  void tick() override;
  Result<void> reload() override;
  std::map<uint32_t, std::string> key_owners() const override {
    return keys_ ? keys_->owners() : std::map<uint32_t, std::string>();
  }

  const ServerConfig& config() const override { return config_; }
  Backend& backend() override { return backend_; }
  uint64_t new_exchange() override { return ++exchanges_made_; }
  void enter(uint64_t exchange, std::shared_ptr<Connection> connection) override {
    exchanges_.emplace(at_or_behind(exchange), exchange, std::move(connection));
  }
  void leave(uint64_t exchange) override {
    const auto found = at_or_behind(exchange);
    if (found != exchanges_.end() && found->first == exchange) exchanges_.erase(found);
  }
  std::string& scratch() override { return scratch_; }
  void forget(uint64_t number) override {
    const auto found = peers_of_.find(number);
    if (found != peers_of_.end()) {
      --peers_[found->second].connections;
      peers_of_.erase(found);
    }
    connections_.erase(number);
  }
  bool charge(uint32_t peer_uid, size_t before, size_t bytes) override {
    Peer& peer = peers_[peer_uid];
    const size_t most = config_.max_body_bytes + kShareBytes;
    if (bytes > before && peer.incoming - before + bytes > most) return false;
    peer.incoming = peer.incoming - before + bytes;
    if (bytes < before && !peer.waiting.empty()) wake(std::exchange(peer.waiting, {}));
    return true;
  }
  bool claim(uint32_t peer_uid, size_t before, size_t bytes, uint64_t number) override {
    Peer& peer = peers_[peer_uid];
    // Not all of the share, so that other requests still come in.
    const size_t most = config_.max_body_bytes + kShareBytes / 2;
    if (peer.incoming - before + bytes <= most) return charge(peer_uid, before, bytes);
    peer.waiting.push_back(number);
    return false;
  }
  void count_unsent(uint32_t peer_uid, size_t before, size_t bytes) override {
    size_t& unsent = peers_[peer_uid].unsent;
    unsent = unsent - before + bytes;
  }
  bool is_behind(uint32_t peer_uid) override { return peers_[peer_uid].unsent > kShareBytes; }
  bool charge_answers(uint32_t peer_uid, size_t before, size_t bytes) override {
    Peer& peer = peers_[peer_uid];
    // A single answer is always sent, whatever its length.
    if (bytes > before && peer.outgoing > 0 && peer.outgoing - before + bytes > kShareBytes) {
      return false;
    }
    peer.outgoing = peer.outgoing - before + bytes;
    return true;
  }
  void wrong_key(uint32_t peer_uid) override {
    Peer& peer = peers_[peer_uid];
    if (++peer.wrong_keys <= kFreeWrongKeys) return;
    peer.key_pause_ms = std::clamp(peer.key_pause_ms * 2, kKeyPauseMs, kMaxKeyPauseMs);
    peer.no_key_before_ms = now_ms() + peer.key_pause_ms;
    log_warn("http_wrong_keys", "uid={} count={} pause_ms={}", peer_uid, peer.wrong_keys,
             peer.key_pause_ms);
  }
  int64_t key_wait_ms(uint32_t peer_uid) override {
    return std::max<int64_t>(peers_[peer_uid].no_key_before_ms - now_ms(), 0);
  }
  void post(std::function<void()> work) override { asio::post(io_, std::move(work)); }
  void take_turn(uint32_t peer_uid, std::function<void()> work) override {
    backend_.take_turn(peer_uid, std::move(work));
  }

 private:
  // Resources of one user, over all listeners.
  struct Peer {
    size_t connections = 0;
    size_t incoming = 0;            // bytes of incoming requests
    size_t outgoing = 0;            // bytes of long answers waiting to be written
    size_t unsent = 0;              // bytes of all answers waiting to be written
    std::vector<uint64_t> waiting;  // connections that wait for their part of `incoming`
    int wrong_keys = 0;
    int64_t key_pause_ms = 0;
    int64_t no_key_before_ms = 0;
    HandshakeRate handshakes{};
  };
  using InExchange = std::pair<uint64_t, std::shared_ptr<Connection>>;
  std::vector<InExchange>::iterator at_or_behind(uint64_t exchange) {
    return std::ranges::lower_bound(exchanges_, exchange, {}, &InExchange::first);
  }
  void accept_from(int listener, bool tcp);
  void admit(int fd, bool tcp, std::optional<uint32_t> named);
  bool is_proxy(int fd);
  bool has_room(uint32_t peer_uid, bool other_user);
  void begin_tls(int fd, Rules rules, uint32_t peer_uid);
  void serve_pair(int fd, Rules rules, uint32_t uid, uint32_t peer_uid, bool counted);
  void serve(Socket socket, Rules rules, uint32_t uid, uint32_t peer_uid, bool counted);
  void wake(std::vector<uint64_t> numbers);
  Result<void> listen_unix();
  Result<void> listen_tcp();

  asio::io_context& io_;
  const ServerConfig config_;
  Backend& backend_;
  std::optional<Endpoint> endpoint_;
  std::optional<Keys> keys_;
  std::shared_ptr<const TlsIdentity> identity_;  // null: no TLS
  std::unique_ptr<TlsDoor> door_;
  int64_t strangers_logged_ms_ = 0;
  bool bound_ = false;  // the Unix socket
  std::vector<uint64_t> listeners_;
  std::unordered_map<uint64_t, std::shared_ptr<Connection>> connections_;
  std::vector<InExchange> exchanges_;                // ascending; searched once per token
  std::unordered_map<uint32_t, Peer> peers_;         // by user id
  std::unordered_map<uint64_t, uint32_t> peers_of_;  // by connection, but for those of TLS
  std::string scratch_;
  uint64_t connections_made_ = 0;
  uint64_t exchanges_made_ = 0;
};

Error cannot(std::string_view what, const error_code& error) {
  return Error::io(fmt::format("{}: {}", what, error.message()));
}

Result<void> Server::listen_unix() {
  if (config_.socket.native().size() > 107) {
    return Error::invalid(
        fmt::format("{}: a socket's path has at most 107 bytes", config_.socket.string()));
  }
  // This daemon holds the lock of the runtime directory, so an existing socket is stale.
  std::error_code ignored;
  std::filesystem::remove(config_.socket, ignored);
  error_code error;
  asio::local::stream_protocol::acceptor acceptor(io_);
  acceptor.open(asio::local::stream_protocol(), error);
  if (!error) acceptor.bind(asio::local::stream_protocol::endpoint(config_.socket.string()), error);
  if (!error) acceptor.native_non_blocking(true, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return cannot(config_.socket.string(), error);
  bound_ = true;
  if (::chmod(config_.socket.c_str(), 0660) != 0) {
    return Error::io(fmt::format("chmod {}", config_.socket.string()));
  }
  accept_from(acceptor.release(), false);
  return {};
}

Result<void> Server::listen_tcp() {
  HEARTH_ASSIGN_OR_RETURN(endpoint_, parse_endpoint(config_.listen));
  HEARTH_TRY(reload());
  if (identity_ != nullptr) {
    door_ = TlsDoor::create(
        io_, {.handshake_ms = config_.header_timeout_ms, .write_ms = config_.write_timeout_ms});
  }
  error_code error;
  const auto address = asio::ip::make_address(endpoint_->address, error);
  const asio::ip::tcp::endpoint endpoint(address, endpoint_->port);
  asio::ip::tcp::acceptor acceptor(io_);
  if (!error) acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.native_non_blocking(true, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return cannot(fmt::format("http.listen {}", config_.listen), error);
  endpoint_->port = acceptor.local_endpoint(error).port();
  accept_from(acceptor.release(), true);
  return {};
}

void Server::accept_from(int listener, bool tcp) {
  // Asio does not set it. A worker started later would otherwise hold the socket open.
  ::fcntl(listener, F_SETFD, FD_CLOEXEC);
  listeners_.push_back(backend_.accept_from(
      listener,
      !tcp                  ? unix_peer_uid
      : endpoint_->loopback ? tcp_peer_uid
                            : network_peer_uid,
      [this, tcp](int fd, std::optional<uint32_t> uid) { admit(fd, tcp, uid); }));
}

Result<void> Server::listen() {
  if (!config_.socket.empty()) HEARTH_TRY(listen_unix());
  if (!config_.listen.empty()) HEARTH_TRY(listen_tcp());
  log_info("http_listening", "socket={} tcp_port={} keys={} tls={}", config_.socket.string(),
           port(), keys_ ? keys_->size() : 0, identity_ != nullptr);
  return {};
}

Result<void> Server::reload() {
  std::optional<Keys> keys;
  std::shared_ptr<const TlsIdentity> identity;
  if (!config_.keys_file.empty()) {
    HEARTH_ASSIGN_OR_RETURN(keys, Keys::load(config_.keys_file));
  }
  if (!config_.tls_certificate_file.empty()) {
    HEARTH_ASSIGN_OR_RETURN(identity,
                            TlsIdentity::load(config_.tls_certificate_file, config_.tls_key_file));
  }
  keys_ = std::move(keys);  // in place: connections have its address
  identity_ = std::move(identity);
  return {};
}

// Connections without an identified user are counted apart and cannot shut out a user.
void Server::admit(int fd, bool tcp, std::optional<uint32_t> named) {
  const bool other_user = tcp && !keys_ && named != std::optional<uint32_t>(::geteuid());
  const uint32_t peer_uid = named.value_or(kNobody);
  if (tcp && !config_.trusted_proxy.empty() && !is_proxy(fd)) {
    ::close(fd);
    return;
  }
  if ((!tcp && !named) || !has_room(peer_uid, other_user)) {
    constexpr std::string_view kFull =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n"
        "Connection: close\r\n\r\n";
    [[maybe_unused]] const ssize_t n =
        tcp && identity_ != nullptr
            ? 0
            : ::send(fd, kFull.data(), kFull.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::close(fd);
    return;
  }
  Rules rules{.hosts = tcp ? HostRules::of_tcp(*endpoint_, config_.allowed_hosts)
                           : HostRules::of_unix_socket(config_.allowed_hosts),
              .origins = config_.allowed_origins,
              .keys = tcp && keys_ ? &*keys_ : nullptr};
  rules.other_user = other_user;
  if (tcp && identity_ != nullptr) return begin_tls(fd, std::move(rules), peer_uid);
  Socket socket(io_);
  error_code error;
  if (tcp) {
    const auto protocol = endpoint_->v6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4();
    socket.assign(asio::generic::stream_protocol(protocol), fd, error);
    if (!error) socket.set_option(asio::ip::tcp::no_delay(true), error);
  } else {
    socket.assign(asio::generic::stream_protocol(asio::local::stream_protocol()), fd, error);
  }
  if (error) {
    if (!socket.is_open()) ::close(fd);
    return;
  }
  serve(std::move(socket), std::move(rules), tcp ? ::geteuid() : *named, peer_uid, true);
}

bool Server::is_proxy(int fd) {
  const std::string address = peer_address(fd);
  if (std::ranges::count(config_.trusted_proxy, address) > 0) return true;
  const int64_t now = now_ms();
  if (now - strangers_logged_ms_ >= kStrangersEveryMs) {
    strangers_logged_ms_ = now;
    log_warn("http_not_a_proxy", "address={}", address);
  }
  return false;
}

// The peer's account has the connection from here to the end of TLS.
void Server::begin_tls(int fd, Rules rules, uint32_t peer_uid) {
  if (!peers_[peer_uid].handshakes.take(now_ms())) {
    ::close(fd);
    return;
  }
  ++peers_[peer_uid].connections;
  door_->begin(
      fd, identity_,
      [this, rules = std::move(rules), peer_uid](int pair) {
        serve_pair(pair, rules, ::geteuid(), peer_uid, false);
      },
      [this, peer_uid] { --peers_[peer_uid].connections; });
}

void Server::serve_pair(int fd, Rules rules, uint32_t uid, uint32_t peer_uid, bool counted) {
  Socket socket(io_);
  error_code error;
  socket.assign(asio::generic::stream_protocol(asio::local::stream_protocol()), fd, error);
  if (error) {
    ::close(fd);
    return;
  }
  serve(std::move(socket), std::move(rules), uid, peer_uid, counted);
}

void Server::serve_own(int fd, uint32_t uid) {
  Rules rules{.hosts = HostRules::of_unix_socket({}), .origins = {}, .keys = nullptr};
  rules.own = true;
  serve_pair(fd, std::move(rules), uid, uid, true);
}

bool Server::has_room(uint32_t peer_uid, bool other_user) {
  const size_t most = config_.max_connections;
  size_t share = std::max<size_t>(most / 2, 1);
  if (other_user || peer_uid == kNobody) share = std::min(share, kStrangers);
  const bool full = connections_.size() >= most || (door_ != nullptr && door_->size() >= most);
  return !full && peers_[peer_uid].connections < share;
}

void Server::serve(Socket socket, Rules rules, uint32_t uid, uint32_t peer_uid, bool counted) {
  error_code ignored;
  socket.non_blocking(true, ignored);
  const uint64_t number = ++connections_made_;
  auto connection = std::make_shared<Connection>(*this, std::move(socket), number, std::move(rules),
                                                 uid, peer_uid);
  if (counted) {
    ++peers_[peer_uid].connections;
    peers_of_.emplace(number, peer_uid);
  }
  connections_.emplace(number, connection);
  connection->start();
}

// Their user has taken in less by now. In order, so that none waits forever.
void Server::wake(std::vector<uint64_t> numbers) {
  post([this, numbers = std::move(numbers)] {
    for (const uint64_t number : numbers) {
      const auto found = connections_.find(number);
      if (found == connections_.end()) continue;
      const std::shared_ptr<Connection> connection = found->second;
      connection->retry_claim();
    }
  });
}

void Server::tick() {
  const int64_t now = now_ms();
  std::vector<std::shared_ptr<Connection>> late;
  for (const auto& [number, connection] : connections_) {
    if (connection->is_late(now)) late.push_back(connection);
  }
  for (const auto& connection : late) connection->check_deadlines(now);
  if (door_ != nullptr) door_->tick(now);
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::open(asio::io_context& io,
                                                     const ServerConfig& config, Backend& backend) {
  auto server = std::make_unique<Server>(io, config, backend);
  HEARTH_TRY(server->listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace hearth::http
