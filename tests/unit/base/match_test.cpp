#include "kernels/base/match.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>

namespace hearth {
namespace {

TEST_CASE("match calls the lambda of the alternative that the variant holds") {
  using Value = std::variant<int, std::string>;
  const auto shown = [](const Value& value) {
    return match(
        value, [](const int& number) { return std::to_string(number); },
        [](const std::string& text) { return "'" + text + "'"; });
  };
  CHECK(shown(7) == "7");
  CHECK(shown("seven") == "'seven'");
}

TEST_CASE("match passes the alternative on as the variant was given") {
  std::variant<int, std::unique_ptr<int>> value = 1;
  const auto grow = [](int& number) { ++number; };
  match(value, grow, [](std::unique_ptr<int>&) {});
  CHECK(std::get<int>(value) == 2);

  value = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = match(
      std::move(value), [](int&&) { return std::unique_ptr<int>(); },
      [](std::unique_ptr<int>&& pointer) { return std::unique_ptr<int>(pointer.release()); });
  REQUIRE(taken != nullptr);
  CHECK(*taken == 5);
}

}  // namespace
}  // namespace hearth
