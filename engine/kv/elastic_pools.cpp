#include "engine/kv/elastic_pools.h"

#include <algorithm>

namespace hearth::engine {

ElasticPools::ElasticPools(KvCache& kv, BlockMemory& memory, const MemoryPlan& plan)
    : kv_(kv),
      memory_(memory),
      plan_(plan),
      floor_(plan.floor_extents()),
      bound_bytes_(plan.kv_bytes) {
  kv_.set_memory(&memory);
}

void ElasticPools::set_bound(uint64_t bytes) {
  bound_bytes_ = std::clamp(bytes, plan_.floor_bytes(), plan_.kv_bytes);
  kv_.set_limits(plan_.extents_within(bound_bytes_));
}

}  // namespace hearth::engine
