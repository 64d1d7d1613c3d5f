#include "ipc/wire/first_verb.h"

#include <doctest/doctest.h>

#include "ipc/wire/codec.h"

namespace hearth::ipc {
namespace {

TEST_CASE("a verb in first position is read without parsing the rest") {
  CHECK(first_verb(R"({"verb":"generate","prompt":"Once"})") == Verb::kGenerate);
  CHECK(first_verb(" \t{\r\n\"verb\" : \"health\"") == Verb::kHealth);
  CHECK(first_verb(R"({"verb":"embed)") == std::nullopt);
  CHECK(first_verb(R"({"verb":"nonesuch"})") == std::nullopt);
  CHECK(first_verb(R"({"verb":7})") == std::nullopt);
  CHECK(first_verb(R"({"verbs":"generate"})") == std::nullopt);
  CHECK(first_verb(R"({"prompt":"Once","verb":"generate"})") == std::nullopt);
  CHECK(first_verb(R"(["verb":"generate"])") == std::nullopt);
  CHECK(first_verb("") == std::nullopt);
  CHECK(first_verb("   ") == std::nullopt);
  CHECK(first_verb("{") == std::nullopt);
}

TEST_CASE("our own requests have their verb first") {
  CHECK(first_verb(encode_request(GenerateRequest{})) == Verb::kGenerate);
  CHECK(first_verb(encode_request(TokenizeRequest{})) == Verb::kTokenize);
  CHECK(first_verb(encode_request(EmbedRequest{})) == Verb::kEmbed);
  CHECK(first_verb(encode_request(HealthRequest{})) == Verb::kHealth);
}

}  // namespace
}  // namespace hearth::ipc
