// The engine's interface: what it accepts, returns, refuses and survives.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "engine/sampling/sampler.h"
#include "simulation.h"

namespace hearth::tests {
namespace {

using namespace engine;

EngineConfig small() {
  EngineConfig config;
  config.kv_bytes = 1 << 20;
  return config;
}

TEST_CASE("predicted memory equals allocated memory, to the byte") {
  for (const uint64_t kv_bytes : {uint64_t{0}, uint64_t{100'000}, uint64_t{3'000'000}}) {
    FakeModelConfig model;
    model.windows = {0, 100};
    EngineConfig config;
    config.kv_bytes = kv_bytes;
    Simulation sim(config, model);
    CHECK(sim.device().bytes == sim.engine().memory_plan().total_bytes());
    CHECK(sim.device().bytes_max == sim.device().bytes);
    if (kv_bytes > 0) CHECK(sim.engine().kv_bytes() <= kv_bytes);
    if (kv_bytes > 0) CHECK(sim.engine().kv_bytes() > kv_bytes * 9 / 10);
    const uint64_t before = sim.device().bytes;
    sim.submit(make_request(1, 100, 50));
    sim.run_until_idle();
    CHECK(sim.device().bytes_max == before);  // a step takes none
  }
}

TEST_CASE("an impossible configuration is refused by name") {
  const auto error_of = [](auto change, uint64_t limit = UINT64_MAX) {
    EngineConfig config;
    config.kv_type = kernels::DType::kF32;
    change(config);
    FakeClock clock;
    auto device = std::make_shared<FakeDevice>();
    device->limit = limit;
    auto made =
        Engine::create(config, fake_ops(device),
                       std::make_unique<FakeModel>(FakeModelConfig{}, device, clock), clock);
    REQUIRE_FALSE(made.ok());
    CHECK(device->bytes == 0);
    return made.take_error();
  };
  CHECK(error_of([](EngineConfig& c) { c.scheduler.max_seqs = 0; }).field == "max_seqs");
  CHECK(error_of([](EngineConfig& c) { c.scheduler.max_step_tokens = -1; }).field ==
        "max_step_tokens");
  CHECK(error_of([](EngineConfig& c) { c.block_size = 24; }).field == "block_size");
  CHECK(error_of([](EngineConfig& c) { c.block_size = 0; }).field == "block_size");
  CHECK(error_of([](EngineConfig& c) { c.context_length = 513; }).field == "context_length");
  CHECK(error_of([](EngineConfig& c) { c.scheduler.decode_step_stretch = NAN; }).field ==
        "decode_step_stretch");
  const Error tiny = error_of([](EngineConfig& c) { c.kv_bytes = 10; });
  CHECK(tiny.code == ErrorCode::kOutOfMemory);
  CHECK(tiny.message.find("10 bytes") != std::string::npos);
  const Error full = error_of([](EngineConfig&) {}, 100'000);
  CHECK(full.code == ErrorCode::kOutOfMemory);
  CHECK(full.message.find("KV blocks of layer group 0") != std::string::npos);
}

/// The error of one request.
Error refused(Simulation& sim, const Request& request) {
  sim.submit(request);
  sim.step();
  REQUIRE(sim.record(request.id).final_events == 1);
  REQUIRE(sim.record(request.id).error.has_value());
  return *sim.record(request.id).error;
}

TEST_CASE("a request that cannot run is refused with the sizes") {
  EngineConfig config = small();
  config.kv_bytes = 10 * 512;  // 10 blocks: 2 layers of 256 bytes each
  config.scheduler.max_seqs = 4;
  Simulation sim(config, {});
  const Error overflow = refused(sim, make_request(1, 500, 20));
  CHECK(overflow.code == ErrorCode::kContextOverflow);
  CHECK(overflow.message.find("520") != std::string::npos);
  CHECK(overflow.message.find("512") != std::string::npos);
  const Error never = refused(sim, make_request(2, 150, 50));
  CHECK(never.code == ErrorCode::kOutOfMemory);
  CHECK(never.message.find("13 KV blocks") != std::string::npos);
  CHECK(never.message.find("has 10") != std::string::npos);
  Request many = make_request(3, 10, 10);
  many.n = 5;
  CHECK(refused(sim, many).field == "n");
  CHECK(refused(sim, make_request(4, 0, 10)).field == "prompt");
  CHECK(refused(sim, make_request(5, 10, 0)).field == "max_tokens");
  Request bad = make_request(6, 10, 10);
  bad.prompt[3] = 61;
  CHECK(refused(sim, bad).field == "prompt");
  bad = make_request(7, 10, 10);
  bad.prompt[3] = -1;
  CHECK(refused(sim, bad).field == "prompt");
  bad = make_request(8, 10, 10);
  bad.stop_ids = {1000};
  CHECK(refused(sim, bad).field == "stop_ids");
  bad = make_request(9, 10, 10);
  bad.sampling.logit_bias = {{61, 1.0f}};
  CHECK(refused(sim, bad).field == "logit_bias");
  bad = make_request(10, 10, 10);
  bad.resume = {{1, 2}, {3}};
  CHECK(refused(sim, bad).field == "resume");
  bad = make_request(11, 10, 1);
  bad.resume = {{1, 2}};
  CHECK(refused(sim, bad).field == "resume");
  bad = make_request(12, 10, 10);
  bad.sampling.temperature = std::numeric_limits<float>::quiet_NaN();
  CHECK(refused(sim, bad).field == "temperature");
  // As many as fit run.
  sim.submit(make_request(20, 150, 10));
  sim.run_until_idle();
  CHECK(sim.record(20).done.has_value());
}

TEST_CASE("a full queue is busy, only for requests that arrive when it is full") {
  EngineConfig config = small();
  config.scheduler.max_seqs = 1;
  config.scheduler.max_queue = 3;
  Simulation sim(config, {});
  for (RequestId id = 1; id <= 5; ++id) sim.submit(make_request(id, 20, 5));
  sim.run_until_idle();
  for (RequestId id = 1; id <= 3; ++id) CHECK(sim.record(id).done.has_value());
  for (RequestId id = 4; id <= 5; ++id) CHECK(sim.record(id).error->code == ErrorCode::kBusy);
}

TEST_CASE("logits that are not finite fail their own request and no other") {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    Simulation sim(small(), {});
    int steps = 0;
    sim.model().after_step = [&](const models::StepArgs& args) {
      // The first sequence of the batch is request 1.
      if (++steps == 4) args.logits.row<float>(0)[17] = bad;
    };
    for (RequestId id = 1; id <= 3; ++id) {
      Request request = make_request(id, 20, 12, static_cast<int32_t>(id));
      request.n = id == 1 ? 2 : 1;
      sim.submit(request);
    }
    sim.run_until_idle();
    sim.check_all_ended();
    REQUIRE(sim.record(1).error.has_value());
    CHECK(sim.record(1).error->code == ErrorCode::kInternal);
    CHECK(sim.record(1).error->message.find("token 17") != std::string::npos);
    CHECK(sim.record(2).done.has_value());
    CHECK(sim.record(3).done.has_value());
  }
}

TEST_CASE("prefixes are found only under the same salt, by default the owner's") {
  Simulation sim(small(), {});
  Request request = make_request(1, 64, 4);
  const auto cached = [&](const std::string& owner, const std::string& salt) {
    ++request.id;
    request.owner = owner;
    request.cache_salt = salt;
    sim.submit(request);
    sim.run_until_idle();
    return sim.record(request.id).done->cached_tokens;
  };
  CHECK(cached("uid:1", "") == 0);
  CHECK(cached("uid:1", "") == 48);
  CHECK(cached("uid:2", "") == 0);
  CHECK(cached("uid:2", "uid:1") == 48);
  CHECK(cached("uid:1", "shared") == 0);
  CHECK(cached("uid:2", "shared") == 48);
  request.use_prefix_cache = false;
  CHECK(cached("uid:2", "shared") == 0);
}

TEST_CASE("a deadline ends a request in any state") {
  EngineConfig config = small();
  config.scheduler.max_seqs = 1;
  Simulation sim(config, {});
  Request first = make_request(1, 20, 200);
  first.deadline_us = sim.clock().now_us() + 50'000;
  Request second = make_request(2, 20, 5);  // waits for the first
  second.deadline_us = sim.clock().now_us() + 20'000;
  sim.submit(first);
  sim.submit(second);
  sim.record(1).cancelled = sim.record(2).cancelled = true;
  sim.run_until_idle();
  sim.check_all_ended();
  CHECK(*sim.record(1).sample_done[0] == FinishReason::kDeadline);
  CHECK(*sim.record(2).sample_done[0] == FinishReason::kDeadline);
  CHECK(sim.record(1).tokens[0].size() > 20);
  CHECK(sim.record(2).tokens[0].empty());
  CHECK_FALSE(sim.record(2).started.has_value());
}

TEST_CASE("cancelling several samples before and after they exist is reported for each") {
  for (const int steps : {0, 1, 2, 8}) {
    CAPTURE(steps);
    EngineConfig config = small();
    config.scheduler.max_step_tokens = 32;
    Simulation sim(config, {});
    Request request = make_request(1, 100, 20);
    request.n = 3;
    sim.submit(request);
    sim.record(1).cancelled = true;
    for (int i = 0; i < steps; ++i) sim.step();
    sim.post(CancelRequest{1});
    sim.post(CancelRequest{1});
    sim.post(CancelRequest{99});  // nothing is cancelled
    sim.run_until_idle();
    sim.check_all_ended();
    for (const auto& reason : sim.record(1).sample_done) {
      CHECK(*reason == FinishReason::kCancelled);
    }
  }
}

TEST_CASE("one sample is ended from outside, the others continue") {
  Simulation sim(small(), {});
  Request request = make_request(1, 30, 20);
  request.n = 3;
  request.sampling.temperature = 1;
  sim.submit(request);
  for (int i = 0; i < 8; ++i) sim.step();
  sim.post(FinishSample{1, 1});
  sim.run_until_idle();
  const Record& record = sim.record(1);
  CHECK(*record.sample_done[0] == FinishReason::kLength);
  CHECK(*record.sample_done[1] == FinishReason::kStop);
  CHECK(*record.sample_done[2] == FinishReason::kLength);
  CHECK(record.tokens[1].size() < 20);
  CHECK(record.tokens[0].size() == 20);
  CHECK(record.done.has_value());
}

TEST_CASE("a resumed request continues as if it had not been interrupted") {
  Request request = make_request(1, 40, 24);
  request.n = 3;
  request.sampling.temperature = 0.9f;
  request.sampling.seed = 7;
  request.sampling.repetition_penalty = 1.1f;
  const FakeModelConfig model;
  for (const size_t had : {size_t{1}, size_t{15}, size_t{23}, size_t{24}}) {
    CAPTURE(had);
    Simulation sim(small(), model);
    Request resumed = request;
    for (int32_t sample = 0; sample < 2; ++sample) {  // the third had no token
      std::vector<int32_t> tokens = expected_tokens(model, request, sample).tokens;
      tokens.resize(had);
      resumed.resume.push_back(tokens);
    }
    sim.submit(resumed);
    sim.run_until_idle();
    sim.check_all_ended();
    CHECK(sim.record(1).done->output_tokens == static_cast<int32_t>(24 + 2 * (24 - had)));
  }
  Simulation sim(small(), model);
  Request whole = request;
  whole.n = 1;
  whole.resume = {expected_tokens(model, whole, 0).tokens};
  sim.submit(whole);
  sim.run_until_idle();
  sim.check_all_ended();
}

TEST_CASE("prompt logprobs are those of each next prompt token, at any chunk size") {
  const FakeModelConfig model;
  for (const int32_t chunk : {1, 7, 64, 512}) {
    CAPTURE(chunk);
    EngineConfig config = small();
    config.scheduler.max_step_tokens = chunk;
    Simulation sim(config, model);
    sim.submit(make_request(1, 90, 2));  // leaves the prompt cached
    sim.run_until_idle();
    Request request = make_request(2, 90, 4);
    request.sampling.prompt_logprobs = true;
    request.sampling.top_logprobs = 2;
    sim.submit(request);
    sim.run_until_idle();
    sim.check_all_ended();
    const TokenEvent& token = sim.record(2).token_events.front();
    REQUIRE(token.top_logprobs.size() == 2);
    CHECK(token.top_logprobs[0].token == token.token);  // greedy
    CHECK(token.logprob == token.top_logprobs[0].logprob);
    CHECK(token.top_logprobs[1].logprob <= token.top_logprobs[0].logprob);
  }
}

TEST_CASE("log probabilities of a prompt's beginning are computed once") {
  const FakeModelConfig model;
  EngineConfig config = small();
  config.scheduler.max_step_tokens = 24;
  Simulation sim(config, model);
  const auto cached = [&](const Request& request) {
    sim.submit(request);
    sim.run_until_idle();
    sim.check_all_ended();
    return sim.record(request.id).done->cached_tokens;
  };
  const auto scored = [](RequestId id, int32_t tokens, int32_t best) {
    Request request = make_request(id, tokens, 1);
    request.sampling.prompt_logprobs = true;
    request.sampling.top_logprobs = best;
    return request;
  };
  Request other = scored(2, 100, 1);
  other.prompt[70] += 1;
  CHECK(cached(scored(1, 90, 1)) == 0);
  CHECK(cached(other) == 48);  // 64 are equal; the row before the 65th is needed, too
  CHECK(cached(scored(3, 90, 0)) == 64);
  CHECK(cached(scored(4, 64, 1)) == 32);  // one is left to compute
  CHECK(cached(scored(5, 90, 2)) == 0);   // more alternatives than were kept
  CHECK(cached(scored(6, 90, 2)) == 64);
  CHECK(cached(scored(7, 90, 6)) == 0);  // too many to keep
  CHECK(cached(scored(8, 90, 6)) == 0);
  CHECK(cached(scored(9, 1, 1)) == 0);
  Request alone = scored(10, 90, 1);
  alone.use_prefix_cache = false;
  CHECK(cached(alone) == 0);
}

TEST_CASE("prompts that come together compute the log probabilities of their beginning once") {
  const FakeModelConfig model;
  EngineConfig config = small();
  config.scheduler.max_step_tokens = 24;
  Simulation sim(config, model);
  int64_t tokens = 0, cached = 0;
  for (RequestId id = 1; id <= 6; ++id) {
    Request request = make_request(id, 200, 1);
    request.prompt.resize(160);
    for (int32_t i = 0; i < 9; ++i) request.prompt.push_back(10 + static_cast<int32_t>(id));
    request.sampling.prompt_logprobs = true;
    request.sampling.top_logprobs = id == 4 ? -1 : id == 5 ? 3 : 1;  // one wants more than others
    tokens += size32(request.prompt);
    sim.submit(request);
  }
  sim.run_until_idle();
  sim.check_all_ended();
  for (RequestId id = 1; id <= 6; ++id) cached += sim.record(id).done->cached_tokens;
  // Two compute it all: the first, and the one that wants more. A block at the end is computed
  // anew.
  CHECK(cached == 4 * (160 - 16));
  CHECK(sim.engine().snapshot().prefill_tokens_total == tokens - cached);
}

TEST_CASE("requests that wait or prefill get progress ten times a second") {
  FakeModelConfig model;
  model.cost = {5'000, 1'000, 0};
  EngineConfig config = small();
  config.scheduler.max_seqs = 1;
  Simulation sim(config, model);
  sim.submit(make_request(1, 400, 50));
  sim.submit(make_request(2, 20, 40, 3));  // longer than the time between two reports
  sim.submit(make_request(3, 20, 5, 4));
  sim.run_until_idle();
  for (RequestId id = 1; id <= 3; ++id) {
    const Record& record = sim.record(id);
    REQUIRE(record.progress.size() >= 2);
    for (size_t i = 1; i < record.progress_us.size(); ++i) {
      CHECK(record.progress_us[i] - record.progress_us[i - 1] >= 100'000);
    }
  }
  CHECK(sim.record(1).progress.front().queue_position == 0);
  CHECK(sim.record(1).progress.back().prompt_tokens_done >
        sim.record(1).progress.front().prompt_tokens_done);
  CHECK(sim.record(2).progress.front().queue_position == 1);
  CHECK(sim.record(2).progress.front().waiting_for == "slots");
  CHECK(sim.record(3).progress.front().queue_position == 2);
  CHECK(sim.record(3).progress.back().queue_position == 1);
  // The estimate is unknown until a request has ended, then uses that request's time.
  CHECK(sim.record(2).progress.front().estimate_us == 0);
  const int64_t first_us = sim.record(1).times_us[0].back();  // it began at once
  CHECK(sim.record(3).progress.back().estimate_us > first_us / 2);
  CHECK(sim.record(3).progress.back().estimate_us <= first_us);
}

TEST_CASE("the warm-up teaches the scheduler and leaves no other state") {
  FakeModelConfig model;
  model.cost = {40'000, 1'000, 0};
  Simulation sim(small(), model);
  sim.engine().warm_up();
  CHECK(sim.step() == false);
  const EngineSnapshot snapshot = sim.engine().snapshot();
  CHECK(snapshot.num_steps == 0);
  CHECK(snapshot.prompt_tokens_total == 0);
  CHECK(snapshot.kv_blocks_used.front() == 0);
  CHECK(snapshot.kv_blocks_cached.front() == 0);
  // The first chunk of the first prompt is larger than the small default.
  int32_t first_rows = 0;
  sim.model().before_step = [&](const models::StepArgs& args) {
    if (first_rows == 0) first_rows = args.batch->num_tokens;
  };
  sim.submit(make_request(1, 400, 2));
  sim.run_until_idle();
  CHECK(first_rows > 64);
  sim.check_all_ended();
}

TEST_CASE("prompts with the same beginning that arrive together compute it once") {
  FakeModelConfig model;
  model.cost = {5'000, 1'000, 0};
  EngineConfig config = small();
  Simulation sim(config, model);
  sim.engine().warm_up();
  int64_t rows = 0;
  sim.model().before_step = [&](const models::StepArgs& args) { rows += args.batch->num_tokens; };
  for (RequestId id = 1; id <= 4; ++id) sim.submit(make_request(id, 200, 1));
  sim.run_until_idle();
  sim.check_all_ended();
  // The first computes all; the others compute the rest of their last block, with the token that
  // the next one is drawn from.
  CHECK(rows <= 200 + 3 * 16);
}

TEST_CASE("a request's times add up") {
  FakeModelConfig model;
  model.cost = {10'000, 0, 0};
  Simulation sim(small(), model);
  sim.submit(make_request(2, 40, 5, 3));  // so that the cost of a step is known
  sim.run_until_idle();
  Request request = make_request(1, 10, 11);
  request.received_us = sim.clock().now_us();
  sim.clock().advance_us(3'000);
  sim.submit(request);
  sim.run_until_idle();
  const RequestDoneEvent& done = *sim.record(1).done;
  CHECK(done.queue_us == 3'000);
  CHECK(done.prefill_us == 10'000);
  CHECK(done.ttft_us == 13'000);
  CHECK(done.tpot_us == doctest::Approx(10'000));
  CHECK(done.output_tokens == 11);
  CHECK(done.prompt_tokens == 10);
}

TEST_CASE("run() waits for work, drains and stops") {
  Simulation sim(small(), {});
  std::thread thread([&] { sim.engine().run(); });
  std::vector<EngineEvent> seen;
  const auto wait_for = [&](auto wanted) {
    while (true) {
      for (auto& events : sim.engine().outbox().wait_and_drain(std::chrono::seconds(1))) {
        std::ranges::move(events, std::back_inserter(seen));
      }
      if (std::ranges::any_of(seen, wanted)) return;
    }
  };
  sim.post(make_request(1, 20, 5));
  wait_for([](const EngineEvent& e) { return std::holds_alternative<RequestDoneEvent>(e); });
  sim.post(WantSnapshot{});
  wait_for([](const EngineEvent& e) { return std::holds_alternative<SnapshotEvent>(e); });
  sim.post(make_request(2, 20, 50));
  sim.post(Drain{});
  sim.post(make_request(3, 20, 5));
  wait_for([](const EngineEvent& e) { return std::holds_alternative<StoppedEvent>(e); });
  thread.join();
  int done = 0;
  for (const EngineEvent& event : seen) {
    done += std::holds_alternative<RequestDoneEvent>(event) ? 1 : 0;
    if (const auto* failed = std::get_if<RequestFailedEvent>(&event)) {
      CHECK(failed->id == 3);
      CHECK(failed->error.code == ErrorCode::kUnavailable);
    }
  }
  CHECK(done == 2);
}

TEST_CASE("stop ends run() with requests alive") {
  Simulation sim(small(), {});
  sim.post(make_request(1, 20, 400));
  std::thread thread([&] { sim.engine().run(); });
  sim.engine().outbox().wait_and_drain(std::chrono::seconds(10));
  sim.post(Stop{});
  thread.join();
}

}  // namespace
}  // namespace hearth::tests
