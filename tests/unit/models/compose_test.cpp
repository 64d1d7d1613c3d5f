#include "models/tokenizer/text/compose.h"

#include <doctest/doctest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

namespace hearth::models {
namespace {

// All of the text composed by utf8proc at once; it is valid UTF-8 without NULs.
std::string whole_by_utf8proc(const std::string& text) {
  utf8proc_uint8_t* composed =
      utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
  REQUIRE(composed != nullptr);
  const std::string out = reinterpret_cast<const char*>(composed);
  std::free(composed);
  return out;
}

void append(uint32_t code, std::string* text) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  text->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

TEST_CASE("composing in segments equals composing the whole") {
  struct Script {
    uint32_t first, last;
  };
  constexpr Script kScripts[] = {
      {'A', 'z'},         {0xC0, 0x24F},    {0x300, 0x345},   {0x370, 0x3FF},   {0x590, 0x5F4},
      {0x900, 0x9FF},     {0xB00, 0xDFF},   {0x1100, 0x11FF}, {0x1E00, 0x1FFF}, {0x2000, 0x212F},
      {0x3040, 0x30FF},   {0xAC00, 0xAC40}, {0xF900, 0xFAFF}, {0xFB1D, 0xFB4E}, {0x1D15E, 0x1D164},
      {0x2F800, 0x2F8FF}, {0xFFF0, 0xFFFF}};
  std::mt19937 random(2);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint32_t parts = 1 + random() % 8; parts > 0; --parts) {
      const Script& script = kScripts[random() % std::size(kScripts)];
      for (uint32_t n = 1 + random() % 3; n > 0; --n)
        append(script.first + random() % (script.last - script.first + 1), &text);
    }
    REQUIRE(compose(text) == whole_by_utf8proc(text));
  }
}

TEST_CASE("bytes that are not UTF-8 stay, and combine with no mark") {
  CHECK(compose("") == "");
  CHECK(compose("plain") == "plain");
  CHECK(compose("e\xCC\x81") == "\xC3\xA9");
  CHECK(compose("\xFF"
                "e\xCC\x81\xE2\x82") == "\xFF\xC3\xA9\xE2\x82");
  CHECK(compose("e\xFF\xCC\x81x") == "e\xFF\xCC\x81x");
  CHECK(compose(std::string("e\xCC\x81\0e\xCC\x81", 7)) == std::string("\xC3\xA9\0\xC3\xA9", 5));
}

TEST_CASE("many marks on one character take no longer than text") {
  // Sorting a megabyte of them as one segment would take hours: this test's time limit checks it.
  std::string text = "e";
  while (text.size() < (1 << 20)) text += "\xCC\x81\xCC\xA3";
  CHECK(compose(text).size() > 1000000);
}

}  // namespace
}  // namespace hearth::models
