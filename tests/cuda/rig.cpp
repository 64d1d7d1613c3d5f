#include "tests/cuda/rig.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/ops/half.h"
#include "kernels/quant/quant_layout.h"
#include "tests/op/op_testing.h"

namespace hearth::tests {

using kernels::DeviceBuffer;
using kernels::DType;
using kernels::OpTable;

namespace {
constexpr int64_t kSpareCols = 5;
constexpr float kUntouched = -1234.5f;
constexpr int32_t kNoBlock = 1 << 28;  // a read through it ends the process
}  // namespace

uint64_t Random::next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

float Random::uniform() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f; }

std::vector<float> Random::floats(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform();
  return values;
}

Tensor random_tensor(uint64_t seed, DType dtype, int64_t rows, int64_t cols) {
  Tensor tensor{"tensor " + std::to_string(seed), dtype, rows, cols, {}, 1};
  if (kernels::quant_index(dtype) >= 0) {
    tensor.bytes =
        kernels::testing::random_tensor(static_cast<uint32_t>(seed), dtype, rows, cols).bytes;
    return tensor;
  }
  Random random(seed);
  const int64_t count = rows * cols;
  tensor.bytes.resize(kernels::bytes_of(dtype, static_cast<uint64_t>(count)));
  std::byte* at = tensor.bytes.data();
  const auto put = [&at](auto value) {
    std::memcpy(at, &value, sizeof value);
    at += sizeof value;
  };
  for (int64_t i = 0; i < count; ++i) {
    switch (dtype) {
      case DType::kF32: put(random.uniform()); break;
      case DType::kF16: put(kernels::f16_from_f32(random.uniform())); break;
      case DType::kBF16: put(kernels::bf16_from_f32(random.uniform())); break;
      case DType::kQ8_0:
        if (i % 32 == 0) put(kernels::f16_from_f32(random.uniform() / 100));
        put(static_cast<int8_t>(random.next() % 255) /* -127 .. 127 and -128 */);
        break;
      default: break;
    }
  }
  return tensor;
}

std::vector<DType> weight_types() {
  std::vector<DType> types = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0};
  for (const DType type : kernels::kQuantTypes) types.push_back(type);
  return types;
}

std::unique_ptr<kernels::Weight> pack(const OpTable& ops, const std::vector<Tensor>& parts,
                                      kernels::WeightRole role) {
  std::vector<kernels::HostTensor> tensors;
  for (const Tensor& part : parts) tensors.push_back(part.host());
  auto weight = ops.pack_weights(ops.state.get(), tensors, role);
  REQUIRE(weight.ok());
  return std::move(weight).value();
}

DeviceRows::DeviceRows(const OpTable& ops, int64_t rows, int64_t cols,
                       const std::vector<float>& values)
    : ops_(ops), made_(static_cast<size_t>(rows * (cols + kSpareCols)), kUntouched) {
  const int64_t stride = cols + kSpareCols;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    made_[static_cast<size_t>(at / cols * stride + at % cols)] = values[i];
  }
  buffer_ = upload(ops, made_);
  view_ = {buffer_.data(), DType::kF32, rows, cols, stride};
}

std::vector<float> DeviceRows::read(int64_t rows) const {
  std::vector<float> all(made_.size());
  ops_.copy_to_host(ops_.state.get(), all.data(), buffer_.data(), all.size() * sizeof(float));
  std::vector<float> values;
  size_t touched = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / view_.row_stride;
    const auto col = static_cast<int64_t>(i) % view_.row_stride;
    if (row < rows && col < view_.cols) {
      values.push_back(all[i]);
    } else if (std::bit_cast<uint32_t>(all[i]) != std::bit_cast<uint32_t>(made_[i])) {
      ++touched;
    }
  }
  CHECK_MESSAGE(touched == 0, "elements outside the step's rows were written");
  return values;
}

Step::Step(const OpTable& ops, const std::vector<SeqPart>& parts,
           const std::vector<std::vector<int32_t>>& tables, int32_t block_size)
    : ops_(ops) {
  std::vector<int32_t> positions, seq_idx, query_start{0}, context_len, slots;
  size_t max_blocks = 1;
  for (const auto& table : tables) max_blocks = std::max(max_blocks, table.size() + 1);
  std::vector<int32_t> table(parts.size() * max_blocks, kNoBlock);
  for (size_t s = 0; s < parts.size(); ++s) {
    const SeqPart& part = parts[s];
    std::copy(tables[s].begin(), tables[s].end(),
              table.begin() + static_cast<int64_t>(s * max_blocks));
    for (int32_t p = part.cached; p < part.cached + part.scheduled; ++p) {
      positions.push_back(p);
      seq_idx.push_back(static_cast<int32_t>(s));
      slots.push_back(tables[s][static_cast<size_t>(p / block_size)] * block_size + p % block_size);
    }
    query_start.push_back(static_cast<int32_t>(positions.size()));
    context_len.push_back(part.cached + part.scheduled);
  }
  table_ = upload(ops, table);
  slots_ = upload(ops, slots);
  groups_.push_back({table_.as<int32_t>(), static_cast<int32_t>(max_blocks), slots_.as<int32_t>()});
  finish(positions, seq_idx, query_start, context_len);
}

Step::Step(const OpTable& ops, int32_t num_tokens) : ops_(ops) {
  std::vector<int32_t> positions(static_cast<size_t>(num_tokens));
  for (int32_t i = 0; i < num_tokens; ++i) positions[static_cast<size_t>(i)] = i * 977 % 70000;
  finish(positions, std::vector<int32_t>(positions.size(), 0), {0, num_tokens}, {70000});
}

void Step::finish(const std::vector<int32_t>& positions, const std::vector<int32_t>& seq_idx,
                  const std::vector<int32_t>& query_start,
                  const std::vector<int32_t>& context_len) {
  num_tokens_ = static_cast<int32_t>(positions.size());
  num_outputs_ = (num_tokens_ + 1) / 2;
  std::vector<int32_t> tokens, output_rows;
  for (int32_t i = 0; i < num_tokens_; ++i) tokens.push_back(token_id(i));
  for (int32_t i = 0; i < num_outputs_; ++i) output_rows.push_back(2 * i);
  counts_ = upload(ops_, std::vector<int32_t>{num_tokens_, static_cast<int32_t>(context_len.size()),
                                              num_outputs_});
  // Rows past the count are there, up to the bound, and hold anything.
  const auto with_spare_rows = [](std::vector<int32_t> rows) {
    rows.resize(rows.size() + kSpareRows, INT32_MIN);
    return rows;
  };
  token_ids_ = upload(ops_, with_spare_rows(tokens));
  positions_ = upload(ops_, with_spare_rows(positions));
  seq_idx_ = upload(ops_, with_spare_rows(seq_idx));
  query_start_ = upload(ops_, query_start);
  context_len_ = upload(ops_, context_len);
  output_rows_ = upload(ops_, with_spare_rows(output_rows));
  batch_.num_tokens = num_tokens_ + kSpareRows;
  batch_.num_seqs = static_cast<int32_t>(context_len.size());
  batch_.num_outputs = num_outputs_ + kSpareRows;
  batch_.counts = counts_.as<int32_t>();
  batch_.token_ids = token_ids_.as<int32_t>();
  batch_.positions = positions_.as<int32_t>();
  batch_.seq_idx = seq_idx_.as<int32_t>();
  batch_.query_start = query_start_.as<int32_t>();
  batch_.context_len = context_len_.as<int32_t>();
  batch_.output_rows = output_rows_.as<int32_t>();
  batch_.groups = groups_;
}

void Step::set_counts(int32_t num_tokens, int32_t num_outputs) {
  const int32_t counts[] = {num_tokens, batch_.num_seqs, num_outputs};
  ops_.copy_to_device(ops_.state.get(), counts_.data(), counts, sizeof counts);
}

void check_close(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  size_t worst = 0;
  double distance = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    // A NaN on one side only is the largest difference; on both sides it is agreement.
    double d = std::fabs(static_cast<double>(got[i]) - want[i]);
    if (std::isnan(d)) d = std::isnan(got[i]) && std::isnan(want[i]) ? 0 : INFINITY;
    if (got[i] == want[i]) d = 0;  // infinities
    if (d > distance) {
      distance = d;
      worst = i;
    }
  }
  CHECK_MESSAGE(distance <= tolerance, "element " << worst << " of " << got.size() << ": got "
                                                  << got[worst] << ", want " << want[worst]
                                                  << ", tolerance " << tolerance);
}

}  // namespace hearth::tests
