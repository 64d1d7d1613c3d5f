#pragma once
// The model to measure: a file, or a shape with seeded random weights. Random weights are generated
// while they are packed for the device, so that memory holds them once.

#include <filesystem>
#include <memory>
#include <string>

#include "daemon/worker/load/model_work.h"
#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/gguf/gguf_file.h"
#include "models/model.h"
#include "models/random_model.h"

namespace hearth::worker {

class BenchModel {
 public:
  /// The file or model called `file`, or if `shape` is given, random weights of that shape.
  static Result<BenchModel> find(const std::string& file, const std::string& shape,
                                 const std::string& type, uint64_t seed,
                                 const models::LoadOptions& options = {});
  static Result<BenchModel> open(const std::filesystem::path& path,
                                 const models::LoadOptions& options = {});
  /// Takes address space for the whole file, but no memory.
  static Result<BenchModel> make(models::RandomModel random,
                                 const models::LoadOptions& options = {});

  const std::string& name() const { return name_; }
  /// The model as the engine would load it, with sizes and without weights.
  const models::Model& measured() const { return *measured_; }
  const ModelWork& work() const { return work_; }
  uint64_t weight_bytes() const { return weight_bytes_; }
  /// In addition to the weights, while they are loaded.
  uint64_t scratch_bytes() const { return scratch_bytes_; }

  Result<std::unique_ptr<models::Model>> load(const kernels::OpTable& ops,
                                              const models::LoadProgressFn& progress) const;

 private:
  struct Region;  // of address space
  BenchModel() = default;
  Result<void> measure();

  models::LoadOptions options_;
  std::string name_;
  std::shared_ptr<Region> region_;
  std::unique_ptr<models::RandomModel> random_;  // null: a file
  std::unique_ptr<models::GgufFile> file_;
  std::unique_ptr<models::Model> measured_;
  ModelWork work_;
  uint64_t weight_bytes_ = 0;
  uint64_t scratch_bytes_ = 0;
};

}  // namespace hearth::worker
