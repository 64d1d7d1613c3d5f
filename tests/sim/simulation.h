#pragma once
// Drives a real engine with the fake model, collects its output, and checks invariants after every
// step.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "engine/speculation/draft_model.h"
#include "engine/store/store_thread.h"
#include "fake_model.h"
#include "kernels/base/clock.h"
#include "tests/cache_mirror.h"

namespace hearth::tests {

/// All events of one request.
struct Record {
  engine::Request request;
  std::vector<std::vector<int32_t>> tokens;  ///< per sample, new ones only
  std::vector<std::vector<int64_t>> times_us;
  std::vector<std::optional<engine::FinishReason>> sample_done;
  std::optional<engine::StartedEvent> started;
  std::optional<engine::RequestDoneEvent> done;
  std::optional<Error> error;
  std::vector<engine::ProgressEvent> progress;
  std::vector<int64_t> progress_us;
  std::vector<float> prompt_logprobs;
  std::vector<std::vector<engine::TokenLogprob>> prompt_top;
  std::vector<engine::TokenEvent> token_events;
  bool cancelled = false;  ///< the test ended it
  int final_events = 0;
};

/// A slow tier without a thread: it answers after a delay, on the simulation's clock.
struct SimStore {
  std::unique_ptr<engine::BlockStore> store;
  int64_t answer_us = 500;  ///< from a command to its reply
  double us_per_byte = 0;   ///< of a chunk's load beyond that, one after the other
};

class Simulation {
 public:
  Simulation(const engine::EngineConfig& config, const FakeModelConfig& model,
             std::unique_ptr<engine::Proposer> proposer = nullptr, SimStore store = {});
  /// With a draft model on the same device and clock.
  Simulation(const engine::EngineConfig& config, const FakeModelConfig& model,
             const FakeModelConfig& draft);

  /// Posts the request; the next step sees it.
  void submit(const engine::Request& request);
  void post(engine::EngineCommand command);
  /// One step, then collects events and checks integrity. False if nothing was computed.
  bool step();
  void run_until_idle();

  /// Applies to later requests to the store.
  void set_store_answer_us(int64_t us) { store_answer_us_ = us; }

  engine::Engine& engine() { return *engine_; }
  FakeModel& model() { return *model_; }
  FakeModel& draft() { return *draft_; }
  engine::DraftModel& draft_model() { return *draft_model_; }
  void drop_draft() {
    engine_->drop_draft_model();
    draft_ = nullptr;
    draft_model_ = nullptr;
  }
  FakeClock& clock() { return clock_; }
  FakeDevice& device() { return *device_; }
  const FakeModelConfig& model_config() const { return model_config_; }
  const std::map<engine::RequestId, Record>& records() const { return records_; }
  Record& record(engine::RequestId id) { return records_.at(id); }

  /// Checks that every request has ended once, with the expected tokens, and that no block is in
  /// use.
  void check_all_ended();

 private:
  void create(const engine::EngineConfig& config, std::unique_ptr<engine::Proposer> proposer,
              SimStore store);
  std::unique_ptr<engine::Proposer> make_draft(const engine::EngineConfig& config,
                                               const FakeModelConfig& draft);
  void collect();
  void check_prompt_logprobs(const Record& record) const;
  void run_store();
  void store_says(engine::StoreReply reply);

  FakeModelConfig model_config_;
  FakeClock clock_;
  std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();
  FakeModel* model_ = nullptr;
  FakeModel* draft_ = nullptr;
  engine::DraftModel* draft_model_ = nullptr;
  Mailbox<engine::StoreCommand> store_commands_{1 << 16};
  int64_t store_answer_us_ = 0;
  double store_us_per_byte_ = 0;
  int64_t store_busy_until_us_ = 0;
  std::unique_ptr<engine::StoreWorker> store_;
  std::deque<std::pair<int64_t, engine::StoreReply>> store_replies_;  ///< when due
  std::unique_ptr<engine::Engine> engine_;
  std::map<engine::RequestId, Record> records_;
  bool publishes_ = false;  ///< all scopes
  CacheMirror mirror_;      ///< of the cache, from its events
};

/// A request with `prompt_size` consecutive tokens that start at `first`.
engine::Request make_request(engine::RequestId id, int32_t prompt_size, int32_t max_tokens,
                             int32_t first = 0);

}  // namespace hearth::tests
