// Connections that another thread accepts: what reaches the loop, what is closed before it, and
// when nothing arrives any more.

#include "daemon/broker/process/acceptor.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/broker/process/connection_rates.h"
#include "daemon/http/peer.h"
#include "tests/temp_dir.h"

namespace hearth::broker {
namespace {

using std::chrono::milliseconds;

struct Listening {
  uint64_t number = 0;
  std::filesystem::path path;
  std::vector<int> accepted{};
  std::vector<std::optional<uint32_t>> users{};
  uint64_t refused = 0;
};

struct Rig {
  const tests::TempDir temp;
  boost::asio::io_context io;
  FakeClock clock;
  std::vector<int> clients;
  Acceptor acceptor{io, clock};

  ~Rig() {
    for (const int fd : clients) ::close(fd);
  }

  static sockaddr_un address_of(const std::filesystem::path& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    return address;
  }
  std::unique_ptr<Listening> listen(const std::string& name,
                                    Acceptor::NameUser name_user = http::unix_peer_uid) {
    auto out = std::make_unique<Listening>();
    out->path = temp.path() / name;
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const sockaddr_un address = address_of(out->path);
    REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(fd, SOMAXCONN) == 0);
    AcceptHandlers handlers;
    handlers.on_connection = [raw = out.get()](int connection, std::optional<uint32_t> uid) {
      raw->accepted.push_back(connection);
      raw->users.push_back(uid);
      ::close(connection);
    };
    handlers.on_refused = [raw = out.get()](uint64_t count, std::string_view) {
      raw->refused += count;
    };
    out->number = acceptor.add(fd, name_user, std::move(handlers));
    return out;
  }
  int connect(const Listening& to) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = address_of(to.path);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      ::close(fd);
      return -1;
    }
    clients.push_back(fd);
    return fd;
  }
  bool until(const std::function<bool()>& done) {
    for (int i = 0; i < 2000 && !done(); ++i) {
      io.restart();
      io.run_for(milliseconds(5));
    }
    return done();
  }
};

/// The other end has closed it.
bool ended(int fd) {
  char byte = 0;
  return ::recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

TEST_CASE("connections of all sockets reach the loop with their users") {
  Rig rig;
  const auto one = rig.listen("one"), two = rig.listen("two");
  for (int i = 0; i < 3; ++i) rig.connect(*one);
  rig.connect(*two);
  CHECK(rig.until([&] { return one->accepted.size() == 3 && two->accepted.size() == 1; }));
  CHECK(two->users[0] == std::optional<uint32_t>(::geteuid()));
}

TEST_CASE("a user's connections over all sockets have one bound; the rest are closed unserved") {
  Rig rig;
  const auto one = rig.listen("one"), two = rig.listen("two");
  const auto met = [&] { return one->accepted.size() + two->accepted.size(); };
  constexpr size_t kAtOnce = ConnectionRates::kAtOnce;
  for (size_t i = 0; i < kAtOnce; ++i) {
    rig.connect(i % 2 == 0 ? *one : *two);
    if (i % 50 == 49) REQUIRE(rig.until([&] { return met() == i + 1; }));
  }
  const int beyond = rig.connect(*one);
  CHECK(rig.until([&] { return ended(beyond) && one->refused == 1; }));
  CHECK(met() == kAtOnce);
  rig.clock.advance_us(1'000'000 / ConnectionRates::kPerSecond);
  rig.connect(*two);
  CHECK(rig.until([&] { return met() == kAtOnce + 1; }));
}

TEST_CASE("connections of unknown users have a bound of their own") {
  Rig rig;
  const auto known = rig.listen("known");
  const auto unknown = rig.listen("unknown", [](int) { return std::optional<uint32_t>(); });
  for (int64_t i = 0; i <= ConnectionRates::kAtOnce; ++i) {
    rig.connect(*unknown);
    if (i % 50 == 49) {
      REQUIRE(rig.until([&] { return std::cmp_equal(unknown->accepted.size(), i + 1); }));
    }
  }
  CHECK(rig.until([&] { return unknown->refused == 1; }));
  CHECK_FALSE(unknown->users[0].has_value());
  rig.connect(*known);
  CHECK(rig.until([&] { return known->accepted.size() == 1; }));
}

TEST_CASE("while the loop does not run few connections are taken; all are served afterwards") {
  Rig rig;
  const auto one = rig.listen("one");
  constexpr size_t kMany = 300;
  for (size_t i = 0; i < kMany; ++i) rig.connect(*one);
  CHECK(one->accepted.empty());
  CHECK(rig.until([&] { return one->accepted.size() == kMany; }));
  CHECK(one->refused == 0);
}

TEST_CASE("after remove() no call follows, and its socket takes no more connections") {
  Rig rig;
  const auto one = rig.listen("one"), two = rig.listen("two");
  rig.connect(*one);
  REQUIRE(rig.until([&] { return one->accepted.size() == 1; }));
  // Accepted by the thread, perhaps, and not yet handed over.
  const int late = rig.connect(*one);
  rig.acceptor.remove(one->number);
  CHECK(rig.until([&] { return ended(late) || errno == ECONNRESET; }));
  CHECK(rig.until([&] { return rig.connect(*one) < 0; }));
  CHECK(one->accepted.size() == 1);
  rig.connect(*two);
  CHECK(rig.until([&] { return two->accepted.size() == 1; }));
}

TEST_CASE("it ends while more connections wait than the loop takes") {
  std::unique_ptr<Listening> one;
  {
    Rig rig;
    one = rig.listen("one");
    for (int i = 0; i < 300; ++i) rig.connect(*one);
  }
  CHECK(one->accepted.empty());
}

}  // namespace
}  // namespace hearth::broker
