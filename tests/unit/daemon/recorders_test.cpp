#include "daemon/broker/requests/recorders.h"

#include <doctest/doctest.h>

#include "ipc/wire/codec.h"
#include "ipc/wire/token_digest.h"
#include "tests/unit/daemon/broker_sim.h"

namespace hearth::broker {
namespace {

constexpr size_t kBytes = 64 << 10;

/// A simulated broker with recorders, whose messages go through an output buffer of their own, to
/// connections that read or do not.
struct Recorded {
  Recorded()
      : sim({{"a", {}}}, Config()),
        output(kBytes,
               [this](const PeerId& peer, const OutgoingView& out) { return take(peer, out); }),
        recorders(sim.clock, sim.dispatcher, output, kBytes, nullptr) {}

  ipc::SendOutcome take(const PeerId& peer, const OutgoingView& out) {
    if (stalled.contains(peer)) return ipc::SendOutcome::kWouldBlock;
    const Result<ipc::Event> event = ipc::decode_event(out.payload);
    REQUIRE(event.ok());
    if (const auto* record = std::get_if<ipc::RecordedEvent>(&*event)) {
      records[peer].push_back(*record);
    } else if (const auto* recording = std::get_if<ipc::RecordingEvent>(&*event)) {
      lost[peer] = recording->lost;
    } else {
      REQUIRE(std::holds_alternative<ipc::ErrorEvent>(*event));
      ++errors[peer];
    }
    return ipc::SendOutcome::kSent;
  }
  /// Runs one request to its end.
  void request(const Caller& caller, const std::string& id, const std::string& prompt = "secret") {
    ipc::GenerateRequest generate;
    generate.model = "a";
    generate.prompt = prompt;
    generate.max_tokens = 5;
    sim.dispatcher.submit(caller, id, generate, 100 + prompt.size());
    wait_for_end();
  }
  void wait_for_end() {
    REQUIRE(sim.run_until([&] { return sim.dispatcher.requests().size() == 0; }));
  }
  /// The refusal of a record message, or "".
  std::string refusal(const Caller& caller, const std::string& id) {
    recorders.start(caller, id, {});
    const Error* error = sim.answer(caller.peer, id).error();
    return error == nullptr ? "" : std::string(name(error->code));
  }

  BrokerSim sim;
  std::set<PeerId> stalled;
  std::map<PeerId, std::vector<ipc::RecordedEvent>> records;
  std::map<PeerId, uint64_t> lost;
  std::map<PeerId, int> errors;
  OutputBuffer output;
  Recorders recorders;
};

const Caller kOwner = BrokerSim::user(1000);
const Caller kElsewhere = BrokerSim::user(1000, 1);  // the same user on another connection
const Caller kOther = BrokerSim::user(1001);

TEST_CASE("a recorder receives its user's requests that arrive later, with their ends") {
  Recorded r;
  r.sim.generate(kOwner, "before", "a", 50);
  r.sim.step();
  r.recorders.start(kOwner, "rec", {.text = true});
  r.wait_for_end();
  CHECK(r.records.empty());
  r.request(kElsewhere, "mine");
  REQUIRE(r.records[kOwner.peer].size() == 1);
  const ipc::RecordedEvent& record = r.records[kOwner.peer][0];
  CHECK(record.model == "a");
  CHECK(record.arrival_us > 0);
  CHECK(record.finish_reasons == std::vector<std::string>{"length"});
  const Result<ipc::ClientRequest> request = ipc::decode_request(record.request.text);
  REQUIRE(request.ok());
  const auto& generate = std::get<ipc::GenerateRequest>(*request);
  CHECK(generate.prompt == "secret");
  CHECK(generate.seed == record.seed);
  ipc::TokenDigest digest;
  digest.add(r.sim.answer(kElsewhere.peer, "mine").ids);
  CHECK(record.digests == std::vector<std::string>{digest.hex()});
  r.recorders.on_connection_gone(kOwner.peer);
  r.request(kElsewhere, "later");
  CHECK(r.records[kOwner.peer].size() == 1);
}

TEST_CASE("no recorder receives another user's requests, not an administrator's either") {
  Recorded r;
  r.recorders.start(BrokerSim::admin(), "rec", {.text = true});
  r.recorders.start(kOther, "rec", {.text = true});
  for (int i = 0; i < 5; ++i) r.request(kOwner, "r" + std::to_string(i));
  CHECK(r.records.empty());
  r.request(kOther, "theirs");
  CHECK(r.records[kOther.peer].size() == 1);
  CHECK(r.records.size() == 1);
}

TEST_CASE("without text a record holds nothing of the content") {
  Recorded r;
  r.recorders.start(kOwner, "rec", {.text = false});
  r.request(kOwner, "mine");
  REQUIRE(r.records[kOwner.peer].size() == 1);
  const ipc::RecordedEvent& record = r.records[kOwner.peer][0];
  CHECK(ipc::encode_event(record).find("secret") == std::string::npos);
  CHECK(record.digests.empty());
  CHECK(ipc::decode_request(record.request.text).ok());
}

TEST_CASE("failed and cancelled requests are recorded as such; forks are not") {
  Recorded r;
  r.recorders.start(kOwner, "rec", {.text = true});
  r.sim.generate(kOwner, "c", "a", 1000);
  REQUIRE(r.sim.run_until([&] { return r.sim.answer(kOwner.peer, "c").ids.size() > 5; }));
  r.sim.dispatcher.fork(
      kOwner, "f",
      {.id = "c", .sample = 0, .from = 2, .n = 1, .max_tokens = 3, .seed = {}, .detach = false});
  r.sim.cancel(kOwner, "c");
  r.wait_for_end();
  REQUIRE(r.records[kOwner.peer].size() == 1);
  CHECK(r.records[kOwner.peer][0].finish_reasons == std::vector<std::string>{"cancelled"});
  r.sim.generate(kOwner, "e", "a", 1000);
  r.sim.dispatcher.fail_all(Error::unavailable("stopping"));
  REQUIRE(r.records[kOwner.peer].size() == 2);
  CHECK(r.records[kOwner.peer][1].error == "unavailable");
  CHECK(r.errors[kOwner.peer] == 1);
  CHECK(r.recorders.size() == 0);
}

TEST_CASE("a recorder that does not read loses records, is sent their number, and costs no more") {
  Recorded r;
  r.recorders.start(kOwner, "rec", {.text = true});
  r.stalled.insert(kOwner.peer);
  const std::string prompt(10'000, 'x');
  constexpr size_t kRequests = 40;
  for (size_t i = 0; i < kRequests; ++i) {
    r.request(kElsewhere, "r" + std::to_string(i), prompt);
    CHECK(r.output.total_bytes() <= kBytes);
    CHECK(r.sim.answer(kElsewhere.peer, "r" + std::to_string(i)).as<ipc::DoneEvent>() != nullptr);
  }
  CHECK(r.records.empty());
  r.stalled.clear();
  CHECK(r.output.retry(kOwner.peer));
  r.sim.step();
  const size_t kept = r.records[kOwner.peer].size();
  CHECK(kept > 0);
  CHECK(kept < kRequests);
  CHECK(r.lost[kOwner.peer] == kRequests - kept);
  r.request(kElsewhere, "again", prompt);
  CHECK(r.records[kOwner.peer].size() == kept + 1);
}

TEST_CASE("recorders are few, and none is at the far end of TCP") {
  Recorded r;
  Caller far = kOwner;
  far.peer.door = Door::kTcp;
  CHECK(r.refusal(far, "t") == "forbidden");
  for (size_t i = 0; i < Recorders::kPerOwner; ++i) {
    CHECK(r.refusal(BrokerSim::user(1000, i), "r") == "");
  }
  CHECK(r.refusal(BrokerSim::user(1000, 9), "r") == "busy");
  for (uint32_t uid = 2000; r.recorders.size() < Recorders::kAll; ++uid) {
    CHECK(r.refusal(BrokerSim::user(uid), "r") == "");
  }
  CHECK(r.refusal(BrokerSim::user(3000), "r") == "busy");
  r.recorders.on_connection_gone(BrokerSim::user(1000, 0).peer);
  CHECK(r.refusal(BrokerSim::user(3000), "s") == "");
}

}  // namespace
}  // namespace hearth::broker
