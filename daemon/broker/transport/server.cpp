#include "daemon/broker/transport/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/base/log.h"

namespace hearth::broker {
namespace {

constexpr int64_t kDeadlinesEveryUs = 500'000;
constexpr size_t kScratchBytes = 64 << 10;
constexpr size_t kMinConnections = 16;

Error os_error(const std::filesystem::path& path, std::string_view what) {
  return Error::io(fmt::format("{}: {}: {}", path.string(), what, std::strerror(errno)));
}

std::optional<ipc::PeerCredentials> credentials_of(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return ipc::PeerCredentials{.uid = peer.uid, .gid = peer.gid, .pid = peer.pid};
}

std::optional<uint32_t> uid_of(int fd) {
  const std::optional<ipc::PeerCredentials> peer = credentials_of(fd);
  return peer ? std::optional(peer->uid) : std::nullopt;
}

class Server final : public TransportServer, public ConnectionHost {
 public:
  Server(boost::asio::io_context& io, const Clock& clock, Acceptor& acceptor, LoopShares& shares,
         SocketKind kind, const TransportLimits& limits, TransportHandlers handlers)
      : io_(io),
        clock_(clock),
        acceptor_(acceptor),
        shares_(shares),
        kind_(kind),
        limits_(limits),
        handlers_(std::move(handlers)),
        scratch_(kScratchBytes) {}
  ~Server() override;

  Result<void> listen(const std::filesystem::path& path);
  Result<void> listen(const TcpAddress& address);

  ipc::SendOutcome send(uint64_t number, std::span<const std::string_view> frames) override {
    const auto found = connections_.find(number);
    return found == connections_.end() ? ipc::SendOutcome::kUnreachable
                                       : found->second->send(frames);
  }
  void hold(uint64_t number) override {
    if (const auto found = connections_.find(number); found != connections_.end()) {
      found->second->hold();
    }
  }
  void release(uint64_t number) override {
    if (const auto found = connections_.find(number); found != connections_.end()) {
      found->second->release();
    }
  }
  void tick() override;
  bool idle() const override { return total_unsent_ == 0; }
  uint16_t port() const override { return port_; }
  size_t num_connections() const override { return connections_.size(); }
  uint64_t num_refused() const override { return refused_; }

  // ConnectionHost
  const TransportLimits& limits() const override { return limits_; }
  SocketKind kind() const override { return kind_; }
  void on_message(const TransportPeer& peer, zmtp::Message message) override {
    handlers_.on_message(peer, std::move(message));
  }
  void on_subscription(const TransportPeer& peer, const zmtp::Subscription& topic) override {
    handlers_.on_subscription(peer, topic.on, topic.topic);
  }
  void on_writable(const TransportPeer& peer) override {
    if (handlers_.on_writable) handlers_.on_writable(peer);
  }
  void on_closed(Connection& connection) override;
  void flush_soon(std::shared_ptr<Connection> connection) override;
  void post(std::function<void()> work) override;
  void take_turn(uint32_t uid, std::function<void()> work) override {
    shares_.take_turn(uid, std::move(work));
  }
  bool claim(Connection& connection, size_t bytes) override;
  void unclaim(Connection& connection, size_t bytes) override;
  bool may_queue(Connection& connection, size_t bytes) override;
  void queued(const Connection& connection, size_t bytes) override;
  void unqueued(const Connection& connection, size_t bytes) override;
  std::span<char> scratch() override { return scratch_; }
  int64_t now_us() const override { return clock_.now_us(); }

 private:
  struct User {
    size_t connections = 0;
    size_t receiving = 0;
    size_t unsent = 0;
    std::deque<uint64_t> wait_to_receive;
    std::deque<uint64_t> wait_to_send;
  };

  void accept_from(int listener, Acceptor::NameUser name_user);
  void admit(int fd, std::optional<uint32_t> uid);
  const char* refusal(uint32_t uid);
  void note_refused(uint64_t count, std::string_view why);
  void flush_all();
  void wake(std::deque<uint64_t> waiting, void (Connection::*resume)());

  boost::asio::io_context& io_;
  const Clock& clock_;
  Acceptor& acceptor_;
  LoopShares& shares_;
  std::filesystem::path path_;  // of a Unix socket, once it is bound
  std::string name_;            // for messages
  int family_ = AF_UNIX;
  uint16_t port_ = 0;  // of a TCP socket
  const SocketKind kind_;
  const TransportLimits limits_;
  const TransportHandlers handlers_;
  uint64_t listener_ = 0;  // the acceptor's number of our socket; 0: none
  std::unordered_map<uint64_t, std::shared_ptr<Connection>> connections_;
  std::unordered_map<uint32_t, User> users_;
  std::vector<std::shared_ptr<Connection>> to_flush_;
  bool flushing_ = false;
  size_t total_unsent_ = 0;
  uint64_t last_number_ = 0;
  uint64_t refused_ = 0;
  uint64_t refused_logged_ = 0;
  std::string refused_why_;
  int64_t deadlines_due_us_ = 0;
  std::vector<char> scratch_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // handlers may outlive us
};

Server::~Server() {
  *alive_ = false;
  // The owner is being destroyed too, so no callback is called.
  for (const auto& [number, connection] : std::exchange(connections_, {})) connection->close();
  acceptor_.remove(listener_);
  if (!path_.empty()) ::unlink(path_.c_str());
}

Result<void> Server::listen(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name_ = path.string();
  if (name_.size() >= sizeof address.sun_path) {
    return Error::invalid(fmt::format("{}: {} bytes, a socket's path has at most {}", name_,
                                      name_.size(), sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, name_.c_str(), name_.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return os_error(path, "socket");
  const auto failed = [&](std::string_view what) {
    Error error = os_error(path, what);
    ::close(fd);
    return error;
  };
  ::unlink(name_.c_str());  // left by a daemon that was killed
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return failed("bind");
  }
  path_ = path;
  if (::chmod(name_.c_str(), 0660) != 0) return failed("chmod");
  if (::listen(fd, SOMAXCONN) != 0) return failed("listen");
  accept_from(fd, uid_of);
  return {};
}

Result<void> Server::listen(const TcpAddress& address) {
  using boost::asio::ip::tcp;
  boost::system::error_code error;
  const auto parsed = boost::asio::ip::make_address(address.address, error);
  if (error) return Error::invalid(fmt::format("{}: not an address", address.name));
  const tcp::endpoint endpoint(parsed, address.port);
  name_ = address.name;
  family_ = endpoint.protocol().family();
  tcp::acceptor acceptor(io_);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(boost::asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.native_non_blocking(true, error);
  if (!error) acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
  if (!error) port_ = acceptor.local_endpoint(error).port();
  if (error) return Error::io(fmt::format("{}: {}", name_, error.message()));
  const int fd = acceptor.release();
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  accept_from(fd, address.name_user);
  return {};
}

void Server::accept_from(int listener, Acceptor::NameUser name_user) {
  AcceptHandlers handlers;
  handlers.on_connection = [this](int fd, std::optional<uint32_t> uid) { admit(fd, uid); };
  handlers.on_refused = [this](uint64_t count, std::string_view why) { note_refused(count, why); };
  listener_ = acceptor_.add(listener, name_user, std::move(handlers));
}

// ---- Connections -------------------------------------------------------------------------------

void Server::admit(int fd, std::optional<uint32_t> uid) {
  constexpr uint32_t kNoGroup = UINT32_MAX;
  std::optional<ipc::PeerCredentials> peer;
  if (family_ == AF_UNIX) {
    peer = credentials_of(fd);
  } else if (uid) {
    peer = {.uid = *uid, .gid = kNoGroup, .pid = 0};
  }
  if (!peer) {
    note_refused(1, "the system does not name its user");
    ::close(fd);
    return;
  }
  if (const char* why = refusal(peer->uid)) {
    note_refused(1, why);
    ::close(fd);
    return;
  }
  Connection::Socket socket(io_);
  boost::system::error_code error;
  socket.assign(boost::asio::generic::stream_protocol(family_, 0), fd, error);
  if (error) {
    note_refused(1, "the system does not watch it");
    ::close(fd);
    return;
  }
  ++users_[peer->uid].connections;
  const TransportPeer named{.number = ++last_number_, .credentials = *peer};
  auto connection = std::make_shared<Connection>(*this, std::move(socket), named);
  connections_.emplace(named.number, connection);
  connection->start();
}

// Why the user may not have one more connection; null: it may.
const char* Server::refusal(uint32_t uid) {
  const auto user = users_.find(uid);
  if (user != users_.end() && user->second.connections >= limits_.connections_per_user) {
    return "the user has its share of connections";
  }
  if (connections_.size() >= limits_.connections) return "all connections are in use";
  return nullptr;
}

void Server::note_refused(uint64_t count, std::string_view why) {
  refused_ += count;
  refused_why_ = why;
}

void Server::on_closed(Connection& connection) {
  const TransportPeer peer = connection.peer();
  const auto user = users_.find(peer.credentials.uid);
  if (user != users_.end() && --user->second.connections == 0) users_.erase(user);
  if (connections_.erase(peer.number) == 0 || !*alive_) return;
  if (handlers_.on_gone && connection.is_open()) handlers_.on_gone(peer);
}

void Server::tick() {
  const int64_t now = clock_.now_us();
  if (now < deadlines_due_us_) return;
  deadlines_due_us_ = now + kDeadlinesEveryUs;
  if (refused_ != refused_logged_) {
    log_warn("connections_refused", "socket=\"{}\" count={} total={} why=\"{}\"", name_,
             refused_ - refused_logged_, refused_, refused_why_);
    refused_logged_ = refused_;
  }
  std::vector<std::shared_ptr<Connection>> all;
  all.reserve(connections_.size());
  for (const auto& [number, connection] : connections_) all.push_back(connection);
  for (const auto& connection : all) connection->check_deadlines(now);
}

void Server::post(std::function<void()> work) {
  boost::asio::post(io_, [alive = alive_, work = std::move(work)] {
    if (*alive) work();
  });
}

// Bytes sent to a connection within one turn of the loop go out in one system call.
void Server::flush_soon(std::shared_ptr<Connection> connection) {
  to_flush_.push_back(std::move(connection));
  if (std::exchange(flushing_, true)) return;
  boost::asio::post(io_, [this, alive = alive_] {
    if (!*alive) return;
    flushing_ = false;
    flush_all();
  });
}

void Server::flush_all() {
  for (const auto& connection : std::exchange(to_flush_, {})) connection->flush();
}

// ---- Shares ------------------------------------------------------------------------------------

bool Server::claim(Connection& connection, size_t bytes) {
  User& user = users_[connection.peer().credentials.uid];
  if (user.receiving + bytes > limits_.receiving_bytes_per_user) {
    user.wait_to_receive.push_back(connection.peer().number);
    return false;
  }
  user.receiving += bytes;
  return true;
}

void Server::unclaim(Connection& connection, size_t bytes) {
  User& user = users_[connection.peer().credentials.uid];
  user.receiving -= std::min(bytes, user.receiving);
  if (!user.wait_to_receive.empty()) {
    wake(std::exchange(user.wait_to_receive, {}), &Connection::retry_claim);
  }
}

bool Server::may_queue(Connection& connection, size_t bytes) {
  User& user = users_[connection.peer().credentials.uid];
  if (user.unsent == 0 || user.unsent + bytes <= limits_.unsent_bytes_per_user) return true;
  if (!connection.is_blocked()) user.wait_to_send.push_back(connection.peer().number);
  return false;
}

void Server::queued(const Connection& connection, size_t bytes) {
  users_[connection.peer().credentials.uid].unsent += bytes;
  total_unsent_ += bytes;
}

void Server::unqueued(const Connection& connection, size_t bytes) {
  User& user = users_[connection.peer().credentials.uid];
  user.unsent -= std::min(bytes, user.unsent);
  total_unsent_ -= std::min(bytes, total_unsent_);
  if (!user.wait_to_send.empty() && user.unsent <= limits_.unsent_bytes_per_user / 2) {
    wake(std::exchange(user.wait_to_send, {}), &Connection::wrote_enough);
  }
}

void Server::wake(std::deque<uint64_t> waiting, void (Connection::*resume)()) {
  post([this, waiting = std::move(waiting), resume] {
    for (const uint64_t number : waiting) {
      const auto found = connections_.find(number);
      if (found == connections_.end()) continue;
      const std::shared_ptr<Connection> connection = found->second;
      (connection.get()->*resume)();
    }
  });
}

}  // namespace

Result<std::unique_ptr<TransportServer>> TransportServer::open(
    boost::asio::io_context& io, const Clock& clock, Acceptor& acceptor, LoopShares& shares,
    const std::filesystem::path& path, SocketKind kind, const TransportLimits& limits,
    TransportHandlers handlers) {
  auto server =
      std::make_unique<Server>(io, clock, acceptor, shares, kind, limits, std::move(handlers));
  HEARTH_TRY(server->listen(path));
  return std::unique_ptr<TransportServer>(std::move(server));
}

Result<std::unique_ptr<TransportServer>> TransportServer::open_tcp(
    boost::asio::io_context& io, const Clock& clock, Acceptor& acceptor, LoopShares& shares,
    const TcpAddress& address, SocketKind kind, const TransportLimits& limits,
    TransportHandlers handlers) {
  auto server =
      std::make_unique<Server>(io, clock, acceptor, shares, kind, limits, std::move(handlers));
  HEARTH_TRY(server->listen(address));
  return std::unique_ptr<TransportServer>(std::move(server));
}

size_t bounded_connections(size_t wanted, size_t others) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  const size_t room = limit.rlim_cur;
  return std::min(wanted, std::max(kMinConnections, room - std::min(room, others)));
}

}  // namespace hearth::broker
