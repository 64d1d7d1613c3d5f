#include "ipc/text/shown_text.h"

#include <doctest/doctest.h>

#include "ipc/text/utf8.h"

namespace hearth::ipc {
namespace {

TEST_CASE("any bytes become one line of a table") {
  CHECK(one_line("plain \xC3\xA9", 0) == "plain \xC3\xA9");
  CHECK(one_line("a\nb\tc\rd", 0) == "a␊b␉c␍d");
  CHECK(one_line("\x1b[2J", 0) == "␛[2J");
  CHECK(one_line("\xFF", 0) == "\xEF\xBF\xBD");
  // Characters that reverse the direction of writing.
  CHECK(one_line("a\xE2\x80\xAE"
                 "b\xE2\x81\xA6"
                 "c",
                 0) ==
        "a\xEF\xBF\xBD"
        "b\xEF\xBF\xBD"
        "c");
  CHECK(one_line("a\xE2\x80\x93z", 0) == "a\xE2\x80\x93z");  // a dash of the same block
}

TEST_CASE("a line is cut after so many characters") {
  CHECK(one_line("abcd", 4) == "abcd");
  CHECK(one_line("abcde", 4) == "abcd…");
  CHECK(one_line("\xF0\x9F\x94\xA5\xF0\x9F\x94\xA5\xF0\x9F\x94\xA5", 2) ==
        "\xF0\x9F\x94\xA5\xF0\x9F\x94\xA5…");
  CHECK(one_line("", 4) == "");
  const std::string many(1 << 20, '\xC3');  // cut in the middle of a character, and not a character
  CHECK(is_valid_utf8(one_line(many, 100)));
}

}  // namespace
}  // namespace hearth::ipc
