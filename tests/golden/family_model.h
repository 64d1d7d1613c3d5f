#pragma once
// A tiny model of one family as tests/golden/families/NAME.json describes it: how its file is made,
// and what was computed from the same file by other programs.

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/ops/dtype.h"

namespace hearth::models {
class GgufWriter;
}

namespace hearth::golden {

struct FamilyTensor {
  std::string name;
  std::vector<uint64_t> dims;  ///< the contiguous one first
  double mean = 0;
  double amplitude = 0;
};

struct FamilyModel {
  std::string name;
  std::string architecture;
  int32_t context = 0;  ///< used for the recording
  uint32_t seed = 0;
  nlohmann::json metadata;  ///< full keys
  std::vector<FamilyTensor> tensors;

  std::vector<int32_t> prompt;
  std::vector<int32_t> greedy;                   ///< of the PyTorch model in float64
  std::vector<double> margins;                   ///< logit of the best id minus that of the second
  std::map<size_t, std::vector<double>> logits;  ///< after this many tokens plus one
  struct Drafts {
    std::vector<int32_t> tokens;
    std::vector<std::vector<double>> logits;  ///< of each draft
  };
  std::map<size_t, Drafts> drafts;                          ///< after so many of all tokens
  std::map<size_t, std::vector<int32_t>> llama_cpp_drafts;  ///< the same, llama.cpp's tokens
  std::vector<int32_t> llama_cpp;                           ///< greedy ids of llama.cpp
  std::vector<int32_t> llama_cpp_steps;  ///< its next id after each prefix of `greedy`

  /// The prompt and `greedy`.
  std::vector<int32_t> all_tokens() const;
  /// The same without the last.
  std::vector<int32_t> all_but_last() const;
  /// Matrices in `matrix_type` (F32, F16, Q8_0), vectors in F32.
  std::vector<std::byte> file_bytes(kernels::DType matrix_type) const;
  /// Of a model with a layer for drafting: its layers add little to the embedding, and the draft
  /// layer sees mostly that, so it is often right. What it sees of the final rows and of its own K
  /// and V matters, too. F32.
  std::vector<std::byte> drafting_file_bytes() const;
  /// Its two halves, for a file with more keys.
  void describe(models::GgufWriter* file) const;
  void add_tensors(models::GgufWriter* file, kernels::DType matrix_type) const;
};

/// The values of a tensor, F32: hashes of its name and each element's index.
std::vector<float> family_values(const FamilyTensor& tensor, uint32_t seed);

/// The recording of that name; fails the test if it is missing or invalid.
FamilyModel read_family(const std::string& name);

/// A decoder that drafts for another model, as tests/golden/FOLDER/NAME.json describes it: `model`
/// without what only models have.
struct DrafterModel {
  FamilyModel model;
  std::string target;           ///< the family that it drafts for
  std::vector<int32_t> tokens;  ///< that it drafts; empty: all

  std::vector<std::byte> file_bytes(kernels::DType matrix_type) const;
};
/// `recordings`: "eagle3" or "dflash".
std::vector<DrafterModel> read_drafters(const std::string& recordings);
/// The tensor d2t: the target's token of each of the head's.
void add_draft_tokens(models::GgufWriter* file, const std::vector<int64_t>& tokens);
/// All recordings, by name.
std::vector<std::string> family_names();
/// Those with a layer for drafting.
std::vector<std::string> drafting_family_names();

}  // namespace hearth::golden
