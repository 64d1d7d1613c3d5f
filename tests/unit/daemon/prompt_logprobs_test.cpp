#include "daemon/worker/text/prompt_logprobs.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "ipc/wire/codec.h"
#include "models/gguf/gguf_file.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::worker {
namespace {

struct Pauses final : models::EncodePause {
  int count = 0;
  void pause() override { ++count; }
};

struct Fixture {
  std::vector<std::byte> bytes = models::vocab_file(models::small_vocab()).bytes();
  models::GgufFile file = models::GgufFile::parse(bytes, "test").value();
  std::unique_ptr<models::Tokenizer> tokenizer = models::load_tokenizer(file).value();
};

ipc::PromptLogprobsEvent decoded(const std::string& json) {
  const auto event = ipc::decode_event(json);
  REQUIRE(event.ok());
  return std::get<ipc::PromptLogprobsEvent>(*event);
}

TEST_CASE("the log probabilities of a prompt read as the event that they are") {
  const Fixture f;
  // Control tokens, single bytes of longer characters, and text.
  std::vector<int32_t> prompt;
  for (int32_t id = 0; id < f.tokenizer->vocab_size(); ++id) prompt.push_back(id);
  engine::PromptLogprobsEvent event;
  ipc::PromptLogprobsEvent want;
  for (size_t i = 1; i < prompt.size(); ++i) {
    const float logprob = -0.1f * static_cast<float>(i);
    event.logprobs.push_back(logprob);
    event.top.push_back({{prompt[i], logprob}, {prompt[i - 1], -1e-30f}});
    want.top.push_back({{prompt[i], logprob, shown_token(*f.tokenizer, prompt[i])},
                        {prompt[i - 1], -1e-30f, shown_token(*f.tokenizer, prompt[i - 1])}});
  }
  want.logprobs = event.logprobs;
  want.ids = prompt;
  for (const int32_t id : prompt) want.texts.push_back(shown_token(*f.tokenizer, id));
  const std::string json = encode_prompt_logprobs(*f.tokenizer, prompt, event);
  CHECK(decoded(json) == want);
  // The broker passes long ones on without decoding them, and knows them by how they begin.
  CHECK(json.substr(0, 40) == ipc::encode_event(want).substr(0, 40));

  event.top.clear();
  want.top.clear();
  CHECK(decoded(encode_prompt_logprobs(*f.tokenizer, prompt, event)) == want);
  CHECK(decoded(encode_prompt_logprobs(*f.tokenizer, std::vector<int32_t>{5}, {})) ==
        ipc::PromptLogprobsEvent{.logprobs = {}, .ids = {5}, .texts = {want.texts[5]}});
}

TEST_CASE("encoding the log probabilities of a long prompt lets others go first after each slice") {
  const Fixture f;
  const std::vector<int32_t> prompt(10 * kPromptLogprobsSlice, 5);
  engine::PromptLogprobsEvent event;
  event.logprobs.assign(prompt.size() - 1, -1.0f);
  event.top.assign(prompt.size() - 1, {{5, -1.0f}, {6, -2.0f}});
  Pauses pauses;
  const std::string json = encode_prompt_logprobs(*f.tokenizer, prompt, event, &pauses);
  CHECK(pauses.count == 10 + 10 + 9 + 9);
  CHECK(json == encode_prompt_logprobs(*f.tokenizer, prompt, event));
}

}  // namespace
}  // namespace hearth::worker
