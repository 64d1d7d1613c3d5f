#pragma once
// The weights of heads that draft for a model (Medusa), from a file of their own: found, checked,
// and loaded into a device. What they compute: draft_heads.cpp.
//
// The file is GGUF:
//
//   general.architecture        "medusa"
//   medusa.head_count           heads, 1 to 16; the first kMostHeads are used
//   medusa.block_count          residual blocks of each head, 0 to 16
//   medusa.embedding_length     width of the model
//   medusa.vocab_size           tokens of the model
//   medusa.target.name          general.name of the model; may be missing
//   medusa.chained              bool, default false: see draft_heads.cpp
//   medusa.draft_tokens         i32 array: the tokens of the rows of head.K.output, ascending
//                               (missing: all tokens)
//   head.K.block.I.weight       (width, width)      head.K.block.I.bias   (width)
//   head.K.output.weight        (width, tokens)     missing: the model's own head
//   and if chained:
//   head.K.pair.weight          (2 width, width)    head.K.embedding_norm.weight,
//   head.K.hidden_norm.weight, head.K.output_norm.weight                  (width)

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/model.h"
#include "models/weights/weight_packer.h"

namespace hearth::models {

/// kCorrupt if the file of heads has at `key` the name of another model than this one.
Result<void> check_target_name(const GgufFile& file, std::string_view key, const ModelInfo& model);

struct DraftHeads {
  /// Tokens that are drafted at most.
  static constexpr int32_t kMostHeads = 4;

  struct Block {
    WeightHandle weight, bias;  ///< (width, width); vector of width
  };
  struct Head {
    WeightHandle pair;                                      ///< (width, 2 width), if chained
    WeightHandle embedding_norm, hidden_norm, output_norm;  ///< vectors of width, if chained
    std::vector<Block> blocks;
    WeightHandle output;  ///< (draft tokens, width), or null: the model's own head
  };

  std::vector<Head> heads;
  bool chained = false;
  std::vector<int32_t> tokens;  ///< ascending; empty: all
  uint64_t bytes = 0;           ///< on the device

  size_t num_blocks() const { return heads.empty() ? 0 : heads.front().blocks.size(); }
  int32_t most_drafts() const;

  /// Errors as of Model::add_heads. `model`: width, vocab_size and title are compared.
  static Result<DraftHeads> load(const GgufFile& file, const ModelInfo& model,
                                 const kernels::OpTable& ops);
};

}  // namespace hearth::models
