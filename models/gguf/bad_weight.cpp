#include "models/gguf/bad_weight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ops/dtype.h"
#include "kernels/quant/quant_types.h"

namespace hearth::models {
namespace {

constexpr uint64_t kAtOnce = 1 << 16;  // a multiple of every type's block

}  // namespace

std::optional<std::string> find_bad_weight(const GgufFile& file,
                                           const std::function<bool()>& stop) {
  std::vector<float> values;
  for (const GgufTensor& tensor : file.tensors()) {
    if (!tensor.dtype) continue;
    const uint64_t all = tensor.num_elements();
    for (uint64_t done = 0; done < all; done += kAtOnce) {
      if (stop()) return std::nullopt;
      const uint64_t count = std::min(kAtOnce, all - done);
      const auto& type = kernels::info(*tensor.dtype);
      const uint64_t from = done / static_cast<uint64_t>(type.block_elements) *
                            static_cast<uint64_t>(type.block_bytes);
      const uint64_t bytes = count / static_cast<uint64_t>(type.block_elements) *
                             static_cast<uint64_t>(type.block_bytes);
      values.resize(count);
      kernels::dequantize(*tensor.dtype, tensor.bytes.subspan(from, bytes), values);
      const auto bad =
          std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
      if (bad == values.end()) continue;
      return fmt::format("{} {}: value {} of {} is {}", printable(tensor.name), tensor.shape(),
                         done + static_cast<uint64_t>(bad - values.begin()), all, *bad);
    }
  }
  return std::nullopt;
}

}  // namespace hearth::models
