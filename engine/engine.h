#pragma once
// The engine: one model, one device, many sequences. A library without a socket in it.
//
// Owned and run by one thread. Others reach it through the two mailboxes only. One iteration of
// `step()`: drain the inbox -> the speculator guesses -> the scheduler plans a batch ->
// model_runner fills the index buffers
// -> the model calls ops -> the sampler picks or verifies tokens -> events to the outbox. No I/O,
// no lock outside the mailboxes, no device memory taken after create(). The slow tier of the KV
// cache is another thread behind two more mailboxes (engine/tiers/).

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

struct WatchPort;

class Engine {
 public:
  /// `store`: where the slow tier is asked, null without one; its replies come as commands. It
  /// outlives the engine.
  /// Takes all device memory (pools, activations, index buffers, logits). kOutOfMemory holds the
  /// numbers; kInvalidArgument names the field. `proposer`: guesses beside lookup, before it where
  /// guessing is free; may be null.
  static Result<std::unique_ptr<Engine>> create(const EngineConfig& config, kernels::OpTable ops,
                                                std::unique_ptr<models::Model> model,
                                                const Clock& clock,
                                                std::unique_ptr<Proposer> proposer = nullptr,
                                                Mailbox<StoreCommand>* store = nullptr);
  ~Engine();

  /// Any thread. Bounded; full means kBusy.
  Mailbox<EngineCommand>& inbox();
  /// Drained by one thread; each message is what one step said. Has an eventfd.
  Mailbox<std::vector<EngineEvent>>& outbox();

  /// `check` is asked whether the weights are what they were, on the engine's thread: after each
  /// step that read some of them from the model's file, before a token of it leaves, and when the
  /// last of them has been packed. After an error nothing more is computed or stored: every request
  /// ends with it, and a ModelLostEvent says so. Before run().
  void set_weights_check(std::function<Result<void>()> check);

  /// Computes steps of a prompt of its own, so that the scheduler knows what steps of one and of
  /// several rows cost and memory is mapped before the first request. Before run(), with nothing
  /// live; leaves no trace in the cache, the counters and the outbox. Not `at_once`, and where no
  /// draft is to be judged, run() does it in its first idle moment, so that the first token after a
  /// load does not wait for it.
  void warm_up(bool at_once = true);
  /// What run() does in an idle moment. Ends, to be tried again, where a command waits; true: done,
  /// or not to be had (no free blocks).
  bool measure_costs();

  /// Expected speed over plain decoding, of one sequence by the proposer that computes, were each
  /// guess right with that chance; from what the warm-up measured. 1: it does not pay, or there is
  /// none.
  double draft_gain(double chance) const;
  /// What a step of so many decode rows was measured to take, in us.
  double step_us(int32_t rows) const;
  /// What was learned of costs, and what an earlier engine learned: before anything was computed.
  MeasuredCosts measured_costs() const;
  void restore_costs(const MeasuredCosts& prices);
  /// The device's idle times between steps, from now on; then those since the last call, in
  /// microseconds. None where a device computes while it is called.
  void time_gaps();
  std::vector<double> take_gaps();
  /// Frees the proposer that computes. Before run(), with nothing live.
  void drop_paid_proposer();

  /// One iteration. False when there was nothing to compute (the caller may then wait).
  bool step();
  /// Steps until a Stop, or until a Drain has emptied it; waits while idle, using no CPU.
  void run();

  const models::ModelInfo& model_info() const;
  int32_t context_length() const;
  /// Device memory by part; what was allocated is exactly this.
  const MemoryPlan& memory_plan() const;
  /// What a store of this engine's blocks keeps.
  KvLayout kv_layout() const;
  /// Bytes of KV pools.
  uint64_t kv_bytes() const;
  EngineSnapshot snapshot() const;  ///< engine thread, or no thread running
  /// What a dashboard is told (engine/steps/step_record.h), by snapshots that come while it is
  /// wanted.
  WatchPort& watch_port();
  /// Times that something was recorded for it; grows only while it is wanted.
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
