#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "daemon/http/connection.h"
#include "daemon/http/tls.h"
#include "tests/temp_dir.h"
#include "tests/unit/daemon/tls_peer.h"

namespace hearth::http {
namespace {

using tests::TlsClient;
using tests::write_certificate;

class Fixture {
 public:
  Fixture() {
    std::signal(SIGPIPE, SIG_IGN);  // as in the daemon
    write_certificate(certificate, key);
    identity = TlsIdentity::load(certificate, key).value();
  }
  /// The client's end of a connection to the door.
  int connect() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    door->begin(
        ends[0], identity,
        [this](int fd) {
          ++served;
          inner = std::make_unique<boost::asio::local::stream_protocol::socket>(
              io, boost::asio::local::stream_protocol(), fd);
          if (on_served) on_served();
        },
        [this] { ++ended; });
    return ends[1];
  }
  /// Runs the door while `client` runs on another thread.
  void run(const std::function<void()>& client) {
    std::atomic<bool> done = false;
    std::thread thread([&] {
      client();
      done = true;
    });
    while (!done) {
      io.restart();
      io.run_for(std::chrono::milliseconds(1));
    }
    thread.join();
    settle();
  }
  void settle() {
    for (int i = 0; i < 20; ++i) {
      io.restart();
      io.run_for(std::chrono::milliseconds(1));
    }
  }
  /// Sends back what comes, until the end.
  void echo() {
    inner->async_read_some(boost::asio::buffer(buffer_), [this](const auto& error, size_t bytes) {
      if (error) {
        inner->close();
        return;
      }
      boost::asio::async_write(*inner, boost::asio::buffer(buffer_.data(), bytes),
                               [this](const auto& failed, size_t) {
                                 if (!failed) echo();
                               });
    });
  }

  tests::TempDir dir;
  const std::filesystem::path certificate = dir.path() / "certificate.pem";
  const std::filesystem::path key = dir.path() / "key.pem";
  std::shared_ptr<const TlsIdentity> identity;
  boost::asio::io_context io;
  std::unique_ptr<TlsDoor> door = TlsDoor::create(io, {.handshake_ms = 10'000, .write_ms = 10'000});
  std::unique_ptr<boost::asio::local::stream_protocol::socket> inner;
  std::function<void()> on_served;
  int served = 0;
  int ended = 0;

 private:
  std::array<char, 65536> buffer_;
};

TEST_CASE("bytes of both directions pass, more than all buffers hold") {
  Fixture f;
  f.on_served = [&f] { f.echo(); };
  const int fd = f.connect();
  std::string sent;
  for (int i = 0; i < 300'000; ++i) sent += std::to_string(i);
  std::string met;
  bool ok = false;
  f.run([&] {
    TlsClient client(fd, f.certificate);
    ok = client.ok();
    for (size_t at = 0; ok && at < sent.size(); at += 50'000) {
      const std::string some = sent.substr(at, 50'000);
      ok = client.send(some);
      for (size_t left = some.size(); ok && left > 0;) {
        const std::string back = client.receive(left);
        ok = !back.empty();
        left -= back.size();
        met += back;
      }
    }
  });
  CHECK(ok);
  CHECK(met == sent);
  CHECK(f.served == 1);
  CHECK(f.ended == 1);
  CHECK(f.door->size() == 0);
}

TEST_CASE("an answer that its server ends is whole at the client, and marked as ended") {
  Fixture f;
  const std::string answer(3 << 20, 'a');
  f.on_served = [&] {
    boost::asio::async_write(*f.inner, boost::asio::buffer(answer),
                             [&f](const auto&, size_t) { f.inner->close(); });
  };
  CHECK(f.door->idle());
  const int fd = f.connect();
  std::string met;
  bool well = false;
  std::unique_ptr<TlsClient> client;
  f.run([&] { client = std::make_unique<TlsClient>(fd, f.certificate); });
  CHECK_FALSE(f.door->idle());
  f.run([&] {
    if (client->ok()) met = client->receive_all();
    well = client->ended_well();
    client.reset();
  });
  CHECK(met == answer);
  CHECK(f.door->idle());
  CHECK(well);
  CHECK(f.ended == 1);
}

TEST_CASE("the server learns that its client has gone") {
  Fixture f;
  const int fd = f.connect();
  bool gone = false;
  std::array<char, 2> bytes{};
  f.on_served = [&] {
    boost::asio::async_read(*f.inner, boost::asio::buffer(bytes),
                            [&gone](const auto& error, size_t) { gone = error.failed(); });
  };
  f.run([&] {
    TlsClient client(fd, f.certificate);
    client.send("x");
  });
  CHECK(gone);
  f.inner->close();
  f.settle();
  CHECK(f.ended == 1);
  CHECK(f.door->size() == 0);
}

TEST_CASE("what is not TLS, or a client that trusts another, is not served") {
  Fixture f;
  const int plain = f.connect();
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  REQUIRE(::send(plain, request.data(), request.size(), 0) == ssize_t(request.size()));
  f.settle();
  CHECK(f.ended == 1);
  ::close(plain);

  const std::filesystem::path other = f.dir.path() / "other.pem";
  write_certificate(other, f.dir.path() / "other.key");
  const int fd = f.connect();
  bool ok = true;
  f.run([&] { ok = TlsClient(fd, other).ok(); });
  CHECK_FALSE(ok);
  CHECK(f.served == 0);
  CHECK(f.ended == 2);
}

TEST_CASE("a handshake that does not come, and a reader that does not read, meet their deadlines") {
  Fixture f;
  const int silent = f.connect();
  f.settle();
  f.door->tick(now_ms());
  CHECK(f.door->size() == 1);
  f.door->tick(now_ms() + 10'001);
  CHECK(f.door->size() == 0);
  CHECK(f.ended == 1);
  ::close(silent);

  const std::string answer(3 << 20, 'a');
  bool failed = false;
  f.on_served = [&] {
    boost::asio::async_write(*f.inner, boost::asio::buffer(answer),
                             [&failed](const auto& error, size_t) { failed = error.failed(); });
  };
  const int fd = f.connect();
  std::unique_ptr<TlsClient> client;
  f.run([&] { client = std::make_unique<TlsClient>(fd, f.certificate); });
  CHECK_FALSE(failed);
  f.door->tick(now_ms() + 10'001);
  f.settle();
  CHECK(failed);
  CHECK(f.ended == 2);
}

TEST_CASE("a connection keeps the certificate with which it began") {
  Fixture f;
  f.on_served = [&f] { f.echo(); };
  const int fd = f.connect();
  f.identity.reset();  // another one was loaded
  std::string met;
  f.run([&] {
    TlsClient client(fd, f.certificate);
    if (client.send("hello")) met = client.receive();
  });
  CHECK(met == "hello");
}

TEST_CASE("one peer's handshakes are bounded per second") {
  HandshakeRate rate;
  const auto taken = [&rate](int64_t now) {
    int count = 0;
    while (count < 1000 && rate.take(now)) ++count;
    return count;
  };
  CHECK(taken(1'000'000) == HandshakeRate::kAtOnce);
  CHECK(taken(1'000'019) == 0);
  CHECK(taken(1'000'020) == 1);
  CHECK(taken(1'001'020) == 50);
  CHECK(taken(2'000'000) == HandshakeRate::kAtOnce);
}

TEST_CASE("a certificate or key that cannot be used is named, with the reason") {
  const Fixture f;
  const std::filesystem::path& dir = f.dir.path();
  const auto error = [](const std::filesystem::path& certificate,
                        const std::filesystem::path& key) {
    const auto loaded = TlsIdentity::load(certificate, key);
    REQUIRE_FALSE(loaded.ok());
    return loaded.error();
  };
  const auto has = [](const Error& met, const std::filesystem::path& file, const char* why) {
    CHECK_MESSAGE(met.message.find(file.string()) != std::string::npos, met.message);
    CHECK_MESSAGE(met.message.find(why) != std::string::npos, met.message);
  };
  write_certificate(dir / "old.pem", dir / "old.key", -7200, -3600);
  has(error(dir / "old.pem", dir / "old.key"), dir / "old.pem", "has expired");
  write_certificate(dir / "new.pem", dir / "new.key", 3600, 7200);
  has(error(dir / "new.pem", dir / "new.key"), dir / "new.pem", "does not hold yet");
  has(error(f.certificate, dir / "old.key"), dir / "old.key", "not the key of");
  has(error(dir / "none.pem", f.key), dir / "none.pem", "cannot be opened");
  has(error(f.certificate, dir / "none.key"), dir / "none.key", "cannot be opened");
  has(error(f.key, f.key), f.key, "want certificates in PEM");
  std::ofstream(dir / "cut.pem") << "-----BEGIN CERTIFICATE-----\nMIIB";
  has(error(dir / "cut.pem", f.key), dir / "cut.pem", "want certificates in PEM");
  for (const mode_t mode : {0644u, 0660u, 0604u}) {
    REQUIRE(::chmod(f.key.c_str(), mode) == 0);
    const Error met = error(f.certificate, f.key);
    CHECK(met.code == ErrorCode::kForbidden);
  }
  REQUIRE(::chmod(f.key.c_str(), 0640) == 0);
  CHECK(TlsIdentity::load(f.certificate, f.key).ok());
}

}  // namespace
}  // namespace hearth::http
