#pragma once
// Runs an engine in this process, stepped by the calling thread, and times its cases.

#include <map>
#include <memory>
#include <vector>

#include "daemon/worker/tools/bench/bench_case.h"
#include "engine/engine.h"
#include "kernels/base/clock.h"

namespace hearth::worker {

/// Engine settings for these cases: context and KV for the largest of them, no prefix cache.
engine::EngineConfig bench_config(const std::vector<BenchCase>& cases,
                                  const models::ModelInfo& info, kernels::KvTypes kv_type);

/// kOutOfMemory, with each part, if they do not fit into `free_bytes`.
Result<void> check_memory(uint64_t weight_bytes, uint64_t engine_bytes, uint64_t scratch_bytes,
                          uint64_t free_bytes);

class BenchRig {
 public:
  static Result<std::unique_ptr<BenchRig>> create(const engine::EngineConfig& config,
                                                  const kernels::OpTable& ops,
                                                  std::unique_ptr<models::Model> model);

  /// Seconds per step (kDecode) or of the whole prompt (kPrefill). kCancelled after a stop signal.
  Result<double> measure(const BenchCase& what);
  /// For the last case: the device's idle times between steps in which all sequences decode, in
  /// microseconds; empty if the device computes synchronously.
  const std::vector<double>& gaps_us() const { return gaps_us_; }

 private:
  BenchRig() = default;
  struct Seen {
    int64_t posted_us = 0;
    std::vector<int64_t> token_us;
  };
  void post(int32_t prompt_tokens, int32_t max_tokens);
  void cancel_all();
  Result<bool> step();

  SteadyClock clock_;
  std::unique_ptr<engine::Engine> engine_;
  int32_t vocab_size_ = 0;
  engine::RequestId next_id_ = 1;
  std::map<engine::RequestId, Seen> seen_;  // of the running case
  std::vector<double> gaps_us_;
};

}  // namespace hearth::worker
