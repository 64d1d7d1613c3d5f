#include "kernels/base/result.h"

#include <doctest/doctest.h>

#include <memory>

namespace hearth {
namespace {

Result<int> parse_positive(int value) {
  if (value <= 0) return Error{ErrorCode::kInvalidArgument, "met 0, want more", "value"};
  return value;
}

Result<void> needs_positive(int value, int* out) {
  HEARTH_ASSIGN_OR_RETURN(*out, parse_positive(value));
  HEARTH_TRY(parse_positive(*out - 1));
  return {};
}

TEST_CASE("result carries a value or an error") {
  CHECK(parse_positive(3).value() == 3);
  const Result<int> bad = parse_positive(0);
  CHECK_FALSE(bad.ok());
  CHECK(bad.error().field == "value");
}

TEST_CASE("macros return the first error and leave values alone") {
  int out = 0;
  CHECK(needs_positive(5, &out).ok());
  CHECK(out == 5);
  CHECK_FALSE(needs_positive(1, &out).ok());
  CHECK_FALSE(needs_positive(-1, &out).ok());
  CHECK(out == 1);
}

TEST_CASE("result moves what cannot be copied") {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = std::move(made).value();
  CHECK(*taken == 7);
}

TEST_CASE("every error code has a wire name that maps back to it") {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kInternal); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    const auto back = error_code_from_name(name(code));
    REQUIRE(back.has_value());
    CHECK(*back == code);
  }
  CHECK_FALSE(error_code_from_name("no such code").has_value());
}

}  // namespace
}  // namespace hearth
