#pragma once
// The engine: one model, one device, many sequences. A library without sockets.
//
// Owned and run by one thread. Other threads reach it only through the two mailboxes. One iteration
// of `step()`: drain the inbox -> the speculator drafts tokens -> the scheduler plans a batch ->
// model_runner fills the index buffers -> the model calls ops -> the sampler picks or verifies
// tokens -> events go to the outbox. It does no I/O and takes no lock outside the mailboxes; after
// create() it takes no device memory but that of KV pools (KvBound). The store of the KV cache runs
// on another thread, reached through two more mailboxes (engine/tiers/).

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/config.h"
#include "engine/cost/step_cost.h"
#include "engine/kv/memory_plan.h"
#include "engine/request.h"
#include "engine/speculation/proposer.h"
#include "kernels/base/clock.h"
#include "kernels/base/mailbox.h"
#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/model.h"

namespace hearth::engine {

class ReplayScript;

struct WatchPort;

class Engine {
 public:
  /// Takes all device memory (activations, index buffers, logits, and pools: their addresses alone
  /// where the device backs memory in parts). kOutOfMemory holds the numbers; kInvalidArgument
  /// names the field. `proposer`: drafts in addition to lookup, and before it if its drafts are
  /// free; may be null. `store`: the inbox of the store's thread, null without a store. It outlives
  /// the engine, and its replies arrive as commands.
  static Result<std::unique_ptr<Engine>> create(const EngineConfig& config, kernels::OpTable ops,
                                                std::unique_ptr<models::Model> model,
                                                const Clock& clock,
                                                std::unique_ptr<Proposer> proposer = nullptr,
                                                Mailbox<StoreCommand>* store = nullptr);
  ~Engine();

  /// Any thread. Bounded; full means kBusy.
  Mailbox<EngineCommand>& inbox();
  /// Drained by one thread; each message holds the events of one step. Has an eventfd.
  Mailbox<std::vector<EngineEvent>>& outbox();

  /// `check` verifies that the model's file has not changed. It runs on the engine's thread after
  /// each step that read weights from the file, before any token of the step is sent, and once more
  /// when the last weight has been packed. After an error the engine computes and stores nothing:
  /// every request fails with the error, and a ModelLostEvent reports it. Call before run().
  void set_weights_check(std::function<Result<void>()> check);

  /// Computes steps of a prompt of its own, so that before the first request the scheduler knows
  /// the cost of steps and memory is mapped. Call before run(), with nothing live; leaves no trace
  /// in the cache, the counters or the outbox. Without `at_once`, and without a draft model to
  /// judge, run() does this in its first idle moment, so that it does not delay the first token
  /// after a load.
  void warm_up(bool at_once = true);
  /// The warm-up that run() does when it is first idle. False: a command arrived first, so try
  /// again later. True: done, or impossible for lack of free blocks.
  bool measure_costs();

  /// Expected speed relative to plain decoding, for one sequence with the draft model, if each
  /// draft token is right with that chance; from the costs that the warm-up measured. 1: drafting
  /// does not pay, or the engine has no draft model.
  double draft_gain(double chance) const;
  /// Measured duration of a step with that many decode rows, in us.
  double step_us(int32_t rows) const;
  /// The same of one draft token of one sequence by the model's draft layer or heads; 0: none was
  /// measured.
  double draft_us() const;
  /// The costs measured so far. restore_costs() takes those of an earlier engine; call it before
  /// anything was computed.
  MeasuredCosts measured_costs() const;
  void restore_costs(const MeasuredCosts& costs);
  /// From now on records the device's idle times between steps. take_gaps() returns those since the
  /// last call, in microseconds; none if the device computes inside the call.
  void time_gaps();
  std::vector<double> take_gaps();
  /// For measurements: from now on the model's draft layer drafts what the script has, if the
  /// script knows the text, at its own cost in time. The script outlives the engine.
  void replay_drafts(const ReplayScript& script);
  /// Frees the draft model. Call before run(), with nothing live.
  void drop_draft_model();

  /// One iteration. False when there was nothing to compute (the caller may then wait).
  bool step();
  /// Steps until a Stop, or until a Drain has emptied it; uses no CPU while idle.
  void run();

  const models::ModelInfo& model_info() const;
  int32_t context_length() const;
  /// Device memory by part; what was allocated or reserved is exactly this.
  const MemoryPlan& memory_plan() const;
  /// The layout under which a store keeps this engine's blocks.
  KvLayout kv_layout() const;
  /// Bytes of KV pools.
  uint64_t kv_bytes() const;
  EngineSnapshot snapshot() const;  ///< engine thread, or no thread running
  /// The interface by which a dashboard turns records on and receives them
  /// (engine/steps/step_record.h).
  WatchPort& watch_port();
  /// How often something was recorded for a dashboard; grows only while records are on.
  uint64_t watch_calls() const;
  /// Stops the process when free + used + cached differs from the pool, or a reference count from
  /// the references there are. For tests and idle moments.
  void check_integrity() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hearth::engine
