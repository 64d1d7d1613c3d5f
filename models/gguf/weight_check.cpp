#include "models/gguf/weight_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "kernels/ops/dtype.h"
#include "kernels/quant/blocks.h"
#include "kernels/quant/quant_types.h"

namespace hearth::models {
namespace {

using kernels::DType;
namespace stored = kernels::stored;

constexpr uint64_t kAtOnce = 1 << 16;  // values; a multiple of every type's block

// A product of this power of two and a code of MXFP4, which goes up to 12, may exceed an f32.
constexpr uint8_t kLargeE8M0 = 253;

// A number is NaN or infinite when all bits of its exponent are set: then adding the lowest of them
// carries into the sign bit, which was cleared before. Two 16-bit numbers are checked per word.
struct Format {
  uint32_t exponent;
  uint32_t lowest;
  uint32_t sign;
};
constexpr Format kF32Format{0x7f800000, 0x00800000, 0x80000000};
constexpr Format kHalfFormat{0x7c007c00, 0x04000400, 0x80008000};
constexpr Format kBF16Format{0x7f807f80, 0x00800080, 0x80008000};

/// Whether any of the contiguous numbers in `bytes` is not finite.
bool any_not_finite(std::span<const std::byte> bytes, const Format& format) {
  using Words = uint32_t __attribute__((vector_size(16)));
  Words met[2] = {};
  size_t at = 0;
  for (; at + sizeof met <= bytes.size(); at += sizeof met) {
    for (size_t i = 0; i < 2; ++i) {
      Words words;
      std::memcpy(&words, bytes.data() + at + i * sizeof words, sizeof words);
      met[i] |= (words & format.exponent) + format.lowest;
    }
  }
  met[0] |= met[1];
  uint32_t all = met[0][0] | met[0][1] | met[0][2] | met[0][3];
  while (at < bytes.size()) {
    uint32_t word = 0;  // zeros are finite
    const size_t size = std::min(sizeof word, bytes.size() - at);
    std::memcpy(&word, bytes.data() + at, size);
    all |= (word & format.exponent) + format.lowest;
    at += size;
  }
  return (all & format.sign) != 0;
}

/// The same for `count` Words, `stride` bytes apart.
template <typename Word>
bool any_not_finite(const std::byte* first, uint64_t count, uint64_t stride, const Format& format) {
  if (stride == sizeof(Word)) return any_not_finite({first, count * stride}, format);
  uint32_t all = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, first + i * stride, sizeof word);
    all |= (word & format.exponent) + format.lowest;
  }
  return (all & format.sign) != 0;
}

/// The first value of `tensor` that is not finite and its position, as text.
std::optional<std::string> find_bad_value(const GgufTensor& tensor) {
  std::vector<float> values;
  const uint64_t all = tensor.num_elements();
  for (uint64_t done = 0; done < all; done += kAtOnce) {
    const uint64_t count = std::min(kAtOnce, all - done);
    values.resize(count);
    kernels::dequantize(*tensor.dtype,
                        tensor.bytes.subspan(kernels::bytes_of(*tensor.dtype, done),
                                             kernels::bytes_of(*tensor.dtype, count)),
                        values);
    const auto bad =
        std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
    if (bad == values.end()) continue;
    return fmt::format("{} {}: value {} of {} is {}", printable(tensor.name), tensor.shape(),
                       done + (bad - values.begin()), all, *bad);
  }
  return std::nullopt;
}

}  // namespace

WeightCheck::WeightCheck(const GgufFile& file) : file_(file) {
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    if (!tensor.dtype || !kernels::info(*tensor.dtype).usable_as_weight) continue;
    Field kind = Field::kHalf;
    uint64_t offset = 0;  // in the block
    switch (*tensor.dtype) {
      case DType::kNVFP4: continue;  // every byte is a finite scale
      case DType::kIQ1_M:
        kind = Field::kSpreadHalf;
        offset = offsetof(stored::IQ1_M, scales);
        break;
      case DType::kTQ1_0: offset = offsetof(stored::TQ1_0, d); break;
      case DType::kTQ2_0: offset = offsetof(stored::TQ2_0, d); break;
      case DType::kF32: kind = Field::kF32; break;
      case DType::kF16: kind = Field::kHalf; break;
      case DType::kBF16: kind = Field::kBF16; break;
      case DType::kMXFP4: kind = Field::kE8M0; break;
      case DType::kQ4_1:
      case DType::kQ5_1:
      case DType::kQ4_K:
      case DType::kQ5_K: kind = Field::kTwoHalves; break;
      case DType::kQ2_K:
        kind = Field::kTwoHalves;
        offset = offsetof(stored::Q2_K, d);
        break;
      case DType::kQ3_K: offset = offsetof(stored::Q3_K, d); break;
      case DType::kQ6_K: offset = offsetof(stored::Q6_K, d); break;
      default: break;  // d is the block's first field
    }
    const GgufPart& part = file.part_of(tensor.bytes);
    const uint64_t begin = part.begin + (tensor.bytes.data() - part.content.data());
    fields_.push_back({.tensor = i,
                       .kind = kind,
                       .next = begin + offset,
                       .end = begin + tensor.bytes.size(),
                       .stride = static_cast<uint64_t>(kernels::info(*tensor.dtype).block_bytes)});
  }
  std::ranges::sort(fields_, {}, &Fields::next);
}

uint64_t WeightCheck::width(Field kind) {
  switch (kind) {
    case Field::kSpreadHalf: return 8;
    case Field::kF32:
    case Field::kTwoHalves: return 4;
    case Field::kHalf:
    case Field::kBF16: return 2;
    case Field::kE8M0: return 1;
  }
  return 1;
}

bool WeightCheck::any_suspect(Field kind, const std::byte* first, uint64_t count, uint64_t stride) {
  switch (kind) {
    case Field::kF32: return any_not_finite<uint32_t>(first, count, stride, kF32Format);
    case Field::kHalf: return any_not_finite<uint16_t>(first, count, stride, kHalfFormat);
    case Field::kBF16: return any_not_finite<uint16_t>(first, count, stride, kBF16Format);
    case Field::kTwoHalves: return any_not_finite<uint32_t>(first, count, stride, kHalfFormat);
    case Field::kSpreadHalf:
      // The exponent is three bits of the last scale's top four, and two of the one before.
      for (uint64_t i = 0; i < count; ++i) {
        const std::byte* scales = first + i * stride;
        if ((scales[7] & std::byte{0x70}) == std::byte{0x70} &&
            (scales[5] & std::byte{0xc0}) == std::byte{0xc0}) {
          return true;
        }
      }
      return false;
    case Field::kE8M0:
      for (uint64_t i = 0; i < count; ++i) {
        if (std::to_integer<uint8_t>(first[i * stride]) >= kLargeE8M0) return true;
      }
      return false;
  }
  return false;
}

void WeightCheck::add(std::span<const std::byte> bytes) {
  const uint64_t begin = at_;
  at_ += bytes.size();
  for (; current_ < fields_.size(); ++current_) {
    Fields& fields = fields_[current_];
    const uint64_t wide = width(fields.kind);
    if (!begun_.empty()) {
      const uint64_t wanted = std::min<uint64_t>(wide - begun_.size(), bytes.size());
      begun_.insert(begun_.end(), bytes.begin(), bytes.begin() + wanted);
      if (begun_.size() < wide) return;
      fields.suspect |= any_suspect(fields.kind, begun_.data(), 1, wide);
      fields.next += fields.stride;
      begun_.clear();
    }
    if (fields.next < fields.end && fields.next + wide <= at_) {
      const uint64_t left = (fields.end - fields.next + fields.stride - 1) / fields.stride;
      const uint64_t count = std::min(left, (at_ - wide - fields.next) / fields.stride + 1);
      fields.suspect |=
          any_suspect(fields.kind, bytes.data() + (fields.next - begin), count, fields.stride);
      fields.next += count * fields.stride;
    }
    if (fields.next < fields.end) {
      if (fields.next < at_) {
        begun_.assign(bytes.begin() + (fields.next - begin), bytes.end());
      }
      return;
    }
  }
}

Result<void> WeightCheck::finish() const {
  for (const Fields& fields : fields_) {
    if (!fields.suspect) continue;
    const GgufTensor& tensor = file_.tensors()[fields.tensor];
    const std::optional<std::string> bad = find_bad_value(tensor);
    file_.drop_pages(tensor.bytes);
    if (!bad) continue;
    return Error::corrupt(fmt::format(
        "{}: the weights are damaged: {}, want a finite number; download or convert the "
        "file again",
        file_.part_of(tensor.bytes).name, *bad));
  }
  return {};
}

}  // namespace hearth::models
