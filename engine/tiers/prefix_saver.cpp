#include "engine/tiers/prefix_saver.h"

#include <algorithm>
#include <utility>

#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

constexpr size_t kMaxOffers = 64;
/// Bytes being sent to the store: enough to keep it busy during a long step.
constexpr uint64_t kSaveWindow = 32 << 20;

}  // namespace

PrefixSaver::PrefixSaver(StoreLink& link, KvCache& kv, ModelRunner& runner)
    : link_(link), kv_(kv), runner_(runner) {}

void PrefixSaver::offer(const Sequence& seq) {
  const Request& request = seq.request->request;
  if (!request.use_prefix_cache || !request.use_prefix_store) return;
  // Another process writes, or nothing can be written now: the next sequence that ends tries again.
  if (!link_.takes_offers()) return;
  Offer offer;
  offer.marks = kv_.marks(seq.blocks);
  if (offer.marks.empty()) return;
  if (offers_.size() >= kMaxOffers) {
    ++offers_dropped_;
    return;
  }
  offer.id = link_.new_id();
  offer.begun_blocks = seq.request->stats.cached_tokens / link_.block_size();
  for (const KeptPrefix& keep : request.kept) {
    const int32_t num_tokens = std::min(keep.num_tokens, seq.request->prompt_size());
    if (num_tokens < link_.block_size()) continue;
    offer.pins.push_back({num_tokens / link_.block_size(), keep.seconds});
  }
  offer.chain.owner = request.owner;
  offer.chain.root = scope_hash(seq.request->scope);
  offer.chain.published = kv_.published_name(seq.request->scope);
  const auto num_tokens = std::ssize(offer.marks) * link_.block_size();
  offer.chain.tokens.assign(seq.tokens.begin(), seq.tokens.begin() + num_tokens);
  offers_.push_back(std::move(offer));
}

PrefixSaver::DueChunk PrefixSaver::due_chunk(const Offer& offer) const {
  const size_t chunk_blocks = link_.chunk_blocks();
  const size_t begin = offer.next_chunk * chunk_blocks;
  const size_t count = std::min(offer.marks.size() - begin, chunk_blocks);
  const int32_t num_groups = link_.layout().num_groups();
  DueChunk due{{offer.next_chunk, 0, std::vector<uint64_t>(num_groups, 0)},
               std::span(offer.marks).subspan(begin, count)};
  ChunkShape& shape = due.shape;
  for (const NodeMark& mark : due.marks) {
    if (!kv_.alive(mark)) break;
    bool whole = true;
    for (int32_t group = 0; group < num_groups; ++group) {
      if (group == link_.layout().state_group) continue;
      const bool there = kv_.block_of(mark, group) != kNoBlock;
      whole = whole && (there || kv_.sparse(group));
      if (there) shape.present[group] |= uint64_t{1} << shape.num_blocks;
    }
    if (!whole) break;
    due.stored = due.stored && kv_.stored(mark);
    ++shape.num_blocks;
  }
  for (uint64_t& mask : shape.present) mask &= low_bits(shape.num_blocks);
  return due;
}

uint64_t PrefixSaver::send_chunk(const Offer& offer, DueChunk due, const StepCost& cost) {
  const ChunkShape& shape = due.shape;
  const KvLayout& layout = link_.layout();
  const uint64_t bytes = shape.data_bytes(layout);
  ChunkData data = link_.take_buffer();
  if (data.capacity < bytes) data = ChunkData::of_size(bytes);
  data.size = bytes;
  size_t offset = 0;
  for (int32_t i = 0; i < shape.num_blocks; ++i) {
    const NodeMark& mark = due.marks[i];
    for (int32_t group = 0; group < layout.num_groups(); ++group) {
      if (!shape.has(group, i)) continue;
      runner_.read_block(group, kv_.block_of(mark, group), data.span().subspan(offset));
      link_.record_move(group, kv_.block_of(mark, group));
      offset += layout.block_bytes[group];
    }
    kv_.set_stored(mark);
  }
  bytes_under_way_ += bytes;
  const int32_t first = shape.index * link_.chunk_blocks() * layout.block_size;
  const double recompute_us = cost.prefill_us({first, shape.num_blocks * layout.block_size});
  link_.post_after_copies(
      OfferChunk{offer.id, std::move(due.shape), std::move(data), recompute_us});
  return bytes;
}

uint64_t PrefixSaver::send_states(const Offer& offer, std::span<const NodeMark> marks) {
  const KvLayout& layout = link_.layout();
  const int32_t group = layout.state_group;
  if (group < 0) return 0;
  uint64_t sent = 0;
  for (int32_t i = 0; i < size32(marks); ++i) {
    const int32_t block = kv_.block_of(marks[i], group);
    if (kv_.state_stored(marks[i])) {
      const int32_t end = offer.next_chunk * link_.chunk_blocks() + i + 1;
      if (end != offer.begun_blocks) continue;
      link_.post_after_copies(TouchChunk{offer.id, offer.next_chunk, i + 1, ChunkKind::kState});
      continue;
    }
    if (block == kNoBlock) continue;
    ChunkShape shape{offer.next_chunk, i + 1, std::vector<uint64_t>(layout.num_groups(), 0)};
    shape.present[group] = uint64_t{1} << i;
    const uint64_t bytes = layout.block_bytes[group];
    ChunkData data = ChunkData::of_size(bytes);
    runner_.read_block(group, block, data.span());
    link_.record_move(group, block);
    kv_.set_state_stored(marks[i]);
    bytes_under_way_ += bytes;
    sent += bytes;
    link_.post_after_copies(
        OfferChunk{offer.id, std::move(shape), std::move(data), kv_.snapshot_us(marks[i])});
  }
  return sent;
}

uint64_t PrefixSaver::send_next(const StepCost& cost) {
  Offer& offer = offers_.front();
  DueChunk due = due_chunk(offer);
  const bool evicted = due.shape.num_blocks < size32(due.marks);
  uint64_t bytes = 0;
  if (due.shape.num_blocks > 0) {
    if (!std::exchange(offer.opened, true)) {
      link_.post_after_copies(OfferChain{offer.id, std::move(offer.chain)});
    }
    const std::span<const NodeMark> whole = due.marks.first(due.shape.num_blocks);
    if (link_.layout().num_groups() == 1 && link_.layout().state_group == 0) {
      // Only states, below.
    } else if (due.stored) {
      link_.post_after_copies(
          TouchChunk{offer.id, due.shape.index, due.shape.num_blocks, ChunkKind::kKv});
    } else {
      bytes = send_chunk(offer, std::move(due), cost);
    }
    bytes += send_states(offer, whole);
  }
  ++offer.next_chunk;
  const size_t next_block = offer.next_chunk * link_.chunk_blocks();
  const bool last = next_block >= offer.marks.size();
  // Blocks that follow an evicted one were evicted before it.
  if (evicted || last) {
    if (evicted) ++offers_dropped_;
    if (offer.opened) link_.post_after_copies(EndOffer{offer.id, std::move(offer.pins)});
    offers_.pop_front();
  }
  return bytes;
}

bool PrefixSaver::pump(const StepCost& cost, uint64_t max_bytes) {
  bool copied = false;
  uint64_t bytes = 0;
  while (!offers_.empty() && bytes < max_bytes && bytes_under_way_ < kSaveWindow) {
    bytes += send_next(cost);
    copied = true;
  }
  return copied;
}

void PrefixSaver::flush(const StepCost& cost, uint64_t max_bytes) {
  uint64_t bytes = 0;
  while (!offers_.empty() && bytes < max_bytes) bytes += send_next(cost);
  link_.wait_for_copies();
}

void PrefixSaver::saved(ChunkSaved& saved) {
  link_.keep_buffer(std::move(saved.spare));
  bytes_under_way_ -= std::min(bytes_under_way_, saved.bytes);
}

}  // namespace hearth::engine
