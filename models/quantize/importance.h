#pragma once
// Importance matrices: for each matrix of a model, the sums of squares of its inputs over a text.
// Quantizing weighs errors by them. Stored in the GGUF form that llama.cpp reads and writes:
//   general.type         "imatrix"
//   imatrix.datasets     names of the texts, strings
//   imatrix.chunk_count  windows that the texts were divided into, u32
//   imatrix.chunk_size   tokens of a window, u32
//   NAME.in_sum2         (inputs, matrices) f32: sums of squares; NAME is a tensor of the model:
//   one
//                        matrix, or one for each expert
//   NAME.counts          (1, matrices) f32: how many rows of inputs were added up; (1, 1): as many
//                        for each matrix. An expert that no row reached has 0.

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {

/// Views the file it was read from, which outlives it. Immutable.
class ImportanceMatrix {
 public:
  /// Checks every number. kCorrupt, kUnsupported name the file and the tensor: another kind of
  /// file, sums without counts, another type or shape than the above, a value that is negative or
  /// not finite, or a tensor without a single row.
  static Result<ImportanceMatrix> read(const GgufFile& file);

  /// kInvalidArgument names the file, the first tensor that `model` lacks or that has another shape
  /// there, and both shapes: the matrix was computed from another model.
  Result<void> check_fits(const GgufFile& model) const;

  const std::string& file_name() const { return file_name_; }
  bool has(std::string_view tensor) const { return entries_.contains(tensor); }
  /// The mean square of each of the `cols` inputs of matrix `index` of a tensor that has this
  /// shape; empty if the tensor is unknown or no row reached that matrix.
  std::vector<float> mean_squares(std::string_view tensor, uint64_t index, uint64_t cols) const;

 private:
  struct Entry {
    const GgufTensor* sums = nullptr;
    const GgufTensor* counts = nullptr;
  };
  Result<void> check(std::string_view name, const Entry& entry) const;

  std::string file_name_;
  std::map<std::string_view, Entry> entries_;
};

/// What was recorded of the inputs of one tensor.
struct InputSums {
  std::string name;
  int64_t cols = 0;
  std::vector<double> squares;  ///< (matrices, cols)
  std::vector<int64_t> counts;  ///< rows, of each matrix
};

/// The text that they are of.
struct ImportanceSource {
  std::string text;  ///< its name
  uint32_t num_windows = 0;
  uint32_t window_tokens = 0;
};

/// Writes an importance matrix (PartFile: complete or not at all). kCorrupt names a tensor whose
/// sums are not finite; kIo, kForbidden, kNotFound.
Result<void> write_importance(const std::filesystem::path& path, std::span<const InputSums> inputs,
                              const ImportanceSource& source);

}  // namespace hearth::models
