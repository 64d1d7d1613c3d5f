// An adapter of every matrix of every family that takes one: the logits are those of merged
// weights. So no product of a weight that adapters may change leaves them out.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "models/gguf/gguf_writer.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"

namespace hearth::golden {
namespace {

using kernels::DType;
using Rows = std::vector<std::vector<float>>;

constexpr uint64_t kRank = 3;

struct LowRank {
  std::vector<float> a, b;  ///< (rank, inputs), (outputs, rank)
};

LowRank random_pair(const FamilyTensor& tensor, uint32_t seed) {
  std::mt19937 random(seed);
  const uint64_t inputs = tensor.dims[0], outputs = tensor.dims[1];
  std::normal_distribution<float> a(0, 1 / std::sqrt(static_cast<float>(inputs)));
  std::normal_distribution<float> b(0, 0.1f);
  LowRank out{std::vector<float>(kRank * inputs), std::vector<float>(outputs * kRank)};
  for (float& value : out.a) value = a(random);
  for (float& value : out.b) value = b(random);
  return out;
}

std::vector<std::byte> adapter_bytes(const FamilyModel& model,
                                     const std::map<std::string, LowRank>& pairs) {
  models::GgufWriter file;
  file.set_string("general.type", "adapter");
  file.set_string("general.architecture", model.architecture);
  file.set_string("adapter.type", "lora");
  file.set_f32("adapter.lora.alpha", 0);
  for (const auto& [name, pair] : pairs) {
    const uint64_t of_a[] = {pair.a.size() / kRank, kRank};
    const uint64_t of_b[] = {kRank, pair.b.size() / kRank};
    file.add_floats(name + ".lora_a", of_a, DType::kF32, pair.a);
    file.add_floats(name + ".lora_b", of_b, DType::kF32, pair.b);
  }
  return file.bytes();
}

std::vector<std::byte> merged_bytes(const FamilyModel& model,
                                    const std::map<std::string, LowRank>& pairs) {
  models::GgufWriter file;
  model.describe(&file);
  for (const FamilyTensor& tensor : model.tensors) {
    std::vector<float> values = family_values(tensor, model.seed);
    if (const auto found = pairs.find(tensor.name); found != pairs.end()) {
      const uint64_t inputs = tensor.dims[0];
      for (size_t i = 0; i < values.size(); ++i) {
        double sum = 0;
        for (size_t r = 0; r < kRank; ++r) {
          sum += double{found->second.b[i / inputs * kRank + r]} *
                 found->second.a[r * inputs + i % inputs];
        }
        values[i] += static_cast<float>(sum);
      }
    }
    file.add_floats(tensor.name, tensor.dims, DType::kF32, values);
  }
  return file.bytes();
}

/// The largest difference, relative to the largest value of `want`.
double family_difference(const Rows& met, const Rows& want) {
  double most = 0, worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    for (size_t j = 0; j < want[i].size(); ++j) {
      most = std::max(most, std::fabs(double{want[i][j]}));
      worst = std::max(worst, std::fabs(double{met[i][j]} - want[i][j]));
    }
  }
  return worst / most;
}

TEST_CASE("adapters: of all matrices of every family that take one, as merged weights") {
  const NamedTable table = all_tables().back();
  table.ops.set_num_threads(table.ops.state.get(), 1);
  for (const std::string& name : family_names()) {
    INFO(name);
    const FamilyModel model = read_family(name);
    const OwnedFile owned(model.file_bytes(DType::kF32));
    const StepRunner::Bounds bounds{
        .step_tokens = 96, .context = 96, .model_context = model.context};
    StepRunner runner(owned.file, table.ops, DType::kF32, bounds);
    std::map<std::string, LowRank> pairs;
    for (const FamilyTensor& tensor : model.tensors) {
      if (tensor.dims.size() != 2) continue;
      LowRank pair = random_pair(tensor, static_cast<uint32_t>(pairs.size()));
      const OwnedFile one(adapter_bytes(model, {{tensor.name, pair}}));
      const auto added = runner.model().add_adapter(one.file);
      if (!added.ok()) {
        CHECK((added.error().code == ErrorCode::kUnsupported ||
               added.error().message.find("does not have") != std::string::npos));
        continue;
      }
      runner.model().remove_adapter(*added);
      pairs[tensor.name] = std::move(pair);
    }
    CHECK(std::cmp_greater_equal(pairs.size(), 2 * runner.info().num_layers));
    const OwnedFile adapter(adapter_bytes(model, pairs));
    const auto added = runner.model().add_adapter(adapter.file);
    REQUIRE_MESSAGE(added.ok(), added.error().message);
    const std::vector<int32_t> tokens = model.all_but_last();
    const std::pair<int32_t, float> used[] = {{*added, 1.0f}};
    const Chunk all[] = {{0, tokens, true, used}};
    const Rows met = runner.step(all);
    const OwnedFile merged(merged_bytes(model, pairs));
    StepRunner want(merged.file, table.ops, DType::kF32, bounds);
    const Rows wanted = want.feed(0, tokens, 96, true);
    CHECK(family_difference(met, wanted) < 2e-4);
    StepRunner plain(owned.file, table.ops, DType::kF32, bounds);
    CHECK(family_difference(plain.feed(0, tokens, 96, true), wanted) > 1e-2);
  }
}

}  // namespace
}  // namespace hearth::golden
