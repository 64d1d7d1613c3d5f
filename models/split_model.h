#pragma once
// A model that several op tables compute together, layer by layer: each has a share of the heads,
// of the KV and of every product's rows (share.h), and a thread. A device begins a layer with whole
// rows. It computes the attention of its heads, gathers what the others' heads have returned, and
// computes its columns of the output product, which are joined; likewise in the feed-forward. So a
// layer has four exchanges, through host memory, and no sum is divided: every value is one product
// over a whole row, as on one device. Norms are computed on each device.
//
// Blocks have the parts of the devices one after the other, each with its heads of all layers. All
// parts are in one memory if all tables compute in host memory; otherwise each device has its own
// (divided_kv.h), and the engine's buffers are host memory.
//
// Source: Shoeybi et al. 2019 (Megatron-LM), section 3, except that second products are divided by
// output rows here, too.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "models/model.h"
#include "models/stage_table.h"

namespace hearth::models {

/// The table for an engine with these shares. Its numerics_id has those of the tables in order, as
/// blocks in which heads are apart are of no use to another division.
kernels::OpTable split_engine_table(const std::vector<StageTable>& tables);

/// In addition to Model::activation_bytes, what a share with its own memory takes at most: an
/// index of its steps, gathered rows and logits, and for copies as much host memory as for either.
uint64_t split_buffer_bytes(const ModelInfo& info, std::span<const PoolSize> sizes,
                            int32_t max_tokens, int32_t max_outputs);

/// Loads each table's share; those with threads load at the same time. All but the first have one.
/// Errors: those of load_model; kUnsupported and kInvalidArgument (field `split`) name what cannot
/// be split.
Result<std::unique_ptr<Model>> load_split_model(const GgufFile& file,
                                                std::vector<StageTable> tables,
                                                const LoadProgressFn& progress);

}  // namespace hearth::models
