#include "daemon/broker/residency/worker_socket.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/temp_dir.h"

namespace hearth::broker {
namespace {

/// A socket that receives messages from processes.
struct Heard final : WorkerSocket::Reader {
  explicit Heard(const std::filesystem::path& socket) : path(socket) {
    auto opened = WorkerSocket::listen(io, path);
    REQUIRE(opened.ok());
    worker = std::move(opened).value();
  }
  void start(pid_t pid) { worker->start(pid, *this); }
  void on_message(const ipc::PipeMessage& message) override {
    received.emplace_back(message.bytes);
    if (on_received) on_received();
  }
  void on_broken(const std::string& why) override { broken = why; }
  /// Until `done`; nothing here takes long.
  bool run_until(const std::function<bool()>& done) {
    for (int i = 0; i < 1000 && !done(); ++i) {
      io.restart();
      io.run_for(std::chrono::milliseconds(10));
    }
    return done();
  }

  std::filesystem::path path;
  boost::asio::io_context io;
  std::unique_ptr<WorkerSocket> worker;
  std::vector<std::string> received;
  std::string broken;
  std::function<void()> on_received;
};

/// A process that connects, runs `body`, and ends.
pid_t process(const std::filesystem::path& path, const std::function<void(ipc::WorkerPipe&)>& act) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  auto pipe = ipc::WorkerPipe::connect(path);
  if (pipe.ok()) act(*pipe);
  ::_exit(0);
}

void send_text(ipc::WorkerPipe& pipe, const std::string& text) {
  pipe.send({ipc::PipeKind::kEvent, 0, text});
}

TEST_CASE("a worker's socket accepts only its worker, and no other process of the user") {
  const tests::TempDir temp;
  Heard heard(temp.path() / "1.sock");
  const pid_t stranger =
      process(heard.path, [](ipc::WorkerPipe& pipe) { send_text(pipe, "stranger"); });
  ::waitpid(stranger, nullptr, 0);
  const pid_t worker = process(heard.path, [](ipc::WorkerPipe& pipe) {
    for (int i = 0; i < 100; ++i) send_text(pipe, std::to_string(i));
  });
  heard.start(worker);
  CHECK(heard.run_until([&] { return heard.received.size() == 100; }));
  ::waitpid(worker, nullptr, 0);
  REQUIRE_FALSE(heard.received.empty());
  CHECK(heard.received.front() == "0");
  CHECK(heard.received.back() == "99");
  CHECK(heard.broken.empty());
}

TEST_CASE("messages that a worker sent before its end are delivered, though the loop never ran") {
  const tests::TempDir temp;
  Heard heard(temp.path() / "1.sock");
  const std::string large(60'000, 'x');
  const pid_t worker = process(heard.path, [&](ipc::WorkerPipe& pipe) {
    send_text(pipe, large);
    send_text(pipe, "why");
  });
  ::waitpid(worker, nullptr, 0);
  heard.start(worker);
  heard.worker->drain();
  CHECK(heard.received == std::vector<std::string>{large, "why"});
  heard.worker->drain();
  CHECK(heard.received.size() == 2);
}

TEST_CASE("a worker that breaks the protocol is disconnected") {
  const tests::TempDir temp;
  Heard heard(temp.path() / "1.sock");
  const pid_t worker = process(heard.path, [](ipc::WorkerPipe& pipe) {
    const std::string text(4096, 'z');
    [[maybe_unused]] const ssize_t n = ::write(pipe.fd(), text.data(), text.size());
  });
  heard.start(worker);
  CHECK(heard.run_until([&] { return !heard.broken.empty(); }));
  ::waitpid(worker, nullptr, 0);
  CHECK(heard.received.empty());
}

TEST_CASE("a listener may close the socket during a message") {
  const tests::TempDir temp;
  Heard heard(temp.path() / "1.sock");
  const pid_t worker = process(heard.path, [](ipc::WorkerPipe& pipe) {
    for (int i = 0; i < 10; ++i) send_text(pipe, "again");
  });
  heard.on_received = [&] { heard.worker.reset(); };
  heard.start(worker);
  CHECK(heard.run_until([&] { return heard.worker == nullptr; }));
  ::waitpid(worker, nullptr, 0);
  CHECK(heard.received.size() == 1);
}

TEST_CASE("messages that a busy worker does not read yet wait, and block no one") {
  const tests::TempDir temp;
  Heard heard(temp.path() / "1.sock");
  // Reads when it receives a byte, and reports how much it read.
  int go[2] = {-1, -1};
  REQUIRE(::pipe(go) == 0);
  constexpr size_t kMessages = 100;
  const pid_t worker = process(heard.path, [&](ipc::WorkerPipe& pipe) {
    send_text(pipe, "here");
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) return;
    size_t bytes = 0;
    for (size_t met = 0; met < kMessages;) {
      if (pipe.read() == ipc::WorkerPipe::Read::kEnded) return;
      while (true) {
        const auto message = pipe.next();
        if (!message.ok() || !*message) break;
        bytes += (*message)->bytes.size();
        ++met;
      }
    }
    send_text(pipe, std::to_string(bytes));
  });
  heard.start(worker);
  CHECK_FALSE(heard.worker->send(ipc::PipeKind::kControl, 0, "too early"));
  REQUIRE(heard.run_until([&] { return heard.received.size() == 1; }));
  const std::string request(20'000, 'r');
  for (size_t i = 0; i < kMessages; ++i) {
    CHECK(heard.worker->send(ipc::PipeKind::kRequest, i, request));
  }
  REQUIRE(::write(go[1], "g", 1) == 1);
  CHECK(heard.run_until([&] { return heard.received.size() == 2; }));
  ::waitpid(worker, nullptr, 0);
  CHECK(heard.received.back() == std::to_string(kMessages * request.size()));
  ::close(go[0]);
  ::close(go[1]);
}

}  // namespace
}  // namespace hearth::broker
