#pragma once
// The smallest driver of a model: sequences that grow by chunks, blocks assigned once, no
// scheduler. The engine must give the same results with the same model.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops.h"
#include "models/gguf/gguf_file.h"
#include "models/model.h"

namespace hearth::golden {

/// Tokens that one sequence adds in a step.
struct Chunk {
  int32_t seq = 0;
  std::span<const int32_t> tokens;
  bool want_all = false;  ///< logits of every token; else of the last
  std::span<const std::pair<int32_t, float>> adapters = {};  ///< numbers and scales
};

class StepRunner {
 public:
  struct Bounds {
    int32_t seqs = 1;
    int32_t step_tokens = 64;
    int32_t context = 512;
    int32_t model_context = 0;  ///< if above 0, the number of threads
    bool draft_layer = false;
    const models::GgufFile* heads = nullptr;
  };
  /// Fails the test if the model does not load.
  StepRunner(const models::GgufFile& file, const kernels::OpTable& ops, kernels::KvTypes kv_type,
             const Bounds& bounds);

  /// One forward pass; logits of the wanted rows in order.
  std::vector<std::vector<float>> step(std::span<const Chunk> chunks);
  /// All of `tokens` in chunks of at most `chunk` tokens; logits of the last token, or of all.
  std::vector<std::vector<float>> feed(int32_t seq, std::span<const int32_t> tokens, int32_t chunk,
                                       bool want_all = false);
  /// The draft layer's logits for one more token of each sequence, which continues row `rows[i]`
  /// (models::Model::choose_draft_rows). The sequences do not grow: `ahead` tokens were drafted
  /// before.
  std::vector<std::vector<float>> draft(std::span<const Chunk> chunks,
                                        std::span<const int32_t> rows, int32_t ahead);
  /// The logits of each draft after `tokens`, of which all but the last are computed in chunks as
  /// sequence 0; each draft is continued by the given one.
  std::vector<std::vector<float>> drafts_after(std::span<const int32_t> tokens, int32_t chunk,
                                               std::span<const int32_t> drafts);
  /// The same of a drafter whose drafts are made in one pass (ModelInfo::draft_block).
  std::vector<std::vector<float>> block_after(std::span<const int32_t> tokens, int32_t chunk,
                                              int32_t count);
  /// The logits of `count` drafts after each of `last`, the last token of sequence i.
  std::vector<std::vector<float>> blocks(std::span<const int32_t> last, int32_t count);
  const models::ModelInfo& info() const { return model_->info(); }
  models::Model& model() { return *model_; }

 private:
  /// `place`: of a draft (models::Model::draft); none: the model's own step.
  std::vector<std::vector<float>> run(std::span<const Chunk> chunks, std::optional<int32_t> place);
  kernels::OpTable ops_;
  Bounds bounds_;
  std::unique_ptr<models::Model> model_;
  std::vector<models::KvPool> pools_;
  std::vector<kernels::DeviceBuffer> memory_;
  kernels::DeviceBuffer index_;
  kernels::DeviceBuffer logits_;
  std::vector<int32_t> lengths_;  // tokens of each sequence so far
};

/// A table to run a test on.
struct NamedTable {
  std::string name;
  kernels::OpTable ops;
  bool slow = false;  ///< an emulated device: tests run fewer cases on it
};
/// Defined in all_tables.cpp: the reference and every CPU path of this machine.
std::vector<NamedTable> all_tables();

int32_t argmax(std::span<const float> logits);
/// Natural log of the softmax of `logits` at `id`, in double.
double logprob(std::span<const float> logits, int32_t id);

}  // namespace hearth::golden
