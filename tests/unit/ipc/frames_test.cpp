#include "ipc/wire/frames.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::ipc {
namespace {

using Views = std::vector<std::string_view>;

Result<std::vector<NumberedAnswer>> parse_answers(std::string_view answers) {
  std::vector<NumberedAnswer> out;
  while (!answers.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const NumberedAnswer next, take_answer(&answers));
    out.push_back(next);
  }
  return out;
}

TEST_CASE("a client's message has three frames, the protocol and a request id") {
  const auto good = parse_client_message(Views{"HEARTH/1", "r1", "{}"});
  REQUIRE(good.ok());
  CHECK(good->request_id == "r1");
  CHECK(good->json == "{}");

  const std::string long_id(65, 'x');
  const std::vector<Views> bad = {
      {},
      {"HEARTH/1"},
      {"HEARTH/1", "r1"},
      {"HEARTH/1", "r1", "{}", ""},
      {"HEARTH/2", "r1", "{}"},
      {"", "r1", "{}"},
      {"HEARTH/\xFF", "r1", "{}"},
      {"HEARTH/1", "", "{}"},
      {"HEARTH/1", long_id, "{}"},
      {"HEARTH/1", "a b", "{}"},
      {"HEARTH/1", std::string_view("a\0b", 3), "{}"},
      {"HEARTH/1", "\xC3\xA9", "{}"},
  };
  for (const Views& frames : bad) {
    const auto parsed = parse_client_message(frames);
    REQUIRE_FALSE(parsed.ok());
    CHECK(parsed.error().code == ErrorCode::kProtocol);
    CHECK_FALSE(parsed.error().message.empty());
  }
  CHECK(parse_client_message(bad[4]).error().message == "first frame: met HEARTH/2, want HEARTH/1");
  CHECK(request_id_of(bad[4]) == "r1");
  CHECK_FALSE(request_id_of(bad[7]).has_value());
  CHECK_FALSE(request_id_of(bad[0]).has_value());
}

TEST_CASE("an answer is an event or a delta") {
  const auto event = parse_daemon_message(Views{"HEARTH/1", "r", "event", "{}"});
  REQUIRE(event.ok());
  CHECK_FALSE(event->answer.is_delta);
  CHECK(event->answer.json == "{}");
  const auto delta = parse_daemon_message(Views{"HEARTH/1", "r", "delta", "p", "i", "l"});
  REQUIRE(delta.ok());
  CHECK(delta->answer.is_delta);
  CHECK(delta->answer.payload == "p");
  CHECK(delta->answer.ids == "i");
  CHECK(delta->answer.logprobs == "l");
  CHECK(parse_daemon_message(Views{"HEARTH/1", "r", "delta", "p", "i"})->answer.logprobs.empty());
  for (const Views& frames : std::vector<Views>{{"HEARTH/1", "r"},
                                                {"HEARTH/1", "r", "event"},
                                                {"HEARTH/1", "r", "event", "{}", "x"},
                                                {"HEARTH/1", "r", "delta", "p"},
                                                {"HEARTH/1", "r", "delta", "p", "i", "l", "x"},
                                                {"HEARTH/1", "r", "other", "{}"}}) {
    CHECK(parse_daemon_message(frames).error().code == ErrorCode::kProtocol);
  }
}

TEST_CASE("a worker's answers are packed together and unpacked unchanged") {
  std::string answers;
  CHECK(parse_answers(answers)->empty());
  append_answer(answers, 0x0102030405060708u,
                {.is_delta = true, .json = {}, .payload = "P", .ids = "ids", .logprobs = "[]"});
  CHECK(answers ==
        std::string(
            "\x08\x07\x06\x05\x04\x03\x02\x01\x01\0\0\0\x01\0\0\0\x03\0\0\0\x02\0\0\0Pids[]", 30));
  append_answer(answers, 7,
                {.is_delta = false, .json = "{}", .payload = {}, .ids = {}, .logprobs = {}});
  append_answer(answers, 8,
                {.is_delta = true, .json = {}, .payload = {}, .ids = {}, .logprobs = {}});
  const auto parsed = parse_answers(answers);
  REQUIRE(parsed.ok());
  REQUIRE(parsed->size() == 3);
  CHECK((*parsed)[0].number == 0x0102030405060708u);
  CHECK((*parsed)[0].answer.is_delta);
  CHECK((*parsed)[0].answer.payload == "P");
  CHECK((*parsed)[0].answer.ids == "ids");
  CHECK((*parsed)[0].answer.logprobs == "[]");
  CHECK((*parsed)[1].number == 7);
  CHECK_FALSE((*parsed)[1].answer.is_delta);
  CHECK((*parsed)[1].answer.json == "{}");
  CHECK((*parsed)[2].number == 8);
  CHECK((*parsed)[2].answer.payload.empty());

  // Whole answers, and nothing else.
  const std::set<size_t> ends = {0, 30, 56, 80};
  for (size_t size = 0; size <= answers.size(); ++size) {
    CHECK_MESSAGE(
        parse_answers(std::string_view(answers).substr(0, size)).ok() == ends.contains(size), size);
  }
  std::string wrong = answers.substr(0, 30);
  wrong[8] = 2;  // neither event nor delta
  CHECK_FALSE(parse_answers(wrong).ok());
  wrong[8] = 0;  // an event with tokens
  CHECK_FALSE(parse_answers(wrong).ok());
  wrong = answers.substr(30, 26);
  wrong[0] = 0;  // of no request
  CHECK_FALSE(parse_answers(wrong).ok());
  for (const size_t at : {12, 16, 20}) {
    wrong = answers.substr(0, 30);
    wrong.replace(at, 4, "\xFF\xFF\xFF\xFF", 4);
    CHECK_FALSE(parse_answers(wrong).ok());
  }
}

TEST_CASE("a delta's payload is sixteen little-endian bytes and text") {
  const DeltaHeader header{1, 0x01020304, 3, 0};
  const std::string bytes = encode_delta_payload(header, "h\xC3\xA9");
  CHECK(bytes == std::string("\x01\0\0\0\x04\x03\x02\x01\x03\0\0\0\0\0\0\0h\xC3\xA9", 19));
  const auto payload = decode_delta_payload(bytes);
  REQUIRE(payload.ok());
  CHECK(payload->header == header);
  CHECK(payload->text == "h\xC3\xA9");
  for (size_t cut = 0; cut < kDeltaHeaderBytes; ++cut) {
    CHECK_FALSE(decode_delta_payload(std::string_view(bytes).substr(0, cut)).ok());
  }
  CHECK_FALSE(
      decode_delta_payload(std::string_view(bytes).substr(0, 18)).ok());  // half a character
}

TEST_CASE("a delta's parts have their channel and length in front, and fill the frame") {
  const std::vector<DeltaPart> parts = {{DeltaChannel::kReasoning, "h\xC3\xA9"},
                                        {DeltaChannel::kText, ""},
                                        {DeltaChannel::kArguments, "{}"}};
  const std::string bytes = encode_delta_payload({1, 2, 3, 0}, parts);
  CHECK(bytes.substr(12, 4) == std::string("\x03\0\0\0", 4));
  CHECK(bytes.substr(16, 11) == std::string("\x01\0\0\0\x03\0\0\0h\xC3\xA9", 11));
  const auto payload = decode_delta_payload(bytes);
  REQUIRE(payload.ok());
  CHECK(payload->header == DeltaHeader{1, 2, 3, 3});
  CHECK(decode_parts(*payload).value() == parts);
  for (size_t cut = kDeltaHeaderBytes; cut < bytes.size(); ++cut) {
    const auto shorter = decode_delta_payload(std::string_view(bytes).substr(0, cut));
    REQUIRE(shorter.ok());
    CHECK_FALSE(decode_parts(*shorter).ok());
  }
  CHECK_FALSE(decode_parts(*decode_delta_payload(bytes + "x")).ok());
  for (const size_t at : {12u, 16u, 19u, 20u, 23u, 25u}) {
    std::string wrong = bytes;
    wrong[at] = '\x7F';
    const auto broken = decode_delta_payload(wrong);
    CHECK_FALSE((broken.ok() && decode_parts(*broken).ok()));
  }
  CHECK(decode_parts({{0, 0, 0, 1}, text_as_part("a")}).value() ==
        std::vector<DeltaPart>{{DeltaChannel::kText, "a"}});
}

TEST_CASE("ids are little-endian and complete") {
  const std::vector<int32_t> ids = {0, 1, 0x01020304, INT32_MAX, -1};
  const std::string bytes = encode_ids(ids);
  CHECK(bytes.size() == 20);
  CHECK(bytes.substr(8, 4) == "\x04\x03\x02\x01");
  CHECK(*decode_ids(bytes) == ids);
  CHECK(decode_ids("")->empty());
  for (size_t cut : {1u, 2u, 3u, 5u}) {
    CHECK_FALSE(decode_ids(std::string_view(bytes).substr(0, cut)).ok());
  }
}

}  // namespace
}  // namespace hearth::ipc
