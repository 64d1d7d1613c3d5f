// The whole case table of tests/op on CUDA's kernels, run by the shim: its device memory is host
// memory, and every op is synchronized.

#include <doctest/doctest.h>

#include "kernels/cuda/op_table.h"
#include "kernels/ops/encoder_ops.h"
#include "kernels/ops/recurrent_ops.h"
#include "kernels/ops/wkv_ops.h"
#include "tests/op/op_testing.h"

namespace hearth::kernels::testing {
namespace {

const OpTable& shim_table() {
  static const OpTable table = [] {
    auto made = cuda_ops({});
    if (!made.ok()) FAIL(made.error().message);
    return std::move(made).value();
  }();
  return table;
}

/// Calls the op of that member and synchronizes.
template <auto member, typename Args>
void waited(void* state, const Args& args) {
  (shim_table().*member)(state, args);
  shim_table().synchronize(state);
}

/// The cases of encoders, too.
template <auto member, typename Args>
void encoder_waited(void* state, const Args& args) {
  (shim_table().encoder->*member)(state, args);
  shim_table().synchronize(state);
}
constexpr EncoderOps kWaitingEncoderOps = {
    encoder_waited<&EncoderOps::layer_norm, LayerNormArgs>,
    encoder_waited<&EncoderOps::gelu, GeluArgs>,
    encoder_waited<&EncoderOps::attention_to_all, AttentionArgs>,
    encoder_waited<&EncoderOps::scale_by_position, ScaleByPositionArgs>,
    encoder_waited<&EncoderOps::sigmoid_gate, SigmoidGateArgs>,
    encoder_waited<&EncoderOps::relu_squared, ReluSquaredArgs>};

/// And of layers with a state.
template <auto member, typename Args>
void recurrent_waited(void* state, const Args& args) {
  (shim_table().recurrent->*member)(state, args);
  shim_table().synchronize(state);
}
constexpr RecurrentOps kWaitingRecurrentOps = {
    recurrent_waited<&RecurrentOps::short_conv, ShortConvArgs>,
    recurrent_waited<&RecurrentOps::head_scan, HeadScanArgs>,
    recurrent_waited<&RecurrentOps::channel_scan, ChannelScanArgs>,
    recurrent_waited<&RecurrentOps::wkv_inputs, WkvInputsArgs>,
    recurrent_waited<&RecurrentOps::wkv_output, WkvOutputArgs>};

OpTable waiting_table() {
  OpTable table = shim_table();
  table.set_num_threads = [](void*, int32_t) {};
  table.embed = waited<&OpTable::embed, EmbedArgs>;
  table.rms_norm = waited<&OpTable::rms_norm, RmsNormArgs>;
  table.matmul = waited<&OpTable::matmul, MatmulArgs>;
  table.add_bias = waited<&OpTable::add_bias, AddBiasArgs>;
  table.add_scaled = waited<&OpTable::add_scaled, AddScaledArgs>;
  table.soft_cap = waited<&OpTable::soft_cap, SoftCapArgs>;
  table.rope_table = waited<&OpTable::rope_table, RopeTableArgs>;
  table.rope = waited<&OpTable::rope, RopeArgs>;
  table.copy_heads = waited<&OpTable::copy_heads, CopyHeadsArgs>;
  table.times_rms = waited<&OpTable::times_rms, TimesRmsArgs>;
  table.keep_peaks = waited<&OpTable::keep_peaks, KeepPeaksArgs>;
  table.kv_store = waited<&OpTable::kv_store, KvStoreArgs>;
  table.attention = waited<&OpTable::attention, AttentionArgs>;
  table.gated_activation = waited<&OpTable::gated_activation, GatedActivationArgs>;
  table.gather_rows = waited<&OpTable::gather_rows, GatherRowsArgs>;
  table.copy_blocks = waited<&OpTable::copy_blocks, CopyBlocksArgs>;
  table.encoder = &kWaitingEncoderOps;
  table.recurrent = &kWaitingRecurrentOps;
  table.moe_route = waited<&OpTable::moe_route, MoeRouteArgs>;
  table.moe_matmul = waited<&OpTable::moe_matmul, MoeMatmulArgs>;
  table.moe_combine = waited<&OpTable::moe_combine, MoeCombineArgs>;
  return table;
}

}  // namespace

const std::vector<NamedTable>& cpu_tables(int32_t) {
  static const std::vector<NamedTable> tables = {{.name = "cuda on the shim",
                                                  .ops = waiting_table(),
                                                  .reference_kv = false,
                                                  .simulated = true,
                                                  .f16_rounding = 0x1p-11,
                                                  .bf16_rounding = 0x1p-16}};
  return tables;
}

const OpTable& reference() {
  static const OpTable table = reference_ops(true);
  return table;
}

}  // namespace hearth::kernels::testing
