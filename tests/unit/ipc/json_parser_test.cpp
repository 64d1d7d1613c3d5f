// The parser against the library's, which reads the same texts into the same values.

#include "ipc/wire/json_parser.h"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "ipc/text/utf8.h"
#include "ipc/wire/json.h"

namespace hearth::ipc {
namespace {

constexpr JsonLimits kWide{.max_depth = 1000, .max_object_keys = 1000, .last_key_applies = true};

/// `value` as the member of an object, read by both. Returns whether it is JSON.
bool check_same(const std::string& value) {
  const std::string text = "{\"a\":" + value + "}";
  const Json want = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Result<Json> met = parse_json_object(text, kWide);
  CAPTURE(text);
  REQUIRE(met.ok() == !want.is_discarded());
  if (!met.ok()) return false;
  CHECK(*met == want);
  CHECK(met->dump() == want.dump());  // integers and numbers compare equal, their texts do not
  CHECK(dump_json(*met) == want.dump());
  return true;
}

TEST_CASE("values are read as the library reads them") {
  for (const char* const value : {"null",
                                  "true",
                                  "false",
                                  "0",
                                  "-0",
                                  "1",
                                  "-1",
                                  "10",
                                  "18446744073709551615",
                                  "18446744073709551616",
                                  "-9223372036854775808",
                                  "-9223372036854775809",
                                  "0.5",
                                  "-0.5",
                                  "1e3",
                                  "1E+3",
                                  "1.25e-3",
                                  "1e-400",
                                  "-1e-400",
                                  "123456789012345678901234567890",
                                  "\"\"",
                                  "\"a\"",
                                  "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
                                  "\"\\u0000\\u001f\\u00e9\\u20AC\"",
                                  "\"\\ud83d\\ude00\"",
                                  "\"\xF0\x9F\x98\x80 \x7F\"",
                                  "[]",
                                  "{}",
                                  "[1]",
                                  "[1,2]",
                                  " [ 1 , [ ] , { } ] ",
                                  "{\"b\":{\"c\":[{}]}}",
                                  "{\"b\" : 1 , \"b\" : 2}",
                                  "\t\n\r 1 \t\n\r"}) {
    CHECK_MESSAGE(check_same(value), value);
  }
}

TEST_CASE("what the library refuses is refused") {
  for (const char* const value : {"",
                                  ",",
                                  "nul",
                                  "nulL",
                                  "nullx",
                                  "tru",
                                  "True",
                                  "NaN",
                                  "Infinity",
                                  "-",
                                  "+1",
                                  "01",
                                  "-01",
                                  "1.",
                                  ".5",
                                  "1e",
                                  "1e+",
                                  "0x1",
                                  "1 2",
                                  "1e400",
                                  "-1e400",
                                  "\"",
                                  "\"a",
                                  "\"\\",
                                  "\"\\x\"",
                                  "\"\\u12\"",
                                  "\"\\u12g4\"",
                                  "\"\\ud83d\"",
                                  "\"\\ud83dx\"",
                                  "\"\\ud83d\\u0041\"",
                                  "\"\\ude00\"",
                                  "\"\x01\"",
                                  "\"\n\"",
                                  "[",
                                  "[1",
                                  "[1,",
                                  "[1,]",
                                  "[,1]",
                                  "[1 2]",
                                  "[1}",
                                  "]",
                                  "{",
                                  "{\"b\"",
                                  "{\"b\":",
                                  "{\"b\":1",
                                  "{\"b\":1,",
                                  "{\"b\":1,}",
                                  "{,}",
                                  "{1:2}",
                                  "{b:1}",
                                  "{\"b\" 1}",
                                  "{\"b\":1]",
                                  "1}{",
                                  "// a\n1",
                                  "'a'"}) {
    CHECK_FALSE_MESSAGE(check_same(value), value);
  }
  CHECK_FALSE(check_same(std::string("1\0", 2)));
  CHECK_FALSE(check_same(std::string("\"\0\"", 3)));
}

TEST_CASE("changed texts are read, or refused, as by the library") {
  const std::string seed =
      R"([{"b":[1,-2,3.5e2,"x\u00e9\ud83d\ude00\n"],"c":{"d":null,"e":true}},[],{},"",0.1,false])";
  const std::string spice = "{}[]:,\"\\u0123eE+-. \ntrufalsn";
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = seed;
    for (int change = 0; change < 1 + round % 3; ++change) {
      const size_t at = random() % text.size();
      const char c = spice[random() % spice.size()];
      switch (random() % 3) {
        case 0: text[at] = c; break;
        case 1: text.insert(at, 1, c); break;
        default: text.erase(at, 1 + random() % 4);
      }
    }
    if (is_valid_utf8(text)) accepted += check_same(text) ? 1 : 0;
  }
  CHECK(accepted > 1000);
  CHECK(accepted < 19'000);
}

TEST_CASE("a text whose values are not kept is JSON, or is not") {
  CHECK(is_json("[1,{\"a\":\"b\"}]"));
  CHECK(is_json("\xEF\xBB\xBF 1"));
  CHECK_FALSE(is_json(""));
  CHECK_FALSE(is_json("[1"));
  CHECK_FALSE(is_json("[1]]"));
  CHECK_FALSE(is_json("\"\xFF\""));
}

TEST_CASE("errors name the byte and, if known, the field, and quote nothing") {
  const auto message = [](std::string_view text) {
    const Result<Json> met = parse_json_object(text, kWide);
    REQUIRE_FALSE(met.ok());
    return met.error().message;
  };
  CHECK(message("") == "met what is not JSON at byte 1");
  CHECK(message("{\"a\":1") == "a: met what is not JSON at byte 7");
  CHECK(message("{\"a\":1}x") == "a: met what is not JSON at byte 8");
  CHECK(message("{\"a\":[1,secret]}") == "a: met what is not JSON at byte 9");
  CHECK(message("{\"a\":1e999}") == "a: met a number beyond 1.8e308 at byte 6");
  CHECK(message("[1]") == "met a list of 1, want a JSON object");
}

TEST_CASE("a sink that has enough receives nothing more") {
  struct First final : JsonSink {
    int ends = 0;
    bool end() { return ++ends < 3; }
    bool null() override { return end(); }
    bool boolean(bool) override { return end(); }
    bool negative(int64_t) override { return end(); }
    bool integer(uint64_t) override { return end(); }
    bool number(double) override { return end(); }
    bool string(std::string) override { return end(); }
    bool key(std::string) override { return end(); }
    bool open_object() override { return end(); }
    bool open_list() override { return end(); }
    bool close() override { return end(); }
  };
  for (const char* const text : {"[1,2,3,4", "{\"a\":1,", "[[[1]]]", "[true,null,1]"}) {
    First first;
    CHECK(parse_json(text, first).end == JsonParsed::End::kStopped);
    CHECK(first.ends == 3);
  }
}

}  // namespace
}  // namespace hearth::ipc
