// What one connection costs the others: users take turns, long bodies and long answers are read on
// another thread, and a connection that does not read gets no further work.

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <deque>
#include <map>

#include "daemon/http/server.h"
#include "ipc/wire/codec.h"
#include "tests/temp_dir.h"

namespace hearth::http {
namespace {

constexpr size_t kInline = 1000;

struct Job {
  size_t bytes = 0;
  std::function<void()> work;
  std::function<void()> then;
};

/// Holds work for the side thread until the test runs it, and answers each request with `reply`.
class FakeBackend final : public Backend {
 public:
  void take_turn(uint32_t uid, std::function<void()> work) override {
    CHECK(uid == ::geteuid());
    turns.push_back(std::move(work));
    if (!holds_turns) run_turn();
  }
  uint64_t accept_from(int listener, NameUser name_user, OnConnection on_connection) override {
    sockets.emplace_back(*io, listener);
    accept_next(sockets.back(), name_user, std::move(on_connection));
    return sockets.size();
  }
  void accept_no_more(uint64_t number) override { sockets.at(number - 1).close(); }
  Result<void> admit(uint32_t, size_t bytes) const override {
    if (bytes <= room) return {};
    return Error{ErrorCode::kBusy, "full", ""};
  }
  void run_aside(uint32_t, size_t bytes, std::function<void()> work,
                 std::function<void()> then) override {
    jobs.push_back({bytes, std::move(work), std::move(then)});
  }
  void submit(const Exchanger& from, const std::string&, ipc::ComputeRequest request,
              size_t bytes) override {
    if (auto* generate = std::get_if<ipc::GenerateRequest>(&request)) {
      generated.push_back({std::move(*generate), bytes});
      ipc::SampleDoneEvent sample;
      sample.reason = "stop";
      ipc::DoneEvent done;
      done.finish_reasons = {"stop"};
      for (const ipc::Event& event :
           {ipc::Event(ipc::StartedEvent{}), ipc::Event(sample), ipc::Event(done)}) {
        const std::string json = ipc::encode_event(event);
        ipc::Answer answer;
        answer.json = json;
        CHECK(server->deliver(from.number, answer) == ipc::SendOutcome::kSent);
      }
      return;
    }
    submitted.push_back(std::get<ipc::TokenizeRequest>(request).text.size());
    const std::string json = ipc::encode_event(reply);
    ipc::Answer answer;
    answer.json = json;
    CHECK(server->deliver(from.number, answer) == ipc::SendOutcome::kSent);
  }
  Result<void> end_reasoning(uint32_t uid, const std::string& id) override {
    CHECK(uid == ::geteuid());
    if (id == "a-1") return {};
    return Error::not_found("none", "id");
  }
  bool keeps_responses(uint32_t) const override { return keeps; }
  void keep_response(uint32_t, KeptResponse response) override {
    kept.push_back(std::move(response));
  }
  void ask_kept(uint32_t uid, KeptQuery query,
                std::function<void(Result<std::string>)> then) override {
    CHECK(uid == ::geteuid());
    asked.push_back({std::move(query), std::move(then)});
  }
  KeptStats kept_stats() const override { return {}; }
  bool keep_alive(uint32_t, const std::string&, int64_t) override { return true; }
  Result<void> release(uint32_t, const std::string&) override { return {}; }
  std::string fingerprint(const std::string&) const override { return "f1"; }
  void note_left_out(uint32_t, const std::string& id, int32_t lines) override {
    left_out[id] += lines;
  }
  bool keeps_batches(uint32_t) const override { return false; }
  void ask_batches(uint32_t, BatchQuery, std::function<void(Result<BatchReply>)> then) override {
    then(Error::unsupported("none"));
  }
  BatchStats batch_stats() const override { return {}; }
  void gone(const Exchanger&) override {}
  void writable(const Exchanger&) override {}
  size_t backlog_bytes(const Exchanger&) const override { return 0; }
  ipc::ModelsReply models() const override { return {}; }
  ipc::StatsReply stats() const override { return {}; }
  ipc::HealthReply health() const override { return {}; }
  Result<void> ready(uint32_t) const override { return {}; }
  ModelTraffics traffic() const override { return {}; }

  // Posted, as in the broker.
  void run_turn() {
    boost::asio::post(*io, [this] {
      const std::function<void()> work = std::move(turns.front());
      turns.pop_front();
      work();
    });
  }
  void run_next() {
    REQUIRE_FALSE(jobs.empty());
    Job job = std::move(jobs.front());
    jobs.pop_front();
    job.work();
    job.then();
  }

  using Listener = boost::asio::posix::stream_descriptor;
  void accept_next(Listener& listener, NameUser name_user, OnConnection on_connection) {
    listener.async_wait(Listener::wait_read, [=, this, &listener](const auto& error) {
      if (error) return;
      const int fd = ::accept4(listener.native_handle(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) on_connection(fd, name_user(fd));
      accept_next(listener, name_user, on_connection);
    });
  }

  HttpServer* server = nullptr;
  boost::asio::io_context* io = nullptr;
  std::deque<Listener> sockets;
  bool holds_turns = false;  // the test runs them
  std::deque<std::function<void()>> turns;
  ipc::TokenizeReply reply;
  size_t room = SIZE_MAX;
  std::deque<Job> jobs;
  std::vector<size_t> submitted;
  struct Generated {
    ipc::GenerateRequest request;
    size_t bytes = 0;
  };
  std::vector<Generated> generated;
  std::map<std::string, int32_t> left_out;
  bool keeps = true;
  std::vector<KeptResponse> kept;
  struct Question {
    KeptQuery query;
    std::function<void(Result<std::string>)> then;
  };
  std::deque<Question> asked;
};

class Fixture {
 public:
  explicit Fixture(size_t inline_bytes = kInline) {
    ServerConfig config;
    config.socket = dir_.path() / "http.sock";
    config.inline_bytes = inline_bytes;
    config.instance = "test";
    backend.io = &io_;
    server_ = HttpServer::open(io_, config, backend).value();
    backend.server = server_.get();
  }

  /// A connection; descriptors are closed with the fixture.
  int connect() {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = (dir_.path() / "http.sock").string();
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    fds_.push_back(fd);
    return fd;
  }
  static std::string request(size_t bytes) {
    const std::string json = R"({"text":")" + std::string(bytes, 'a') + "\"}";
    return fmt::format(
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
        json.size(), json);
  }
  static std::string responses(const std::string& json) {
    return fmt::format(
        "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
        json.size(), json);
  }
  static std::string bare(std::string_view method, std::string_view path) {
    return fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n\r\n", method, path);
  }
  void tokenize(int fd, size_t bytes) { send(fd, request(bytes)); }
  void send(int fd, std::string_view bytes) { CHECK(send_some(fd, bytes) == bytes.size()); }
  /// Until all is sent, or the server takes no more. Returns the number of bytes sent.
  size_t send_some(int fd, std::string_view bytes) {
    size_t sent = 0;
    for (int refused = 0; sent < bytes.size() && refused < 100; turn()) {
      const ssize_t n =
          ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) sent += static_cast<size_t>(n);
      refused = n > 0 ? 0 : refused + 1;
    }
    return sent;
  }
  /// Runs the server until `done`; false if nothing happens any more.
  template <class Done>
  bool run_until(Done done) {
    for (int i = 0; i < 2000 && !done(); ++i) turn();
    return done();
  }
  /// The status of the next answer; 0 if none has come. Reads the whole answer.
  int status(int fd) {
    std::string answer;
    const bool whole = run_until([&] {
      char buffer[65536];
      for (ssize_t n; (n = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT)) > 0;) {
        answer.append(buffer, static_cast<size_t>(n));
      }
      const size_t head = answer.find("\r\n\r\n");
      const size_t length = answer.find("Content-Length: ");
      if (head == std::string::npos || length == std::string::npos) return false;
      return answer.size() == head + 4 + std::stoul(answer.substr(length + 16));
    });
    body = whole ? answer.substr(answer.find("\r\n\r\n") + 4) : "";
    return whole ? std::stoi(answer.substr(9, 3)) : 0;
  }
  /// The server has closed it, and sent nothing.
  bool ended(int fd) {
    char byte;
    return ::recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
  }
  bool silent(int fd) {
    for (int i = 0; i < 50; ++i) turn();
    char byte;
    return ::recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0;
  }
  void close(int fd) {
    std::erase(fds_, fd);
    ::close(fd);
  }
  void settle() {
    for (int i = 0; i < 50; ++i) turn();
  }
  /// Reads what has been answered; returns the number of answers in it.
  size_t read_answers(int fd) {
    char buffer[65536];
    ssize_t n;
    while ((n = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT)) > 0) {
      unread.append(buffer, static_cast<size_t>(n));
    }
    size_t count = 0;
    for (size_t at; (at = unread.find("HTTP/1.1 ")) != std::string::npos; ++count) {
      unread.erase(0, at + 9);
    }
    unread.erase(0, unread.size() - std::min<size_t>(unread.size(), 8));
    return count;
  }
  ~Fixture() {
    for (const int fd : fds_) ::close(fd);
  }

  FakeBackend backend;
  std::string body;
  std::string unread;  // the last bytes of read_answers()

 private:
  void turn() {
    io_.restart();
    server_->tick();
    if (io_.poll() == 0) io_.run_one_for(std::chrono::milliseconds(1));
  }

  tests::TempDir dir_;
  boost::asio::io_context io_;
  std::unique_ptr<HttpServer> server_;
  std::vector<int> fds_;
};

TEST_CASE("received bytes are handled when their user's turn has come, one request per turn") {
  Fixture f;
  f.backend.holds_turns = true;
  const int fd = f.connect();
  f.send(fd, f.request(10) + f.request(10) + f.request(10));
  REQUIRE(f.run_until([&] { return f.backend.turns.size() == 1; }));
  f.settle();
  CHECK(f.backend.submitted.empty());
  for (size_t answered = 1; answered <= 3; ++answered) {
    f.backend.run_turn();
    f.settle();
    CHECK(f.backend.submitted.size() == answered);
  }
}

TEST_CASE("a connection that does not read gets no further work until it reads") {
  Fixture f;
  f.backend.reply.ids.assign(80, 7);
  f.backend.reply.entries.assign(80, "a");
  const int fd = f.connect(), other = f.connect();
  constexpr size_t kAsked = 4000;
  std::string all;
  for (size_t i = 0; i < kAsked; ++i) all += f.request(1);
  size_t sent = f.send_some(fd, all);
  f.settle();
  // What the socket and the connection's own buffer take, and no more.
  const size_t asked = f.backend.submitted.size();
  CHECK(asked > 50);
  CHECK(asked < kAsked / 2);
  f.settle();
  CHECK(f.backend.submitted.size() == asked);
  f.tokenize(other, 10);
  CHECK(f.status(other) == 200);
  size_t answers = 0;
  CHECK(f.run_until([&] {
    answers += f.read_answers(fd);
    if (sent < all.size()) sent += f.send_some(fd, std::string_view(all).substr(sent, 4096));
    return answers == kAsked;
  }));
}

TEST_CASE("a long body waits until its user's other long bodies are in; short ones do not") {
  Fixture f;
  const int first = f.connect(), second = f.connect(), third = f.connect();
  const std::string head =
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 32000000\r\n\r\n";
  const std::string part(2 << 20, ' ');
  f.send(first, head);
  f.send(first, part);
  f.send(second, head);
  const size_t taken = f.send_some(second, part);
  CHECK(taken < part.size());  // what fits into the socket
  f.tokenize(third, 10);
  CHECK(f.status(third) == 200);
  f.close(first);
  f.send(second, std::string_view(part).substr(taken));
}

TEST_CASE("a connection beyond the user's share is refused for now") {
  Fixture f;
  constexpr int kShare = 128;  // half of all
  for (int i = 0; i < kShare; ++i) f.connect();
  const int beyond = f.connect();
  CHECK(f.status(beyond) == 503);
}

TEST_CASE("while a long body is parsed on the side thread, another connection is answered") {
  Fixture f;
  const int long_one = f.connect(), short_one = f.connect();
  f.tokenize(long_one, 50'000);
  REQUIRE(f.run_until([&] { return f.backend.jobs.size() == 1; }));
  CHECK(f.backend.jobs.front().bytes > 50'000);
  f.tokenize(short_one, 10);
  CHECK(f.status(short_one) == 200);
  CHECK(f.backend.submitted == std::vector<size_t>{10});
  CHECK(f.silent(long_one));
  f.backend.run_next();
  CHECK(f.status(long_one) == 200);
  CHECK(f.backend.submitted == std::vector<size_t>{10, 50'000});
  // The connection stays usable.
  f.tokenize(long_one, 20);
  CHECK(f.status(long_one) == 200);
}

TEST_CASE("pipelined requests wait for the one that the side thread parses") {
  Fixture f;
  const int fd = f.connect();
  f.tokenize(fd, 50'000);
  f.tokenize(fd, 10);
  REQUIRE(f.run_until([&] { return f.backend.jobs.size() == 1; }));
  CHECK(f.silent(fd));
  f.backend.run_next();
  REQUIRE(f.run_until([&] { return f.backend.submitted.size() == 2; }));
  CHECK(f.backend.submitted == std::vector<size_t>{50'000, 10});
}

TEST_CASE("a connection may close while its body is parsed") {
  Fixture f;
  const int fd = f.connect(), other = f.connect();
  f.tokenize(fd, 50'000);
  REQUIRE(f.run_until([&] { return f.backend.jobs.size() == 1; }));
  f.close(fd);
  f.tokenize(other, 10);
  CHECK(f.status(other) == 200);
  f.backend.run_next();
  f.tokenize(other, 10);
  CHECK(f.status(other) == 200);
  CHECK(f.backend.submitted == std::vector<size_t>{10, 10});
}

TEST_CASE("a long body that does not fit is refused before it is parsed") {
  Fixture f;
  f.backend.room = 40'000;
  const int fd = f.connect();
  f.tokenize(fd, 50'000);
  CHECK(f.status(fd) == 429);
  CHECK(f.backend.jobs.empty());
  f.tokenize(fd, 10);
  CHECK(f.status(fd) == 200);
}

TEST_CASE("while a long answer is decoded on the side thread, another connection is answered") {
  Fixture f;
  const int long_one = f.connect(), short_one = f.connect();
  f.backend.reply.ids.assign(5000, 7);
  f.backend.reply.entries.assign(5000, "abc");
  f.tokenize(long_one, 10);
  REQUIRE(f.run_until([&] { return f.backend.jobs.size() == 1; }));
  f.backend.reply = {};
  f.tokenize(short_one, 10);
  CHECK(f.status(short_one) == 200);
  CHECK(f.silent(long_one));
  f.backend.run_next();
  CHECK(f.status(long_one) == 200);
  CHECK(f.body.size() > 10'000);
}

TEST_CASE("answers of some KiB are decoded elsewhere, although bodies of that length are not") {
  Fixture f(64 << 10);
  const int fd = f.connect();
  f.tokenize(fd, 5000);
  CHECK(f.status(fd) == 200);
  f.backend.reply.ids.assign(1000, 7);
  f.backend.reply.entries.assign(1000, "abc");
  f.tokenize(fd, 5000);
  REQUIRE(f.run_until([&] { return f.backend.jobs.size() == 1; }));
  f.backend.run_next();
  CHECK(f.status(fd) == 200);
}

TEST_CASE("a tokenize answer that is too long for HTTP is refused and not decoded") {
  Fixture f;
  const int fd = f.connect();
  f.backend.reply.ids.assign(300'000, 12'345);
  f.backend.reply.entries.assign(300'000, std::string(30, 'a'));
  f.tokenize(fd, 10);
  CHECK(f.status(fd) == 413);
  CHECK(f.backend.jobs.empty());
}

TEST_CASE("long answers that a user does not read are bounded together") {
  Fixture f;
  f.backend.reply.ids.assign(100'000, 7);
  f.backend.reply.entries.assign(100'000, std::string(30, 'a'));
  std::vector<int> fds;
  int refused = 0;
  for (int i = 0; i < 12; ++i) {
    fds.push_back(f.connect());
    f.tokenize(fds.back(), 10);
    REQUIRE(f.run_until([&] { return f.backend.jobs.size() == 1; }));
    f.backend.run_next();
    char head[12] = {};
    REQUIRE(f.run_until([&] {
      return ::recv(fds.back(), head, sizeof head, MSG_DONTWAIT | MSG_PEEK) == sizeof head;
    }));
    refused += std::string_view(head, sizeof head).ends_with("429") ? 1 : 0;
  }
  CHECK(refused > 0);
  CHECK(refused < 12);
  // Answers that are read now make room.
  for (const int fd : fds) f.status(fd);
  f.tokenize(fds[0], 10);
  REQUIRE(f.run_until([&] { return f.backend.jobs.size() == 1; }));
  f.backend.run_next();
  CHECK(f.status(fds[0]) == 200);
}

TEST_CASE("an answer is kept before its client has it, unless the request declines") {
  Fixture f;
  const int fd = f.connect();
  f.send(fd, f.responses(R"({"model":"m","input":"a"})"));
  CHECK(f.status(fd) == 200);
  REQUIRE(f.backend.kept.size() == 1);
  CHECK(f.body.find(f.backend.kept[0].id) != std::string::npos);
  CHECK(f.backend.kept[0].input == R"([{"type":"message","role":"user","content":"a"}])");
  f.send(fd, f.responses(R"({"model":"m","input":"a","store":false})"));
  CHECK(f.status(fd) == 200);
  f.backend.keeps = false;
  f.send(fd, f.responses(R"({"model":"m","input":"a"})"));
  CHECK(f.status(fd) == 200);
  CHECK(f.body.find(R"("store":false)") != std::string::npos);
  f.send(fd, f.responses(R"({"model":"m","input":"a","previous_response_id":"resp_1"})"));
  CHECK(f.status(fd) == 400);
  CHECK(f.backend.kept.size() == 1);
  CHECK(f.backend.asked.empty());
}

TEST_CASE("a request that continues an answer waits for its conversation, short and long") {
  for (const size_t bytes : {size_t{10}, 2 * kInline}) {
    CAPTURE(bytes);
    Fixture f;
    const int fd = f.connect();
    const std::string next =
        f.responses(R"({"model":"m","input":"b","previous_response_id":"resp_1"})");
    f.send(fd, next + f.request(5));
    REQUIRE(f.run_until([&] { return !f.backend.asked.empty(); }));
    CHECK(f.silent(fd));
    const FakeBackend::Question& question = f.backend.asked.front();
    CHECK(question.query.kind == KeptQuery::Kind::kConversation);
    CHECK(question.query.id == "resp_1");
    CHECK(question.query.max_bytes < size_t{32} << 20);
    question.then(R"({"items":[{"role":"user","content":")" + std::string(bytes, 'a') + R"("}]})");
    if (bytes > kInline) {
      REQUIRE(f.backend.jobs.size() == 1);
      CHECK(f.backend.jobs.front().bytes > bytes);
      f.backend.run_next();
    }
    REQUIRE(f.run_until([&] { return f.backend.submitted.size() == 1; }));  // the request after it
    REQUIRE(f.backend.generated.size() == 1);
    CHECK(f.backend.generated[0].bytes > bytes);
    const std::string& messages = f.backend.generated[0].request.messages.text;
    CHECK(messages.find(std::string(bytes, 'a')) < messages.find("\"b\""));
    REQUIRE(f.backend.kept.size() == 1);
    CHECK(f.backend.kept[0].previous_id == "resp_1");
    CHECK(f.backend.kept[0].input.size() < 100);
  }
}

TEST_CASE("a conversation that cannot be continued is an error, and the connection stays usable") {
  Fixture f;
  const int fd = f.connect();
  const std::string next =
      f.responses(R"({"model":"m","input":"b","previous_response_id":"resp_1"})");
  const auto answered = [&](Result<std::string> text) {
    f.send(fd, next);
    REQUIRE(f.run_until([&] { return !f.backend.asked.empty(); }));
    f.backend.asked.front().then(std::move(text));
    f.backend.asked.pop_front();
    return f.status(fd);
  };
  CHECK(answered(Error::not_found("Previous response with id 'resp_1' not found.",
                                  "previous_response_id")) == 400);
  CHECK(f.body.find(R"("code":"previous_response_not_found")") != std::string::npos);
  CHECK(f.body.find(R"("param":"previous_response_id")") != std::string::npos);
  CHECK(answered(Error::too_large("too long", "previous_response_id")) == 413);
  CHECK(answered(Error::unavailable("the disk")) == 503);
  CHECK(answered(std::string("no json")) == 400);
  f.backend.room = 100;
  CHECK(answered(R"({"items":[{"role":"user","content":")" + std::string(2 * kInline, 'a') +
                 R"("}]})") == 429);
  f.tokenize(fd, 5);
  CHECK(f.status(fd) == 200);
  // A client that leaves meanwhile.
  f.send(fd, next);
  REQUIRE(f.run_until([&] { return !f.backend.asked.empty(); }));
  f.close(fd);
  f.settle();
  f.backend.asked.front().then(std::string(R"({"items":[]})"));
  f.settle();
  CHECK(f.backend.generated.empty());
}

TEST_CASE("kept answers are shown, listed and removed by their id") {
  Fixture f;
  const int fd = f.connect();
  const auto asked = [&](std::string_view method, std::string_view path, KeptQuery::Kind kind,
                         Result<std::string> text) {
    f.send(fd, f.bare(method, path));
    REQUIRE(f.run_until([&] { return !f.backend.asked.empty(); }));
    CHECK(f.backend.asked.front().query.kind == kind);
    CHECK(f.backend.asked.front().query.id == "resp_1");
    f.backend.asked.front().then(std::move(text));
    f.backend.asked.pop_front();
    if (!f.backend.jobs.empty()) f.backend.run_next();
    return f.status(fd);
  };
  using Kind = KeptQuery::Kind;
  CHECK(asked("GET", "/v1/responses/resp_1", Kind::kResponse, std::string("{}")) == 200);
  CHECK(f.body == "{}");
  const Error absent = Error::not_found("Response with id 'resp_1' not found.", "response_id");
  CHECK(asked("GET", "/v1/responses/resp_1/", Kind::kResponse, absent) == 404);
  CHECK(f.body.find(R"("code":"not_found")") != std::string::npos);
  const std::string items = R"({"items":[{"role":"user","content":")";
  CHECK(asked("GET", "/v1/responses/resp_1/input_items?limit=1", Kind::kInputItems,
              items + "a\"}]}") == 200);
  CHECK(f.body.find(R"("object":"list")") != std::string::npos);
  CHECK(asked("GET", "/v1/responses/resp_1/input_items", Kind::kInputItems,
              items + std::string(2 * kInline, 'a') + "\"}]}") == 200);
  for (const char* path : {"/v1/responses/resp_1/input_items?limit=x",
                           "/v1/responses/resp_1?stream=true", "/v1/responses/resp_1?limit=1"}) {
    f.send(fd, f.bare("GET", path));
    CHECK(f.status(fd) == 400);
  }
  CHECK(asked("DELETE", "/v1/responses/resp_1", Kind::kRemove, std::string()) == 200);
  CHECK(f.body == R"({"id":"resp_1","object":"response","deleted":true})");
  CHECK(asked("DELETE", "/v1/responses/resp_1", Kind::kRemove, absent) == 404);
}

}  // namespace
}  // namespace hearth::http
