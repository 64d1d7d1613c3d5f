#pragma once
// Converts the engine's state to messages for the broker: steps, blocks changed since the last
// message, live requests. Full block maps are sent first and then every kWholeEvery messages, so
// that a listener that lost one recovers soon. Owned by the front door.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/worker/observe/machine_meter.h"
#include "engine/steps/step_record.h"
#include "ipc/schema/watch.h"

namespace hearth::worker {

class EventsPublisher {
 public:
  static constexpr int64_t kEveryUs = 100'000;
  static constexpr uint64_t kWholeEvery = 50;

  void start();  ///< a client listens, for the first time or again
  void stop();
  bool on() const { return on_; }
  /// The gap between two messages with tokens of the same request.
  void add_gap(int64_t us);

  /// The next message, encoded. Only while on().
  std::string encode(std::shared_ptr<const engine::EngineWatch> watch);

 private:
  bool on_ = false;
  uint64_t sequence_ = 0;
  uint64_t since_whole_ = 0;                           ///< messages since the last full map
  std::shared_ptr<const engine::EngineWatch> before_;  ///< the state whose map was sent last
  std::array<uint32_t, ipc::WatchLimits::kGapBuckets> gaps_{};  ///< since the last message
  MachineMeter meter_;
};

/// The blocks of `now` that differ from `before`; if `whole`, all blocks that are not free.
std::vector<ipc::BlockRun> block_runs(const std::vector<engine::BlockCell>& before,
                                      const std::vector<engine::BlockCell>& now, bool whole);

}  // namespace hearth::worker
