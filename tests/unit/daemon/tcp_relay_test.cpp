// Bounds on what a client over TCP may make libzmq store: a message that does not end is not read
// for ever.

#include "daemon/broker/transport/tcp_relay.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <vector>

#include "tests/temp_dir.h"

namespace hearth::broker {
namespace {

constexpr size_t kWindow = 100'000;
constexpr size_t kSlack = 32 << 10;  // read, and not yet counted

RelayLimits limits() {
  return {.connections = 8,
          .connections_per_address = 8,
          .connections_per_user = 2,
          .undelivered_bytes = kWindow,
          .undelivered_per_address = kWindow * 3 / 2,
          .undelivered_total = 2 * kWindow,
          .undelivered_timeout_us = 5'000'000};
}

/// Simulates libzmq: admits every key, reads everything, delivers when the test calls for it.
class Rig {
 public:
  Rig() {
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = (temp_.path() / "inner").string();
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_, 8) == 0);
    relay = TcpRelay::open(io_, clock, "127.0.0.1:0", path, limits()).value();
  }
  ~Rig() {
    relay.reset();  // before its io_context
    for (const int fd : fds_) ::close(fd);
    ::close(listener_);
  }

  struct Client {
    int outer = -1;
    int inner = -1;  ///< the relay's connection to libzmq
    size_t sent = 0;
    size_t read = 0;  ///< by libzmq
    bool ended = false;
    std::string name;
  };
  /// Connected, and admitted.
  Client connect() {
    Client client;
    client.outer = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(relay->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(client.outer, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    for (int i = 0; i < 2000 && client.inner < 0; ++i) {
      turn();
      client.inner = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }
    REQUIRE(client.inner >= 0);
    client.name = peer_name(client.inner);
    fds_.push_back(client.outer);
    fds_.push_back(client.inner);
    const std::string admits = std::string(64, '\0') + std::string("\4\7\5READY\0", 9);
    REQUIRE(::send(client.inner, admits.data(), admits.size(), MSG_NOSIGNAL) > 0);
    std::string seen;
    char byte;
    while (seen.size() < admits.size()) {
      turn();
      while (::recv(client.outer, &byte, 1, MSG_DONTWAIT) == 1) seen += byte;
    }
    return client;
  }
  /// Sends and reads as much as possible, for a while.
  void flood(Client& client, size_t most = 1 << 22) {
    const std::string bytes(50'000, 'x');
    std::vector<char> buffer(1 << 16);
    for (int quiet = 0; quiet < 20 && !client.ended;) {
      const size_t before = client.read;
      if (client.sent < most) {
        const ssize_t n =
            ::send(client.outer, bytes.data(), std::min(bytes.size(), most - client.sent),
                   MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) client.sent += static_cast<size_t>(n);
      }
      turn();
      ssize_t n;
      while ((n = ::recv(client.inner, buffer.data(), buffer.size(), MSG_DONTWAIT)) > 0) {
        client.read += static_cast<size_t>(n);
      }
      client.ended = n == 0;
      quiet = client.read == before ? quiet + 1 : 0;
    }
  }
  void wait_us(int64_t us) {
    clock.advance_us(us);
    relay->tick();
    turn();
  }
  void turn() {
    io_.restart();
    io_.run_for(std::chrono::milliseconds(2));
  }

  FakeClock clock;
  std::unique_ptr<TcpRelay> relay;

 private:
  const tests::TempDir temp_;
  boost::asio::io_context io_;
  int listener_ = -1;
  std::vector<int> fds_;
};

TEST_CASE("a message that does not end is read up to the bound, and then its connection ends") {
  Rig rig;
  Rig::Client endless = rig.connect();
  rig.flood(endless);
  CHECK(endless.read >= kWindow);
  CHECK(endless.read <= kWindow + kSlack);
  CHECK(endless.sent > kWindow + kSlack);
  rig.wait_us(4'000'000);
  CHECK(rig.relay->num_connections() == 1);
  rig.wait_us(2'000'000);
  CHECK(rig.relay->num_connections() == 0);
}

TEST_CASE("a client whose messages are delivered may send any number") {
  Rig rig;
  Rig::Client client = rig.connect();
  CHECK_FALSE(client.name.empty());
  for (size_t round = 1; round <= 10; ++round) {
    rig.flood(client, round * 90'000);
    CHECK(client.read == round * 90'000);
    rig.relay->delivered(client.name, 1000);
    rig.wait_us(1'000'000);
  }
  rig.flood(client);
  CHECK(client.read <= 900'000 + kWindow + kSlack);
  // Paused, and read on once a message has been delivered.
  const size_t paused_at = client.read;
  rig.relay->delivered(client.name, 1000);
  rig.flood(client);
  CHECK(client.read > paused_at);
  CHECK(rig.relay->num_connections() == 1);
}

TEST_CASE("an address has a share for all its connections; the one that holds most is closed") {
  Rig rig;
  Rig::Client first = rig.connect(), second = rig.connect();
  rig.flood(first);
  rig.flood(second);
  CHECK(first.read + second.read <= kWindow * 3 / 2 + 2 * kSlack);
  CHECK(second.sent > second.read);
  rig.wait_us(6'000'000);
  CHECK(rig.relay->num_connections() == 1);
  const size_t before = second.read;
  rig.flood(second);
  CHECK(second.read > before);
}

TEST_CASE("the connections of one user are bounded, whatever address they come from") {
  Rig rig;
  std::vector<Rig::Client> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(rig.connect());
    rig.relay->delivered(clients.back().name, 1000);
  }
  CHECK(rig.relay->num_connections() == 2);
  clients.push_back(rig.connect());
  rig.relay->delivered(clients.back().name, 1001);
  CHECK(rig.relay->num_connections() == 3);
}

}  // namespace
}  // namespace hearth::broker
