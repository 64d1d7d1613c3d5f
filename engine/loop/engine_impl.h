#pragma once
// The engine's implementation, private to engine/loop/: engine.cpp has the step and the commands,
// warm_up.cpp what is computed before the first request, outputs.cpp turns a step's logits into
// tokens and other results, reports.cpp makes the events and snapshots.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/kv/cache_events.h"
#include "engine/kv/elastic_pools.h"
#include "engine/kv/kv_cache.h"
#include "engine/loop/engine_counters.h"
#include "engine/sampling/sampler.h"
#include "engine/scheduling/scheduler.h"
#include "engine/speculation/draft_layer.h"
#include "engine/speculation/speculator.h"
#include "engine/steps/adapter_pool.h"
#include "engine/steps/model_runner.h"
#include "engine/steps/step_record.h"
#include "engine/tiers/prefix_restorer.h"
#include "engine/tiers/prefix_saver.h"
#include "engine/tiers/store_link.h"

namespace hearth::engine {

/// The engine's side of the store: restoring and saving.
struct SlowTier {
  SlowTier(KvLayout layout, KvCache& kv, ModelRunner& runner, Mailbox<StoreCommand>& store,
           const EngineConfig& config);

  StoreLink link;
  PrefixRestorer restorer;
  PrefixSaver saver;
};

struct Engine::Impl {
  Impl(const EngineConfig& engine_config, std::string scope,
       std::unique_ptr<ModelRunner> model_runner, const Clock& engine_clock,
       std::unique_ptr<Proposer> proposer, Mailbox<StoreCommand>* store);

  std::unique_ptr<Proposer> make_draft_layer();
  bool step();
  bool pump_store();
  void settle_pools();
  void take_commands();
  bool advance();
  void publish();
  void run();
  void warm_up(bool at_once);
  bool measure_costs();
  void pack_weights(int64_t for_us);
  void pack_more(uint64_t bytes);
  bool weights_intact();
  struct WarmUpPart {
    int32_t prompt = 0;
    int32_t outputs = 0;
    bool widths = false;    ///< steps of several rows too
    bool yielding = false;  ///< ends when a command arrives
  };
  bool run_warm_up(const WarmUpPart& part);

  // Commands.
  void handle(Request& request);
  void handle(CancelRequest& cancel);
  void handle(FinishSample& finish);
  void handle(EndReasoning& end);
  void handle(Drain&) { draining = true; }
  void handle(Stop&) { stopping = true; }
  void handle(WantSnapshot&) { snapshot_wanted = true; }
  void handle(StoreReply& reply);
  void handle(KvBound& bound);
  void handle(DropAdapters& drop);
  void handle(Sleep&);
  void handle(Wake&) { asleep = false; }

  // One step.
  void fetch_preempted();
  const StepPlan& next_plan();
  void compute(const StepPlan& plan);
  bool may_run_ahead();
  void report_started(const StepPlan& plan);
  MissReason miss_of(const LiveRequest& live) const;
  void take_outputs(const StepPlan& plan);
  void fill_canvas(Sequence& seq, int32_t first_row);
  bool send_block(Sequence& seq, int32_t first);
  void take_final_rows(const PlannedRows& rows, int32_t first_row);
  bool take_prompt_logprobs(const PlannedRows& rows, int32_t first_row);
  void plan_draws(const StepPlan& plan);
  Result<Sampled> sample(int32_t row, const SampleArgs& args);
  /// The token that ends the sample's reasoning, if it must come next.
  std::optional<int32_t> forced_token(Sequence& seq);
  Result<Sampled> take_forced(int32_t row, int32_t token, const SamplingParams& params);
  /// A token, unless a stop id was drawn or the request failed; and why the sample ends with it,
  /// which the caller has to do.
  struct Drawn {
    std::optional<int32_t> token;
    std::optional<FinishReason> end;
  };
  Drawn draw(Sequence& seq, int32_t row);
  void verify(const PlannedRows& rows, int32_t first_token, int32_t first_row);
  /// The last token is drawn from this row of the step.
  void note_hidden_row(Sequence& seq, int32_t row) const;
  Result<void> constrain(Sequence& seq, int32_t index, SampleArgs& args);
  void end_sample(Sequence& seq, FinishReason reason);
  void end_request(LiveRequest& live, FinishReason reason);
  void report_done(LiveRequest& live);
  void fail(LiveRequest& live, Error error);
  void remove_ended();
  /// Expected wait of the request at this place in the queue, from measurements; 0: not known.
  int64_t wait_us(int32_t position) const;
  void report_progress();
  void report_canvases(const LiveRequest& live);
  void publish_watch();
  EngineSnapshot snapshot() const;

  const EngineConfig config;
  const Clock& clock;
  const std::string scope_prefix;
  std::unique_ptr<ModelRunner> runner;
  AdapterPool adapters;
  CacheEventLog cache_events{CacheTier::kPool};  ///< of this step
  KvCache kv;
  ElasticPools pools;
  ElasticPools* draft_pools;  ///< of a draft model; null: there is none
  Scheduler scheduler;
  Sampler sampler;
  DraftLayer* draft_layer = nullptr;  ///< one of the speculator's, if the model has one
  Speculator speculator;
  std::unique_ptr<SlowTier> disk;  ///< null without a store
  StepRecorder recorder;
  Mailbox<EngineCommand> inbox;
  Mailbox<std::vector<EngineEvent>> outbox;

  std::vector<EngineCommand> commands;  ///< drained, not yet handled
  std::vector<EngineEvent> events;      ///< of this step
  std::vector<LiveRequest*> ended;      ///< removed at the end of the step
  std::vector<Sequence*> decoding;      ///< scratch
  std::vector<RowWish> wishes;          ///< of this step's output rows; none: the host draws
  int32_t steps_without_drafts = 0;     ///< decode steps since the last one that had any
  int64_t now_us = 0;                   ///< read once or twice per step
  bool launched_ahead = false;  ///< this step was launched before the last one's tokens were known
  int64_t computed_us = 0;      ///< when the device finished the last step
  bool draining = false;
  bool stopping = false;
  bool snapshot_wanted = false;
  bool warming_up = false;  ///< steps belong to no client's request
  std::function<Result<void>()> weights_check;
  std::optional<Error> model_lost;  ///< the error of weights_check
  bool weights_late = false;        ///< some weights are packed anew for each step
  bool asleep = false;              ///< see Sleep
  int64_t packing_us = 0;           ///< how long weights may be packed before the next step
  bool memory_touched = true;
  int64_t unused_until_us = 0;                ///< then unused memory is given back; 0: it has been
  int64_t report_short_us = 0;                ///< not before
  bool kv_short = false, kv_stalled = false;  ///< see EngineSnapshot
  bool costs_wanted = false;                  ///< measure the cost of steps when idle
  EngineCounters counters;
  WatchPort watch_port;
};

}  // namespace hearth::engine
