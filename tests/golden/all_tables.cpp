// The tables of this machine's CPU. tests/cuda links the same tests with another all_tables().

#include <doctest/doctest.h>

#include "tests/golden/step_runner.h"

namespace hearth::golden {

std::vector<NamedTable> all_tables() {
  std::vector<NamedTable> tables = {{"reference", kernels::reference_ops()}};
  for (const std::string& variant : kernels::cpu_variants()) {
    auto ops = kernels::cpu_ops({.num_threads = 2, .variant = variant});
    REQUIRE_MESSAGE(ops.ok(), ops.error().message);
    tables.push_back({variant, std::move(ops).value()});
  }
  return tables;
}

}  // namespace hearth::golden
