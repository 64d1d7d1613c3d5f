#pragma once
// The adapters in the device's memory: loaded when a request first names one, shared by all that
// name it, and removed for others when no request uses them. Owned by the engine thread.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"
#include "engine/scheduling/applied_adapter.h"
#include "engine/steps/model_runner.h"
#include "kernels/base/result.h"

namespace hearth::engine {

/// Part of a prefix's scope, before its salt, which never begins like it: digest and scale of each
/// adapter, in order; "" without adapters.
std::string adapter_scope(const std::vector<AppliedAdapter>& adapters);

class AdapterPool {
 public:
  /// Adapters loaded at once, used or not.
  static constexpr size_t kMostLoaded = 256;

  /// `most_bytes`: of all adapters together.
  AdapterPool(ModelRunner& runner, uint64_t most_bytes)
      : runner_(runner), most_bytes_(most_bytes) {}

  /// The request's adapters, without those of scale 0, which add nothing. Loads those that are not
  /// there yet. Errors as of models::Model::add_adapter; kBusy if adapters in use leave too little
  /// room; kOutOfMemory with the numbers if one needs more than all may take.
  Result<std::vector<AppliedAdapter>> use(const std::vector<UsedAdapter>& wanted);
  /// Removes the adapters of that name that no request uses; "": of any name. Returns the number
  /// removed.
  int32_t drop_unused(const std::string& name = "");

  std::vector<AdapterState> states() const;
  uint64_t bytes() const;

 private:
  struct Entry {
    std::shared_ptr<LoadedAdapter> adapter;
    uint64_t last_use = 0;
    bool used() const { return adapter.use_count() > 1; }
  };

  Result<std::shared_ptr<const LoadedAdapter>> find_or_load(const UsedAdapter& wanted);
  Result<int32_t> add(const UsedAdapter& wanted);
  bool drop_oldest();
  void remove(std::vector<Entry>::iterator entry);

  ModelRunner& runner_;
  const uint64_t most_bytes_;
  std::vector<Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace hearth::engine
