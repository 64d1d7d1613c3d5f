#pragma once
// What the planners of decoders that draft for another model share: tensors that are taken over
// under another name, each of a shape that config.json gives.

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "models/convert/checkpoint.h"
#include "models/convert/family_keys.h"
#include "models/convert/tensor_plan.h"

namespace hearth::models {

struct HeadPlan {
  FamilyKeys keys;
  std::vector<PlannedTensor> tensors;
};

class HeadPlanner {
 protected:
  explicit HeadPlanner(const Checkpoint& checkpoint) : in_(checkpoint) {}

  /// The published tensor `from` becomes `to`. kCorrupt: it is missing, or of another shape.
  Result<void> add(const std::string& from, const std::string& to, std::vector<uint64_t> shape,
                   Edit edit = {});
  void use(const SafeTensor* tensor) { used_.insert(tensor); }
  void set(std::string_view key, FamilyKeys::Value value);
  /// The plan. kUnsupported names a tensor that is not of `kind`: nothing has used it.
  Result<HeadPlan> finish(std::string_view kind);

  const Checkpoint& in_;
  HeadPlan out_;

 private:
  std::set<const SafeTensor*> used_;
};

/// config.json with the keys of these objects in it next to its own, which they replace.
Json with_keys_of(const Json& config, std::initializer_list<const char*> objects);

/// Whether a name in config.json's `architectures` contains `part`.
bool has_architecture_with(const Json& config, std::string_view part);

}  // namespace hearth::models
