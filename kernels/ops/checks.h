#pragma once
// Checks that every table makes before it computes: a wrong shape is a bug of the caller. Also the
// checks of pack_weights: tensors come from files, so a bad one is an error that names it.

#include <span>

#include "kernels/ops.h"
#include "kernels/ops/draw.h"

namespace hearth::kernels {

/// Rows that this step computes: the exact count if the index holds one.
int32_t num_rows(const BatchIndex& batch, Rows rows);

/// The positions that a row attends to. The index must be in host memory.
struct SeenPositions {
  int32_t first;
  int32_t last;
};
/// `to_all`: also the positions after the row's own.
SeenPositions seen_positions(const AttentionArgs& args, int32_t row, bool to_all);

void check_args(const EmbedArgs& args);
void check_args(const RmsNormArgs& args);
void check_args(const MatmulArgs& args);
void check_args(const AddBiasArgs& args);
void check_args(const AddScaledArgs& args);
void check_args(const SoftCapArgs& args);
void check_args(const RopeTableArgs& args);
void check_args(const RopeArgs& args);
void check_args(const CopyHeadsArgs& args);
void check_args(const TimesRmsArgs& args);
void check_args(const KeepPeaksArgs& args);
void check_args(const KvStoreArgs& args);
void check_args(const AttentionArgs& args);
void check_args(const GatedActivationArgs& args);
void check_args(const GatherRowsArgs& args);
void check_args(const CopyBlocksArgs& args);
void check_args(const DrawArgs& args);
void check_args(const BestLogitsArgs& args);
void check_args(const MoeRouteArgs& args);
void check_args(const MoeMatmulArgs& args);
void check_args(const MoeCombineArgs& args);

/// kUnsupported, naming the tensor, for a type, shape or size that cannot be packed for `role`.
Result<void> check_tensors(std::span<const HostTensor> tensors, WeightRole role);

/// The f32 values of vector tensors (f32, f16 or bf16), concatenated.
std::vector<float> vector_values(std::span<const HostTensor> tensors);

}  // namespace hearth::kernels
