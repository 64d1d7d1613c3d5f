#include "models/quantize/quantize_rows.h"

#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/ops/half.h"
#include "kernels/quant/quant_layout.h"
#include "kernels/quant/quant_types.h"
#include "models/gguf/encode_floats.h"
#include "models/quantize/fit_codes.h"
#include "models/quantize/put_together.h"

namespace hearth::models {

using kernels::DType;

Result<std::vector<std::byte>> quantize_rows(DType type, std::span<const float> values,
                                             int64_t cols, std::span<const float> importance) {
  const kernels::DTypeInfo& type_info = kernels::info(type);
  if (!type_info.usable_as_weight || !is_written(type)) {
    return Error::unsupported(fmt::format("no encoder for type {}", type_info.name));
  }
  if (cols <= 0 || cols % type_info.block_elements != 0 || values.size() % cols != 0) {
    return Error::unsupported(
        fmt::format("{} values in rows of {} in type {}, want whole rows of a multiple of {}",
                    values.size(), cols, type_info.name, type_info.block_elements));
  }
  HEARTH_CHECK(importance.empty() || std::ssize(importance) == cols, "{} mean squares of {} inputs",
               importance.size(), cols);
  // Searches square values and subtract them; below 1e30 both stay finite.
  const float most = type == DType::kF16             ? 65504.0f
                     : type == DType::kQ8_0          ? 65504.0f * 127
                     : type_info.block_elements == 1 ? std::numeric_limits<float>::max()
                                                     : 1e30f;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(std::abs(values[i]) <= most)) {
      return Error::invalid(
          fmt::format("value {} is {}, {} holds up to {}", i, values[i], type_info.name, most));
    }
  }
  if (type == DType::kBF16) {
    std::vector<std::byte> out(values.size() * 2);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits = kernels::bf16_from_f32(values[i]);
      std::memcpy(out.data() + 2 * i, &bits, 2);
    }
    return out;
  }
  if (kernels::quant_index(type) < 0) return encode_floats(type, values);
  std::vector<std::byte> out(kernels::bytes_of(type, values.size()));
  const size_t block = type_info.block_elements;
  for (size_t at = 0; at < values.size(); at += block) {
    const auto of_block = importance.empty() ? importance : importance.subspan(at % cols, block);
    put_together(type, fit_codes(type, values.subspan(at, block), of_block),
                 out.data() + at / block * type_info.block_bytes);
  }
  return out;
}

}  // namespace hearth::models
