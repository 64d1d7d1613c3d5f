#include "daemon/worker/serve/prep_thread.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "ipc/wire/codec.h"
#include "ipc/wire/worker_codec.h"
#include "models/gguf/gguf_file.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::worker {
namespace {

constexpr size_t kLong = 1'500'000;

struct Fixture {
  std::vector<std::byte> bytes = models::vocab_file(models::small_vocab()).bytes();
  models::GgufFile file = models::GgufFile::parse(bytes, "test").value();
  std::unique_ptr<models::Tokenizer> tokenizer = models::load_tokenizer(file).value();
  PrepModel model = make_prep_model("m", 1 << 24, *tokenizer);
};

std::string text_of(size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += "the abc ";
  return out;
}

std::string tokenize(const std::string& owner, size_t bytes) {
  ipc::WorkerEnvelope envelope;
  envelope.owner = owner;
  ipc::TokenizeRequest request;
  request.text = text_of(bytes);
  return ipc::encode_worker_request(envelope, request);
}

std::string prompt(const std::string& owner) {
  ipc::WorkerEnvelope envelope;
  envelope.owner = owner;
  envelope.resume = {{5, 6}, {7}};
  ipc::GenerateRequest request;
  request.prompt = "the abc";
  request.max_tokens = 8;
  request.n = 2;
  request.seed = 3;
  request.stop = {"end"};
  return ipc::encode_worker_request(envelope, request);
}

std::vector<PrepAnswer> answers_of(PrepThread& thread, size_t count) {
  std::vector<PrepAnswer> out;
  while (out.size() < count) {
    auto more = thread.answers().wait_and_drain(std::chrono::seconds(60));
    REQUIRE_FALSE(more.empty());
    for (PrepAnswer& answer : more) out.push_back(std::move(answer));
  }
  return out;
}

std::vector<uint64_t> numbers_of(const std::vector<PrepAnswer>& answers) {
  std::vector<uint64_t> out;
  for (const PrepAnswer& answer : answers) out.push_back(answer.number);
  return out;
}

TEST_CASE("the thread answers an owner in order and drops nothing") {
  const Fixture f;
  PrepThread thread(f.model);
  constexpr uint64_t kCount = 200;
  for (uint64_t i = 1; i <= kCount; ++i) thread.post(i, prompt("uid:1"));
  uint64_t next = 1;
  for (const PrepAnswer& answer : answers_of(thread, kCount)) CHECK(answer.number == next++);
}

TEST_CASE("an answer contains what the front door needs of the request") {
  const Fixture f;
  PrepThread thread(f.model, PrepThread::Priority::kLow);
  thread.post(4, prompt("uid:1"));
  thread.post(5, "{}");
  const std::vector<PrepAnswer> answers = answers_of(thread, 2);
  const auto by_number = [&](uint64_t number) -> const PrepAnswer& {
    return answers[answers[0].number == number ? 0 : 1];
  };
  const Asked& asked = by_number(4).asked;
  CHECK(asked.n == 2);
  CHECK(asked.seed == 3);
  CHECK(asked.stop == std::vector<std::string>{"end"});
  CHECK(asked.resume == std::vector<std::vector<int32_t>>{{5, 6}, {7}});
  REQUIRE(std::holds_alternative<PreparedRequest>(by_number(4).outcome));
  CHECK(std::get<PreparedRequest>(by_number(4).outcome).request.id == 4);
  CHECK(std::holds_alternative<Error>(by_number(5).outcome));
}

TEST_CASE("a short prompt does not wait for another user's long text, whose ids are unchanged") {
  const Fixture f;
  PrepThread thread(f.model);
  thread.post(1, tokenize("uid:1", kLong));
  thread.post(2, prompt("uid:2"));
  thread.post(3, prompt("uid:3"));
  thread.post(4, prompt("uid:1"));  // its owner's own long text comes first
  const std::vector<PrepAnswer> answers = answers_of(thread, 4);
  CHECK(numbers_of(answers) == std::vector<uint64_t>{2, 3, 1, 4});
  const auto event = ipc::decode_event(std::get<EncodedReply>(answers[2].outcome).json);
  REQUIRE(event.ok());
  CHECK(std::get<ipc::TokenizeReply>(*event).ids == f.tokenizer->encode(text_of(kLong), {}));
}

TEST_CASE("a short prompt does not wait for the log probabilities of another user's long one") {
  const Fixture f;
  PrepThread thread(f.model);
  PromptLogprobs logprobs;
  logprobs.prompt.assign(200'000, 5);
  logprobs.event.logprobs.assign(logprobs.prompt.size() - 1, -1.0f);
  thread.post(1, "uid:1", 10'000'000, logprobs);
  thread.post(2, prompt("uid:2"));
  const std::vector<PrepAnswer> answers = answers_of(thread, 2);
  CHECK(numbers_of(answers) == std::vector<uint64_t>{2, 1});
  const auto event = ipc::decode_event(std::get<EncodedPromptLogprobs>(answers[1].outcome).json);
  REQUIRE(event.ok());
  CHECK(std::get<ipc::PromptLogprobsEvent>(*event).ids == logprobs.prompt);
}

TEST_CASE("one of many prompts is prepared after each slice, so the long text ends as well") {
  const Fixture f;
  PrepThread thread(f.model);
  constexpr uint64_t kMany = 1000;
  thread.post(1, tokenize("uid:1", kLong));
  for (uint64_t i = 2; i <= kMany; ++i) thread.post(i, prompt("uid:2"));
  const std::vector<uint64_t> order = numbers_of(answers_of(thread, kMany));
  const auto at = std::find(order.begin(), order.end(), uint64_t{1}) - order.begin();
  CHECK(at > 1);
  // A space takes three bytes while it is encoded, which makes a slice shorter.
  CHECK(static_cast<size_t>(at) <= 2 * kLong / models::Tokenizer::kSliceBytes);
}

TEST_CASE("owners take turns: many requests of one do not delay another") {
  const Fixture f;
  PrepThread thread(f.model);
  // All equally long: none goes before the rest of another.
  for (uint64_t i = 1; i <= 20; ++i) thread.post(i, tokenize("uid:1", 200'000));
  thread.post(21, tokenize("uid:2", 200'000));
  const std::vector<uint64_t> order = numbers_of(answers_of(thread, 21));
  CHECK(std::find(order.begin(), order.end(), uint64_t{21}) - order.begin() < 10);
}

}  // namespace
}  // namespace hearth::worker
