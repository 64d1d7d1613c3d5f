// Bytes that are nearly valid: valid requests, events and deltas with random damage. Nothing may
// crash (the sanitizers check), and whatever is still accepted must read back from the wire
// unchanged.

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "ipc/client/request_log.h"
#include "ipc/text/utf8.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/worker_codec.h"
#include "tests/skip.h"

namespace hearth::ipc {
namespace {

constexpr uint64_t kSeed = 20240607;

/// One to four of: a byte flipped, removed, doubled, a chunk repeated, the end cut, a hostile piece
/// inserted.
std::string damaged(std::string text, std::mt19937_64& random) {
  const std::vector<std::string> pieces = {"[",           "{",
                                           "\"",          "\\",
                                           "-",           "e",
                                           "1e308",       "9223372036854775808",
                                           "null",        "NaN",
                                           "\\ud800",     "\xC3",
                                           "\xFF",        std::string(1, '\0'),
                                           "\"seed\":1,", ":",
                                           ",",           "}",
                                           "]",           "0.",
                                           "true"};
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  const size_t num_wounds = 1 + below(4);
  for (size_t i = 0; i < num_wounds && !text.empty(); ++i) {
    const size_t at = below(text.size());
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ (1u << below(8)));
        break;
      case 1: text.erase(at, 1 + below(4)); break;
      case 2: text.insert(at, 1, text[at]); break;
      case 3: text.insert(at, text.substr(below(text.size()), below(20))); break;
      case 4: text.resize(at); break;
      default: text.insert(at, pieces[below(pieces.size())]); break;
    }
  }
  return text;
}

int rounds() { return tests::full_counts() ? 500'000 : 20'000; }

TEST_CASE("damaged requests are refused with a clear error or remain valid") {
  GenerateRequest full;
  full.prompt = "Once upon a t\xC3\xADme";
  full.seed = 7;
  full.stop = {"END"};
  full.stop_ids = {1, 2};
  full.logit_bias = {{3, -1.5f}};
  const std::string good[] = {
      encode_request(full),
      R"({"verb":"generate","prompt":"x","temperature":0.7,"max_tokens":12,"top_p":0.9})",
      R"({"verb":"generate","prompt_ids":[1,2,3],"n":2,"deadline_ms":1000})",
      R"({"verb":"tokenize","text":"a\u00e9b","raw":true})",
      R"({"verb":"cancel","id":"r1"})",
      R"({"verb":"ping"})",
  };
  std::mt19937_64 random(kSeed);
  int num_accepted = 0;
  for (int i = 0; i < rounds(); ++i) {
    const std::string text = damaged(good[random() % std::size(good)], random);
    const auto decoded = decode_request(text);
    if (!decoded.ok()) {
      const Error& error = decoded.error();
      REQUIRE_FALSE(error.message.empty());
      REQUIRE(error.message.size() < 400);
      REQUIRE(is_valid_utf8(error.message));
      REQUIRE(error.code != ErrorCode::kInternal);
      continue;
    }
    ++num_accepted;
    const auto again = decode_request(encode_request(*decoded));
    REQUIRE_MESSAGE(again.ok(), "round " << i);
    REQUIRE_MESSAGE(*again == *decoded, "round " << i);
  }
  CHECK(num_accepted > 0);  // the damage is light enough to pass now and then
  CHECK(num_accepted < rounds());
}

TEST_CASE("damaged answers are refused or read, never trusted") {
  DoneEvent done;
  done.finish_reasons = {"stop"};
  done.seed = UINT64_MAX;
  ModelEntry model;
  model.name = "m";
  model.roles = {"default"};
  const std::string good[] = {
      encode_event(done),
      encode_event(ModelsReply{{model}, {"/m"}}),
      encode_event(ErrorEvent{{ErrorCode::kBusy, "full", ""}, 5}),
      encode_worker_event(WorkerHeartbeat{}),
      encode_worker_request(WorkerEnvelope{}, GenerateRequest{}),
      encode_worker_control(WorkerControl::kDrain),
  };
  std::mt19937_64 random(kSeed);
  int num_accepted = 0;
  for (int i = 0; i < rounds(); ++i) {
    const std::string text = damaged(good[random() % std::size(good)], random);
    num_accepted += decode_event(text).ok() ? 1 : 0;
    num_accepted += decode_worker_event(text).ok() ? 1 : 0;
    num_accepted += decode_worker_control(text).ok() ? 1 : 0;
    num_accepted += decode_worker_request(1, text).ok() ? 1 : 0;
  }
  CHECK(num_accepted > 0);
}

TEST_CASE("damaged lines of a recording are refused or remain in range") {
  GenerateRequest request;
  request.messages = {R"([{"role":"user","content":"x"}])"};
  RecordedEvent record;
  record.arrival_us = 5;
  record.request.text = encode_request(request);
  record.usage = {.prompt_tokens = 40, .cached_tokens = 32, .output_tokens = 7};
  record.timings.ttft_ms = 3.5;
  record.digests = {"90c95f5ef8a1b2d3"};
  const std::string good = encode_event(record);
  std::mt19937_64 random(kSeed);
  int num_accepted = 0;
  for (int i = 0; i < rounds(); ++i) {
    const Result<RecordedEvent> read = decode_record(damaged(good, random));
    if (!read.ok()) {
      REQUIRE(is_valid_utf8(read.error().message));
      continue;
    }
    ++num_accepted;
    REQUIRE(read->arrival_us >= 0);
    REQUIRE(read->usage.cached_tokens <= read->usage.prompt_tokens);
    REQUIRE(read->timings.ttft_ms >= 0);
    REQUIRE(decode_request(read->request.text).ok());
  }
  CHECK(num_accepted > 0);
  CHECK(num_accepted < rounds());
}

TEST_CASE("damaged deltas are refused or consistent") {
  const std::string payload = encode_delta_payload({0, 4, 2, 0}, "t\xC3\xADme");
  const std::string ids = encode_ids(std::vector<int32_t>{5, 6});
  const std::string logprobs =
      encode_logprobs(std::vector<TokenLogprobs>{{-1, {{5, -1}}}, {-2, {}}});
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < rounds(); ++i) {
    const std::string bad_payload = damaged(payload, random);
    const std::string bad_ids = random() % 2 == 0 ? damaged(ids, random) : ids;
    const std::string bad_logprobs = random() % 2 == 0 ? damaged(logprobs, random) : "";
    const auto delta = decode_delta({true, {}, bad_payload, bad_ids, bad_logprobs});
    if (!delta.ok()) continue;
    REQUIRE(delta->ids.size() == delta->header.num_tokens);
    REQUIRE(is_valid_utf8(delta->text));
    REQUIRE((delta->logprobs.empty() || delta->logprobs.size() == delta->ids.size()));
  }
}

}  // namespace
}  // namespace hearth::ipc
