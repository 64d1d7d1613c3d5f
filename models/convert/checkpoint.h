#pragma once
// A folder of published weights: config.json and one or several safetensors files. Of a model that
// also reads images or sound, the part that reads and writes text.

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "models/convert/json_file.h"
#include "models/convert/packed_matrix.h"
#include "models/safetensors/safetensors_file.h"

namespace hearth::models {

/// Immutable after open(). Spans of tensors live as long as it does.
class Checkpoint {
 public:
  /// Opens every *.safetensors of the folder. kNotFound: no config.json or no weights.
  /// kUnsupported: pickled weights alone, which it names; and as packed_format. kCorrupt:
  /// two files have a tensor of the same name, or a file cannot be read; and as PackedFormat::make.
  static Result<Checkpoint> open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  /// Of the text model: text_config where there is one, with what the outer file has for both.
  const Json& config() const { return config_; }
  /// Null if there is none of that name. Names are those of a file of text alone.
  const SafeTensor* tensor(std::string_view name) const;
  using Tensors = std::map<std::string, const SafeTensor*, std::less<>>;
  const Tensors& tensors() const { return tensors_; }
  /// Of a tensor that stands for a packed matrix: it is called F32 and has no bytes. Null: it is
  /// not one.
  const PackedMatrix* packed(const SafeTensor& tensor) const;
  /// Of the packed matrices: PackedFormat.
  float outliers_from() const { return outliers_from_; }
  /// Tensors that are not of the text model.
  uint64_t num_left_out() const { return num_left_out_; }
  void drop_pages(const SafeTensor& tensor) const;

 private:
  std::filesystem::path folder_;
  /// `within`: the file is of a model that has a text_config.
  Result<void> add(const SafeTensor& tensor, bool within);
  Result<void> add_packed(const PackedFormat& format);

  Json config_;
  std::vector<SafetensorsFile> files_;
  Tensors tensors_;
  std::deque<SafeTensor> made_;  ///< of packed matrices; their addresses stay
  std::map<const SafeTensor*, std::shared_ptr<const PackedMatrix>> packed_;
  float outliers_from_ = 0;
  uint64_t num_left_out_ = 0;
};

}  // namespace hearth::models
