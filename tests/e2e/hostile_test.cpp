// Clients may send anything. The daemon answers what it can address, drops the rest, and another
// client's stream does not change.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "ipc/files/paths.h"
#include "tests/e2e/baseline.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/http_client.h"
#include "tests/e2e/raw_client.h"
#include "tests/e2e/tiny_model.h"
#include "tests/other_user.h"
#include "tests/skip.h"

namespace hearth::e2e {
namespace {

using Json = nlohmann::json;

// The wire code of the error that answers `id`; "" if none comes.
Json error_for(RawClient& client, const std::string& id) {
  while (const auto frames = client.receive(10'000)) {
    if (frames->size() == 4 && frames->at(1) == id) return Json::parse(frames->at(3));
  }
  return {};
}

std::string bytes_of(std::mt19937& random, size_t max) {
  std::string out(random() % (max + 1), '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

TEST_CASE("every number at its extremes is served or is an error that names its field") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"worker.context_length=256"});
  ipc::Client watcher = daemon.connect();
  const Answer before = run(watcher, seeded(42, 60));
  REQUIRE(before.done);
  RawClient client(daemon);
  const std::vector<std::string> fields = {"n",
                                           "max_tokens",
                                           "min_tokens",
                                           "temperature",
                                           "top_k",
                                           "top_p",
                                           "min_p",
                                           "typical_p",
                                           "logprobs",
                                           "repetition_penalty",
                                           "presence_penalty",
                                           "frequency_penalty",
                                           "deadline_ms",
                                           "penalty_window",
                                           "seed"};
  const std::vector<std::string> values = {"-1",
                                           "0",
                                           "1e308",
                                           "-1e308",
                                           "9223372036854775808",
                                           "NaN",
                                           "1e999",
                                           "0.5",
                                           "null",
                                           "\"1\"",
                                           "[]",
                                           "{}",
                                           "true",
                                           "18446744073709551616",
                                           "-9223372036854775809"};
  int number = 0;
  for (const std::string& field : fields) {
    for (const std::string& value : values) {
      const std::string id = "x" + std::to_string(number++);
      client.send_json(id, R"({"verb":"generate","prompt":"the","max_tokens":4,)" +
                               std::string(field == "max_tokens" ? R"("n":1,)" : "") + "\"" +
                               field + "\":" + value + "}");
      const auto last = [&]() -> Json {
        while (const auto frames = client.receive()) {
          if (frames->at(1) != id || frames->at(2) != "event") continue;
          Json event = Json::parse(frames->at(3));
          if (event["event"] == "done" || event["event"] == "error") return event;
        }
        return {};
      }();
      CAPTURE(field);
      CAPTURE(value);
      REQUIRE(last.is_object());
      if (last["event"] != "error") continue;
      const std::string code = last["code"];
      const std::string message = last["message"];
      CHECK(code != "internal");
      CHECK((message.find(field) != std::string::npos || last["field"] == field ||
             code == "protocol"));  // NaN is not JSON
    }
  }
  const Answer after = run(watcher, seeded(42, 60));
  CHECK(after.ids == before.ids);
}

TEST_CASE("errors are answered to the request id if it can be read, whatever else is wrong") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  RawClient client(daemon);
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"HEARTH/1", "a1", "{"}, "protocol"},
      {{"HEARTH/1", "a2", ""}, "protocol"},
      {{"HEARTH/1", "a3", "[1,2]"}, "protocol"},
      {{"HEARTH/1", "a4", "{\"verb\":\"nothing\"}"}, "protocol"},
      {{"HEARTH/1", "a5", "{\"verb\":\"generate\",\"prompt\":\"a\",\"promt\":1}"}, "unknown_field"},
      {{"HEARTH/9", "a6", "{\"verb\":\"ping\"}"}, "protocol"},
      {{"HEARTH/1", "a7", "{\"verb\":\"ping\"}", "more"}, "protocol"},
      {{"HEARTH/1", "a8"}, "protocol"},
      {{"HEARTH/1", "a9", "{\"verb\":\"generate\",\"prompt\":\"\xFF\xFE\"}"}, ""},
      {{"HEARTH/1", "b1", std::string(100'000, '[')}, ""},
      {{"HEARTH/1", "b2", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}, "protocol"},
  };
  for (const auto& [frames, code] : cases) {
    client.send(frames);
    const Json error = error_for(client, frames[1]);
    CAPTURE(frames[1]);
    REQUIRE(error.is_object());
    CHECK(error["event"] == "error");
    if (!code.empty()) CHECK(error["code"] == code);
    CHECK(error["message"].get<std::string>().size() > 5);
  }
  // These messages name no request to answer: they are dropped, and the connection continues.
  client.send({"HEARTH/1", std::string(65, 'i'), "{\"verb\":\"ping\"}"});
  client.send({"HEARTH/1", "", "{\"verb\":\"ping\"}"});
  client.send({"HEARTH/1", "with blank", "{\"verb\":\"ping\"}"});
  client.send({""});
  client.send_json("alive", "{\"verb\":\"ping\"}");
  CHECK(error_for(client, "alive")["verb"] == "ping");
}

TEST_CASE("a flood of garbage does not change another client's stream") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  const ipc::GenerateRequest request = seeded(8, 3000);
  const Answer want = run(client, request);
  REQUIRE(want.done);

  const std::vector<std::string> good = {
      R"({"verb":"generate","prompt":"the abc","max_tokens":3,"stop":["x"],"logit_bias":[[5,1.5]]})",
      R"({"verb":"tokenize","text":"the abc"})", R"({"verb":"cancel","id":"q"})",
      R"({"verb":"stats"})"};
  RawClient noise(daemon);
  std::mt19937 random(99);
  const int limit = tests::full_counts() ? 200'000 : 5'000;
  int sent = 0;
  const auto make_noise = [&](int count) {
    for (int i = 0; i < count && sent < limit; ++i, ++sent) {
      std::vector<std::string> frames;
      if (random() % 3 == 0) {
        for (size_t f = random() % 6; f > 0; --f) frames.push_back(bytes_of(random, 64));
        if (frames.empty()) frames.emplace_back();
      } else {  // a valid message with a few bytes changed
        std::string json = good[random() % good.size()];
        for (size_t changes = random() % 4; changes > 0; --changes) {
          json[random() % json.size()] = static_cast<char>(random());
        }
        frames = {"HEARTH/1", "n" + std::to_string(sent),
                  json.substr(0, random() % 2 == 0 ? json.size() : random() % json.size())};
      }
      noise.send(frames);
      while (noise.receive(0)) {
      }
    }
  };
  int turns = 0;
  const Answer answer = run(client, request, [&](const Answer&) {
    if (turns++ % 10 == 0) make_noise(50);
  });
  REQUIRE_MESSAGE(answer.done, why(answer));
  CHECK(answer.ids == want.ids);
  CHECK(answer.texts == want.texts);
  make_noise(limit);
  noise.send_json("end", "{\"verb\":\"ping\"}");
  bool pong = false;
  while (const auto frames = noise.receive()) {
    if (frames->size() == 4 && frames->at(1) == "end") {
      pong = true;
      break;
    }
  }
  CHECK(pong);
  CHECK(daemon.wait_until_idle());
  CHECK(daemon.stats().workers[0].restarts == 0);
}

// ---- Bytes instead of libzmq -------------------------------------------------------------------

int connect_raw(const std::filesystem::path& socket) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket.c_str(), sizeof address.sun_path - 1);
  if (fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    return fd;
  }
  if (fd >= 0) ::close(fd);
  return -1;
}

/// A process of the other user's that opens connections to all sockets as fast as it can, keeps
/// many, and closes them at once.
class ConnectionFlood {
 public:
  explicit ConnectionFlood(const std::filesystem::path& runtime) {
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ != 0) return;
    if (!tests::become_other_user(parent)) ::_exit(9);
    std::vector<int> open;
    while (true) {
      for (const auto& socket :
           {ipc::api_socket(runtime), ipc::events_socket(runtime), runtime / "http.sock"}) {
        if (const int fd = connect_raw(socket); fd >= 0) open.push_back(fd);
      }
      if (open.size() < 600) continue;
      for (const int fd : open) ::close(fd);
      open.clear();
    }
  }
  ~ConnectionFlood() {
    CHECK(::kill(pid_, SIGKILL) == 0);
    CHECK(::waitpid(pid_, nullptr, 0) == pid_);
  }
  ConnectionFlood(const ConnectionFlood&) = delete;
  ConnectionFlood& operator=(const ConnectionFlood&) = delete;

 private:
  pid_t pid_;
};

// Greeting and READY of a socket of that type.
std::string hands(const std::string& type) {
  std::string out(64, '\0');
  out[0] = '\xFF';
  out[9] = '\x7F';
  out[10] = 3;
  out[11] = 1;
  out.replace(12, 4, "NULL");
  std::string data = "\5READY";
  data += std::string("\x0bSocket-Type\0\0\0", 15) + static_cast<char>(type.size()) + type;
  return out + '\4' + static_cast<char>(data.size()) + data;
}

// Waits until the other end has ended the connection; false if it accepts this many bytes.
bool ended_before(int fd, const std::string& again, size_t most_bytes) {
  const int64_t end = now_ms() + kPatienceMs;
  size_t sent = 0;
  while (sent < most_bytes && now_ms() < end) {
    const ssize_t n = ::send(fd, again.data(), again.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      sent += static_cast<size_t>(n);
      continue;
    }
    if (errno != EAGAIN) return true;
    ::usleep(1000);
  }
  return false;
}

TEST_CASE(
    "a routing id chosen by a client reaches no other client's request, over HTTP or api.sock") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  const std::string body =
      R"({"model":"tiny","prompt":"the","max_tokens":1500,"stream":true,"seed":5})";
  HttpClient calm(daemon);
  calm.send(post("/v1/completions", body));
  const std::optional<HttpAnswer> want = calm.receive();
  REQUIRE(want);
  REQUIRE(want->body.find("data: [DONE]") != std::string::npos);
  HttpClient victim(daemon);
  victim.send(post("/v1/completions", body));
  ipc::Context context = ipc::Context::create().value();
  const std::string endpoint = *ipc::ipc_endpoint(ipc::api_socket(daemon.runtime()));
  for (int i = 1; i < 40; ++i) {
    for (const std::string& id : {"http-" + std::to_string(i), "http-x-" + std::to_string(i),
                                  std::string("\0\0\0\0", 4) + static_cast<char>(i)}) {
      ipc::SocketOptions options;
      options.routing_id = id;
      ipc::Socket liar = ipc::Socket::open(context, ipc::SocketType::kDealer, options).value();
      REQUIRE(liar.connect(endpoint).ok());
      ipc::Message message;
      ipc::append(message, std::string("HEARTH/1"), std::string("r"), std::string("{"));
      CHECK(liar.send(message) == ipc::SendOutcome::kSent);
      // It is answered like any other client, on its own connection.
      ipc::PollItem item{.socket = &liar};
      ipc::poll({&item, 1}, kPatienceMs);
      CHECK(liar.receive(message) == ipc::ReceiveOutcome::kReceived);
    }
  }
  const std::optional<HttpAnswer> answer = victim.receive();
  REQUIRE(answer);
  CHECK(answer->body.find("data: [DONE]") != std::string::npos);
  CHECK(answer->body.find("\"error\"") == std::string::npos);
}

TEST_CASE("connections beyond the descriptor limit are refused, and the daemon continues") {
  const Sandbox sandbox;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit many = before;
  many.rlim_cur = std::min<rlim_t>(before.rlim_max, 8192);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &many) == 0);
  const Daemon daemon(sandbox, {"limits.max_connections_per_owner=1000"});
  ipc::Client client = daemon.connect();
  const Answer want = run(client, seeded(4, 300));
  // Fewer than it counted on at start.
  const rlimit few{.rlim_cur = 200, .rlim_max = 200};
  REQUIRE(::prlimit(daemon.pid(), RLIMIT_NOFILE, &few, nullptr) == 0);
  std::vector<int> open;
  const auto sockets = {ipc::api_socket(daemon.runtime()), ipc::events_socket(daemon.runtime()),
                        daemon.runtime() / "http.sock"};
  for (int i = 0; i < 1500; ++i) {
    for (const auto& socket : sockets) {
      if (const int fd = connect_raw(socket); fd >= 0) open.push_back(fd);
    }
  }
  CHECK(open.size() > 1500);
  const Answer meanwhile = run(client, seeded(4, 300));
  CHECK_MESSAGE(meanwhile.ids == want.ids, why(meanwhile));
  for (const int fd : open) ::close(fd);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(eventually([&] { return ipc::Client::connect({.runtime_dir = daemon.runtime()}).ok(); }));
}

TEST_CASE("while another user opens connections as fast as he can, a client always connects") {
  if (::geteuid() != 0) HEARTH_SKIP("needs root, to be two users");
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {}, Company::kAlone);
  tests::let_other_user_in(sandbox.path(), daemon.runtime());
  ipc::Client client = daemon.connect();
  const Answer want = run(client, seeded(4, 300));
  const ConnectionFlood flood(daemon.runtime());
  for (int i = 0; i < 10; ++i) {
    ipc::Client next = daemon.connect();
    CHECK(run(next, seeded(4, 300)).ids == want.ids);
    HttpClient http(daemon);
    CHECK(http.ask("GET", "/health").status == 200);
  }
  CHECK(run(client, seeded(4, 300)).ids == want.ids);
}

TEST_CASE("no message and no subscription grows the daemon's memory without bound") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  Baseline before(daemon);
  constexpr size_t kMost = 64 << 20;
  const std::string more_frame = std::string("\1\xFA", 2) + std::string(250, 'x');
  std::string tiny_frames;
  for (int i = 0; i < 1000; ++i) tiny_frames += std::string("\1\2ab", 4);
  for (const std::string& flood : {more_frame, tiny_frames}) {
    const int fd = connect_raw(ipc::api_socket(daemon.runtime()));
    const std::string hello = hands("DEALER");
    REQUIRE(::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL) > 0);
    CHECK(ended_before(fd, flood, size_t{256} << 20));
    ::close(fd);
  }
  CHECK(before.grown_bytes() < kMost);
  std::vector<int> open;
  const std::string hello = hands("SUB");
  for (int connection = 0; connection < 16; ++connection) {
    const int fd = connect_raw(ipc::events_socket(daemon.runtime()));
    REQUIRE(::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL) > 0);
    std::string topics;
    for (int i = 0; i < 100'000; ++i) {
      const std::string topic = "uid:0/" + std::to_string(connection * 1'000'000 + i);
      topics += std::string("\4") + static_cast<char>(10 + topic.size()) + "\x09SUBSCRIBE" + topic;
    }
    for (size_t sent = 0; sent < topics.size();) {
      const ssize_t n = ::send(fd, topics.data() + sent, topics.size() - sent, MSG_NOSIGNAL);
      if (n > 0) sent += static_cast<size_t>(n);
      if (n < 0 && errno != EAGAIN) break;
      if (n < 0) ::usleep(1000);
    }
    open.push_back(fd);
  }
  CHECK(before.grown_bytes() < kMost);
  for (const int fd : open) ::close(fd);
  CHECK(before.same_tokens());
}

TEST_CASE("unread answers are bounded, and their client gets no more work") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"limits.output_buffer_bytes=262144"});
  Baseline before(daemon);
  const int fd = connect_raw(ipc::api_socket(daemon.runtime()));
  std::string bytes = hands("DEALER");
  const std::string text(2000, 'a');
  for (int i = 0; i < 20'000; ++i) {
    const std::string id = "t" + std::to_string(i);
    const std::string json = R"({"verb":"tokenize","text":")" + text + "\"}";
    bytes += std::string("\1\x08HEARTH/1\1") + static_cast<char>(id.size()) + id + '\2';
    for (int shift = 56; shift >= 0; shift -= 8) {
      bytes += static_cast<char>(static_cast<uint64_t>(json.size()) >> shift & 0xFF);
    }
    bytes += json;
  }
  const int64_t end = now_ms() + 5'000;
  for (size_t sent = 0; sent < bytes.size() && now_ms() < end;) {
    const ssize_t n = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n > 0) sent += static_cast<size_t>(n);
    if (n < 0) ::usleep(1000);
  }
  CHECK(before.grown_bytes() < 64u << 20);
  CHECK(before.same_tokens());
  ::close(fd);
  CHECK(daemon.wait_until_idle());
}

TEST_CASE("a log that is not read, or whose reader has left, blocks nothing") {
  const Sandbox sandbox;
  const std::string log = (sandbox.path() / "log").string();
  REQUIRE(::mkfifo(log.c_str(), 0600) == 0);
  const int reader = ::open(log.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(reader >= 0);
  const Daemon daemon(sandbox, {"server.log_level=debug"});
  ipc::Client client = daemon.connect();
  for (int i = 0; i < 800; ++i) REQUIRE(run(client, seeded(1, 1)).done);
  ::close(reader);
  for (int i = 0; i < 20; ++i) REQUIRE(run(client, seeded(1, 1)).done);
}

TEST_CASE("half-sent HTTP bodies, and idle connections, take a bounded share") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  Baseline before(daemon);
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 32000000\r\n\r\n";
  const std::string part(1 << 20, ' ');
  std::vector<int> open;
  for (int i = 0; i < 10; ++i) {
    const int fd = connect_raw(daemon.runtime() / "http.sock");
    REQUIRE(fd >= 0);
    CHECK(::send(fd, head.data(), head.size(), MSG_NOSIGNAL) > 0);
    size_t sent = 0;
    const int64_t end = now_ms() + 500;
    while (sent < 20 * part.size() && now_ms() < end) {
      const ssize_t n = ::send(fd, part.data(), part.size(), MSG_NOSIGNAL);
      if (n > 0) sent += static_cast<size_t>(n);
      if (n < 0 && errno != EAGAIN) break;
      if (n < 0) ::usleep(500);
    }
    open.push_back(fd);
  }
  CHECK(before.grown_bytes() < 64u << 20);
  for (int i = 0; i < 300; ++i) {
    if (const int fd = connect_raw(daemon.runtime() / "http.sock"); fd >= 0) open.push_back(fd);
  }
  CHECK(before.same_tokens());
  for (const int fd : open) ::close(fd);
}

}  // namespace
}  // namespace hearth::e2e
