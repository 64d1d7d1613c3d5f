#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/cpu/matmul/file_weights.h"
#include "kernels/cpu/op_table.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/half.h"
#include "kernels/ops/packed_bytes.h"
#include "kernels/quant/quant_group.h"

namespace hearth::kernels::cpu {
namespace {

constexpr int64_t kStoredBlockBytes = 34;  // Q8_0 in a file: scale f16, 32 signed bytes

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/// Groups begin on cache lines.
int64_t packed_group_bytes(DType dtype, int64_t cols) {
  if (dtype == DType::kQ8_0) return round_up(cols / kQuantBlock, 2) / 2 * kQ8PairBytes;
  if (quant_index(dtype) >= 0) return quant_layout(dtype).group_bytes(cols);
  const auto bytes = static_cast<int64_t>(bytes_of(dtype, static_cast<uint64_t>(cols * kGroup)));
  return round_up(bytes, 64);
}

/// Places one stored row in its lane of a group.
template <typename T>
void place_plain_row(const std::byte* row, int64_t cols, int64_t lane, std::byte* group) {
  std::byte* to = group + static_cast<size_t>(lane) * sizeof(T);
  for (int64_t k = 0; k < cols; ++k) {
    std::memcpy(to + static_cast<size_t>(k) * kGroup * sizeof(T),
                row + static_cast<size_t>(k) * sizeof(T), sizeof(T));
  }
}

void place_q8_0_row(const std::byte* row, int64_t cols, int64_t lane, std::byte* group) {
  for (int64_t b = 0; b < cols / kQuantBlock; ++b, row += kStoredBlockBytes) {
    std::memcpy(group + q8_scales_at(b) + lane * 2, row, 2);
    for (int64_t j = 0; j < kQuantBlock / 4; ++j) {
      uint32_t four;
      std::memcpy(&four, row + 2 + 4 * j, 4);
      four ^= 0x80808080u;  // adds 128 to each byte
      std::memcpy(group + q8_bytes_at(b) + (j * kGroup + lane) * 4, &four, 4);
    }
  }
}

/// The same for four rows, `row_bytes` apart, in lanes [lane, lane + 4): a transpose from words of
/// four rows to rows of four lanes, sixteen bytes at a time.
void place_four_q8_0_rows(const std::byte* row, int64_t row_bytes, int64_t cols, int64_t lane,
                          std::byte* group) {
  using Words = uint32_t __attribute__((vector_size(16)));
  for (int64_t b = 0; b < cols / kQuantBlock; ++b, row += kStoredBlockBytes) {
    for (int64_t i = 0; i < 4; ++i) {
      std::memcpy(group + q8_scales_at(b) + (lane + i) * 2, row + i * row_bytes, 2);
    }
    for (int64_t j = 0; j < kQuantBlock / 4; j += 4) {
      Words in[4];
      for (int64_t i = 0; i < 4; ++i) std::memcpy(&in[i], row + i * row_bytes + 2 + 4 * j, 16);
      const Words low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
      const Words low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
      const Words high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
      const Words high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
      const Words out[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                            __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                            __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                            __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
      for (int64_t i = 0; i < 4; ++i) {
        const Words stored = out[i] ^ 0x80808080u;
        std::memcpy(group + q8_bytes_at(b) + ((j + i) * kGroup + lane) * 4, &stored, 16);
      }
    }
  }
}

/// Packs group `group` of the segment, counted over all experts, from its source tensor.
void pack_group(const PackedWeight::Segment& segment, int64_t group, std::byte* packed) {
  const HostTensor& tensor = segment.source;
  const int64_t first_lane = group % segment.num_groups * kGroup;
  const int64_t lanes = std::min<int64_t>(kGroup, segment.rows - first_lane);
  const auto row_bytes =
      static_cast<int64_t>(bytes_of(tensor.dtype, static_cast<uint64_t>(tensor.cols)));
  const std::byte* row =
      tensor.bytes.data() + (group / segment.num_groups * segment.rows + first_lane) * row_bytes;
  int64_t lane = 0;
  if (tensor.dtype == DType::kQ8_0) {
    for (; lane + 4 <= lanes; lane += 4, row += 4 * row_bytes) {
      place_four_q8_0_rows(row, row_bytes, tensor.cols, lane, packed);
    }
  }
  for (; lane < lanes; ++lane, row += row_bytes) {
    switch (tensor.dtype) {
      case DType::kF32: place_plain_row<float>(row, tensor.cols, lane, packed); break;
      case DType::kF16:
      case DType::kBF16: place_plain_row<uint16_t>(row, tensor.cols, lane, packed); break;
      case DType::kQ8_0: place_q8_0_row(row, tensor.cols, lane, packed); break;
      default: place_row(tensor.dtype, row, tensor.cols, static_cast<int>(lane), packed);
    }
  }
}

/// Packs the segment's next `count` groups in place.
void pack_next(CpuState& cpu, PackedWeight::Segment& segment, int64_t count) {
  std::byte* first = segment.data + segment.packed * segment.group_bytes;
  const int64_t bytes = count * segment.group_bytes;
  // First touch every huge page from a single thread: while packing, two threads would often wait
  // for the same page, or clear it twice.
  const auto huge = static_cast<int64_t>(kHugePage);
  const int64_t skip = round_up(static_cast<int64_t>(reinterpret_cast<uintptr_t>(first)), huge) -
                       static_cast<int64_t>(reinterpret_cast<uintptr_t>(first));
  cpu.for_each(std::max<int64_t>(0, round_up(bytes - skip, huge) / huge), bytes,
               [&](int64_t page, int32_t) {
                 *static_cast<volatile std::byte*>(first + skip + page * huge) = std::byte{0};
               });
  cpu.for_each(count, bytes, [&](int64_t i, int32_t) {
    pack_group(segment, segment.packed + i, first + i * segment.group_bytes);
  });
  segment.packed += count;
  if (!segment.whole()) return;
  if (segment.source.owner == nullptr) {
    segment.source.bytes = {};
    segment.source.name = {};
  } else {
    segment.source.owner->drop_pages(segment.source.bytes);
  }
}

Error no_memory(const HostTensor& first, size_t bytes) {
  return Error::out_of_memory(
      fmt::format("{}: no memory for {} bytes of packed weights", first.name, bytes));
}

bool all_owned(std::span<const HostTensor> tensors) {
  return std::ranges::all_of(tensors, [](const HostTensor& t) { return t.owner != nullptr; });
}

uint64_t segment_bytes(const HostTensor& tensor) {
  const int64_t groups = round_up(tensor.rows / tensor.num_experts, kGroup) / kGroup;
  return static_cast<uint64_t>(groups * packed_group_bytes(tensor.dtype, tensor.cols) *
                               tensor.num_experts);
}

}  // namespace

bool HostBuffer::reset(size_t bytes) {
  if (data_ != nullptr) release_host(data_, size_);
  data_ = bytes > 0 ? static_cast<std::byte*>(allocate_host(bytes)) : nullptr;
  size_ = data_ != nullptr ? bytes : 0;
  return size_ == bytes;
}

std::byte* HostBuffer::at_least(size_t bytes) {
  if (bytes > size_) HEARTH_CHECK(reset(bytes), "no {} bytes of scratch memory", bytes);
  return data_;
}

Result<std::unique_ptr<Weight>> pack_weights(void* state, std::span<const HostTensor> tensors,
                                             WeightRole role) {
  HEARTH_TRY(check_tensors(tensors, role));
  auto weight = std::make_unique<PackedWeight>();
  auto& cpu = *static_cast<CpuState*>(state);
  if (role == WeightRole::kVector) {
    const std::vector<float> values = vector_values(tensors);
    const size_t bytes = values.size() * sizeof(float);
    weight->memory = cpu.weights.allocate(bytes);
    if (weight->memory == nullptr) return no_memory(tensors[0], bytes);
    std::memcpy(weight->memory.get(), values.data(), bytes);
    weight->rows = 1;
    weight->cols = static_cast<int64_t>(values.size());
    weight->bytes = bytes;
    weight->vector = reinterpret_cast<const float*>(weight->memory.get());
    return std::unique_ptr<Weight>(std::move(weight));
  }

  weight->cols = tensors[0].cols;
  weight->num_experts = tensors[0].num_experts;
  int64_t offset = 0;
  for (const HostTensor& tensor : tensors) {
    const int64_t rows = tensor.rows / tensor.num_experts;
    const int64_t groups = round_up(rows, kGroup) / kGroup;
    const int64_t group_bytes = packed_group_bytes(tensor.dtype, tensor.cols);
    weight->segments.push_back({.dtype = tensor.dtype,
                                .first_row = weight->rows,
                                .rows = rows,
                                .num_groups = groups,
                                .group_bytes = group_bytes,
                                .all_groups = groups * tensor.num_experts,
                                .data = nullptr,
                                .packed = 0,
                                .source = tensor});
    weight->outliers_from = std::max(weight->outliers_from, tensor.outliers_from);
    weight->rows += rows;
    offset += groups * group_bytes * tensor.num_experts;
  }
  if (cpu.in_file != nullptr && all_owned(tensors)) {
    weight->in_file = cpu.in_file;
    cpu.in_file->add(*weight);
    return std::unique_ptr<Weight>(std::move(weight));
  }
  weight->bytes = static_cast<size_t>(offset);
  const bool late = cpu.late != nullptr && all_owned(tensors);
  if (!weight->allocate(late ? cpu.late->memory : cpu.weights)) {
    return no_memory(tensors[0], weight->bytes);
  }
  for (PackedWeight::Segment& segment : weight->segments) {
    if (!late) segment.source.owner = nullptr;
    if (!late || segment.source.at_once) pack_next(cpu, segment, segment.all_groups);
  }
  if (late) {
    weight->late = cpu.late;
    cpu.late->weights.push_back(weight.get());
    cpu.late->bytes += weight->bytes_left();
  }
  return std::unique_ptr<Weight>(std::move(weight));
}

uint64_t pack_more(void* state, uint64_t bytes) {
  auto& cpu = *static_cast<CpuState*>(state);
  LateWeights& late = *cpu.late;
  const uint64_t goal = late.bytes > bytes ? late.bytes - bytes : 0;
  while (late.bytes > goal) {
    PackedWeight& weight = *late.weights[late.first];
    const auto segment = std::ranges::find_if(
        weight.segments, [](const PackedWeight::Segment& s) { return !s.whole(); });
    if (segment == weight.segments.end()) {
      ++late.first;
      continue;
    }
    HEARTH_CHECK(weight.memory != nullptr || weight.allocate(late.memory), "no {} bytes of memory",
                 weight.bytes);
    const auto group_bytes = static_cast<uint64_t>(segment->group_bytes);
    const auto wanted = static_cast<int64_t>((late.bytes - goal + group_bytes - 1) / group_bytes);
    const int64_t count = std::min(wanted, segment->all_groups - segment->packed);
    pack_next(cpu, *segment, count);
    late.bytes -= static_cast<uint64_t>(count) * group_bytes;
  }
  return late.bytes;
}

uint64_t put_off(void* state) {
  auto& cpu = *static_cast<CpuState*>(state);
  LateWeights& late = *cpu.late;
  late.first = 0;
  late.bytes = 0;
  for (PackedWeight* weight : late.weights) {
    weight->memory.reset();
    for (PackedWeight::Segment& segment : weight->segments) {
      segment.packed = 0;
      segment.source.owner->drop_pages(segment.source.bytes);
    }
    late.bytes += weight->bytes_left();
  }
  cpu.plain_activations.reset(0);
  cpu.quantized_activations.reset(0);
  cpu.partials.reset(0);
  cpu.query_codes.reset(0);
  for (HostBuffer& scratch : cpu.thread_scratch) scratch.reset(0);
  return late.bytes;
}

PackedWeight::~PackedWeight() {
  if (in_file != nullptr) in_file->remove(*this);
  if (late == nullptr) return;
  std::erase(late->weights, this);
  late->first = 0;
  late->bytes -= bytes_left();
}

bool PackedWeight::allocate(HostArena& arena) {
  memory = arena.allocate(bytes);
  std::byte* at = memory.get();
  for (Segment& segment : segments) {
    segment.data = at;
    if (at != nullptr) at += segment.all_groups * segment.group_bytes;
  }
  return memory != nullptr;
}

uint64_t PackedWeight::bytes_left() const {
  int64_t left = 0;
  for (const Segment& segment : segments) {
    left += (segment.all_groups - segment.packed) * segment.group_bytes;
  }
  return static_cast<uint64_t>(left);
}

const std::byte* PackedWeight::Segment::groups(int64_t first, int64_t count,
                                               std::byte* scratch) const {
  if (first + count <= packed) return data + first * group_bytes;
  for (int64_t i = 0; i < count; ++i) {
    std::byte* out = scratch + i * group_bytes;
    const bool padded = ((first + i) % num_groups + 1) * kGroup > rows;
    if (padded) std::memset(out, 0, static_cast<size_t>(group_bytes));
    pack_group(*this, first + i, out);
  }
  return scratch;
}

void unpack_row(const PackedWeight& weight, int64_t row, float scale, HostBuffer& scratch,
                float* out) {
  size_t s = 0;
  while (row >= weight.segments[s].first_row + weight.segments[s].rows) ++s;
  const PackedWeight::Segment& segment = weight.segments[s];
  const int64_t group = (row - segment.first_row) / kGroup;
  const int64_t lane = (row - segment.first_row) % kGroup;
  std::byte* late =
      segment.whole() ? nullptr : scratch.at_least(static_cast<size_t>(segment.group_bytes));
  const std::byte* packed = segment.groups(group, 1, late);
  const auto* floats = reinterpret_cast<const float*>(packed) + lane;
  const auto* halves = reinterpret_cast<const uint16_t*>(packed) + lane;
  switch (segment.dtype) {
    case DType::kF32:
      for (int64_t k = 0; k < weight.cols; ++k) out[k] = floats[k * kGroup] * scale;
      return;
    case DType::kF16:
      for (int64_t k = 0; k < weight.cols; ++k) out[k] = f32_from_f16(halves[k * kGroup]) * scale;
      return;
    case DType::kBF16:
      for (int64_t k = 0; k < weight.cols; ++k) out[k] = f32_from_bf16(halves[k * kGroup]) * scale;
      return;
    case DType::kQ8_0: {
      const int64_t blocks = weight.cols / kQuantBlock;
      for (int64_t b = 0; b < blocks; ++b) {
        const float d =
            f32_from_f16(reinterpret_cast<const uint16_t*>(packed + q8_scales_at(b))[lane]);
        for (int64_t i = 0; i < kQuantBlock; ++i) {
          const auto byte =
              static_cast<int32_t>(packed[q8_bytes_at(b) + (i / 4 * kGroup + lane) * 4 + i % 4]);
          out[b * kQuantBlock + i] = d * static_cast<float>(byte - 128) * scale;
        }
      }
      return;
    }
    default:
      lane_values(segment.dtype, packed, weight.cols, static_cast<int>(lane), out);
      for (int64_t k = 0; k < weight.cols; ++k) out[k] *= scale;
  }
}

}  // namespace hearth::kernels::cpu

namespace hearth::kernels {

uint64_t cpu_packed_bytes(std::span<const HostTensor> tensors, WeightRole role) {
  uint64_t bytes = 0;
  for (const HostTensor& tensor : tensors) {
    bytes += role == WeightRole::kVector ? static_cast<uint64_t>(tensor.cols) * sizeof(float)
                                         : cpu::segment_bytes(tensor);
  }
  return bytes;
}

}  // namespace hearth::kernels
