// Requests that a role's remote answers: which of them, when, and what happens when it fails.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>

#include "ipc/wire/codec.h"
#include "ipc/wire/frames.h"
#include "tests/unit/daemon/broker_sim.h"

namespace hearth::broker {
namespace {

/// A remote that answers when the test lets it.
class FakeRemotes final : public Remotes {
 public:
  explicit FakeRemotes(RemoteRule rule) : remote_{"gpu.example.com", "far", rule} {}

  const Remote* find(const std::string& role) const override {
    return role == "code" ? &remote_ : nullptr;
  }
  std::vector<std::string> roles() const override { return {"code"}; }
  bool has_room() const override { return room; }
  void start(uint64_t number, const std::string& role, RemoteRequest request) override {
    CHECK(role == "code");
    CHECK(calls.emplace(number, std::move(request)).second);
    ++started;
  }
  void cancel(uint64_t number) override { cancelled += static_cast<int>(calls.erase(number)); }

  /// The number of the one call that it has.
  uint64_t only() const {
    REQUIRE(calls.size() == 1);
    return calls.begin()->first;
  }
  void done(uint64_t number, RemoteSink& sink) {
    calls.erase(number);
    ipc::Usage usage;
    usage.prompt_tokens = 9;
    usage.output_tokens = 4;
    sink.on_remote_done(number, "far", {"stop"}, usage);
  }
  void fail(uint64_t number, RemoteSink& sink) {
    calls.erase(number);
    sink.on_remote_failed(number, Error::unavailable("remote gpu.example.com: broke"));
  }

  std::map<uint64_t, RemoteRequest> calls;
  int started = 0;
  int cancelled = 0;
  bool room = true;

 private:
  Remote remote_;
};

void send_text(RemoteSink& sink, uint64_t number, const std::string& text) {
  sink.on_remote_text(
      number, "far", {.sample = 0, .payload = ipc::encode_delta_payload(ipc::DeltaHeader{}, text)});
}

Config with_role(const std::string& model) {
  Config config;
  if (!model.empty()) config.roles["code"] = model;
  config.worker.restart_delay_ms = 10;
  return config;
}

struct OverflowRig {
  explicit OverflowRig(RemoteRule rule, const std::string& model = "m",
                       std::map<std::string, ModelTraits> models = {{"m", {}}})
      : remotes(rule), sim(std::move(models), with_role(model)) {
    sim.dispatcher.set_remotes(remotes);
  }
  void ask(const std::string& id, std::optional<bool> remote = true,
           const std::function<void(ipc::GenerateRequest&)>& change = {}) {
    ipc::GenerateRequest request;
    request.model = "code";
    request.prompt = "x";
    request.max_tokens = 5;
    request.seed = 7;
    request.remote = remote;
    if (change) change(request);
    sim.dispatcher.submit(caller, id, request, 100);
  }
  SimAnswer& answer(const std::string& id) { return sim.answer(caller.peer, id); }
  bool ends(const std::string& id) {
    return sim.run_until([&] { return answer(id).ends == 1; });
  }
  ipc::RemoteStats stats() const { return sim.dispatcher.remote_stats().at(0); }
  Dispatcher& sink() { return sim.dispatcher; }

  const Caller caller = BrokerSim::user(1000);
  FakeRemotes remotes;
  BrokerSim sim;
};

/// Whole, of the model here.
bool is_local(const SimAnswer& answer) {
  const auto* done = answer.as<ipc::DoneEvent>();
  return done != nullptr && done->model == "m" && !done->usage.remote && answer.ids.size() == 5;
}

TEST_CASE("absent: the remote answers while the model loads, and this machine once it has") {
  OverflowRig rig({.absent = true});
  rig.ask("a");
  const uint64_t number = rig.remotes.only();
  CHECK(rig.remotes.calls.at(number).body.find(
            R"("model":"far","prompt":"x","max_tokens":5,"seed":7)") != std::string::npos);
  CHECK(rig.stats().requests_live == 1);
  send_text(rig.sink(), number, "Hel");
  send_text(rig.sink(), number, "lo");
  rig.remotes.done(number, rig.sink());
  const SimAnswer& answer = rig.answer("a");
  const auto* done = answer.as<ipc::DoneEvent>();
  REQUIRE(done != nullptr);
  CHECK(done->model == "far");
  CHECK(done->usage.remote == "gpu.example.com");
  CHECK(done->usage.output_tokens == 4);
  CHECK(done->seed == 7);
  const auto* started = std::get_if<ipc::StartedEvent>(&answer.events.at(0));
  REQUIRE(started != nullptr);
  CHECK(started->remote == "gpu.example.com");
  CHECK(rig.stats().requests_done == 1);
  CHECK(rig.stats().output_tokens_total == 4);
  // Meanwhile the model loads, for the next request.
  REQUIRE(rig.sim.run_until(
      [&] { return rig.sim.worker("m") != nullptr && rig.sim.worker("m")->is_ready(); }));
  rig.ask("b");
  REQUIRE(rig.ends("b"));
  CHECK(is_local(rig.answer("b")));
  CHECK(rig.remotes.started == 1);
}

TEST_CASE("a request leaves only if it and its owner let it, and its content can") {
  OverflowRig rig({.absent = true});
  rig.ask("forbids", false);
  rig.ask("default", std::nullopt);
  rig.ask("content", true, [](ipc::GenerateRequest& request) { request.top_k = 5; });
  rig.ask("other", true, [](ipc::GenerateRequest& request) { request.model = "m"; });
  for (const char* id : {"forbids", "default", "content", "other"}) {
    CAPTURE(id);
    REQUIRE(rig.ends(id));
    CHECK(is_local(rig.answer(id)));
  }
  CHECK(rig.remotes.started == 0);
  // The configuration's word for an owner.
  OverflowRig granted({.absent = true});
  granted.sim.dispatcher.owners().configure({{"uid:1000", {.remote = true}}});
  granted.ask("forbids", false);
  granted.ask("default", std::nullopt);
  CHECK(granted.remotes.started == 1);
  OverflowRig denied({.absent = true});
  denied.sim.dispatcher.owners().configure({{"uid:1000", {.remote = false}}});
  denied.ask("asks", true);
  CHECK(denied.remotes.started == 0);
  OverflowRig full({.absent = true});
  full.remotes.room = false;
  full.ask("a");
  CHECK(full.remotes.started == 0);
}

TEST_CASE("a role without a model here: the remote, or an error that names what is missing") {
  OverflowRig rig({.absent = true}, "");
  rig.ask("a");
  send_text(rig.sink(), rig.remotes.only(), "x");
  rig.remotes.done(rig.remotes.only(), rig.sink());
  CHECK(rig.answer("a").as<ipc::DoneEvent>() != nullptr);
  rig.ask("b");
  rig.remotes.fail(rig.remotes.only(), rig.sink());
  REQUIRE(rig.answer("b").error() != nullptr);
  CHECK(rig.answer("b").error()->code == ErrorCode::kUnavailable);
  CHECK(rig.answer("b").error()->message.find("no model code") != std::string::npos);
  CHECK(rig.answer("b").error()->message.find("and before that: remote gpu.example.com: broke") !=
        std::string::npos);
  CHECK(rig.stats().requests_failed == 1);
  const auto refused = [&](const char* id, std::string_view why) {
    REQUIRE(rig.answer(id).error() != nullptr);
    CHECK(rig.answer(id).error()->code == ErrorCode::kNotFound);
    CHECK(rig.answer(id).error()->message.find(why) != std::string::npos);
  };
  rig.ask("c", false);
  refused("c", "the remote of role code may not answer: neither the request");
  rig.ask("d", true, [](ipc::GenerateRequest& request) { request.raw = true; });
  refused("d", "the remote of role code may not answer: raw: has no place in OpenAI's API");
  OverflowRig queue({.queue_ms = 0}, "");
  queue.ask("a");
  CHECK(queue.answer("a").error()->code == ErrorCode::kNotFound);
}

TEST_CASE("queue_ms: a request that waits for longer leaves, in the broker and at its worker") {
  OverflowRig rig({.queue_ms = 300}, "m", {{"m", {.load_steps = 100}}});
  rig.ask("a");
  rig.ask("patient", true, [](ipc::GenerateRequest& request) { request.priority = "batch"; });
  CHECK(rig.remotes.started == 0);
  REQUIRE(rig.sim.run_until([&] { return rig.remotes.started == 1; }, 16));
  CHECK(rig.sim.worker("m")->state() == Worker::State::kStarting);
  CHECK(rig.stats().requests_live == 1);
  rig.remotes.done(rig.remotes.only(), rig.sink());
  REQUIRE(rig.ends("patient"));
  CHECK(is_local(rig.answer("patient")));
  CHECK(rig.remotes.started == 1);
}

TEST_CASE("a request that its worker has queued is recalled, and can come back to it") {
  OverflowRig rig({.queue_ms = 300});
  rig.ask("first", false);
  REQUIRE(rig.ends("first"));  // the model is loaded
  FakeWorker& worker = *rig.sim.worker("m");
  rig.ask("a");
  const uint64_t number = 2;
  const auto queued = [&](int64_t estimate_ms) {
    const std::string json = ipc::encode_event(ipc::QueuedEvent{"slots", 3, estimate_ms});
    ipc::Answer answer;
    answer.json = json;
    rig.sink().on_answer("m", number, answer, 0);
  };
  queued(100);
  rig.sim.dispatcher.tick();
  CHECK(rig.remotes.started == 0);
  queued(5000);
  rig.sim.dispatcher.tick();
  REQUIRE(rig.remotes.started == 1);
  CHECK(worker.num_live() == 1);  // it was asked to, and has not answered yet
  // The remote fails before the worker has given the request back: it is not sent there twice.
  rig.remotes.fail(rig.remotes.only(), rig.sink());
  CHECK(rig.answer("a").ends == 0);
  REQUIRE(rig.ends("a"));
  CHECK(is_local(rig.answer("a")));
  CHECK(rig.stats().requests_returned == 1);
  CHECK(rig.remotes.started == 1);
  CHECK(worker.num_live() == 0);
}

TEST_CASE("a worker that dies with a recalled request does not keep it from coming back") {
  OverflowRig rig({.queue_ms = 300});
  rig.ask("first", false);
  REQUIRE(rig.ends("first"));
  rig.ask("a");
  rig.sim.clock.advance_us(400'000);
  rig.sim.dispatcher.tick();
  REQUIRE(rig.remotes.started == 1);
  rig.sim.worker("m")->die();
  rig.sim.step();
  rig.remotes.fail(rig.remotes.only(), rig.sink());
  REQUIRE(rig.ends("a"));
  CHECK(is_local(rig.answer("a")));
}

TEST_CASE("a remote that fails amid its answer is an error, and the request is not repeated") {
  OverflowRig rig({.absent = true});
  rig.ask("a");
  send_text(rig.sink(), rig.remotes.only(), "Hel");
  rig.remotes.fail(rig.remotes.only(), rig.sink());
  REQUIRE(rig.answer("a").error() != nullptr);
  CHECK(rig.answer("a").error()->message == "remote gpu.example.com: broke");
  CHECK(rig.stats().requests_failed == 1);
  CHECK(rig.remotes.started == 1);
}

TEST_CASE("a model that cannot be loaded leaves its requests to the remote") {
  OverflowRig rig({.absent = true}, "m",
                  {{"m", {.fails = Error::corrupt("blk.0: no such tensor", "model")}}});
  rig.remotes.room = false;  // so that the first waits here
  rig.ask("a");
  rig.remotes.room = true;
  REQUIRE(rig.sim.run_until([&] { return rig.remotes.started == 1; }));
  rig.remotes.fail(rig.remotes.only(), rig.sink());
  REQUIRE(rig.ends("a"));
  CHECK(rig.answer("a").error()->code == ErrorCode::kCorrupt);
  CHECK(rig.answer("a").error()->message.find("before that: remote") != std::string::npos);
}

TEST_CASE("cancelled, deadline, client gone, daemon stopping: the remote's connection is closed") {
  OverflowRig rig({.absent = true});
  rig.ask("cancelled");
  rig.sim.cancel(rig.caller, "cancelled");
  REQUIRE(rig.answer("cancelled").as<ipc::DoneEvent>() != nullptr);
  CHECK(rig.answer("cancelled").as<ipc::DoneEvent>()->finish_reasons.at(0) == "cancelled");
  CHECK(rig.answer("cancelled").as<ipc::DoneEvent>()->usage.remote == "gpu.example.com");
  CHECK(rig.remotes.cancelled == 1);

  OverflowRig late({.absent = true});
  late.ask("late", true, [](ipc::GenerateRequest& request) { request.deadline_ms = 100; });
  send_text(late.sink(), late.remotes.only(), "a");
  late.sim.clock.advance_us(100'000);
  late.sim.dispatcher.tick();
  REQUIRE(late.answer("late").as<ipc::DoneEvent>() != nullptr);
  CHECK(late.answer("late").as<ipc::DoneEvent>()->finish_reasons.at(0) == "deadline");
  CHECK(late.remotes.cancelled == 1);

  OverflowRig gone({.absent = true});
  gone.ask("a");
  gone.ask("b");
  const uint64_t number = gone.remotes.calls.begin()->first;
  gone.sim.gone.insert(gone.caller.peer);
  send_text(gone.sink(), number, "a");  // finds the connection closed
  gone.sim.dispatcher.tick();
  CHECK(gone.remotes.cancelled == 2);
  CHECK(gone.sim.dispatcher.requests().size() == 0);
  CHECK(gone.stats().requests_cancelled == 2);

  OverflowRig stops({.absent = true});
  stops.ask("a");
  stops.sim.dispatcher.fail_all(Error::unavailable("the daemon is stopping"));
  CHECK(stops.remotes.calls.empty());
  CHECK(stops.answer("a").error() != nullptr);
}

TEST_CASE("attach replays a remote's text; a fork of it is refused") {
  OverflowRig rig({.absent = true});
  rig.ask("a", true, [](ipc::GenerateRequest& request) { request.detach = true; });
  const uint64_t number = rig.remotes.only();
  send_text(rig.sink(), number, "Hel");
  send_text(rig.sink(), number, "lo");
  rig.sim.dispatcher.attach(rig.caller, "again", {.id = "a"});
  send_text(rig.sink(), number, "!");
  ipc::ForkRequest fork;
  fork.id = "a";
  rig.sim.dispatcher.fork(rig.caller, "fork", fork);
  REQUIRE(rig.answer("fork").error() != nullptr);
  CHECK(rig.answer("fork").error()->code == ErrorCode::kUnsupported);
  rig.remotes.done(number, rig.sink());
  CHECK(rig.answer("again").as<ipc::DoneEvent>() != nullptr);
  CHECK(rig.answer("again").text == "Hello!");
  CHECK(rig.answer("a").text == "Hello!");
}

TEST_CASE("a long request is written for the remote on the side thread") {
  OverflowRig rig({.absent = true});
  boost::asio::io_context io;
  SideThread side(io);
  rig.sim.dispatcher.set_side_thread(side);
  ipc::GenerateRequest request;
  request.model = "code";
  request.prompt = std::string(1 << 20, 'x');
  request.remote = true;
  rig.sim.dispatcher.submit(rig.caller, "a", request, request.prompt.size());
  rig.sim.dispatcher.submit(rig.caller, "b", request, request.prompt.size());
  rig.sim.cancel(rig.caller, "b");                     // before it was written
  const auto work = boost::asio::make_work_guard(io);  // otherwise it ends before the thread posts
  while (rig.remotes.started == 0) REQUIRE(io.run_one_for(std::chrono::seconds(60)) == 1);
  REQUIRE(io.run_one_for(std::chrono::seconds(60)) == 1);
  CHECK(rig.remotes.started == 1);
  CHECK(rig.remotes.calls.begin()->second.body.size() > (1 << 20));
  rig.remotes.done(rig.remotes.only(), rig.sink());
  CHECK(rig.answer("a").as<ipc::DoneEvent>() != nullptr);
}

}  // namespace
}  // namespace hearth::broker
