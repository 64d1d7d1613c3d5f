#include "models/convert/convert.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/match.h"
#include "kernels/base/numbers.h"
#include "kernels/ops/half.h"
#include "kernels/quant/blocks.h"
#include "models/convert/checkpoint.h"
#include "models/convert/dflash.h"
#include "models/convert/eagle3.h"
#include "models/convert/family_keys.h"
#include "models/convert/heads.h"
#include "models/convert/tensor_plan.h"
#include "models/convert/tokenizer_keys.h"
#include "models/gguf/byte_cursor.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"
#include "models/gguf/heads_keys.h"
#include "models/gguf/tensor_scales.h"

namespace hearth::models {
namespace {

using kernels::DType;

constexpr uint64_t kElementsAtOnce = 1 << 20;
constexpr size_t kBlocksAtOnce = 1 << 16;
constexpr size_t kPackedValues = 32;  ///< of a block of packed numbers

float value_at(DType type, const std::byte* bytes, uint64_t index) {
  if (type == DType::kF32) return load_unaligned<float>(bytes + index * 4);
  const auto half = load_unaligned<uint16_t>(bytes + index * 2);
  return type == DType::kF16 ? kernels::f32_from_f16(half) : kernels::f32_from_bf16(half);
}

void encode(DType type, float value, std::byte* out) {
  if (type == DType::kF32) {
    std::memcpy(out, &value, 4);
    return;
  }
  const uint16_t half =
      type == DType::kF16 ? kernels::f16_from_f32(value) : kernels::bf16_from_f32(value);
  std::memcpy(out, &half, 2);
}

bool is_vector(const PlannedTensor& tensor) {
  const bool routes = tensor.name.ends_with("ffn_gate_inp.weight");
  return tensor.parts.empty() || tensor.dims.size() == 1 || tensor.exact || routes;
}

/// The type that holds what the parts have, all of them packed alike; nothing if they are rounded.
std::optional<DType> kept_type(const Checkpoint& in, const PlannedTensor& tensor,
                               const ConvertOptions& options) {
  const bool changed = tensor.edit.value || !tensor.edit.row_factors.empty();
  if (options.type || changed || is_vector(tensor)) return std::nullopt;
  std::optional<DType> widest;
  for (const PlannedTensor::Part& part : tensor.parts) {
    const PackedMatrix* const packed = in.packed(*part.tensor);
    const auto type = packed == nullptr ? std::nullopt : packed->kept_type();
    if (!type) return std::nullopt;
    if (!widest || kernels::bytes_of(*type, 32) > kernels::bytes_of(*widest, 32)) widest = type;
  }
  return widest;
}

Result<DType> type_for(const Checkpoint& in, const PlannedTensor& tensor,
                       const ConvertOptions& options) {
  if (tensor.blocks) return DType::kMXFP4;
  if (!tensor.ids.empty()) return DType::kI64;
  if (is_vector(tensor)) return DType::kF32;
  if (options.type) return *options.type;
  if (const auto kept = kept_type(in, tensor, options)) return *kept;
  const SafeTensor& first = *tensor.parts.front().tensor;
  const PackedMatrix* const packed = in.packed(first);
  if (packed == nullptr) return first.dtype();
  if (const auto rounded = packed->rounded_type()) return *rounded;
  return Error::invalid(
      fmt::format("{}: no type holds its numbers without loss ({}); want --type BF16, F16 or F32",
                  printable(first.name), packed->why_rounded()),
      "type");
}

uint64_t num_elements(const PlannedTensor& tensor) {
  uint64_t count = 1;
  for (const uint64_t dim : tensor.dims) count *= dim;
  return count;
}

class TensorWriter {
 public:
  TensorWriter(const Checkpoint& in, GgufOutput& out) : in_(in), out_(out) {}

  Result<void> tensor(const PlannedTensor& tensor, DType type) {
    if (tensor.blocks) {
      HEARTH_TRY(write_blocks(*tensor.blocks, tensor.dims));
    } else if (!tensor.ids.empty()) {
      HEARTH_TRY(out_.append(std::as_bytes(std::span(tensor.ids))));
    } else if (tensor.parts.empty()) {
      HEARTH_TRY(out_.append(std::as_bytes(std::span(tensor.values))));
    }
    for (const PlannedTensor::Part& part : tensor.parts) {
      const PackedMatrix* const packed = in_.packed(*part.tensor);
      const bool kept = packed != nullptr && kernels::info(type).block_elements > 1;
      HEARTH_TRY(kept ? write_kept(tensor, part, *packed, type) : write_part(tensor, part, type));
      in_.drop_pages(*part.tensor);
    }
    return out_.pad();
  }

 private:
  Result<void> write_part(const PlannedTensor& tensor, const PlannedTensor::Part& part,
                          DType type) {
    HEARTH_ASSIGN_OR_RETURN(const DType from, part.tensor->dtype());
    const PackedMatrix* const packed = in_.packed(*part.tensor);
    const uint64_t cols = part.tensor->shape.back();
    const uint64_t from_bytes = kernels::bytes_of(from, 1), to_bytes = kernels::bytes_of(type, 1);
    const std::byte* bytes = part.tensor->bytes.data() + part.first * from_bytes;
    const Edit& edit = tensor.edit;
    const bool as_it_is = packed == nullptr && from == type && !edit.source && !edit.value &&
                          edit.row_factors.empty();
    for (uint64_t first = 0; first < part.count; first += kElementsAtOnce) {
      const uint64_t count = std::min(kElementsAtOnce, part.count - first);
      if (as_it_is) {
        HEARTH_TRY(out_.append({bytes + first * from_bytes, count * from_bytes}));
        continue;
      }
      buffer_.resize(count * to_bytes);
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t at = edit.source ? edit.source(first + i) : first + i;
        HEARTH_CHECK(at < part.tensor->num_elements(), "{}: element {}", tensor.name, at);
        double exact = packed == nullptr
                           ? value_at(from, bytes, at)
                           : packed->value((part.first + at) / cols, (part.first + at) % cols);
        if (edit.value) exact = edit.value(exact);
        if (!edit.row_factors.empty()) exact *= edit.row_factors[(first + i) / tensor.dims[0]];
        const float value = as_float(exact);
        if (type == DType::kF16 && std::isfinite(value) && std::fabs(value) > 65504.0f) {
          return Error::invalid(fmt::format("{}: {} is beyond F16; want --type BF16 or F32",
                                            printable(part.tensor->name), value),
                                "type");
        }
        encode(type, value, buffer_.data() + i * to_bytes);
      }
      HEARTH_TRY(out_.append(buffer_));
    }
    return {};
  }

  /// Packed numbers as the type that holds them.
  Result<void> write_kept(const PlannedTensor& tensor, const PlannedTensor::Part& part,
                          const PackedMatrix& packed, DType type) {
    const uint64_t cols = part.tensor->shape.back();
    const Edit& edit = tensor.edit;
    buffer_.clear();
    for (uint64_t i = 0; i < part.count; i += kPackedValues) {
      const uint64_t at = part.first + (edit.source ? edit.source(i) : i);
      const uint64_t last = i + kPackedValues - 1;
      if (edit.source && part.first + edit.source(last) != at + kPackedValues - 1) {
        return Error::unsupported(fmt::format("{}: inputs of packed numbers in another order",
                                              printable(part.tensor->name)));
      }
      append_block(packed.block(at / cols, at % cols), type);
      if (buffer_.size() < kElementsAtOnce) continue;
      HEARTH_TRY(out_.append(buffer_));
      buffer_.clear();
    }
    return out_.append(buffer_);
  }

  void append_block(const PackedBlock& block, DType type) {
    const uint16_t d = kernels::f16_from_f32(block.scale);
    const auto append = [this](const auto& stored) {
      const auto bytes = std::as_bytes(std::span(&stored, 1));
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    };
    if (type == DType::kQ8_0) {
      kernels::stored::Q8_0 out{.d = d, .qs = {}};
      for (size_t i = 0; i < kPackedValues; ++i) out.qs[i] = narrow<int8_t>(block.levels[i]);
      return append(out);
    }
    const bool five = type == DType::kQ5_0;
    kernels::stored::Q5_0 out{.d = d, .qh = {}, .qs = {}};
    for (size_t i = 0; i < kPackedValues; ++i) {
      const auto code = narrow<uint32_t>(block.levels[i] + (five ? 16 : 8));
      out.qs[i % 16] = narrow<uint8_t>(out.qs[i % 16] | (code & 15) << (i < 16 ? 0 : 4));
      out.qh[i / 8] = narrow<uint8_t>(out.qh[i / 8] | code >> 4 << i % 8);
    }
    if (five) return append(out);
    kernels::stored::Q4_0 four{.d = d, .qs = {}};
    std::ranges::copy(out.qs, four.qs);
    append(four);
  }

  /// Published: value 2 i of a block is the low half of byte i, value 2 i + 1 the high one. In a
  /// GGUF file value i is the low half and value i + 16 the high one.
  Result<void> write_blocks(const PlannedTensor::Blocks& from, const std::vector<uint64_t>& dims) {
    using kernels::stored::MXFP4;
    constexpr uint8_t kNoNumber = 255;  // as a scale
    const auto* codes = reinterpret_cast<const uint8_t*>(from.codes->bytes.data());
    const auto* scales = reinterpret_cast<const uint8_t*>(from.scales->bytes.data());
    const auto code = [](const uint8_t* block, size_t i) { return block[i / 2] >> i % 2 * 4 & 15; };
    const uint64_t per_row = dims[0] / 32;
    const uint64_t all = dims[1] * dims[2] * per_row;
    std::vector<MXFP4> out;
    for (uint64_t i = 0; i < all; ++i) {
      const uint64_t at = (from.first + i / per_row * from.step) * per_row + i % per_row;
      const uint8_t* block = codes + at * sizeof out[0].qs;
      MXFP4& to = out.emplace_back();
      to.e = scales[at];
      if (to.e == kNoNumber) {
        return Error::corrupt(fmt::format("{}: scale {} is NaN", printable(from.scales->name), at));
      }
      for (size_t j = 0; j < sizeof to.qs; ++j) {
        to.qs[j] = static_cast<uint8_t>(code(block, j) | code(block, j + 16) << 4);
      }
      if (out.size() < kBlocksAtOnce && i + 1 < all) continue;
      HEARTH_TRY(out_.append(std::as_bytes(std::span(out))));
      out.clear();
    }
    in_.drop_pages(*from.codes);
    in_.drop_pages(*from.scales);
    return {};
  }

  const Checkpoint& in_;
  GgufOutput& out_;
  std::vector<std::byte> buffer_;
};

void set(GgufWriter& writer, const std::string& key, const FamilyKeys::Value& value) {
  match(
      value, [&](const uint32_t& count) { writer.set_u32(key, count); },
      [&](const float& factor) { writer.set_f32(key, factor); },
      [&](const bool& flag) { writer.set_bool(key, flag); },
      [&](const std::string& text) { writer.set_string(key, text); },
      [&](const std::vector<int32_t>& counts) { writer.set_i32s(key, counts); },
      [&](const std::vector<float>& factors) { writer.set_f32s(key, factors); },
      [&](const std::vector<bool>& flags) { writer.set_bools(key, flags); });
}

/// general.file_type
constexpr uint32_t kMxfp4FileType = 38;
uint32_t file_type(DType type) {
  switch (type) {
    case DType::kF32: return 0;
    case DType::kF16: return 1;
    case DType::kQ4_0: return 2;
    case DType::kQ8_0: return 7;
    case DType::kQ5_0: return 8;
    case DType::kMXFP4: return kMxfp4FileType;
    default: return 32;
  }
}

/// That of most bytes.
Result<DType> main_type(const Checkpoint& in, const std::vector<PlannedTensor>& tensors,
                        const ConvertOptions& options) {
  std::map<DType, uint64_t> bytes;
  for (const PlannedTensor& tensor : tensors) {
    HEARTH_ASSIGN_OR_RETURN(const DType type, type_for(in, tensor, options));
    if (!is_vector(tensor) || tensor.blocks) {
      bytes[type] += kernels::bytes_of(type, num_elements(tensor));
    }
  }
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& each) { return each.second; });
  return most == bytes.end() ? DType::kF32 : most->first;
}

/// The name of the folder. The path is resolved first, because "." or "x/" does not end in the
/// name.
std::string title_of(const std::filesystem::path& folder) {
  std::error_code problem;
  const auto whole = std::filesystem::weakly_canonical(folder, problem);
  return printable((problem ? folder : whole).filename().string());
}

/// Writes the file with what `writer` has and these tensors.
Result<ConvertReport> write_file(const Checkpoint& checkpoint,
                                 const std::vector<PlannedTensor>& tensors,
                                 const ConvertOptions& options, GgufWriter& writer,
                                 const std::filesystem::path& out,
                                 const WriteProgressFn& progress) {
  ConvertReport report;
  for (const PlannedTensor& tensor : tensors) {
    HEARTH_ASSIGN_OR_RETURN(const DType type, type_for(checkpoint, tensor, options));
    const bool packed = !tensor.parts.empty() && checkpoint.packed(*tensor.parts.front().tensor);
    const bool kept = kernels::info(type).block_elements > 1;
    if (packed && !kept) ++report.num_rounded;
    if (packed && kept) {
      const bool exact = std::ranges::none_of(tensor.parts, [&](const PlannedTensor::Part& part) {
        return checkpoint.packed(*part.tensor)->rounds_scales();
      });
      ++(exact ? report.num_kept : report.num_rescaled);
    }
    writer.declare_tensor(tensor.name, tensor.dims, type);
    ++report.num_tensors;
    report.bytes += kernels::bytes_of(type, num_elements(tensor));
  }
  if (checkpoint.outliers_from() > 0 && report.num_kept + report.num_rescaled > 0) {
    writer.set_f32(kOutliersFrom, checkpoint.outliers_from());
  }
  const std::vector<std::byte> header = writer.header();
  HEARTH_ASSIGN_OR_RETURN(GgufOutput file,
                          GgufOutput::create(out, header.size() + report.bytes, progress));
  HEARTH_TRY(file.append(header));
  TensorWriter to(checkpoint, file);
  for (const PlannedTensor& tensor : tensors) {
    HEARTH_ASSIGN_OR_RETURN(const DType type, type_for(checkpoint, tensor, options));
    HEARTH_TRY(to.tensor(tensor, type));
  }
  HEARTH_TRY(file.finish());
  return report;
}

Result<ConvertReport> convert_heads(const Checkpoint& checkpoint, const std::filesystem::path& out,
                                    const ConvertOptions& options,
                                    const WriteProgressFn& progress) {
  HEARTH_ASSIGN_OR_RETURN(const HeadsPlan plan, plan_heads(checkpoint));
  GgufWriter writer;
  writer.set_string("general.architecture", kHeadsArchitecture);
  writer.set_string("general.name", title_of(checkpoint.folder()));
  // Every head ends in a matrix.
  HEARTH_ASSIGN_OR_RETURN(const DType type, type_for(checkpoint, plan.tensors.back(), options));
  writer.set_u32("general.file_type", file_type(type));
  plan.describe(writer);
  HEARTH_ASSIGN_OR_RETURN(ConvertReport report,
                          write_file(checkpoint, plan.tensors, options, writer, out, progress));
  report.architecture = kHeadsArchitecture;
  report.num_left_out = checkpoint.num_left_out();
  return report;
}

/// A decoder that drafts for another model.
Result<ConvertReport> convert_drafter(const Checkpoint& checkpoint, const HeadPlan& plan,
                                      const std::filesystem::path& out,
                                      const ConvertOptions& options,
                                      const WriteProgressFn& progress) {
  const std::string& architecture = plan.keys.architecture;
  HEARTH_ASSIGN_OR_RETURN(const DType main, main_type(checkpoint, plan.tensors, options));
  GgufWriter writer;
  writer.set_string("general.architecture", architecture);
  writer.set_string("general.name", title_of(checkpoint.folder()));
  writer.set_u32("general.file_type", file_type(main));
  writer.set_u32(architecture + ".block_count", narrow<uint32_t>(plan.keys.num_layers));
  if (architecture == kDFlashArchitecture) {
    writer.set_u32("tokenizer.ggml.mask_token_id", dflash_mask_token(checkpoint.config()));
  }
  for (const auto& [key, value] : plan.keys.entries) set(writer, key, value);
  HEARTH_ASSIGN_OR_RETURN(ConvertReport report,
                          write_file(checkpoint, plan.tensors, options, writer, out, progress));
  report.architecture = architecture;
  report.num_left_out = checkpoint.num_left_out();
  return report;
}

}  // namespace

Result<ConvertReport> convert_folder(const std::filesystem::path& folder,
                                     const std::filesystem::path& out,
                                     const ConvertOptions& options,
                                     const WriteProgressFn& progress) {
  HEARTH_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(folder));
  if (has_heads(checkpoint.config())) return convert_heads(checkpoint, out, options, progress);
  if (has_eagle3(checkpoint.config()) || has_dflash(checkpoint.config())) {
    const auto plan_of = has_eagle3(checkpoint.config()) ? plan_eagle3 : plan_dflash;
    HEARTH_ASSIGN_OR_RETURN(const HeadPlan drafter, plan_of(checkpoint, options.target));
    return convert_drafter(checkpoint, drafter, out, options, progress);
  }
  HEARTH_ASSIGN_OR_RETURN(const FamilyKeys keys, family_keys(checkpoint.config()));
  HEARTH_ASSIGN_OR_RETURN(const TensorPlan plan, plan_tensors(checkpoint, keys));
  const std::vector<PlannedTensor>& tensors = plan.tensors;
  GgufWriter writer;
  writer.set_string("general.architecture", keys.architecture);
  writer.set_string("general.name", title_of(folder));
  HEARTH_ASSIGN_OR_RETURN(const DType main, main_type(checkpoint, tensors, options));
  const bool in_blocks =
      std::ranges::any_of(tensors, [](const auto& tensor) { return tensor.blocks.has_value(); });
  writer.set_u32("general.file_type", file_type(in_blocks ? DType::kMXFP4 : main));
  const uint32_t draft_layers = plan.drafts ? 1 : 0;
  writer.set_u32(keys.architecture + ".block_count",
                 narrow<uint32_t>(keys.num_layers) + draft_layers);
  if (plan.drafts) writer.set_u32(keys.architecture + ".nextn_predict_layers", draft_layers);
  for (const auto& [key, value] : keys.entries) set(writer, key, value);
  const uint64_t rows = tensors.front().dims[1];
  if (!options.without_tokenizer) {
    HEARTH_TRY(add_tokenizer(folder, checkpoint.config(), rows, writer));
  }
  HEARTH_ASSIGN_OR_RETURN(ConvertReport report,
                          write_file(checkpoint, tensors, options, writer, out, progress));
  report.architecture = keys.architecture;
  report.num_left_out = checkpoint.num_left_out() + plan.num_left_out;
  return report;
}

}  // namespace hearth::models
