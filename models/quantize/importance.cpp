#include "models/quantize/importance.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <utility>

#include "kernels/base/numbers.h"
#include "models/gguf/gguf_writer.h"

namespace hearth::models {
namespace {

using kernels::DType;

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";

float element(const GgufTensor& tensor, uint64_t i) {
  return load_unaligned<float>(tensor.bytes.data() + i * sizeof(float));
}

/// The matrices that share a tensor's columns.
uint64_t matrices_of(const GgufTensor& tensor) { return tensor.dims[2] * tensor.dims[3]; }

}  // namespace

Result<ImportanceMatrix> ImportanceMatrix::read(const GgufFile& file) {
  ImportanceMatrix out;
  out.file_name_ = printable(file.name());
  HEARTH_ASSIGN_OR_RETURN(const auto kind,
                          file.get_or<std::string_view>("general.type", std::string_view("model")));
  if (kind != "imatrix") {
    return Error::unsupported(
        fmt::format("{}: general.type is {}, want imatrix", out.file_name_, printable(kind)));
  }
  for (const GgufTensor& tensor : file.tensors()) {
    const std::string_view name = tensor.name;
    if (name.ends_with(kSums)) {
      out.entries_[name.substr(0, name.size() - kSums.size())].sums = &tensor;
    } else if (name.ends_with(kCounts)) {
      out.entries_[name.substr(0, name.size() - kCounts.size())].counts = &tensor;
    } else {
      return Error::unsupported(fmt::format("{}: {}, want names that end in {} or {}",
                                            out.file_name_, printable(name), kSums, kCounts));
    }
  }
  if (out.entries_.empty()) {
    return Error::corrupt(fmt::format("{}: it has 0 tensors, want sums", out.file_name_));
  }
  for (const auto& [name, entry] : out.entries_) HEARTH_TRY(out.check(name, entry));
  return out;
}

Result<void> ImportanceMatrix::check(std::string_view name, const Entry& entry) const {
  const auto refuse = [&](const std::string& why) {
    return Error::corrupt(fmt::format("{}: {}: {}", file_name_, printable(name), why));
  };
  if (entry.sums == nullptr) return refuse("counts without sums");
  if (entry.counts == nullptr) return refuse("sums without counts");
  for (const GgufTensor* tensor : {entry.sums, entry.counts}) {
    if (tensor->dtype == DType::kF32) continue;
    return refuse(fmt::format("{}, want F32", tensor->type_name()));
  }
  const uint64_t num_sums = entry.sums->num_elements();
  const uint64_t num_counts = entry.counts->num_elements();
  if (num_sums % num_counts != 0) {
    return refuse(fmt::format("{} sums and {} counts, want a multiple", num_sums, num_counts));
  }
  for (uint64_t i = 0; i < num_sums; ++i) {
    const float sum = element(*entry.sums, i);
    if (std::isfinite(sum) && sum >= 0) continue;
    return refuse(fmt::format("sum {} is {}, want a finite number of at least 0", i, sum));
  }
  bool has_rows = false;
  for (uint64_t i = 0; i < num_counts; ++i) {
    const float count = element(*entry.counts, i);
    if (!std::isfinite(count) || count < 0) {
      return refuse(fmt::format("count {} is {}, want a finite number of at least 0", i, count));
    }
    has_rows = has_rows || count > 0;
  }
  return has_rows ? Result<void>() : refuse("all counts are 0, want rows of inputs");
}

Result<void> ImportanceMatrix::check_fits(const GgufFile& model) const {
  for (const auto& [name, entry] : entries_) {
    const GgufTensor* tensor = model.find_tensor(name);
    if (tensor == nullptr) {
      return Error::invalid(
          fmt::format("{}: it has {}, which {} lacks; want the importance matrix of this model",
                      file_name_, printable(name), printable(model.name())),
          "imatrix");
    }
    const uint64_t matrices = matrices_of(*tensor);
    const uint64_t counts = entry.counts->num_elements();
    if (entry.sums->num_elements() == tensor->dims[0] * matrices &&
        (counts == 1 || counts == matrices)) {
      continue;
    }
    return Error::invalid(
        fmt::format("{}: {}: sums {} and counts {}, want those of {} in {}", file_name_,
                    printable(name), entry.sums->shape(), entry.counts->shape(), tensor->shape(),
                    printable(model.name())),
        "imatrix");
  }
  return {};
}

std::vector<float> ImportanceMatrix::mean_squares(std::string_view tensor, uint64_t index,
                                                  uint64_t cols) const {
  const auto found = entries_.find(tensor);
  if (found == entries_.end()) return {};
  const Entry& entry = found->second;
  const float count = element(*entry.counts, entry.counts->num_elements() == 1 ? 0 : index);
  if (count <= 0) return {};
  std::vector<float> out(cols);
  for (uint64_t i = 0; i < cols; ++i) out[i] = element(*entry.sums, index * cols + i) / count;
  return out;
}

Result<void> write_importance(const std::filesystem::path& path, std::span<const InputSums> inputs,
                              const ImportanceSource& source) {
  GgufWriter writer;
  writer.set_string("general.type", "imatrix");
  const std::array<std::string, 1> texts = {source.text};
  writer.set_strings("imatrix.datasets", texts);
  writer.set_u32("imatrix.chunk_count", source.num_windows);
  writer.set_u32("imatrix.chunk_size", source.window_tokens);
  for (const InputSums& input : inputs) {
    const std::vector<float> squares(input.squares.begin(), input.squares.end());
    for (const float square : squares) {
      if (std::isfinite(square)) continue;
      return Error::corrupt(
          fmt::format("{}: a sum of squares is {}, want finite inputs", input.name, square));
    }
    const std::vector<float> counts(input.counts.begin(), input.counts.end());
    const std::array<uint64_t, 2> dims = {narrow<uint64_t>(input.cols), counts.size()};
    const std::array<uint64_t, 2> count_dims = {1, counts.size()};
    writer.add_floats(input.name + std::string(kSums), dims, DType::kF32, squares);
    writer.add_floats(input.name + std::string(kCounts), count_dims, DType::kF32, counts);
  }
  return writer.write(path);
}

}  // namespace hearth::models
