#include "engine/store/ram_store.h"

#include <algorithm>
#include <utility>

#include "kernels/base/numbers.h"

namespace hearth::engine {
namespace {

constexpr size_t kMaxSpareEntries = 4;
/// Pinned chunks to ask the database for: at least as many as memory may hold.
constexpr size_t kMaxPins = 1 << 16;
/// Charged for a chunk in addition to its bytes.
constexpr uint64_t kChunkOverhead = 512;

}  // namespace

RamStore::RamStore(KvLayout layout, uint64_t budget_bytes, std::unique_ptr<BlockStore> below)
    : layout_(std::move(layout)),
      chunk_blocks_(layout_.chunk_blocks()),
      budget_bytes_(budget_bytes),
      below_(std::move(below)),
      published_(CacheTier::kHost, layout_) {
  own_.ram_budget_bytes = budget_bytes;
}

NamedChain RamStore::name(Chain chain) const {
  if (below_ != nullptr) return below_->name(std::move(chain));
  return name_chain(std::move(chain), layout_.block_size);
}

// ---- Lookup --------------------------------------------------------------------------------

/// Blocks of the chunk, up to block `max_blocks` of the chain, whose tokens and all tokens before
/// them are the chain's.
int32_t RamStore::common_blocks(const Kept& kept, const NamedChain& chain, int32_t max_blocks,
                                Compared* last) const {
  if (kept.root != chain.chain.root) return 0;
  if (last->tokens != kept.tokens.get()) {
    const std::vector<int32_t>& ours = *kept.tokens;
    const std::vector<int32_t>& theirs = chain.chain.tokens;
    const auto parted = std::ranges::mismatch(ours, theirs).in1;
    *last = {&ours, narrow<int32_t>(parted - ours.begin()) / layout_.block_size};
  }
  const int32_t first = kept.shape.index * chunk_blocks_;
  const int32_t end =
      std::min({first + kept.shape.num_blocks, max_blocks, chain.num_blocks(), last->blocks});
  return std::max(0, end - first);
}

Result<std::vector<FoundChunk>> RamStore::find(const NamedChain& chain, int32_t first_block,
                                               int32_t max_blocks) {
  std::vector<FoundChunk> out;
  Compared compared;
  ++uses_;
  int32_t whole = first_block;  // up to here all groups are present
  for (int32_t index = first_block / chunk_blocks_;
       index * chunk_blocks_ < std::min(max_blocks, chain.num_blocks()); ++index) {
    const int32_t first = index * chunk_blocks_;
    const Hash128& front = chain.names[first];
    const auto [begin, end] = by_front_.equal_range(front);
    for (auto at = begin; at != end; ++at) {
      const Kept& kept = kept_.at(at->second);
      const int32_t common = common_blocks(kept, chain, max_blocks, &compared);
      if (kept.shape.index != index || common == 0) continue;
      if (kept.shape.is_state(layout_) && common < kept.shape.num_blocks) continue;
      FoundChunk found{at->second, kept.shape, kept.data.size};
      found.shape.num_blocks = common;
      bool all = true;
      for (uint64_t& mask : found.shape.present) {
        mask &= low_bits(common);
        all = all && mask == low_bits(common);
      }
      if (all && first <= whole) whole = std::max(whole, first + common);
      out.push_back(std::move(found));
    }
  }
  for (const FoundChunk& found : out) use(found.row);
  if (below_ == nullptr || whole >= max_blocks) return out;
  Result<std::vector<FoundChunk>> more = below_->find(chain, first_block, max_blocks);
  // Of several chunks with the same blocks, the first is used: the one in memory.
  if (more.ok()) std::ranges::move(*more, std::back_inserter(out));
  std::ranges::stable_sort(out, {}, [this](const FoundChunk& chunk) {
    return std::pair(chunk.shape.index, chunk.shape.is_state(layout_));
  });
  return out;
}

Result<ChunkData> RamStore::load(const NamedChain& chain, FoundChunk* found) {
  if (found->row >= 0) {
    if (below_ == nullptr) return Error::not_found("no such chunk");
    if (!spare_.empty()) {
      below_->recycle(std::move(spare_.back()));
      spare_.pop_back();
    }
    Result<ChunkData> data = below_->load(chain, found);
    if (data.ok()) keep(chain, found->shape, data->span());
    return data;
  }
  const auto at = kept_.find(found->row);
  if (at == kept_.end()) return Error::not_found("the chunk was evicted");
  const ChunkData& from = at->second.data;
  const auto fits = std::ranges::find_if(
      spare_, [&](const ChunkData& spare) { return spare.capacity >= from.size; });
  ChunkData data;
  if (fits != spare_.end()) {
    data = std::move(*fits);
    spare_.erase(fits);
    data.size = from.size;
  } else {
    data = ChunkData::of_size(from.size);
  }
  std::copy_n(from.bytes.get(), from.size, data.bytes.get());
  found->shape = at->second.shape;
  ++own_.ram_loaded;
  return data;
}

// ---- Keeping --------------------------------------------------------------------------------

Result<void> RamStore::save(std::span<const ChunkToSave> chunks) {
  for (const ChunkToSave& chunk : chunks) keep(*chunk.chain, *chunk.shape, chunk.data);
  return below_ == nullptr ? Result<void>() : below_->save(chunks);
}

void RamStore::keep(const NamedChain& chain, const ChunkShape& shape,
                    std::span<const std::byte> data) {
  const int32_t first = shape.index * chunk_blocks_;
  const int32_t end = first + shape.num_blocks;
  // If only a part of the chunk was found, its other tokens are not known.
  if (shape.num_blocks <= 0 || end > chain.num_blocks()) return;
  const Hash128& front = chain.names[first];
  std::vector<int64_t> covered;
  Compared compared;
  const auto [begin, last] = by_front_.equal_range(front);
  for (auto at = begin; at != last; ++at) {
    const Kept& other = kept_.at(at->second);
    if (other.shape.index != shape.index) continue;
    const int32_t common = common_blocks(other, chain, end, &compared);
    const auto within = [&](const ChunkShape& small, const ChunkShape& large) {
      if (common < small.num_blocks) return false;
      return std::ranges::equal(small.present, large.present,
                                [](uint64_t a, uint64_t b) { return (a & ~b) == 0; });
    };
    if (within(shape, other.shape)) return use(at->second);
    if (within(other.shape, shape)) covered.push_back(at->second);
  }
  for (const int64_t row : covered) forget(row);

  const uint64_t token_bytes = sizeof(int32_t) * end * layout_.block_size;
  const uint64_t bytes = data.size() + token_bytes + kChunkOverhead;
  Kept kept;
  kept.tokens = shared_tokens(chain.chain.tokens);
  if (!make_room(bytes)) return;
  kept.front = front;
  kept.last = chain.names[end];
  kept.pinned = pins_.contains(kept.last);
  kept.root = chain.chain.root;
  kept.owner = chain.chain.owner;
  kept.shape = shape;
  kept.data = memory_for(data.size());
  std::ranges::copy(data, kept.data.bytes.get());
  kept.bytes = bytes;
  kept.use = uses_;
  const int64_t row = next_row_--;
  Owner& owner = owners_[kept.owner];
  owner.of(kept).insert(place_of(row, kept));
  owner.bytes += bytes;
  if (kept.pinned) own_.ram_pinned_bytes += bytes;
  by_front_.emplace(front, row);
  kept_.emplace(row, std::move(kept));
  published_.added(row, chain, shape);
  own_.ram_bytes += bytes;
  ++own_.ram_chunks;
}

void RamStore::use(int64_t row) {
  Kept& kept = kept_.at(row);
  std::set<Place>& order = owners_.at(kept.owner).of(kept);
  order.erase(place_of(row, kept));
  kept.use = uses_;
  order.insert(place_of(row, kept));
}

bool RamStore::make_room(uint64_t bytes) {
  while (own_.ram_bytes + bytes > budget_bytes_) {
    const auto most_of = [this](std::set<Place> Owner::*places) {
      const std::set<Place>* found = nullptr;
      uint64_t most = 0;
      for (const auto& [name, owner] : owners_) {
        if ((owner.*places).empty() || owner.bytes <= most) continue;
        most = owner.bytes;
        found = &(owner.*places);
      }
      return found;
    };
    const std::set<Place>* places = most_of(&Owner::order);
    if (places == nullptr) places = most_of(&Owner::pinned);
    if (places == nullptr) return false;
    // The beginning of a chain is more useful than its end, and found chunks will be loaded.
    const Place first = *places->begin();
    if (first.use == uses_) return false;
    ++own_.ram_evicted;
    forget(first.row);
  }
  return true;
}

void RamStore::set_pinned(int64_t row, Kept& kept, bool pinned) {
  if (kept.pinned == pinned) return;
  Owner& owner = owners_.at(kept.owner);
  owner.of(kept).erase(place_of(row, kept));
  kept.pinned = pinned;
  owner.of(kept).insert(place_of(row, kept));
  own_.ram_pinned_bytes += pinned ? kept.bytes : -kept.bytes;
}

// Pins come from requests and from `hearth cache pin` in another process, and expire: only the
// database knows all of them.
void RamStore::learn_pins() {
  if (below_ == nullptr || kept_.empty()) return;
  pins_.clear();
  for (const PinnedChunk& chunk : below_->pinned(kMaxPins)) pins_.insert(chunk.last);
  for (auto& [row, kept] : kept_) set_pinned(row, kept, pins_.contains(kept.last));
}

void RamStore::forget(int64_t row) {
  const auto at = kept_.find(row);
  const auto owner = owners_.find(at->second.owner);
  owner->second.of(at->second).erase(place_of(row, at->second));
  owner->second.bytes -= at->second.bytes;
  if (owner->second.bytes == 0) owners_.erase(owner);
  if (at->second.pinned) own_.ram_pinned_bytes -= at->second.bytes;
  const auto [begin, end] = by_front_.equal_range(at->second.front);
  by_front_.erase(std::find_if(begin, end, [row](const auto& e) { return e.second == row; }));
  own_.ram_bytes -= at->second.bytes;
  --own_.ram_chunks;
  freed_ = std::move(at->second.data);
  kept_.erase(at);
  published_.removed(row);
}

RamStore::Tokens RamStore::shared_tokens(const std::vector<int32_t>& tokens) {
  if (last_tokens_ == nullptr || *last_tokens_ != tokens) {
    last_tokens_ = std::make_shared<const std::vector<int32_t>>(tokens);
    ++uses_;
  }
  return last_tokens_;
}

ChunkData RamStore::memory_for(size_t bytes) {
  ChunkData out = std::exchange(freed_, {});
  // A much larger buffer would hold memory that no owner is charged for.
  if (out.capacity < bytes || out.capacity > bytes + bytes / 8) out = ChunkData::of_size(bytes);
  out.size = bytes;
  return out;
}

// ---- The rest -------------------------------------------------------------------------------

Result<bool> RamStore::touch(const NamedChain& chain, int32_t index, int32_t num_blocks,
                             ChunkKind kind) {
  const int32_t first = index * chunk_blocks_;
  if (first + num_blocks > chain.num_blocks()) return false;
  bool here = false;
  Compared compared;
  const auto [begin, end] = by_front_.equal_range(chain.names[first]);
  for (auto at = begin; at != end; ++at) {
    const Kept& kept = kept_.at(at->second);
    if (kept.shape.kind(layout_) != kind) continue;
    if (kind == ChunkKind::kState && kept.shape.num_blocks != num_blocks) continue;
    if (common_blocks(kept, chain, first + num_blocks, &compared) < num_blocks) continue;
    use(at->second);
    here = true;
  }
  Result<bool> below = false;
  if (below_ != nullptr) below = below_->touch(chain, index, num_blocks, kind);
  // The engine may offer it again.
  if (!here && !(below.ok() && *below)) ++epoch_;
  return here || (below.ok() && *below);
}

Result<int32_t> RamStore::pin(const NamedChain& chain, int32_t num_blocks, int64_t seconds) {
  if (below_ == nullptr) return 0;
  Result<int32_t> pinned = below_->pin(chain, num_blocks, seconds);
  learn_pins();
  return pinned;
}

std::vector<PinnedChunk> RamStore::pinned(size_t limit) {
  return below_ == nullptr ? std::vector<PinnedChunk>{} : below_->pinned(limit);
}

void RamStore::recycle(ChunkData spare) {
  if (spare.bytes != nullptr && spare_.size() < kMaxSpareEntries)
    spare_.push_back(std::move(spare));
}

std::vector<CacheEvent> RamStore::take_events() {
  std::vector<CacheEvent> events = published_.take_events();
  if (below_ != nullptr) std::ranges::move(below_->take_events(), std::back_inserter(events));
  return events;
}

void RamStore::tick() {
  if (below_ != nullptr) below_->tick();
  learn_pins();
}

StoreStats RamStore::stats() const {
  StoreStats out = below_ == nullptr ? StoreStats{} : below_->stats();
  out.ram_budget_bytes = own_.ram_budget_bytes;
  out.ram_bytes = own_.ram_bytes;
  out.ram_pinned_bytes = own_.ram_pinned_bytes;
  out.ram_chunks = own_.ram_chunks;
  out.ram_loaded = own_.ram_loaded;
  out.ram_evicted = own_.ram_evicted;
  out.chunks_loaded += own_.ram_loaded;
  out.epoch += epoch_;
  return out;
}

}  // namespace hearth::engine
