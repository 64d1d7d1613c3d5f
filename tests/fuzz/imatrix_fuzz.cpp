// Any bytes as an importance matrix of a small model: read, compared with the model, and used to
// quantize one row of each of its matrices. Seeds: fuzz_seeds writes whole files; start from those.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/check.h"
#include "models/gguf/gguf_file.h"
#include "models/quantize/importance.h"
#include "models/quantize/quantize_rows.h"
#include "tests/unit/models/importance_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth::models;
  using hearth::kernels::DType;
  static const std::vector<std::byte> model_bytes = small_layer().bytes();
  static const GgufFile model = GgufFile::parse(model_bytes, "small").value();
  const auto file = GgufFile::parse(std::as_bytes(std::span(data, size)), "hostile");
  if (!file.ok()) return 0;
  const auto matrix = ImportanceMatrix::read(*file);
  if (!matrix.ok() || !matrix->check_fits(model).ok()) return 0;
  for (const GgufTensor& tensor : model.tensors()) {
    for (uint64_t i = 0; i < tensor.dims[2]; ++i) {
      const std::vector<float> importance = matrix->mean_squares(tensor.name, i, tensor.dims[0]);
      const std::vector<float> row(tensor.dims[0], 0.5f);
      for (const DType type : {DType::kQ4_0, DType::kQ4_1}) {
        const auto bytes = quantize_rows(type, row, tensor.dims[0], importance);
        HEARTH_CHECK(bytes.ok(), "{}", bytes.error().message);
      }
    }
  }
  return 0;
}
