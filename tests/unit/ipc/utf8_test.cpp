#include "ipc/text/utf8.h"

#include <doctest/doctest.h>

#include <string>

namespace hearth::ipc {
namespace {

TEST_CASE("valid text is valid to its end") {
  for (const std::string text :
       {"", "plain ascii, longer than eight", "h\xC3\xA9", "\xE2\x96\x81the", "\xF0\x9F\x94\xA5",
        "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF"}) {
    CHECK(valid_utf8_prefix(text) == text.size());
  }
  CHECK(is_valid_utf8(std::string_view("a\0b", 3)));
}

TEST_CASE("the first bad byte ends the valid text, at every alignment") {
  const std::string bad[] = {"\x80",
                             "\xC0\x80",
                             "\xC1\xBF",
                             "\xE0\x9F\xBF",
                             "\xED\xA0\x80",
                             "\xF0\x8F\xBF\xBF",
                             "\xF4\x90\x80\x80",
                             "\xF5\x80\x80\x80",
                             "\xFF",
                             "\xC3",
                             "\xE2\x96",
                             "\xF0\x9F\x94"};
  for (const std::string& bytes : bad) {
    for (size_t before = 0; before < 20; ++before) {
      CHECK(valid_utf8_prefix(std::string(before, 'x') + bytes) == before);
      CHECK(valid_utf8_prefix(std::string(before, 'x') + bytes + "tail") == before);
    }
  }
}

TEST_CASE("replacement leaves valid characters alone") {
  CHECK(to_valid_utf8("a\xFF\xC3\xA9z") == "a\xEF\xBF\xBD\xC3\xA9z");
  CHECK(to_valid_utf8("\xE2\x96") == "\xEF\xBF\xBD\xEF\xBF\xBD");
  CHECK(is_valid_utf8(to_valid_utf8("\xF0\x80\x80\x80 and \xED\xA0\x80")));
}

}  // namespace
}  // namespace hearth::ipc
