#pragma once
// A model whose layers are divided among several op tables, its stages. Each holds the weights of
// its layers; KV blocks are shared, which works because all stages compute in host memory.
//
// Steps are cut into pieces of rows (row_pieces.h), which flow through the stages like work through
// a pipeline: while a stage computes one piece, the stage before it computes the next. Each stage
// takes pieces in their order, so that a layer has stored all earlier rows' K and V. A step without
// outputs, which is most of a long prompt, is not waited for: the next one follows it into the
// pipeline (Model::settle).
//
// Source: Huang et al. 2019 (GPipe), section 2.2; Agrawal et al. 2024 (Sarathi-Serve), section 4.3.

#include <memory>
#include <string>
#include <vector>

#include "kernels/host/op_thread.h"
#include "kernels/ops.h"
#include "models/model.h"

namespace hearth::models {

class GgufFile;

/// Where a stage is computed.
struct StageTable {
  std::string device;  ///< its name, for reports
  kernels::OpTable ops;
  /// Makes all calls of `ops`. Null: the caller's thread.
  std::shared_ptr<kernels::OpThread> thread;
};

struct Stage {
  StageTable table;
  LayerRange layers;
};

/// Loads each stage's layers into its table; those with threads load at the same time. The stages
/// have all layers, in order. Errors: those of load_model; kUnsupported (field `stages`) names what
/// cannot be computed in stages, and tables whose results differ.
Result<std::unique_ptr<Model>> load_staged_model(const GgufFile& file, std::vector<Stage> stages,
                                                 const LoadProgressFn& progress);

}  // namespace hearth::models
