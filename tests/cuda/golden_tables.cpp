// Golden tests on the CUDA table: whole models, token by token, alone, chunked and batched.

#include <cstdio>

#include "tests/cuda/rig.h"
#include "tests/golden/step_runner.h"
#include "tests/skip.h"

namespace hearth::golden {

std::vector<NamedTable> all_tables() {
#if defined(HEARTH_SHIM_GOLDEN)
  // Every thread of every kernel is a fiber: the whole run takes two minutes.
  const bool slow = !tests::full_counts();
#else
  const bool slow = false;
#endif
  auto ops = tests::table_under_test();
  if (!ops.ok()) {
    REQUIRE_MESSAGE(!tests::device_required(), "a device is required: " << ops.error().message);
    std::printf("[hearth-skip] %s\n", ops.error().message.c_str());
    return {};
  }
  return {{"cuda", std::move(ops).value(), slow}};
}

}  // namespace hearth::golden
