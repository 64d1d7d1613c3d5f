#pragma once
// Predicts the memory and speed of serving a model from sizes and ceilings alone: memory to the
// byte, as the engine would allocate it, and the least times for reading and computing. Plain data
// and pure arithmetic.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/worker/load/model_work.h"
#include "engine/kv/memory_plan.h"
#include "ipc/schema/worker_stats.h"
#include "kernels/base/result.h"
#include "kernels/host/ceilings.h"
#include "models/model.h"

namespace hearth::worker {

/// A rate of 0 in `ceilings` is unknown and bounds nothing.
struct PlanQuestion {
  engine::EngineConfig engine;
  uint64_t memory_bytes = 0;  ///< of the device, for weights and everything else
  /// For a device with its own memory: the reserve for the driver and captured steps, and the host
  /// memory for prefixes.
  uint64_t reserved_bytes = 0;
  uint64_t prefix_ram_bytes = 0;
  int32_t context = 1024;   ///< positions that each sequence has in the predictions
  int32_t draft_width = 4;  ///< tokens drafted per step
  double acceptance = 0.8;  ///< probability that a drafted token is accepted
  /// Of the matrices, what is held in memory; the rest is read from the file at every step.
  uint64_t most_weight_bytes = UINT64_MAX;
  double disk_bytes_per_s = 0;  ///< 0: unknown
  kernels::Ceilings ceilings;
};

/// A context length, and the number of such sequences that fit into memory next to the weights.
struct ContextFit {
  int32_t context = 0;
  uint64_t sequence_bytes = 0;  ///< KV of one sequence, in whole blocks
  int64_t sequences = 0;
  int64_t sequences_q8 = 0;  ///< with KV as Q8_0
};

/// One step, in the least time.
struct StepTime {
  double bytes = 0;    ///< read: the weights once, and each sequence's KV
  double ops = 0;      ///< operations
  double seconds = 0;  ///< 0: no rate is known
  std::string bound;   ///< "read", "int8", "f16", "f32"; empty: unknown
  double tokens = 0;   ///< tokens that it generates
  double rate() const { return seconds > 0 ? tokens / seconds : 0; }
  double intensity() const { return bytes > 0 ? ops / bytes : 0; }
};

struct DecodeForecast {
  int32_t sequences = 0;
  StepTime step;
  StepTime with_q8_kv;
  bool fits = false;  ///< whether the plan fits into memory
};

struct DraftForecast {
  double tokens_per_step = 0;  ///< per sequence, expected
  StepTime lookup;             ///< with drafts that cost nothing
  std::optional<StepTime> draft;
};

/// The weights that stay in the file.
struct FileForecast {
  uint64_t bytes = 0;
  double step_bytes = 0;          ///< what a step of one sequence reads of them, at most
  double disk_bytes_per_s = 0;    ///< 0: unknown
  double least_step_seconds = 0;  ///< 0: unknown
};

struct ServingPlan {
  uint64_t weight_bytes = 0;  ///< in memory, as packed for the device
  std::optional<FileForecast> file;
  uint64_t draft_weight_bytes = 0;
  engine::MemoryPlan memory;  ///< as computed by Engine::create
  uint64_t memory_bytes = 0;
  uint64_t reserved_bytes = 0;
  uint64_t prefix_ram_bytes = 0;
  std::vector<ipc::StageUse> stages;    ///< of a model in stages; their sums are the bytes above
  std::vector<ipc::StageUse> replicas;  ///< each has all layers, and KV as its budget permits
  bool fits = false;
  std::string refusal;  ///< why the engine would not start; empty: it would
  std::vector<ContextFit> contexts;
  double ridge =
      0;  ///< operations per byte at which computing takes as long as reading; 0: unknown
  std::vector<DecodeForecast> decode;
  StepTime prefill;  ///< of a prompt of PlanQuestion::context tokens, in steps of max_step_tokens
  DraftForecast drafts;
};

/// A model to plan with, opened with measuring_ops().
struct PlanModel {
  const models::Model* model = nullptr;
  const ModelWork* work = nullptr;
};

/// Reports insufficient memory in the plan instead of failing. kInvalidArgument if the engine's
/// configuration is invalid. `draft`: null without one.
/// Every resident weight counts as read once per step (of experts, those expected to be chosen).
/// Expected tokens per step: Leviathan et al. 2023, equation 1.
Result<ServingPlan> make_plan(const PlanModel& target, const PlanModel* draft,
                              const PlanQuestion& question);

/// Names for the header of a report.
struct PlanTitle {
  std::string model;
  std::string device;  ///< the source of the rates
};
std::string as_text(const ServingPlan& plan, const PlanTitle& title, const PlanModel& target,
                    const PlanQuestion& question);
std::string as_json(const ServingPlan& plan, const PlanTitle& title, const PlanModel& target,
                    const PlanQuestion& question);

}  // namespace hearth::worker
