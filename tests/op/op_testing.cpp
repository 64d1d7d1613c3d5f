#include "tests/op/op_testing.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "kernels/ops/half.h"
#include "kernels/quant/quant_layout.h"
#include "kernels/quant/quant_types.h"

namespace hearth::kernels::testing {

uint32_t seed_or(uint32_t fallback) {
  const char* seed = std::getenv("HEARTH_TEST_SEED");
  return seed != nullptr ? static_cast<uint32_t>(std::strtoul(seed, nullptr, 10)) : fallback;
}

Matrix::Matrix(int64_t rows, int64_t cols, int64_t misalign, int64_t padding)
    : rows_(rows), cols_(cols), stride_(cols + padding), first_(16 + misalign) {
  data_.assign(static_cast<size_t>(first_ + rows * stride_ + 16),
               std::numeric_limits<float>::quiet_NaN());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) at(r, c) = 0;
  }
}

TensorView Matrix::view() { return {data_.data() + first_, DType::kF32, rows_, cols_, stride_}; }

void Matrix::fill(Random& random, float low, float high) {
  for (int64_t r = 0; r < rows_; ++r) {
    for (int64_t c = 0; c < cols_; ++c) at(r, c) = random.uniform(low, high);
  }
}

bool Matrix::guards_intact() const {
  std::vector<bool> inside(data_.size(), false);
  for (int64_t r = 0; r < rows_; ++r) {
    for (int64_t c = 0; c < cols_; ++c) inside[index(r, c)] = true;
  }
  for (size_t i = 0; i < data_.size(); ++i) {
    if (!inside[i] && !std::isnan(data_[i])) return false;
  }
  return true;
}

bool same_bits(const Matrix& a, const Matrix& b) {
  if (a.rows() != b.rows() || a.cols() != b.cols()) return false;
  for (int64_t r = 0; r < a.rows(); ++r) {
    for (int64_t c = 0; c < a.cols(); ++c) {
      const float x = a.at(r, c);
      const float y = b.at(r, c);
      if (std::memcmp(&x, &y, sizeof x) != 0) return false;
    }
  }
  return true;
}

Matrix constant(float value) {
  Matrix one(1, 1);
  one.at(0, 0) = value;
  return one;
}

std::string worst(const Matrix& got, const Matrix& want, const Matrix& bound) {
  const bool single = bound.rows() == 1 && bound.cols() == 1;
  double largest = 1.0;
  std::string text;
  for (int64_t r = 0; r < want.rows(); ++r) {
    for (int64_t c = 0; c < want.cols(); ++c) {
      const double limit = single ? bound.at(0, 0) : bound.at(r, c);
      const double error = std::abs(static_cast<double>(got.at(r, c)) - want.at(r, c));
      const double share = error <= limit ? 0.0 : error / std::max(limit, 1e-300);
      if (std::isnan(error) || share > largest) {
        largest = std::isnan(error) ? 1e300 : share;
        text = fmt::format("({}, {}): got {}, want {}, bound {}", r, c, got.at(r, c), want.at(r, c),
                           limit);
      }
    }
  }
  return text;
}

/// The positions of the f16 fields in a stored block of `type`.
std::vector<size_t> half_fields(DType type) {
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K: return {0, 2};
    case DType::kQ2_K: return {80, 82};
    case DType::kQ3_K: return {108};
    case DType::kQ6_K: return {208};
    case DType::kMXFP4:
    case DType::kNVFP4:
    case DType::kIQ1_M: return {};
    case DType::kTQ1_0: return {52};
    case DType::kTQ2_0: return {64};
    default: return {0};
  }
}

/// The largest code times the largest integer scale, in units of d.
int largest_code_of(DType type) {
  switch (type) {
    case DType::kIQ4_NL: return 127;
    case DType::kQ2_K: return 3 * 15;
    case DType::kQ3_K: return 4 * 32;
    case DType::kQ4_K: return 15 * 63;
    case DType::kQ5_K: return 31 * 63;
    case DType::kQ6_K: return 32 * 128;
    case DType::kIQ4_XS: return 127 * 32;
    case DType::kTQ1_0:
    case DType::kTQ2_0: return 2;
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S: return 43 * 31 / 8;
    case DType::kIQ3_XXS: return 62 * 31 / 4;
    case DType::kIQ3_S: return 15 * 31;
    case DType::kIQ1_S:
    case DType::kIQ1_M: return 15 * 9 / 8;
    default: return 16;
  }
}

/// Random codes and integer scales, or those of one byte, with d such that values are about in
/// [-1, 1].
void fill_blocks(Random& random, Tensor& tensor, std::optional<std::byte> same = {}) {
  const auto block_bytes = static_cast<size_t>(info(tensor.dtype).block_bytes);
  const int largest_code = largest_code_of(tensor.dtype);
  for (size_t at = 0; at < tensor.bytes.size(); at += block_bytes) {
    for (size_t i = 0; i < block_bytes; ++i) {
      tensor.bytes[at + i] = same.value_or(static_cast<std::byte>(random.below(256)));
    }
    if (tensor.dtype == DType::kMXFP4) {
      tensor.bytes[at] = static_cast<std::byte>(120 + random.below(6));
    }
    if (tensor.dtype == DType::kNVFP4) {
      for (size_t i = 0; i < 4; ++i) {
        tensor.bytes[at + i] = static_cast<std::byte>(random.below(0x30));  // below 1/2
      }
    }
    if (tensor.dtype == DType::kIQ1_M) {
      const uint16_t half =
          f16_from_f32(random.uniform(0.2f, 1.0f) / static_cast<float>(largest_code));
      for (size_t i = 0; i < 4; ++i) {  // four bits of it in the high byte of each scale
        std::byte& byte = tensor.bytes[at + 49 + 2 * i];
        byte = (byte & std::byte{15}) | static_cast<std::byte>((half >> 4 * i & 15) << 4);
      }
    }
    for (const size_t field : half_fields(tensor.dtype)) {
      const float sign = random.below(8) == 0 ? -1.0f : 1.0f;
      const bool first = field != 2 && field != 82;
      const float size = first ? 1.0f / static_cast<float>(largest_code) : 0.02f;
      const uint16_t half = f16_from_f32(random.uniform(0.2f, 1.0f) * size * sign);
      std::memcpy(tensor.bytes.data() + at + field, &half, 2);
    }
  }
}

Tensor random_tensor(uint32_t seed, DType dtype, int64_t rows, int64_t cols) {
  Random random(seed);
  Tensor tensor{"test.weight", dtype, rows, cols, {}};
  tensor.bytes.resize(bytes_of(dtype, static_cast<uint64_t>(rows * cols)));
  std::byte* at = tensor.bytes.data();
  if (dtype == DType::kQ8_0) {
    for (int64_t b = 0; b < rows * cols / 32; ++b, at += 34) {
      const uint16_t scale = f16_from_f32(random.uniform(0.001f, 1.0f / 128));
      std::memcpy(at, &scale, 2);
      for (int i = 0; i < 32; ++i) {
        at[2 + i] = static_cast<std::byte>(static_cast<int8_t>(random.below(256) - 128));
      }
    }
    return tensor;
  }
  if (quant_index(dtype) >= 0) {
    fill_blocks(random, tensor);
    return tensor;
  }
  for (int64_t i = 0; i < rows * cols; ++i) {
    const float value = random.uniform(-1, 1);
    if (dtype == DType::kF32) {
      std::memcpy(at + 4 * i, &value, 4);
    } else {
      const uint16_t half = dtype == DType::kF16 ? f16_from_f32(value) : bf16_from_f32(value);
      std::memcpy(at + 2 * i, &half, 2);
    }
  }
  return tensor;
}

Tensor tensor_of_one_byte(uint32_t seed, DType dtype, int64_t rows, int64_t cols, std::byte byte) {
  Random random(seed);
  Tensor tensor{"test.weight", dtype, rows, cols, {}};
  tensor.bytes.resize(bytes_of(dtype, static_cast<uint64_t>(rows * cols)));
  fill_blocks(random, tensor, byte);
  return tensor;
}

Tensor magnitudes(const Tensor& tensor) {
  Tensor out{tensor.name, DType::kF32, tensor.rows, tensor.cols, {}, tensor.num_experts};
  std::vector<float> values(static_cast<size_t>(tensor.rows * tensor.cols));
  if (const int quant = quant_index(tensor.dtype); quant >= 0) {
    const QuantLayout layout = quant_layout(tensor.dtype);
    const auto block_bytes = static_cast<size_t>(info(tensor.dtype).block_bytes);
    const auto count = static_cast<size_t>(layout.block);
    for (size_t n = 0; n * count < values.size(); ++n) {
      const QuantValues parts =
          values_of(tensor.dtype, take_apart(tensor.dtype, tensor.bytes.data() + n * block_bytes));
      for (size_t i = 0; i < count; ++i) {
        const size_t s = i / static_cast<size_t>(32 / layout.subs);
        values[n * count + i] =
            std::abs(parts.scale[s] * static_cast<float>(parts.q[i])) + std::abs(parts.min[s]);
      }
    }
  } else {
    dequantize(tensor.dtype, tensor.bytes, values);
    for (float& value : values) value = std::abs(value);
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  out.bytes.assign(bytes, bytes + values.size() * 4);
  return out;
}

bool full_counts() { return std::getenv("HEARTH_TEST_FULL") != nullptr; }

std::unique_ptr<Weight> pack(const OpTable& ops, const std::vector<Tensor>& tensors,
                             WeightRole role) {
  std::vector<HostTensor> host;
  for (const Tensor& tensor : tensors) host.push_back(tensor.host());
  auto packed = ops.pack_weights(ops.state.get(), host, role);
  if (!packed.ok()) FAIL(packed.error().message);
  return std::move(packed).value();
}

Batch::Batch(const std::vector<SequenceShape>& sequences, int32_t block_size, uint32_t seed) {
  int32_t longest = 1;
  for (const SequenceShape& s : sequences) longest = std::max(longest, s.context);
  const int32_t max_blocks = (longest + block_size - 1) / block_size;
  const auto num_seqs = static_cast<int32_t>(sequences.size());
  num_blocks_ = max_blocks * num_seqs + 3;
  std::vector<int32_t> order(static_cast<size_t>(num_blocks_));
  std::iota(order.begin(), order.end(), 0);
  Random random(seed);
  std::shuffle(order.begin(), order.end(), random.engine());

  // Entries that no op may read hold a block far outside the pool.
  block_table_.assign(static_cast<size_t>(max_blocks * num_seqs), 1 << 29);
  query_start_.push_back(0);
  size_t next_block = 0;
  for (int32_t s = 0; s < num_seqs; ++s) {
    const auto& [context, queries] = sequences[static_cast<size_t>(s)];
    int32_t* table = block_table_.data() + static_cast<ptrdiff_t>(s) * max_blocks;
    for (int32_t b = 0; b * block_size < context; ++b) table[b] = order[next_block++];
    for (int32_t p = context - queries; p < context; ++p) {
      positions_.push_back(p);
      seq_idx_.push_back(s);
      slots.push_back(table[p / block_size] * block_size + p % block_size);
    }
    query_start_.push_back(static_cast<int32_t>(positions_.size()));
    context_len_.push_back(context);
    output_rows.push_back(static_cast<int32_t>(positions_.size()) - 1);
  }
  token_ids.assign(positions_.size(), 0);
  counts_ = {static_cast<int32_t>(positions_.size()), num_seqs, num_seqs};
  groups_ = {{block_table_.data(), max_blocks, slots.data()}};
  index_ = {.num_tokens = counts_[0],
            .num_seqs = num_seqs,
            .num_outputs = num_seqs,
            .counts = counts_.data(),
            .token_ids = token_ids.data(),
            .positions = positions_.data(),
            .seq_idx = seq_idx_.data(),
            .query_start = query_start_.data(),
            .context_len = context_len_.data(),
            .output_rows = output_rows.data(),
            .groups = groups_};
}

}  // namespace hearth::kernels::testing
