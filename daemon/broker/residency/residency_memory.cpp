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

uint64_t part_of(uint64_t bytes, double share) {
  return share == 1 ? bytes : static_cast<uint64_t>(as_double(bytes) * share);
}

/// The part of a pool that is in one budget.
PoolUse part_of(PoolUse pool, double share) {
  for (uint64_t* bytes : {&pool.floor_bytes, &pool.reserved_bytes, &pool.backed_bytes}) {
    *bytes = part_of(*bytes, share);
  }
  return pool;
}

}  // namespace

// ---- What models take --------------------------------------------------------------------------

// Of a model in stages, the part on devices with this budget.
uint64_t Residency::stage_bytes(const Resident& resident, const Budget& budget,
                                uint64_t pool_bytes) const {
  uint64_t bytes = 0;
  for (const ipc::StageUse& stage : resident.plan->stages) {
    if (&budget_at(stage.device) == &budget) bytes += stage.weight_bytes + stage.other_bytes;
  }
  return bytes + part_of(pool_bytes, kv_share(resident, budget));
}

double Residency::kv_share(const Resident& resident, const Budget& budget) const {
  if (resident.file.stages.empty()) return 1;
  uint64_t bytes = 0;
  for (const ipc::StageUse& stage : resident.plan->stages) {
    if (&budget_at(stage.device) == &budget) bytes += stage.kv_bytes;
  }
  return as_double(bytes) / as_double(std::max<uint64_t>(resident.plan->kv_bytes, 1));
}

uint64_t Residency::needed_in(const Resident& resident, const Budget& budget) const {
  const std::vector<const Budget*> budgets = budgets_of(resident);
  if (std::ranges::count(budgets, &budget) == 0) return 0;
  if (resident.file.stages.empty()) return needed_bytes(resident);
  if (!resident.plan) return needed_bytes(resident) / budgets.size();
  return stage_bytes(resident, budget, resident.plan->kv_floor_bytes);
}

uint64_t Residency::taken_in(const Resident& resident, const Budget& budget) const {
  if (resident.file.stages.empty() && uses(resident, budget)) return taken_bytes(resident);
  if (!has_pools(resident)) return needed_in(resident, budget);
  return stage_bytes(resident, budget, pool_of(resident, false).taken_bytes());
}

uint64_t Residency::needed_bytes(const Resident& resident) const {
  if (!resident.plan) {
    // Before a worker has read the file: at least the weights' size in it.
    const WorkerConfig settings = config_.worker_of(resident.file.model());
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

const Residency::Budget& Residency::budget_at(const std::string& device) const {
  const auto own = budgets_.find(device);
  return own == budgets_.end() ? shared_ : own->second;
}

Residency::Budget& Residency::budget_at(const std::string& device) {
  const auto own = budgets_.find(device);
  return own == budgets_.end() ? shared_ : own->second;
}

std::vector<const Residency::Budget*> Residency::budgets_of(const Resident& resident) const {
  if (resident.file.stages.empty()) return {&budget_at(resident.file.device)};
  std::vector<const Budget*> out;
  for (const std::string& device : resident.file.stages) {
    const Budget* budget = &budget_at(device);
    if (std::ranges::count(out, budget) == 0) out.push_back(budget);
  }
  return out;
}

bool Residency::uses(const Resident& resident, const Budget& budget) const {
  return std::ranges::count(budgets_of(resident), &budget) > 0;
}

uint64_t Residency::budget_bytes(const Resident& resident) const {
  if (!resident.file.stages.empty()) return 0;
  const Budget& budget = budget_at(resident.file.device);
  return &budget == &shared_ ? 0 : budget.memory.budget_bytes();
}

MemoryBudget::InUse Residency::taken_by_others(const Budget& budget,
                                               const Resident* resident) const {
  MemoryBudget::InUse taken;
  for (const auto& [name, other] : residents_) {
    if (other.worker == nullptr || &other == resident || !uses(other, budget)) continue;
    const uint64_t bytes = taken_in(other, budget);
    taken.bytes += bytes;
    if (other.worker->is_ready()) continue;
    const double to_come = 1.0 - other.worker->load_share();
    taken.to_come_bytes += static_cast<uint64_t>(as_double(bytes) * to_come);
  }
  return taken;
}

bool Residency::has_room(const Resident& wanted) const {
  if (is_full(wanted)) return false;
  return std::ranges::all_of(budgets_of(wanted), [&](const Budget* budget) {
    const auto in_its_way = [&](const auto& entry) {
      const Resident& other = entry.second;
      return other.worker != nullptr && &other != &wanted && uses(other, *budget);
    };
    // If it does not fit alone it never will: the worker fails.
    if (std::ranges::none_of(residents_, in_its_way)) return true;
    return budget->memory.fits(needed_in(wanted, *budget), taken_by_others(*budget, &wanted));
  });
}

// As many models as allowed have a worker, without the wanted one.
bool Residency::is_full(const Resident& wanted) const {
  if (wanted.worker != nullptr) return false;
  return std::cmp_greater_equal(num_running(), config_.limits.max_resident);
}

// ---- KV pools ----------------------------------------------------------------------------------

void Residency::share_memory() {
  share_memory(shared_);
  for (auto& [name, budget] : budgets_) share_memory(budget);
}

// Sets the bounds of all pools.
void Residency::share_memory(Budget& budget) {
  std::vector<Resident*> residents;
  std::vector<PoolUse> pools;
  for (auto& [name, resident] : residents_) {
    if (!has_pools(resident) || !uses(resident, budget)) continue;
    residents.push_back(&resident);
    pools.push_back(part_of(pool_of(resident, !in_use(name)), kv_share(resident, budget)));
  }
  if (pools.empty()) return;
  uint64_t left = budget.memory.room(taken_by_others(budget, nullptr));
  if (budget.memory.budget_bytes() == 0 && left != UINT64_MAX) left -= left / kFreeShare;
  left -= std::min(left, budget.waiting_bytes);
  const bool pressed = budget.memory.pressed();
  const std::vector<uint64_t> bounds =
      share_pools(pools, pressed ? 0 : left, pressed ? UINT64_MAX : budget.reclaim_bytes);
  for (size_t i = 0; i < pools.size(); ++i) {
    Resident& resident = *residents[i];
    const uint64_t bound = bound_in(resident, budget, bounds[i]);
    uint64_t& sent = resident.kv_bound_bytes;
    const bool raised =
        bound > sent + sent / 8 || bound == resident.plan->kv_bytes || pools[i].is_short;
    if (bound == sent || (bound > sent && !raised)) continue;
    sent = bound;
    resident.worker->send_kv_bound(sent);
  }
}

// The bound of the resident's pool. All stages take KV together, so the tightest budget decides.
uint64_t Residency::bound_in(Resident& resident, const Budget& budget, uint64_t bytes) const {
  if (resident.file.stages.empty()) return bytes;
  uint64_t bound = resident.plan->kv_bytes;
  const double here = kv_share(resident, budget) * as_double(bound);
  resident.stage_bounds[&budget.memory] =
      part_of(bound, here > 0 ? std::min(1.0, as_double(bytes) / here) : 1);
  for (const auto& [other, most_bytes] : resident.stage_bounds) bound = std::min(bound, most_bytes);
  return bound;
}

// True if idle pools will give back so much, or are about to. They get a moment for it.
bool Residency::reclaim(Budget& budget, uint64_t bytes) {
  uint64_t spare = 0;
  for (const auto& [name, resident] : residents_) {
    if (!has_pools(resident) || !uses(resident, budget)) continue;
    spare += part_of(pool_of(resident, !in_use(name)), kv_share(resident, budget)).spare_bytes();
  }
  if (spare == 0 || spare < bytes) return false;
  const int64_t now_us = clock_.now_us();
  if (budget.reclaim_since_us == 0) budget.reclaim_since_us = now_us;
  return now_us - budget.reclaim_since_us < kReclaimUs;
}

// Requests of this model wait for blocks, and nothing is computed: the room comes from others.
Residency::Resident* Residency::stalled(const Budget& budget) {
  Resident* out = nullptr;
  for (auto& [name, resident] : residents_) {
    if (!has_pools(resident) || !resident.worker->snapshot().kv_stalled) continue;
    if (resident.worker->state() == Worker::State::kEnding) continue;
    if (!uses(resident, budget)) continue;
    if (out == nullptr || resident.ready_since_us < out->ready_since_us) out = &resident;
  }
  return out;
}

void Residency::on_worker_short(Worker&) { share_memory(); }

// ---- Which model leaves ------------------------------------------------------------------------

// Makes room for a model that waits to be loaded, or for requests of one that are stalled: idle
// pools give memory back, and if that is not enough, models are unloaded one at a time, because the
// memory of one may be enough.
void Residency::mind_memory(Budget& budget, Resident* waiting) {
  budget.waiting_bytes = budget.reclaim_bytes = 0;
  if (waiting != nullptr) {
    budget.waiting_bytes = needed_in(*waiting, budget);
    const uint64_t room = budget.memory.room(taken_by_others(budget, waiting));
    const uint64_t missing = budget.waiting_bytes - std::min(budget.waiting_bytes, room);
    if (missing > 0 && !is_full(*waiting) && reclaim(budget, missing)) {
      budget.reclaim_bytes = missing;
    } else if (missing > 0 || is_full(*waiting)) {
      make_room(*waiting, budget);
    }
    return share_memory(budget);
  }
  Resident* const starved = stalled(budget);
  if (starved == nullptr || budget.memory.room(taken_by_others(budget, nullptr)) > kLeastRoom) {
    budget.reclaim_since_us = 0;
  } else if (reclaim(budget, 1)) {
    budget.reclaim_bytes = UINT64_MAX;
  } else {
    make_room(*starved, budget);
  }
  share_memory(budget);
}

/// Its end would help: it holds memory of this budget, or one of the places.
bool Residency::gives_room(const Resident& resident, const Resident& wanted,
                           const Budget& budget) const {
  if (&resident == &wanted || resident.worker == nullptr) return false;
  return is_full(wanted) || uses(resident, budget);
}

void Residency::make_room(const Resident& wanted, const Budget& budget) {
  for (const auto& [name, resident] : residents_) {
    if (!gives_room(resident, wanted, budget) || !resident.worker->is_leaving()) continue;
    leave(resident);
    return;
  }
  Resident* leaving = who_leaves_for(wanted, budget);
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
Residency::Resident* Residency::who_leaves_for(const Resident& wanted, const Budget& budget) {
  const int64_t now_us = clock_.now_us();
  const bool full = is_full(wanted);
  const auto rank = [full](const Resident& each) {
    return std::pair(each.worker->is_asleep() != full, each.last_used_us);
  };
  Resident* idle = nullptr;
  Resident* busy = nullptr;
  for (auto& [name, resident] : residents_) {
    if (!gives_room(resident, wanted, budget)) continue;
    if (!in_use(name)) {
      if (idle == nullptr || rank(resident) < rank(*idle)) idle = &resident;
      continue;
    }
    const int64_t turn_us = config_.residency.turn_ms * 1000;
    const bool had_turn = wanted.insisted || now_us - resident.ready_since_us >= turn_us;
    if (!resident.worker->is_ready() || !had_turn) continue;
    const std::string& model = resident.file.model();
    if (busy == nullptr || model == wanted.replaces ||
        (busy->file.model() != wanted.replaces && resident.ready_since_us < busy->ready_since_us)) {
      busy = &resident;
    }
  }
  return idle != nullptr ? idle : busy;
}

}  // namespace hearth::broker
