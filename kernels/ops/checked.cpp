// Runs two tables in one memory: every op runs on `b`, then, from the same inputs, on `a`, and the
// outputs are compared. KV layout and activations are the same for all tables in host memory; only
// weights are packed twice.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/ops.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/half.h"
#include "kernels/ops/kv_layout.h"
#include "kernels/ops/recurrent_kernels.h"
#include "kernels/ops/wkv_ops.h"

namespace hearth::kernels {
namespace {

struct CheckedState {
  OpTable a;
  OpTable b;
  CheckedOptions options;
};

struct CheckedWeight final : Weight {
  std::unique_ptr<Weight> a;
  std::unique_ptr<Weight> b;
};

const Weight* side(const Weight* weight, std::unique_ptr<Weight> CheckedWeight::*which) {
  return weight != nullptr ? (static_cast<const CheckedWeight*>(weight)->*which).get() : nullptr;
}

/// A piece of memory that an op writes: `count` elements of one type.
struct Region {
  std::byte* data;
  DType dtype;
  int64_t count;

  size_t bytes() const { return bytes_of(dtype, count); }
};

/// The elements of all regions, as f32, and their bytes for restoring.
struct Snapshot {
  std::vector<std::byte> bytes;

  explicit Snapshot(const std::vector<Region>& regions) {
    for (const Region& r : regions) bytes.insert(bytes.end(), r.data, r.data + r.bytes());
  }
  void restore(const std::vector<Region>& regions) const {
    const std::byte* at = bytes.data();
    for (const Region& r : regions) {
      std::memcpy(r.data, at, r.bytes());
      at += r.bytes();
    }
  }
};

double element(const std::byte* data, DType dtype, int64_t i) {
  float value;
  uint16_t half;
  int32_t integer;
  switch (dtype) {
    case DType::kF32: std::memcpy(&value, data + 4 * i, 4); return value;
    case DType::kF16: std::memcpy(&half, data + 2 * i, 2); return f32_from_f16(half);
    case DType::kBF16: std::memcpy(&half, data + 2 * i, 2); return f32_from_bf16(half);
    case DType::kI32: std::memcpy(&integer, data + 4 * i, 4); return integer;
    default: return std::to_integer<uint8_t>(data[i]);
  }
}

/// The difference of two values relative to `scale`; NaN equals NaN, and equal infinities are
/// equal.
double difference(double a, double b, double scale) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double share = std::abs(a - b) / scale;
  return std::isnan(share) ? std::numeric_limits<double>::infinity() : share;
}

void compare(std::string_view op, const CheckedState& state, const std::vector<Region>& regions,
             const std::vector<std::byte>& b_bytes) {
  double largest = 1e-30;
  for (const Region& r : regions) {
    if (r.dtype == DType::kI32) continue;  // ids have no magnitudes
    for (int64_t i = 0; i < r.count; ++i) {
      const double value = std::abs(element(r.data, r.dtype, i));
      if (std::isfinite(value)) largest = std::max(largest, value);
    }
  }
  const std::byte* b = b_bytes.data();
  for (size_t n = 0; n < regions.size(); ++n) {
    const Region& r = regions[n];
    for (int64_t i = 0; i < r.count; ++i) {
      const double va = element(r.data, r.dtype, i);
      const double vb = element(b, r.dtype, i);
      const double tolerance = r.dtype == DType::kI32 ? 0 : state.options.relative_tolerance;
      HEARTH_CHECK(difference(va, vb, largest) <= tolerance,
                   "op {}: row {} column {}: {} has {}, {} has {}, largest {}", op, n, i,
                   state.a.device.variant, va, state.b.device.variant, vb, largest);
    }
    b += r.bytes();
  }
}

template <typename RunA, typename RunB>
void run_both(std::string_view op, const CheckedState& state, const std::vector<Region>& regions,
              const RunA& run_a, const RunB& run_b) {
  const Snapshot before(regions);
  run_b();
  state.b.synchronize(state.b.state.get());
  const Snapshot after_b(regions);
  before.restore(regions);
  run_a();
  state.a.synchronize(state.a.state.get());
  compare(op, state, regions, after_b.bytes);
}

std::vector<Region> rows_of(const TensorView& view, int32_t rows) {
  std::vector<Region> regions;
  for (int32_t r = 0; r < rows; ++r) {
    regions.push_back({reinterpret_cast<std::byte*>(view.row<float>(r)), view.dtype, view.cols});
  }
  return regions;
}

/// Codes and scales are compared by their bytes, which are the same in all tables.
Region elements_of(std::byte* data, KvType type, int64_t bytes) {
  switch (type) {
    case KvType::kF32: return {data, DType::kF32, bytes / 4};
    case KvType::kF16: return {data, DType::kF16, bytes / 2};
    case KvType::kBF16: return {data, DType::kBF16, bytes / 2};
    case KvType::kQ8_0:
    case KvType::kFp8:
    case KvType::kQ4_0: break;
  }
  return {data, DType::kI8, bytes};
}

/// The whole layer in every block that a slot lies in, each block once.
std::vector<Region> blocks_of(const KvStoreArgs& args) {
  const PagedKv& kv = args.kv;
  const int32_t* slots = args.batch->groups[args.group].slot_mapping;
  std::vector<int32_t> blocks;
  for (int32_t t = 0; t < num_rows(*args.batch, Rows::kTokens); ++t) {
    if (slots[t] >= 0) blocks.push_back(slots[t] / kv.block_size);
  }
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  const int64_t heads = kv.shape.num_kv_heads;
  const int64_t k_bytes = heads * kv_head_bytes(kv.types.k, kv.block_size, kv.shape.k_dim);
  const int64_t v_bytes = heads * kv_head_bytes(kv.types.v, kv.block_size, kv.shape.v_dim);
  std::vector<Region> regions;
  for (const int32_t block : blocks) {
    std::byte* layer = kv.base + block * kv.block_bytes + kv.layer_offset;
    regions.push_back(elements_of(layer, kv.types.k, k_bytes));
    if (!kv.shape.v_in_k) regions.push_back(elements_of(layer + k_bytes, kv.types.v, v_bytes));
  }
  return regions;
}

/// Runs `op` on both tables; `weight` is the member of the args that points to a weight, or null.
template <typename Args>
void run_op(std::string_view name, void* state_pointer, const Args& args,
            const std::vector<Region>& regions, void (*OpTable::*op)(void*, const Args&),
            const Weight* Args::*weight = nullptr) {
  const auto& state = *static_cast<const CheckedState*>(state_pointer);
  Args for_a = args;
  Args for_b = args;
  if (weight != nullptr) {
    for_a.*weight = side(args.*weight, &CheckedWeight::a);
    for_b.*weight = side(args.*weight, &CheckedWeight::b);
  }
  run_both(
      name, state, regions, [&] { (state.a.*op)(state.a.state.get(), for_a); },
      [&] { (state.b.*op)(state.b.state.get(), for_b); });
}

Result<std::unique_ptr<Weight>> pack_both(void* state_pointer, std::span<const HostTensor> tensors,
                                          WeightRole role) {
  const auto& state = *static_cast<const CheckedState*>(state_pointer);
  auto weight = std::make_unique<CheckedWeight>();
  HEARTH_ASSIGN_OR_RETURN(weight->a, state.a.pack_weights(state.a.state.get(), tensors, role));
  HEARTH_ASSIGN_OR_RETURN(weight->b, state.b.pack_weights(state.b.state.get(), tensors, role));
  weight->rows = weight->a->rows;
  weight->cols = weight->a->cols;
  weight->num_experts = weight->a->num_experts;
  weight->bytes = weight->a->bytes + weight->b->bytes;
  weight->vector = weight->a->vector;
  return std::unique_ptr<Weight>(std::move(weight));
}

OpTable& a_of(void* state) { return static_cast<CheckedState*>(state)->a; }

int32_t tokens_of(const BatchIndex* batch) { return num_rows(*batch, Rows::kTokens); }

void set_ops(OpTable& table) {
  table.embed = [](void* s, const EmbedArgs& args) {
    run_op("embed", s, args, rows_of(args.out, tokens_of(args.batch)), &OpTable::embed,
           &EmbedArgs::table);
  };
  table.rms_norm = [](void* s, const RmsNormArgs& given) {
    RmsNormArgs args = given;
    args.reader = nullptr;  // it belongs to neither table
    run_op("rms_norm", s, args, rows_of(args.out, num_rows(*args.batch, args.rows)),
           &OpTable::rms_norm, &RmsNormArgs::weight);
  };
  table.matmul = [](void* s, const MatmulArgs& args) {
    run_op("matmul", s, args, rows_of(args.out, num_rows(*args.batch, args.rows)), &OpTable::matmul,
           &MatmulArgs::w);
  };
  table.add_bias = [](void* s, const AddBiasArgs& args) {
    run_op("add_bias", s, args, rows_of(args.out, tokens_of(args.batch)), &OpTable::add_bias,
           &AddBiasArgs::bias);
  };
  table.add_scaled = [](void* s, const AddScaledArgs& args) {
    run_op("add_scaled", s, args, rows_of(args.out, tokens_of(args.batch)), &OpTable::add_scaled);
  };
  table.soft_cap = [](void* s, const SoftCapArgs& args) {
    run_op("soft_cap", s, args, rows_of(args.x, num_rows(*args.batch, args.rows)),
           &OpTable::soft_cap);
  };
  table.rope_table = [](void* s, const RopeTableArgs& args) {
    run_op("rope_table", s, args, rows_of(args.cos_sin, tokens_of(args.batch)),
           &OpTable::rope_table, &RopeTableArgs::inv_freq);
  };
  table.rope = [](void* s, const RopeArgs& args) {
    run_op("rope", s, args, rows_of(args.x, tokens_of(args.batch)), &OpTable::rope);
  };
  table.copy_heads = [](void* s, const CopyHeadsArgs& args) {
    run_op("copy_heads", s, args, rows_of(args.out, tokens_of(args.batch)), &OpTable::copy_heads);
  };
  table.times_rms = [](void* s, const TimesRmsArgs& args) {
    run_op("times_rms", s, args, rows_of(args.x, tokens_of(args.batch)), &OpTable::times_rms);
  };
  table.keep_peaks = [](void* s, const KeepPeaksArgs& args) {
    run_op("keep_peaks", s, args, rows_of(args.x, tokens_of(args.batch)), &OpTable::keep_peaks);
  };
  table.kv_store = [](void* s, const KvStoreArgs& args) {
    run_op("kv_store", s, args, blocks_of(args), &OpTable::kv_store);
  };
  table.attention = [](void* s, const AttentionArgs& given) {
    AttentionArgs args = given;
    args.reader = nullptr;
    run_op("attention", s, args, rows_of(args.out, tokens_of(args.batch)), &OpTable::attention,
           &AttentionArgs::sinks);
  };
  table.gated_activation = [](void* s, const GatedActivationArgs& given) {
    GatedActivationArgs args = given;
    args.reader = nullptr;
    run_op("gated_activation", s, args,
           rows_of(args.out, tokens_of(args.batch) * args.rows_per_token),
           &OpTable::gated_activation);
  };
  table.gather_rows = [](void* s, const GatherRowsArgs& args) {
    run_op("gather_rows", s, args, rows_of(args.out, num_rows(*args.batch, Rows::kOutputs)),
           &OpTable::gather_rows);
  };
  table.copy_blocks = [](void* s, const CopyBlocksArgs& args) {
    std::vector<Region> regions;
    for (const int32_t block : args.dst) {
      regions.push_back({args.base + block * args.block_bytes, DType::kI8, args.block_bytes});
    }
    run_op("copy_blocks", s, args, regions, &OpTable::copy_blocks);
  };
}

void set_moe_ops(OpTable& table) {
  table.moe_route = [](void* s, const MoeRouteArgs& args) {
    std::vector<Region> regions = rows_of(args.ids, tokens_of(args.batch));
    for (const Region& r : rows_of(args.weights, tokens_of(args.batch))) regions.push_back(r);
    run_op("moe_route", s, args, regions, &OpTable::moe_route, &MoeRouteArgs::selection_bias);
  };
  table.moe_matmul = [](void* s, const MoeMatmulArgs& args) {
    const int64_t rows = tokens_of(args.batch) * args.ids.cols;
    run_op("moe_matmul", s, args, rows_of(args.out, narrow<int32_t>(rows)), &OpTable::moe_matmul,
           &MoeMatmulArgs::w);
  };
  table.moe_combine = [](void* s, const MoeCombineArgs& args) {
    run_op("moe_combine", s, args, rows_of(args.out, tokens_of(args.batch)), &OpTable::moe_combine);
  };
}

// ---- Ops with a state -------------------------------------------------------------------------

/// The output, the states that the step writes, and the rows that it keeps of drafts.
template <typename Args>
std::vector<Region> written_by(const Args& args, int64_t state_values) {
  const BatchIndex& batch = *args.batch;
  std::vector<Region> regions = rows_of(args.out, tokens_of(&batch));
  const auto add = [&regions](float* data, int64_t count) {
    regions.push_back({reinterpret_cast<std::byte*>(data), DType::kF32, count});
  };
  for (int32_t seq = 0; seq < num_seqs(batch); ++seq) {
    const StateStep& step = batch.states[seq];
    add(args.state.of(step.to), state_values);
    if (step.saved >= 0) add(args.state.of(step.saved), state_values);
    const int32_t rows = batch.query_start[seq + 1] - batch.query_start[seq];
    for (int32_t draft = 0; draft < rows - step.advance; ++draft) {
      add(args.kept.template row<float>(step.keep_first + draft), args.kept.cols);
    }
  }
  return regions;
}

/// `weights`: the members of the args that point to weights.
template <typename Args>
void run_recurrent_op(std::string_view name, void* state_pointer, const Args& args,
                      std::initializer_list<const Weight * Args::*> weights,
                      const std::vector<Region>& regions,
                      void (*RecurrentOps::*op)(void*, const Args&)) {
  const auto& state = *static_cast<const CheckedState*>(state_pointer);
  Args for_a = args;
  Args for_b = args;
  for (const Weight* Args::*weight : weights) {
    for_a.*weight = side(args.*weight, &CheckedWeight::a);
    for_b.*weight = side(args.*weight, &CheckedWeight::b);
  }
  run_both(
      name, state, regions, [&] { (state.a.recurrent->*op)(state.a.state.get(), for_a); },
      [&] { (state.b.recurrent->*op)(state.b.state.get(), for_b); });
}

template <typename Args>
void run_state_op(std::string_view name, void* state, const Args& args,
                  std::initializer_list<const Weight * Args::*> weights, int64_t state_values,
                  void (*RecurrentOps::*op)(void*, const Args&)) {
  run_recurrent_op(name, state, args, weights, written_by(args, state_values), op);
}

std::vector<Region> rows_of_all(const BatchIndex& batch, std::span<const TensorView> views) {
  std::vector<Region> regions;
  for (const TensorView& view : views) {
    const std::vector<Region> rows = rows_of(view, tokens_of(&batch));
    regions.insert(regions.end(), rows.begin(), rows.end());
  }
  return regions;
}

void check_wkv_inputs(void* state, const WkvInputsArgs& args) {
  const TensorView written[] = {args.k, args.v, args.decay, args.rate, args.erased};
  run_recurrent_op(
      "wkv_inputs", state, args,
      {&WkvInputsArgs::erased_scale, &WkvInputsArgs::rate_bias, &WkvInputsArgs::k_scale,
       &WkvInputsArgs::decay_bias, &WkvInputsArgs::v_gate_bias},
      rows_of_all(*args.batch, written), &RecurrentOps::wkv_inputs);
}

void check_wkv_output(void* state, const WkvOutputArgs& args) {
  run_recurrent_op("wkv_output", state, args,
                   {&WkvOutputArgs::bonus, &WkvOutputArgs::norm, &WkvOutputArgs::norm_bias},
                   rows_of(args.y, tokens_of(args.batch)), &RecurrentOps::wkv_output);
}

constexpr RecurrentOps kCheckedRecurrentOps = {
    .short_conv =
        [](void* s, const ShortConvArgs& args) {
          run_state_op("short_conv", s, args, {&ShortConvArgs::weight, &ShortConvArgs::bias},
                       (args.taps - 1) * args.x.cols, &RecurrentOps::short_conv);
        },
    .head_scan =
        [](void* s, const HeadScanArgs& args) {
          run_state_op("head_scan", s, args,
                       {&HeadScanArgs::dt_bias, &HeadScanArgs::a, &HeadScanArgs::skip},
                       int64_t{args.num_heads} * args.k_dim * args.v_dim, &RecurrentOps::head_scan);
        },
    .channel_scan =
        [](void* s, const ChannelScanArgs& args) {
          run_state_op("channel_scan", s, args,
                       {&ChannelScanArgs::dt_bias, &ChannelScanArgs::a, &ChannelScanArgs::skip},
                       args.b.cols * args.x.cols, &RecurrentOps::channel_scan);
        },
    .wkv_inputs = check_wkv_inputs,
    .wkv_output = check_wkv_output};

}  // namespace

OpTable checked_ops(OpTable a, OpTable b, const CheckedOptions& options) {
  OpTable table;
  const bool has_moe = a.moe_route != nullptr && b.moe_route != nullptr;
  const bool has_states = a.recurrent != nullptr && b.recurrent != nullptr;
  table.device = a.device;
  table.device.variant = fmt::format("{} checked by {}", a.device.variant, b.device.variant);
  table.numerics_id = a.numerics_id;
  table.any_kv_shape = a.any_kv_shape && b.any_kv_shape;
  table.any_kv_type = a.any_kv_type && b.any_kv_type;
  table.state = std::make_shared<CheckedState>(CheckedState{std::move(a), std::move(b), options});
  table.allocate = [](void* s, size_t bytes) {
    const OpTable& t = a_of(s);
    return t.allocate(t.state.get(), bytes);
  };
  table.release = [](void* s, void* memory, size_t bytes) {
    const OpTable& t = a_of(s);
    t.release(t.state.get(), memory, bytes);
  };
  table.copy_to_device = [](void* s, void* dst, const void* src, size_t bytes) {
    const OpTable& t = a_of(s);
    t.copy_to_device(t.state.get(), dst, src, bytes);
  };
  table.copy_to_host = [](void* s, void* dst, const void* src, size_t bytes) {
    const OpTable& t = a_of(s);
    t.copy_to_host(t.state.get(), dst, src, bytes);
  };
  table.synchronize = [](void*) {};  // every op has already waited for both
  table.set_num_threads = [](void* s, int32_t num_threads) {
    for (OpTable* t : {&static_cast<CheckedState*>(s)->a, &static_cast<CheckedState*>(s)->b}) {
      t->set_num_threads(t->state.get(), std::min(num_threads, t->device.num_threads));
    }
  };
  table.pack_weights = pack_both;
  set_ops(table);
  if (has_moe) set_moe_ops(table);
  if (has_states) table.recurrent = &kCheckedRecurrentOps;
  return table;
}

}  // namespace hearth::kernels
