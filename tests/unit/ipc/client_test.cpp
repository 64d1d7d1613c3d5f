#include "ipc/client/client.h"

#include <doctest/doctest.h>
#include <grp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "ipc/wire/probe.h"
#include "tests/skip.h"
#include "tests/temp_dir.h"
#include "tests/unit/ipc/fake_daemon.h"

namespace hearth::ipc {
namespace {

using tests::FakeDaemon;
using tests::TempDir;
using Reply = FakeDaemon::Reply;

/// Only a failure waits this long.
constexpr int kPatienceMs = 20'000;

ClientOptions at(const TempDir& temp) {
  ClientOptions options;
  options.runtime_dir = temp.path();
  return options;
}
Client connect(const TempDir& temp) {
  Result<Client> client = Client::connect(at(temp));
  REQUIRE_MESSAGE(client.ok(), (client.ok() ? "" : client.error().message));
  return std::move(client).value();
}

GenerateRequest prompt(std::string text) {
  GenerateRequest request;
  request.prompt = std::move(text);
  return request;
}

DoneEvent done_after(int32_t tokens) {
  DoneEvent done;
  done.finish_reasons = {"stop"};
  done.model = "stories";
  done.seed = 7;
  done.usage = {3, 0, tokens};
  return done;
}

/// Streams the prompt's characters, one token each.
void echo(const ClientRequest& request, Reply reply) {
  const auto* generate = std::get_if<GenerateRequest>(&request);
  if (generate == nullptr) return;
  reply.event(QueuedEvent{"loading", 0, 10});
  reply.event(StartedEvent{"stories", 3, 0, 0.5});
  uint32_t index = 0;
  for (const char c : generate->prompt) {
    reply.delta(0, index++, std::string(1, c), {static_cast<int32_t>(c)});
  }
  reply.event(SampleDoneEvent{0, "stop", static_cast<int32_t>(index)});
  reply.event(done_after(static_cast<int32_t>(index)));
}

TEST_CASE("a missing daemon is reported: no socket, a stale one, no directory") {
  TempDir temp;
  CHECK(Client::connect(at(temp)).error().code == ErrorCode::kUnavailable);

  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, api_socket(temp.path()).c_str(), sizeof address.sun_path - 1);
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  ::close(fd);  // bound and never listening: left over from a killed daemon
  const auto left_over = Client::connect(at(temp));
  CHECK(left_over.error().code == ErrorCode::kUnavailable);
  CHECK(left_over.error().message.find("refused") != std::string::npos);

  ClientOptions nowhere;
  nowhere.runtime_dir = temp.path() / "absent";
  CHECK(Client::connect(nowhere).error().code == ErrorCode::kUnavailable);

  nowhere.runtime_dir = "/" + std::string(200, 'x');
  CHECK(Client::connect(nowhere).error().code == ErrorCode::kInvalidArgument);
}

TEST_CASE("the error for a daemon of another group names that group") {
  if (::geteuid() != 0) HEARTH_SKIP("needs root, to become another user");
  TempDir temp;
  FakeDaemon daemon(temp.path(), echo);
  REQUIRE(::chmod(temp.path().c_str(), 0750) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
    const auto listener = probe_listener(api_socket(temp.path()));
    const bool forbidden =
        listener.error().code == ErrorCode::kForbidden &&
        listener.error().message.find("members of group root") != std::string::npos;
    ::_exit(forbidden ? 0 : 1);
  }
  int how = 0;
  REQUIRE(::waitpid(child, &how, 0) == child);
  CHECK(WIFEXITED(how));
  CHECK(WEXITSTATUS(how) == 0);
}

TEST_CASE("the kernel names the listening process") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), echo);
  const auto listener = probe_listener(api_socket(temp.path()));
  REQUIRE(listener.ok());
  CHECK(listener->uid == ::geteuid());
  CHECK(listener->pid == ::getpid());
}

TEST_CASE("a socket that is open but does not answer is reported") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), echo);
  daemon.silent = true;
  ClientOptions options = at(temp);
  options.answer_ms = 100;
  const auto client = Client::connect(options);
  REQUIRE_FALSE(client.ok());
  CHECK(client.error().code == ErrorCode::kUnavailable);
  CHECK(client.error().message.find("does not answer") != std::string::npos);
}

TEST_CASE("generate streams text, events and the end in order") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), echo);
  Client client = connect(temp);
  CHECK(client.daemon().instance == "first");
  std::string text;
  std::vector<size_t> events;
  GenerateCallbacks callbacks;
  callbacks.on_delta = [&](const Delta& delta) { text += delta.text; };
  callbacks.on_event = [&](const Event& event) { events.push_back(event.index()); };
  const auto done = client.generate(prompt("a story"), callbacks);
  REQUIRE(done.ok());
  CHECK(text == "a story");
  CHECK(events == std::vector<size_t>{Event(QueuedEvent{}).index(), Event(StartedEvent{}).index(),
                                      Event(SampleDoneEvent{}).index()});
  CHECK(done->seed == 7);
  CHECK(done->usage.output_tokens == 7);
  CHECK(client.num_live() == 0);
}

TEST_CASE("several pulled requests at once, each with its own text") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), echo);
  Client client = connect(temp);
  std::map<std::string, std::string> want, got;
  for (int i = 0; i < 20; ++i) {
    const std::string text = "text of request " + std::to_string(i);
    const auto id = client.start(prompt(text));
    REQUIRE(id.ok());
    want[*id] = text;
  }
  CHECK(client.num_live() == 20);
  // A call and a whole generate in between lose no messages of the others.
  CHECK(client.ping().ok());
  CHECK(client.generate(prompt("inner"), {}).ok());
  while (client.num_live() > 0 || got != want) {
    const auto next = client.next(kPatienceMs);
    REQUIRE(next.ok());
    REQUIRE(next->has_value());
    if (const auto* delta = std::get_if<Delta>(&(*next)->what))
      got[(*next)->request_id] += delta->text;
  }
  CHECK(got == want);
  CHECK(client.start(prompt("x"), "my-id").ok());
  CHECK_FALSE(client.start(prompt("x"), "my-id").ok());
  CHECK_FALSE(client.start(prompt("x"), "not an id").ok());
}

TEST_CASE("replies of every verb, and errors of the daemon") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), [](const ClientRequest& request, Reply reply) {
    switch (verb_of(request)) {
      case Verb::kModels: return reply.event(ModelsReply{{}, {"/models"}});
      case Verb::kPs:
        return reply.event(PsReply{{{"r", "uid:1", "m", "decode", "normal", 0, 0, 0}}, {}});
      case Verb::kStats: return reply.event(StatsReply{"first", "0.1.0", 5, 0, 0, 0, 0, 0, 0, {}});
      case Verb::kHealth: return reply.event(HealthReply{"ok", {}});
      case Verb::kCache: return reply.event(CacheReply{true, "nothing\n"});
      case Verb::kTokenize:
        reply.event(QueuedEvent{"loading", 0, 0});  // not the answer yet
        return reply.event(TokenizeReply{"m", {1, 2}, {"a", "b"}});
      case Verb::kCancel:
        return reply.event(ErrorEvent{{ErrorCode::kNotFound, "no live request r9", "id"}, 0});
      default: return reply.event(ErrorEvent{{ErrorCode::kContextOverflow, "9 + 9 > 16", ""}, 0});
    }
  });
  Client client = connect(temp);
  CHECK(client.models()->folders[0] == "/models");
  CHECK(client.cache({})->text == "nothing\n");
  CHECK(client.ps()->requests[0].id == "r");
  CHECK(client.stats()->uptime_ms == 5);
  CHECK(client.health()->status == "ok");
  CHECK(client.tokenize({"m", "ab", false, false})->ids == std::vector<int32_t>{1, 2});
  CHECK(client.cancel("r9").error().code == ErrorCode::kNotFound);
  CHECK(client.generate(prompt("x"), {}).error().message == "9 + 9 > 16");
  CHECK(client.num_live() == 0);
}

TEST_CASE("a daemon that stops answering in mid-stream is lost after a few unanswered pings") {
  TempDir temp;
  std::atomic<FakeDaemon*> running{nullptr};
  FakeDaemon daemon(temp.path(), [&running](const ClientRequest&, Reply reply) {
    reply.delta(0, 0, "Once", {1});
    running.load()->silent = true;
  });
  running = &daemon;
  Client client = connect(temp);
  std::string text;
  GenerateCallbacks callbacks;
  callbacks.on_delta = [&](const Delta& delta) { text += delta.text; };
  const auto done = client.generate(prompt("x"), callbacks);
  REQUIRE_FALSE(done.ok());
  CHECK(done.error().code == ErrorCode::kLost);
  CHECK(text == "Once");
  CHECK(daemon.num_unanswered <= tests::pings_until_lost({}));
  CHECK(client.ping().error().code == ErrorCode::kLost);
  CHECK(client.start(prompt("x")).error().code == ErrorCode::kLost);
  CHECK(client.next(1000).error().code == ErrorCode::kLost);
}

TEST_CASE(
    "a daemon that ends in mid-stream is lost without waiting for its silence, and its text is "
    "delivered first") {
  TempDir temp;
  auto daemon = std::make_unique<FakeDaemon>(
      temp.path(), [](const ClientRequest&, Reply reply) { reply.delta(0, 0, "Once", {1}); });
  ClientOptions options = at(temp);
  options.lost_after_ms = 1'000'000'000;  // by its silence alone it is never lost
  Client client = Client::connect(options).value();
  const auto id = client.start(prompt("x"));
  REQUIRE(id.ok());
  const auto first = client.next(kPatienceMs);
  REQUIRE((first.ok() && first->has_value()));
  daemon.reset();
  const auto next = client.next(kPatienceMs);
  REQUIRE_FALSE(next.ok());
  CHECK(next.error().code == ErrorCode::kLost);
}

TEST_CASE("another daemon at the same socket is not mistaken for the first") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), [](const ClientRequest&, Reply) {});
  Client client = connect(temp);
  REQUIRE(client.start(prompt("x")).ok());
  daemon.new_instance = true;
  const auto next = client.next(kPatienceMs);
  REQUIRE_FALSE(next.ok());
  CHECK(next.error().code == ErrorCode::kLost);
  CHECK(next.error().message.find("instance") != std::string::npos);
}

TEST_CASE("a slow stream is alive as long as pings are answered") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), [](const ClientRequest&, Reply) {});
  ClientOptions options = at(temp);
  options.ping_interval_ms = 20;
  options.lost_after_ms = 2000;
  Result<Client> client = Client::connect(options);
  REQUIRE(client.ok());
  REQUIRE(client->start(prompt("x")).ok());
  for (int i = 0; i < 1000 && daemon.num_pings < 5; ++i) {
    const auto next = client->next(20);
    REQUIRE(next.ok());
    CHECK_FALSE(next->has_value());
  }
  CHECK(daemon.num_pings >= 5);
  CHECK(client->num_live() == 1);
}

TEST_CASE("a lost delta ends its request with an error and a cancel, others continue") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), [](const ClientRequest& request, Reply reply) {
    const auto* generate = std::get_if<GenerateRequest>(&request);
    if (generate == nullptr) return;
    if (generate->prompt == "whole") return echo(request, reply);
    reply.delta(0, 0, "ab", {1, 2});
    reply.delta(1, 0, "x", {1});
    if (generate->prompt == "gap") {
      reply.delta(0, 3, "d", {4});
    } else if (generate->prompt == "again") {
      reply.delta(0, 1, "b", {2});
    } else if (generate->prompt == "count") {
      reply.send(
          {kDeltaFrame, encode_delta_payload({0, 2, 2, 0}, "c"), encode_ids(std::vector{3})});
    } else if (generate->prompt == "text") {
      reply.send(
          {kDeltaFrame, encode_delta_payload({0, 2, 1, 0}, "\xFF"), encode_ids(std::vector{3})});
    } else if (generate->prompt == "json") {
      reply.send({kEventFrame, "{"});
    }
    reply.delta(0, 4, "late", {5});
    reply.event(done_after(5));
  });
  Client client = connect(temp);
  for (const auto& [kind, code] :
       std::map<std::string, ErrorCode>{{"gap", ErrorCode::kLost},
                                        {"again", ErrorCode::kLost},
                                        {"count", ErrorCode::kProtocol},
                                        {"text", ErrorCode::kProtocol},
                                        {"json", ErrorCode::kProtocol}}) {
    std::string text;
    GenerateCallbacks callbacks;
    callbacks.on_delta = [&](const Delta& delta) { text += delta.text; };
    const auto done = client.generate(prompt(kind), callbacks);
    REQUIRE_MESSAGE(!done.ok(), kind);
    CHECK_MESSAGE(done.error().code == code, kind << ": " << done.error().message);
    CHECK(text == "abx");
    CHECK(client.generate(prompt("whole"), {}).ok());  // the client itself is well
  }
  CHECK(client.ping().ok());
  CHECK(daemon.num_cancels == 5);
}

TEST_CASE("text without tokens is not a gap: the detokenizer's last bytes") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), [](const ClientRequest&, Reply reply) {
    reply.delta(0, 0, "a", {1});
    reply.delta(0, 1, "", {2, 3});
    reply.delta(0, 3, "\xC3\xA9", {});
    reply.event(done_after(3));
  });
  Client client = connect(temp);
  CHECK(client.generate(prompt("x"), {}).ok());
}

TEST_CASE("unknown events and broken frames of a newer daemon are skipped") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), [](const ClientRequest& request, Reply reply) {
    reply.send({kEventFrame, R"({"event":"mood","value":"good"})"});
    reply.send({"picture", "x"});
    reply.send({kEventFrame});
    echo(request, reply);
  });
  Client client = connect(temp);
  CHECK(client.generate(prompt("abc"), {}).ok());
}

TEST_CASE("a cancel reaches the daemon once, and the end reports it") {
  TempDir temp;
  std::optional<Reply> stream;
  FakeDaemon daemon(temp.path(), [&stream](const ClientRequest& request, Reply reply) {
    if (std::holds_alternative<GenerateRequest>(request)) {
      stream = reply;
      return reply.delta(0, 0, "Once", {1});
    }
    DoneEvent done = done_after(1);
    done.finish_reasons = {"cancelled"};
    stream->event(done);
    reply.event(CancelReply{stream->id()});
  });
  Client client = connect(temp);
  bool seen = false;
  GenerateCallbacks callbacks;
  callbacks.on_delta = [&](const Delta&) { seen = true; };
  callbacks.cancelled = [&] { return seen; };
  const auto done = client.generate(prompt("x"), callbacks);
  REQUIRE(done.ok());
  CHECK(done->finish_reasons[0] == "cancelled");
  CHECK(daemon.num_cancels == 1);
}

TEST_CASE("the descriptor wakes a program's own poll") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), echo);
  Client client = connect(temp);
  REQUIRE(client.start(prompt("abc")).ok());
  std::string text;
  while (client.num_live() > 0) {
    pollfd waiting{client.fd(), POLLIN, 0};
    ::poll(&waiting, 1, 100);
    while (true) {
      const auto next = client.next(0);
      REQUIRE(next.ok());
      if (!next->has_value()) break;
      if (const auto* delta = std::get_if<Delta>(&(*next)->what)) text += delta->text;
    }
  }
  CHECK(text == "abc");
}

}  // namespace
}  // namespace hearth::ipc
