#include <doctest/doctest.h>
#include <fmt/core.h>

#include <map>

#include "tests/op/op_testing.h"

namespace hearth::kernels::testing {

const std::vector<NamedTable>& cpu_tables(int32_t threads) {
  static std::map<int32_t, std::vector<NamedTable>> made;
  std::vector<NamedTable>& tables = made[threads];
  if (tables.empty()) {
    for (const std::string& variant : cpu_variants()) {
      auto ops = cpu_ops({.num_threads = threads, .variant = variant});
      if (!ops.ok()) FAIL(ops.error().message);
      tables.push_back(
          {.name = fmt::format("{} x{}", variant, threads), .ops = std::move(ops).value()});
    }
  }
  return tables;
}

const OpTable& reference() {
  static const OpTable table = reference_ops();
  return table;
}

}  // namespace hearth::kernels::testing
