#pragma once
// A model for preparing requests, with a small vocabulary; and the same with a chat template.

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daemon/worker/serve/prep.h"
#include "models/gguf/gguf_file.h"
#include "tests/unit/models/load_vocabulary.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::worker {

struct Fixture {
  std::unique_ptr<models::Tokenizer> tokenizer =
      models::load_vocabulary(models::vocab_file(models::small_vocab())).value();
  PrepModel model = make_prep_model("m", 64, *tokenizer);

  static ipc::WorkerRequest request(const std::string& prompt, int32_t max_tokens = 8) {
    ipc::WorkerRequest out;
    out.id = 7;
    out.owner = "uid:1000";
    out.generate().prompt = prompt;
    out.generate().max_tokens = max_tokens;
    out.generate().seed = 3;
    return out;
  }
  engine::Request good(const ipc::WorkerRequest& request) const {
    PrepResult result = prepare(model, request);
    REQUIRE(std::holds_alternative<PreparedRequest>(result.outcome));
    return std::get<PreparedRequest>(result.outcome).request;
  }
  Error bad(const ipc::WorkerRequest& request) const {
    PrepResult result = prepare(model, request);
    REQUIRE(std::holds_alternative<Error>(result.outcome));
    return std::get<Error>(result.outcome);
  }
};

/// The fixture's model with a chat template.
struct Conversing {
  Conversing(const Fixture& f, const std::string& source, int32_t context_length = 64)
      : templates(parse(source)), model(f.model) {
    model.context_length = context_length;
    model.templates = &templates;
    model.chat = std::make_shared<ChatModel>(*f.tokenizer, &templates);
  }
  static models::ChatTemplates parse(const std::string& source) {
    models::GgufWriter file = models::vocab_file(models::small_vocab());
    file.set_string("tokenizer.chat_template", source);
    const std::vector<std::byte> bytes = file.bytes();
    return models::ChatTemplates::load(models::GgufFile::parse(bytes, "chat").value());
  }
  models::ChatTemplates templates;
  PrepModel model;
};

}  // namespace hearth::worker
