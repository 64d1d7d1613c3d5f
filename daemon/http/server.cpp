#include "daemon/http/server.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <charconv>
#include <chrono>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>

#include "daemon/http/connection.h"
#include "daemon/http/peer.h"
#include "kernels/base/log.h"

namespace hearth::http {
namespace {

namespace asio = boost::asio;
constexpr std::chrono::milliseconds kTick{100};

// An identity ends with the number that makes it one: new_identity().
uint64_t number_of(std::string_view identity) {
  const size_t dash = identity.rfind('-');
  uint64_t number = 0;
  std::from_chars(identity.data() + dash + 1, identity.data() + identity.size(), number);
  return number;
}

class Server final : public HttpServer, public ConnectionHost {
 public:
  Server(asio::io_context& io, const ServerConfig& settings, Backend& broker)
      : io_(io), config_(settings), backend_(broker), unix_(io), tcp_(io), timer_(io) {}
  ~Server() override {
    timer_.cancel();
    std::error_code ignored;
    if (unix_.is_open()) std::filesystem::remove(config_.socket, ignored);
    for (const auto& [number, connection] : std::exchange(connections_, {})) connection->close();
  }

  Result<void> listen();

  ipc::SendOutcome deliver(const std::string& identity, const ipc::Answer& answer) override {
    const auto found = identities_.find(number_of(identity));
    if (found == identities_.end()) return ipc::SendOutcome::kUnreachable;
    const std::shared_ptr<Connection> connection = found->second;
    return connection->deliver(answer);
  }
  uint16_t port() const override { return endpoint_ ? endpoint_->port : 0; }
  bool idle() const override {
    for (const auto& [number, connection] : connections_) {
      if (!connection->idle()) return false;
    }
    return true;
  }

  const ServerConfig& config() const override { return config_; }
  Backend& backend() override { return backend_; }
  std::string new_identity() override {
    return fmt::format("http-{}-{}", config_.instance, ++identities_made_);
  }
  void enter(const std::string& identity, std::shared_ptr<Connection> connection) override {
    identities_.emplace(number_of(identity), std::move(connection));
  }
  void leave(const std::string& identity) override { identities_.erase(number_of(identity)); }
  std::string& scratch() override { return scratch_; }
  void forget(uint64_t number) override { connections_.erase(number); }
  void post(std::function<void()> work) override { asio::post(io_, std::move(work)); }

 private:
  template <class Acceptor>
  void accept(Acceptor& acceptor, bool* accepting);
  void admit(Socket socket, bool tcp);
  void every_tick();
  Result<void> listen_unix();
  Result<void> listen_tcp();

  asio::io_context& io_;
  const ServerConfig config_;
  Backend& backend_;
  std::optional<Endpoint> endpoint_;
  std::optional<Keys> keys_;
  asio::local::stream_protocol::acceptor unix_;
  asio::ip::tcp::acceptor tcp_;
  bool accepting_unix_ = false;
  bool accepting_tcp_ = false;
  asio::steady_timer timer_;
  std::unordered_map<uint64_t, std::shared_ptr<Connection>> connections_;
  std::unordered_map<uint64_t, std::shared_ptr<Connection>> identities_;  // by their numbers
  std::string scratch_;
  uint64_t connections_made_ = 0;
  uint64_t identities_made_ = 0;
};

Error cannot(std::string_view what, const error_code& error) {
  return Error{ErrorCode::kIo, fmt::format("{}: {}", what, error.message()), ""};
}

Result<void> Server::listen_unix() {
  if (config_.socket.native().size() > 107) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: a socket's path has at most 107 bytes", config_.socket.string()),
                 ""};
  }
  // The runtime directory is locked by this daemon: what lies there is left from another.
  std::error_code ignored;
  std::filesystem::remove(config_.socket, ignored);
  error_code error;
  unix_.open(asio::local::stream_protocol(), error);
  if (!error) unix_.bind(asio::local::stream_protocol::endpoint(config_.socket.string()), error);
  if (!error) unix_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return cannot(config_.socket.string(), error);
  if (::chmod(config_.socket.c_str(), 0660) != 0) {
    return Error{ErrorCode::kIo, fmt::format("chmod {}", config_.socket.string()), ""};
  }
  return {};
}

Result<void> Server::listen_tcp() {
  HEARTH_ASSIGN_OR_RETURN(endpoint_, parse_endpoint(config_.listen));
  if (!config_.keys_file.empty()) {
    HEARTH_ASSIGN_OR_RETURN(keys_, Keys::load(config_.keys_file));
  }
  error_code error;
  const auto address = asio::ip::make_address(endpoint_->address, error);
  const asio::ip::tcp::endpoint endpoint(address, endpoint_->port);
  if (!error) tcp_.open(endpoint.protocol(), error);
  if (!error) tcp_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) tcp_.bind(endpoint, error);
  if (!error) tcp_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return cannot(fmt::format("http.listen {}", config_.listen), error);
  endpoint_->port = tcp_.local_endpoint(error).port();
  return {};
}

// Asio does not: a worker that is started later would hold the connection open.
void close_on_exec(int fd) { ::fcntl(fd, F_SETFD, FD_CLOEXEC); }

Result<void> Server::listen() {
  if (!config_.socket.empty()) HEARTH_TRY(listen_unix());
  if (!config_.listen.empty()) HEARTH_TRY(listen_tcp());
  if (unix_.is_open()) close_on_exec(unix_.native_handle());
  if (tcp_.is_open()) close_on_exec(tcp_.native_handle());
  log_info("http_listening", "socket={} tcp_port={} keys={}", config_.socket.string(), port(),
           keys_ ? keys_->size() : 0);
  every_tick();
  return {};
}

template <class Acceptor>
void Server::accept(Acceptor& acceptor, bool* accepting) {
  if (*accepting || !acceptor.is_open()) return;
  *accepting = true;
  acceptor.async_accept([this, &acceptor, accepting](const error_code& error, auto socket) {
    if (error == asio::error::operation_aborted) return;
    *accepting = false;
    if (error) {  // out of descriptors, say: the next tick tries again
      log_warn("http_accept", "error=\"{}\"", error.message());
      return;
    }
    constexpr bool tcp = std::is_same_v<Acceptor, asio::ip::tcp::acceptor>;
    if constexpr (tcp) {
      error_code ignored;
      socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    }
    admit(Socket(std::move(socket)), tcp);
    accept(acceptor, accepting);
  });
}

void Server::admit(Socket socket, bool tcp) {
  close_on_exec(socket.native_handle());
  error_code ignored;
  socket.non_blocking(true, ignored);
  if (connections_.size() >= static_cast<size_t>(config_.max_connections)) {
    constexpr std::string_view kFull =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n"
        "Connection: close\r\n\r\n";
    [[maybe_unused]] const ssize_t n =
        ::send(socket.native_handle(), kFull.data(), kFull.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return;
  }
  Rules rules{.hosts = tcp ? HostRules::of_tcp(*endpoint_, config_.allowed_hosts)
                           : HostRules::of_unix_socket(config_.allowed_hosts),
              .origins = config_.allowed_origins,
              .keys = tcp && keys_ ? &*keys_ : nullptr};
  uint32_t uid = ::geteuid();
  if (!tcp) {
    const std::optional<uint32_t> peer = unix_peer_uid(socket.native_handle());
    if (!peer) return;
    uid = *peer;
  } else if (!keys_) {
    rules.other_user = tcp_peer_uid(socket.native_handle()) != std::optional<uint32_t>(uid);
  }
  const uint64_t number = ++connections_made_;
  auto connection =
      std::make_shared<Connection>(*this, std::move(socket), number, std::move(rules), uid);
  connections_.emplace(number, connection);
  connection->start();
}

void Server::every_tick() {
  accept(unix_, &accepting_unix_);
  accept(tcp_, &accepting_tcp_);
  const int64_t now = now_ms();
  std::vector<std::shared_ptr<Connection>> all;
  for (const auto& [number, connection] : connections_) all.push_back(connection);
  for (const auto& connection : all) connection->check_deadlines(now);
  timer_.expires_after(kTick);
  timer_.async_wait([this](const error_code& error) {
    if (!error) every_tick();
  });
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::open(asio::io_context& io,
                                                     const ServerConfig& config, Backend& backend) {
  auto server = std::make_unique<Server>(io, config, backend);
  HEARTH_TRY(server->listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace hearth::http
