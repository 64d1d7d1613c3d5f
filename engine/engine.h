#pragma once
// The engine: one model, one device, many sequences. A library without a socket in it.
//
// Owned and run by one thread. Others reach it through the two mailboxes only. One iteration of
// `step()`: drain the inbox -> the scheduler plans a batch -> model_runner fills the index buffers
// -> the model calls ops -> the sampler picks tokens -> events to the outbox. No I/O, no lock
// outside the mailboxes, no device memory taken after create().

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/request.h"
#include "kernels/base/clock.h"
#include "kernels/base/mailbox.h"
#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/model.h"

namespace hearth::engine {

enum class SchedulerPolicy {
  kContinuous,  ///< sequences join and leave at every step
  kStatic,      ///< a batch is filled, runs until all of it ends; for comparison
};

struct SchedulerConfig {
  SchedulerPolicy policy = SchedulerPolicy::kContinuous;
  int32_t max_seqs = 64;          ///< sequences running at once
  int32_t max_step_tokens = 512;  ///< rows of one step, at most
  int32_t max_queue = 256;        ///< requests waiting; more are kBusy
  bool chunked_prefill = true;    ///< false: whole prompts, governed by waiting_served_ratio
  /// As TGI defines it: a prefill pauses decode when waiting/running reaches this ratio. Only
  /// without chunked prefill.
  double waiting_served_ratio = 0.3;
  double decode_step_stretch = 3.0;    ///< a step with decode rows lasts at most so many plain ones
  int64_t prefill_step_us = 250'000;   ///< a step without decode rows lasts at most
};

struct EngineConfig {
  kernels::DType kv_type = kernels::DType::kF16;
  int32_t block_size = 16;
  /// Bytes for all KV pools; 0: enough for max_seqs half-full contexts, at most a quarter of the
  /// device's free memory. Split over layer groups in proportion to what a full context needs.
  uint64_t kv_bytes = 0;
  int32_t context_length = 0;  ///< 0: the model's
  bool prefix_cache = true;
  uint64_t seed = 0;           ///< of nothing that a client can see; tie-breaks in tests
  SchedulerConfig scheduler;
};

class Engine {
 public:
  /// Takes all device memory (pools, activations, index buffers, logits). kOutOfMemory holds the
  /// numbers; kInvalidArgument names the field.
  static Result<std::unique_ptr<Engine>> create(const EngineConfig& config, kernels::OpTable ops,
                                                std::unique_ptr<models::Model> model,
                                                const Clock& clock);
  ~Engine();

  /// Any thread. Bounded; full means kBusy.
  Mailbox<EngineCommand>& inbox();
  /// Drained by one thread; each message is what one step said. Has an eventfd.
  Mailbox<std::vector<EngineEvent>>& outbox();

  /// One iteration. False when there was nothing to compute (the caller may then wait).
  bool step();
  /// Steps until a Stop, or until a Drain has emptied it; waits while idle, using no CPU.
  void run();

  const models::ModelInfo& model_info() const;
  int32_t context_length() const;
  /// Bytes of KV pools as allocated; equals the plan.
  uint64_t kv_bytes() const;
  EngineSnapshot snapshot() const;  ///< engine thread, or no thread running
  /// Stops the process when free + used + cached differs from the pool, or a reference count from
  /// the references there are. For tests and idle moments.
  void check_integrity() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hearth::engine
