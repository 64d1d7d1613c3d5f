#include "daemon/broker/requests/token_log.h"

#include <doctest/doctest.h>

#include <memory>
#include <utility>

#include "ipc/wire/codec.h"
#include "ipc/wire/frames.h"
#include "tests/unit/daemon/broker_sim.h"

namespace hearth::broker {
namespace {

PeerId c(uint64_t number) { return {.door = Door::kIpc, .uid = 5, .number = number}; }

Outgoing delta(uint32_t sample, uint32_t first, const std::string& text,
               const std::vector<int32_t>& ids, const std::string& logprobs = "") {
  Outgoing out;
  out.is_delta = true;
  out.sample = sample;
  out.payload = ipc::encode_delta_payload(
      {.sample = sample, .first_index = first, .num_tokens = static_cast<uint32_t>(ids.size())},
      std::string_view(text));
  out.ids = ipc::encode_ids(ids);
  out.logprobs = logprobs;
  return out;
}

std::shared_ptr<const ipc::ComputeRequest> asked(int32_t samples) {
  ipc::GenerateRequest request;
  request.n = samples;
  return std::make_shared<const ipc::ComputeRequest>(std::move(request));
}

Result<bool> try_add(TokenLogs& logs, TokenLog& log, const Outgoing& delta) {
  return logs.add(log, ipc::decode_delta_payload(delta.payload).value().header,
                  {.is_delta = true,
                   .json = {},
                   .payload = delta.payload,
                   .ids = delta.ids,
                   .logprobs = delta.logprobs});
}
void add(TokenLogs& logs, TokenLog& log, const Outgoing& delta) {
  CHECK(try_add(logs, log, delta).value());
}

struct Read {
  uint32_t first = 0, count = 0;
  std::string text;
  std::vector<int32_t> ids;
  std::string logprobs;
};
Read read(const TokenLog::Sample& sample, uint32_t from) {
  const Outgoing out = replay_delta(sample, 0, from);
  if (!out.is_delta) return {static_cast<uint32_t>(sample.ids.size()), 0, "", {}, ""};
  const ipc::DeltaPayload payload = ipc::decode_delta_payload(out.payload).value();
  CHECK(payload.header.first_index == replay_from(sample, from));
  return {payload.header.first_index, payload.header.num_tokens, std::string(payload.text),
          ipc::decode_ids(out.ids).value(), out.logprobs};
}

TEST_CASE("sent deltas are replayed from the delta that holds the token") {
  TokenLogs logs{LimitsConfig{}};
  TokenLog& log = logs.begin(1, 1000, "r", "m", asked(1));
  const std::vector<int32_t> ids = {10, 11, 12, 13, 14};
  add(logs, log, delta(0, 0, "ab", {10, 11}, "[1,2]"));
  add(logs, log, delta(0, 2, "", {12}, "[3]"));
  add(logs, log, delta(0, 3, "cd", {13, 14}, "[4,5]"));
  add(logs, log, delta(0, 5, "!", {}, "[]"));
  const TokenLog::Sample& sample = log.samples[0];
  for (const uint32_t from : {0u, 1u}) {
    const Read all = read(sample, from);
    CHECK(all.first == 0);
    CHECK(all.count == 5);
    CHECK(all.text == "abcd!");
    CHECK(all.ids == ids);
    CHECK(all.logprobs == "[1,2,3,4,5]");
  }
  CHECK(read(sample, 2).text == "cd!");
  CHECK(read(sample, 2).first == 2);
  CHECK(read(sample, 2).logprobs == "[3,4,5]");
  CHECK(read(sample, 4).first == 3);
  CHECK(read(sample, 4).text == "cd!");
  CHECK(read(sample, 5).text == "!");
  CHECK(read(sample, 5).count == 0);
  CHECK(replay_from(sample, 6) == 5);
  CHECK_FALSE(replay_delta(sample, 0, 6).is_delta);
}

TEST_CASE("parts of a delta are replayed as parts, with plain text between") {
  TokenLogs logs{LimitsConfig{}};
  TokenLog& log = logs.begin(1, 1000, "r", "m", asked(1));
  add(logs, log, delta(0, 0, "a", {10}));
  Outgoing parts = delta(0, 1, "", {11});
  const std::vector<ipc::DeltaPart> pieces = {{ipc::DeltaChannel::kReasoning, "b"},
                                              {ipc::DeltaChannel::kText, "c"}};
  parts.payload =
      ipc::encode_delta_payload({.sample = 0, .first_index = 1, .num_tokens = 1}, pieces);
  add(logs, log, parts);
  add(logs, log, delta(0, 2, "d", {12}));
  const Outgoing out = replay_delta(log.samples[0], 0, 0);
  const ipc::DeltaPayload payload = ipc::decode_delta_payload(out.payload).value();
  CHECK(payload.header.num_tokens == 3);
  std::string text;
  const auto decoded = ipc::decode_parts(payload);
  REQUIRE(decoded.ok());
  for (const ipc::DeltaPart& part : *decoded) {
    text += std::string(name(part.channel)) + ":" + part.text + " ";
  }
  CHECK(text == "text:a reasoning:b text:c text:d ");
  CHECK(read(log.samples[0], 2).text == "d");
}

TEST_CASE("other owners do not find a log, and a reused id belongs to the new request") {
  TokenLogs logs{LimitsConfig{}};
  TokenLog& log = logs.begin(1, 1000, "r", "m", asked(1));
  CHECK(logs.find(1000, "r") == &log);
  CHECK(logs.find(1001, "r") == nullptr);
  CHECK(logs.find(1000, "q") == nullptr);
  logs.end(log, "{}", 5);
  CHECK(logs.find(1000, "r") == &log);
  TokenLog& next = logs.begin(2, 1000, "r", "m", asked(2));
  CHECK(logs.find(1000, "r") == &next);
  CHECK(next.live());
}

TEST_CASE("a log is kept for a while after the end, and then freed entirely") {
  LimitsConfig limits;
  limits.attach_keep_ms = 100;
  TokenLogs logs{limits};
  TokenLog& log = logs.begin(1, 1000, "r", "m", asked(1));
  add(logs, log, delta(0, 0, "text", {1}));
  logs.tick(1'000'000);
  REQUIRE(logs.find(1000, "r") != nullptr);  // it runs
  logs.end(log, "{}", 1'000'000);
  logs.tick(1'099'000);
  CHECK(logs.find(1000, "r") != nullptr);
  logs.tick(1'100'000);
  CHECK(logs.find(1000, "r") == nullptr);
  CHECK(logs.bytes() == 0);
  CHECK(logs.owner_bytes(1000) == 0);
}

TEST_CASE("bounds: ended logs go first, then beginnings, never another owner's live ones") {
  LimitsConfig limits;
  limits.attach_bytes_per_owner = 20'000;
  limits.attach_bytes = 30'000;
  TokenLogs logs{limits};
  std::vector<int32_t> ids;
  TokenLog& other = logs.begin(1, 7, "other", "m", asked(1));
  for (uint32_t i = 0; i < 100; ++i) {
    ids.push_back(static_cast<int32_t>(i));
    add(logs, other, delta(0, i, "0123456789", {ids.back()}));
  }
  const size_t others_bytes = logs.owner_bytes(7);
  TokenLog& ended = logs.begin(2, 8, "ended", "m", asked(1));
  add(logs, ended, delta(0, 0, std::string(1000, 'x'), {1}));
  logs.end(ended, "{}", 1);
  TokenLog& live = logs.begin(3, 8, "live", "m", asked(1));
  ids.clear();
  std::string sent;
  for (uint32_t i = 0; i < 3000; ++i) {
    ids.push_back(static_cast<int32_t>(i));
    const std::string text = std::to_string(i) + " ";
    sent += text;
    add(logs, live, delta(0, i, text, {ids.back()}, "[" + text + "]"));
    CHECK(logs.owner_bytes(8) <= 20'000);
    CHECK(logs.bytes() <= 30'000);
  }
  CHECK(logs.find(8, "ended") == nullptr);
  CHECK(logs.owner_bytes(7) == others_bytes);
  const Read rest = read(live.samples[0], 0);
  CHECK(live.resume() == std::vector<std::vector<int32_t>>{ids});  // the next worker needs them all
  CHECK(rest.first > 0);
  CHECK(rest.first + rest.count == 3000);
  CHECK(rest.text.size() > 1000);
  CHECK(sent.ends_with(rest.text));
  CHECK(rest.text.starts_with(std::to_string(rest.first) + " "));
  CHECK(rest.logprobs.starts_with("[" + std::to_string(rest.first) + " ,"));
  // No room at all: nothing is stored, and nothing breaks.
  limits.attach_bytes_per_owner = 0;
  logs.set_limits(limits);
  add(logs, live, delta(0, 3000, "x", {3000}));
  CHECK(live.samples[0].deltas.empty());
}

TEST_CASE("deltas extend the log of their sample, from which a request is resumed") {
  TokenLogs logs{LimitsConfig{}};
  TokenLog& log = logs.begin(1, 1000, "r", "m", asked(2));
  CHECK(log.resume().empty());
  add(logs, log, delta(0, 0, "ab", {5, 6}));
  add(logs, log, delta(1, 0, "c", {7}));
  add(logs, log, delta(0, 2, "d", {8}));
  CHECK(log.resume() == std::vector<std::vector<int32_t>>{{5, 6, 8}, {7}});
  CHECK(log.num_tokens() == 4);
}

TEST_CASE("a gap, an overlap, or a wrong count or sample is an error and changes nothing") {
  TokenLogs logs{LimitsConfig{}};
  TokenLog& log = logs.begin(1, 1000, "r", "m", asked(1));
  const size_t bytes = logs.bytes();
  CHECK_FALSE(try_add(logs, log, delta(1, 0, "a", {5})).ok());
  CHECK_FALSE(try_add(logs, log, delta(0, 1, "a", {5})).ok());
  for (const uint32_t count : {2u, 0u, 0xFFFFFFFFu}) {
    Outgoing wrong = delta(0, 0, "a", {5});
    wrong.payload = ipc::encode_delta_payload({.sample = 0, .first_index = 0, .num_tokens = count},
                                              std::string_view("a"));
    CHECK_FALSE(try_add(logs, log, wrong).ok());
  }
  CHECK(log.num_tokens() == 0);
  CHECK(log.samples[0].deltas.empty());
  CHECK(logs.bytes() == bytes);
  add(logs, log, delta(0, 0, "a", {5}));
  CHECK_FALSE(try_add(logs, log, delta(0, 0, "a", {5})).ok());
  CHECK(log.num_tokens() == 1);
  CHECK(read(log.samples[0], 0).text == "a");
}

TEST_CASE("the end of a text is sent once; a resumed worker's second one is dropped") {
  TokenLogs logs{LimitsConfig{}};
  TokenLog& log = logs.begin(1, 1000, "r", "m", asked(1));
  add(logs, log, delta(0, 0, "a", {5}));
  add(logs, log, delta(0, 1, "!", {}));
  CHECK_FALSE(try_add(logs, log, delta(0, 1, "!", {})).value());
  CHECK(read(log.samples[0], 0).text == "a!");
}

// ---- With the dispatcher -----------------------------------------------------------------------

BrokerSim make_sim() {
  Config config;
  config.roles = {{"default", "a"}};
  return BrokerSim({{"a", {}}}, config);
}

ipc::ForkRequest fork_of(const std::string& id, int32_t sample = 0, int32_t from = -1,
                         std::optional<uint64_t> seed = {}) {
  ipc::ForkRequest request;
  request.id = id;
  request.sample = sample;
  request.from = from;
  request.seed = seed;
  return request;
}

ipc::GenerateRequest long_one(bool detach) {
  ipc::GenerateRequest request;
  request.prompt = "x";
  request.max_tokens = 400;
  request.seed = 7;
  request.detach = detach;
  return request;
}

/// User 5 submits a detached request "r" and disconnects after more than 20 tokens.
void submit_and_leave(BrokerSim& sim) {
  const Caller asks{.peer = c(1), .uid = 5, .is_admin = false};
  sim.dispatcher.submit(asks, "r", long_one(true), 100);
  REQUIRE(sim.run_until([&] { return sim.answer(c(1), "r").ids.size() > 20; }));
  sim.gone.insert(c(1));
  sim.dispatcher.connection_gone(c(1));
}

TEST_CASE("after a disconnect with detach a client gets everything, from any token") {
  BrokerSim sim = make_sim();
  submit_and_leave(sim);
  for (int i = 0; i < 5; ++i) sim.step();
  CHECK(sim.dispatcher.requests().size() == 1);

  // Another user gets the error for an unknown id; so does an administrator.
  for (const Caller& other : {Caller{c(2), 6, false}, Caller{c(3), 0, true}}) {
    sim.dispatcher.attach(other, "a", {.id = "r"});
    sim.dispatcher.attach(other, "b", {.id = "nonesuch"});
    sim.dispatcher.fork(other, "f", fork_of("r"));
    const Error* met = sim.answer(other.peer, "a").error();
    const Error* none = sim.answer(other.peer, "b").error();
    const Error* fork = sim.answer(other.peer, "f").error();
    REQUIRE(met);
    REQUIRE(none);
    REQUIRE(fork);
    CHECK(met->code == ErrorCode::kNotFound);
    CHECK(met->message == none->message);
    CHECK(fork->message == none->message);
  }

  const Caller back{.peer = c(4), .uid = 5, .is_admin = false};
  sim.dispatcher.attach(back, "a", {.id = "r"});
  REQUIRE(sim.run_until([&] { return sim.answer(c(4), "a").ends == 1; }));
  const SimAnswer& answer = sim.answer(c(4), "a");
  REQUIRE(answer.as<ipc::DoneEvent>());
  CHECK(answer.as<ipc::DoneEvent>()->finish_reasons == std::vector<std::string>{"length"});
  REQUIRE(answer.ids.size() == 400);
  for (uint32_t i = 0; i < 400; ++i) CHECK(answer.ids[i] == BrokerSim::token("a", 7, i));
  const auto* attached = std::get_if<ipc::AttachedEvent>(&answer.events.front());
  REQUIRE(attached);
  CHECK(attached->live);
  CHECK(attached->from == std::vector<int32_t>{0});

  // It has ended, and is replayed once more.
  sim.dispatcher.attach(back, "again", {.id = "r"});
  const SimAnswer& again = sim.answer(c(4), "again");
  CHECK(again.ids == answer.ids);
  REQUIRE(again.as<ipc::DoneEvent>());
  CHECK_FALSE(std::get<ipc::AttachedEvent>(again.events.front()).live);
  sim.step(sim.config.limits.attach_keep_ms + 200);
  sim.dispatcher.attach(back, "late", {.id = "r"});
  REQUIRE(sim.answer(c(4), "late").error());
  CHECK(sim.dispatcher.logs().bytes() == 0);
}

TEST_CASE("without detach a request ends with its client; a departing reader ends nothing") {
  BrokerSim sim = make_sim();
  const Caller asks{.peer = c(1), .uid = 5, .is_admin = false};
  sim.dispatcher.submit(asks, "r", long_one(false), 100);
  REQUIRE(sim.run_until([&] { return sim.answer(c(1), "r").ids.size() > 4; }));
  const Caller reads{.peer = c(2), .uid = 5, .is_admin = false};
  sim.dispatcher.attach(reads, "a", {.id = "r"});
  sim.dispatcher.connection_gone(c(2));
  sim.gone.insert(c(2));
  const size_t had = sim.answer(c(1), "r").ids.size();
  REQUIRE(sim.run_until([&] { return sim.answer(c(1), "r").ids.size() > had + 4; }));
  const Caller stays{.peer = c(3), .uid = 5, .is_admin = false};
  sim.dispatcher.attach(stays, "a", {.id = "r", .from = 0});
  sim.gone.insert(c(1));
  sim.dispatcher.connection_gone(c(1));
  REQUIRE(sim.run_until([&] { return sim.answer(c(3), "a").ends == 1; }));
  REQUIRE(sim.answer(c(3), "a").as<ipc::DoneEvent>());
  CHECK(sim.answer(c(3), "a").as<ipc::DoneEvent>()->finish_reasons ==
        std::vector<std::string>{"cancelled"});
}

TEST_CASE("a worker's death does not end a detached request") {
  BrokerSim sim = make_sim();
  submit_and_leave(sim);
  sim.worker("a")->die();
  sim.step();
  const Caller back{.peer = c(2), .uid = 5, .is_admin = false};
  sim.dispatcher.attach(back, "a", {.id = "r"});
  REQUIRE(sim.run_until([&] { return sim.answer(c(2), "a").ends == 1; }));
  REQUIRE(sim.answer(c(2), "a").as<ipc::DoneEvent>());
  CHECK(sim.answer(c(2), "a").as<ipc::DoneEvent>()->resumed == 1);
  REQUIRE(sim.answer(c(2), "a").ids.size() == 400);
  for (uint32_t i = 0; i < 400; ++i) {
    CHECK(sim.answer(c(2), "a").ids[i] == BrokerSim::token("a", 7, i));
  }
}

TEST_CASE("a request that cannot be forked gives the reason") {
  BrokerSim sim = make_sim();
  const Caller asks{.peer = c(1), .uid = 5, .is_admin = false};
  sim.dispatcher.submit(asks, "r", long_one(false), 100);
  REQUIRE(sim.run_until([&] { return sim.answer(c(1), "r").ends == 1; }));
  sim.dispatcher.fork(asks, "f1", fork_of("r", 1));
  CHECK(sim.answer(c(1), "f1").error()->field == "sample");
  sim.dispatcher.fork(asks, "f2", fork_of("r", 0, 401));
  CHECK(sim.answer(c(1), "f2").error()->field == "from");
  sim.dispatcher.fork(asks, "f3", fork_of("r"));
  CHECK(sim.answer(c(1), "f3").error()->field == "max_tokens");
  sim.dispatcher.fork(asks, "f4", fork_of("r", 0, 390, 9));
  REQUIRE(sim.run_until([&] { return sim.answer(c(1), "f4").ends == 1; }));
  REQUIRE(sim.answer(c(1), "f4").as<ipc::DoneEvent>());
  CHECK(sim.answer(c(1), "f4").ids.size() == 10);
}

}  // namespace
}  // namespace hearth::broker
