#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops/recurrent_ops.h"
#include "kernels/ops/wkv_ops.h"

namespace hearth::kernels {
namespace {

/// The calls of a small model: each op once, on the table's memory.
class Calls {
 public:
  explicit Calls(OpTable ops) : ops_(std::move(ops)) {
    matrix_ = pack(DType::kF32, 16, 8, WeightRole::kMatmul);
    table_ = pack(DType::kF32, 10, 8, WeightRole::kEmbedding);
    vector_ = pack(DType::kF32, 1, 8, WeightRole::kVector);
    frequencies_ = pack(DType::kF32, 1, 4, WeightRole::kVector);
    pool_ = buffer(2 * kv().block_bytes);
    experts_ = pack(DType::kF32, 64, 8, WeightRole::kExperts, 8);
    for (DeviceBuffer* b : {&x_, &y_, &wide_, &cos_sin_, &gathered_, &ids_, &shares_, &answers_,
                            &states_in_, &scanned_, &wkv_[0], &wkv_[1], &wkv_[2]}) {
      *b = buffer(3 * 16 * 4);
    }
    taps_ = pack(DType::kF32, 1, 2 * 16, WeightRole::kVector);
    channels_ = pack(DType::kF32, 1, 16, WeightRole::kVector);
    decays_ = pack(DType::kF32, 1, 8 * 16, WeightRole::kVector, 1, true);
    one_ = pack(DType::kF32, 1, 1, WeightRole::kVector, 1, true);
    states_ = buffer(2 * 4096);
    kept_ = buffer(2 * kKeptRows * 64 * 4);
    std::vector<float> rows(3 * 16);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = std::cos(static_cast<float>(i));
    ops_.copy_to_device(ops_.state.get(), states_in_.data(), rows.data(), rows.size() * 4);
  }

  void run() {
    void* s = ops_.state.get();
    const Weight* matrix = matrix_.get();
    ops_.embed(s, {.batch = &batch_, .table = table_.get(), .out = view(x_, 8)});
    ops_.rms_norm(s, {.batch = &batch_,
                      .x = view(x_, 8),
                      .weight = vector_.get(),
                      .eps = 1e-5f,
                      .out = view(y_, 8)});
    ops_.matmul(s, {.batch = &batch_, .x = view(y_, 8), .w = matrix, .out = view(wide_, 16)});
    ops_.gated_activation(s, {.batch = &batch_, .gate_up = view(wide_, 16), .out = view(y_, 8)});
    ops_.add_bias(s, {.batch = &batch_, .bias = vector_.get(), .out = view(y_, 8)});
    ops_.add_scaled(s, {.batch = &batch_, .x = view(x_, 8), .scale = 0.5f, .out = view(y_, 8)});
    ops_.soft_cap(s, {.batch = &batch_, .rows = Rows::kTokens, .soft_cap = 5, .x = view(y_, 8)});
    ops_.rope_table(
        s, {.batch = &batch_, .inv_freq = frequencies_.get(), .cos_sin = view(cos_sin_, 8)});
    ops_.rope(s, {.batch = &batch_,
                  .x = view(y_, 8),
                  .num_heads = 1,
                  .head_dim = 8,
                  .cos_sin = view(cos_sin_, 8)});
    ops_.kv_store(s, {.batch = &batch_, .k = view(y_, 8), .v = view(x_, 8), .kv = kv()});
    ops_.attention(s, {.batch = &batch_,
                       .q = view(y_, 8),
                       .kv = kv(),
                       .num_heads = 1,
                       .scale = 0.3f,
                       .out = view(x_, 8)});
    const int32_t src[] = {1};
    const int32_t dst[] = {0};
    ops_.copy_blocks(
        s, {.base = pool_.data(), .block_bytes = kv().block_bytes, .src = src, .dst = dst});
    mixture_of_experts();
    states();
    ops_.gather_rows(s, {.batch = &batch_, .x = view(x_, 8), .out = view(gathered_, 8, 1)});
  }

  /// x += the two experts' outputs for y.
  void mixture_of_experts() {
    void* s = ops_.state.get();
    TensorView ids = view(ids_, 2);
    ids.dtype = DType::kI32;
    ops_.moe_route(s, {.batch = &batch_,
                       .logits = view(y_, 8),
                       .top_k = 2,
                       .normalize = true,
                       .ids = ids,
                       .weights = view(shares_, 2)});
    ops_.moe_matmul(s, {.batch = &batch_,
                        .x = view(y_, 8),
                        .w = experts_.get(),
                        .ids = ids,
                        .out = view(answers_, 8, 6)});
    ops_.moe_combine(s, {.batch = &batch_,
                         .x = view(answers_, 8, 6),
                         .weights = view(shares_, 2),
                         .out = view(x_, 8)});
  }

  /// x, the last of whose rows is a draft, through the ops with a state; y is the result's gate.
  void states() {
    void* s = ops_.state.get();
    const TensorView x = view(states_in_, 16);
    const TensorView numbers = view(x_, 1);
    const TensorView keys = view(y_, 8);
    const auto part = [this](int64_t offset) { return StatePart{states_.data(), 4096, offset}; };
    ops_.recurrent->short_conv(s, {.batch = &batch_,
                                   .x = x,
                                   .weight = taps_.get(),
                                   .bias = nullptr,
                                   .taps = 2,
                                   .state = part(0),
                                   .kept = view(kept_, 16, 2 * kKeptRows),
                                   .out = view(wide_, 16)});
    ops_.recurrent->head_scan(
        s, {.batch = &batch_,
            .num_heads = 1,
            .num_k_heads = 1,
            .k_dim = 8,
            .v_dim = 16,
            .q = keys,
            .k = keys,
            .v = view(wide_, 16),
            .dt = numbers,
            .dt_bias = one_.get(),
            .a = one_.get(),
            .state = part(64),
            .kept = view(kept_, HeadScanArgs::kept_width(1, 1, 8, 16), 2 * kKeptRows),
            .out = x});
    ops_.recurrent->channel_scan(s, {.batch = &batch_,
                                     .x = x,
                                     .dt = view(wide_, 16),
                                     .b = keys,
                                     .c = keys,
                                     .dt_bias = channels_.get(),
                                     .a = decays_.get(),
                                     .skip = channels_.get(),
                                     .state = part(64 + 4 * 8 * 16),
                                     .kept = view(kept_, 2 * 16 + 8, 2 * kKeptRows),
                                     .out = view(scanned_, 16)});
    wkv(s);
    ops_.add_scaled(s, {.batch = &batch_, .x = view_of(scanned_, 16, 8), .out = view(x_, 8)});
  }

  void wkv(void* s) {
    const TensorView rows = view(scanned_, 16), other = view(wide_, 16);
    const Weight* each = channels_.get();
    ops_.recurrent->wkv_inputs(s, {.batch = &batch_,
                                   .head_dim = 16,
                                   .k = rows,
                                   .v = view(states_in_, 16),
                                   .decay = view(wkv_[0], 16),
                                   .rate = view(wkv_[1], 16),
                                   .erased = view(wkv_[2], 16),
                                   .erased_scale = each,
                                   .rate_bias = each,
                                   .k_scale = each,
                                   .decay_bias = each});
    ops_.recurrent->wkv_output(s, {.batch = &batch_,
                                   .head_dim = 16,
                                   .y = rows,
                                   .q = other,
                                   .k = other,
                                   .v = other,
                                   .bonus = each});
  }

  std::vector<float> result() const {
    std::vector<float> out(8);
    ops_.copy_to_host(ops_.state.get(), out.data(), gathered_.data(), 32);
    return out;
  }

 private:
  std::unique_ptr<Weight> pack(DType dtype, int64_t rows, int64_t cols, WeightRole role,
                               int32_t num_experts = 1, bool negative = false) {
    std::vector<float> values(static_cast<size_t>(rows * cols));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(static_cast<float>(i + values.size()));
      if (negative) values[i] = -std::abs(values[i]);
    }
    const HostTensor tensor{"w", dtype, rows, cols, std::as_bytes(std::span(values)), num_experts};
    return std::move(ops_.pack_weights(ops_.state.get(), {&tensor, 1}, role)).value();
  }
  DeviceBuffer buffer(int64_t bytes) {
    return std::move(DeviceBuffer::allocate(ops_, static_cast<size_t>(bytes), "test")).value();
  }
  static TensorView view(const DeviceBuffer& b, int64_t cols, int64_t rows = 3) {
    return {b.data(), DType::kF32, rows, cols, cols};
  }
  static TensorView view_of(const DeviceBuffer& b, int64_t stride, int64_t cols) {
    return {b.data(), DType::kF32, 3, cols, stride};
  }
  PagedKv kv() const {
    constexpr auto shape = KvShape::even(1, 8);
    const int64_t layer = kv_layer_bytes(DType::kF16, 16, shape);
    return {pool_.data(), layer, 0, DType::kF16, 16, shape};
  }

  OpTable ops_;
  std::unique_ptr<Weight> matrix_, table_, vector_, frequencies_, experts_;
  std::unique_ptr<Weight> taps_, channels_, decays_, one_;
  DeviceBuffer pool_, x_, y_, wide_, cos_sin_, gathered_, ids_, shares_, answers_;
  DeviceBuffer states_, states_in_, scanned_, kept_, wkv_[3];
  /// Two rows stay, and their state is saved after the first; the third row is a draft.
  StateStep state_step_{.from = 0, .to = 0, .advance = 2, .saved = 1, .saved_after = 1};
  std::vector<int32_t> token_ids_{4, 9, 0}, positions_{0, 1, 2}, seq_idx_{0, 0, 0}, blocks_{1};
  std::vector<int32_t> slots_{16, 17, 18}, query_start_{0, 3}, context_len_{3}, output_rows_{2};
  std::vector<GroupIndex> groups_{{blocks_.data(), 1, slots_.data()}};
  BatchIndex batch_{.num_tokens = 3,
                    .num_seqs = 1,
                    .num_outputs = 1,
                    .token_ids = token_ids_.data(),
                    .positions = positions_.data(),
                    .seq_idx = seq_idx_.data(),
                    .query_start = query_start_.data(),
                    .context_len = context_len_.data(),
                    .output_rows = output_rows_.data(),
                    .groups = groups_,
                    .states = &state_step_};
};

/// An op with a state that leaves the state where a snapshot belongs.
template <auto member, typename Args>
void into_wrong_block(void* s, const Args& args) {
  StateStep step = args.batch->states[0];
  step.to = std::exchange(step.saved, -1);
  BatchIndex batch = *args.batch;
  batch.states = &step;
  Args changed = args;
  changed.batch = &batch;
  (reference_ops().recurrent->*member)(s, changed);
}
template <auto member, typename Op>
void break_recurrent_op(OpTable& table, const Op& op) {
  static RecurrentOps wrong;
  wrong = *table.recurrent;
  wrong.*member = op;
  table.recurrent = &wrong;
}
template <auto member>
void break_state_op(OpTable& table) {
  break_recurrent_op<member>(table,
                             [](void* s, const auto& args) { into_wrong_block<member>(s, args); });
}

OpTable best() { return cpu_ops({.num_threads = 2, .variant = ""}).value(); }

/// The stderr of a child process that runs `body`, before it is aborted; "" if it is not.
std::string abort_message(const std::function<void()>& body) {
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // not doctest's report of a crash
    dup2(pipe_ends[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(pipe_ends[1]);
  std::string text;
  char part[512];
  for (ssize_t n; (n = read(pipe_ends[0], part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(n));
  }
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? text : "";
}

TEST_CASE("checked ops give the first table's results") {
  Calls alone(best());
  alone.run();
  Calls checked(checked_ops(best(), reference_ops(), {}));
  checked.run();
  CHECK(checked.result() == alone.result());
  CHECK(alone.result()[0] != 0.0f);
}

TEST_CASE("a table that computes another value is named, with the op and both values") {
  using Break = std::function<void(OpTable&)>;
  const std::vector<std::pair<std::string, Break>> broken{
      {"matmul",
       [](OpTable& t) {
         t.matmul = [](void* s, const MatmulArgs& args) {
           reference_ops().matmul(s, args);
           args.out.row<float>(1)[5] += 0.1f;
         };
       }},
      {"attention",
       [](OpTable& t) {
         t.attention = [](void* s, const AttentionArgs& args) {
           AttentionArgs wrong = args;
           wrong.window = 2;
           reference_ops().attention(s, wrong);
         };
       }},
      {"kv_store", [](OpTable& t) { t.kv_store = [](void*, const KvStoreArgs&) {}; }},
      {"rms_norm",
       [](OpTable& t) {
         t.rms_norm = [](void*, const RmsNormArgs& args) { args.out.row<float>(0)[0] = NAN; };
       }},
      {"moe_route",
       [](OpTable& t) {
         t.moe_route = [](void* s, const MoeRouteArgs& args) {
           reference_ops().moe_route(s, args);
           std::swap(args.ids.row<int32_t>(1)[0], args.ids.row<int32_t>(1)[1]);
         };
       }},
      {"moe_matmul", [](OpTable& t) { t.moe_matmul = [](void*, const MoeMatmulArgs&) {}; }},
      {"moe_combine", [](OpTable& t) { t.moe_combine = [](void*, const MoeCombineArgs&) {}; }},
      {"copy_blocks", [](OpTable& t) { t.copy_blocks = [](void*, const CopyBlocksArgs&) {}; }},
      {"short_conv", [](OpTable& t) { break_state_op<&RecurrentOps::short_conv>(t); }},
      {"head_scan", [](OpTable& t) { break_state_op<&RecurrentOps::head_scan>(t); }},
      {"channel_scan", [](OpTable& t) { break_state_op<&RecurrentOps::channel_scan>(t); }},
      {"wkv_inputs",
       [](OpTable& t) {
         break_recurrent_op<&RecurrentOps::wkv_inputs>(t, [](void* s, const WkvInputsArgs& args) {
           reference_ops().recurrent->wkv_inputs(s, args);
           args.rate.row<float>(1)[3] += 0.1f;
         });
       }},
      {"wkv_output", [](OpTable& t) {
         break_recurrent_op<&RecurrentOps::wkv_output>(t, [](void*, const WkvOutputArgs&) {});
       }}};
  for (const auto& [op, breaks] : broken) {
    const std::string text = abort_message([&] {
      OpTable wrong = reference_ops();
      breaks(wrong);
      Calls(checked_ops(reference_ops(), wrong, {})).run();
    });
    CHECK_MESSAGE(text.find("op " + op + ": row") != std::string::npos, op << ": " << text);
  }
}

TEST_CASE("a tensor that either table refuses is refused") {
  const OpTable table = checked_ops(reference_ops(), best(), {});
  const HostTensor tensor{"bad", DType::kIQ2_S, 1, 256, {}};
  CHECK_FALSE(table.pack_weights(table.state.get(), {&tensor, 1}, WeightRole::kMatmul).ok());
}

}  // namespace
}  // namespace hearth::kernels
