#include "engine/tiers/store_link.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace hearth::engine {
namespace {

constexpr size_t kMaxSpareBuffers = 8;
/// Buffers that are prepared before they are needed: fresh pages cost three times the reading.
constexpr size_t kReadyBuffers = 6;
/// Chunks on their way to or from a device, in page-locked memory. More wait for their copy.
constexpr int32_t kPieces = 24;

}  // namespace

StoreLink::StoreLink(KvLayout layout, ModelRunner& runner, Mailbox<StoreCommand>& store)
    : layout_(std::move(layout)),
      chunk_blocks_(layout_.chunk_blocks()),
      runner_(runner),
      store_(store) {
  runner_.traffic().reserve(max_chunk_bytes(), kPieces);
}

StoreLink::~StoreLink() { runner_.traffic().wait(); }

size_t StoreLink::max_chunk_bytes() const {
  const int64_t block_bytes =
      std::accumulate(layout_.block_bytes.begin(), layout_.block_bytes.end(), int64_t{0});
  return block_bytes * chunk_blocks_;
}

// ---- Commands -------------------------------------------------------------------------------

void StoreLink::post_after_copies(StoreCommand command) {
  const uint64_t mark = runner_.traffic().mark();
  if (outgoing_.empty() && runner_.traffic().ended(mark)) return post(std::move(command));
  outgoing_.push_back({mark, std::move(command)});
}

bool StoreLink::post_copied() {
  BlockTraffic& traffic = runner_.traffic();
  while (!outgoing_.empty() && traffic.ended(outgoing_.front().mark)) {
    post(std::move(outgoing_.front().what));
    outgoing_.pop_front();
  }
  while (!being_copied_.empty() && traffic.ended(being_copied_.front().mark)) {
    being_copied_.pop_front();
  }
  return !outgoing_.empty();
}

void StoreLink::wait_for_copies() {
  runner_.traffic().wait();
  post_copied();
}

// ---- Buffers --------------------------------------------------------------------------------

ChunkData StoreLink::take_buffer() {
  if (runner_.traffic().reserved()) {
    post_copied();
    return runner_.traffic().take(max_chunk_bytes());
  }
  if (spare_.empty()) return {};
  ChunkData out = std::move(spare_.back());
  spare_.pop_back();
  return out;
}

void StoreLink::keep_buffer(ChunkData buffer) {
  // Pieces of the traffic's memory return to it when they are dropped.
  if (runner_.traffic().reserved()) return;
  if (buffer.bytes != nullptr && spare_.size() < kMaxSpareBuffers) {
    spare_.push_back(std::move(buffer));
  }
}

void StoreLink::keep_buffer_after_copies(ChunkData buffer) {
  const uint64_t mark = runner_.traffic().mark();
  if (runner_.traffic().ended(mark)) return keep_buffer(std::move(buffer));
  being_copied_.push_back({mark, std::move(buffer)});
}

bool StoreLink::warm_up() {
  if (runner_.traffic().reserved() || spare_.size() >= kReadyBuffers) return false;
  ChunkData data = ChunkData::of_size(max_chunk_bytes());
  std::ranges::fill(data.span(), std::byte{0});
  spare_.push_back(std::move(data));
  return true;
}

// ---- What the store reports -----------------------------------------------------------------

bool StoreLink::take_report(StoreReport& report) {
  const bool another = reported_ && report.stats.epoch != stats_.epoch;
  stats_ = std::move(report.stats);
  reported_ = true;
  return another;
}

void StoreLink::ask_pinned() {
  if (std::exchange(pinned_asked_, true)) return;
  post(ListPinned{});
}

void StoreLink::take_pinned(PinnedChunks& pinned) {
  pinned_ = std::move(pinned.chunks);
  pinned_asked_ = false;
}

}  // namespace hearth::engine
