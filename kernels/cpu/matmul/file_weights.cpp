#include "kernels/cpu/matmul/file_weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "kernels/cpu/op_table.h"

namespace hearth::kernels::cpu {
namespace {

/// What a disk reads while the products of a weight of some megabytes are computed.
constexpr uint64_t kAskedBytes = 48 << 20;
constexpr auto kWait = std::chrono::hours(1);

/// Only advice, so a refusal changes nothing.
void advise(std::span<const std::byte> bytes, int advice) {
  static const uintptr_t page = ::sysconf(_SC_PAGESIZE);
  const uintptr_t first = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  ::madvise(reinterpret_cast<void*>(first), end - first, advice);
}

uint64_t bytes_of(const PackedWeight& weight) {
  uint64_t bytes = 0;
  for (const PackedWeight::Segment& segment : weight.segments) bytes += segment.source.bytes.size();
  return bytes;
}

}  // namespace

FileWeights::FileWeights()
    : wanted_(SIZE_MAX), asks_([this] {
        while (true) {
          for (const std::span<const std::byte> bytes : wanted_.wait_and_drain(kWait)) {
            if (bytes.empty()) return;
            advise(bytes, MADV_WILLNEED);
          }
        }
      }) {}

FileWeights::~FileWeights() {
  wanted_.post({});
  asks_.join();
}

// Which experts a step uses is random, and those that were used may be used again.
void FileWeights::add(const PackedWeight& weight) {
  if (weight.num_experts == 1) return;
  for (const PackedWeight::Segment& s : weight.segments) advise(s.source.bytes, MADV_RANDOM);
}

// The thread may still ask for its bytes. If other memory is there by then, or none, the advice
// changes nothing.
void FileWeights::remove(const PackedWeight& weight) {
  std::erase(weights_, &weight);
  first_asked_ = num_asked_ = 0;
  asked_bytes_ = 0;
}

void FileWeights::use(const PackedWeight& weight) {
  const auto found = std::ranges::find(weights_, &weight);
  const size_t at = found - weights_.begin();
  if (found == weights_.end()) weights_.push_back(&weight);
  const size_t count = weights_.size();
  const size_t used = (at + count - first_asked_) % count;  // since the first one asked for
  if (used >= num_asked_) {                                 // not asked for: the order has changed
    first_asked_ = at;
    num_asked_ = 0;
    asked_bytes_ = 0;
  } else {
    for (size_t i = 0; i < used; ++i) {
      asked_bytes_ -= bytes_of(*weights_[(first_asked_ + i) % count]);
    }
    first_asked_ = at;
    num_asked_ -= used;
  }
  while (num_asked_ < count && (num_asked_ == 0 || asked_bytes_ < kAskedBytes)) {
    const PackedWeight& next = *weights_[(first_asked_ + num_asked_) % count];
    for (const PackedWeight::Segment& s : next.segments) wanted_.post(s.source.bytes);
    asked_bytes_ += bytes_of(next);
    ++num_asked_;
  }
}

void FileWeights::use_experts(const PackedWeight& weight, std::span<const int32_t> experts) {
  for (const PackedWeight::Segment& segment : weight.segments) {
    const size_t bytes = segment.source.bytes.size() / weight.num_experts;
    for (const int32_t expert : experts) {
      wanted_.post(segment.source.bytes.subspan(expert * bytes, bytes));
    }
  }
}

}  // namespace hearth::kernels::cpu
