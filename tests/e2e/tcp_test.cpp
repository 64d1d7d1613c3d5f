// Attacks over TCP, without a key and with one: the daemon's memory stays bounded, and another
// client is answered.

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "ipc/wire/curve.h"
#include "tests/e2e/baseline.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/tiny_model.h"

namespace hearth::e2e {
namespace {

namespace fs = std::filesystem;

int tcp_socket() { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

uint16_t unused_port() {
  const int fd = tcp_socket();
  sockaddr_in address = loopback(0);
  socklen_t bytes = sizeof address;
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0);
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

struct Keys {
  explicit Keys(const Sandbox& sandbox)
      : server(ipc::make_curve_keys().value()), client(ipc::make_curve_keys().value()) {
    REQUIRE(ipc::write_secret_key(sandbox.path() / "server", server).ok());
    REQUIRE(ipc::write_secret_key(sandbox.path() / "client", client).ok());
    std::ofstream(sandbox.path() / "clients") << client.public_key << " 4242\n";
    fs::permissions(sandbox.path() / "clients", fs::perms::owner_read | fs::perms::owner_write);
  }
  std::vector<std::string> settings(const Sandbox& sandbox) const {
    return {"server.tcp=\"127.0.0.1:" + std::to_string(port) + "\"",
            "server.tcp_secret_file=" + (sandbox.path() / "server").string(),
            "server.tcp_clients_file=" + (sandbox.path() / "clients").string()};
  }
  ipc::CurveKeys server, client;
  uint16_t port = unused_port();
};

TEST_CASE("connections over TCP without a key take no memory, and the owner of a key is admitted") {
  const Sandbox sandbox;
  const Keys keys(sandbox);
  const Daemon daemon(sandbox, keys.settings(sandbox));
  Baseline before(daemon);
  const std::string part(1 << 16, 'x');
  const sockaddr_in address = loopback(keys.port);
  // The delay of an address doubles with each invalid key, up to half a minute. So most attackers
  // have an address of their own; two have the owner's.
  sockaddr_in elsewhere = loopback(0);
  elsewhere.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  std::vector<int> open;
  for (int i = 0; i < 60; ++i) {
    const int fd = tcp_socket();
    if (i >= 2) {
      REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&elsewhere), sizeof elsewhere) == 0);
    }
    ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    open.push_back(fd);
  }
  size_t sent = 0;
  const int64_t end = now_ms() + 3'000;
  while (now_ms() < end) {
    for (const int fd : open) {
      const ssize_t n = ::send(fd, part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) sent += static_cast<size_t>(n);
    }
    ::usleep(1000);
  }
  CHECK(sent > 0);
  CHECK(before.grown_bytes() < 32u << 20);
  CHECK(before.same_tokens());
  for (const int fd : open) ::close(fd);
  ipc::ClientOptions options;
  options.tcp = "127.0.0.1:" + std::to_string(keys.port);
  options.tcp_server_key = keys.server.public_key;
  options.tcp_key_file = sandbox.path() / "client";
  options.answer_ms = 1500;
  // The address is delayed for a moment after invalid keys.
  CHECK(eventually([&] { return ipc::Client::connect(options).ok(); }));
}

TEST_CASE("an endless message over TCP is bounded, and only its connection ends") {
  const Sandbox sandbox;
  const Keys keys(sandbox);
  const Daemon daemon(sandbox, keys.settings(sandbox));
  Baseline before(daemon);
  ipc::Context context = ipc::Context::create().value();
  const auto connect = [&] {
    ipc::Socket socket =
        ipc::Socket::open(context, ipc::SocketType::kDealer, ipc::SocketOptions{}).value();
    REQUIRE(ipc::use_curve(socket, keys.server.public_key, keys.client).ok());
    REQUIRE(socket.connect("tcp://127.0.0.1:" + std::to_string(keys.port)).ok());
    return socket;
  };
  ipc::Socket endless = connect();
  constexpr size_t kFrame = 64 << 10;
  constexpr size_t kFrames = 2048;  // 128 MiB
  ipc::Message message;
  ipc::append(message, std::string("HEARTH/1"), std::string("r"));
  const std::string part(kFrame, 'x');
  for (size_t i = 0; i < kFrames; ++i) ipc::append(message, part);
  size_t most = 0;
  REQUIRE(eventually([&] { return endless.send(message) == ipc::SendOutcome::kSent; }));
  // Until the daemon's memory has not grown for two seconds.
  for (int64_t grew = now_ms(), end = grew + 10'000; now_ms() < std::min(end, grew + 2'000);) {
    if (const size_t now = before.grown_bytes(); now > most) {
      most = now;
      grew = now_ms();
    }
    ::usleep(20'000);
  }
  CHECK(most < 96u << 20);
  CHECK(before.same_tokens());
  ipc::Socket other = connect();
  ipc::Message ping;
  ipc::append(ping, std::string("HEARTH/1"), std::string("p"), std::string(R"({"verb":"ping"})"));
  REQUIRE(eventually([&] { return other.send(ping) == ipc::SendOutcome::kSent; }));
  ipc::PollItem item{.socket = &other};
  ipc::poll({&item, 1}, kPatienceMs);
  CHECK(other.receive(ping) == ipc::ReceiveOutcome::kReceived);
}

}  // namespace
}  // namespace hearth::e2e
