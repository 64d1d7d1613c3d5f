#include "models/convert/packed_matrix.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/base/numbers.h"
#include "kernels/ops/half.h"
#include "models/gguf/byte_cursor.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {
namespace {

using kernels::DType;

constexpr uint64_t kShared = 32;  ///< inputs that share a scale in GGUF's types

Error corrupt(const SafeTensor& tensor, const std::string& want) {
  return Error::corrupt(fmt::format("{}: {} of {}, want {}", printable(tensor.name), tensor.type,
                                    shape_text(tensor.shape), want));
}

Result<void> check(const SafeTensor& tensor, std::string_view type,
                   const std::vector<uint64_t>& shape) {
  if (tensor.type == type && tensor.shape == shape) return {};
  return corrupt(tensor, fmt::format("{} of {}", type, shape_text(shape)));
}

/// Unsigned numbers of a few bits in words of 32, or bytes. `in` counts inputs or groups of them.
struct Codes {
  enum class Order {
    kDown,        ///< (in / n, out): a word has n consecutive inputs of one output
    kAcross,      ///< (in, out / n): n consecutive outputs of one input
    kAcrossAwq,   ///< the same, outputs 0 2 4 6 1 3 5 7
    kInRow,       ///< (out, in / n)
    kDownOutput,  ///< (out / n, in)
  };
  const SafeTensor* tensor = nullptr;
  Order order = Order::kDown;
  uint32_t bits = 4;
  uint64_t stride = 0;  ///< words of a row

  int32_t at(uint64_t in, uint64_t out) const {
    const uint64_t n = 32 / bits;
    switch (order) {
      case Order::kDown: return part(in / n * stride + out, in % n);
      case Order::kAcross: return part(in * stride + out / n, out % n);
      case Order::kAcrossAwq: {
        constexpr uint64_t kPlace[] = {0, 4, 1, 5, 2, 6, 3, 7};
        return part(in * stride + out / n, kPlace[out % n]);
      }
      case Order::kInRow: return part(out * stride + in / n, in % n);
      case Order::kDownOutput: return part(out / n * stride + in, out % n);
    }
    return 0;
  }

 private:
  int32_t part(uint64_t word, uint64_t place) const {
    const auto whole = load_unaligned<uint32_t>(tensor->bytes.data() + word * 4);
    return narrow<int32_t>(whole >> place * bits & ((1u << bits) - 1));
  }
};

/// Scales of groups of inputs.
struct Scales {
  const SafeTensor* tensor = nullptr;
  DType type = DType::kF16;
  uint64_t per_group = 0, per_row = 0;  ///< elements from one to the next
  double factor = 1;

  static Result<Scales> of(const SafeTensor& tensor) {
    HEARTH_ASSIGN_OR_RETURN(const DType type, tensor.dtype());
    return Scales{.tensor = &tensor, .type = type};
  }
  double at(uint64_t group, uint64_t row) const {
    return factor * number(group * per_group + row * per_row);
  }
  Result<void> check_finite() const {
    for (uint64_t i = 0; i < tensor->num_elements(); ++i) {
      if (!std::isfinite(number(i))) {
        return Error::corrupt(
            fmt::format("{}: scale {} is not a finite number", printable(tensor->name), i));
      }
    }
    return {};
  }
  /// Whether F16 holds all of them.
  bool halves() const {
    if (factor != 1) return false;
    if (type == DType::kF16) return true;
    for (uint64_t i = 0; i < tensor->num_elements(); ++i) {
      const float scale = as_float(number(i));
      if (kernels::f32_from_f16(kernels::f16_from_f32(scale)) != scale) return false;
    }
    return true;
  }
  /// Whether rounding to F16 changes none of them by more than 2^-11 of itself.
  bool near_halves() const {
    for (uint64_t i = 0; i < tensor->num_elements(); ++i) {
      const double scale = std::abs(factor * number(i));
      if (scale != 0 && (scale < 0x1p-14 || scale > 65504)) return false;
    }
    return true;
  }

 private:
  double number(uint64_t i) const {
    if (type == DType::kF32) return load_unaligned<float>(tensor->bytes.data() + i * 4);
    const auto half = load_unaligned<uint16_t>(tensor->bytes.data() + i * 2);
    return type == DType::kF16 ? kernels::f32_from_f16(half) : kernels::f32_from_bf16(half);
  }
};

/// (code - zero point) * scale.
class WholeNumbers final : public PackedMatrix {
 public:
  struct Parts {
    uint64_t rows = 0, cols = 0;
    Codes codes{};                      ///< without them:
    const SafeTensor* bytes = nullptr;  ///< signed, (rows, cols)
    std::optional<Codes> zeros{};       ///< by group; without them:
    int32_t zero = 0;
    int32_t zero_beyond = 0;  ///< added to those of `zeros`
    Scales scales{};
    std::vector<uint32_t> group_of{};  ///< per input
    uint64_t num_groups = 1;
  };

  explicit WholeNumbers(Parts parts) : p_(std::move(parts)) { choose_type(); }

  double value(uint64_t row, uint64_t col) const override {
    return level(row, col) * p_.scales.at(p_.group_of[col], row);
  }
  std::optional<DType> kept_type() const override { return type_; }
  bool rounds_scales() const override { return rounds_scales_; }
  std::string why_rounded() const override { return why_; }
  PackedBlock block(uint64_t row, uint64_t col) const override {
    PackedBlock out;
    for (uint64_t i = 0; i < kShared; ++i) out.levels[i] = level(row, col + i);
    out.scale = as_float(p_.scales.at(p_.group_of[col], row));
    return out;
  }

 private:
  int32_t level(uint64_t row, uint64_t col) const {
    if (p_.bytes != nullptr) {
      return load_unaligned<int8_t>(p_.bytes->bytes.data() + row * p_.cols + col);
    }
    return p_.codes.at(col, row) - zero(p_.group_of[col], row);
  }
  int32_t zero(uint64_t group, uint64_t row) const {
    if (!p_.zeros) return p_.zero;
    return p_.zeros->at(group, row) + p_.zero_beyond;
  }

  void choose_type() {
    for (uint64_t col = 0; col < p_.cols; ++col) {
      if (p_.group_of[col] != p_.group_of[col / kShared * kShared] || p_.cols % kShared != 0) {
        why_ = fmt::format("inputs of {} consecutive ones have different scales", kShared);
        return;
      }
    }
    int32_t least = 0, most = 0;
    for (uint64_t group = 0; group < p_.num_groups; ++group) {
      for (uint64_t row = 0; row < p_.rows; ++row) {
        least = std::min(least, least_code() - zero(group, row));
        most = std::max(most, most_code() - zero(group, row));
      }
    }
    const auto fits = [&](int32_t bound) { return least >= -bound && most < bound; };
    const auto type = fits(8)     ? std::optional(DType::kQ4_0)
                      : fits(16)  ? std::optional(DType::kQ5_0)
                      : fits(128) ? std::optional(DType::kQ8_0)
                                  : std::nullopt;
    if (!type) {
      why_ = fmt::format("numbers from {} to {} fit no type", least, most);
    } else if (p_.scales.halves()) {
      type_ = type;
    } else if (p_.scales.near_halves()) {
      type_ = type;
      rounds_scales_ = true;
    } else {
      why_ = "its scales are not numbers of F16";
    }
  }
  int32_t least_code() const { return p_.bytes != nullptr ? -128 : 0; }
  int32_t most_code() const { return p_.bytes != nullptr ? 127 : (1 << p_.codes.bits) - 1; }

  const Parts p_;
  std::optional<DType> type_;
  bool rounds_scales_ = false;
  std::string why_;
};

/// Floats of 8 bits (E4M3, no infinities) times the scale of their tile of the matrix.
class EightBitFloats final : public PackedMatrix {
 public:
  EightBitFloats(const SafeTensor& codes, Scales scales, uint64_t tile_rows, uint64_t tile_cols)
      : codes_(codes), scales_(scales), tile_rows_(tile_rows), tile_cols_(tile_cols) {}

  double value(uint64_t row, uint64_t col) const override {
    const auto code = load_unaligned<uint8_t>(codes_.bytes.data() + row * codes_.shape[1] + col);
    return number(code) * scales_.at(col / tile_cols_, row / tile_rows_);
  }
  std::string why_rounded() const override { return "no type holds 8-bit floats with scales"; }
  std::optional<DType> rounded_type() const override { return DType::kBF16; }

  static double number(uint8_t code) {
    const int exponent = code >> 3 & 15;
    const int mantissa = code & 7;
    const double sign = code >> 7 != 0 ? -1 : 1;
    if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
    return exponent == 0 ? sign * std::ldexp(mantissa, -9)
                         : sign * std::ldexp(8 + mantissa, exponent - 10);
  }

 private:
  const SafeTensor& codes_;
  const Scales scales_;
  const uint64_t tile_rows_, tile_cols_;
};

uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

std::vector<uint32_t> runs(uint64_t cols, uint64_t group_size) {
  std::vector<uint32_t> out(cols);
  for (uint64_t i = 0; i < cols; ++i) out[i] = narrow<uint32_t>(i / group_size);
  return out;
}

/// Of whole numbers, from `quantization_config`.
struct Settings {
  uint32_t bits = 4;
  uint64_t group_size = 0;  ///< 0: all inputs
  bool symmetric = false;
  bool zeros_less_one = false;  ///< stored zero points are one less (GPTQ's first format)
};

Result<PackedParts> finish(WholeNumbers::Parts parts, std::vector<std::string> used) {
  HEARTH_TRY(parts.scales.check_finite());
  PackedParts out;
  out.shape = {parts.rows, parts.cols};
  out.used = std::move(used);
  out.matrix = std::make_shared<WholeNumbers>(std::move(parts));
  return out;
}

/// GPTQ and AWQ: "qweight", "qzeros", "scales" and, of GPTQ, "g_idx".
class QweightFormat final : public PackedFormat {
 public:
  QweightFormat(const Settings& settings, bool awq) : s_(settings), awq_(awq) {}

  Result<std::optional<PackedParts>> make(const std::string& base,
                                          const Find& find) const override {
    const SafeTensor* const codes = find(base + ".qweight");
    if (codes == nullptr) return std::optional<PackedParts>();
    const SafeTensor* const scales = find(base + ".scales");
    if (scales == nullptr) return Error::corrupt(fmt::format("{}.scales: missing", base));
    if (codes->type != "I32" || codes->shape.size() != 2 || scales->shape.size() != 2 ||
        codes->num_elements() == 0 || scales->num_elements() == 0) {
      return corrupt(*codes, "I32 and scales, of two dimensions");
    }
    const uint64_t n = 32 / s_.bits;
    WholeNumbers::Parts parts;
    parts.cols = awq_ ? codes->shape[0] : codes->shape[0] * n;
    parts.rows = awq_ ? codes->shape[1] * n : codes->shape[1];
    const uint64_t size = s_.group_size == 0 ? parts.cols : s_.group_size;
    parts.num_groups = divide_up(parts.cols, size);
    HEARTH_ASSIGN_OR_RETURN(parts.scales, Scales::of(*scales));
    HEARTH_TRY(check(*scales, scales->type, {parts.num_groups, parts.rows}));
    parts.scales.per_group = parts.rows;
    parts.scales.per_row = 1;
    using Order = Codes::Order;
    parts.codes = {codes, awq_ ? Order::kAcrossAwq : Order::kDown, s_.bits, codes->shape[1]};
    parts.group_of = runs(parts.cols, size);
    std::vector<std::string> used = {base + ".qweight", base + ".scales"};
    HEARTH_TRY(add_zeros(base, find, parts, used));
    HEARTH_TRY(add_order(base, find, parts, used));
    HEARTH_ASSIGN_OR_RETURN(PackedParts out, finish(std::move(parts), std::move(used)));
    return std::optional(std::move(out));
  }

 private:
  Result<void> add_zeros(const std::string& base, const Find& find, WholeNumbers::Parts& parts,
                         std::vector<std::string>& used) const {
    const SafeTensor* const zeros = find(base + ".qzeros");
    parts.zero = 1 << (s_.bits - 1);
    if (zeros == nullptr && s_.symmetric) return {};
    if (zeros == nullptr) return Error::corrupt(fmt::format("{}.qzeros: missing", base));
    const uint64_t n = 32 / s_.bits;
    HEARTH_TRY(check(*zeros, "I32", {parts.num_groups, divide_up(parts.rows, n)}));
    used.push_back(base + ".qzeros");
    using Order = Codes::Order;
    parts.zeros = Codes{zeros, awq_ ? Order::kAcrossAwq : Order::kAcross, s_.bits, zeros->shape[1]};
    parts.zero_beyond = s_.zeros_less_one ? 1 : 0;
    return {};
  }

  Result<void> add_order(const std::string& base, const Find& find, WholeNumbers::Parts& parts,
                         std::vector<std::string>& used) const {
    const SafeTensor* const order = find(base + ".g_idx");
    if (order == nullptr) return {};
    HEARTH_TRY(check(*order, "I32", {parts.cols}));
    used.push_back(base + ".g_idx");
    for (uint64_t i = 0; i < parts.cols; ++i) {
      const auto group = load_unaligned<uint32_t>(order->bytes.data() + i * 4);
      if (group >= parts.num_groups) {
        return Error::corrupt(
            fmt::format("{}: met group {} of {}", printable(order->name), group, parts.num_groups));
      }
      parts.group_of[i] = group;
    }
    return {};
  }

  const Settings s_;
  const bool awq_;
};

/// compressed-tensors' whole numbers: "weight_packed" or "weight" of I8, "weight_scale",
/// "weight_zero_point".
class CompressedFormat final : public PackedFormat {
 public:
  explicit CompressedFormat(const Settings& settings) : s_(settings) {}

  Result<std::optional<PackedParts>> make(const std::string& base,
                                          const Find& find) const override {
    const SafeTensor* packed = find(base + ".weight_packed");
    const SafeTensor* bytes = packed == nullptr ? find(base + ".weight") : nullptr;
    if (bytes != nullptr && bytes->type != "I8") bytes = nullptr;
    if (packed == nullptr && bytes == nullptr) return std::optional<PackedParts>();
    const SafeTensor& codes = packed != nullptr ? *packed : *bytes;
    const SafeTensor* const scales = find(base + ".weight_scale");
    if (scales == nullptr) return Error::corrupt(fmt::format("{}.weight_scale: missing", base));
    if (codes.shape.size() != 2 || codes.num_elements() == 0 ||
        (packed != nullptr && codes.type != "I32")) {
      return corrupt(codes, "I32 of two dimensions");
    }
    const uint64_t n = packed == nullptr ? 1 : 32 / s_.bits;
    WholeNumbers::Parts parts;
    parts.rows = codes.shape[0];
    parts.cols = codes.shape[1] * n;
    const uint64_t size = s_.group_size == 0 ? parts.cols : s_.group_size;
    parts.num_groups = divide_up(parts.cols, size);
    parts.group_of = runs(parts.cols, size);
    HEARTH_ASSIGN_OR_RETURN(parts.scales, Scales::of(*scales));
    if (scales->num_elements() == 1) {  // of the whole tensor
      parts.num_groups = 1;
      parts.group_of.assign(parts.cols, 0);
    } else {
      HEARTH_TRY(check(*scales, scales->type, {parts.rows, parts.num_groups}));
      parts.scales.per_group = 1;
      parts.scales.per_row = parts.num_groups;
    }
    parts.bytes = bytes;
    using Order = Codes::Order;
    if (packed != nullptr) {
      parts.codes = {packed, Order::kInRow, s_.bits, codes.shape[1]};
      parts.zero = 1 << (s_.bits - 1);
    }
    std::vector<std::string> used = {base + ".weight_scale",
                                     base + (packed != nullptr ? ".weight_packed" : ".weight")};
    for (const char* const name : {".weight_shape", ".input_scale", ".input_zero_point"}) {
      if (find(base + name) != nullptr) used.push_back(base + name);
    }
    HEARTH_TRY(add_zeros(base, find, parts, used));
    if (find(base + ".weight_g_idx") != nullptr) {
      return Error::unsupported(
          fmt::format("{}.weight_g_idx: groups of inputs in another order", base));
    }
    HEARTH_ASSIGN_OR_RETURN(PackedParts out, finish(std::move(parts), std::move(used)));
    return std::optional(std::move(out));
  }

 private:
  Result<void> add_zeros(const std::string& base, const Find& find, WholeNumbers::Parts& parts,
                         std::vector<std::string>& used) const {
    const SafeTensor* const zeros = find(base + ".weight_zero_point");
    if (zeros == nullptr && s_.symmetric) return {};
    if (zeros == nullptr || parts.bytes != nullptr) {
      return Error::unsupported(
          fmt::format("{}.weight_zero_point: {}", base,
                      zeros == nullptr ? "missing" : "zero points of numbers of 8 bits"));
    }
    const uint64_t n = 32 / s_.bits;
    HEARTH_TRY(check(*zeros, "I32", {divide_up(parts.rows, n), parts.num_groups}));
    used.push_back(base + ".weight_zero_point");
    parts.zeros = Codes{zeros, Codes::Order::kDownOutput, s_.bits, zeros->shape[1]};
    return {};
  }

  const Settings s_;
};

/// LLM.int8: "weight" of I8 and "SCB", the largest magnitude of each row.
class Int8Format final : public PackedFormat {
 public:
  explicit Int8Format(float threshold) : threshold_(threshold) {}

  float outliers_from() const override { return threshold_; }
  Result<std::optional<PackedParts>> make(const std::string& base,
                                          const Find& find) const override {
    const SafeTensor* const bytes = find(base + ".weight");
    if (bytes == nullptr || bytes->type != "I8") return std::optional<PackedParts>();
    const SafeTensor* const largest = find(base + ".SCB");
    if (largest == nullptr) return Error::corrupt(fmt::format("{}.SCB: missing", base));
    if (bytes->shape.size() != 2 || bytes->num_elements() == 0) {
      return corrupt(*bytes, "two dimensions");
    }
    WholeNumbers::Parts parts;
    parts.rows = bytes->shape[0];
    parts.cols = bytes->shape[1];
    parts.bytes = bytes;
    HEARTH_TRY(check(*largest, "F32", {parts.rows}));
    HEARTH_ASSIGN_OR_RETURN(parts.scales, Scales::of(*largest));
    parts.scales.per_row = 1;
    parts.scales.factor = 1.0 / 127;
    parts.group_of.assign(parts.cols, 0);
    std::vector<std::string> used = {base + ".weight", base + ".SCB"};
    if (find(base + ".weight_format") != nullptr) used.push_back(base + ".weight_format");
    HEARTH_ASSIGN_OR_RETURN(PackedParts out, finish(std::move(parts), std::move(used)));
    return std::optional(std::move(out));
  }

 private:
  const float threshold_;
};

/// "weight" of F8_E4M3 with "weight_scale", or with "weight_scale_inv" per tile.
class Float8Format final : public PackedFormat {
 public:
  Float8Format(uint64_t tile_rows, uint64_t tile_cols)
      : tile_rows_(tile_rows), tile_cols_(tile_cols) {}

  Result<std::optional<PackedParts>> make(const std::string& base,
                                          const Find& find) const override {
    const SafeTensor* const codes = find(base + ".weight");
    if (codes == nullptr || codes->type != "F8_E4M3") return std::optional<PackedParts>();
    const std::string name =
        base +
        (find(base + ".weight_scale_inv") != nullptr ? ".weight_scale_inv" : ".weight_scale");
    const SafeTensor* const tensor = find(name);
    if (tensor == nullptr) return Error::corrupt(fmt::format("{}: missing", name));
    if (codes->shape.size() != 2 || codes->num_elements() == 0) {
      return corrupt(*codes, "two dimensions");
    }
    const uint64_t rows = codes->shape[0], cols = codes->shape[1];
    HEARTH_ASSIGN_OR_RETURN(Scales scales, Scales::of(*tensor));
    uint64_t tile_rows = tile_rows_, tile_cols = tile_cols_;
    if (tensor->num_elements() == 1) {
      tile_rows = rows;
      tile_cols = cols;
    } else if (tile_rows == 0) {  // of each output
      tile_rows = 1;
      tile_cols = cols;
    }
    const uint64_t down = divide_up(rows, tile_rows), across = divide_up(cols, tile_cols);
    if (tensor->num_elements() != down * across) {
      return corrupt(*tensor, fmt::format("{} x {}", down, across));
    }
    scales.per_row = across;
    scales.per_group = 1;
    HEARTH_TRY(scales.check_finite());
    PackedParts out;
    out.shape = {rows, cols};
    out.used = {base + ".weight", name};
    if (find(base + ".input_scale") != nullptr) out.used.push_back(base + ".input_scale");
    out.matrix = std::make_shared<EightBitFloats>(*codes, scales, tile_rows, tile_cols);
    return std::optional(std::move(out));
  }

 private:
  const uint64_t tile_rows_, tile_cols_;  ///< 0: of each output
};

template <class Format, class... Args>
std::unique_ptr<PackedFormat> format_of(Args... args) {
  return std::make_unique<Format>(args...);
}

Error unsupported(std::string_view key, std::string_view met, std::string_view want) {
  return Error::unsupported(
      fmt::format("config.json: quantization_config.{}: {}, want {}", key, printable(met), want));
}

/// -1 or null: all inputs.
Result<uint64_t> group_size_of(const Json& from) {
  HEARTH_ASSIGN_OR_RETURN(const auto size, number_at(from, "group_size"));
  if (!size || *size == -1) return uint64_t{0};
  if (*size < 1 || *size > 1 << 20 || *size != std::floor(*size)) {
    return Error::corrupt(
        fmt::format("config.json: quantization_config.group_size: {}, want -1 or a count", *size));
  }
  return whole(*size);
}

Result<uint32_t> bits_of(const Json& from, std::string_view key) {
  HEARTH_ASSIGN_OR_RETURN(const auto bits, count_at(from, key));
  if (bits.value_or(4) == 4) return 4u;
  if (*bits == 8) return 8u;
  return unsupported(key, fmt::format("{}", *bits), "4 or 8");
}

Result<std::unique_ptr<PackedFormat>> qweight_format(const Json& from, bool awq) {
  Settings settings;
  HEARTH_ASSIGN_OR_RETURN(settings.bits, bits_of(from, "bits"));
  HEARTH_ASSIGN_OR_RETURN(settings.group_size, group_size_of(from));
  if (awq) {
    if (settings.bits != 4) return unsupported("bits", "8", "4");
    HEARTH_ASSIGN_OR_RETURN(const auto version, text_at(from, "version"));
    if (version.value_or("gemm") != "gemm") return unsupported("version", *version, "gemm");
    HEARTH_ASSIGN_OR_RETURN(const auto zeros, flag_at(from, "zero_point"));
    settings.symmetric = !zeros.value_or(true);
  } else {
    HEARTH_ASSIGN_OR_RETURN(const auto symmetric, flag_at(from, "sym"));
    settings.symmetric = symmetric.value_or(true);
    HEARTH_ASSIGN_OR_RETURN(const auto version, text_at(from, "checkpoint_format"));
    settings.zeros_less_one = version.value_or("gptq") == "gptq";
    if (!settings.zeros_less_one && *version != "gptq_v2") {
      return unsupported("checkpoint_format", *version, "gptq or gptq_v2");
    }
  }
  return format_of<QweightFormat>(settings, awq);
}

Result<std::unique_ptr<PackedFormat>> compressed_format(const Json& from) {
  const Json* const groups = find(from, "config_groups");
  if (groups == nullptr || !groups->is_object() || groups->size() != 1) {
    return unsupported("config_groups", "none or several", "one");
  }
  const Json* const weights = find(groups->front(), "weights");
  if (weights == nullptr) return unsupported("config_groups", "no weights", "weights");
  HEARTH_ASSIGN_OR_RETURN(const auto kind, text_at(*weights, "type"));
  Settings settings;
  HEARTH_ASSIGN_OR_RETURN(settings.bits, bits_of(*weights, "num_bits"));
  HEARTH_ASSIGN_OR_RETURN(settings.group_size, group_size_of(*weights));
  if (kind.value_or("int") == "float") {
    if (settings.bits != 8 || settings.group_size != 0) {
      return unsupported("config_groups", "floats of other kinds", "num_bits 8 without groups");
    }
    return format_of<Float8Format>(uint64_t{0}, uint64_t{0});
  }
  HEARTH_ASSIGN_OR_RETURN(const auto symmetric, flag_at(*weights, "symmetric"));
  settings.symmetric = symmetric.value_or(true);
  return format_of<CompressedFormat>(settings);
}

Result<std::unique_ptr<PackedFormat>> float8_format(const Json& from) {
  const Json* const tile = find(from, "weight_block_size");
  if (tile == nullptr) return format_of<Float8Format>(uint64_t{0}, uint64_t{0});
  const auto is_size = [](const Json& size) {
    return size.is_number_unsigned() && size.get<uint64_t>() > 0;
  };
  if (!tile->is_array() || tile->size() != 2 || !is_size((*tile)[0]) || !is_size((*tile)[1])) {
    return Error::corrupt("config.json: quantization_config.weight_block_size: want two counts");
  }
  return format_of<Float8Format>((*tile)[0].get<uint64_t>(), (*tile)[1].get<uint64_t>());
}

Result<std::unique_ptr<PackedFormat>> int8_format(const Json& from) {
  HEARTH_ASSIGN_OR_RETURN(const auto eight, flag_at(from, "load_in_8bit"));
  if (!eight.value_or(false)) return unsupported("load_in_4bit", "true", "load_in_8bit");
  double threshold = 6;  // where the file has none, as published
  if (const Json* const given = find(from, "llm_int8_threshold")) {
    threshold = given->is_number() ? given->get<double>() : -1;
    if (!(threshold >= 0 && threshold <= 1e30)) {
      return Error::corrupt(
          "config.json: quantization_config.llm_int8_threshold: want a number of at least 0");
    }
  }
  return format_of<Int8Format>(static_cast<float>(threshold));
}

}  // namespace

Result<std::unique_ptr<PackedFormat>> packed_format(const Json& config) {
  const Json* const from = find(config, "quantization_config");
  if (from == nullptr) return std::unique_ptr<PackedFormat>();
  HEARTH_ASSIGN_OR_RETURN(const auto method, text_at(*from, "quant_method"));
  const std::string name = method.value_or("");
  if (name == "mxfp4") return std::unique_ptr<PackedFormat>();
  if (name == "gptq" || name == "awq") return qweight_format(*from, name == "awq");
  if (name == "compressed-tensors") return compressed_format(*from);
  if (name == "fp8") return float8_format(*from);
  if (name == "bitsandbytes") return int8_format(*from);
  return unsupported("quant_method", name,
                     "gptq, awq, compressed-tensors, fp8, bitsandbytes or mxfp4");
}

}  // namespace hearth::models
