// The recorded bits of "cpu-fma/5". Variants of one numerics_id for different instruction sets
// (AVX2 and NEON) never run on one machine, so each is compared with the same hashes. rope_table
// and moe_route are left out: they use cos, sin and exp of the C library.
//
// A change that is meant to alter bits bumps numerics_id and these; a failure prints both.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cmath>
#include <cstring>

#include "kernels/ops/encoder_ops.h"
#include "tests/op/op_testing.h"

namespace hearth::kernels::testing {
namespace {

constexpr const char* kNumerics = "cpu-fma/5";

/// FNV-1a of 64 bits over the elements' bytes.
class Hash {
 public:
  void add(const Matrix& m) {
    for (int64_t r = 0; r < m.rows(); ++r) {
      for (int64_t c = 0; c < m.cols(); ++c) {
        const float value = m.at(r, c);
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        for (int i = 0; i < 4; ++i) add(static_cast<uint8_t>(bits >> (8 * i)));
      }
    }
  }
  void add(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3ull; }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325ull;
};

Matrix random_matrix(uint32_t seed, int64_t rows, int64_t cols, float range) {
  Random random(seed);
  Matrix m(rows, cols);
  m.fill(random, -range, range);
  return m;
}

/// Rows that fill tiles of every width, and rows that leave tails.
uint64_t matmul_bits(const OpTable& ops, DType dtype) {
  Hash hash;
  const Tensor tensor = random_tensor(71, dtype, 72, 512);
  const auto weight = pack(ops, {tensor}, WeightRole::kMatmul);
  for (const int32_t tokens : {1, 2, 4, 6, 8, 23, 70}) {
    const Batch batch(tokens);
    Matrix x = random_matrix(72, tokens, 512, 3);
    Matrix out(tokens, 72);
    ops.matmul(ops.state.get(), {.batch = &batch.index(),
                                 .x = x.view(),
                                 .w = weight.get(),
                                 .residual = nullptr,
                                 .out = out.view()});
    hash.add(out);
  }
  return hash.value();
}

uint64_t attention_bits(const OpTable& ops, KvTypes kv_type) {
  Hash hash;
  for (const int32_t head_dim : {40, 64}) {
    const std::vector<SequenceShape> sequences = {{600, 1}, {90, 7}, {17, 17}};
    const Batch all({{600, 600}, {90, 90}, {17, 17}}, 16, 3);
    const Batch batch(sequences, 16, 3);
    const int64_t layer = kv_layer_bytes(kv_type, 16, KvShape::even(2, head_dim));
    std::vector<std::byte> memory(static_cast<size_t>(batch.num_blocks() * layer));
    const PagedKv kv{memory.data(), layer, 0, kv_type, 16, KvShape::even(2, head_dim)};
    Matrix k = random_matrix(73, all.num_tokens(), 2 * head_dim, 1);
    Matrix v = random_matrix(74, all.num_tokens(), 2 * head_dim, 1);
    Matrix q = random_matrix(75, batch.num_tokens(), 6 * head_dim, 2);
    Matrix out(batch.num_tokens(), 6 * head_dim);
    ops.kv_store(ops.state.get(), {.batch = &all.index(), .k = k.view(), .v = v.view(), .kv = kv});
    const auto sinks = pack(ops, {random_tensor(76, DType::kF32, 1, 6)}, WeightRole::kVector);
    for (const bool capped : {false, true}) {
      ops.attention(ops.state.get(), {.batch = &batch.index(),
                                      .q = q.view(),
                                      .kv = kv,
                                      .num_heads = 6,
                                      .scale = 0.125f,
                                      .window = capped ? 70 : 0,
                                      .soft_cap = capped ? 30.0f : 0.0f,
                                      .sinks = capped ? sinks.get() : nullptr,
                                      .out = out.view()});
      hash.add(out);
    }
  }
  return hash.value();
}

/// Every row op, at a width with a tail.
uint64_t row_bits(const OpTable& ops) {
  constexpr int64_t kWidth = 172;
  constexpr int32_t kRows = 9;
  Hash hash;
  const Batch batch(kRows);
  const BatchIndex* index = &batch.index();
  void* state = ops.state.get();
  const Tensor vector = random_tensor(81, DType::kF32, 1, kWidth);
  const auto weight = pack(ops, {vector}, WeightRole::kVector);
  Matrix x = random_matrix(82, kRows, kWidth, 20);
  Matrix out(kRows, kWidth);

  ops.rms_norm(
      state,
      {.batch = index, .x = x.view(), .weight = weight.get(), .eps = 1e-5f, .out = out.view()});
  hash.add(out);
  ops.add_bias(state, {.batch = index, .bias = weight.get(), .out = out.view()});
  hash.add(out);
  ops.add_scaled(state, {.batch = index, .x = x.view(), .scale = 0.22f, .out = out.view()});
  hash.add(out);
  ops.soft_cap(
      state,
      {.batch = index, .rows = Rows::kTokens, .scale = 0.7f, .soft_cap = 5.0f, .x = out.view()});
  hash.add(out);
  Matrix gate_up = random_matrix(83, kRows, 2 * kWidth, 12);
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    ops.gated_activation(
        state,
        {.batch = index, .gate_up = gate_up.view(), .activation = activation, .out = out.view()});
    hash.add(out);
  }
  // Any values will do for cos and sin.
  Matrix cos_sin = random_matrix(84, kRows, 42, 1);
  for (const RopePairs pairs : {RopePairs::kNeighbours, RopePairs::kHalves}) {
    ops.rope(state, {.batch = index,
                     .x = x.view(),
                     .num_heads = 4,
                     .head_dim = 43,
                     .cos_sin = cos_sin.view(),
                     .pairs = pairs});
    hash.add(x);
  }
  Matrix shares = random_matrix(85, 3, 3, 1);
  const Batch three(3);
  Matrix combined = random_matrix(86, 3, kWidth, 1);
  ops.moe_combine(
      state,
      {.batch = &three.index(), .x = x.view(), .weights = shares.view(), .out = combined.view()});
  hash.add(combined);
  const Result<EncoderOps> encoder = encoder_ops(ops);
  REQUIRE(encoder.ok());
  encoder->layer_norm(state, {.batch = index,
                              .x = x.view(),
                              .weight = weight.get(),
                              .bias = weight.get(),
                              .eps = 1e-12f,
                              .out = out.view()});
  hash.add(out);
  encoder->gelu(state, {.batch = index, .x = out.view()});
  hash.add(out);
  return hash.value();
}

void check_bits(const std::string& table, const std::string& what, uint64_t got, uint64_t want) {
  CHECK_MESSAGE(got == want, fmt::format("{} {}: {:#x}, want {:#x}", table, what, got, want));
}

struct TypeBits {
  DType dtype;
  uint64_t bits;
};
constexpr TypeBits kMatmulBits[] = {
    {DType::kF32, 0x7299df44cfbb83ef},     {DType::kF16, 0xdf24c18e802dc344},
    {DType::kBF16, 0x2151f7ff5b441a84},    {DType::kQ8_0, 0x31d4849a7bad3df0},
    {DType::kQ4_0, 0x4bd78851120bdf09},    {DType::kQ4_1, 0x9eeedc889ee733db},
    {DType::kQ5_0, 0x617f279f603a9881},    {DType::kQ5_1, 0x31bc4cadfb16c983},
    {DType::kIQ4_NL, 0x5e63ea294522fd85},  {DType::kMXFP4, 0xee88e21ee4aac02c},
    {DType::kQ2_K, 0x0d76f5506744757b},    {DType::kQ3_K, 0x5aca8bcef993c81e},
    {DType::kQ4_K, 0x42302796efc305af},    {DType::kQ5_K, 0x03820e410ef67314},
    {DType::kQ6_K, 0x6351431d10e04dd9},    {DType::kIQ4_XS, 0x5c18822f33cfe65f},
    {DType::kTQ1_0, 0xbbaf34bb730e5ebb},   {DType::kTQ2_0, 0x4ed7456f2029b4ef},
    {DType::kNVFP4, 0xc57a9b22709b4f26},   {DType::kIQ2_XXS, 0xe7a60548d214b412},
    {DType::kIQ2_XS, 0x9a7c2f26f5b3ab9c},  {DType::kIQ2_S, 0xa2702a2e41e7f0c3},
    {DType::kIQ3_XXS, 0xd6cc0548075468f9}, {DType::kIQ3_S, 0x9907747ffd4f5ad0},
    {DType::kIQ1_S, 0x604fd8d400640658},   {DType::kIQ1_M, 0xb616e6cf67b610fa},
};
struct KvBits {
  KvTypes types;
  uint64_t bits;
};
constexpr KvBits kAttentionBits[] = {{KvType::kF32, 0x0aa8dea8cef13315},
                                     {KvType::kF16, 0x25804664b46378c4},
                                     {KvType::kBF16, 0x2d504ccbff6a3863},
                                     {KvType::kQ8_0, 0x38b8972bcdc0a519},
                                     {KvType::kFp8, 0x59b51d02ef987289},
                                     {KvType::kQ4_0, 0xa0e765cf8c521517},
                                     {{KvType::kQ8_0, KvType::kQ4_0}, 0xf52ab1fd6c429f34}};
constexpr uint64_t kRowBits = 0x38f8d791e66148cf;
constexpr uint64_t kInputBits = 0x4f540edc0d38a355;

TEST_CASE("variants with one numerics_id have the recorded bits, whatever CPU they are built for") {
  // The input: other values here would come from another standard library, not from an op.
  Hash inputs;
  inputs.add(random_matrix(72, 70, 512, 3));
  for (const TypeBits& type : kMatmulBits) {
    for (const std::byte byte : random_tensor(71, type.dtype, 72, 512).bytes) {
      inputs.add(static_cast<uint8_t>(byte));
    }
  }
  check_bits("all", "inputs", inputs.value(), kInputBits);
  for (const NamedTable& table : cpu_tables(2)) {
    if (table.ops.numerics_id != kNumerics) continue;
    for (const auto& [dtype, bits] : kMatmulBits) {
      check_bits(table.name, fmt::format("matmul {}", info(dtype).name),
                 matmul_bits(table.ops, dtype), bits);
    }
    for (const auto& [types, bits] : kAttentionBits) {
      check_bits(table.name, fmt::format("attention {}", kv_type_name(types)),
                 attention_bits(table.ops, types), bits);
    }
    check_bits(table.name, "ops of rows", row_bits(table.ops), kRowBits);
  }
}

}  // namespace
}  // namespace hearth::kernels::testing
