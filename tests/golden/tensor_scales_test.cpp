// Models in NVFP4 with a scale of each matrix, as they are published: the logits of the same values
// in F32.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "models/gguf/gguf_writer.h"
#include "models/quantize/quantize_file.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/temp_dir.h"

namespace hearth::golden {
namespace {

using kernels::DType;
using models::GgufFile;

/// Blocks of random codes whose scales are 0.5 to 1.9.
std::vector<std::byte> random_blocks(uint64_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(kernels::bytes_of(DType::kNVFP4, count));
  for (size_t at = 0; at < bytes.size(); ++at) {
    const bool is_scale = at % 36 < 4;  // of a block of 64 values
    bytes[at] = static_cast<std::byte>(is_scale ? 0x30 + random() % 16 : random());
  }
  return bytes;
}

struct Scaled {
  std::vector<std::byte> bytes;
  int32_t matrices = 0;
};

/// The family's model with matrices of its layers in NVFP4 where their rows are whole blocks. Their
/// scales bring the values back to the size that they have in the family's model.
Scaled with_scales(const FamilyModel& model) {
  Scaled out;
  models::GgufWriter file;
  model.describe(&file);
  std::mt19937 random(3);
  for (const FamilyTensor& tensor : model.tensors) {
    const bool matrix = tensor.name.starts_with("blk.") && tensor.name.ends_with(".weight") &&
                        tensor.dims.size() >= 2 && tensor.dims[0] % 64 == 0 &&
                        tensor.name.find("gate_inp") == std::string::npos;
    const std::vector<float> values = family_values(tensor, model.seed);
    if (!matrix) {
      file.add_floats(tensor.name, tensor.dims, DType::kF32, values);
      continue;
    }
    ++out.matrices;
    file.add_tensor(tensor.name, tensor.dims, DType::kNVFP4, random_blocks(values.size(), random));
    std::vector<float> scales(tensor.dims.size() > 2 ? tensor.dims[2] : 1);
    for (float& scale : scales) {
      scale = static_cast<float>(tensor.amplitude) / 8 * static_cast<float>(1 + random() % 4);
    }
    const uint64_t dims[] = {scales.size()};
    const std::string base = tensor.name.substr(0, tensor.name.size() - 7);
    file.add_floats(base + ".scale", dims, DType::kF32, scales);
    file.add_floats(base + ".input_scale", dims, DType::kF32, scales);
  }
  out.bytes = file.bytes();
  return out;
}

TEST_CASE("NVFP4 with scales of whole matrices: the logits of the same values in F32") {
  for (const std::string name : {"qwen3", "phi3_long", "mixtral", "deepseek2"}) {
    CAPTURE(name);
    const FamilyModel model = read_family(name);
    Scaled scaled = with_scales(model);
    REQUIRE(scaled.matrices > 2);
    const OwnedFile in(std::move(scaled.bytes));
    const tests::TempDir dir;
    models::QuantizeOptions options{.mix = models::find_mix("F32").value(), .num_threads = 1};
    options.requantize = true;
    const auto path = dir.path() / "values.gguf";
    const auto written = models::quantize_file(in.file, path, options, nullptr);
    REQUIRE_MESSAGE(written.ok(), (written.ok() ? "" : written.error().message));
    const GgufFile values = GgufFile::open(path).value();
    const auto logits = [&](const GgufFile& file, const kernels::OpTable& ops) {
      StepRunner runner(
          file, ops, DType::kF32,
          {.seqs = 1, .step_tokens = 96, .context = 96, .model_context = model.context});
      return runner.feed(0, model.all_but_last(), 96, true);
    };
    for (const NamedTable& table : all_tables()) {
      CAPTURE(table.name);
      const auto want = logits(values, table.ops), got = logits(in.file, table.ops);
      double difference = 0, size = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        for (size_t t = 0; t < want[i].size(); ++t) {
          difference += std::pow(double{want[i][t]} - got[i][t], 2);
          size += std::pow(want[i][t], 2);
        }
      }
      // The rounding of activations to 8 bits, which grows from layer to layer.
      CHECK_MESSAGE(std::sqrt(difference) < 0.15 * std::sqrt(size),
                    fmt::format("{} of {}", std::sqrt(difference), std::sqrt(size)));
    }
  }
}

}  // namespace
}  // namespace hearth::golden
