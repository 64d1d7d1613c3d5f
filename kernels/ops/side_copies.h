#pragma once
// Copies between a device and the host that run alongside the ops of the OpTable that points to
// them: blocks move between tiers of the KV cache while steps are computed.
//
// Copies and ops are ordered only by the calls below: before a copy from memory that ops write, or
// into memory that ops read, the caller states which goes first. Copies run in the order in which
// they were started. Called from the thread that calls the ops.

#include <cstddef>
#include <cstdint>

namespace hearth::kernels {

/// Host memory comes from OpTable::allocate_host and belongs to the copy until it has ended.
struct SideCopies {
  /// Copies started from here on begin once the ops called so far have ended.
  void (*after_ops)(void* state) = nullptr;
  /// Ops called from here on begin once the copies started so far have ended.
  void (*before_ops)(void* state) = nullptr;
  void (*to_host)(void* state, void* dst, const void* src, size_t bytes) = nullptr;
  void (*to_device)(void* state, void* dst, const void* src, size_t bytes) = nullptr;
  /// A mark after the copies started so far; marks ascend from 1.
  uint64_t (*mark)(void* state) = nullptr;
  /// True if the copies before that mark have ended. Does not wait.
  bool (*ended)(void* state, uint64_t mark) = nullptr;
  void (*wait)(void* state, uint64_t mark) = nullptr;
};

}  // namespace hearth::kernels
