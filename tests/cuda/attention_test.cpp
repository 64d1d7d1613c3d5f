// kv_store and attention compared with the reference, and their batch invariance by ==.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "kernels/ops/encoder_ops.h"
#include "kernels/ops/half.h"
#include "tests/cuda/rig.h"
#include "tests/op/op_testing.h"

namespace hearth::tests {
namespace {

struct Case {
  kernels::KvTypes kv_type = {};
  int32_t kv_heads = 2;
  int32_t heads = 4;
  int32_t head_dim = 64;
  int32_t window = 0;
  float soft_cap = 0;
  bool sinks = false;
  bool to_all = false;  ///< as in encoders
  int32_t block_size = 16;
  float q_factor = 1;  ///< of the queries, whose scores are divided by it
  int32_t v_dim = 0;   ///< 0: as head_dim, the size of K
  bool v_in_k = false;
  float last_factor = 1;  ///< of V at the last position of each stored part

  kernels::KvShape shape() const {
    return {kv_heads, head_dim, v_dim > 0 ? v_dim : head_dim, v_in_k};
  }
  bool even() const { return shape() == kernels::KvShape::even(kv_heads, head_dim); }
};

/// Output rows by (sequence, position).
using Outputs = std::map<std::pair<int32_t, int32_t>, std::vector<float>>;

enum class Stream : uint64_t { kQuery, kKey, kValue };

/// A token's values depend only on its sequence and position, not on the step it runs in.
std::vector<float> token_rows(const std::vector<SeqPart>& parts, Stream stream, int64_t cols) {
  std::vector<float> rows;
  for (const SeqPart& part : parts) {
    for (int32_t p = part.cached; p < part.cached + part.scheduled; ++p) {
      const auto seed = static_cast<uint64_t>(part.id) << 34 | static_cast<uint64_t>(p) << 2 |
                        static_cast<uint64_t>(stream);
      const std::vector<float> row = Random(seed).floats(cols);
      rows.insert(rows.end(), row.begin(), row.end());
    }
  }
  return rows;
}

/// A pool whose unused slots hold NaN, with sequences in scattered blocks.
class Pool {
 public:
  Pool(const OpTable& ops, const Case& c, const std::vector<SeqPart>& parts) : ops_(ops), c_(c) {
    int32_t num_blocks = 0;
    for (const SeqPart& part : parts) {
      const int32_t blocks = (part.cached + part.scheduled + c.block_size - 1) / c.block_size;
      tables_.emplace_back(static_cast<size_t>(blocks));
      num_blocks += blocks;
    }
    const kernels::KvShape shape = c.shape();
    const int64_t layer = kernels::kv_layer_bytes(c.kv_type, c.block_size, shape);
    std::vector<unsigned char> nan(static_cast<size_t>(num_blocks * 2 * layer), 0xff);
    memory_ = upload(ops, nan);
    kv_ = {memory_.data(), 2 * layer, layer, c.kv_type, c.block_size, shape};
    // Physical blocks in another order than the logical one, sequences interleaved.
    std::vector<int32_t> order(static_cast<size_t>(num_blocks));
    std::iota(order.begin(), order.end(), 0);
    Random random(77);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.next() % i]);
    for (auto& table : tables_) {
      for (int32_t& block : table) {
        block = order.back();
        order.pop_back();
      }
    }
  }

  const std::vector<std::vector<int32_t>>& tables() const { return tables_; }
  const kernels::PagedKv& kv() const { return kv_; }
  size_t bytes() const { return memory_.size(); }

  void store(const std::vector<SeqPart>& parts) {
    const Step step(ops_, parts, tables_, c_.block_size);
    const int64_t k_cols = c_.shape().k_width(), v_cols = c_.shape().v_width();
    const DeviceRows k(ops_, step.bound(), k_cols, token_rows(parts, Stream::kKey, k_cols));
    std::vector<float> values = token_rows(parts, Stream::kValue, v_cols);
    int64_t row = 0;
    for (const SeqPart& part : parts) {
      row += part.scheduled;
      for (int64_t i = (row - 1) * v_cols; i < row * v_cols; ++i) {
        values[static_cast<size_t>(i)] *= c_.last_factor;
      }
    }
    const DeviceRows v(ops_, step.bound(), v_cols, values);
    ops_.kv_store(ops_.state.get(), {&step.batch(), 0, k.view(), v.view(), kv_});
    ops_.synchronize(ops_.state.get());
  }

 private:
  const OpTable& ops_;
  const Case& c_;
  std::vector<std::vector<int32_t>> tables_;
  kernels::DeviceBuffer memory_;
  kernels::PagedKv kv_;
};

/// Attention of one step whose KV, cached and its own, is in the pool.
void attend(const OpTable& ops, const Case& c, const Pool& pool, const std::vector<SeqPart>& parts,
            Outputs* outputs) {
  const Step step(ops, parts, pool.tables(), c.block_size);
  const int64_t q_cols = int64_t{c.heads} * c.head_dim;
  const int64_t cols = int64_t{c.heads} * c.shape().v_dim;
  std::vector<float> queries = token_rows(parts, Stream::kQuery, q_cols);
  for (float& value : queries) value *= c.q_factor;
  const DeviceRows q(ops, step.bound(), q_cols, queries);
  const DeviceRows out(ops, step.bound(), cols);
  const auto sinks = pack(ops, {random_tensor(50, DType::kF32, 1, c.heads)}, WeightRole::kVector);
  kernels::AttentionArgs args{};
  args.batch = &step.batch();
  args.q = q.view();
  args.kv = pool.kv();
  args.num_heads = c.heads;
  args.scale = 0.4f / c.q_factor;
  args.window = c.window;
  args.soft_cap = c.soft_cap;
  args.sinks = c.sinks ? sinks.get() : nullptr;
  args.out = out.view();
  (c.to_all ? ops.encoder->attention_to_all : ops.attention)(ops.state.get(), args);
  const std::vector<float> rows = out.read(step.num_tokens());
  auto at = rows.begin();
  for (const SeqPart& part : parts) {
    for (int32_t p = part.cached; p < part.cached + part.scheduled; ++p, at += cols) {
      (*outputs)[{part.id, p}] = std::vector<float>(at, at + cols);
    }
  }
}

std::vector<SeqPart> whole(const std::vector<SeqPart>& parts) {
  std::vector<SeqPart> all = parts;
  for (SeqPart& part : all) part = {part.id, 0, part.cached + part.scheduled};
  return all;
}

Outputs run(const OpTable& ops, const Case& c, const std::vector<SeqPart>& parts) {
  Pool pool(ops, c, parts);
  pool.store(whole(parts));
  Outputs outputs;
  attend(ops, c, pool, parts, &outputs);
  return outputs;
}

std::vector<float> flat(const Outputs& outputs) {
  std::vector<float> all;
  for (const auto& [token, row] : outputs) all.insert(all.end(), row.begin(), row.end());
  return all;
}

/// Weights sum to one and values are of order one: the error is that of exp and of one f32 chain;
/// on the tensor cores also that of rounded weights, with bf16 that of rounded scores, and with
/// q8_0 that of V rounded to f16.
double tolerance(const Case& c) {
  if (c.head_dim % 16 != 0 || c.head_dim > 256 || !c.even()) return 3e-6;
  if (c.kv_type == DType::kF16 || c.kv_type == DType::kQ8_0) return 4e-4;
  return c.kv_type == DType::kBF16 ? 1e-4 : 3e-6;
}

void same_as_reference(const OpTable& ops, const Case& c, const std::vector<SeqPart>& parts) {
  CAPTURE(c.head_dim);
  CAPTURE(c.window);
  CAPTURE(kernels::kv_type_name(c.kv_type));
  const std::vector<float> want = flat(run(kernels::reference_ops(true), c, parts));
  in_every_order([&] { check_close(flat(run(ops, c, parts)), want, tolerance(c)); });
}

// A decode row, a chunk after cached tokens, a whole prompt, and one token alone.
const std::vector<SeqPart> kMixed = {{1, 40, 1}, {2, 17, 6}, {3, 0, 19}, {4, 0, 1}};

}  // namespace

TEST_CASE("attention: values of another size than keys, and values that lie in the keys") {
  HEARTH_CUDA_TABLE(ops);
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    same_as_reference(ops, {.kv_type = type, .head_dim = 64, .v_dim = 32}, kMixed);
    same_as_reference(ops, {.kv_type = type, .head_dim = 20, .sinks = true, .v_dim = 48}, kMixed);
    same_as_reference(ops,
                      {.kv_type = type,
                       .kv_heads = 1,
                       .heads = 10,
                       .head_dim = 576,
                       .v_dim = 512,
                       .v_in_k = true},
                      kMixed);
    same_as_reference(ops,
                      {.kv_type = type,
                       .kv_heads = 1,
                       .heads = 3,
                       .head_dim = 40,
                       .window = 10,
                       .v_dim = 23,
                       .v_in_k = true},
                      {{1, 300, 2}, {2, 0, 5}});
  }
}

TEST_CASE("attention: head sizes and KV types") {
  HEARTH_CUDA_TABLE(ops);
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    for (const int32_t head_dim : {4, 8, 16, 20, 64, 80, 96, 128, 256, 300}) {
      same_as_reference(ops, {.kv_type = type, .head_dim = head_dim}, kMixed);
    }
  }
}

TEST_CASE("attention: head groups and block sizes") {
  HEARTH_CUDA_TABLE(ops);
  same_as_reference(ops, {.kv_heads = 1, .heads = 1}, kMixed);
  same_as_reference(ops, {.kv_heads = 1, .heads = 7}, kMixed);
  same_as_reference(ops, {.kv_heads = 2, .heads = 24, .head_dim = 32}, kMixed);
  same_as_reference(ops, {.kv_heads = 3, .heads = 3, .block_size = 32}, kMixed);
  same_as_reference(ops, {.kv_heads = 2, .heads = 4, .block_size = 48}, kMixed);
  same_as_reference(ops, {.kv_type = DType::kBF16, .kv_heads = 1, .heads = 20}, kMixed);
  const DType q8 = DType::kQ8_0;
  same_as_reference(ops, {.kv_type = q8, .kv_heads = 1, .heads = 1, .head_dim = 96}, kMixed);
  same_as_reference(ops, {.kv_type = q8, .kv_heads = 2, .heads = 24, .head_dim = 80}, kMixed);
  same_as_reference(ops, {.kv_type = q8, .kv_heads = 3, .heads = 3, .block_size = 48}, kMixed);
}

TEST_CASE("attention: window, soft cap, sinks") {
  HEARTH_CUDA_TABLE(ops);
  for (const int32_t window : {1, 5, 16, 17, 1000}) {
    same_as_reference(ops, {.window = window}, kMixed);
  }
  same_as_reference(ops, {.soft_cap = 2.5f}, kMixed);
  same_as_reference(ops, {.sinks = true}, kMixed);
  for (const DType type : {DType::kF16, DType::kQ8_0}) {
    same_as_reference(ops, {.kv_type = type, .window = 9, .soft_cap = 3.0f, .sinks = true}, kMixed);
  }
}

TEST_CASE("attention: contexts of several splits") {
  HEARTH_CUDA_TABLE(ops);
  const std::vector<SeqPart> parts = {{1, 509, 6}, {2, 1023, 1}, {3, 1300, 2}};
  for (const DType type : {DType::kF16, DType::kQ8_0}) {
    Case c{.kv_type = type, .kv_heads = 1, .heads = 2, .head_dim = 32};
    same_as_reference(ops, c, parts);
    c.window = 520;
    same_as_reference(ops, c, parts);
    c.window = 0;
    c.sinks = true;
    same_as_reference(ops, c, parts);
  }
}

TEST_CASE("attention to all: whole texts, short ones and those of several splits") {
  HEARTH_CUDA_TABLE(ops);
  for (const DType type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    same_as_reference(ops, {.kv_type = type, .head_dim = 64, .to_all = true},
                      {{1, 0, 19}, {2, 0, 1}, {3, 0, 300}});
  }
  const Case few{.head_dim = 32, .to_all = true};
  const Outputs alone = run(ops, few, {{1, 0, 30}});
  const Outputs batched = run(ops, few, {{2, 0, 40}, {1, 0, 30}});
  for (const auto& [token, row] : alone) CHECK(batched.at(token) == row);
}

TEST_CASE("attention: a row's value depends on its own sequence alone") {
  HEARTH_CUDA_TABLE(ops);
  const std::vector<Case> cases = {
      {.head_dim = 40},
      {.kv_heads = 1, .heads = 5, .head_dim = 32, .window = 300},  // three rows per block
      {.kv_type = DType::kBF16, .kv_heads = 1, .heads = 1, .head_dim = 16},
      {.kv_heads = 1, .heads = 18, .head_dim = 16, .sinks = true},  // two groups of heads
      {.kv_type = DType::kQ8_0, .kv_heads = 1, .heads = 5, .head_dim = 80, .window = 300},
      {.kv_type = DType::kQ8_0, .kv_heads = 1, .heads = 1, .head_dim = 32, .soft_cap = 3.0f},
      {.kv_type = DType::kQ8_0, .head_dim = 40},
      {.kv_heads = 1, .heads = 4, .head_dim = 128},
      {.kv_type = DType::kQ8_0, .kv_heads = 1, .heads = 2, .head_dim = 256, .sinks = true},
  };
  for (const Case& c : cases) {
    CAPTURE(c.head_dim);
    CAPTURE(c.heads);
    // Together enough rows for the kernel that keeps a row's splits in one block.
    const std::vector<SeqPart> parts = {{1, 0, 70}, {2, 780, 3}, {3, 20, 9}};
    const Outputs together = run(ops, c, parts);
    for (const SeqPart& part : parts) {
      CHECK(run(ops, c, {part}).at({part.id, part.cached}) == together.at({part.id, part.cached}));
    }
    // The first sequence again, in chunks, storing KV on the way.
    Pool pool(ops, c, {parts[0]});
    Outputs chunked;
    for (const SeqPart& chunk :
         {SeqPart{1, 0, 1}, SeqPart{1, 1, 30}, SeqPart{1, 31, 16}, SeqPart{1, 47, 23}}) {
      pool.store({chunk});
      attend(ops, c, pool, {chunk}, &chunked);
    }
    for (const auto& [token, row] : chunked) {
      CAPTURE(token.second);
      CHECK(row == together.at(token));
    }
  }
}

TEST_CASE("attention: all kernels for many rows and that for few rows give the same bits") {
  const std::optional<OpTable> older = table_without_wgmma();
  HEARTH_CUDA_TABLE(ops);
  const DType bf16 = DType::kBF16;
  // Blocks of one warpgroup that multiplies (the first two), and of two. Blocks end within a
  // sequence and with it, the last block of a sequence has few rows, splits and chunks are seen in
  // part.
  const std::vector<std::pair<Case, std::vector<SeqPart>>> cases = {
      {{.kv_heads = 1, .heads = 1, .head_dim = 128}, {{1, 530, 64}}},
      {{.kv_type = bf16, .kv_heads = 2, .heads = 2, .head_dim = 64}, {{1, 0, 70}}},
      {{.kv_heads = 1, .heads = 4, .head_dim = 128}, {{1, 700, 40}, {2, 0, 19}, {3, 250, 9}}},
      {{.kv_heads = 1, .heads = 3, .head_dim = 96, .sinks = true}, {{1, 300, 90}}},
      {{.kv_heads = 1, .heads = 8, .head_dim = 64, .window = 70}, {{1, 600, 50}, {2, 0, 20}}},
      {{.kv_heads = 3, .heads = 3, .head_dim = 64, .soft_cap = 2.5f}, {{1, 100, 150}}},
      {{.kv_heads = 1, .heads = 18, .head_dim = 64, .block_size = 48}, {{1, 0, 70}}},
      {{.kv_heads = 1, .heads = 140, .head_dim = 64}, {{1, 10, 64}}},  // more than a block has
      {{.kv_heads = 2, .heads = 8, .head_dim = 64, .to_all = true}, {{1, 0, 55}, {2, 0, 25}}},
      {{.kv_type = bf16, .kv_heads = 1, .heads = 4, .head_dim = 128, .window = 300, .sinks = true},
       {{1, 540, 60}, {2, 20, 9}}},
      {{.kv_type = bf16, .kv_heads = 1, .heads = 8, .head_dim = 96}, {{1, 200, 70}}},
  };
  for (const auto& [c, parts] : cases) {
    CAPTURE(c.head_dim);
    CAPTURE(c.heads);
    const Outputs many = run(ops, c, parts);
    in_every_order([&] { CHECK(run(ops, c, parts) == many); });
    if (older) CHECK(run(*older, c, parts) == many);
    for (const SeqPart& part : parts) {
      Pool pool(ops, c, {part});
      pool.store(whole({part}));
      Outputs few;
      constexpr int32_t kAtOnce = 60;  // too few for the other kernels
      for (int32_t p = 0; p < part.scheduled; p += kAtOnce) {
        const int32_t count = std::min(kAtOnce, part.scheduled - p);
        attend(ops, c, pool, {{part.id, part.cached + p, count}}, &few);
      }
      for (const auto& [token, row] : few) {
        CAPTURE(token.first);
        CAPTURE(token.second);
        CHECK(row == many.at(token));
      }
    }
  }
}

TEST_CASE("attention: a value beyond f16 does not reach the rows that do not see its position") {
  HEARTH_CUDA_TABLE(ops);
  for (const int32_t head_dim : {64, 40}) {
    CAPTURE(head_dim);
    const Case plain{.head_dim = head_dim};
    const Case large{.head_dim = head_dim, .last_factor = 1e6f};
    const Outputs want = run(ops, plain, {{1, 0, 21}});
    Outputs got = run(ops, large, {{1, 0, 21}});
    for (const float value : got.at({1, 20})) CHECK(std::isfinite(value));
    for (int32_t p = 0; p < 20; ++p) CHECK(got.at({1, p}) == want.at({1, p}));
  }
}

TEST_CASE("attention over q8_0: queries of any size, and queries that are not finite") {
  HEARTH_CUDA_TABLE(ops);
  for (const float factor : {1e-30f, 1e-3f, 1e30f, INFINITY}) {
    const Case c{.kv_type = DType::kQ8_0, .q_factor = factor};
    same_as_reference(ops, c, kMixed);
  }
}

TEST_CASE("kv_store: a slot of -1 stores nothing") {
  HEARTH_CUDA_TABLE(ops);
  const Case c{.kv_heads = 1, .heads = 1, .head_dim = 8};
  const std::vector<SeqPart> parts = {{1, 0, 4}};
  Pool pool(ops, c, parts);
  const Step step(ops, parts, pool.tables(), c.block_size);
  const std::vector<int32_t> none(4, -1);
  const kernels::DeviceBuffer slots = upload(ops, none);
  kernels::GroupIndex group = step.batch().groups[0];
  group.slot_mapping = slots.as<int32_t>();
  kernels::BatchIndex batch = step.batch();
  batch.groups = {&group, 1};
  const DeviceRows k(ops, step.bound(), 8, Random(1).floats(step.bound() * 8));
  ops.kv_store(ops.state.get(), {&batch, 0, k.view(), k.view(), pool.kv()});
  std::vector<unsigned char> bytes(static_cast<size_t>(pool.kv().block_bytes), 0);
  ops.copy_to_host(ops.state.get(), bytes.data(), pool.kv().base, bytes.size());
  CHECK(bytes == std::vector<unsigned char>(bytes.size(), 0xff));
}

TEST_CASE("rotate_and_store: the bits of rope and kv_store in one launch") {
  HEARTH_CUDA_TABLE(ops);
  struct Heads {
    int32_t queries, kv_heads, dim, rotated, first;
  };
  const std::vector<SeqPart> parts = {{1, 0, 3}, {2, 0, 1}};
  for (const kernels::KvTypes types :
       {kernels::KvTypes(DType::kF32), kernels::KvTypes(DType::kF16),
        kernels::KvTypes(DType::kBF16), kernels::KvTypes(DType::kQ8_0),
        kernels::KvTypes(kernels::KvType::kFp8), kernels::KvTypes(kernels::KvType::kQ4_0)}) {
    for (const Heads h : {Heads{4, 2, 64, 64, 0}, Heads{3, 3, 128, 128, 0}, Heads{2, 1, 96, 40, 8},
                          Heads{0, 2, 80, 80, 0}, Heads{40, 2, 32, 32, 0}}) {
      for (const auto pairs : {kernels::RopePairs::kNeighbours, kernels::RopePairs::kHalves}) {
        CAPTURE(kernels::kv_type_name(types));
        CAPTURE(h.dim);
        const Case c{.kv_type = types, .kv_heads = h.kv_heads, .head_dim = h.dim};
        const int64_t width = int64_t{h.queries + 2 * h.kv_heads} * h.dim;
        const int64_t q_cols = int64_t{h.queries} * h.dim, kv_cols = int64_t{h.kv_heads} * h.dim;
        const auto run = [&](bool at_once) {
          Pool pool(ops, c, parts);
          const Step step(ops, parts, pool.tables(), c.block_size);
          const DeviceRows qkv(ops, step.bound(), width, Random(4).floats(step.bound() * width));
          const DeviceRows angles(ops, step.bound(), h.rotated,
                                  Random(5).floats(step.bound() * h.rotated));
          const kernels::RopeArgs rope{.batch = &step.batch(),
                                       .x = qkv.view().columns(0, q_cols + kv_cols),
                                       .num_heads = h.queries + h.kv_heads,
                                       .head_dim = h.dim,
                                       .cos_sin = angles.view(),
                                       .pairs = pairs,
                                       .first = h.first};
          const kernels::KvStoreArgs store{.batch = &step.batch(),
                                           .k = qkv.view().columns(q_cols, kv_cols),
                                           .v = qkv.view().columns(q_cols + kv_cols, kv_cols),
                                           .kv = pool.kv()};
          const int64_t before = runtime_counts() ? runtime_counts()->launches : 0;
          if (at_once) {
            ops.encoder->rotate_and_store(ops.state.get(), rope, store);
            if (runtime_counts()) CHECK(runtime_counts()->launches == before + 1);
          } else {
            ops.rope(ops.state.get(), rope);
            ops.kv_store(ops.state.get(), store);
          }
          std::vector<unsigned char> bytes(pool.bytes());
          ops.copy_to_host(ops.state.get(), bytes.data(), pool.kv().base, bytes.size());
          const std::vector<float> rows = qkv.read(step.num_tokens());
          std::vector<float> queries;
          for (int64_t row = 0; row < step.num_tokens(); ++row) {
            const auto at = rows.begin() + row * width;
            queries.insert(queries.end(), at, at + q_cols);
          }
          return std::pair{bytes, queries};
        };
        const auto want = run(false);
        in_every_order([&] { CHECK(run(true) == want); });
      }
    }
  }
}

TEST_CASE("attention: rows left quantized for the next product give the same bits") {
  HEARTH_CUDA_TABLE(ops);
  struct Held {
    DType type;
    int32_t heads, head_dim, rows;
  };
  for (const Held& h :
       {Held{DType::kQ8_0, 4, 128, 1}, Held{DType::kQ8_0, 4, 128, 33},
        Held{DType::kQ4_K, 4, 128, 9}, Held{DType::kQ6_K, 4, 128, 1}, Held{DType::kQ4_K, 8, 64, 2},
        Held{DType::kQ8_0, 4, 64, 9}, Held{DType::kQ6_K, 2, 256, 3}}) {
    const Case c{.heads = h.heads, .head_dim = h.head_dim};
    const int64_t cols = int64_t{h.heads} * h.head_dim;
    const int32_t rows = h.rows;
    const auto weight = pack(ops, {random_tensor(60, h.type, 40, cols)}, WeightRole::kMatmul);
    {
      CAPTURE(rows);
      CAPTURE(h.head_dim);
      const std::vector<SeqPart> all = {{0, 0, 600 + rows}};  // three splits
      const std::vector<SeqPart> part = {{0, 600, rows}};
      Pool pool(ops, c, all);
      pool.store(all);
      const Step step(ops, part, pool.tables(), c.block_size);
      const DeviceRows q(ops, step.bound(), cols, token_rows(part, Stream::kQuery, cols));
      const DeviceRows attended(ops, step.bound(), cols);
      const DeviceRows out(ops, step.bound(), 40);
      int64_t launches[2] = {};
      std::vector<float> results[2];
      for (const bool held : {false, true}) {
        const int64_t before = runtime_counts() ? runtime_counts()->launches : 0;
        ops.attention(ops.state.get(), {.batch = &step.batch(),
                                        .q = q.view(),
                                        .kv = pool.kv(),
                                        .num_heads = c.heads,
                                        .scale = 0.4f,
                                        .out = attended.view(),
                                        .reader = held ? weight.get() : nullptr});
        ops.matmul(ops.state.get(), {&step.batch(), Rows::kTokens, attended.view(), weight.get(),
                                     nullptr, out.view()});
        results[held] = out.read(step.num_tokens());
        if (runtime_counts()) launches[held] = runtime_counts()->launches - before;
      }
      CHECK(results[0] == results[1]);
      if (runtime_counts()) CHECK(launches[1] == launches[0] - 1);
    }
  }
}

TEST_CASE("at once: splits merged by the blocks that compute them have the same bits") {
  HEARTH_CUDA_TABLE(ops);
  const OpTable at_once = kernels::cuda_ops({.unconfirmed = true}).value();
  const auto same = [&](const Case& c, const std::vector<SeqPart>& parts) {
    CAPTURE(kernels::kv_type_name(c.kv_type));
    CAPTURE(c.head_dim);
    CAPTURE(c.heads);
    const auto launched = [] { return runtime_counts().value_or(RuntimeCounts{}).launches; };
    const int64_t before = launched();
    const Outputs want = run(ops, c, parts);
    const int64_t apart = launched() - before;
    in_every_order([&] {
      const int64_t from = launched();
      CHECK(run(at_once, c, parts) == want);
      if (runtime_counts()) CHECK(launched() - from == apart - 1);
    });
  };
  const std::vector<SeqPart> one = {{1, 520, 1}};
  for (const DType type : {DType::kF16, DType::kBF16, DType::kQ8_0}) {
    for (const Case& c : {Case{.kv_heads = 1, .heads = 1, .head_dim = 16},
                          Case{.kv_heads = 2, .heads = 8, .head_dim = 128},
                          Case{.kv_heads = 1, .heads = 16, .head_dim = 80},
                          Case{.kv_heads = 1, .heads = 24, .head_dim = 64, .sinks = true},
                          Case{.kv_heads = 2, .heads = 10, .head_dim = 256}}) {
      Case typed = c;
      typed.kv_type = type;
      same(typed, one);
    }
  }
  // Rows of several sequences, which see other splits; windows that begin in a split.
  const std::vector<SeqPart> few = {{1, 509, 6}, {2, 1023, 2}, {4, 0, 1}};
  same({.kv_heads = 2, .heads = 4, .head_dim = 32}, few);
  same({.kv_heads = 1, .heads = 6, .head_dim = 48, .window = 520, .sinks = true}, few);
  same({.kv_type = DType::kQ8_0, .kv_heads = 3, .heads = 3, .head_dim = 64, .window = 300}, few);
  // More splits than a warp has lanes, and than there are blocks; one split.
  same({.kv_heads = 1, .heads = 2, .head_dim = 16}, {{1, 256 * 33, 1}});
  same({.kv_heads = 1, .heads = 2, .head_dim = 16}, {{1, 20, 1}, {2, 300, 1}});
}

TEST_CASE("at once: merged rows left quantized for the next product give the same bits") {
  HEARTH_CUDA_TABLE(ops);
  const OpTable at_once = kernels::cuda_ops({.unconfirmed = true}).value();
  struct Held {
    DType type;
    int32_t kv_heads, heads, head_dim, rows;
  };
  for (const Held& h : {Held{DType::kQ8_0, 2, 4, 128, 1}, Held{DType::kQ4_K, 4, 4, 128, 2},
                        Held{DType::kQ6_K, 1, 8, 64, 1}, Held{DType::kQ4_K, 8, 8, 64, 3},
                        Held{DType::kQ8_0, 2, 12, 64, 9}, Held{DType::kQ6_K, 2, 2, 256, 1},
                        Held{DType::kQ4_K, 1, 20, 256, 2}}) {
    CAPTURE(h.heads);
    CAPTURE(h.head_dim);
    const Case c{.kv_heads = h.kv_heads, .heads = h.heads, .head_dim = h.head_dim};
    const int64_t cols = int64_t{h.heads} * h.head_dim;
    const auto attend_and_multiply = [&](const OpTable& table) {
      const auto weight = pack(table, {random_tensor(60, h.type, 40, cols)}, WeightRole::kMatmul);
      const std::vector<SeqPart> all = {{0, 0, 600 + h.rows}}, part = {{0, 600, h.rows}};
      Pool pool(table, c, all);
      pool.store(all);
      const Step step(table, part, pool.tables(), c.block_size);
      const DeviceRows q(table, step.bound(), cols, token_rows(part, Stream::kQuery, cols));
      const DeviceRows attended(table, step.bound(), cols), out(table, step.bound(), 40);
      const int64_t before = runtime_counts() ? runtime_counts()->launches : 0;
      table.attention(table.state.get(), {.batch = &step.batch(),
                                          .q = q.view(),
                                          .kv = pool.kv(),
                                          .num_heads = c.heads,
                                          .scale = 0.4f,
                                          .out = attended.view(),
                                          .reader = weight.get()});
      table.matmul(table.state.get(), {&step.batch(), Rows::kTokens, attended.view(), weight.get(),
                                       nullptr, out.view()});
      const int64_t launches = runtime_counts() ? runtime_counts()->launches - before : 0;
      return std::pair{out.read(step.num_tokens()), launches};
    };
    const auto want = attend_and_multiply(ops);
    in_every_order([&] {
      const auto got = attend_and_multiply(at_once);
      CHECK(got.first == want.first);
      if (runtime_counts()) CHECK(got.second == 2);
    });
  }
}

}  // namespace hearth::tests
