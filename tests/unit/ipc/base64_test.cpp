#include "ipc/text/base64.h"

#include <doctest/doctest.h>

#include <limits>

namespace hearth::ipc {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST_CASE("the examples of RFC 4648 section 10") {
  const std::pair<std::string_view, std::string_view> examples[] = {{"", ""},
                                                                    {"f", "Zg=="},
                                                                    {"fo", "Zm8="},
                                                                    {"foo", "Zm9v"},
                                                                    {"foob", "Zm9vYg=="},
                                                                    {"fooba", "Zm9vYmE="},
                                                                    {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, coded] : examples) {
    CHECK(base64_encode(bytes_of(plain)) == coded);
    const auto back = base64_decode(coded);
    REQUIRE(back);
    CHECK(std::equal(back->begin(), back->end(), bytes_of(plain).begin(), bytes_of(plain).end()));
  }
}

TEST_CASE("text that is not base64 gives nothing") {
  for (const char* wrong : {"Z", "Zg", "Zg=", "Zg=v", "Zh==", "Zm9=", "Zm9v====", "Zm 9", "Zm9-",
                            "====", "=Zg=", "Zg==Zg=="}) {
    CHECK_FALSE_MESSAGE(base64_decode(wrong), wrong);
  }
}

TEST_CASE("floats read back to the bit") {
  const std::vector<float> values = {0.0f,
                                     -0.0f,
                                     1.5f,
                                     -1e-45f,
                                     std::numeric_limits<float>::max(),
                                     std::numeric_limits<float>::infinity()};
  const auto back = floats_of_base64(base64_of_floats(values));
  REQUIRE(back);
  CHECK(*back == values);
  CHECK(base64_of_floats(std::vector<float>{1.0f}) == "AACAPw==");
  CHECK_FALSE(floats_of_base64("Zm9v"));  // three bytes
}

}  // namespace
}  // namespace hearth::ipc
