#include "daemon/worker/text/sample_text.h"

#include <doctest/doctest.h>

#include <memory>

#include "tests/unit/models/load_vocabulary.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::worker {
namespace {

struct Fixture {
  std::unique_ptr<models::Tokenizer> tokenizer =
      models::load_vocabulary(models::vocab_file(models::small_vocab())).value();

  std::vector<int32_t> ids(std::string_view text) const {
    return tokenizer->encode(text, {.add_bos = false, .parse_special = false});
  }
  int32_t byte_token(unsigned char byte) const { return 3 + byte; }
};

TEST_CASE("tokens become text, ids and indices of one delta") {
  const Fixture f;
  SampleText text(*f.tokenizer, true, {});
  for (const int32_t id : f.ids("abc the")) text.push(id, std::nullopt);
  const auto pending = text.take();
  REQUIRE(pending);
  CHECK(pending->text == "abc the");
  CHECK(pending->first_index == 0);
  CHECK(pending->ids == f.ids("abc the"));
  CHECK_FALSE(text.take());
  text.push(f.byte_token('x'), std::nullopt);
  CHECK(text.take()->first_index == pending->ids.size());
}

TEST_CASE("ids are sent although their text is still held back; the end shows it") {
  const Fixture f;
  SampleText text(*f.tokenizer, false, {"stop"});
  text.push(f.byte_token(0xC3), std::nullopt);  // half a character
  CHECK(text.take()->text.empty());
  text.push(f.byte_token(0xA9), std::nullopt);
  text.push(f.byte_token('s'), std::nullopt);  // could become "stop"
  const auto pending = text.take();
  CHECK(pending->text == "\xC3\xA9");
  CHECK(pending->ids.size() == 2);
  CHECK(text.finish().text == "s");
  CHECK_FALSE(text.stopped());
}

TEST_CASE("an answer's parts are sent with its tokens, also when it is replayed") {
  const Fixture f;
  auto reading = std::make_shared<AnswerReading>();
  reading->shape.tools = models::find_tool_format("hermes");
  reading->shape.functions = {{"f"}};
  reading->shape.reasoning = {"<think>", "</think>"};
  reading->marks = {{2, "<think>"}};  // as if </s> were the mark
  reading->call_key = 7;
  std::vector<int32_t> ids = {2};
  for (const char c :
       std::string("hm</think>ab <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"))
    ids.push_back(f.byte_token(static_cast<unsigned char>(c)));
  const auto sent = [&](size_t replayed, size_t cut) {
    SampleText text(*f.tokenizer, false, {});
    text.read_as(reading, 1, *f.tokenizer, {});
    text.replay({ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(replayed)});
    std::string out;
    const auto add = [&out](const SampleText::Pending& pending) {
      if (!pending.text.empty()) out += "[0]" + pending.text;
      for (const ipc::DeltaPart& part : pending.parts) {
        out += "[" + std::to_string(static_cast<int>(part.channel)) + "]" + part.text;
      }
    };
    for (size_t i = replayed; i < ids.size(); ++i) {
      text.push(ids[i], std::nullopt);
      if (i % cut == 0) {
        const auto pending = text.take();
        REQUIRE(pending);
        add(*pending);
      }
    }
    if (const auto pending = text.take()) add(*pending);
    add(text.finish());
    if (replayed == 0) {
      CHECK(text.num_reasoning_tokens() > 2);
      CHECK(text.num_calls() == 1);
    }
    return out;
  };
  const std::string call = R"([2]{"index":0,"id":")" + call_id(7, 1, 0) + R"(","name":"f"})";
  CHECK(sent(0, 1000) == "[1]hm[0]ab" + call + "[3]{}");
  // Split anywhere, and continued anywhere by another worker, no text is lost or repeated.
  const auto plain = [](std::string text) {
    for (const char* mark : {"[0]", "[1]", "[3]"}) {
      for (size_t at; (at = text.find(mark)) != std::string::npos;) text.erase(at, 3);
    }
    return text;
  };
  const std::string whole = plain(sent(0, 1));
  CHECK(whole == plain(sent(0, 1000)));
  for (size_t replayed = 1; replayed < ids.size(); ++replayed) {
    CHECK(whole.ends_with(plain(sent(replayed, 1))));
  }
}

TEST_CASE("the only call ends an answer when it is whole, and not when it is cut short") {
  const Fixture f;
  auto reading = std::make_shared<AnswerReading>();
  reading->shape.tools = models::find_tool_format("hermes");
  reading->shape.functions = {{"f"}};
  reading->shape.one_call = true;
  const std::string call = "<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":12}}</tool_call>";
  bool stopped = false;
  for (size_t size = 1; size <= call.size(); ++size) {
    CAPTURE(size);
    SampleText text(*f.tokenizer, false, {});
    text.read_as(reading, 0, *f.tokenizer, {});
    for (const char c : call.substr(0, size)) {
      text.push(f.byte_token(static_cast<unsigned char>(c)), std::nullopt);
    }
    stopped = text.stopped();
    CHECK((!stopped || text.num_calls() == 1));
    text.finish(true);
    CHECK(text.stopped() == stopped);
    if (size < call.find("}}") + 1) CHECK_FALSE(stopped);
  }
  CHECK(stopped);
}

TEST_CASE("after a stop string no token counts") {
  const Fixture f;
  SampleText text(*f.tokenizer, false, {"bc"});
  for (const char c : {'a', 'b', 'c', 'a'}) text.push(f.byte_token(c), std::nullopt);
  CHECK(text.stopped());
  CHECK(text.num_tokens() == 3);
  const auto pending = text.take();
  CHECK(pending->text == "a");
  CHECK(pending->ids.size() == 3);
  CHECK(text.finish().text.empty());
}

TEST_CASE("logprobs are sent with their tokens") {
  const Fixture f;
  SampleText text(*f.tokenizer, false, {});
  text.push(f.byte_token('a'), ipc::TokenLogprobs{.logprob = -1, .top = {}});
  text.push(f.byte_token('b'), ipc::TokenLogprobs{.logprob = -2, .top = {{5, -3}}});
  const auto pending = text.take();
  REQUIRE(pending->logprobs.size() == 2);
  CHECK(pending->logprobs[1].top.front().token == 5);
}

// A resumed worker relies on this: wherever the first one died, the texts join to the same.
TEST_CASE("replaying any part of the tokens and continuing gives the same text") {
  const Fixture f;
  std::vector<int32_t> ids = f.ids("the abc");
  for (const unsigned char byte : {0xC3, 0xA9, 0xE2, 0x96}) ids.push_back(f.byte_token(byte));
  for (const int32_t id : f.ids("st stab")) ids.push_back(id);
  for (const std::vector<std::string>& stops :
       {std::vector<std::string>{}, {"stop"}, {"stab"}, {"e abc", "x"}}) {
    SampleText whole(*f.tokenizer, true, stops);
    for (const int32_t id : ids) whole.push(id, std::nullopt);
    std::string want = whole.take()->text;
    want += whole.finish().text;
    for (size_t cut = 0; cut <= static_cast<size_t>(whole.num_tokens()); ++cut) {
      SampleText first(*f.tokenizer, true, stops);
      for (size_t i = 0; i < cut; ++i) first.push(ids[i], std::nullopt);
      const auto sent = first.take();
      SampleText second(*f.tokenizer, true, stops);
      second.replay({ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cut)});
      CHECK(second.num_tokens() == static_cast<int32_t>(cut));
      for (size_t i = cut; i < ids.size(); ++i) second.push(ids[i], std::nullopt);
      std::string got = sent ? sent->text : "";
      if (const auto rest = second.take()) {
        CHECK(rest->first_index == cut);
        got += rest->text;
      }
      got += second.finish().text;
      CAPTURE(cut);
      CHECK(got == want);
      CHECK(second.num_tokens() == whole.num_tokens());
    }
  }
}

}  // namespace
}  // namespace hearth::worker
