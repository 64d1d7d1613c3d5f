#pragma once
// A folder of published weights: config.json and one or several safetensors files.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "models/convert/json_file.h"
#include "models/safetensors/safetensors_file.h"

namespace hearth::models {

/// Immutable after open(). Spans of tensors live as long as it does.
class Checkpoint {
 public:
  /// Opens every *.safetensors of the folder. kNotFound: no config.json or no weights. kCorrupt:
  /// two files have a tensor of the same name, or a file cannot be read.
  static Result<Checkpoint> open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Json& config() const { return config_; }
  /// Null if there is none of that name.
  const SafeTensor* tensor(std::string_view name) const;
  /// In the order of their names.
  std::vector<const SafeTensor*> tensors() const;
  void drop_pages(const SafeTensor& tensor) const;

 private:
  std::filesystem::path folder_;
  Json config_;
  std::vector<SafetensorsFile> files_;
};

}  // namespace hearth::models
