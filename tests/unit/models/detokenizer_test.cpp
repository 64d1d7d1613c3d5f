#include <doctest/doctest.h>

#include "models/gguf/gguf_file.h"
#include "models/tokenizer/text/utf8.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::models {
namespace {

std::unique_ptr<Tokenizer> small() {
  const std::vector<std::byte> bytes = vocab_file(small_vocab()).bytes();
  auto file = GgufFile::parse(bytes, "vocab");
  REQUIRE(file.ok());
  auto loaded = load_tokenizer(file.value());
  REQUIRE(loaded.ok());
  return std::move(loaded).value();
}

constexpr int32_t byte_id(int byte) { return 3 + byte; }

TEST_CASE("bytes of a character are held back until it is whole") {
  const auto t = small();
  StreamingDetokenizer d(*t, false);
  CHECK(d.push(byte_id(0xF0)).empty());
  CHECK(d.push(byte_id(0x9F)).empty());
  CHECK(d.push(byte_id(0x98)).empty());
  CHECK(d.push(byte_id(0x80)) == "\xF0\x9F\x98\x80");
  CHECK(d.push(byte_id('a')) == "a");
  CHECK(d.finish().empty());
}

TEST_CASE("bytes that can never become a character are replaced as soon as that is known") {
  const auto t = small();
  StreamingDetokenizer d(*t, false);
  CHECK(d.push(byte_id(0x80)) == "\xEF\xBF\xBD");  // no lead byte
  CHECK(d.push(byte_id(0xC0)) == "\xEF\xBF\xBD");  // overlong
  CHECK(d.push(byte_id(0xE2)).empty());
  CHECK(d.push(byte_id(0x82)).empty());
  CHECK(d.push(byte_id('x')) == "\xEF\xBF\xBDx");  // one for the whole start, and x is kept
  CHECK(d.push(byte_id(0xED)).empty());
  CHECK(d.push(byte_id(0xA0)) == "\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  CHECK(d.push(byte_id(0xF4)).empty());
  CHECK(d.push(byte_id(0x90)) == "\xEF\xBF\xBD\xEF\xBF\xBD");  // past U+10FFFF
  CHECK(d.push(byte_id(0xE2)).empty());
  CHECK(d.finish() == "\xEF\xBF\xBD");
  CHECK(d.finish().empty());
}

TEST_CASE("the leading space is removed only where it was added, and once") {
  const auto t = small();
  const auto ids = t->encode(" a", {});
  StreamingDetokenizer first(*t, true), later(*t, false);
  std::string shown, whole;
  for (const int32_t id : ids) {
    shown += first.push(id);
    whole += later.push(id);
  }
  CHECK(shown == " a");
  CHECK(whole == "  a");
  StreamingDetokenizer no_space(*t, true);
  CHECK(no_space.push(byte_id('a')) == "a");
  CHECK(no_space.push(byte_id(' ')) == " ");
}

TEST_CASE("every sequence of bytes comes out as valid UTF-8, valid ones unchanged") {
  const auto t = small();
  const auto valid = [](std::string_view text) {
    while (!text.empty()) {
      const Utf8Char c = front_char(text);
      if (c.kind != Utf8Char::Kind::kWhole) return false;
      text.remove_prefix(c.bytes);
    }
    return true;
  };
  constexpr int kInteresting[] = {'a',  0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2,
                                  0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF3, 0xF4, 0xF5, 0xFF};
  for (const int a : kInteresting) {
    for (const int b : kInteresting) {
      for (const int c : kInteresting) {
        for (const int last : {0x80, 0xBF, 0x7A}) {
          StreamingDetokenizer d(*t, false);
          std::string text, bytes;
          for (const int byte : {a, b, c, last}) {
            bytes.push_back(static_cast<char>(byte));
            text += d.push(byte_id(byte));
          }
          text += d.finish();
          REQUIRE(valid(text));
          if (valid(bytes)) REQUIRE(text == bytes);
        }
      }
    }
  }
}

}  // namespace
}  // namespace hearth::models
