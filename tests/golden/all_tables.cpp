// The tables of this machine's CPU. tests/cuda links the same tests with another all_tables().

#include <doctest/doctest.h>

#include "tests/golden/step_runner.h"

namespace hearth::golden {

std::vector<NamedTable> all_tables() {
  std::vector<NamedTable> tables = {{"reference", kernels::reference_ops()}};
  std::vector<std::string> variants = kernels::cpu_variants();
#if defined(HEARTH_CHOSEN_SET_ONLY)
  // The sets between are checked by slow calls in this build (kernels/cpu/instruction_sets.cmake).
  if (variants.size() > 2) variants = {variants.front(), variants.back()};
#endif
  for (const std::string& variant : variants) {
    auto ops = kernels::cpu_ops({.num_threads = 2, .variant = variant});
    REQUIRE_MESSAGE(ops.ok(), ops.error().message);
    tables.push_back({variant, std::move(ops).value()});
  }
  return tables;
}

}  // namespace hearth::golden
