#pragma once
// Copies of blocks between the host and a device with memory of its own, made alongside the steps:
// which blocks are being copied, where their bytes are meanwhile, and which steps and copies wait
// for them. A device that computes in host memory needs no such copies, and this costs nothing
// there.
//
// The host's side is page-locked memory, taken once and handed out in pieces. A piece returns when
// it is dropped, on any thread. Everything else belongs to the engine thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/kv/memory_plan.h"
#include "engine/store/chunk.h"
#include "kernels/ops.h"

namespace hearth::engine {

class BlockTraffic {
 public:
  BlockTraffic() = default;
  /// For blocks of these groups. Before reserve(), copies are not made alongside steps.
  BlockTraffic(const kernels::OpTable& ops, std::span<const GroupPlan> groups);

  /// Takes host memory for `num_pieces` (64 at most) of `piece_bytes` each. Takes none if the
  /// system gives none or the device needs none.
  void reserve(size_t piece_bytes, int32_t num_pieces);
  bool reserved() const { return pieces_ != nullptr; }
  /// A piece for `bytes`; empty if none is free or pieces are too small.
  ChunkData take(size_t bytes) const;
  bool owns(std::span<const std::byte> memory) const;

  /// Copies a block out, or in, after the steps so far. The piece belongs to the copy until the
  /// mark() taken afterwards has ended.
  void read(int32_t group, int32_t block, const std::byte* from, std::span<std::byte> piece);
  void write(int32_t group, int32_t block, std::byte* to, std::span<const std::byte> piece);

  /// Identifies all copies that were started so far.
  uint64_t mark();
  bool ended(uint64_t mark);
  void wait();

  /// A copy may be in progress that the next step does not wait for.
  bool busy();
  /// The block's bytes are being written.
  bool arriving(int32_t group, int32_t block) const { return of(group, block).in > settled_; }
  /// The block's bytes are being read or written.
  bool moving(int32_t group, int32_t block) const {
    return of(group, block).out > settled_ || arriving(group, block);
  }
  /// Steps launched from here on wait for the copies started so far.
  void before_steps();
  /// A step was launched: copies started from here on wait for it.
  void steps_went_on() { behind_steps_ = false; }

 private:
  class Pieces;
  /// The marks after the last copies out of and into a block.
  struct Moves {
    uint64_t out = 0;
    uint64_t in = 0;
  };

  const Moves& of(int32_t group, int32_t block) const { return moves_[group][block]; }
  Moves& start(int32_t group, int32_t block);

  kernels::OpTable ops_;
  std::vector<std::vector<Moves>> moves_;  ///< per group and block
  uint64_t last_mark_ = 0;
  bool unmarked_ = false;      ///< copies were started after the last mark
  bool behind_steps_ = false;  ///< copies started now wait for all launched steps
  uint64_t ended_ = 0;         ///< last mark that is known to have ended
  uint64_t settled_ = 0;       ///< last mark that has ended or that the next step waits for
  std::shared_ptr<Pieces> pieces_;
};

}  // namespace hearth::engine
