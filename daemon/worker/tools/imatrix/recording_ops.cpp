#include "daemon/worker/tools/imatrix/recording_ops.h"

#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/ops/encoder_ops.h"
#include "kernels/ops/recurrent_ops.h"

namespace hearth::worker {
namespace {

using kernels::OpTable;
using kernels::Weight;

/// The first rows of a view, copied to the host; they keep their stride.
template <typename T>
std::vector<T> rows_of(const OpTable& ops, const kernels::TensorView& x, int64_t rows) {
  if (rows == 0) return {};
  std::vector<T> out((rows - 1) * x.row_stride + x.cols);
  ops.copy_to_host(ops.state.get(), out.data(), x.data, out.size() * sizeof(T));
  return out;
}

}  // namespace

struct InputRecorder::Records {
  struct Matrix {
    std::vector<std::string> names;
    models::InputSums sums;

    void add(const float* x, int64_t index) {
      double* squares = sums.squares.data() + index * sums.cols;
      for (int64_t i = 0; i < sums.cols; ++i) squares[i] += double{x[i]} * x[i];
      ++sums.counts[index];
    }
  };
  std::vector<Matrix> matrices;  // in the order in which they were packed
  std::unordered_map<const Weight*, size_t> places;

  Matrix& of(const Weight* weight) { return matrices[places.at(weight)]; }
};

/// The state of the recording table: what the inner table computes with, and where it is recorded.
struct InputRecorder::State {
  OpTable inner;
  kernels::EncoderOps encoder = {};
  kernels::RecurrentOps recurrent = {};
  Records* records;

  static State& of(void* state) { return *static_cast<State*>(state); }

  static Result<std::unique_ptr<Weight>> pack(void* state,
                                              std::span<const kernels::HostTensor> tensors,
                                              kernels::WeightRole role) {
    const State& s = of(state);
    HEARTH_ASSIGN_OR_RETURN(auto weight, s.inner.pack_weights(s.inner.state.get(), tensors, role));
    if (role == kernels::WeightRole::kVector) return weight;
    Records::Matrix matrix;
    for (const kernels::HostTensor& tensor : tensors) matrix.names.emplace_back(tensor.name);
    matrix.sums.cols = weight->cols;
    matrix.sums.squares.resize(weight->cols * weight->num_experts);
    matrix.sums.counts.resize(weight->num_experts);
    // A weight may have the address of one that is gone.
    s.records->places.insert_or_assign(weight.get(), s.records->matrices.size());
    s.records->matrices.push_back(std::move(matrix));
    return weight;
  }

  static void matmul(void* state, const kernels::MatmulArgs& args) {
    const State& s = of(state);
    const int64_t rows =
        args.rows == kernels::Rows::kTokens ? args.batch->num_tokens : args.batch->num_outputs;
    const std::vector<float> x = rows_of<float>(s.inner, args.x, rows);
    Records::Matrix& matrix = s.records->of(args.w);
    for (int64_t t = 0; t < rows; ++t) matrix.add(x.data() + t * args.x.row_stride, 0);
    s.inner.matmul(s.inner.state.get(), args);
  }

  static void moe_matmul(void* state, const kernels::MoeMatmulArgs& args) {
    const State& s = of(state);
    const int64_t tokens = args.batch->num_tokens, top_k = args.ids.cols;
    const std::vector<float> x =
        rows_of<float>(s.inner, args.x, args.x_per_choice ? tokens * top_k : tokens);
    const std::vector<int32_t> ids = rows_of<int32_t>(s.inner, args.ids, tokens);
    Records::Matrix& matrix = s.records->of(args.w);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t j = 0; j < top_k; ++j) {
        const int64_t row = args.x_per_choice ? t * top_k + j : t;
        matrix.add(x.data() + row * args.x.row_stride, ids[t * args.ids.row_stride + j]);
      }
    }
    s.inner.moe_matmul(s.inner.state.get(), args);
  }
};

namespace {

/// A function of the table that calls the inner table's; kOp is a member of OpTable.
template <auto kOp>
struct Passed;
template <typename R, typename... Args, R (*OpTable::*kOp)(void*, Args...)>
struct Passed<kOp> {
  template <typename State>
  static R call(void* state, Args... args) {
    const OpTable& inner = State::of(state).inner;
    return (inner.*kOp)(inner.state.get(), std::forward<Args>(args)...);
  }
};

/// The same for a member of one of the tables that OpTable points to.
template <auto kOp, auto kTable>
struct PassedOf;
template <typename Ops, typename... Args, void (*Ops::*kOp)(void*, Args...), auto kTable>
struct PassedOf<kOp, kTable> {
  template <typename State>
  static void call(void* state, Args... args) {
    const OpTable& inner = State::of(state).inner;
    ((inner.*kTable)->*kOp)(inner.state.get(), std::forward<Args>(args)...);
  }
};

template <typename State, auto... kOps>
void pass(const OpTable& inner, OpTable& table) {
  ((table.*kOps = inner.*kOps != nullptr ? Passed<kOps>::template call<State> : nullptr), ...);
}

template <typename State, auto kTable, typename Ops, auto... kOps>
void pass_of(const OpTable& inner, Ops& ops) {
  ((ops.*kOps =
        (inner.*kTable)->*kOps != nullptr ? PassedOf<kOps, kTable>::template call<State> : nullptr),
   ...);
}

}  // namespace

InputRecorder::InputRecorder() : records_(std::make_unique<Records>()) {}
InputRecorder::~InputRecorder() = default;

OpTable InputRecorder::record(OpTable inner) {
  OpTable table;
  table.device = inner.device;
  table.numerics_id = inner.numerics_id;
  table.any_kv_shape = inner.any_kv_shape;
  table.any_kv_type = inner.any_kv_type;
  table.most_packed_bytes = inner.most_packed_bytes;
  const auto state = std::make_shared<State>();
  pass<State, &OpTable::allocate, &OpTable::release, &OpTable::copy_to_device,
       &OpTable::copy_to_host, &OpTable::synchronize, &OpTable::embed, &OpTable::rms_norm,
       &OpTable::add_bias, &OpTable::add_scaled, &OpTable::soft_cap, &OpTable::rope_table,
       &OpTable::rope, &OpTable::copy_heads, &OpTable::times_rms, &OpTable::keep_peaks,
       &OpTable::kv_store, &OpTable::attention, &OpTable::gated_activation, &OpTable::gather_rows,
       &OpTable::copy_blocks, &OpTable::moe_route, &OpTable::moe_combine,
       &OpTable::set_num_threads>(inner, table);
  if (inner.encoder != nullptr) {
    using kernels::EncoderOps;
    pass_of<State, &OpTable::encoder, EncoderOps, &EncoderOps::layer_norm, &EncoderOps::gelu,
            &EncoderOps::attention_to_all, &EncoderOps::scale_by_position,
            &EncoderOps::sigmoid_gate, &EncoderOps::relu_squared>(inner, state->encoder);
    table.encoder = &state->encoder;
  }
  if (inner.recurrent != nullptr) {
    using kernels::RecurrentOps;
    pass_of<State, &OpTable::recurrent, RecurrentOps, &RecurrentOps::short_conv,
            &RecurrentOps::head_scan, &RecurrentOps::channel_scan, &RecurrentOps::wkv_inputs,
            &RecurrentOps::wkv_output>(inner, state->recurrent);
    table.recurrent = &state->recurrent;
  }
  table.pack_weights = State::pack;
  table.matmul = State::matmul;
  if (inner.moe_matmul != nullptr) table.moe_matmul = State::moe_matmul;
  state->records = records_.get();
  state->inner = std::move(inner);
  table.state = state;
  return table;
}

std::vector<models::InputSums> InputRecorder::sums() const {
  std::map<std::string, models::InputSums> by_name;
  for (const Records::Matrix& matrix : records_->matrices) {
    int64_t rows = 0;
    for (const int64_t count : matrix.sums.counts) rows += count;
    if (rows == 0) continue;
    for (const std::string& name : matrix.names) {
      models::InputSums& sums = by_name[name];
      if (sums.name.empty()) {
        sums = matrix.sums;
        sums.name = name;
        continue;
      }
      // Slices of one tensor.
      HEARTH_CHECK(sums.squares.size() == matrix.sums.squares.size(), "{}", name);
      for (size_t i = 0; i < sums.squares.size(); ++i) sums.squares[i] += matrix.sums.squares[i];
      for (size_t i = 0; i < sums.counts.size(); ++i) sums.counts[i] += matrix.sums.counts[i];
    }
  }
  std::vector<models::InputSums> out;
  for (auto& [name, sums] : by_name) out.push_back(std::move(sums));
  return out;
}

}  // namespace hearth::worker
