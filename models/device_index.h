#pragma once
// A step's index, copied from host memory to a device with its own memory.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/model.h"

namespace hearth::models {

/// Reused from step to step; the device must have computed the last one.
class DeviceIndex {
 public:
  /// Bytes for steps of at most `rows` rows.
  static uint64_t bytes_for(int32_t rows, std::span<const PoolSize> sizes);
  /// Allocates them. `ops` outlives this.
  static Result<DeviceIndex> reserve(const kernels::OpTable& ops, uint64_t bytes);

  /// Sets `batch` and `also_stored` of `args` to copies on the device.
  void upload(StepArgs* args);

 private:
  template <typename T>
  const T* put(const T* from, int64_t count);
  kernels::BatchIndex put(const kernels::BatchIndex& from);

  const kernels::OpTable* ops_ = nullptr;
  kernels::DeviceBuffer memory_;
  kernels::HostBuffer staged_;
  size_t used_ = 0;
  std::vector<kernels::BatchIndex> indexes_;                 ///< the step's, then also_stored
  std::vector<std::vector<kernels::GroupIndex>> of_groups_;  ///< of each of these
};

}  // namespace hearth::models
