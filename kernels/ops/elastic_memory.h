#pragma once
// Memory of a device whose addresses are reserved at once and that is backed in parts: pools of KV
// blocks take memory as they fill and give it back. Addresses never change.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::kernels {

struct OpTable;

/// Called from the thread that calls the ops. Ranges begin and end at multiples of `granule` from
/// the beginning of a reservation, or at its end.
struct ElasticMemory {
  size_t granule = 0;
  /// Addresses alone, aligned to `granule`; null if there are none left.
  std::byte* (*reserve)(void* state, size_t bytes) = nullptr;
  /// Of the whole reservation; what is still backed is given back.
  void (*release)(void* state, std::byte* memory, size_t bytes) = nullptr;
  /// Zeroed memory in place of addresses alone. False, with nothing changed, if there is too
  /// little.
  bool (*back)(void* state, std::byte* begin, size_t bytes) = nullptr;
  /// Addresses alone from now on. No op that uses the memory may be in progress.
  void (*give_back)(void* state, std::byte* begin, size_t bytes) = nullptr;
};

/// Owns a reservation of one table; in a table without elastic memory, ordinary device memory that
/// is always backed.
class ElasticBuffer {
 public:
  ElasticBuffer() = default;
  /// kOutOfMemory, with the number of bytes and `what`.
  static Result<ElasticBuffer> reserve(const OpTable& ops, size_t bytes, std::string_view what);
  ~ElasticBuffer();
  ElasticBuffer(ElasticBuffer&& other) noexcept;
  ElasticBuffer& operator=(ElasticBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  size_t backed_bytes() const { return elastic_ == nullptr ? size_ : backed_bytes_; }
  /// Backs bytes [begin, end). Ranges that are backed may share granules and not bytes. False,
  /// with nothing changed, if the device has too little memory.
  bool back(size_t begin, size_t end);
  /// Gives back a range that was backed; granules that another range shares stay.
  void give_back(size_t begin, size_t end);

 private:
  void release();
  size_t granule_bytes(size_t first, size_t end) const;

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t backed_bytes_ = 0;
  const ElasticMemory* elastic_ = nullptr;
  std::vector<uint8_t> ranges_;  ///< per granule: backed ranges that have a part of it
  std::shared_ptr<void> state_;
  void (*release_)(void*, void*, size_t) = nullptr;
};

}  // namespace hearth::kernels
