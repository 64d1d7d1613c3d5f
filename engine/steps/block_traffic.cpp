#include "engine/steps/block_traffic.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <functional>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/ops/side_copies.h"

namespace hearth::engine {

using kernels::HostBuffer;

/// One stretch of page-locked memory. A piece may be dropped on the store's thread.
class BlockTraffic::Pieces : public ChunkSource {
 public:
  Pieces(const kernels::OpTable& ops, size_t piece_bytes, int32_t num_pieces)
      : piece_bytes_(piece_bytes),
        memory_(ops, piece_bytes * num_pieces),
        free_(low_bits(num_pieces)) {}

  bool page_locked() const { return memory_.page_locked(); }
  size_t piece_bytes() const { return piece_bytes_; }

  std::byte* take() {
    // Only one thread takes, so a bit that is set stays set until this clears it.
    const uint64_t free = free_.load(std::memory_order_acquire);
    if (free == 0) return nullptr;
    const int piece = std::countr_zero(free);
    free_.fetch_and(~(uint64_t{1} << piece), std::memory_order_relaxed);
    return memory_.as<std::byte>() + piece * piece_bytes_;
  }
  void give_back(std::byte* bytes) override {
    const auto piece = (bytes - memory_.as<std::byte>()) / piece_bytes_;
    free_.fetch_or(uint64_t{1} << piece, std::memory_order_release);
  }
  bool owns(std::span<const std::byte> memory) const {
    const std::byte* begin = memory_.as<std::byte>();
    return std::less_equal<>()(begin, memory.data()) &&
           std::less_equal<>()(memory.data() + memory.size(), begin + memory_.size());
  }

 private:
  const size_t piece_bytes_;
  HostBuffer memory_;
  std::atomic<uint64_t> free_;
};

BlockTraffic::BlockTraffic(const kernels::OpTable& ops, std::span<const GroupPlan> groups)
    : ops_(ops) {
  for (const GroupPlan& group : groups) {
    moves_.emplace_back(group.num_blocks);
  }
}

void BlockTraffic::reserve(size_t piece_bytes, int32_t num_pieces) {
  HEARTH_CHECK(num_pieces > 0 && num_pieces <= 64, "{} pieces", num_pieces);
  if (ops_.side_copies == nullptr || pieces_ != nullptr) return;
  constexpr size_t kLine = 64;
  const size_t rounded = (piece_bytes + kLine - 1) / kLine * kLine;
  auto pieces = std::make_shared<Pieces>(ops_, rounded, num_pieces);
  if (pieces->page_locked()) pieces_ = std::move(pieces);
}

ChunkData BlockTraffic::take(size_t bytes) const {
  if (pieces_ == nullptr || bytes > pieces_->piece_bytes()) return {};
  std::byte* piece = pieces_->take();
  if (piece == nullptr) return {};
  return {{piece, ChunkFree{pieces_}}, bytes, pieces_->piece_bytes()};
}

bool BlockTraffic::owns(std::span<const std::byte> memory) const {
  return pieces_ != nullptr && pieces_->owns(memory);
}

BlockTraffic::Moves& BlockTraffic::start(int32_t group, int32_t block) {
  if (!std::exchange(behind_steps_, true)) ops_.side_copies->after_ops(ops_.state.get());
  unmarked_ = true;
  return moves_[group][block];
}

void BlockTraffic::read(int32_t group, int32_t block, const std::byte* from,
                        std::span<std::byte> piece) {
  start(group, block).out = last_mark_ + 1;
  ops_.side_copies->to_host(ops_.state.get(), piece.data(), from, piece.size());
}

void BlockTraffic::write(int32_t group, int32_t block, std::byte* to,
                         std::span<const std::byte> piece) {
  start(group, block).in = last_mark_ + 1;
  ops_.side_copies->to_device(ops_.state.get(), to, piece.data(), piece.size());
}

uint64_t BlockTraffic::mark() {
  if (std::exchange(unmarked_, false)) {
    const uint64_t made = ops_.side_copies->mark(ops_.state.get());
    HEARTH_CHECK(made > last_mark_, "mark {} after {}", made, last_mark_);
    last_mark_ = made;
  }
  return last_mark_;
}

bool BlockTraffic::ended(uint64_t mark) {
  if (mark <= ended_) return true;
  if (!ops_.side_copies->ended(ops_.state.get(), mark)) return false;
  ended_ = mark;
  settled_ = std::max(settled_, mark);
  return true;
}

void BlockTraffic::wait() {
  const uint64_t last = mark();
  if (last <= ended_) return;
  ops_.side_copies->wait(ops_.state.get(), last);
  ended_ = settled_ = last;
}

bool BlockTraffic::busy() {
  if (!unmarked_ && last_mark_ <= settled_) return false;
  return !ended(mark());
}

void BlockTraffic::before_steps() {
  const uint64_t last = mark();
  if (last <= settled_) return;
  ops_.side_copies->before_ops(ops_.state.get());
  settled_ = last;
}

}  // namespace hearth::engine
