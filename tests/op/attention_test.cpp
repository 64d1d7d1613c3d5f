#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "kernels/ops/attention_rounding.h"
#include "kernels/ops/kv_layout.h"
#include "kernels/ops/kv_rotation.h"
#include "tests/op/op_testing.h"

namespace hearth::kernels::testing {
namespace {

struct Case {
  KvTypes kv_type = {};
  int32_t heads = 4;
  int32_t kv_heads = 2;
  int32_t head_dim = 64;
  int32_t block_size = 16;
  std::vector<SequenceShape> sequences;
  int32_t window = 0;
  float soft_cap = 0;
  bool sinks = false;
  float q_range = 1;
  int64_t misalign = 0;
  int32_t v_dim = 0;  ///< 0: as head_dim, the size of K
  bool v_in_k = false;

  KvShape shape() const { return {kv_heads, head_dim, v_dim > 0 ? v_dim : head_dim, v_in_k}; }
};

std::string describe(const Case& c) {
  std::string text;
  for (const auto& s : c.sequences) text += fmt::format("{}/{} ", s.queries, s.context);
  return fmt::format(
      "{} heads {}/{} dim {} v {}{} block {} queries/context {}window {} cap {} sinks {}",
      kv_type_name(c.kv_type), c.heads, c.kv_heads, c.head_dim, c.shape().v_dim,
      c.v_in_k ? " in k" : "", c.block_size, text, c.window, c.soft_cap, c.sinks);
}

/// K, V and q of every position of every sequence, the same for any division into steps.
struct Data {
  std::vector<Matrix> q, k, v;  ///< per sequence: (context, heads * dimensions)
  Tensor sinks;

  Data(const Case& c, uint32_t seed) {
    Random random(seed);
    for (const SequenceShape& s : c.sequences) {
      q.emplace_back(s.context, c.heads * c.head_dim);
      q.back().fill(random, -c.q_range, c.q_range);
      k.emplace_back(s.context, c.kv_heads * c.head_dim);
      k.back().fill(random, -1, 1);
      v.emplace_back(s.context, c.shape().v_width());
      v.back().fill(random, -1, 1);
    }
    sinks = random_tensor(seed, DType::kF32, 1, c.heads);
  }
};

/// Every type, and some apart.
std::vector<KvTypes> kv_types() {
  std::vector<KvTypes> all;
  for (int i = 0; i < kNumKvTypes; ++i) all.emplace_back(static_cast<KvType>(i));
  all.emplace_back(KvType::kQ8_0, KvType::kQ4_0);
  all.emplace_back(KvType::kQ4_0, KvType::kF16);
  all.emplace_back(KvType::kFp8, KvType::kF32);
  return all;
}

/// Whether the table stores these types.
bool stores(const NamedTable& table, KvTypes types) {
  return check_kv_types(table.ops, types).ok();
}

/// A pool whose two layers hold NaN until written; ops work on the second layer.
struct Pool {
  std::vector<std::byte> memory;
  PagedKv kv;

  Pool(const Case& c, const Batch& batch) {
    const int64_t layer = kv_layer_bytes(c.kv_type, c.block_size, c.shape());
    // 0xff in every byte is a NaN in f32, f16, bf16 and in scales.
    memory.assign(static_cast<size_t>(batch.num_blocks() * 2 * layer), std::byte{0xff});
    kv = {memory.data(), 2 * layer, layer, c.kv_type, c.block_size, c.shape()};
  }
};

/// Stores all positions, then attends the queries of `c`. Rows as in the batch.
Matrix attend(const OpTable& ops, const Case& c, const Data& data, uint32_t block_seed) {
  std::vector<SequenceShape> everything;
  for (const SequenceShape& s : c.sequences) everything.push_back({s.context, s.context});
  const Batch store_batch(everything, c.block_size, block_seed);
  const Batch batch(c.sequences, c.block_size, block_seed);
  Pool pool(c, batch);

  Matrix k(store_batch.num_tokens(), c.kv_heads * c.head_dim, c.misalign, c.misalign);
  Matrix v(store_batch.num_tokens(), c.shape().v_width(), c.misalign, c.misalign);
  Matrix q(batch.num_tokens(), c.heads * c.head_dim, c.misalign, c.misalign);
  Matrix out(batch.num_tokens(), c.heads * c.shape().v_dim, c.misalign, c.misalign);
  int64_t stored = 0;
  int64_t asked = 0;
  for (size_t s = 0; s < c.sequences.size(); ++s) {
    for (int64_t p = 0; p < c.sequences[s].context; ++p, ++stored) {
      for (int64_t i = 0; i < k.cols(); ++i) k.at(stored, i) = data.k[s].at(p, i);
      for (int64_t i = 0; i < v.cols(); ++i) v.at(stored, i) = data.v[s].at(p, i);
    }
    for (int64_t p = c.sequences[s].context - c.sequences[s].queries; p < c.sequences[s].context;
         ++p, ++asked) {
      for (int64_t i = 0; i < q.cols(); ++i) q.at(asked, i) = data.q[s].at(p, i);
    }
  }
  ops.kv_store(ops.state.get(), {.batch = &store_batch.index(),
                                 .k = k.view(),
                                 .v = c.v_in_k ? TensorView() : v.view(),
                                 .kv = pool.kv});
  const auto sinks = pack(ops, {data.sinks}, WeightRole::kVector);
  ops.attention(ops.state.get(), {.batch = &batch.index(),
                                  .q = q.view(),
                                  .kv = pool.kv,
                                  .num_heads = c.heads,
                                  .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                                  .window = c.window,
                                  .soft_cap = c.soft_cap,
                                  .sinks = c.sinks ? sinks.get() : nullptr,
                                  .out = out.view()});
  ops.synchronize(ops.state.get());
  CHECK(out.guards_intact());
  return out;
}

/// |V| <= 1, so an output moves by at most twice the largest error of a score, plus one rounding
/// per position in the chains of l and o. Scores: head_dim roundings of a sum of |q k|.
/// Where weights and queries are rounded to 16 bits, or weights and V that was q8_0, that as well.
/// Values of fp8 and q4_0 may be larger than those stored by the rounding of a code and its scale.
float bound_of(const Case& c, const NamedTable& table) {
  int32_t longest = 0;
  for (const SequenceShape& s : c.sequences) longest = std::max(longest, s.context);
  const int32_t seen = c.window > 0 ? std::min(c.window, longest) : longest;
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim));
  // Mean of |q k| is q_range / 4 for uniform values; short heads may be well above.
  const double magnitude = scale * c.q_range * std::min(1.0 * c.head_dim, 0.35 * c.head_dim + 6);
  const double score_error = (c.head_dim + 8) * magnitude + c.soft_cap;
  double rounding = 0;
  if (c.kv_type == KvType::kF16 || c.kv_type == KvType::kQ8_0) rounding = 2 * table.f16_rounding;
  if (c.kv_type == KvType::kBF16) rounding = 2 * table.bf16_rounding * (1 + magnitude);
  // Weights that are integers: one in 32767 may be rounded to the other side (CUDA rounds none).
  if (table.reference_kv && kv_integers(c.kv_type.v) && !c.v_in_k) rounding += 0x1p-14;
  return static_cast<float>((2 * score_error + seen + 64) * 0x1p-24 + rounding);
}

void add_widths(KvTypes type, std::vector<Case>& all) {
  for (const int32_t head_dim : {8, 16, 40, 64, 80, 128}) {
    all.push_back({.kv_type = type,
                   .head_dim = head_dim,
                   .sequences = {{1, 1}, {16, 1}, {17, 17}, {40, 9}},
                   .misalign = head_dim % 3});
  }
  // Few rows, which read K and V of whole scales in place: one head, two, and four.
  for (const int32_t heads : {1, 2, 4}) {
    all.push_back({.kv_type = type,
                   .heads = heads,
                   .kv_heads = 1,
                   .head_dim = 96,
                   .block_size = 16 * heads,
                   .sequences = {{70, 1}, {600, 1}, {130, 1}},
                   .window = heads == 2 ? 90 : 0,
                   .v_dim = heads == 4 ? 64 : 0});
  }
}

/// V in K, for all heads and for some (tails of 16 and of 32).
void add_latent(KvTypes type, std::vector<Case>& all) {
  all.push_back({.kv_type = type,
                 .heads = 16,
                 .kv_heads = 1,
                 .head_dim = 576,
                 .sequences = {{70, 3}, {520, 1}, {20, 20}},
                 .v_dim = 512,
                 .v_in_k = true});
  all.push_back({.kv_type = type,
                 .heads = 6,
                 .kv_heads = 2,
                 .head_dim = 40,
                 .block_size = 48,
                 .sequences = {{100, 9}},
                 .window = 30,
                 .sinks = true,
                 .misalign = 1,
                 .v_dim = 23,
                 .v_in_k = true});
}

void add_shapes(KvTypes type, std::vector<Case>& all) {
  // MHA, GQA of 3, 7 and 12 heads, MQA.
  for (const auto& [heads, kv_heads] :
       std::vector<std::pair<int32_t, int32_t>>{{3, 3}, {6, 2}, {7, 1}, {24, 2}, {8, 1}, {8, 4}}) {
    all.push_back({.kv_type = type,
                   .heads = heads,
                   .kv_heads = kv_heads,
                   .head_dim = 32,
                   .sequences = {{33, 5}, {64, 1}, {15, 15}, {200, 3}}});
  }
  // Across splits of 512, decode and chunk; larger blocks.
  all.push_back({.kv_type = type, .head_dim = 32, .sequences = {{513, 1}, {1100, 2}}});
  all.push_back({.kv_type = type, .head_dim = 32, .sequences = {{1040, 30}}});
  all.push_back({.kv_type = type,
                 .head_dim = 24,
                 .block_size = 48,
                 .sequences = {{97, 4}, {1, 1}, {530, 20}}});
  // Peaky scores, windows, caps, sinks.
  all.push_back({.kv_type = type, .sequences = {{100, 7}, {300, 1}}, .q_range = 20});
  all.push_back({.kv_type = type, .head_dim = 16, .sequences = {{50, 50}}, .window = 1});
  all.push_back({.kv_type = type, .head_dim = 16, .sequences = {{80, 40}}, .window = 20});
  all.push_back({.kv_type = type,
                 .head_dim = 16,
                 .sequences = {{1200, 20}, {5, 1}},
                 .window = 600,
                 .sinks = true});
  all.push_back({.kv_type = type,
                 .head_dim = 16,
                 .sequences = {{90, 3}},
                 .soft_cap = 5,
                 .sinks = true,
                 .q_range = 8});
  // V narrower and wider than K (tails of 16 and of 32).
  for (const auto& [k_dim, v_dim] :
       std::vector<std::pair<int32_t, int32_t>>{{192, 128}, {24, 40}, {64, 128}, {8, 3}}) {
    all.push_back({.kv_type = type,
                   .head_dim = k_dim,
                   .sequences = {{33, 5}, {600, 2}, {17, 17}},
                   .v_dim = v_dim});
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const KvTypes type : kv_types()) {
    add_widths(type, all);
    add_shapes(type, all);
    if (type.alike()) add_latent(type, all);
  }
  return all;
}

TEST_CASE("attention: every variant against the reference, over a pool of NaN") {
  const uint32_t seed = seed_or(21);
  const std::vector<Case> all = cases();
  for (size_t i = 0; i < all.size(); i += cpu_tables(2)[0].case_step(kSimulatedStep)) {
    const Case& c = all[i];
    const Data data(c, seed);
    const Matrix want = attend(reference(), c, data, seed);
    std::optional<Matrix> fused;
    for (const NamedTable& table : cpu_tables(2)) {
      if (!stores(table, c.kv_type)) continue;
      const Matrix got = attend(table.ops, c, data, seed);
      const std::string error = worst(got, want, constant(bound_of(c, table)));
      CHECK_MESSAGE(error.empty(),
                    fmt::format("{} seed {} {}: {}", table.name, seed, describe(c), error));
      if (!table.ops.numerics_id.starts_with("cpu-fma/")) continue;
      if (fused) {
        CHECK_MESSAGE(same_bits(*fused, got),
                      fmt::format("{} seed {} {}: other bits", table.name, seed, describe(c)));
      }
      fused = got;
    }
  }
}

TEST_CASE("attention: a row has the same bits in prefill, in chunks and alone") {
  const uint32_t seed = seed_or(22);
  CAPTURE(seed);
  for (const KvTypes type : kv_types()) {
    if (type == KvType::kBF16) continue;
    for (const int32_t window : {0, 70, 71}) {
      const bool v_in_k = window == 71 && type.alike();
      const Case whole{.kv_type = type,
                       .heads = 6,
                       .kv_heads = 2,
                       // 64: few rows read it in place
                       .head_dim = type == KvType::kF32 || v_in_k ? 24 : 64,
                       .sequences = {{560, 560}, {33, 33}, {100, 100}},
                       .window = window,
                       .v_dim = v_in_k ? 20 : 0,
                       .v_in_k = v_in_k};
      const Data data(whole, seed);
      for (const NamedTable& table : cpu_tables(3)) {
        if (table.case_step(2) > 1) continue;  // tests/cuda/attention_test.cpp has similar cases
        CAPTURE(table.name);
        const Matrix all = attend(table.ops, whole, data, seed);
        // Chunks of the first sequence that end at `context`, alone or with the others.
        int32_t round = 0;
        for (const auto& [context, queries] : std::vector<std::pair<int32_t, int32_t>>{
                 {560, 1}, {560, 48}, {513, 1}, {512, 1}, {530, 530}, {17, 3}, {1, 1}}) {
          table.ops.set_num_threads(table.ops.state.get(), round++ % 3 + 1);
          for (const bool mixed : {false, true}) {
            Case part = whole;
            part.sequences = {{context, queries}};
            if (mixed) part.sequences = {{context, queries}, {33, 2}, {100, 1}};
            const Matrix got = attend(table.ops, part, data, seed + 1);
            Matrix want(queries, all.cols());
            Matrix first(queries, all.cols());
            for (int32_t r = 0; r < queries; ++r) {
              for (int64_t i = 0; i < all.cols(); ++i) {
                want.at(r, i) = all.at(context - queries + r, i);
                first.at(r, i) = got.at(r, i);
              }
            }
            CHECK_MESSAGE(same_bits(first, want),
                          fmt::format("{} queries of {}, window {}, with others {}", queries,
                                      context, window, mixed));
          }
        }
        table.ops.set_num_threads(table.ops.state.get(), 3);
      }
    }
  }
}

TEST_CASE("kv_store: the reference's bytes on every variant; slot -1 stores nothing") {
  for (const KvTypes type : kv_types()) {
    const Case c{.kv_type = type,
                 .kv_heads = 3,
                 .head_dim = 20,
                 .block_size = 32,
                 .sequences = {{70, 40}, {9, 9}}};
    Batch batch(c.sequences, c.block_size, 4);
    batch.slots[3] = -1;
    Random random(4);
    Matrix k(batch.num_tokens(), 60, 1, 2);
    Matrix v(batch.num_tokens(), 60, 1, 2);
    k.fill(random, -3, 3);
    v.fill(random, -1e-7f, 1e-7f);  // subnormal in f16
    k.at(0, 0) = 70000.0f;          // infinity in f16
    if (kv_scaled(type.k)) {
      k.at(1, 7) = std::numeric_limits<float>::infinity();
      k.at(2, 59) = std::numeric_limits<float>::quiet_NaN();
      k.at(4, 25) = -3e38f;  // its scale is infinity in f16
      v.at(5, 0) = 0.0f;
      v.at(6, 1) = -0.0f;
      // Halfway between codes, and equal magnitudes of both signs.
      for (int32_t i = 0; i < 20; ++i) {
        k.at(7, i) = static_cast<float>(i - 10) / 2;
        k.at(8, i) = i % 2 == 0 ? 1.5f : -1.5f;
        k.at(9, i) = std::ldexp(1.0625f + static_cast<float>(i % 3) / 16, i - 10);
      }
    }
    Pool want(c, batch);
    const auto store = [&](const OpTable& ops, const Pool& pool) {
      ops.kv_store(ops.state.get(),
                   {.batch = &batch.index(), .k = k.view(), .v = v.view(), .kv = pool.kv});
    };
    store(reference(), want);
    for (const NamedTable& table : cpu_tables(2)) {
      if (!stores(table, type)) continue;
      Pool got(c, batch);
      store(table.ops, got);
      if (table.reference_kv) CHECK_MESSAGE(got.memory == want.memory, table.name);
    }
    const size_t untouched =
        static_cast<size_t>(std::count(want.memory.begin(), want.memory.end(), std::byte{0xff}));
    const auto block_bytes = static_cast<size_t>(kv_layer_bytes(type, c.block_size, c.shape()));
    CHECK(untouched >= want.memory.size() - 48 * block_bytes / 32);
  }
}

TEST_CASE("kv_store with scales: values read back are close, or not finite where they were not") {
  struct Step {
    KvType type;
    double share;  ///< of the largest value: the most that a value may be off
  };
  // Half a step of q8_0 and of q4_0 (a whole one at the end that has no -8); half of the last of 4
  // bits of fp8. And the rounding of the scale.
  for (const Step& step : {Step{KvType::kQ8_0, 0.5 / 127 * 1.02}, Step{KvType::kFp8, 1.02 / 16},
                           Step{KvType::kQ4_0, 1.02 / 8}}) {
    CAPTURE(kv_type_name(step.type));
    const Case c{
        .kv_type = step.type, .heads = 1, .kv_heads = 1, .head_dim = 40, .sequences = {{1, 1}}};
    // A single position has weight 1, so attention returns its V as stored.
    Data data(c, 5);
    const auto stored = [&](const OpTable& ops) { return attend(ops, c, data, 5); };
    std::vector<OpTable> tables{reference()};
    for (const NamedTable& table : cpu_tables(1)) {
      if (stores(table, c.kv_type)) tables.push_back(table.ops);
    }
    for (const OpTable& ops : tables) {
      CAPTURE(ops.device.variant);
      for (int32_t d = 0; d < 40; ++d) data.v[0].at(0, d) = static_cast<float>(d - 20) / 3;
      Matrix got = stored(ops);
      for (int32_t d = 0; d < 40; ++d) {
        const double most = d < 32 ? 20.0 / 3 : 19.0 / 3;
        CHECK(std::abs(got.at(0, d) - data.v[0].at(0, d)) < step.share * most);
      }
      data.v[0].at(0, 33) = std::numeric_limits<float>::infinity();
      got = stored(ops);
      CHECK(std::isfinite(got.at(0, 31)));
      CHECK(std::isnan(got.at(0, 32)));
      CHECK(std::isnan(got.at(0, 33)));
      for (int32_t d = 0; d < 40; ++d) data.v[0].at(0, d) = d < 32 ? 0.0f : 1e-12f;
      got = stored(ops);
      for (int32_t d = 0; d < 40; ++d) CHECK(got.at(0, d) == 0.0f);
    }
  }
}

TEST_CASE("attention over integers: a query that is not finite has no finite result") {
  for (const KvType type : {KvType::kQ8_0, KvType::kQ4_0}) {
    CAPTURE(kv_type_name(type));
    const Case c{.kv_type = type, .head_dim = 72, .sequences = {{70, 3}}};
    Data data(c, 5);
    data.q[0].at(68, 33) = std::numeric_limits<float>::quiet_NaN();
    data.q[0].at(69, c.head_dim + 70) = -std::numeric_limits<float>::infinity();
    std::vector<OpTable> tables{reference()};
    for (const NamedTable& table : cpu_tables(1)) {
      if (stores(table, c.kv_type)) tables.push_back(table.ops);
    }
    for (const OpTable& ops : tables) {
      CAPTURE(ops.device.variant);
      const Matrix got = attend(ops, c, data, 5);
      for (int64_t row = 0; row < got.rows(); ++row) {
        for (int64_t i = 0; i < got.cols(); ++i) {
          const int64_t head = i / c.head_dim;
          const bool finite = !(row == 1 && head == 0) && !(row == 2 && head == 1);
          CHECK(std::isfinite(got.at(row, i)) == finite);
        }
      }
    }
  }
}

TEST_CASE("q4_0 KV: the value of the largest magnitude is 8 steps, and numbers of E4M3 stay") {
  Case c{
      .kv_type = KvType::kQ4_0, .heads = 1, .kv_heads = 1, .head_dim = 32, .sequences = {{1, 1}}};
  Data data(c, 5);
  for (const float sign : {1.0f, -1.0f}) {
    for (int32_t d = 0; d < 32; ++d) data.v[0].at(0, d) = sign * static_cast<float>(d % 16 - 8) / 2;
    c.kv_type = KvType::kQ4_0;
    const Matrix got = attend(reference(), c, data, 5);
    for (int32_t d = 0; d < 32; ++d) CHECK(got.at(0, d) == data.v[0].at(0, d));
  }
  // With 448 among them the scale is 1, and numbers that E4M3 has are stored as they are.
  c.kv_type = KvType::kFp8;
  for (int32_t d = 0; d < 32; ++d) {
    const float number = static_cast<float>(8 + d % 8) / 8;
    data.v[0].at(0, d) = (d % 2 == 0 ? number : -number) * std::ldexp(1.0f, d / 2 - 8);
  }
  data.v[0].at(0, 0) = 448.0f;
  data.v[0].at(0, 1) = 0x1p-9f;
  data.v[0].at(0, 2) = -0x7p-9f;
  const Matrix got = attend(reference(), c, data, 5);
  for (int32_t d = 3; d < 32; ++d) {
    if (d / 2 - 8 >= -6) CHECK(got.at(0, d) == data.v[0].at(0, d));
  }
  for (int32_t d = 0; d < 3; ++d) CHECK(got.at(0, d) == data.v[0].at(0, d));
}

TEST_CASE("rotated queries and keys have the same products, and the last values stay") {
  Random random(7);
  for (const int32_t dims : {64, 80, 20, 32}) {
    CAPTURE(dims);
    std::vector<float> q(static_cast<size_t>(dims)), k(q.size()), rotated_q(q.size());
    double want = 0;
    for (size_t i = 0; i < q.size(); ++i) {
      q[i] = random.uniform(-1, 1);
      k[i] = i % 32 == 3 ? 30.0f : random.uniform(-1, 1);
      want += double{q[i]} * k[i];
    }
    const std::vector<float> given = k;
    rotate_head(q.data(), dims, kRotatedQuery, rotated_q.data());
    rotate_head(k.data(), dims, kRotatedKey, k.data());
    double got = 0;
    float largest = 0;
    for (size_t i = 0; i < q.size(); ++i) {
      got += double{rotated_q[i]} * k[i];
      if (i < q.size() / 32 * 32) largest = std::max(largest, std::abs(k[i]));
    }
    CHECK(got == doctest::Approx(want).epsilon(1e-5));
    CHECK(largest < 12);  // 30 / 4, and the sum of 31 others
    for (int32_t i = dims / 32 * 32; i < dims; ++i) {
      CHECK(k[static_cast<size_t>(i)] == given[static_cast<size_t>(i)]);
    }
  }
  for (const KvType type : {KvType::kQ8_0, KvType::kQ4_0}) {
    CHECK(kv_rotated(type, false));
    CHECK_FALSE(kv_rotated(type, true));
  }
  CHECK_FALSE(kv_rotated(KvType::kFp8, false));
}

TEST_CASE("KV types: names, pairs, and tables that do not store them") {
  CHECK(kv_types_from("f16") == KvTypes(KvType::kF16));
  CHECK(kv_types_from("fp8/q4_0") == KvTypes(KvType::kFp8, KvType::kQ4_0));
  CHECK(kv_type_name(KvTypes(KvType::kQ8_0)) == "Q8_0");
  CHECK(kv_type_name(KvTypes(KvType::kQ8_0, KvType::kQ4_0)) == "Q8_0/Q4_0");
  for (const char* bad : {"", "/", "q8_0/", "/q8_0", "q8_0/q4_0/", "Q8_0", "q4", "f16/x", "f16 "}) {
    CAPTURE(bad);
    CHECK_FALSE(kv_types_from(bad).has_value());
  }
  OpTable table = reference();
  table.any_kv_type = false;
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    CHECK(check_kv_types(table, type).ok());
  }
  const auto refused = check_kv_types(table, {KvType::kQ8_0, KvType::kQ4_0});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message ==
        "KV type Q8_0/Q4_0 on reference: want one of F32, F16, BF16 and Q8_0 for K and V");
  CHECK(refused.error().field == "kv_type");
}

TEST_CASE("q8_0 KV takes 34 bytes per 32 values, whatever the head's width") {
  CHECK(kv_layer_bytes(DType::kQ8_0, 16, KvShape::even(8, 64)) == 2 * 16 * 8 * 2 * 34);
  CHECK(kv_layer_bytes(DType::kQ8_0, 48, KvShape::even(3, 40)) == 2 * 48 * 3 * (40 + 2 * 2));
  CHECK(kv_layer_bytes(DType::kF16, 16, KvShape::even(8, 64)) == 2 * 16 * 8 * 64 * 2);
}

TEST_CASE("q4_0 KV takes 18 bytes per 32 values, fp8 as many as q8_0; K and V apart are added up") {
  CHECK(kv_layer_bytes(KvType::kQ4_0, 16, KvShape::even(8, 64)) == 2 * 16 * 8 * 2 * 18);
  CHECK(kv_layer_bytes(KvType::kQ4_0, 48, KvShape::even(3, 40)) == 2 * 48 * 3 * 2 * 18);
  CHECK(kv_layer_bytes(KvType::kFp8, 16, KvShape::even(8, 64)) == 2 * 16 * 8 * 2 * 34);
  CHECK(kv_layer_bytes({KvType::kQ8_0, KvType::kQ4_0}, 16, KvShape::even(8, 64)) ==
        16 * 8 * 2 * (34 + 18));
}

TEST_CASE("V that lies in K takes no bytes; V of another size takes its own") {
  CHECK(kv_layer_bytes(DType::kF16, 16, {1, 576, 512, true}) == 16 * 1152);
  CHECK(kv_layer_bytes(DType::kQ8_0, 16, {1, 576, 512, true}) == 16 * (576 + 2 * 18));
  CHECK(kv_layer_bytes(DType::kF16, 16, {16, 192, 128}) == 16 * 16 * (192 + 128) * 2);
}

}  // namespace
}  // namespace hearth::kernels::testing
