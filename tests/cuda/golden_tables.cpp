// Golden tests on the CUDA table: whole models, word for word, alone, chunked and batched.

#include <cstdio>
#include <cstdlib>

#include "tests/cuda/rig.h"
#include "tests/golden/step_runner.h"

namespace hearth::golden {

std::vector<NamedTable> all_tables() {
#if defined(HEARTH_SHIM_GOLDEN)
  // Every thread of every kernel is a fiber: minutes.
  if (std::getenv("HEARTH_TEST_FULL") == nullptr) {
    std::printf("[hearth-skip] whole models on the shim: set HEARTH_TEST_FULL\n");
    return {};
  }
#endif
  auto ops = tests::table_under_test();
  if (!ops.ok()) {
    std::printf("[hearth-skip] %s\n", ops.error().message.c_str());
    return {};
  }
  return {{"cuda", std::move(ops).value()}};
}

}  // namespace hearth::golden
