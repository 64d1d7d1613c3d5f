// Golden tests on the CUDA table: whole models, word for word, alone, chunked and batched.

#include <cstdio>

#include "tests/cuda/rig.h"
#include "tests/golden/step_runner.h"

namespace hearth::golden {

std::vector<NamedTable> all_tables() {
  auto ops = tests::table_under_test();
  if (!ops.ok()) {
    std::printf("[hearth-skip] %s\n", ops.error().message.c_str());
    return {};
  }
  return {{"cuda", std::move(ops).value()}};
}

}  // namespace hearth::golden
