// Late packing: every op that reads these weights computes the same bits before, between and after
// pack_more, and the source bytes are released.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tests/op/op_testing.h"

namespace hearth::kernels::testing {
namespace {

constexpr int32_t kThreads = 3;

/// A tensor whose bytes live as long as its owners.
struct Kept {
  struct Source final : TensorSource {
    explicit Source(Tensor t) : tensor(std::move(t)) {}
    void drop_pages(std::span<const std::byte> bytes) const override { dropped += bytes.size(); }
    const Tensor tensor;
    mutable size_t dropped = 0;
  };
  explicit Kept(Tensor t) : source(std::make_shared<const Source>(std::move(t))) {}
  HostTensor host() const {
    HostTensor out = source->tensor.host();
    out.owner = source;
    return out;
  }
  std::shared_ptr<const Source> source;
};

std::unique_ptr<Weight> pack_kept(const OpTable& ops, const std::vector<Kept>& tensors,
                                  WeightRole role) {
  std::vector<HostTensor> hosts;
  for (const Kept& tensor : tensors) hosts.push_back(tensor.host());
  auto weight = ops.pack_weights(ops.state.get(), hosts, role);
  if (!weight.ok()) FAIL(weight.error().message);
  return std::move(weight).value();
}

Matrix multiply(const OpTable& ops, const Weight& w, Matrix& x) {
  const Batch batch(static_cast<int32_t>(x.rows()));
  Matrix out(x.rows(), w.rows);
  ops.matmul(
      ops.state.get(),
      {.batch = &batch.index(), .x = x.view(), .w = &w, .residual = nullptr, .out = out.view()});
  CHECK(out.guards_intact());
  return out;
}

Matrix embed(const OpTable& ops, const Weight& w, const std::vector<int32_t>& tokens) {
  Batch batch(static_cast<int32_t>(tokens.size()));
  batch.token_ids = tokens;
  BatchIndex index = batch.index();
  index.token_ids = tokens.data();
  Matrix out(static_cast<int64_t>(tokens.size()), w.cols);
  ops.embed(ops.state.get(), {.batch = &index, .table = &w, .scale = 1.5f, .out = out.view()});
  return out;
}

Matrix multiply_experts(const OpTable& ops, const Weight& w, Matrix& x) {
  const auto rows = static_cast<int32_t>(x.rows());
  const Batch batch(rows);
  std::vector<int32_t> ids;
  for (int32_t t = 0; t < rows; ++t) {
    ids.push_back(t % w.num_experts);
    ids.push_back((t * 3 + 1) % w.num_experts == t % w.num_experts ? (t + 1) % w.num_experts
                                                                   : (t * 3 + 1) % w.num_experts);
  }
  Matrix out(rows * 2, w.rows);
  ops.moe_matmul(ops.state.get(), {.batch = &batch.index(),
                                   .x = x.view(),
                                   .x_per_choice = false,
                                   .w = &w,
                                   .ids = {ids.data(), DType::kI32, rows, 2, 2},
                                   .out = out.view()});
  return out;
}

struct Late {
  OpTable late;
  OpTable at_once;
};

std::vector<Late> pairs() {
  std::vector<Late> all;
  for (const std::string& variant : cpu_variants()) {
    const CpuOptions options{.num_threads = kThreads, .variant = variant};
    all.push_back({cpu_ops(options, Packing::kLate).value(), cpu_ops(options).value()});
  }
  return all;
}

/// Calls `check` with weights unpacked, after every part of them, and at the end.
template <typename Check>
void while_packing(const OpTable& late, uint64_t part, const Check& check) {
  check();
  uint64_t left = late.pack_more(late.state.get(), 0);
  CHECK(left > 0);
  while (left > 0) {
    const uint64_t next = late.pack_more(late.state.get(), part);
    REQUIRE(next < left);
    left = next;
    check();
  }
}

TEST_CASE("products with weights packed late have the same bits") {
  Random random(seed_or(71));
  for (const Late& ops : pairs()) {
    CAPTURE(ops.late.device.variant);
    for (const DType type :
         {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K,
          DType::kIQ4_XS, DType::kNVFP4, DType::kIQ2_XXS, DType::kIQ1_M}) {
      CAPTURE(info(type).name);
      // Of two types, with an incomplete last group; the second has a partner in Q8_0 blocks.
      const std::vector<Kept> tensors{Kept(random_tensor(1, type, 168, 512)),
                                      Kept(random_tensor(2, DType::kQ8_0, 37, 512))};
      const auto want = pack_kept(ops.at_once, tensors, WeightRole::kMatmul);
      const auto got = pack_kept(ops.late, tensors, WeightRole::kMatmul);
      CHECK(got->bytes == want->bytes);
      std::vector<Matrix> inputs;
      std::vector<Matrix> outputs;
      for (const int32_t rows : {1, 5, 19, 170}) {
        inputs.emplace_back(rows, 512).fill(random, -2, 2);
        outputs.push_back(multiply(ops.at_once, *want, inputs.back()));
      }
      while_packing(ops.late, got->bytes / 5, [&] {
        for (size_t i = 0; i < inputs.size(); ++i) {
          CHECK(same_bits(multiply(ops.late, *got, inputs[i]), outputs[i]));
        }
      });
    }
  }
}

TEST_CASE("rows of a table and experts packed late have the same bits") {
  Random random(seed_or(72));
  for (const Late& ops : pairs()) {
    CAPTURE(ops.late.device.variant);
    for (const DType type : {DType::kF16, DType::kQ8_0, DType::kQ5_K}) {
      CAPTURE(info(type).name);
      const std::vector<Kept> table{Kept(random_tensor(3, type, 77, 256))};
      const std::vector<int32_t> tokens{0, 76, 15, 16, 40, 76};
      Tensor stacked = random_tensor(4, type, 4 * 40, 256);
      stacked.num_experts = 4;
      const std::vector<Kept> experts{Kept(std::move(stacked))};
      const auto want_table = pack_kept(ops.at_once, table, WeightRole::kEmbedding);
      const auto want_experts = pack_kept(ops.at_once, experts, WeightRole::kExperts);
      const auto got_table = pack_kept(ops.late, table, WeightRole::kEmbedding);
      const auto got_experts = pack_kept(ops.late, experts, WeightRole::kExperts);
      Matrix x(9, 256);
      x.fill(random, -2, 2);
      const Matrix rows = embed(ops.at_once, *want_table, tokens);
      const Matrix products = multiply_experts(ops.at_once, *want_experts, x);
      while_packing(ops.late, got_table->bytes / 3, [&] {
        CHECK(same_bits(embed(ops.late, *got_table, tokens), rows));
        CHECK(same_bits(multiply_experts(ops.late, *got_experts, x), products));
      });
    }
  }
}

TEST_CASE("the source of late packing is kept until its weight ends") {
  const OpTable ops = cpu_ops({.num_threads = 1, .variant = ""}, Packing::kLate).value();
  void* state = ops.state.get();
  CHECK(ops.pack_more(state, 1) == 0);

  std::vector<Kept> first{Kept(random_tensor(5, DType::kF32, 64, 64)),
                          Kept(random_tensor(6, DType::kF16, 16, 64))};
  std::vector<Kept> second{Kept(random_tensor(7, DType::kQ8_0, 32, 64))};
  const std::weak_ptr<const Kept::Source> a = first[0].source, b = first[1].source,
                                          c = second[0].source;
  auto one = pack_kept(ops, first, WeightRole::kMatmul);
  auto two = pack_kept(ops, second, WeightRole::kMatmul);
  first.clear();
  second.clear();
  CHECK(ops.pack_more(state, 0) == one->bytes + two->bytes);

  // The first tensor and no more.
  CHECK(ops.pack_more(state, 64 * 64 * 4) == one->bytes + two->bytes - 64 * 64 * 4);
  CHECK(a.lock()->dropped == 64 * 64 * 4);
  CHECK(b.lock()->dropped == 0);

  const size_t rest = two->bytes;
  one.reset();  // with a tensor that is never read
  CHECK(a.expired());
  CHECK(b.expired());
  CHECK(ops.pack_more(state, 0) == rest);
  CHECK(ops.pack_more(state, UINT64_MAX) == 0);
  CHECK_FALSE(c.expired());
  CHECK(ops.put_off(state) == rest);
  two.reset();
  CHECK(c.expired());
  CHECK(ops.pack_more(state, 1) == 0);
  CHECK(ops.put_off(state) == 0);
}

TEST_CASE("weights that are put off are packed again with the same bits") {
  Random random(seed_or(74));
  const OpTable ops = cpu_ops({.num_threads = kThreads, .variant = ""}, Packing::kLate).value();
  void* state = ops.state.get();
  const Kept late(random_tensor(1, DType::kQ8_0, 168, 512));
  Tensor bias = random_tensor(2, DType::kF32, 1, 512);
  HostTensor at_once = late.host();
  at_once.at_once = true;
  const auto weight = pack_kept(ops, {late}, WeightRole::kMatmul);
  const auto vector = pack(ops, {bias}, WeightRole::kVector);
  const auto early = ops.pack_weights(state, {&at_once, 1}, WeightRole::kMatmul).value();
  CHECK(ops.pack_more(state, 0) == weight->bytes);
  Matrix x(19, 512);
  x.fill(random, -2, 2);
  const Matrix want = multiply(ops, *weight, x);
  for (const uint64_t packed : {uint64_t{0}, weight->bytes / 2, UINT64_MAX}) {
    CAPTURE(packed);
    ops.pack_more(state, packed);
    CHECK(ops.put_off(state) == weight->bytes + early->bytes);
    CHECK(same_bits(multiply(ops, *weight, x), want));
    CHECK(same_bits(multiply(ops, *early, x), want));
    while (ops.pack_more(state, weight->bytes / 3) > 0) {
      CHECK(same_bits(multiply(ops, *weight, x), want));
      CHECK(same_bits(multiply(ops, *early, x), want));
    }
    CHECK(same_bits(multiply(ops, *early, x), want));
    CHECK(std::memcmp(vector->vector, bias.host().bytes.data(), 512 * 4) == 0);
  }
}

TEST_CASE("tensors without an owner, vectors, and by default all tensors are packed at once") {
  const Kept matrix(random_tensor(8, DType::kF32, 16, 64));
  const Kept vector(random_tensor(9, DType::kF32, 1, 64));
  const OpTable late = cpu_ops({.num_threads = 1, .variant = ""}, Packing::kLate).value();
  const auto plain = pack(late, {matrix.source->tensor}, WeightRole::kMatmul);
  const auto values = pack_kept(late, {vector}, WeightRole::kVector);
  CHECK(late.pack_more(late.state.get(), 0) == 0);

  const OpTable at_once = cpu_ops({.num_threads = 1, .variant = ""}).value();
  CHECK_FALSE(static_cast<bool>(at_once.pack_more));
  CHECK_FALSE(static_cast<bool>(at_once.put_off));
  const auto packed = pack_kept(at_once, {matrix}, WeightRole::kMatmul);
  CHECK(matrix.source.use_count() == 1);
}

/// Tables that leave matrices with an owner in their file, and that pack all.
std::vector<Late> pairs_in_file() {
  std::vector<Late> all;
  for (const std::string& variant : cpu_variants()) {
    CpuOptions options{.num_threads = kThreads, .variant = variant};
    const OpTable whole = cpu_ops(options).value();
    options.most_packed_bytes = 0;
    all.push_back({cpu_ops(options).value(), whole});
  }
  return all;
}

TEST_CASE("products, rows and experts of weights that stay in their file have the same bits") {
  Random random(seed_or(73));
  for (const Late& ops : pairs_in_file()) {
    CAPTURE(ops.late.device.variant);
    CHECK(ops.late.most_packed_bytes == 0);
    for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_K}) {
      CAPTURE(info(type).name);
      const std::vector<Kept> tensors{Kept(random_tensor(1, type, 168, 512)),
                                      Kept(random_tensor(2, DType::kQ8_0, 37, 512))};
      const std::vector<Kept> other{Kept(random_tensor(3, type, 77, 512))};
      Tensor stacked = random_tensor(4, type, 4 * 40, 512);
      stacked.num_experts = 4;
      const std::vector<Kept> experts{Kept(std::move(stacked))};
      const auto want = pack_kept(ops.at_once, tensors, WeightRole::kMatmul);
      const auto want_table = pack_kept(ops.at_once, other, WeightRole::kEmbedding);
      const auto want_experts = pack_kept(ops.at_once, experts, WeightRole::kExperts);
      const auto got = pack_kept(ops.late, tensors, WeightRole::kMatmul);
      const auto got_table = pack_kept(ops.late, other, WeightRole::kEmbedding);
      const auto got_experts = pack_kept(ops.late, experts, WeightRole::kExperts);
      CHECK(got->bytes + got_table->bytes + got_experts->bytes == 0);
      const std::vector<int32_t> tokens{0, 76, 15, 16, 40, 76};
      // The second step asks for weights in the order of the first, the third in another one.
      for (const bool turned : {false, false, true}) {
        for (const int32_t rows : {1, 19, 170}) {
          Matrix x(rows, 512);
          x.fill(random, -2, 2);
          if (turned)
            CHECK(same_bits(multiply(ops.late, *got_table, x),
                            multiply(ops.at_once, *want_table, x)));
          CHECK(same_bits(multiply(ops.late, *got, x), multiply(ops.at_once, *want, x)));
          CHECK(same_bits(multiply_experts(ops.late, *got_experts, x),
                          multiply_experts(ops.at_once, *want_experts, x)));
          if (!turned)
            CHECK(same_bits(multiply(ops.late, *got_table, x),
                            multiply(ops.at_once, *want_table, x)));
          CHECK(same_bits(embed(ops.late, *got_table, tokens),
                          embed(ops.at_once, *want_table, tokens)));
        }
      }
    }
  }
}

TEST_CASE("vectors and matrices without an owner are packed where others stay in their file") {
  const Kept matrix(random_tensor(5, DType::kF32, 64, 64));
  const OpTable ops = cpu_ops({.num_threads = 1, .variant = "", .most_packed_bytes = 0}).value();
  const auto unpacked = pack_kept(ops, {matrix}, WeightRole::kMatmul);
  CHECK(unpacked->bytes == 0);
  CHECK(matrix.source.use_count() == 2);
  CHECK(pack(ops, {matrix.source->tensor}, WeightRole::kMatmul)->bytes == 64 * 64 * 4);
  CHECK(pack_kept(ops, {Kept(random_tensor(8, DType::kF32, 1, 64))}, WeightRole::kVector)->bytes ==
        64 * 4);
}

}  // namespace
}  // namespace hearth::kernels::testing
