#pragma once
// The functions of the CUDA op table; each is in the file of its op.

#include <memory>
#include <span>

#include "kernels/ops.h"
#include "kernels/ops/device_clock.h"
#include "kernels/ops/draw.h"
#include "kernels/ops/recurrent_ops.h"
#include "kernels/ops/side_copies.h"

namespace hearth::kernels::cuda {

void* allocate(void* state, size_t bytes);
void release(void* state, void* memory, size_t bytes);
void copy_to_device(void* state, void* dst, const void* src, size_t bytes);
void copy_to_host(void* state, void* dst, const void* src, size_t bytes);
void synchronize(void* state);
uint64_t mark(void* state);
void wait(void* state, uint64_t mark);
void* allocate_host(void* state, size_t bytes);
void release_host(void* state, void* memory);
extern const SideCopies kSideCopies;
extern const DeviceClock kDeviceClock;
void begin_capture(void* state);
std::unique_ptr<CapturedStep> end_capture(void* state);
bool replay(void* state, const CapturedStep& step);
Result<std::unique_ptr<Weight>> pack_weights(void* state, std::span<const HostTensor> tensors,
                                             WeightRole role);

void embed(void* state, const EmbedArgs& args);
void rms_norm(void* state, const RmsNormArgs& args);
void matmul(void* state, const MatmulArgs& args);
void add_bias(void* state, const AddBiasArgs& args);
void add_scaled(void* state, const AddScaledArgs& args);
void soft_cap(void* state, const SoftCapArgs& args);
void rope_table(void* state, const RopeTableArgs& args);
void rope(void* state, const RopeArgs& args);
void copy_heads(void* state, const CopyHeadsArgs& args);
void times_rms(void* state, const TimesRmsArgs& args);
void keep_peaks(void* state, const KeepPeaksArgs& args);
void kv_store(void* state, const KvStoreArgs& args);
void attention(void* state, const AttentionArgs& args);
void gated_activation(void* state, const GatedActivationArgs& args);
void gather_rows(void* state, const GatherRowsArgs& args);
void copy_blocks(void* state, const CopyBlocksArgs& args);
void draw(void* state, const DrawArgs& args);
void best_logits(void* state, const BestLogitsArgs& args);
void feed(void* state, const FeedArgs& args);
void moe_route(void* state, const MoeRouteArgs& args);
void moe_matmul(void* state, const MoeMatmulArgs& args);
void moe_combine(void* state, const MoeCombineArgs& args);
void short_conv(void* state, const ShortConvArgs& args);
void head_scan(void* state, const HeadScanArgs& args);
void channel_scan(void* state, const ChannelScanArgs& args);
void wkv_inputs(void* state, const WkvInputsArgs& args);
void wkv_output(void* state, const WkvOutputArgs& args);

}  // namespace hearth::kernels::cuda
