#include "kernels/base/turns.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>

namespace hearth {
namespace {

std::string order_of(Turns<int, std::string>& turns) {
  std::string order;
  while (const auto piece = turns.take()) order += piece->second + " ";
  return order;
}

TEST_CASE("owners take turns, and each owner's pieces stay in order") {
  Turns<int, std::string> turns;
  CHECK(turns.empty());
  for (const char* piece : {"a1", "a2", "a3"}) turns.add(1, piece);
  turns.add(3, "c1");
  for (const char* piece : {"b1", "b2"}) turns.add(2, piece);
  CHECK_FALSE(turns.empty());
  CHECK(order_of(turns) == "a1 b1 c1 a2 b2 a3 ");
  CHECK(turns.empty());
  CHECK_FALSE(turns.take());
}

TEST_CASE("an owner that has just had a turn waits for the others, even if it was alone before") {
  Turns<int, std::string> turns;
  turns.add(2, "b1");
  turns.add(2, "b2");
  CHECK(turns.take()->second == "b1");
  turns.add(1, "a1");
  turns.add(3, "c1");
  CHECK(order_of(turns) == "c1 a1 b2 ");
}

TEST_CASE("a piece that fits may overtake others, and counts as its owner's turn") {
  Turns<int, std::string> turns;
  turns.add(1, "long");
  turns.add(1, "a");
  turns.add(2, "longer");
  turns.add(3, "c");
  turns.add(4, "d");
  const auto is_short = [](int owner, const std::string& piece) {
    return owner != 4 && piece.size() == 1;
  };
  // Only an owner's first piece is looked at.
  CHECK(turns.take_if(is_short)->second == "c");
  CHECK_FALSE(turns.take_if(is_short));
  CHECK(order_of(turns) == "d long longer a ");
}

TEST_CASE("pieces may be movable only") {
  Turns<std::string, std::unique_ptr<int>> turns;
  turns.add("b", std::make_unique<int>(2));
  turns.add("a", std::make_unique<int>(1));
  const auto first = turns.take();
  CHECK(first->first == "a");
  CHECK(*first->second == 1);
}

}  // namespace
}  // namespace hearth
