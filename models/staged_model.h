#pragma once
// A model whose layers are divided among several op tables, its stages. Each holds the weights of
// its layers. KV blocks are shared if all stages compute in host memory; otherwise each holds the
// part of them with its layers (divided_kv.h), and the engine's own buffers are host memory.
//
// Steps are cut into pieces of rows (row_pieces.h), which flow through the stages like work through
// a pipeline: while a stage computes one piece, the stage before it computes the next. Each stage
// takes pieces in their order, so that a layer has stored all earlier rows' K and V. A step without
// outputs, which is most of a long prompt, is not waited for: the next one follows it into the
// pipeline (Model::settle).
//
// Source: Huang et al. 2019 (GPipe), section 2.2; Agrawal et al. 2024 (Sarathi-Serve), section 4.3.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "models/model.h"
#include "models/stage_table.h"

namespace hearth::models {

class GgufFile;

struct Stage {
  StageTable table;
  LayerRange layers;
};

/// The table for an engine with these stages, which makes no op call of it: memory and copies. Its
/// numerics_id is that of the stages, if all have one; otherwise theirs in order with the layers
/// that each computes, because another division gives other results.
kernels::OpTable engine_table(const std::vector<Stage>& stages);

/// In addition to Model::activation_bytes, what a stage with its own memory takes there: an index
/// of its steps and, in the last stage, logits.
uint64_t stage_buffer_bytes(std::span<const PoolSize> sizes, int32_t max_tokens,
                            int32_t max_outputs, int32_t vocab_size, bool last);

/// Loads each stage's layers into its table; those with threads load at the same time. The stages
/// have all layers, in order. Errors: those of load_model; kUnsupported (field `stages`) names what
/// cannot be computed in stages.
Result<std::unique_ptr<Model>> load_staged_model(const GgufFile& file, std::vector<Stage> stages,
                                                 const LoadProgressFn& progress);

}  // namespace hearth::models
