// How the models share memory: which fit next to each other, what KV pools give back for others,
// and which model leaves.

#include <algorithm>
#include <utility>

#include "daemon/broker/residency/pool_shares.h"
#include "daemon/broker/residency/residency.h"
#include "kernels/base/log.h"
#include "kernels/base/numbers.h"

namespace hearth::broker {
namespace {

/// Time that idle pools get to give memory back before a model is unloaded instead. Milliseconds
/// are enough unless the machine is so busy that their workers do not run; loading the model again
/// would then take far longer than this.
constexpr int64_t kReclaimUs = 5'000'000;
/// Less memory than this may be too little for any block.
constexpr uint64_t kLeastRoom = 32 << 20;
/// Without a budget, so much of the memory that is free now is left to other programs.
constexpr uint64_t kFreeShare = 8;

PoolUse pool_of(const Residency::Resident& resident, bool idle) {
  const ipc::WorkerSnapshot& snapshot = resident.worker->snapshot();
  return {.floor_bytes = resident.plan->kv_floor_bytes,
          .reserved_bytes = resident.plan->kv_bytes,
          .backed_bytes = snapshot.kv_backed_bytes,
          .idle = idle,
          .is_short = snapshot.kv_short,
          .last_used_us = resident.last_used_us};
}

}  // namespace

// ---- What models take --------------------------------------------------------------------------

uint64_t Residency::needed_bytes(const Resident& resident) const {
  if (!resident.plan) {
    // Before a worker has read the file: at least the weights' size in it.
    const WorkerConfig settings = config_.worker_of(resident.file.name);
    if (settings.mapping == "memory") return resident.file.bytes;
    return std::min(resident.file.bytes, narrow<uint64_t>(settings.weight_bytes));
  }
  const bool sleeps = resident.worker != nullptr && resident.worker->is_asleep();
  const uint64_t pool_bytes =
      sleeps ? pool_of(resident, true).taken_bytes() : resident.plan->kv_floor_bytes;
  return resident.plan->weight_bytes + resident.plan->other_bytes + pool_bytes;
}

uint64_t Residency::taken_bytes(const Resident& resident) const {
  if (!has_pools(resident)) return needed_bytes(resident);
  uint64_t adapter_bytes = 0;
  for (const ipc::AdapterUse& adapter : resident.worker->snapshot().adapters) {
    adapter_bytes += adapter.bytes;
  }
  const uint64_t weight_bytes =
      resident.plan->weight_bytes -
      std::min(resident.plan->weight_bytes, resident.worker->put_off_bytes());
  return weight_bytes + resident.plan->other_bytes + adapter_bytes +
         pool_of(resident, false).taken_bytes();
}

uint64_t Residency::memory_bytes(const Resident& resident) const {
  return resident.plan ? taken_bytes(resident) : 0;
}

bool Residency::has_pools(const Resident& resident) const {
  return resident.plan && resident.worker != nullptr && resident.worker->facts() != nullptr;
}

MemoryBudget::InUse Residency::taken_by_others(const Resident* resident) const {
  MemoryBudget::InUse taken;
  for (const auto& [name, other] : residents_) {
    if (other.worker == nullptr || &other == resident) continue;
    const uint64_t bytes = taken_bytes(other);
    taken.bytes += bytes;
    if (other.worker->is_ready()) continue;
    const double to_come = 1.0 - other.worker->load_share();
    taken.to_come_bytes += static_cast<uint64_t>(as_double(bytes) * to_come);
  }
  return taken;
}

bool Residency::has_room(const Resident& wanted) const {
  // If it does not fit alone it never will: the worker fails.
  if (num_running() == (wanted.worker != nullptr ? 1 : 0)) return true;
  return !is_full(wanted) && budget_.fits(needed_bytes(wanted), taken_by_others(&wanted));
}

// As many models as allowed have a worker, without the wanted one.
bool Residency::is_full(const Resident& wanted) const {
  if (wanted.worker != nullptr) return false;
  return std::cmp_greater_equal(num_running(), config_.limits.max_resident);
}

// ---- KV pools ----------------------------------------------------------------------------------

// Sets the bounds of all pools.
void Residency::share_memory() {
  std::vector<Resident*> residents;
  std::vector<PoolUse> pools;
  for (auto& [name, resident] : residents_) {
    if (!has_pools(resident)) continue;
    residents.push_back(&resident);
    pools.push_back(pool_of(resident, !in_use(name)));
  }
  if (pools.empty()) return;
  uint64_t left = budget_.room(taken_by_others(nullptr));
  if (budget_.budget_bytes() == 0 && left != UINT64_MAX) left -= left / kFreeShare;
  left -= std::min(left, waiting_bytes_);
  const bool pressed = budget_.pressed();
  const std::vector<uint64_t> bounds =
      share_pools(pools, pressed ? 0 : left, pressed ? UINT64_MAX : reclaim_bytes_);
  for (size_t i = 0; i < pools.size(); ++i) {
    uint64_t& sent = residents[i]->kv_bound_bytes;
    const bool raised =
        bounds[i] > sent + sent / 8 || bounds[i] == pools[i].reserved_bytes || pools[i].is_short;
    if (bounds[i] == sent || (bounds[i] > sent && !raised)) continue;
    sent = bounds[i];
    residents[i]->worker->send_kv_bound(sent);
  }
}

// True if idle pools will give back so much, or are about to. They get a moment for it.
bool Residency::reclaim(uint64_t bytes) {
  uint64_t spare = 0;
  for (const auto& [name, resident] : residents_) {
    if (!has_pools(resident)) continue;
    spare += pool_of(resident, !in_use(name)).spare_bytes();
  }
  if (spare == 0 || spare < bytes) return false;
  const int64_t now_us = clock_.now_us();
  if (reclaim_since_us_ == 0) reclaim_since_us_ = now_us;
  return now_us - reclaim_since_us_ < kReclaimUs;
}

// Requests of this model wait for blocks, and nothing is computed: the room comes from others.
Residency::Resident* Residency::stalled() {
  Resident* out = nullptr;
  for (auto& [name, resident] : residents_) {
    if (!has_pools(resident) || !resident.worker->snapshot().kv_stalled) continue;
    if (resident.worker->state() == Worker::State::kEnding) continue;
    if (out == nullptr || resident.ready_since_us < out->ready_since_us) out = &resident;
  }
  return out;
}

void Residency::on_worker_short(Worker&) { share_memory(); }

// ---- Which model leaves ------------------------------------------------------------------------

// Makes room for a model that waits to be loaded, or for requests of one that are stalled: idle
// pools give memory back, and if that is not enough, models are unloaded one at a time, because the
// memory of one may be enough.
void Residency::mind_memory(Resident* waiting) {
  waiting_bytes_ = reclaim_bytes_ = 0;
  if (waiting != nullptr) {
    waiting_bytes_ = needed_bytes(*waiting);
    const uint64_t room = budget_.room(taken_by_others(waiting));
    const uint64_t missing = waiting_bytes_ - std::min(waiting_bytes_, room);
    if (!is_full(*waiting) && reclaim(missing)) {
      reclaim_bytes_ = missing;
    } else {
      make_room(*waiting);
    }
    return share_memory();
  }
  Resident* const starved = stalled();
  if (starved == nullptr || budget_.room(taken_by_others(nullptr)) > kLeastRoom) {
    reclaim_since_us_ = 0;
  } else if (reclaim(1)) {
    reclaim_bytes_ = UINT64_MAX;
  } else {
    make_room(*starved);
  }
  share_memory();
}

void Residency::make_room(const Resident& wanted) {
  for (const auto& [name, resident] : residents_) {
    if (&resident == &wanted || resident.worker == nullptr) continue;
    if (!resident.worker->is_leaving()) continue;
    leave(resident);
    return;
  }
  Resident* leaving = who_leaves_for(wanted);
  if (leaving == nullptr) return;
  log_info("model_unload", "model={} why=room for={}", leaving->file.name, wanted.file.name);
  leaving->parked = true;
  leaving->worker->drain();
  leave(*leaving);
}

// Requests that wait for memory would never end: they go on when the model is loaded again.
void Residency::leave(const Resident& resident) {
  Worker& worker = *resident.worker;
  if (worker.state() == Worker::State::kDraining && worker.snapshot().kv_stalled) worker.stop();
}

// Idle models first. Those asleep hold little, so they leave last of these, unless their number is
// what is in the way.
Residency::Resident* Residency::who_leaves_for(const Resident& wanted) {
  const int64_t now_us = clock_.now_us();
  const bool full = is_full(wanted);
  const auto rank = [full](const Resident& each) {
    return std::pair(each.worker->is_asleep() != full, each.last_used_us);
  };
  Resident* idle = nullptr;
  Resident* busy = nullptr;
  for (auto& [name, resident] : residents_) {
    if (resident.worker == nullptr || &resident == &wanted) continue;
    if (!in_use(name)) {
      if (idle == nullptr || rank(resident) < rank(*idle)) idle = &resident;
      continue;
    }
    const int64_t turn_us = config_.residency.turn_ms * 1000;
    const bool had_turn = wanted.insisted || now_us - resident.ready_since_us >= turn_us;
    if (!resident.worker->is_ready() || !had_turn) continue;
    if (busy == nullptr || name == wanted.replaces ||
        (busy->file.name != wanted.replaces && resident.ready_since_us < busy->ready_since_us)) {
      busy = &resident;
    }
  }
  return idle != nullptr ? idle : busy;
}

}  // namespace hearth::broker
