#pragma once
// Copies between a device and the host that run beside the ops of the OpTable that names them:
// blocks on their way between tiers of the KV cache, while steps are computed.
//
// Nothing orders a copy and an op but what is said here: who starts a copy from memory that ops
// write, or into memory that they read, says which goes first. Copies run in the order of their
// start. Called from the thread that calls the ops.

#include <cstddef>
#include <cstdint>

namespace hearth::kernels {

/// Host memory is that of OpTable::allocate_host, and belongs to a copy until it has ended.
struct SideCopies {
  /// Copies started from here on begin when the ops called so far have ended.
  void (*after_ops)(void* state) = nullptr;
  /// Ops called from here on begin when the copies started so far have ended.
  void (*before_ops)(void* state) = nullptr;
  void (*to_host)(void* state, void* dst, const void* src, size_t bytes) = nullptr;
  void (*to_device)(void* state, void* dst, const void* src, size_t bytes) = nullptr;
  /// A mark behind the copies started so far; marks ascend from 1.
  uint64_t (*mark)(void* state) = nullptr;
  /// Whether the copies in front of that mark have ended. Does not wait.
  bool (*ended)(void* state, uint64_t mark) = nullptr;
  void (*wait)(void* state, uint64_t mark) = nullptr;
};

}  // namespace hearth::kernels
