#pragma once
// Weights that stay in their file and are read through its mapping at every use. The system is
// asked for the next ones while the current one is computed with, so that the disk does not wait.
// Used by the thread that calls the ops; a thread of its own asks, because the system then also
// finds memory for what it reads.

#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "kernels/base/mailbox.h"

namespace hearth::kernels::cpu {

class PackedWeight;

class FileWeights {
 public:
  FileWeights();
  ~FileWeights();
  FileWeights(const FileWeights&) = delete;
  FileWeights& operator=(const FileWeights&) = delete;

  /// A weight that is not packed; removed when it is destroyed.
  void add(const PackedWeight& weight);
  void remove(const PackedWeight& weight);

  /// `weight` is used next: asks for it and for those that followed it in the last step, in a ring,
  /// because another step follows this one.
  void use(const PackedWeight& weight);
  /// These experts of `weight` are used next: asks for them alone.
  void use_experts(const PackedWeight& weight, std::span<const int32_t> experts);

 private:
  std::vector<const PackedWeight*> weights_;  ///< those used so far, in order of first use
  // The weights that were asked for and not used yet: num_asked_ of them from first_asked_ on.
  size_t first_asked_ = 0;
  size_t num_asked_ = 0;
  uint64_t asked_bytes_ = 0;

  Mailbox<std::span<const std::byte>> wanted_;  ///< an empty one ends the thread
  std::thread asks_;
};

}  // namespace hearth::kernels::cpu
