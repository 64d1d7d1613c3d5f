#include "simulation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "engine/sampling/sampler.h"
#include "late_model.h"

namespace hearth::tests {

using namespace engine;

namespace {
constexpr int64_t kStoreTickUs = 1000;
}  // namespace

Simulation::Simulation(const EngineConfig& config, const FakeModelConfig& model,
                       std::unique_ptr<Proposer> proposer, SimStore store)
    : model_config_(model),
      store_answer_us_(store.answer_us),
      store_us_per_byte_(store.us_per_byte) {
  create(config, std::move(proposer), std::move(store));
}

Simulation::Simulation(const EngineConfig& config, const FakeModelConfig& model,
                       const FakeModelConfig& draft)
    : model_config_(model) {
  create(config, make_draft(config, draft), {});
}

std::unique_ptr<Proposer> Simulation::make_draft(const EngineConfig& config,
                                                 const FakeModelConfig& draft) {
  auto fake = std::make_unique<FakeModel>(draft, device_, clock_);
  draft_ = fake.get();
  EngineConfig f32 = config;
  f32.kv_type = kernels::DType::kF32;
  const FakeModel target(model_config_, device_, clock_);
  auto made = DraftModel::create(f32, target.info(), fake_ops(device_), std::move(fake), clock_);
  REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().message));
  draft_model_ = made->get();
  return std::move(made).value();
}

void Simulation::create(const EngineConfig& config, std::unique_ptr<Proposer> proposer,
                        SimStore store) {
  clock_.advance_us(1);  // so that a time is never the 0 that means "not given"
  auto fake = std::make_unique<FakeModel>(model_config_, device_, clock_);
  model_ = fake.get();
  publishes_ = config.published == PublishedScopes::kAll;
  EngineConfig f32 = config;
  f32.kv_type = kernels::DType::kF32;  // bytes of an Entry of the fake
  std::unique_ptr<models::Model> model = std::move(fake);
  if (model_config_.late) model = std::make_unique<LateModel>(std::move(model));
  auto made = Engine::create(f32, fake_ops(device_), std::move(model), clock_, std::move(proposer),
                             store.store != nullptr ? &store_commands_ : nullptr);
  REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().message));
  engine_ = std::move(made).value();
  if (store.store == nullptr) return;
  store_ = std::make_unique<StoreWorker>(
      std::move(store.store), [this](StoreReply reply) { store_says(std::move(reply)); });
  store_->tick();
}

void Simulation::store_says(StoreReply reply) {
  if (auto* loaded = std::get_if<ChunkLoaded>(&reply)) {
    loaded->load_us = std::llround(store_us_per_byte_ * static_cast<double>(loaded->data.size));
    store_busy_until_us_ = std::max(store_busy_until_us_, clock_.now_us()) + loaded->load_us;
  }
  const int64_t due_us = std::max(store_busy_until_us_, clock_.now_us()) + store_answer_us_;
  store_replies_.emplace_back(due_us, std::move(reply));
}

void Simulation::run_store() {
  for (StoreCommand& command : store_commands_.drain()) store_->handle(std::move(command));
  store_->write_some();
  while (!store_replies_.empty() && store_replies_.front().first <= clock_.now_us()) {
    engine_->inbox().post(std::move(store_replies_.front().second));
    store_replies_.pop_front();
  }
}

void Simulation::submit(const Request& request) {
  Record& record = records_[request.id];
  record.request = request;
  const auto n = static_cast<size_t>(request.n);
  record.tokens.resize(n);
  record.times_us.resize(n);
  record.sample_done.resize(n);
  post(request);
}

void Simulation::post(EngineCommand command) { engine_->inbox().post(std::move(command)); }

bool Simulation::step() {
  if (store_ != nullptr) run_store();
  bool worked = engine_->step();
  collect();
  engine_->check_integrity();
  if (store_ != nullptr && !worked && !(store_replies_.empty() && store_commands_.size() == 0)) {
    // Nothing else moves this clock; in small steps, so that waiting ends on time.
    clock_.advance_us(kStoreTickUs);
    worked = true;
  }
  return worked;
}

void Simulation::run_until_idle() {
  while (step()) {
  }
}

void Simulation::collect() {
  struct Visitor {
    Simulation& sim;
    void operator()(const TokenEvent& e) {
      Record& r = sim.records_.at(e.id);
      const auto sample = static_cast<size_t>(e.sample);
      REQUIRE(r.final_events == 0);
      REQUIRE_FALSE(r.sample_done.at(sample).has_value());
      const size_t resumed = sample < r.request.resume.size() ? r.request.resume[sample].size() : 0;
      REQUIRE(static_cast<size_t>(e.index) == resumed + r.tokens[sample].size());
      r.tokens[sample].push_back(e.token);
      r.times_us[sample].push_back(sim.clock_.now_us());
      r.token_events.push_back(e);
    }
    void operator()(const StartedEvent& e) {
      Record& r = sim.records_.at(e.id);
      REQUIRE_FALSE(r.started.has_value());
      r.started = e;
    }
    void operator()(const ProgressEvent& e) {
      Record& r = sim.records_.at(e.id);
      REQUIRE(r.final_events == 0);
      r.progress.push_back(e);
      r.progress_us.push_back(sim.clock_.now_us());
    }
    void operator()(const PromptLogprobsEvent& e) {
      sim.records_.at(e.id).prompt_logprobs = e.logprobs;
      sim.records_.at(e.id).prompt_top = e.top;
    }
    void operator()(const SampleDoneEvent& e) {
      Record& r = sim.records_.at(e.id);
      REQUIRE(r.final_events == 0);
      auto& done = r.sample_done.at(static_cast<size_t>(e.sample));
      REQUIRE_FALSE(done.has_value());
      done = e.reason;
    }
    void operator()(const RequestDoneEvent& e) {
      Record& r = sim.records_.at(e.id);
      for (const auto& done : r.sample_done) REQUIRE(done.has_value());
      ++r.final_events;
      r.done = e;
    }
    void operator()(const RequestFailedEvent& e) {
      Record& r = sim.records_.at(e.id);
      ++r.final_events;
      r.error = e.error;
    }
    void operator()(const SnapshotEvent&) {}
    void operator()(const StoppedEvent&) {}
    void operator()(const ModelLostEvent&) {}
    void operator()(const AsleepEvent&) {}
    void operator()(const EmbeddingEvent&) {}
    void operator()(const CacheEventsEvent& e) {
      sim.mirror_.take(e.events, sim.engine_->memory_plan().block_size);
    }
  };
  for (const std::vector<EngineEvent>& events : engine_->outbox().drain()) {
    for (const EngineEvent& event : events) std::visit(Visitor{*this}, event);
  }
}

void Simulation::check_prompt_logprobs(const Record& record) const {
  const engine::Sampler sampler(model_config_.vocab_size);
  const std::vector<int32_t>& prompt = record.request.prompt;
  const int32_t num_best = record.request.sampling.top_logprobs;
  REQUIRE(record.prompt_logprobs.size() + 1 == prompt.size());
  REQUIRE(record.prompt_top.size() == (num_best > 0 ? record.prompt_logprobs.size() : 0));
  for (size_t i = 0; i + 1 < prompt.size(); ++i) {
    CAPTURE(i);
    const auto logits = expected_logits(model_config_, std::span(prompt).first(i + 1));
    const Sampler::Score score = sampler.score(logits, prompt[i + 1], num_best).value();
    REQUIRE(record.prompt_logprobs[i] == score.logprob);
    if (num_best <= 0) continue;
    REQUIRE(std::ranges::equal(record.prompt_top[i], score.best,
                               [](const TokenLogprob& a, const TokenLogprob& b) {
                                 return a.token == b.token && a.logprob == b.logprob;
                               }));
  }
}

void Simulation::check_all_ended() {
  for (const auto& [id, r] : records_) {
    CAPTURE(id);
    REQUIRE(r.final_events == 1);
    if (r.error.has_value()) continue;
    // A resumed request may have nothing left to compute.
    if (r.request.sampling.prompt_logprobs && !r.cancelled && r.request.resume.empty()) {
      check_prompt_logprobs(r);
    }
    for (int32_t sample = 0; sample < r.request.n; ++sample) {
      CAPTURE(sample);
      const auto s = static_cast<size_t>(sample);
      const Expected expected = expected_tokens(model_config_, r.request, sample);
      std::vector<int32_t> output =
          s < r.request.resume.size() ? r.request.resume[s] : std::vector<int32_t>{};
      output.insert(output.end(), r.tokens[s].begin(), r.tokens[s].end());
      if (r.cancelled) {
        // Ended from outside: its tokens are the beginning of the expected ones.
        REQUIRE(output.size() <= expected.tokens.size());
        REQUIRE(std::equal(output.begin(), output.end(), expected.tokens.begin()));
      } else {
        REQUIRE(output == expected.tokens);
        REQUIRE(*r.sample_done[s] == expected.reason);
      }
    }
  }
  const EngineSnapshot snapshot = engine_->snapshot();
  CHECK(snapshot.num_running == 0);
  CHECK(snapshot.num_waiting == 0);
  for (const int32_t used : snapshot.kv_blocks_used) CHECK(used == 0);
  // So every block in the index is cached, and the events have named it.
  for (int32_t group = 0; publishes_ && group < size32(snapshot.kv_blocks_cached); ++group) {
    CHECK(mirror_.count(CacheTier::kPool, group) == snapshot.kv_blocks_cached[group]);
  }
  if (draft_model_ != nullptr) {
    CHECK(draft_model_->num_shadows() == 0);
    CHECK(draft_model_->blocks_used() == 0);
  }
}

Request make_request(RequestId id, int32_t prompt_size, int32_t max_tokens, int32_t first) {
  Request request;
  request.id = id;
  request.owner = request.cache_salt = "uid:1000";
  for (int32_t i = 0; i < prompt_size; ++i) request.prompt.push_back((first + i * 7) % 61);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  return request;
}

}  // namespace hearth::tests
