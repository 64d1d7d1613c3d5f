#pragma once
// Turns what the engine tells those who watch into messages for the broker: steps, the blocks that
// changed since the last message, live requests. Whole block maps come first and every
// kWholeEvery messages, so that who lost one is right again soon. Owned by the front door.

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

  void start();  ///< somebody listens, or listens anew
  void stop();
  bool on() const { return on_; }
  /// Between two messages with tokens of one request.
  void add_gap(int64_t us);

  /// The next message, encoded. Only while on().
  std::string encode(std::shared_ptr<const engine::EngineWatch> watch);

 private:
  bool on_ = false;
  uint64_t sequence_ = 0;
  uint64_t since_whole_ = 0;                                    ///< maps
  std::shared_ptr<const engine::EngineWatch> before_;           ///< whose map was told last
  std::array<uint32_t, ipc::WatchLimits::kGapBuckets> gaps_{};  ///< since the last message
  MachineMeter meter_;
};

/// The blocks of `now` that differ from `before`; where `whole`, all that are not free.
std::vector<ipc::BlockRun> block_runs(const std::vector<engine::BlockCell>& before,
                                      const std::vector<engine::BlockCell>& now, bool whole);

}  // namespace hearth::worker
