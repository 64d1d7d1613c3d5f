#include "kernels/ops/elastic_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/ops.h"

namespace hearth::kernels {

Result<ElasticBuffer> ElasticBuffer::reserve(const OpTable& ops, size_t bytes,
                                             std::string_view what) {
  ElasticBuffer buffer;
  if (bytes == 0) return buffer;
  void* memory = ops.elastic == nullptr ? ops.allocate(ops.state.get(), bytes)
                                        : ops.elastic->reserve(ops.state.get(), bytes);
  if (memory == nullptr) {
    return Error::out_of_memory(
        fmt::format("{}: no {} bytes on device {}", what, bytes, ops.device.name));
  }
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.size_ = bytes;
  buffer.state_ = ops.state;
  buffer.release_ = ops.release;
  buffer.elastic_ = ops.elastic;
  if (ops.elastic == nullptr) return buffer;
  const size_t granule = ops.elastic->granule;
  buffer.ranges_.assign((bytes + granule - 1) / granule, 0);
  return buffer;
}

void ElasticBuffer::release() {
  if (data_ == nullptr) return;
  if (elastic_ != nullptr) {
    elastic_->release(state_.get(), data_, size_);
  } else {
    release_(state_.get(), data_, size_);
  }
}

ElasticBuffer::~ElasticBuffer() { release(); }

ElasticBuffer::ElasticBuffer(ElasticBuffer&& other) noexcept { *this = std::move(other); }

ElasticBuffer& ElasticBuffer::operator=(ElasticBuffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  backed_bytes_ = std::exchange(other.backed_bytes_, 0);
  elastic_ = std::exchange(other.elastic_, nullptr);
  ranges_ = std::move(other.ranges_);
  state_ = std::move(other.state_);
  release_ = std::exchange(other.release_, nullptr);
  return *this;
}

size_t ElasticBuffer::granule_bytes(size_t first, size_t end) const {
  return std::min(end * elastic_->granule, size_) - first * elastic_->granule;
}

bool ElasticBuffer::back(size_t begin, size_t end) {
  HEARTH_CHECK(begin <= end && end <= size_, "bytes {} to {} of {}", begin, end, size_);
  if (elastic_ == nullptr || begin == end) return true;
  const size_t granule = elastic_->granule;
  size_t first = begin / granule, last = (end - 1) / granule + 1;
  // Only the first and the last one can be shared.
  const size_t all_first = first, all_last = last;
  if (ranges_[first] > 0) ++first;
  if (last > first && ranges_[last - 1] > 0) --last;
  if (first < last) {
    const size_t bytes = granule_bytes(first, last);
    if (!elastic_->back(state_.get(), data_ + first * granule, bytes)) return false;
    backed_bytes_ += bytes;
  }
  for (size_t i = all_first; i < all_last; ++i) ++ranges_[i];
  return true;
}

void ElasticBuffer::give_back(size_t begin, size_t end) {
  HEARTH_CHECK(begin <= end && end <= size_, "bytes {} to {} of {}", begin, end, size_);
  if (elastic_ == nullptr || begin == end) return;
  const size_t granule = elastic_->granule;
  size_t first = begin / granule, last = (end - 1) / granule + 1;
  for (size_t i = first; i < last; ++i) {
    HEARTH_CHECK(ranges_[i] > 0, "granule {} is not backed", i);
    --ranges_[i];
  }
  if (ranges_[first] > 0) ++first;
  if (last > first && ranges_[last - 1] > 0) --last;
  if (first >= last) return;
  const size_t bytes = granule_bytes(first, last);
  elastic_->give_back(state_.get(), data_ + first * granule, bytes);
  backed_bytes_ -= bytes;
}

}  // namespace hearth::kernels
