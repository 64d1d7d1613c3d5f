#pragma once
// The buffers of one step that the host and the device share: the index to be sent to the device,
// the parameters of draws and the tokens drawn. A device with more work in its queue may still use
// them, so they are written again only when the step's mark has ended. Owned by the engine thread.

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/kv/memory_plan.h"
#include "engine/scheduling/scheduler.h"
#include "kernels/ops.h"
#include "kernels/ops/draw.h"

namespace hearth::engine {

/// The result to fetch of an output row.
struct RowWish {
  enum class Kind {
    kLogits,  ///< all of them
    kToken,   ///< a token drawn by `draw`
    kBest,    ///< the best logits
  };
  Kind kind = Kind::kLogits;
  kernels::DrawRow draw;
};

/// What a device computes for a row that is drawn with these parameters, without sample and
/// position; nothing if the host needs all logits.
std::optional<RowWish> device_wish(const SamplingParams& params, int32_t vocab_size);

struct StepBuffers {
  /// The row's sequence; still valid if the sequence is gone and another has its address.
  struct RowOf {
    uint64_t arrival = 0;
    int32_t sample = 0;
    int32_t position = 0;
    bool operator==(const RowOf&) const = default;
  };

  StepBuffers() = default;
  /// `draws`: with buffers for tokens that the device picks.
  StepBuffers(const kernels::OpTable& ops, const MemoryPlan& plan, bool draws);
  /// Whether the device can reach all of this memory.
  bool page_locked() const;

  kernels::HostBuffer index;                   ///< laid out as the device's
  kernels::HostBuffer draw_rows, drawn, best;  ///< per output row
  kernels::HostBuffer fed_rows;  ///< of a step launched ahead, per row: FeedArgs::rows
  std::vector<RowWish> wishes;   ///< empty: all logits are on the host
  std::vector<RowOf> rows;       ///< of a step launched ahead
  kernels::BatchIndex batch;
  bool of_draft = false;  ///< the step is one of the draft layer
  uint64_t mark = 0;      ///< after the step; 0: there is none, or nothing has to wait
  /// If steps are timed: before and after the step, by the device's clock.
  uint64_t begin_stamp = 0;
  uint64_t end_stamp = 0;
};

}  // namespace hearth::engine
