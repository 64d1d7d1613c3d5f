#include "models/quantize/quantize_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/host/thread_pool.h"
#include "kernels/quant/quant_types.h"
#include "models/gguf/gguf_writer.h"
#include "models/gguf/tensor_scales.h"
#include "models/quantize/quantize_rows.h"

namespace hearth::models {
namespace {

using kernels::DType;

constexpr int64_t kValues = 1 << 18;  // that one thread converts per turn

bool is_coarse(DType type) {
  return kernels::info(type).block_elements > 1 && type != DType::kQ8_0;
}

Result<void> check(const GgufTensor& tensor, DType to, const QuantizeOptions& options) {
  const auto refuse = [&](std::string why) {
    return Error::unsupported(fmt::format("{}: {}", printable(tensor.name), why));
  };
  if (!tensor.dtype)
    return refuse(fmt::format("{}, which this build cannot read", tensor.type_name()));
  if (*tensor.dtype == to) return {};
  if (!kernels::info(*tensor.dtype).usable_as_weight) {
    return refuse(fmt::format("{}, which this build cannot read", tensor.type_name()));
  }
  if (is_coarse(*tensor.dtype) && !options.requantize) {
    return refuse(
        fmt::format("is {} already; --requantize takes it all the same", tensor.type_name()));
  }
  return {};
}

/// Refuses an importance matrix that lacks a layer's matrix. Others may be missing: llama.cpp
/// records no output head, and layers for drafting are not computed.
Result<void> check_weighted(const GgufTensor& tensor, DType to, const MixModel& model,
                            const QuantizeOptions& options) {
  if (options.importance == nullptr || tensor.dtype == to || !is_coarse(to)) return {};
  const auto layer = layer_of(tensor.name);
  if (!layer || *layer >= model.num_layers - model.num_draft_layers) return {};
  if (options.importance->has(tensor.name)) return {};
  return Error::invalid(
      fmt::format("{}: {} is missing, want the importance matrix of the whole model",
                  options.importance->file_name(), printable(tensor.name)),
      "imatrix");
}

/// Keeps the first error of several threads.
class FirstError {
 public:
  void set(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  const std::optional<Error>& get() const { return error_; }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
};

class Requantizer {
 public:
  Requantizer(const GgufFile& in, GgufOutput& out, const QuantizeOptions& options)
      : in_(in), out_(out), options_(options), pool_(options.num_threads) {}

  Result<void> copy(std::span<const std::byte> bytes) {
    constexpr size_t kPiece = 8 << 20;
    for (size_t at = 0; at < bytes.size(); at += kPiece) {
      HEARTH_TRY(out_.append(bytes.subspan(at, std::min(kPiece, bytes.size() - at))));
    }
    return {};
  }

  Result<void> tensor(const GgufTensor& tensor, DType to) {
    const TensorFactors* factors =
        options_.scales != nullptr ? options_.scales->find(tensor.name) : nullptr;
    if (tensor.dtype == to && factors == nullptr) {
      HEARTH_TRY(copy(tensor.bytes));
    } else {
      HEARTH_TRY(convert(tensor, to, factors != nullptr ? *factors : TensorFactors()));
    }
    in_.drop_pages(tensor.bytes);
    return out_.pad();
  }

 private:
  /// Of a tensor of experts one matrix after the other, because each has inputs of its own.
  Result<void> convert(const GgufTensor& tensor, DType to, const TensorFactors& factors) {
    const uint64_t matrices = tensor.dims[2] * tensor.dims[3];
    const size_t bytes = tensor.bytes.size() / matrices;
    HEARTH_ASSIGN_OR_RETURN(const std::vector<float> scales, scales_of(in_, tensor));
    for (uint64_t i = 0; i < matrices; ++i) {
      std::vector<float> importance;
      if (options_.importance != nullptr) {
        importance = options_.importance->mean_squares(tensor.name, i, tensor.dims[0]);
      }
      if (!importance.empty()) {
        // Scaled inputs are smaller by as much.
        for (size_t c = 0; c < factors.cols.size(); ++c) {
          importance[c] /= factors.cols[c] * factors.cols[c];
        }
      }
      Matrix matrix{.bytes = tensor.bytes.subspan(i * bytes, bytes),
                    .importance = std::move(importance),
                    .scale = scales.empty() ? 1 : scales[i]};
      HEARTH_TRY(convert(tensor, matrix, to, factors));
    }
    return {};
  }

  /// One of a tensor's matrices.
  struct Matrix {
    std::span<const std::byte> bytes;
    std::vector<float> importance;
    float scale = 1;
  };

  Result<void> convert(const GgufTensor& tensor, const Matrix& matrix, DType to,
                       const TensorFactors& factors) {
    const int64_t cols = tensor.dims[0];
    const uint64_t from_row = kernels::bytes_of(*tensor.dtype, tensor.dims[0]);
    const uint64_t to_row = kernels::bytes_of(to, tensor.dims[0]);
    const int64_t rows = matrix.bytes.size() / from_row;
    const int64_t turn = std::max<int64_t>(1, kValues / cols);
    const int64_t batch = turn * options_.num_threads * 2;
    std::vector<std::byte> out;
    for (int64_t first = 0; first < rows; first += batch) {
      const int64_t count = std::min(batch, rows - first);
      out.resize(count * to_row);
      FirstError problem;
      pool_.run((count + turn - 1) / turn, [&](int64_t item, int32_t) {
        const int64_t begin = item * turn, n = std::min(turn, count - begin);
        std::vector<float> values(n * cols);
        kernels::dequantize(*tensor.dtype,
                            matrix.bytes.subspan((first + begin) * from_row, n * from_row), values);
        multiply(values, first + begin, cols, factors);
        if (matrix.scale != 1) std::ranges::for_each(values, [&](float& x) { x *= matrix.scale; });
        const auto encoded = quantize_rows(to, values, cols, matrix.importance);
        if (!encoded.ok()) return problem.set(encoded.error());
        std::ranges::copy(encoded.value(), out.begin() + (begin * to_row));
      });
      if (problem.get()) {
        Error error = *problem.get();
        error.message = fmt::format("{}: {}", printable(tensor.name), error.message);
        return error;
      }
      HEARTH_TRY(out_.append(out));
    }
    return {};
  }

  static void multiply(std::span<float> values, int64_t first_row, int64_t cols,
                       const TensorFactors& factors) {
    for (int64_t i = 0; i < std::ssize(values); ++i) {
      if (!factors.rows.empty()) values[i] *= factors.rows[first_row + i / cols];
      if (!factors.cols.empty()) values[i] *= factors.cols[i % cols];
    }
  }

  const GgufFile& in_;
  GgufOutput& out_;
  const QuantizeOptions& options_;
  kernels::ThreadPool pool_;
};

}  // namespace

Result<QuantizeReport> quantize_file(const GgufFile& in, const std::filesystem::path& out,
                                     const QuantizeOptions& options,
                                     const WriteProgressFn& progress) {
  const MixModel model = MixModel::of(in);
  if (options.importance != nullptr) HEARTH_TRY(options.importance->check_fits(in));
  GgufWriter writer;
  for (const GgufEntry& entry : in.metadata()) {
    // These describe the layout and types of the tensors, which change.
    const bool own = entry.key == "general.alignment" || entry.key == "general.file_type" ||
                     entry.key == "general.quantization_version" || entry.key == kOutliersFrom;
    if (!own) writer.copy(entry);
  }
  writer.set_u32("general.file_type", options.mix.file_type);
  writer.set_u32("general.quantization_version", 2);
  QuantizeReport report;
  std::vector<std::pair<const GgufTensor*, DType>> written;
  const auto scales = scale_names(in);  // they become part of their weights
  for (const GgufTensor& tensor : in.tensors()) {
    if (scales.contains(tensor.name)) continue;
    HEARTH_TRY(scales_of(in, tensor));
    const DType type = choose_type(options.mix, model, tensor);
    HEARTH_TRY(check(tensor, type, options));
    HEARTH_TRY(check_weighted(tensor, type, model, options));
    written.emplace_back(&tensor, type);
    writer.declare_tensor(tensor.name, std::span(tensor.dims).first(tensor.num_dims), type);
    ++report.num_tensors;
    report.num_changed += tensor.dtype == type ? 0 : 1;
    report.num_weighted += tensor.dtype != type && is_coarse(type) &&
                                   options.importance != nullptr &&
                                   options.importance->has(tensor.name)
                               ? 1
                               : 0;
    report.bytes_before += tensor.bytes.size();
    report.bytes_after += kernels::bytes_of(type, tensor.num_elements());
  }
  const std::vector<std::byte> header = writer.header();
  HEARTH_ASSIGN_OR_RETURN(GgufOutput file,
                          GgufOutput::create(out, header.size() + report.bytes_after, progress));
  HEARTH_TRY(file.append(header));
  Requantizer requantizer(in, file, options);
  for (const auto& [tensor, type] : written) HEARTH_TRY(requantizer.tensor(*tensor, type));
  HEARTH_TRY(file.finish());
  return report;
}

}  // namespace hearth::models
