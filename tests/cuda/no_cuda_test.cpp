#include <doctest/doctest.h>

#include "kernels/cuda/op_table.h"

TEST_CASE("a build without CUDA reports that it has none") {
  const auto table = hearth::kernels::cuda_ops({});
  REQUIRE_FALSE(table.ok());
  CHECK(table.error().code == hearth::ErrorCode::kUnsupported);
  CHECK(table.error().message.find("no CUDA") != std::string::npos);
  const auto device = hearth::kernels::cuda_probe({});
  REQUIRE_FALSE(device.ok());
  CHECK(device.error().code == hearth::ErrorCode::kUnsupported);
}
