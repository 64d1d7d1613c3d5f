// The daemon's end of a Unix socket, tested with libzmq and with raw bytes.

#include <doctest/doctest.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "daemon/broker/process/connection_rates.h"
#include "daemon/broker/transport/server.h"
#include "daemon/broker/transport/tcp_relay.h"
#include "tests/skip.h"
#include "tests/temp_dir.h"

namespace hearth::broker {
namespace {

struct Rig {
  const tests::TempDir temp;
  boost::asio::io_context io;
  FakeClock clock;
  Acceptor acceptor{io, clock};
  LoopShares shares{io};
  std::vector<std::pair<uint64_t, zmtp::Message>> met;
  std::vector<uint64_t> gone;
  std::vector<uint64_t> writable;
  std::unique_ptr<TransportServer> server;

  explicit Rig(TransportLimits limits = small()) {
    TransportHandlers handlers;
    handlers.on_message = [this](const TransportPeer& peer, zmtp::Message message) {
      CHECK(peer.credentials.uid == ::geteuid());
      CHECK(peer.credentials.pid == ::getpid());
      met.emplace_back(peer.number, std::move(message));
    };
    handlers.on_gone = [this](const TransportPeer& peer) { gone.push_back(peer.number); };
    handlers.on_writable = [this](const TransportPeer& peer) { writable.push_back(peer.number); };
    server = TransportServer::open(io, clock, acceptor, shares, path(), SocketKind::kRouter, limits,
                                   std::move(handlers))
                 .value();
  }
  static TransportLimits small() {
    TransportLimits limits;
    limits.message = {
        .kept_frames = 4, .kept_bytes = 1 << 20, .max_frames = 16, .max_bytes = 2 << 20};
    limits.connections = 8;
    limits.connections_per_user = 4;
    limits.receiving_bytes_per_user = 1 << 20;
    return limits;
  }
  std::filesystem::path path() const { return temp.path() / "api.sock"; }
  void turn(int ms = 5) {
    io.restart();
    io.run_for(std::chrono::milliseconds(ms));
  }
  bool until(const std::function<bool()>& done) {
    for (int i = 0; i < 2000; ++i) {
      if (done()) return true;
      turn();
    }
    return false;
  }
};

// A connection that can send anything.
struct RawPeer {
  int fd = -1;
  explicit RawPeer(const std::filesystem::path& path) {
    fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    CHECK(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  ~RawPeer() { ::close(fd); }
  size_t put(std::string_view bytes) const {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return n < 0 ? 0 : static_cast<size_t>(n);
  }
  void shake_hands() const {
    std::string bytes = zmtp::greeting();
    zmtp::append_ready(bytes, "DEALER");
    put(bytes);
  }
  bool ended() const {
    char bytes[4096];
    ssize_t n = 0;
    while ((n = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
  }
};

ipc::Socket dealer(const ipc::Context& context, const Rig& rig,
                   const std::string& routing_id = {}) {
  ipc::Socket socket = ipc::Socket::open(context, ipc::SocketType::kDealer,
                                         {.send_high_water = 256,
                                          .receive_high_water = 256,
                                          .max_frame_bytes = -1,
                                          .reconnect = false,
                                          .routing_id = routing_id})
                           .value();
  REQUIRE(socket.connect("ipc://" + rig.path().string()).ok());
  return socket;
}

TEST_CASE("libzmq's DEALER asks and is answered; its chosen routing id is ignored") {
  Rig rig;
  ipc::Context context = ipc::Context::create().value();
  for (const std::string& id : {std::string(), std::string("http-x-1"), std::string("\0abcd", 5)}) {
    rig.met.clear();
    ipc::Socket socket = dealer(context, rig, id);
    ipc::Message message;
    ipc::append(message, std::string("one"), std::string(), std::string(300, 'x'));
    REQUIRE(socket.send(message) == ipc::SendOutcome::kSent);
    REQUIRE(rig.until([&] { return rig.met.size() == 1; }));
    CHECK(rig.met[0].second.frames == std::vector<std::string>{"one", "", std::string(300, 'x')});
    const std::string big(200'000, 'y');
    const std::vector<std::string_view> answer = {"a", big};
    CHECK(rig.server->send(rig.met[0].first, answer) == ipc::SendOutcome::kSent);
    ipc::Message got;
    REQUIRE(rig.until([&] { return socket.receive(got) == ipc::ReceiveOutcome::kReceived; }));
    REQUIRE(got.size() == 2);
    CHECK(got[1].view() == big);
    CHECK(rig.server->idle());
  }
  REQUIRE(rig.until([&] { return rig.gone.size() == 3; }));
  CHECK(rig.server->send(rig.gone[0], std::vector<std::string_view>{"x"}) ==
        ipc::SendOutcome::kUnreachable);
}

TEST_CASE("a flood of connections is bounded per second of its user") {
  TransportLimits limits = Rig::small();
  limits.connections = limits.connections_per_user = 4096;
  Rig rig(limits);
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < 100; ++i) peers.push_back(std::make_unique<RawPeer>(rig.path()));
  REQUIRE(rig.until([&] { return rig.server->num_connections() == 100; }));
  while (rig.server->num_refused() == 0) {
    peers.clear();
    REQUIRE(rig.until([&] { return rig.server->num_connections() == 0; }));
    for (int i = 0; i < 100; ++i) peers.push_back(std::make_unique<RawPeer>(rig.path()));
    REQUIRE(rig.until(
        [&] { return rig.server->num_connections() + rig.server->num_refused() == 100; }));
  }
  // 1,000 at once; the clock has not moved.
  CHECK(rig.server->num_refused() == 100);
  CHECK(peers.front()->ended());
  rig.clock.advance_us(20'000);
  for (int i = 0; i < 100; ++i) peers.push_back(std::make_unique<RawPeer>(rig.path()));
  REQUIRE(rig.until([&] { return rig.server->num_refused() == 190; }));
  CHECK(rig.server->num_connections() == 10);
}

TEST_CASE("refused connections count, so that a flood does not take each share that gets free") {
  Rig rig;
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < ConnectionRates::kAtOnce; ++i) {
    peers.push_back(std::make_unique<RawPeer>(rig.path()));
  }
  constexpr size_t kRefused = ConnectionRates::kAtOnce - 4;
  REQUIRE(rig.until([&] { return rig.server->num_refused() == kRefused; }));
  CHECK(rig.server->num_connections() == 4);
  peers.clear();
  REQUIRE(rig.until([&] { return rig.server->num_connections() == 0; }));
  const RawPeer early(rig.path());
  CHECK(rig.until([&] { return rig.server->num_refused() == kRefused + 1; }));
  rig.clock.advance_us(1'000'000 / ConnectionRates::kPerSecond);
  const RawPeer next(rig.path());
  CHECK(rig.until([&] { return rig.server->num_connections() == 1; }));
}

TEST_CASE("a user's connections are bounded, and free again when they end") {
  Rig rig;
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < 20; ++i) peers.push_back(std::make_unique<RawPeer>(rig.path()));
  REQUIRE(rig.until([&] { return rig.server->num_refused() == 16; }));
  CHECK(rig.server->num_connections() == 4);
  peers.clear();
  REQUIRE(rig.until([&] { return rig.server->num_connections() == 0; }));
  const RawPeer next(rig.path());
  CHECK(rig.until([&] { return rig.server->num_connections() == 1; }));
}

TEST_CASE("without descriptors connections are refused, and later ones are served") {
  Rig rig;
  const RawPeer served(rig.path());
  served.shake_hands();
  REQUIRE(rig.until([&] { return rig.server->num_connections() == 1; }));
  std::vector<int> taken;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit low = before;
  low.rlim_cur = 64;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  for (int fd; (fd = ::dup(0)) >= 0;) taken.push_back(fd);
  ::close(taken.back());
  taken.pop_back();
  const RawPeer late(rig.path());  // takes the last descriptor
  CHECK(rig.until([&] { return rig.server->num_refused() == 1; }));
  CHECK(late.ended());
  for (const int fd : taken) ::close(fd);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  const RawPeer next(rig.path());
  CHECK(rig.until([&] { return rig.server->num_connections() == 2; }));
}

TEST_CASE("a message without end, or with too many frames, ends only its connection") {
  Rig rig;
  const RawPeer good(rig.path());
  good.shake_hands();
  for (const size_t frame : {size_t{0}, size_t{100'000}}) {
    const RawPeer bad(rig.path());
    bad.shake_hands();
    std::string bytes;
    zmtp::append_frame(bytes, std::string(frame, 'x'), true);
    CHECK(rig.until([&] {
      bad.put(bytes);
      return bad.ended();
    }));
  }
  std::string bytes;
  zmtp::append_frame(bytes, "still here", false);
  good.put(bytes);
  CHECK(rig.until([&] { return rig.met.size() == 1; }));
}

TEST_CASE("handshakes, messages and reads that do not end have a deadline") {
  TransportLimits limits = Rig::small();
  Rig rig(limits);
  const RawPeer mute(rig.path());
  const RawPeer open(rig.path());
  open.shake_hands();
  const RawPeer half(rig.path());
  half.shake_hands();
  REQUIRE(rig.until([&] { return rig.server->num_connections() == 3; }));
  half.put(std::string("\1\5ab", 4));
  rig.turn(50);
  rig.clock.advance_us(limits.handshake_timeout_us + 1);
  rig.server->tick();
  CHECK(rig.until([&] { return rig.server->num_connections() == 2; }));
  CHECK(mute.ended());
  rig.clock.advance_us(limits.message_timeout_us + 1);
  rig.server->tick();
  CHECK(rig.until([&] { return half.ended(); }));
  CHECK(rig.server->num_connections() == 1);  // idle, which is allowed
  CHECK_FALSE(open.ended());
}

TEST_CASE("a peer that does not read is refused more, notified of room, and ended eventually") {
  TransportLimits limits = Rig::small();
  Rig rig(limits);
  const RawPeer peer(rig.path());
  peer.shake_hands();
  std::string hello;
  zmtp::append_frame(hello, "x", false);
  peer.put(hello);
  REQUIRE(rig.until([&] { return rig.met.size() == 1; }));
  const uint64_t number = rig.met[0].first;
  const std::string big(10'000, 'y');
  const std::vector<std::string_view> answer = {big};
  int sent = 0;
  while (sent < 10'000 && rig.server->send(number, answer) == ipc::SendOutcome::kSent) {
    ++sent;
    rig.turn(0);
  }
  CHECK(sent < 200);
  CHECK_FALSE(rig.server->idle());
  CHECK(rig.until([&] {
    (void)peer.ended();  // reads all available bytes
    return !rig.writable.empty();
  }));
  while (rig.server->send(number, answer) == ipc::SendOutcome::kSent) rig.turn(0);
  rig.clock.advance_us(limits.write_timeout_us + 1);
  rig.server->tick();
  CHECK(rig.gone == std::vector<uint64_t>{number});
  CHECK(rig.server->idle());
}

TEST_CASE("large messages of one user take turns; paused connections are not read") {
  Rig rig;
  const RawPeer a(rig.path());
  const RawPeer b(rig.path());
  a.shake_hands();
  b.shake_hands();
  rig.turn(50);
  std::string large;
  zmtp::append_frame(large, std::string(700'000, 'x'), false);
  // Both begin; only one's memory fits.
  std::string_view left_a = large, left_b = large;
  CHECK(rig.until([&] {
    left_a.remove_prefix(a.put(left_a.substr(0, left_a.size() > 10 ? left_a.size() - 10 : 0)));
    left_b.remove_prefix(b.put(left_b.substr(0, left_b.size() > 10 ? left_b.size() - 10 : 0)));
    return left_a.size() == 10 || left_b.size() == 10;
  }));
  for (int i = 0; i < 40; ++i) {
    left_a.remove_prefix(a.put(left_a.substr(0, left_a.size() - 10)));
    left_b.remove_prefix(b.put(left_b.substr(0, left_b.size() - 10)));
    rig.turn();
  }
  CHECK((left_a.size() > 10) != (left_b.size() > 10));
  CHECK(rig.until([&] {
    if (!left_a.empty()) left_a.remove_prefix(a.put(left_a));
    if (!left_b.empty()) left_b.remove_prefix(b.put(left_b));
    return rig.met.size() == 2;
  }));
  const uint64_t number = rig.met[0].first;
  rig.server->hold(number);
  std::string small;
  zmtp::append_frame(small, "x", false);
  a.put(small);
  b.put(small);
  CHECK(rig.until([&] { return rig.met.size() == 3; }));
  rig.turn(50);
  CHECK(rig.met.size() == 3);
  rig.server->release(number);
  CHECK(rig.until([&] { return rig.met.size() == 4; }));
}

// Connects as another user: on Linux a thread has its own credentials.
int connect_as(uint32_t uid, const std::filesystem::path& path) {
  int fd = -1;
  std::thread([&] {
    if (::syscall(SYS_setresuid, uid, uid, uid) != 0) return;
    fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return;
    ::close(fd);
    fd = -1;
  }).join();
  REQUIRE(fd >= 0);
  return fd;
}

TEST_CASE("users take turns: many connections of one do not delay another's") {
  if (::geteuid() != 0) HEARTH_SKIP("needs root, to be two users");
  const tests::TempDir temp;
  boost::asio::io_context io;
  FakeClock clock;
  Acceptor acceptor(io, clock);
  LoopShares shares(io);
  std::vector<uint32_t> order;
  TransportHandlers handlers;
  handlers.on_message = [&](const TransportPeer& peer, zmtp::Message) {
    order.push_back(peer.credentials.uid);
  };
  TransportLimits limits;
  const auto server = TransportServer::open(io, clock, acceptor, shares, temp.path() / "api.sock",
                                            SocketKind::kRouter, limits, std::move(handlers))
                          .value();
  std::filesystem::permissions(temp.path(), std::filesystem::perms(0711));
  std::filesystem::permissions(temp.path() / "api.sock", std::filesystem::perms(0666));
  std::string hello = zmtp::greeting(), message;
  zmtp::append_ready(hello, "DEALER");
  zmtp::append_frame(message, "x", false);
  const auto turn = [&] {
    io.restart();
    io.run_for(std::chrono::milliseconds(20));
  };
  std::vector<int> many;
  for (int i = 0; i < 40; ++i) many.push_back(connect_as(65533, temp.path() / "api.sock"));
  const int one = connect_as(65534, temp.path() / "api.sock");
  many.push_back(one);
  for (const int fd : many) REQUIRE(::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL) > 0);
  // Until each has the server's READY, which follows its own. The order of acceptance is not that
  // of service.
  const auto open = [](int fd) {
    int bytes = 0;
    return ::ioctl(fd, FIONREAD, &bytes) == 0 && std::cmp_greater(bytes, zmtp::greeting().size());
  };
  for (int i = 0; i < 1000 && !std::ranges::all_of(many, open); ++i) turn();
  REQUIRE(std::ranges::all_of(many, open));
  // All at once, the single one last.
  for (const int fd : many) REQUIRE(::send(fd, message.data(), message.size(), MSG_NOSIGNAL) > 0);
  for (int i = 0; i < 1000 && order.size() < many.size(); ++i) turn();
  REQUIRE(order.size() == many.size());
  CHECK(std::find(order.begin(), order.end(), 65534u) - order.begin() <= 2);
  for (const int fd : many) ::close(fd);
}

TEST_CASE("only the server's READY counts as admission of a key") {
  std::string server(64, '\0');
  server += std::string("\4\xA8\7WELCOME", 10) + std::string(160, 'w');
  CurveHandshake handshake;
  handshake.push(server);
  CHECK_FALSE(handshake.admitted());
  CurveHandshake refused = handshake;
  refused.push(std::string("\4\7\5ERROR\0", 9));
  CHECK_FALSE(refused.admitted());
  for (const char byte : std::string("\4\20\5READY1234567890")) handshake.push({&byte, 1});
  CHECK(handshake.admitted());
}

}  // namespace
}  // namespace hearth::broker
