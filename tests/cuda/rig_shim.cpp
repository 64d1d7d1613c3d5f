// The table under test on the shim, which is always present and runs in several thread orders.

#include "tests/cuda/rig.h"
#include "tests/cuda/shim/shim.h"

namespace hearth::tests {

Result<kernels::OpTable> table_under_test() {
  shim::reset();
  shim::set_machine({});
  auto table = kernels::cuda_ops({});
  REQUIRE_MESSAGE(table.ok(), "the shim's device is always there");
  return table;
}

std::optional<kernels::OpTable> table_without_wgmma() {
  shim::reset();
  shim::set_machine({.major = 8});
  auto table = kernels::cuda_ops({});
  REQUIRE(table.ok());
  return std::move(table).value();
}

std::optional<RuntimeCounts> runtime_counts() {
  return RuntimeCounts{shim::num_launches(), shim::num_graph_launches(), shim::num_bytes_to_host(),
                       shim::bytes_in_use()};
}

bool refuse_capture(CapturePart part) {
  shim::fail_instantiations(part == CapturePart::kInstantiate ? 1 : 0);
  shim::fail_uploads(part == CapturePart::kUpload ? 1 : 0);
  return true;
}

void in_every_order(const std::function<void()>& test) {
#if defined(__SANITIZE_ADDRESS__)
  const uint64_t orders = full_counts() ? 20 : 1;  // slow; the others run without sanitizer
#else
  const uint64_t orders = full_counts() ? 20 : 3;
#endif
  for (uint64_t seed = 0; seed < orders; ++seed) {
    CAPTURE(seed);
    shim::set_order(seed);
    test();
  }
  shim::set_order(0);
}

}  // namespace hearth::tests
