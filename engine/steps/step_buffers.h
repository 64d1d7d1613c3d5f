#pragma once
// What the host and the device share of one step: the index on its way to the device, and how
// tokens are drawn and which. A device with work queued behind the step still reads and writes
// them, so they are written again only when its mark has ended. Owned by the engine thread.

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/kv/memory_plan.h"
#include "engine/scheduling/scheduler.h"
#include "kernels/ops.h"
#include "kernels/ops/draw.h"

namespace hearth::engine {

/// What is wanted of an output row.
struct RowWish {
  enum class Kind {
    kLogits,  ///< all of them
    kToken,   ///< a token drawn as `draw` says
    kBest,    ///< the best logits
  };
  Kind kind = Kind::kLogits;
  kernels::DrawRow draw;
};

struct StepBuffers {
  /// Whose row it is, also when the sequence is gone and another is where it was.
  struct RowOf {
    uint64_t arrival = 0;
    int32_t sample = 0;
    int32_t position = 0;
    bool operator==(const RowOf&) const = default;
  };

  StepBuffers() = default;
  /// `draws`: with those for tokens that the device picks.
  StepBuffers(const kernels::OpTable& ops, const MemoryPlan& plan, bool draws);
  /// All of it is memory that the device reaches.
  bool page_locked() const;

  kernels::HostBuffer index;                   ///< laid out as the device's
  kernels::HostBuffer draw_rows, drawn, best;  ///< per output row
  kernels::HostBuffer fed_rows;  ///< of a step launched ahead, per row: FeedArgs::rows
  std::vector<RowWish> wishes;   ///< empty: all logits are on the host
  std::vector<RowOf> rows;       ///< of a step launched ahead
  kernels::BatchIndex batch;
  uint64_t mark = 0;  ///< behind it; 0: there is none, or nobody has to wait
  /// Where steps are timed: in front of it and behind it, by the device's clock.
  uint64_t begin_stamp = 0;
  uint64_t end_stamp = 0;
};

}  // namespace hearth::engine
