// Every family on the CUDA kernels: its logits are PyTorch's, or it is refused by the name of what
// is missing.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "models/model.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"

namespace hearth::golden {
namespace {

using kernels::DType;

TEST_CASE("families: logits on CUDA equal PyTorch's, or the missing op is named") {
  const NamedTable table = all_tables().back();
  std::set<std::string> refused;
  for (const std::string& name : family_names()) {
    CAPTURE(name);
    const FamilyModel model = read_family(name);
    const OwnedFile owned(model.file_bytes(DType::kF32));
    const auto loaded = models::load_model(owned.file, table.ops, nullptr);
    if (!loaded.ok()) {
      CHECK(loaded.error().code == ErrorCode::kUnsupported);
      CHECK_MESSAGE(loaded.error().message.find(" needs ") != std::string::npos,
                    loaded.error().message);
      refused.insert(name);
      continue;
    }
    StepRunner runner(
        owned.file, table.ops, DType::kF32,
        {.seqs = 1, .step_tokens = 96, .context = 96, .model_context = model.context});
    const auto met = runner.feed(0, model.all_but_last(), 96, true);
    double most = 0, worst = 0;
    for (const auto& [row, want] : model.logits) {
      REQUIRE(want.size() == met[row].size());
      for (size_t i = 0; i < want.size(); ++i) {
        most = std::max(most, std::fabs(want[i]));
        worst = std::max(worst, std::fabs(double{met[row][i]} - want[i]));
      }
    }
    CHECK(worst < 5e-5 * most);
  }
  // Latent attention, and values of another size than keys.
  CHECK(refused == std::set<std::string>{"deepseek2", "deepseek2_lite", "deepseek3", "mistral4"});
}

}  // namespace
}  // namespace hearth::golden
