// Remotes that answer, stall, send garbage, end early or show a wrong certificate: each is a clear
// error within bounded memory, and other calls do not notice.

#include "daemon/broker/remote/http_remotes.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/core.h>
#include <netdb.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "ipc/wire/frames.h"
#include "tests/temp_dir.h"
#include "tests/unit/daemon/scripted_server.h"
#include "tests/unit/daemon/tls_peer.h"

namespace {

/// Names under slow.example take until the test lets them fail.
std::atomic<bool> g_resolving = false, g_may_fail = false, g_waited_too_long = false;

}  // namespace

// In place of the C library's, for the client library, too.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  static const auto real =
      reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (node == nullptr || std::string_view(node) != "slow.example") {
    return real(node, service, hints, found);
  }
  g_resolving = true;
  for (int i = 0; i < 6000 && !g_may_fail; ++i) ::usleep(5'000);
  g_waited_too_long = !g_may_fail;
  g_resolving = false;
  return EAI_NONAME;
}

namespace hearth::broker {
namespace {

using tests::chat_event;
using tests::open_response;
using tests::ScriptedPeer;
using tests::ScriptedServer;
using tests::usage_events;
using tests::whole_response;

constexpr const char* kEvents = "text/event-stream";

struct Received final : RemoteSink {
  struct Answer {
    std::string text;
    std::string model;
    int ends = 0;
    ipc::Usage usage;
    std::string error;
  };
  std::map<uint64_t, Answer> answers;
  std::function<void(uint64_t)> on_text;

  void on_remote_text(uint64_t number, const std::string& model, const RemoteText& text) override {
    answers[number].model = model;
    answers[number].text += ipc::decode_delta_payload(text.payload).value().text;
    if (on_text) on_text(number);
  }
  void on_remote_done(uint64_t number, const std::string&, const std::vector<std::string>&,
                      const ipc::Usage& usage) override {
    ++answers[number].ends;
    answers[number].usage = usage;
  }
  void on_remote_failed(uint64_t number, Error error) override {
    CHECK(error.code == ErrorCode::kUnavailable);
    ++answers[number].ends;
    answers[number].error = error.message;
  }
};

class RemotesRig {
 public:
  explicit RemotesRig(const std::string& url, const std::filesystem::path& ca_file = {},
                      const std::filesystem::path& key_file = {}) {
    const Result<void> configured = remotes.configure({{"code",
                                                        {.remote = url,
                                                         .key_file = key_file,
                                                         .ca_file = ca_file,
                                                         .model = "far",
                                                         .when = "absent",
                                                         .stall_timeout_ms = 5000}}});
    REQUIRE_MESSAGE(configured.ok(), configured.error().message);
  }
  explicit RemotesRig(const ScriptedServer& server)
      : RemotesRig(fmt::format("http://127.0.0.1:{}/v1", server.port())) {}

  void start(uint64_t number, std::string body = "{}") {
    remotes.start(number, "code", {.chat = true, .samples = 1, .body = std::move(body)});
  }
  bool run_until(const std::function<bool()>& done) {
    for (int i = 0; i < 3000 && !done(); ++i) {
      // It stops by itself where nothing is awaited.
      io.restart();
      if (io.run_for(std::chrono::milliseconds(10)) == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return done();
  }
  /// One call to its end.
  Received::Answer& run(uint64_t number) {
    start(number);
    REQUIRE(run_until([&] { return sink.answers[number].ends == 1; }));
    return sink.answers[number];
  }

  boost::asio::io_context io;
  FakeClock clock;
  Received sink;
  HttpRemotes remotes{io, clock, sink};
};

bool has(const std::string& text, std::string_view part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

std::string answer_of(const std::string& text) {
  return chat_event(text) + chat_event("", "stop") + usage_events(3, 1);
}

TEST_CASE("a remote is sent the request, its key and nothing else, and its connection is kept") {
  const tests::TempDir dir;
  const auto key_file = dir.path() / "key";
  std::ofstream(key_file) << "secret-1234\n";
  REQUIRE(::chmod(key_file.c_str(), 0600) == 0);
  const ScriptedServer server([](ScriptedPeer& peer) {
    while (!peer.read_request().empty())
      peer.send(whole_response("200 OK", kEvents, answer_of("hi")));
  });
  RemotesRig rig(fmt::format("http://127.0.0.1:{}/v1/", server.port()), {}, key_file);
  for (uint64_t number = 1; number <= 3; ++number) {
    const Received::Answer& answer = rig.run(number);
    CHECK(answer.error.empty());
    CHECK(answer.text == "hi");
    CHECK(answer.model == "far");
    CHECK(answer.usage.output_tokens == 1);
  }
  CHECK(server.connections() == 1);
  CHECK(server.requests().at(0) ==
        fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n"
                    "Content-Type: application/json\r\nAccept: text/event-stream\r\n"
                    "Authorization: Bearer secret-1234\r\nContent-Length: 2\r\n\r\n{{}}",
                    server.port()));
}

TEST_CASE("a long request is sent whole, and a long answer received whole") {
  const std::string piece(1 << 16, 'x');
  const ScriptedServer server([&](ScriptedPeer& peer) {
    if (peer.read_request().empty()) return;
    std::string events;
    for (int i = 0; i < 40; ++i) events += chat_event(piece);
    peer.send(
        open_response("200 OK", kEvents, events + chat_event("", "length") + usage_events(1, 40)));
  });
  RemotesRig rig(server);
  rig.start(1, std::string(3 << 20, 'b'));
  REQUIRE(rig.run_until([&] { return rig.sink.answers[1].ends == 1; }));
  CHECK(rig.sink.answers[1].error.empty());
  CHECK(rig.sink.answers[1].text.size() == 40 * piece.size());
  CHECK(server.requests().at(0).size() > (3 << 20));
}

TEST_CASE("a remote that stalls, before its answer and amid it, ends with what was received") {
  const ScriptedServer server([](ScriptedPeer& peer) {
    const std::string request = peer.read_request();
    if (request.ends_with("[1]")) peer.send(open_response("200 OK", kEvents, chat_event("12345")));
    peer.wait_for_close();
  });
  RemotesRig rig(server);
  rig.start(1, "[1]");
  REQUIRE(rig.run_until([&] { return rig.sink.answers[1].text == "12345"; }));
  rig.clock.advance_us(4'900'000);
  rig.remotes.tick();
  CHECK(rig.sink.answers[1].ends == 0);
  rig.clock.advance_us(100'000);
  rig.remotes.tick();
  CHECK(rig.sink.answers[1].error ==
        fmt::format("remote 127.0.0.1:{}: it has sent nothing for 5000 ms; of its answer, 5 bytes "
                    "of text in 1 pieces were received",
                    server.port()));
  rig.start(2, "[2]");
  REQUIRE(rig.run_until([&] { return server.requests().size() == 2; }));
  rig.clock.advance_us(5'000'000);
  rig.remotes.tick();
  CHECK(has(rig.sink.answers[2].error, "it has sent nothing for 5000 ms"));
  CHECK_FALSE(has(rig.sink.answers[2].error, "received"));
  CHECK(rig.run_until([&] { return server.closed() == 2; }));
}

TEST_CASE("garbage, half an event, an early end, a refusal and a redirect are named") {
  const auto error = [](const std::string& response) {
    const ScriptedServer server([&](ScriptedPeer& peer) {
      if (!peer.read_request().empty()) peer.send(response);
    });
    RemotesRig rig(server);
    return rig.run(1).error;
  };
  CHECK(has(error("SSH-2.0-OpenSSH_9.2\r\n"), "HTTP/0.9"));
  CHECK(has(error(""), "Empty reply"));
  CHECK(has(error(open_response("200 OK", "text/html", "<html>\n")), "not server-sent events"));
  CHECK(has(error(open_response("200 OK", kEvents, chat_event("ab") + "data: {\"cho")),
            "in the middle of an event; of its answer, 2 bytes of text in 1 pieces"));
  CHECK(has(error(open_response("200 OK", kEvents, chat_event("ab"))), "ends before its text has"));
  CHECK(has(error("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata"),
            "transfer closed"));
  CHECK(has(error("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), "remote 127"));
  CHECK(has(error("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"), "transfer closed"));
  CHECK(
      has(error("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
          "it redirects (status 302), which is not followed"));
  CHECK(has(error(whole_response("429 Too Many", "application/json",
                                 R"({"error":{"message":"slow \u0000down"}})")),
            "it refuses with status 429: \"slow  down\""));
  CHECK(has(error(whole_response("500 No", "text/plain", "")), "status 500: without a reason"));
  CHECK(has(error(open_response("500 No", "text/plain", std::string(1 << 20, 'x'))), "status 500"));
}

TEST_CASE("headers, lines and bodies without an end are bounded") {
  const auto error = [](const std::string& begin, const std::string& piece) {
    const ScriptedServer server([&](ScriptedPeer& peer) {
      if (peer.read_request().empty()) return;
      bool more = peer.send(begin);
      for (int i = 0; more && i < 4096; ++i) more = peer.send(piece);  // 64 KiB each
    });
    RemotesRig rig(server);
    return rig.run(1).error;
  };
  const std::string piece(1 << 16, 'x');
  CHECK(has(error("HTTP/1.1 200 OK\r\n", "X-A: " + std::string(1000, 'a') + "\r\n"),
            "a header of more than 65536 bytes"));
  CHECK(has(error("HTTP/1.1 200 OK\r\nX-A: ", piece), "remote 127"));
  CHECK(has(error("HTTP/1.1 200 OK\r\n\r\ndata: ", piece), "a line of more than 1048576 bytes"));
  CHECK(has(error("HTTP/1.1 200 OK\r\n\r\n", chat_event(piece)), "more than 16777216 bytes"));
  CHECK(has(error("HTTP/1.1 404 No\r\n\r\n", piece), "status 404"));
}

TEST_CASE("a call that is cancelled, before and within an answer, closes its connection") {
  const ScriptedServer server([](ScriptedPeer& peer) {
    const std::string request = peer.read_request();
    if (request.ends_with("[1]")) peer.send(open_response("200 OK", kEvents, chat_event("a")));
    peer.wait_for_close();
  });
  RemotesRig rig(server);
  rig.sink.on_text = [&](uint64_t number) { rig.remotes.cancel(number); };
  rig.start(1, "[1]");
  REQUIRE(rig.run_until([&] { return server.closed() == 1; }));
  rig.start(2, "[2]");
  REQUIRE(rig.run_until([&] { return server.requests().size() == 2; }));
  rig.remotes.cancel(2);
  rig.remotes.cancel(2);
  rig.remotes.cancel(77);
  REQUIRE(rig.run_until([&] { return server.closed() == 2; }));
  CHECK(rig.sink.answers[1].ends + rig.sink.answers[2].ends == 0);
  CHECK(rig.sink.answers[1].text == "a");
}

TEST_CASE("an answer is complete with [DONE], although its response does not end") {
  const ScriptedServer server([](ScriptedPeer& peer) {
    if (peer.read_request().empty()) return;
    peer.send(open_response("200 OK", kEvents, answer_of("x")));
    peer.send(std::string(1000, ':'));
    peer.wait_for_close();
  });
  RemotesRig rig(server);
  CHECK(rig.run(1).error.empty());
  rig.clock.advance_us(3'000'000);
  rig.remotes.tick();
  CHECK(rig.run_until([&] { return server.closed() == 1; }));
  CHECK(rig.sink.answers[1].ends == 1);
}

TEST_CASE("a stalled remote delays no other call") {
  const ScriptedServer stalls([](ScriptedPeer& peer) { peer.wait_for_close(); });
  const ScriptedServer answers([](ScriptedPeer& peer) {
    while (!peer.read_request().empty())
      peer.send(whole_response("200 OK", kEvents, answer_of("y")));
  });
  RemotesRig rig(stalls);
  for (uint64_t number = 1; number <= 20; ++number) rig.start(number);
  REQUIRE(rig.remotes
              .configure({{"code",
                           {.remote = fmt::format("http://127.0.0.1:{}", answers.port()),
                            .model = "far",
                            .when = "absent"}}})
              .ok());
  for (uint64_t number = 100; number < 110; ++number) CHECK(rig.run(number).text == "y");
  CHECK(rig.remotes.has_room());
  for (uint64_t number = 1; number <= 20; ++number) rig.remotes.cancel(number);
}

TEST_CASE("TLS: the certificate must be trusted, valid now, and the host's") {
  const tests::TempDir dir;
  const auto file = [&](const char* name) { return dir.path() / name; };
  tests::write_certificate(file("good.pem"), file("good.key"));
  tests::write_certificate(file("other.pem"), file("other.key"));
  tests::write_certificate(file("expired.pem"), file("expired.key"), -3600, -60);
  const auto ask = [&](const std::string& name, const std::string& host,
                       const std::filesystem::path& trusted) {
    const ScriptedServer server(
        [](ScriptedPeer& peer) {
          if (!peer.read_request().empty()) {
            peer.send(whole_response("200 OK", kEvents, answer_of("t")));
          }
        },
        file((name + ".pem").c_str()), file((name + ".key").c_str()));
    RemotesRig rig(fmt::format("https://{}:{}/v1", host, server.port()), trusted);
    const Received::Answer answer = rig.run(1);
    if (!answer.error.empty()) CHECK(server.requests().empty());
    return answer;
  };
  const Received::Answer good = ask("good", "localhost", file("good.pem"));
  CHECK(good.error.empty());
  CHECK(good.text == "t");
  CHECK(has(ask("good", "localhost", file("other.pem")).error, "certificate"));
  CHECK(has(ask("good", "localhost", {}).error, "certificate"));
  // Where OpenSSL looks for the system's.
  ::setenv("SSL_CERT_FILE", file("good.pem").c_str(), 1);
  CHECK(ask("good", "localhost", {}).text == "t");
  ::unsetenv("SSL_CERT_FILE");
  CHECK(has(ask("good", "127.0.0.1", file("good.pem")).error, "127.0.0.1"));
  CHECK(has(ask("expired", "localhost", file("expired.pem")).error, "expired"));
}

TEST_CASE("a name that takes long to resolve holds up nothing, not even its own end") {
  g_may_fail = false;
  {
    RemotesRig rig("https://slow.example/v1");
    rig.start(1);
    REQUIRE(rig.run_until([] { return g_resolving.load(); }));
    rig.remotes.cancel(1);
    rig.start(2);
    rig.clock.advance_us(5'000'000);
    rig.remotes.tick();
    CHECK(has(rig.sink.answers[2].error, "it has sent nothing for 5000 ms"));
  }
  CHECK(g_resolving);  // all of that while the first still waited
  g_may_fail = true;
  for (int i = 0; i < 6000 && g_resolving; ++i) ::usleep(5'000);
  CHECK_FALSE(g_waited_too_long);
  RemotesRig rig("https://slow.example/v1");
  CHECK(has(rig.run(1).error, "resolve host"));
}

TEST_CASE("plain HTTP where TLS is wanted, and no server at all, are errors") {
  const ScriptedServer server([](ScriptedPeer& peer) {
    if (!peer.read_request().empty()) peer.send(whole_response("200 OK", kEvents, answer_of("t")));
  });
  RemotesRig plain(fmt::format("https://localhost:{}", server.port()));
  // The scripted server reads the hello of TLS as the beginning of a request, and closes.
  plain.start(1);
  plain.run_until([&] { return server.connections() == 1; });
  plain.clock.advance_us(60'000'000);
  plain.remotes.tick();
  CHECK(has(plain.sink.answers[1].error, "remote localhost"));
  RemotesRig none("http://127.0.0.1:1");
  CHECK(has(none.run(1).error, "remote 127.0.0.1:1: "));
  CHECK(none.remotes.find("other") == nullptr);
}

}  // namespace
}  // namespace hearth::broker
