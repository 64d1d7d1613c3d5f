#pragma once
// XXH3-128 with a secret of our own, computed in pieces. The same value on every machine. Uses AVX2
// if the processor has it, which is faster than the bytes can be read. On a Zen 5, for a MiB in the
// core's cache, 128 KiB at a time: SSE2 10 GB/s, AVX2 35, AVX-512 20.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/kv/chain_hash.h"

namespace hearth::engine {

class KeyedHash {
 public:
  /// `secret`: 136 bytes or more, which outlive it and do not move.
  explicit KeyedHash(std::span<const std::byte> secret);
  ~KeyedHash();
  KeyedHash(KeyedHash&&) noexcept;
  KeyedHash& operator=(KeyedHash&&) noexcept;

  void bytes(std::span<const std::byte> data);
  void number(uint64_t value) { bytes(std::as_bytes(std::span(&value, 1))); }
  void hash(const Hash128& value) {
    number(value.low);
    number(value.high);
  }
  /// The length first, so that bytes cannot move from one field to the next unnoticed.
  template <typename T>
  void list(std::span<const T> values) {
    number(values.size());
    bytes(std::as_bytes(values));
  }
  Hash128 digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Adds bytes to a state: one function per instruction set. `state` is an XXH3_state_t.
using HashUpdate = void (*)(void* state, const void* data, size_t size);
void hash_update_plain(void* state, const void* data, size_t size);
void hash_update_avx2(void* state, const void* data, size_t size);  ///< x86-64 only

}  // namespace hearth::engine
