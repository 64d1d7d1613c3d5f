#pragma once
// Shared by the op tests: seeded data, views that detect writes outside them, batches, the tables
// under test, and a comparison that names the worst element.

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace hearth::kernels::testing {

/// Seed of a test case: HEARTH_TEST_SEED, or `fallback`. Print it with CAPTURE.
uint32_t seed_or(uint32_t fallback);

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  float uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(engine_);
  }
  int32_t below(int32_t bound) {
    return std::uniform_int_distribution<int32_t>(0, bound - 1)(engine_);
  }
  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
};

/// Rows of f32 that begin `misalign` floats off a cache line and lie `padding` floats apart.
/// Everything around the elements is NaN, and must stay NaN: check_guards().
class Matrix {
 public:
  Matrix(int64_t rows, int64_t cols, int64_t misalign = 0, int64_t padding = 0);
  TensorView view();
  float& at(int64_t r, int64_t c) { return data_[index(r, c)]; }
  float at(int64_t r, int64_t c) const { return data_[index(r, c)]; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  void fill(Random& random, float low, float high);
  /// False if something outside the elements was written.
  bool guards_intact() const;

 private:
  size_t index(int64_t r, int64_t c) const { return static_cast<size_t>(first_ + r * stride_ + c); }
  int64_t rows_;
  int64_t cols_;
  int64_t stride_;
  int64_t first_;
  std::vector<float> data_;
};

/// True if all elements have equal bits.
bool same_bits(const Matrix& a, const Matrix& b);

/// "" if |got - want| <= bound everywhere, else the worst element. `bound` has one element per
/// output or is (1, 1).
std::string worst(const Matrix& got, const Matrix& want, const Matrix& bound);
Matrix constant(float value);

/// A tensor as stored in a file.
struct Tensor {
  std::string name;
  DType dtype;
  int64_t rows;
  int64_t cols;
  std::vector<std::byte> bytes;
  int32_t num_experts = 1;
  std::vector<float> scales = {};
  float outliers_from = 0;
  HostTensor host() const {
    return {name, dtype, rows, cols, bytes, num_experts, nullptr, scales, outliers_from};
  }
};
/// Values about in [-1, 1]; random codes and scales where the type has them.
Tensor random_tensor(uint32_t seed, DType dtype, int64_t rows, int64_t cols);
/// The same for a type of quant_layout.h, but all codes and integer scales have the bits of `byte`.
Tensor tensor_of_one_byte(uint32_t seed, DType dtype, int64_t rows, int64_t cols, std::byte byte);
/// In f32, the magnitudes that rounding errors are relative to: |value|, or |scale * code| + |min|.
Tensor magnitudes(const Tensor& tensor);

/// HEARTH_TEST_FULL: all cases, for machines with enough time.
bool full_counts();

std::unique_ptr<Weight> pack(const OpTable& ops, const std::vector<Tensor>& tensors,
                             WeightRole role);

/// Sequences of a step, each with `context` tokens of which the last `queries` are computed now.
struct SequenceShape {
  int32_t context;
  int32_t queries;
};

/// A step's index over a pool of blocks in random order.
class Batch {
 public:
  Batch(const std::vector<SequenceShape>& sequences, int32_t block_size, uint32_t seed);
  /// `rows` tokens that belong to no sequence, for ops that read only rows.
  explicit Batch(int32_t rows) : Batch({{rows, rows}}, 16, 1) {}

  const BatchIndex& index() const { return index_; }
  int32_t num_tokens() const { return index_.num_tokens; }
  int32_t num_blocks() const { return num_blocks_; }
  const std::vector<int32_t>& positions() const { return positions_; }

  std::vector<int32_t> token_ids;    ///< zeros; a test may change them
  std::vector<int32_t> output_rows;  ///< the last row of each sequence
  std::vector<int32_t> slots;        ///< where each computed token goes

 private:
  int32_t num_blocks_ = 0;
  std::vector<int32_t> positions_, seq_idx_, query_start_, context_len_, block_table_, counts_;
  std::vector<GroupIndex> groups_;
  BatchIndex index_;
};

/// Cases to run on a simulated device: all, except in sanitized builds.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr size_t kSimulatedStep = 3;
#else
inline constexpr size_t kSimulatedStep = 1;
#endif

/// The tables that are compared with the reference: every CPU variant with `threads` threads
/// (cpu_tables.cpp), or CUDA's kernels on the CPU (tests/cuda/shim_op_tables.cpp).
struct NamedTable {
  std::string name;
  OpTable ops;
  bool reference_kv = true;  ///< its KV blocks have the reference's bytes
  /// A simulation: of cases that repeat others on it, every n-th runs unless HEARTH_TEST_FULL is
  /// set.
  bool simulated = false;
  /// Relative error to which products with 16-bit weights round their inputs, and attention over
  /// 16-bit KV its weights and queries.
  double f16_rounding = 0;
  double bf16_rounding = 0;
  size_t case_step(size_t simulated_step) const {
    return simulated && !full_counts() ? simulated_step : 1;
  }
};
const std::vector<NamedTable>& cpu_tables(int32_t threads);
const OpTable& reference();

}  // namespace hearth::kernels::testing
