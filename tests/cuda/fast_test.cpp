// `--numerics fast` with a cuBLASLt that computes on the CPU: weights unpacked bit for bit,
// products of every type, rows outside the range of f16, and a library that is missing or fails.

#include "kernels/cuda/matmul/fast.cuh"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cuda/host/cublaslt.h"
#include "kernels/cuda/matmul/fast_shapes.h"
#include "kernels/ops/half.h"
#include "kernels/quant/quant_types.h"
#include "tests/cuda/rig.h"
#include "tests/cuda/shim/fake_cublaslt.h"
#include "tests/cuda/shim/last_words.h"
#include "tests/cuda/shim/shim.h"

namespace hearth::tests {

using kernels::Numerics;

namespace {

Result<OpTable> open_fast() {
  return kernels::cuda_ops({0, Numerics::kFast, &shim::fake_cublaslt()});
}
OpTable fast_table(const shim::CublasLtFaults& faults = {}) {
  shim::reset();
  shim::set_machine({});
  shim::set_cublaslt_faults(faults);
  auto table = open_fast();
  REQUIRE(table.ok());
  return std::move(table).value();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The weights as floats.
std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.rows * tensor.cols));
  const auto count = values.size();
  if (kernels::info(tensor.dtype).block_elements > 1) {
    kernels::dequantize(tensor.dtype, tensor.bytes, values);
    return values;
  }
  for (size_t i = 0; i < count; ++i) {
    if (tensor.dtype == DType::kF32) {
      std::memcpy(&values[i], tensor.bytes.data() + 4 * i, 4);
      continue;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, tensor.bytes.data() + 2 * i, 2);
    values[i] =
        tensor.dtype == DType::kF16 ? kernels::f32_from_f16(bits) : kernels::f32_from_bf16(bits);
  }
  return values;
}

bool takes_bf16(DType type) { return type == DType::kBF16 || type == DType::kMXFP4; }

struct Case {
  std::vector<DType> types;
  std::vector<int64_t> outputs;
  int64_t cols;
  int32_t rows;
  enum { kNone, kInPlace, kSeparate } residual = kNone;
  std::vector<float> row_scale = {1.0f};  // of row i: [i % size]
};

struct Outcome {
  std::vector<float> got;
  std::vector<double> want, error;  // error: the largest that rounding can cause
};

/// Runs the product and computes it in double from the weights as floats.
Outcome run(const OpTable& ops, const Case& c) {
  std::vector<Tensor> parts;
  std::vector<float> weights;
  std::vector<double> rounding;  // per output
  int64_t outputs = 0;
  for (size_t i = 0; i < c.types.size(); ++i) {
    parts.push_back(random_tensor(20 + i, c.types[i], c.outputs[i], c.cols));
    const std::vector<float> values = values_of(parts.back());
    weights.insert(weights.end(), values.begin(), values.end());
    const double each = c.types[i] == DType::kF32 ? 0x1p-24
                        : takes_bf16(c.types[i])  ? 0x1p-8
                                                  : 0x1p-10;
    rounding.insert(rounding.end(), static_cast<size_t>(c.outputs[i]), each);
    outputs += c.outputs[i];
  }
  const auto weight = pack(ops, parts, WeightRole::kMatmul);
  const Step step(ops, c.rows);
  const auto scale_of = [&](int64_t row) {
    return c.row_scale[static_cast<size_t>(row) % c.row_scale.size()];
  };
  std::vector<float> x = Random(100).floats(step.bound() * c.cols);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= scale_of(static_cast<int64_t>(i) / c.cols);
  const std::vector<float> residual = Random(900).floats(step.bound() * outputs);
  // Rows of 16 bytes, as in a model; rows past the count may be written here.
  const int64_t stride = (outputs + 3) / 4 * 4;
  std::vector<float> made(static_cast<size_t>(step.bound() * stride), -1234.5f);
  const auto put_residual = [&](std::vector<float>* to) {
    for (int64_t row = 0; row < step.bound(); ++row) {
      std::copy_n(residual.begin() + row * outputs, outputs, to->begin() + row * stride);
    }
  };
  std::vector<float> with_other = made;
  put_residual(&with_other);
  if (c.residual == Case::kInPlace) put_residual(&made);
  const DeviceRows inputs(ops, step.bound(), c.cols, x);
  const kernels::DeviceBuffer out = upload(ops, made);
  const kernels::DeviceBuffer other = upload(ops, with_other);
  const kernels::TensorView out_view{out.data(), DType::kF32, step.bound(), outputs, stride};
  const kernels::TensorView other_view{other.data(), DType::kF32, step.bound(), outputs, stride};
  const kernels::TensorView* add = c.residual == Case::kInPlace    ? &out_view
                                   : c.residual == Case::kSeparate ? &other_view
                                                                   : nullptr;
  ops.matmul(ops.state.get(),
             {&step.batch(), Rows::kTokens, inputs.view(), weight.get(), add, out_view});
  ops.copy_to_host(ops.state.get(), made.data(), out.data(), made.size() * sizeof(float));

  Outcome outcome;
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t o = 0; o < outputs; ++o) {
      double sum = 0;
      double most = 0;
      for (int64_t k = 0; k < c.cols; ++k) {
        const double product = static_cast<double>(x[static_cast<size_t>(row * c.cols + k)]) *
                               weights[static_cast<size_t>(o * c.cols + k)];
        sum += product;
        most += std::fabs(product);
      }
      double error =
          most * (rounding[static_cast<size_t>(o)] + static_cast<double>(c.cols) * 0x1p-24);
      if (c.residual != Case::kNone) sum += residual[static_cast<size_t>(row * outputs + o)];
      error += std::fabs(sum) * 0x1p-22 + std::fabs(scale_of(row)) * 0x1p-20;
      // A scale is 2^64 at most.
      error += static_cast<double>(c.cols) * 0x1p-88;
      outcome.got.push_back(made[static_cast<size_t>(row * stride + o)]);
      outcome.want.push_back(sum);
      outcome.error.push_back(error);
    }
    for (int64_t o = outputs; o < stride; ++o) {
      CHECK(made[static_cast<size_t>(row * stride + o)] == -1234.5f);
    }
  }
  return outcome;
}

void check(const Outcome& outcome) {
  size_t wrong = 0;
  for (size_t i = 0; i < outcome.got.size(); ++i) {
    const double distance = std::fabs(static_cast<double>(outcome.got[i]) - outcome.want[i]);
    if (distance <= outcome.error[i]) continue;
    if (wrong++ == 0) {
      CHECK_MESSAGE(false, "element " << i << ": got " << outcome.got[i] << ", want "
                                      << outcome.want[i] << " +- " << outcome.error[i]);
    }
  }
  CHECK(wrong == 0);
}

int64_t products() { return shim::cublaslt_calls().pinned + shim::cublaslt_calls().unpinned; }

}  // namespace

TEST_CASE("fast: every type unpacks to the bits of the reference, rounded to 16 bits") {
  HEARTH_CUDA_TABLE(ops);
  for (const DType type : weight_types()) {
    if (type == DType::kF32) continue;
    const int64_t block = kernels::info(type).block_elements;
    for (const int64_t cols : block == 1    ? std::vector<int64_t>{1, 70, 521}
                              : block == 32 ? std::vector<int64_t>{32, 544}
                                            : std::vector<int64_t>{256, 2304}) {
      CAPTURE(kernels::info(type).name);
      CAPTURE(cols);
      constexpr int64_t kOutputs = 45;
      const Tensor tensor = random_tensor(7, type, kOutputs, cols);
      const auto weight = pack(ops, {tensor}, WeightRole::kMatmul);
      const auto& segment = static_cast<const kernels::CudaWeight&>(*weight).segments[0];
      const std::vector<float> values = values_of(tensor);
      const int64_t inputs = kernels::fast_inputs(cols);
      for (const int64_t first : {int64_t{0}, int64_t{32}}) {
        const int64_t count = kOutputs - first;
        std::vector<uint16_t> got(static_cast<size_t>((count + 15) / 16 * 16 * inputs));
        const kernels::DeviceBuffer to = upload(ops, got);
        auto* state = static_cast<kernels::CudaState*>(ops.state.get());
        kernels::unpack_weights(state->stream.get(), segment, cols, first, count, inputs,
                                to.data());
        ops.copy_to_host(state, got.data(), to.data(), got.size() * 2);
        size_t wrong = 0;
        for (int64_t row = 0; row < count; ++row) {
          for (int64_t k = 0; k < inputs; ++k) {
            const float value =
                k < cols ? values[static_cast<size_t>((first + row) * cols + k)] : 0.0f;
            const uint16_t want =
                takes_bf16(type) ? kernels::bf16_from_f32(value) : kernels::f16_from_f32(value);
            if (got[static_cast<size_t>(row * inputs + k)] != want) ++wrong;
            // These are exact.
            if (type == DType::kMXFP4) CHECK(kernels::f32_from_bf16(want) == value);
          }
        }
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("fast: weights outside the range of f16 become its largest values") {
  HEARTH_CUDA_TABLE(ops);
  Tensor tensor = random_tensor(8, DType::kQ8_0, 16, 32);
  const uint16_t d = kernels::f16_from_f32(60000.0f);
  for (size_t row = 0; row < 16; ++row) {
    std::memcpy(tensor.bytes.data() + row * 34, &d, 2);
    tensor.bytes[row * 34 + 2] = std::byte{100};
    tensor.bytes[row * 34 + 3] = std::byte{0x9c};  // -100
    tensor.bytes[row * 34 + 4] = std::byte{1};
  }
  const auto weight = pack(ops, {tensor}, WeightRole::kMatmul);
  std::vector<uint16_t> got(16 * 32);
  const kernels::DeviceBuffer to = upload(ops, got);
  auto* state = static_cast<kernels::CudaState*>(ops.state.get());
  kernels::unpack_weights(state->stream.get(),
                          static_cast<const kernels::CudaWeight&>(*weight).segments[0], 32, 0, 16,
                          32, to.data());
  ops.copy_to_host(state, got.data(), to.data(), got.size() * 2);
  CHECK(kernels::f32_from_f16(got[0]) == 65504.0f);
  CHECK(kernels::f32_from_f16(got[1]) == -65504.0f);
  CHECK(kernels::f32_from_f16(got[2]) == 60000.0f);
}

TEST_CASE("fast: products of every type, with tails and residuals") {
  const OpTable ops = fast_table();
  for (const DType type : weight_types()) {
    CAPTURE(kernels::info(type).name);
    const int64_t block = kernels::info(type).block_elements;
    const int64_t cols = block == 1 ? 70 : block;
    const int64_t before = products();
    check(run(ops, {{type}, {45}, cols, 70, Case::kInPlace}));
    CHECK(products() - before == (type == DType::kF32 ? 0 : 1));
    // Other kernels compute this few rows.
    const int64_t then = products();
    run(ops, {{type}, {45}, cols, 60});
    CHECK(products() == then);
  }
  check(run(ops, {{DType::kQ4_K}, {300}, 512, 129}));
  check(
      run(ops, {{DType::kQ4_K, DType::kBF16, DType::kF32, DType::kF16}, {32, 20, 8, 33}, 256, 90}));
  check(run(ops, {{DType::kF16, DType::kBF16}, {20, 7}, 64, 90, Case::kSeparate}));
}

TEST_CASE("fast: threads in any order give the same bits") {
  in_every_order([] {
    const OpTable ops = fast_table();
    check(run(ops, {{DType::kQ6_K, DType::kF16}, {36, 20}, 256, 77, Case::kInPlace}));
  });
}

TEST_CASE("fast: rows outside the range of f16 are scaled, with and without a residual") {
  const OpTable ops = fast_table();
  const std::vector<float> sizes = {1.0f, 0x1p+20f, 0x1p-20f, 0x1p+90f, 0x1p-60f, 0x1p-110f, 3e4f};
  for (const auto residual : {Case::kNone, Case::kInPlace, Case::kSeparate}) {
    check(run(ops, {{DType::kF16}, {20}, 64, 80, residual, sizes}));
    check(run(ops, {{DType::kQ8_0}, {20}, 64, 80, residual, sizes}));
    check(run(ops, {{DType::kBF16}, {20}, 64, 80, residual, sizes}));
  }
}

TEST_CASE("fast: a row that is not finite affects no other row") {
  const OpTable ops = fast_table();
  for (const float bad : {INFINITY, NAN}) {
    std::vector<float> scales(80, 1.0f);
    scales[7] = bad;
    Outcome outcome = run(ops, {{DType::kQ8_0}, {20}, 64, 80, Case::kInPlace, scales});
    for (size_t i = 0; i < outcome.got.size(); ++i) {
      if (i / 20 != 7) continue;
      CHECK_FALSE(std::isfinite(outcome.got[i]));
      outcome.got[i] = 0;
      outcome.want[i] = outcome.error[i] = 0;
    }
    check(outcome);
  }
}

TEST_CASE("fast: several rounds, and pieces of a weight") {
  const OpTable ops = fast_table();
  constexpr auto kRows = static_cast<int32_t>(kernels::kQuantRows) + 70;
  int64_t before = products();
  check(run(ops, {{DType::kQ8_0}, {20}, 32, kRows, Case::kInPlace}));
  CHECK(products() - before == 2);  // the spare rows of the launch bound are in the second round
  constexpr int64_t kBytes = kernels::kFastWeightBytes;
  // The pieces: all outputs once, in multiples of 16, none beyond the scratch.
  for (const int64_t outputs : {1, 128, 6144, 28672, 128256}) {
    for (const int64_t cols : {64, 4096, 14336, 200000}) {
      const kernels::FastPieces pieces(DType::kQ4_K, outputs, cols, kBytes);
      REQUIRE(pieces.count >= 1);
      int64_t sum = 0;
      for (int64_t i = 0; i < pieces.count; ++i) {
        const kernels::LtShape shape = pieces.shape(i, 100);
        CHECK(shape.outputs > 0);
        CHECK(shape.rows == 128);
        CHECK((shape.outputs + 15) / 16 * 16 * shape.inputs * 2 <= kBytes);
        sum += shape.outputs;
      }
      CHECK(sum == outputs);
      CHECK(pieces.outputs % 16 == 0);
    }
  }
  CHECK(kernels::FastPieces(DType::kF32, 100, 64, kBytes).count == 0);
  CHECK(kernels::FastPieces(DType::kQ4_K, 100, int64_t{1} << 25, kBytes).count == 0);
  CHECK(kernels::fast_round_rows(14336, kernels::kFastRowBytes) == kernels::kQuantRows);
  CHECK(kernels::fast_round_rows(28672, kernels::kFastRowBytes) == 1170);
  // With less scratch: pieces of 128 outputs, rounds of 100 rows.
  auto& scratch = static_cast<kernels::CudaState*>(ops.state.get())->fast;
  scratch.weight_bytes = 128 * 2 * 64;
  scratch.row_bytes = 100 * 2 * 64;
  before = products();
  check(run(ops, {{DType::kQ8_0, DType::kF16}, {300, 20}, 64, 190, Case::kInPlace}));
  CHECK(products() - before == 2 * (3 + 1));
}

TEST_CASE("fast: algorithms are chosen when weights are packed, once per shape and bucket") {
  const OpTable ops = fast_table();
  const auto pack_one = [&](DType type, int64_t outputs) {
    return pack(ops, {random_tensor(1, type, outputs, 256)}, WeightRole::kMatmul);
  };
  int64_t before = shim::cublaslt_calls().heuristics;
  const auto first = pack_one(DType::kQ4_K, 64);
  CHECK(shim::cublaslt_calls().heuristics - before == 5);
  const auto second = pack_one(DType::kF16, 64);  // unpacked, the same product
  CHECK(shim::cublaslt_calls().heuristics - before == 5);
  const auto third = pack_one(DType::kBF16, 64);
  CHECK(shim::cublaslt_calls().heuristics - before == 10);
  before = shim::cublaslt_calls().heuristics;
  run(ops, {{DType::kQ4_K}, {64}, 256, 100});
  CHECK(shim::cublaslt_calls().heuristics == before);
}

TEST_CASE("fast: a captured step uses our kernels and replays with their bits") {
  const OpTable ops = fast_table();
  void* state = ops.state.get();
  const Tensor tensor = random_tensor(1, DType::kQ8_0, 20, 64);
  const auto run_step = [&](const OpTable& table, bool captured) {
    const auto weight = pack(table, {tensor}, WeightRole::kMatmul);
    const Step step(table, 70);
    const DeviceRows x(table, step.bound(), 64, Random(3).floats(step.bound() * 64));
    const kernels::DeviceBuffer out =
        upload(table, std::vector<float>(static_cast<size_t>(step.bound() * 20)));
    const auto product = [&] {
      table.matmul(table.state.get(), {&step.batch(),
                                       Rows::kTokens,
                                       x.view(),
                                       weight.get(),
                                       nullptr,
                                       {out.data(), DType::kF32, step.bound(), 20, 20}});
    };
    if (captured) {
      table.begin_capture(state);
      product();
      const auto recorded = table.end_capture(state);
      REQUIRE(recorded != nullptr);
      REQUIRE(table.replay(state, *recorded));
    } else {
      product();
    }
    std::vector<float> got(70 * 20);
    table.copy_to_host(table.state.get(), got.data(), out.data(), got.size() * sizeof(float));
    return got;
  };
  const int64_t before = products();
  const std::vector<float> captured = run_step(ops, true);
  CHECK(products() == before);
  CHECK(run_step(ops, false) != captured);
  CHECK(products() == before + 1);
  const auto exact = kernels::cuda_ops({});
  REQUIRE(exact.ok());
  CHECK(run_step(*exact, false) == captured);
}

TEST_CASE(
    "fast: without an algorithm our kernels compute the product; one for fewer rows is chosen "
    "anew") {
  const Case some{{DType::kQ8_0}, {20}, 64, 80, Case::kInPlace};
  std::vector<float> exact;
  {
    const auto table = kernels::cuda_ops({});
    REQUIRE(table.ok());
    exact = run(*table, some).got;
  }
  for (const shim::CublasLtFaults& faults :
       {shim::CublasLtFaults{.no_algorithm = true}, shim::CublasLtFaults{.heuristic = 14}}) {
    const OpTable ops = fast_table(faults);
    const int64_t before = products();
    CHECK(run(ops, some).got == exact);
    CHECK(products() == before);
  }
  const OpTable ops = fast_table({.refuse_from = 80});
  const int64_t before = shim::cublaslt_calls().unpinned;
  const Outcome outcome = run(ops, some);
  check(outcome);
  CHECK(outcome.got != exact);
  CHECK(shim::cublaslt_calls().unpinned == before + 1);
  shim::set_cublaslt_faults({});
}

TEST_CASE("fast: our kernels compute rows that are not aligned") {
  const OpTable ops = fast_table();
  const auto weight = pack(ops, {random_tensor(1, DType::kQ8_0, 20, 64)}, WeightRole::kMatmul);
  const Step step(ops, 80);
  const DeviceRows x(ops, step.bound(), 64, Random(3).floats(step.bound() * 64));
  const DeviceRows out(ops, step.bound(), 20);  // rows of 25 floats, which are checked
  const int64_t before = products();
  ops.matmul(ops.state.get(),
             {&step.batch(), Rows::kTokens, x.view(), weight.get(), nullptr, out.view()});
  out.read(80);
  CHECK(products() == before);
}

TEST_CASE("fast: numerics id, memory, and no allocation left at the end") {
  shim::reset();
  shim::set_machine({});
  shim::set_cublaslt_faults({});
  const int64_t alive = shim::cublaslt_calls().alive;
  {
    const auto exact = kernels::cuda_ops({});
    const auto fast = open_fast();
    REQUIRE((exact.ok() && fast.ok()));
    CHECK(fast->numerics_id == exact->numerics_id + "-fast-13.0.2");
    CHECK(fast->device.notice.empty());
    const auto scratch = static_cast<uint64_t>(
        kernels::kPartialBytes + kernels::kFastWeightBytes + kernels::kFastRowBytes +
        kernels::kFastWorkspaceBytes + kernels::kQuantRows * 4);
    CHECK(exact->device.memory_free_bytes - fast->device.memory_free_bytes == scratch);
    const size_t before = shim::bytes_in_use();
    const Outcome outcome = run(*fast, {{DType::kF16}, {20}, 64, 80});
    check(outcome);
    CHECK(shim::bytes_in_use() == before);
  }
  CHECK(shim::bytes_in_use() == 0);
  CHECK(shim::cublaslt_calls().alive == alive);
}

TEST_CASE(
    "fast: a library that is missing, incompatible or fails to start logs a notice, and exact "
    "kernels compute") {
  CHECK(contains(kernels::open_cublaslt({}).take_error().message, "no library"));
  const char* const absent[] = {"libhearth-is-not-there.so.1", "libhearth-nor-this.so"};
  CHECK(contains(kernels::open_cublaslt(absent).take_error().message,
                 "libhearth-is-not-there.so.1: cannot open"));
  const char* const other[] = {"libhearth-is-not-there.so.1", "libc.so.6"};
  CHECK(kernels::open_cublaslt(other).take_error().message ==
        "libc.so.6 has no function cublasLtGetVersion");

  shim::reset();
  shim::set_machine({});
  shim::set_cublaslt_faults({.create = 1});
  const auto table = open_fast();
  shim::set_cublaslt_faults({});
  REQUIRE(table.ok());
  CHECK(contains(table->device.notice, "CUBLAS_STATUS_NOT_INITIALIZED"));
  CHECK(contains(table->device.notice, "the exact ones"));
  CHECK_FALSE(contains(table->numerics_id, "fast"));
  CHECK(shim::bytes_in_use() == static_cast<size_t>(kernels::kPartialBytes));
}

TEST_CASE("fast: memory that cannot be allocated is refused with the sizes") {
  const auto needed = static_cast<size_t>(kernels::kPartialBytes + kernels::kFastWeightBytes +
                                          kernels::kFastRowBytes + kernels::kFastWorkspaceBytes +
                                          kernels::kQuantRows * 4);
  for (size_t less = 1; less <= needed; less += needed / 7) {
    shim::reset();
    shim::set_machine({.memory_bytes = needed - less});
    shim::set_cublaslt_faults({});
    const auto table = open_fast();
    shim::set_machine({});
    REQUIRE_FALSE(table.ok());
    CHECK(table.error().code == ErrorCode::kOutOfMemory);
    CHECK(contains(table.error().message, "bytes of scratch"));
    CHECK(shim::bytes_in_use() == 0);
  }
}

TEST_CASE("fast: any failing call is an error at start and ends the process in a step") {
  const OpTable ops = fast_table();
  const Case some{{DType::kQ4_K, DType::kF16}, {20, 4}, 256, 80, Case::kInPlace};
  run(ops, some);  // the scratch grows once
  const int64_t first = shim::num_calls();
  run(ops, some);
  const int64_t calls = shim::num_calls() - first;
  REQUIRE(calls > 12);
  for (int64_t n = 1; n <= calls; ++n) {
    const std::string words = last_words([&] {
      shim::fail_call(n, cudaErrorIllegalAddress);
      run(ops, some);
    });
    // A launch inside the library fails as the library's own error.
    const bool named = contains(words, "a kernel accessed memory outside an allocation") ||
                       contains(words, "CUBLAS_STATUS_EXECUTION_FAILED (13): cublasLtMatmul");
    CHECK_MESSAGE(named, n << ": " << words);
  }
  for (const int status : {1, 13, 14, 99}) {
    const std::string words = last_words([&] {
      shim::set_cublaslt_faults({.matmul = status});
      run(ops, some);
    });
    CHECK(contains(words, "cublas error: " + kernels::cublas_reason(status)));
  }

  for (int64_t n = 1;; ++n) {
    shim::reset();
    const size_t before = shim::bytes_in_use();
    shim::fail_call(n, cudaErrorDevicesUnavailable);
    const auto table = open_fast();
    shim::fail_call(0, cudaSuccess);
    if (table.ok()) {
      CHECK(n > 12);
      break;
    }
    CHECK(contains(table.error().message, "the device is busy"));
    CHECK(shim::bytes_in_use() == before);
  }
}

}  // namespace hearth::tests
