#include "kernels/ops.h"

#include <fmt/core.h>

#include <utility>

#include "kernels/base/check.h"

namespace hearth::kernels {

TensorView TensorView::columns(int64_t first, int64_t count) const {
  HEARTH_CHECK(first >= 0 && count >= 0 && first + count <= cols, "columns {}+{} of {}", first,
               count, cols);
  TensorView out = *this;
  out.data = static_cast<std::byte*>(data) + bytes_of(dtype, first);
  out.cols = count;
  return out;
}

void multiply_all(const OpTable& ops, std::span<const MatmulArgs> products) {
  if (ops.matmuls != nullptr) return ops.matmuls(ops.state.get(), products);
  for (const MatmulArgs& args : products) ops.matmul(ops.state.get(), args);
}

Result<void> check_kv_types(const OpTable& ops, KvTypes types) {
  const bool common = types.alike() && types.k != KvType::kFp8 && types.k != KvType::kQ4_0;
  if (ops.any_kv_type || common) return {};
  return Error::unsupported(
      fmt::format("KV type {} on {}: want one of F32, F16, BF16 and Q8_0 for K and V",
                  kv_type_name(types), ops.device.kind),
      "kv_type");
}

Result<DeviceBuffer> DeviceBuffer::allocate(const OpTable& ops, size_t bytes,
                                            std::string_view what) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  void* memory = ops.allocate(ops.state.get(), bytes);
  if (memory == nullptr) {
    return Error::out_of_memory(
        fmt::format("{}: no {} bytes on device {}", what, bytes, ops.device.name));
  }
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.size_ = bytes;
  buffer.state_ = ops.state;
  buffer.release_ = ops.release;
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) release_(state_.get(), data_, size_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr) release_(state_.get(), data_, size_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  state_ = std::move(other.state_);
  release_ = std::exchange(other.release_, nullptr);
  return *this;
}

HostBuffer::HostBuffer(const OpTable& ops, size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  if (ops.allocate_host != nullptr) data_ = ops.allocate_host(ops.state.get(), bytes);
  if (data_ != nullptr) {
    state_ = ops.state;
    release_ = ops.release_host;
  } else {
    ordinary_.resize((bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t));
    data_ = ordinary_.data();
  }
}

HostBuffer::~HostBuffer() {
  if (release_ != nullptr) release_(state_.get(), data_);
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept { *this = std::move(other); }

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  if (this == &other) return *this;
  if (release_ != nullptr) release_(state_.get(), data_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  ordinary_ = std::move(other.ordinary_);  // moving a vector does not move its elements
  state_ = std::move(other.state_);
  release_ = std::exchange(other.release_, nullptr);
  return *this;
}

}  // namespace hearth::kernels
