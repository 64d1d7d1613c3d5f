#pragma once
// Maps published tensors to the tensors of a GGUF file, with the changes made to their values.

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/result.h"
#include "models/convert/checkpoint.h"
#include "models/convert/converted_family.h"
#include "models/convert/family_keys.h"

namespace hearth::models {

/// How the values of a new tensor follow from those of a published one.
struct Edit {
  /// The index in the published tensor of element `i` of the new one; empty: `i`.
  std::function<uint64_t(uint64_t i)> source;
  /// Of the value; empty: unchanged.
  std::function<double(double)> value;
  /// In addition to that, a factor per row of the new tensor; empty: none.
  std::vector<double> row_factors;
};

/// Norm weights that are stored without their 1.
Edit add_one();
/// A decay rate that is stored as its logarithm: -exp(x).
Edit minus_exp();
Edit times(double factor);
/// Row `r` of the new tensor is row `source(r)` of the published one; rows of `cols` values.
Edit rows(uint64_t cols, std::function<uint64_t(uint64_t)> source);
/// A head's two halves (0 1 2 3 | 4 5 6 7) interleaved (0 4 1 5 2 6 3 7).
Edit swap_pairs(uint64_t cols, uint64_t head_dim);

struct PlannedTensor {
  /// Whole rows of a published tensor, in elements.
  struct Part {
    const SafeTensor* tensor = nullptr;
    uint64_t first = 0;
    uint64_t count = 0;
  };
  std::string name;
  std::vector<uint64_t> dims;  ///< the contiguous one first
  Edit edit;                   ///< `source` only where there is one part, of which `first` is 0
  bool exact = false;          ///< F32 whatever type was asked for
  std::vector<Part> parts;     ///< one after another; all of one type
  std::vector<float> values;   ///< instead of parts
  std::vector<int64_t> ids;    ///< instead of parts: I64
  /// Instead of parts: published blocks of MXFP4, which stay as they are. Row `r` of the new
  /// tensor, counted over all its matrices, is the published row `first + r * step`.
  struct Blocks {
    const SafeTensor* codes = nullptr;
    const SafeTensor* scales = nullptr;
    uint64_t first = 0;
    uint64_t step = 1;
  };
  std::optional<Blocks> blocks;
};

/// The matrices of a feed-forward as the published file names them; an empty one is left out.
struct ExpertNames {
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
};

class TensorPlanner {
 public:
  TensorPlanner(const Checkpoint& checkpoint, const FamilyKeys& keys);

  Result<std::vector<PlannedTensor>> plan();
  uint64_t num_left_out() const { return num_left_out_; }
  bool drafts() const { return drafts_; }

  // ---- For the families' own files. kCorrupt names a tensor that is missing or of another shape.

  const Json& config() const { return in_.config(); }
  const FamilyKeys& keys() const { return k_; }
  bool has(const std::string& name) const { return in_.tensor(name) != nullptr; }
  void leave_out(const std::string& name) { used_.insert(name); }
  /// `layer` of the published file, and of the new one.
  std::string from(uint64_t layer) const;
  static std::string to(uint64_t layer);
  /// What published norm weights need.
  Edit norm() const;

  /// A published tensor of this shape.
  Result<const SafeTensor*> find_of(const std::string& name, const std::vector<uint64_t>& shape);
  /// The same, of whatever lengths.
  Result<const SafeTensor*> find(const std::string& name, size_t num_dims);
  /// A published tensor of this shape whose values are bytes.
  Result<const SafeTensor*> find_bytes(const std::string& name, const std::vector<uint64_t>& shape);

  Result<void> vector(const std::string& from, const std::string& to, Edit edit = {});
  Result<void> matrix(const std::string& from, const std::string& to, Edit edit = {});
  Result<void> maybe_vector(const std::string& from, const std::string& to, Edit edit = {});
  Result<void> want(const std::string& from, const std::string& to, size_t num_dims,
                    Edit edit = {});
  /// A tensor of other dimensions than the published one, of F32: one of few values.
  Result<void> reshaped(const std::string& from, const std::string& to,
                        const std::vector<uint64_t>& shape, std::vector<uint64_t> dims,
                        Edit edit = {});
  /// A vector of `count` values that may be published with other dimensions of 1.
  Result<void> flat(const std::string& from, const std::string& to, uint64_t count);
  /// Vectors of `count` values likewise, one after another, as an F32 tensor of `dims`.
  Result<void> joined(const std::vector<std::string>& names, const std::string& to, uint64_t count,
                      std::vector<uint64_t> dims, Edit edit = {});
  /// A new matrix of `dims` whose values `edit` takes from anywhere in a tensor of `shape`.
  Result<void> taken(const std::string& from, const std::string& to,
                     const std::vector<uint64_t>& shape, std::vector<uint64_t> dims, Edit edit);
  /// A matrix that a row is multiplied with from the left: the new one has its columns as rows.
  Result<void> transposed(const std::string& from, const std::string& to, uint64_t num_rows,
                          uint64_t num_cols);
  /// A new tensor of `dims` from blocks of MXFP4: every `step`-th row, beginning with `first`, of
  /// "{from}_blocks" with "{from}_scales".
  Result<void> blocks(const std::string& from, const std::string& to, std::vector<uint64_t> dims,
                      uint64_t first, uint64_t step);
  /// The weights and, where there is one, the bias of a product, heads' pairs swapped if `family`
  /// wants that.
  Result<void> product(const std::string& from, const std::string& to);
  Result<void> rotated_product(const std::string& from, const std::string& to, uint64_t heads);
  /// Stacks the matrices of the given names, one after the other.
  Result<void> stack(const std::vector<std::string>& names, const std::string& to);
  /// Takes the first or second half of the rows of each matrix in a stack, or of one matrix.
  Result<void> half(const std::string& from, size_t num_dims, bool second, const std::string& to);

  Result<void> plan_norms(const std::string& from, const std::string& to);
  Result<void> plan_attention(const std::string& from, const std::string& to);
  Result<void> plan_feed_forward(const std::string& from, const std::string& to);
  /// "{moe}experts.{e}.{which}.weight" for each expert.
  Result<void> plan_experts(const std::string& moe, const std::string& to,
                            const ExpertNames& names = {});
  /// A feed-forward under other names: that of the experts all tokens share, or dense.
  Result<void> plan_gated(const std::string& from, const std::string& to, std::string_view suffix,
                          const ExpertNames& names = {});
  /// Qwen's expert that all tokens use, scaled by a sigmoid of its own.
  Result<void> plan_gated_expert(const std::string& moe, const std::string& to);
  /// Granite's: gate and up in one matrix.
  Result<void> plan_halves(const std::string& from, const std::string& to, std::string_view suffix);
  /// The same for all experts, and those that all tokens use.
  Result<void> plan_joined_experts(const std::string& from, const std::string& to);
  /// A matrix, each row multiplied by its factor.
  Result<void> scaled_rows(const std::string& from, const std::string& to,
                           std::vector<double> factors);
  /// Llama's layer.
  Result<void> plan_layer(uint64_t layer);

 private:
  Result<const SafeTensor*> find_flat(const std::string& name, uint64_t count);
  Result<void> plan_head();
  /// The layer after the last one, if the folder has one that drafts.
  Result<void> plan_draft_layer();
  /// Unless it equals `original`.
  Result<void> plan_copy(const std::string& from, const std::string& to,
                         const std::string& original);
  bool is_of_other_draft_layer(std::string_view name) const;
  Result<void> check_all_used();

  const Checkpoint& in_;
  const FamilyKeys& k_;
  const ConvertedFamily& family_;
  std::set<std::string, std::less<>> used_;
  std::vector<PlannedTensor> out_;
  uint64_t num_left_out_ = 0;
  bool drafts_ = false;
};

struct TensorPlan {
  std::vector<PlannedTensor> tensors;
  bool drafts = false;        ///< one more layer than the model's, which drafts
  uint64_t num_left_out = 0;  ///< of further layers for drafting
};

/// Every tensor of the file to be, in order. kUnsupported names a published tensor that none of
/// them needs, or one of a type that is not F32, F16, BF16 or MXFP4; kCorrupt one that is missing
/// or has the wrong shape.
Result<TensorPlan> plan_tensors(const Checkpoint& checkpoint, const FamilyKeys& keys);

}  // namespace hearth::models
