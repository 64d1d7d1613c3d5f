#include "engine/tiers/restore_plan.h"

#include <algorithm>

namespace hearth::engine {
namespace {

constexpr double kWorthBoth = 0.8;

double compute_us(const StepCost& cost, const StoredPrefix& prefix, int32_t end_block) {
  return cost.prefill_us({prefix.first_block * prefix.block_size,
                          (end_block - prefix.first_block) * prefix.block_size});
}

double load_us(const StoredPrefix& prefix, int32_t first_block) {
  return prefix.load_us * (prefix.end_block - first_block);
}

}  // namespace

int32_t meeting_block(const StepCost& cost, const StoredPrefix& prefix) {
  // A later block takes longer to compute up to, and leaves less to load.
  int32_t low = prefix.first_block;
  int32_t high = std::max(low, prefix.end_block);
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (compute_us(cost, prefix, middle) < load_us(prefix, middle)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

RestoreWay choose_way(const StepCost& cost, const StoredPrefix& prefix) {
  const double computed = compute_us(cost, prefix, prefix.end_block);
  const double loaded = load_us(prefix, prefix.first_block);
  const int32_t meeting = meeting_block(cost, prefix);
  const double both = std::max(compute_us(cost, prefix, meeting), load_us(prefix, meeting));
  const double alone = std::min(computed, loaded);
  if (both <= kWorthBoth * alone && alone - both >= 2 * cost.decode_us(1)) {
    return RestoreWay::kBoth;
  }
  return loaded < computed ? RestoreWay::kLoad : RestoreWay::kCompute;
}

}  // namespace hearth::engine
