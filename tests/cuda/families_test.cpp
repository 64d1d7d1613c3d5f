// Every family on the CUDA kernels: its logits are PyTorch's.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"

namespace hearth::golden {
namespace {

using kernels::DType;

TEST_CASE("families: logits on CUDA equal PyTorch's") {
  const NamedTable table = all_tables().back();
  for (const std::string& name : family_names()) {
    CAPTURE(name);
    const FamilyModel model = read_family(name);
    const OwnedFile owned(model.file_bytes(DType::kF32));
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
}

}  // namespace
}  // namespace hearth::golden
