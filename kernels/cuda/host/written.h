#pragma once
// What each op writes, one overload per op: visit(view), or visit(memory, bytes), for each. The
// table takes no op without one. KV and states lie in block pools, where no product's rows do.

#include "kernels/cuda/host/op_functions.h"
#include "kernels/ops.h"
#include "kernels/ops/encoder_ops.h"
#include "kernels/ops/wkv_ops.h"

namespace hearth::kernels {

template <typename Visit>
void written(const EmbedArgs& args, const Visit& visit) {
  visit(args.out);
}
template <typename Visit>
void written(const RmsNormArgs& args, const Visit& visit) {
  visit(args.out);
}
template <typename Visit>
void written(const MatmulArgs& args, const Visit& visit) {
  visit(args.out);
}
template <typename Visit>
void written(const AddBiasArgs& args, const Visit& visit) {
  visit(args.out);
}
template <typename Visit>
void written(const AddScaledArgs& args, const Visit& visit) {
  visit(args.out);
}
template <typename Visit>
void written(const CopyHeadsArgs& args, const Visit& visit) {
  visit(args.out);
}
template <typename Visit>
void written(const AttentionArgs& args, const Visit& visit) {
  visit(args.out);
}
template <typename Visit>
void written(const GatedActivationArgs& args, const Visit& visit) {
  visit(args.out);
}
template <typename Visit>
void written(const GatherRowsArgs& args, const Visit& visit) {
  visit(args.out);
}
template <typename Visit>
void written(const MoeMatmulArgs& args, const Visit& visit) {
  visit(args.out);
}
template <typename Visit>
void written(const MoeCombineArgs& args, const Visit& visit) {
  visit(args.out);
}
template <typename Visit>
void written(const LayerNormArgs& args, const Visit& visit) {
  visit(args.out);
}
template <typename Visit>
void written(const SoftCapArgs& args, const Visit& visit) {
  visit(args.x);
}
template <typename Visit>
void written(const RopeArgs& args, const Visit& visit) {
  visit(args.x);
}
template <typename Visit>
void written(const TimesRmsArgs& args, const Visit& visit) {
  visit(args.x);
}
template <typename Visit>
void written(const KeepPeaksArgs& args, const Visit& visit) {
  visit(args.x);
}
template <typename Visit>
void written(const GeluArgs& args, const Visit& visit) {
  visit(args.x);
}
template <typename Visit>
void written(const ScaleByPositionArgs& args, const Visit& visit) {
  visit(args.x);
}
template <typename Visit>
void written(const SigmoidGateArgs& args, const Visit& visit) {
  visit(args.x);
}
template <typename Visit>
void written(const ReluSquaredArgs& args, const Visit& visit) {
  visit(args.x);
}
template <typename Visit>
void written(const RopeTableArgs& args, const Visit& visit) {
  visit(args.cos_sin);
}
template <typename Visit>
void written(const KvStoreArgs&, const Visit&) {}
template <typename Visit>
void written(const MoeRouteArgs& args, const Visit& visit) {
  visit(args.ids);
  visit(args.weights);
}
template <typename Visit>
void written(const ShortConvArgs& args, const Visit& visit) {
  visit(args.kept);
  visit(args.out);
}
template <typename Visit>
void written(const HeadScanArgs& args, const Visit& visit) {
  visit(args.kept);
  visit(args.out);
}
template <typename Visit>
void written(const ChannelScanArgs& args, const Visit& visit) {
  visit(args.kept);
  visit(args.out);
}
template <typename Visit>
void written(const WkvInputsArgs& args, const Visit& visit) {
  visit(args.k);
  visit(args.v);
  visit(args.decay);
  visit(args.rate);
  visit(args.erased);
}
template <typename Visit>
void written(const WkvOutputArgs& args, const Visit& visit) {
  visit(args.y);
}
template <typename Visit>
void written(const DrawArgs& args, const Visit& visit) {
  visit(args.tokens, args.batch->num_outputs * sizeof *args.tokens);
}
template <typename Visit>
void written(const BestLogitsArgs& args, const Visit& visit) {
  visit(args.best, args.batch->num_outputs * sizeof *args.best);
}
template <typename Visit>
void written(const FeedArgs& args, const Visit& visit) {
  visit(args.token_ids, args.batch->num_tokens * sizeof *args.token_ids);
}

}  // namespace hearth::kernels
