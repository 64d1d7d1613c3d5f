#pragma once
// Shared by the op tests of the CUDA table: the table under test, random tensors, steps in device
// memory. The same test sources are linked twice: with the runtime of shim/ (every machine) and
// with the real one (label gpu; skipped without a device).

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/op_table.h"
#include "tests/skip.h"

/// Declares `name`, the table under test, or skips the case with the reason.
#define HEARTH_CUDA_TABLE(name)                                        \
  auto name##_result = ::hearth::tests::table_under_test();            \
  if (!name##_result.ok()) {                                           \
    HEARTH_SKIP_WITHOUT_DEVICE(name##_result.error().message.c_str()); \
  }                                                                    \
  const ::hearth::kernels::OpTable& name = *name##_result

namespace hearth::tests {

using kernels::DType;
using kernels::OpTable;
using kernels::Rows;
using kernels::WeightRole;

Result<kernels::OpTable> table_under_test();
/// That of a device without wgmma, whose kernels give the same bits; none on a device. Call this
/// before table_under_test().
std::optional<kernels::OpTable> table_without_wgmma();
/// The specification, with x quantized as on CUDA.
inline kernels::OpTable reference_ops() { return kernels::reference_ops(true); }
/// What the shim counts; a device counts nothing.
struct RuntimeCounts {
  int64_t launches = 0;        ///< of kernels
  int64_t graph_launches = 0;  ///< of captured steps
  int64_t bytes_to_host = 0;
  uint64_t bytes_in_use = 0;
};
std::optional<RuntimeCounts> runtime_counts();
/// What fails for lack of memory when the next captured step is made.
enum class CapturePart { kNone, kInstantiate, kUpload };
/// False on a device, where this cannot be arranged.
bool refuse_capture(CapturePart part);
/// Runs `test` once per thread order of the shim, or once on a device.
void in_every_order(const std::function<void()>& test);

/// Numbers in [-1, 1] that depend only on the seed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t next();
  float uniform();
  std::vector<float> floats(int64_t count);

 private:
  uint64_t state_;
};

struct Tensor {
  std::string name;
  kernels::DType dtype;
  int64_t rows;
  int64_t cols;
  std::vector<std::byte> bytes;
  int32_t num_experts = 1;
  kernels::HostTensor host() const { return {name, dtype, rows, cols, bytes, num_experts}; }
};
Tensor random_tensor(uint64_t seed, kernels::DType dtype, int64_t rows, int64_t cols);
/// F32, F16, BF16, Q8_0, and every other quantized type.
std::vector<kernels::DType> weight_types();
std::unique_ptr<kernels::Weight> pack(const kernels::OpTable& ops, const std::vector<Tensor>& parts,
                                      kernels::WeightRole role);

/// Rows in device memory with spare columns, which no op may write; nor the rows past the count.
class DeviceRows {
 public:
  DeviceRows(const kernels::OpTable& ops, int64_t rows, int64_t cols,
             const std::vector<float>& values = {});
  const kernels::TensorView& view() const { return view_; }
  /// The first `rows` rows, packed; checks that the rest is unchanged.
  std::vector<float> read(int64_t rows) const;

 private:
  const kernels::OpTable& ops_;
  kernels::DeviceBuffer buffer_;
  kernels::TensorView view_;
  std::vector<float> made_;
};

template <typename T>
kernels::DeviceBuffer upload(const kernels::OpTable& ops, const std::vector<T>& values) {
  auto buffer = kernels::DeviceBuffer::allocate(ops, values.size() * sizeof(T), "test");
  REQUIRE(buffer.ok());
  ops.copy_to_device(ops.state.get(), buffer->data(), values.data(), values.size() * sizeof(T));
  return std::move(buffer).value();
}

/// The rows of a step that belong to one sequence.
struct SeqPart {
  int32_t id;         ///< what its random numbers depend on
  int32_t cached;     ///< tokens before this step
  int32_t scheduled;  ///< tokens of this step
};

/// A step's index in device memory. The launch bounds are larger than the counts.
class Step {
 public:
  static constexpr int32_t kSpareRows = 3;

  /// Sequence i owns the physical blocks tables[i]; entries past the context are far out of range.
  Step(const kernels::OpTable& ops, const std::vector<SeqPart>& parts,
       const std::vector<std::vector<int32_t>>& tables, int32_t block_size);
  /// `num_tokens` rows without KV; the outputs are rows 0, 2, 4, ...
  Step(const kernels::OpTable& ops, int32_t num_tokens);

  const kernels::BatchIndex& batch() const { return batch_; }
  int32_t num_tokens() const { return num_tokens_; }
  int32_t num_outputs() const { return num_outputs_; }
  int32_t bound() const { return batch_.num_tokens; }
  /// Changes the counts on the device, as between replays of one captured step.
  void set_counts(int32_t num_tokens, int32_t num_outputs);

  static int32_t token_id(int32_t row) { return row * 7 % 11; }

 private:
  void finish(const std::vector<int32_t>& positions, const std::vector<int32_t>& seq_idx,
              const std::vector<int32_t>& query_start, const std::vector<int32_t>& context_len);

  const kernels::OpTable& ops_;
  int32_t num_tokens_ = 0;
  int32_t num_outputs_ = 0;
  kernels::DeviceBuffer counts_, token_ids_, positions_, seq_idx_, query_start_, context_len_,
      output_rows_, table_, slots_;
  std::vector<kernels::GroupIndex> groups_;
  kernels::BatchIndex batch_;
};

/// Fails with the worst element if |got - want| > tolerance anywhere.
void check_close(const std::vector<float>& got, const std::vector<float>& want, double tolerance);

}  // namespace hearth::tests
