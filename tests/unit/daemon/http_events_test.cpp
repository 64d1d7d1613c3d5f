// Events written without the JSON library, compared with the library's output.

#include <doctest/doctest.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/answers/api_answer.h"
#include "ipc/text/utf8.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/json_text.h"
#include "ipc/wire/logprob_texts.h"

namespace hearth::http {
namespace {

using Json = nlohmann::json;

bool full() { return std::getenv("HEARTH_TEST_FULL") != nullptr; }

// ---- The values to write -----------------------------------------------------------------------

class Texts {
 public:
  explicit Texts(uint32_t seed) : random_(seed) {}

  size_t below(size_t bound) { return random_() % bound; }
  float logprob() {
    if (below(8) == 0) return 0;
    const float value = -static_cast<float>(random_()) / 3e8f;
    return below(4) == 0 ? value * 1e-30f : value;
  }
  /// Any bytes: invalid characters as a worker shows them, or replaced.
  std::string text() {
    static const std::vector<std::string> kPieces = {"a",
                                                     "\"",
                                                     "\\",
                                                     "\\u0041",
                                                     "/",
                                                     "\n",
                                                     "\r",
                                                     "\t",
                                                     "\b",
                                                     "\f",
                                                     "\x01",
                                                     "\x1F",
                                                     "\x7F",
                                                     "\xC3",
                                                     "\xA9",
                                                     "é",
                                                     "€",
                                                     "\xE2\x82",
                                                     "😀",
                                                     "\xF0",
                                                     "\xED\xA0\x80",
                                                     "\xFF",
                                                     "\u2028",
                                                     " ",
                                                     "bytes:\\xe2",
                                                     "</script>",
                                                     "data:",
                                                     "\n\n",
                                                     "\xEF\xBF\xBF",
                                                     "\xF4\x8F\xBF\xBF",
                                                     std::string(1, '\0')};
    std::string out;
    for (size_t i = below(5); i > 0; --i) out += kPieces[below(kPieces.size())];
    if (ipc::is_valid_utf8(out)) return out;
    if (below(2) == 0) return ipc::to_valid_utf8(out);
    std::string shown = "bytes:";
    for (const char byte : out) {
      constexpr std::string_view kHex = "0123456789abcdef";
      const auto value = static_cast<unsigned char>(byte);
      shown += {'\\', 'x', kHex[value >> 4], kHex[value & 15]};
    }
    return shown;
  }
  std::vector<ipc::TokenLogprobs> tokens() {
    std::vector<ipc::TokenLogprobs> out(1 + below(4));
    for (ipc::TokenLogprobs& token : out) {
      token = {logprob(), {}, text()};
      for (size_t i = below(6); i > 0; --i) {
        token.top.push_back({static_cast<int32_t>(random_()), logprob(), text()});
      }
    }
    return out;
  }

 private:
  std::mt19937 random_;
};

// ---- The library's output ----------------------------------------------------------------------

/// The shortest decimal of a float, as on the wire.
double shown(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double out = 0;
  std::from_chars(text, end, out);
  return out;
}

Json bytes_of(std::string_view text) {
  Json bytes = Json::array();
  if (!text.starts_with("bytes:\\x")) {
    for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
    return bytes;
  }
  for (text.remove_prefix(6); text.size() >= 4; text.remove_prefix(4)) {
    unsigned value = 0;
    std::from_chars(text.data() + 2, text.data() + 4, value, 16);
    bytes.push_back(value & 0xFF);
  }
  return bytes;
}

Json chat_logprobs(const std::vector<ipc::TokenLogprobs>& tokens) {
  Json content = Json::array();
  for (const ipc::TokenLogprobs& token : tokens) {
    Json top = Json::array();
    for (const ipc::TopLogprob& each : token.top) {
      top.push_back(
          {{"token", each.text}, {"logprob", shown(each.logprob)}, {"bytes", bytes_of(each.text)}});
    }
    content.push_back({{"token", token.text},
                       {"logprob", shown(token.logprob)},
                       {"bytes", bytes_of(token.text)},
                       {"top_logprobs", top}});
  }
  return {{"content", content}, {"refusal", nullptr}};
}

Json completion_logprobs(const std::vector<ipc::TokenLogprobs>& tokens, size_t* offset) {
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const ipc::TokenLogprobs& token : tokens) {
    out["tokens"].push_back(token.text);
    out["token_logprobs"].push_back(shown(token.logprob));
    Json top = Json::object();
    for (const ipc::TopLogprob& each : token.top) top[each.text] = shown(each.logprob);
    out["top_logprobs"].push_back(top);
    out["text_offset"].push_back(*offset);
    if (token.text.starts_with("bytes:\\x")) continue;
    for (const char c : token.text) *offset += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }
  return out;
}

Json event_of(bool chat, uint32_t sample, const std::string& text, const Json& logprobs) {
  Json choice = {{"index", sample}, {"logprobs", logprobs}, {"finish_reason", nullptr}};
  (chat ? choice["delta"]["content"] : choice["text"]) = text;
  return {{"id", chat ? "chatcmpl-7" : "cmpl-7"},
          {"object", chat ? "chat.completion.chunk" : "text_completion"},
          {"created", 17},
          {"model", "a \"model\""},
          {"choices", Json::array({choice})}};
}

// No key twice, which the library would not report.
Json parse_strictly(std::string_view text) {
  std::vector<std::vector<std::string>> open;
  const auto check = [&open](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event != Json::parse_event_t::key) return true;
    const auto key = value.get<std::string>();
    CHECK_MESSAGE(std::ranges::find(open.back(), key) == open.back().end(), key);
    open.back().push_back(key);
    return true;
  };
  return Json::parse(text, check);
}

TEST_CASE("an event equals the JSON library's output, for any text") {
  Texts texts(20);
  const int rounds = full() ? 20'000 : 500;
  for (const bool chat : {false, true}) {
    const std::string body =
        chat ? R"({"messages":[{"role":"user","content":"x"}],"stream":true,"n":3,)"
               R"("logprobs":true,"top_logprobs":5})"
             : R"({"prompt":"x","stream":true,"n":3,"logprobs":5})";
    const Call call = parse_call(chat ? Api::kChat : Api::kCompletions, body).value();
    const auto writer = make_answer_writer(call, "7", 17);
    std::string begin;
    writer->started({"a \"model\"", 1, 0, 0}, &begin);
    size_t offsets[3] = {};
    for (int round = 0; round < rounds; ++round) {
      const auto sample = static_cast<uint32_t>(texts.below(3));
      const std::string text = ipc::to_valid_utf8(texts.text());
      const std::vector<ipc::TokenLogprobs> tokens =
          texts.below(3) == 0 ? std::vector<ipc::TokenLogprobs>() : texts.tokens();
      if (text.empty() && tokens.empty()) continue;
      std::string out;
      writer->delta(sample, text, tokens.empty() ? "" : ipc::encode_logprobs(tokens), &out);
      REQUIRE(out.starts_with("data: "));
      REQUIRE(out.find("\n\n") == out.size() - 2);
      Json logprobs;
      if (!tokens.empty()) {
        logprobs = chat ? chat_logprobs(tokens) : completion_logprobs(tokens, &offsets[sample]);
      }
      CHECK_MESSAGE(
          parse_strictly(std::string_view(out).substr(6)) == event_of(chat, sample, text, logprobs),
          out);
    }
  }
}

TEST_CASE("a whole body has the log probabilities of its deltas") {
  Texts texts(21);
  for (int round = 0; round < 20; ++round) {
    for (const bool chat : {false, true}) {
      const std::string body =
          chat ? R"({"messages":[{"role":"user","content":"x"}],"n":2,"logprobs":true})"
               : R"({"prompt":"x","n":2,"logprobs":5})";
      const Call call = parse_call(chat ? Api::kChat : Api::kCompletions, body).value();
      const auto writer = make_answer_writer(call, "7", 17);
      std::string out;
      writer->started({"m", 1, 0, 0}, &out);
      std::vector<ipc::TokenLogprobs> all[2];
      for (uint32_t delta = 0; delta < 6; ++delta) {
        const std::vector<ipc::TokenLogprobs> tokens = texts.tokens();
        writer->delta(delta % 2, "t", ipc::encode_logprobs(tokens), &out);
        all[delta % 2].insert(all[delta % 2].end(), tokens.begin(), tokens.end());
      }
      CHECK(out.empty());
      ipc::DoneEvent done;
      done.model = "m";
      done.finish_reasons = {"stop", "stop"};
      writer->done(done, &out);
      const Json answer = parse_strictly(out);
      for (size_t sample = 0; sample < 2; ++sample) {
        size_t offset = 0;
        CHECK(answer["choices"][sample]["logprobs"] ==
              (chat ? chat_logprobs(all[sample]) : completion_logprobs(all[sample], &offset)));
      }
    }
  }
}

TEST_CASE("a truncated or changed frame of log probabilities is refused or decodes to another") {
  Texts texts(22);
  for (int round = 0; round < (full() ? 200 : 10); ++round) {
    const std::string frame = ipc::encode_logprobs(texts.tokens());
    ipc::LogprobTexts read;
    REQUIRE(ipc::read_logprobs(frame, &read));
    for (size_t size = 0; size < frame.size(); ++size) {
      CHECK_FALSE(ipc::read_logprobs(std::string_view(frame).substr(0, size), &read));
    }
    for (size_t at = 0; at < frame.size(); ++at) {
      for (const char c : {'"', '\\', '\n', '}', '0', '\xFF'}) {
        std::string changed = frame;
        changed[at] = c;
        if (!ipc::read_logprobs(changed, &read)) continue;
        CHECK_MESSAGE(Json::accept(changed), changed);
      }
    }
  }
  ipc::LogprobTexts read;
  CHECK(ipc::read_logprobs("[]", &read));
  CHECK(read.tokens.empty());
  CHECK(ipc::read_logprobs(R"([{"logprob":null,"top":[],"text":"\ud83d\ude00"}])", &read));
  CHECK_FALSE(ipc::read_logprobs(R"([{"logprob":01,"top":[],"text":""}])", &read));
  CHECK_FALSE(ipc::read_logprobs(R"([{"logprob":1,"top":[],"text":"\x"}])", &read));
  CHECK_FALSE(ipc::read_logprobs("[{\"logprob\":1,\"top\":[],\"text\":\"\n\"}]", &read));
}

TEST_CASE("strings in JSON are read as the library reads them") {
  for (const char* text :
       {R"("")", R"("a\"b\\c\/d")", R"("\b\f\n\r\t")", R"("\u0041\u00e9\u20ac\ud83d\ude00")",
        R"("é€😀")", R"("\uD83D\uDE00x")"}) {
    std::string out;
    CHECK(ipc::quoted_bytes(text) == std::string_view(text).size());
    ipc::append_unquoted(text, &out);
    CHECK(out == Json::parse(text).get<std::string>());
  }
  for (const char* text : {"", "\"", R"("\")", R"("\u12)", R"("\u12g4")", R"("\q")", "a\""}) {
    CHECK(ipc::quoted_bytes(text) == 0);
  }
  std::string half;
  ipc::append_unquoted(R"("\ud83dx")", &half);  // the library refuses it
  CHECK(half == "\xEF\xBF\xBDx");
  for (const char* number : {"0", "-0", "12", "-1.5", "1e9", "1.25E-07", "2e+3"}) {
    CHECK(ipc::number_bytes(number) == std::string_view(number).size());
  }
  for (const char* wrong : {"", "-", "+1", ".5", "1.", "1e", "1e+", "x"}) {
    CHECK(ipc::number_bytes(wrong) == 0);
  }
  CHECK(ipc::number_bytes("01") == 1);
}

}  // namespace
}  // namespace hearth::http
