// Canvases of tiny models: every pass compared with the published rules in PyTorch, in float64
// (tests/golden/canvas), and with themselves, in a batch, preempted and resumed.

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <utility>

#include "engine/engine.h"
#include "models/gguf/gguf_file.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/paths.h"

namespace hearth::golden {
namespace {

using namespace engine;
using kernels::DType;
using models::CanvasParams;

const std::vector<std::string> kModels = {"llada", "llada_moe", "dream"};

struct CanvasCase {
  std::vector<int32_t> prompt;
  int32_t length = 0;
  CanvasParams params;
  SamplingParams sampling;
  std::vector<std::vector<int32_t>> passes;  ///< the canvas after each; -1: masked
};
struct CanvasModel {
  FamilyModel file;
  std::vector<CanvasCase> cases;
};

CanvasModel read_canvas(const std::string& name) {
  std::ifstream in(hearth::tests::source_path("tests/golden/canvas/") + name + ".json");
  REQUIRE_MESSAGE(in.good(), name);
  const auto root = nlohmann::json::parse(in);
  CanvasModel m;
  m.file.name = name;
  root.at("architecture").get_to(m.file.architecture);
  root.at("context").get_to(m.file.context);
  root.at("seed").get_to(m.file.seed);
  m.file.metadata = root.at("metadata");
  m.file.metadata["tokenizer.ggml.mask_token_id"] = root.at("mask_token");
  for (const auto& entry : root.at("tensors")) {
    m.file.tensors.push_back({entry.at(0), entry.at(1), entry.at(2), entry.at(3)});
  }
  for (const auto& entry : root.at("cases")) {
    CanvasCase& made = m.cases.emplace_back();
    entry.at("prompt").get_to(made.prompt);
    entry.at("length").get_to(made.length);
    entry.at("passes").get_to(made.passes);
    entry.at("steps").get_to(made.params.steps);
    entry.at("block_length").get_to(made.params.block_length);
    made.params.remasking = *models::remasking_named(entry.at("remasking").get<std::string>());
    made.sampling.temperature = entry.at("temperature").get<float>();
    made.sampling.top_p = entry.at("top_p").get<float>();
    made.sampling.top_k = 0;
    made.sampling.seed = entry.at("seed").get<uint64_t>();
  }
  return m;
}

/// An engine on a clock that goes on by a second in each step, so that each pass is reported.
class CanvasRun {
 public:
  CanvasRun(const CanvasModel& model, DType type, const kernels::OpTable& ops,
            const EngineConfig& config = {})
      : owned_(model.file.file_bytes(type)) {
    ops.set_num_threads(ops.state.get(), 1);
    Result<std::unique_ptr<models::Model>> loaded = models::load_model(owned_.file, ops, nullptr);
    REQUIRE_MESSAGE(loaded.ok(), (loaded.ok() ? "" : loaded.error().message));
    auto created = Engine::create(config, ops, std::move(loaded).value(), clock_);
    REQUIRE_MESSAGE(created.ok(), (created.ok() ? "" : created.error().message));
    engine_ = std::move(created).value();
  }

  struct Answer {
    std::map<int32_t, std::vector<int32_t>> tokens;  ///< per sample, resumed ones included
    std::vector<CanvasView> views;
    std::vector<SampleDoneEvent> samples;
    std::optional<RequestDoneEvent> done;
    std::optional<Error> error;
  };

  static Request request_of(const CanvasCase& from, RequestId id) {
    Request request;
    request.id = id;
    request.owner = request.cache_salt = "uid:1000";
    request.prompt = from.prompt;
    request.max_tokens = from.length;
    request.sampling = from.sampling;
    request.canvas = from.params;
    return request;
  }
  void submit(const Request& request) {
    for (size_t i = 0; i < request.resume.size(); ++i) {
      answers_[request.id].tokens[static_cast<int32_t>(i)] = request.resume[i];
    }
    engine_->inbox().post(request);
  }
  void post(EngineCommand command) { engine_->inbox().post(std::move(command)); }
  bool step() {
    const bool more = engine_->step();
    engine_->check_integrity();
    clock_.advance_us(1'000'000);
    for (auto& events : engine_->outbox().drain()) {
      for (EngineEvent& event : events) take(event);
    }
    return more;
  }
  void run() {
    while (step()) {
    }
  }
  Answer ask(const Request& request) {
    answers_.erase(request.id);
    submit(request);
    run();
    return answers_[request.id];
  }
  Answer& answer(RequestId id) { return answers_[id]; }
  Engine& engine() { return *engine_; }

 private:
  void take(EngineEvent& event) {
    if (const auto* token = std::get_if<TokenEvent>(&event)) {
      auto& tokens = answers_[token->id].tokens[token->sample];
      REQUIRE(token->index == static_cast<int32_t>(tokens.size()));
      tokens.push_back(token->token);
    } else if (auto* progress = std::get_if<ProgressEvent>(&event)) {
      if (progress->canvas) answers_[progress->id].views.push_back(std::move(*progress->canvas));
    } else if (const auto* sample = std::get_if<SampleDoneEvent>(&event)) {
      answers_[sample->id].samples.push_back(*sample);
    } else if (const auto* done = std::get_if<RequestDoneEvent>(&event)) {
      answers_[done->id].done = *done;
    } else if (const auto* failed = std::get_if<RequestFailedEvent>(&event)) {
      answers_[failed->id].error = failed->error;
    }
  }

  FakeClock clock_;
  OwnedFile owned_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, Answer> answers_;
};

TEST_CASE("canvas: every pass of every rule fills what PyTorch fills") {
  for (const std::string& name : kModels) {
    const CanvasModel model = read_canvas(name);
    for (const NamedTable& table : all_tables()) {
      CanvasRun run(model, DType::kF32, table.ops);
      run.engine().warm_up();
      for (size_t i = 0; i < model.cases.size(); ++i) {
        INFO(name << " case " << i << " on " << table.name);
        const CanvasCase& want = model.cases[i];
        const auto met = run.ask(CanvasRun::request_of(want, 1));
        REQUIRE_MESSAGE(!met.error, met.error->message);
        REQUIRE(met.views.size() + 1 == want.passes.size());
        for (size_t pass = 0; pass < met.views.size(); ++pass) {
          CHECK(met.views[pass].tokens == want.passes[pass]);
          for (size_t at = 0; at < want.passes[pass].size(); ++at) {
            CHECK((met.views[pass].confidence[at] > 0) == (want.passes[pass][at] >= 0));
          }
        }
        CHECK(met.tokens.at(0) == want.passes.back());
        REQUIRE(met.samples.size() == 1);
        CHECK(met.samples[0].reason == FinishReason::kLength);
        CHECK(met.done->cached_tokens == 0);
      }
    }
  }
}

TEST_CASE("canvas: blocks are sent in order, each when it is whole") {
  const CanvasModel model = read_canvas("llada");
  CanvasRun run(model, DType::kF32, all_tables().back().ops);
  const CanvasCase& wanted = model.cases[1];
  REQUIRE(wanted.params.block_length == 8);
  run.submit(CanvasRun::request_of(wanted, 1));
  for (size_t pass = 0; pass < wanted.passes.size(); ++pass) {
    run.step();
    const size_t whole = (pass + 1) / 8 * 8;
    CHECK(run.answer(1).tokens[0].size() == whole);
  }
  CHECK(run.answer(1).done.has_value());
}

std::vector<std::vector<int32_t>> alone(CanvasRun& run, const std::vector<Request>& requests) {
  std::vector<std::vector<int32_t>> out;
  for (const Request& request : requests) {
    const auto met = run.ask(request);
    for (const auto& [sample, tokens] : met.tokens) out.push_back(tokens);
  }
  return out;
}

std::vector<Request> several(const CanvasModel& model) {
  std::vector<Request> requests;
  for (size_t i = 0; i < model.cases.size(); ++i) {
    Request request = CanvasRun::request_of(model.cases[i], i + 1);
    request.owner = i % 2 == 0 ? "uid:1000" : "uid:1001";
    request.n = i % 3 == 0 ? 2 : 1;
    request.prompt.resize(5 + 2 * i, 9);
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_CASE("canvas: alone, together and preempted give the same tokens") {
  for (const std::string& name : kModels) {
    const CanvasModel model = read_canvas(name);
    for (const NamedTable& table : all_tables()) {
      if (table.name == "reference") continue;
      INFO(name << " on " << table.name);
      const std::vector<Request> requests = several(model);
      CanvasRun one(model, DType::kQ8_0, table.ops);
      const auto want = alone(one, requests);
      for (const int32_t max_seqs : {64, 2}) {
        EngineConfig config;
        config.scheduler.max_seqs = max_seqs;
        CanvasRun run(model, DType::kQ8_0, table.ops, config);
        run.engine().warm_up();
        for (size_t i = 0; i < requests.size(); ++i) {
          Request request = requests[i];
          request.priority = i < 3 ? Priority::kBatch : Priority::kInteractive;
          run.submit(request);
          run.step();
        }
        run.run();
        std::vector<std::vector<int32_t>> met;
        int32_t preemptions = 0;
        for (const Request& request : requests) {
          for (const auto& [sample, tokens] : run.answer(request.id).tokens) met.push_back(tokens);
          REQUIRE(run.answer(request.id).done.has_value());
          preemptions += run.answer(request.id).done->preemptions;
        }
        CHECK(met == want);
        CHECK((preemptions > 0) == (max_seqs == 2));
      }
    }
  }
}

TEST_CASE("canvas: a resumed request has the same text, wherever it was interrupted") {
  const CanvasModel model = read_canvas("llada");
  CanvasRun run(model, DType::kQ8_0, all_tables().back().ops);
  const CanvasCase& wanted = model.cases[4];  // in two blocks, with noise
  Request request = CanvasRun::request_of(wanted, 1);
  const std::vector<int32_t> whole = run.ask(request).tokens.at(0);
  REQUIRE(whole.size() == 24);
  for (const size_t sent : {0, 5, 12, 17, 24}) {
    request.resume = {{whole.begin(), whole.begin() + static_cast<ptrdiff_t>(sent)}};
    const auto met = run.ask(request);
    CHECK(met.tokens.at(0) == whole);
    CHECK(met.samples.at(0).num_tokens == 24);
  }
}

TEST_CASE("canvas: a stop id ends the sample before it, at the end of its block") {
  const CanvasModel model = read_canvas("llada");
  CanvasRun run(model, DType::kF32, all_tables().back().ops);
  const CanvasCase& wanted = model.cases[1];
  const std::vector<int32_t>& text = wanted.passes.back();
  Request request = CanvasRun::request_of(wanted, 1);
  request.stop_ids = {text[9]};
  const auto first = std::ranges::find(text, text[9]) - text.begin();
  const auto met = run.ask(request);
  CHECK(met.tokens.at(0) == std::vector<int32_t>(text.begin(), text.begin() + first));
  REQUIRE(met.samples.size() == 1);
  CHECK(met.samples[0].reason == FinishReason::kStop);
  CHECK(met.samples[0].num_tokens == first);
  // Not drawn before min_tokens.
  request.min_tokens = 24;
  const auto longer = run.ask(request);
  CHECK(longer.tokens.at(0).size() == 24);
  CHECK(std::ranges::count(longer.tokens.at(0), text[9]) == 0);
}

TEST_CASE("canvas: cancelled between two passes") {
  const CanvasModel model = read_canvas("dream");
  CanvasRun run(model, DType::kF32, all_tables().back().ops);
  run.submit(CanvasRun::request_of(model.cases[0], 1));
  run.submit(CanvasRun::request_of(model.cases[1], 2));
  for (int i = 0; i < 4; ++i) run.step();
  run.post(CancelRequest{1});
  run.run();
  REQUIRE(run.answer(1).samples.size() == 1);
  CHECK(run.answer(1).samples[0].reason == FinishReason::kCancelled);
  CHECK(run.answer(1).samples[0].num_tokens == 0);
  CHECK(run.answer(2).tokens.at(0) == model.cases[1].passes.back());
}

TEST_CASE("canvas: fields that do not fit are refused by name") {
  const CanvasModel model = read_canvas("llada");
  CanvasRun run(model, DType::kF32, all_tables().back().ops);
  const Request fits = CanvasRun::request_of(model.cases[0], 1);
  const auto field_of = [&](auto&& change) {
    Request request = fits;
    change(request);
    const auto met = run.ask(request);
    REQUIRE(met.error.has_value());
    return met.error->field;
  };
  CHECK(field_of([](Request& r) { r.sampling.top_logprobs = 2; }) == "logprobs");
  CHECK(field_of([](Request& r) { r.sampling.prompt_logprobs = true; }) == "prompt_logprobs");
  CHECK(field_of([](Request& r) { r.sampling.repetition_penalty = 1.5f; }) == "repetition_penalty");
  CHECK(field_of([](Request& r) { r.sampling.presence_penalty = 1; }) == "presence_penalty");
  CHECK(field_of([](Request& r) { r.sampling.frequency_penalty = 1; }) == "frequency_penalty");
  CHECK(field_of([](Request& r) { r.prediction = {1, 2}; }) == "prediction");
  CHECK(field_of([](Request& r) { r.canvas->steps = 0; }) == "steps");
  CHECK(field_of([](Request& r) { r.canvas->steps = 5000; }) == "steps");
  CHECK(field_of([](Request& r) { r.canvas->block_length = 513; }) == "block_length");
  CHECK(field_of([](Request& r) { r.canvas.reset(); }) == "model");
  CHECK(field_of([](Request& r) {
          r.canvas.reset();
          r.max_tokens = 0;
          r.pooling = models::Pooling::kMean;
        }) == "model");
  CHECK_FALSE(run.ask(fits).error.has_value());

  FamilyModel plain = read_family("llama");
  const OwnedFile owned(plain.file_bytes(DType::kF32));
  const CanvasModel other{std::move(plain), {}};
  CanvasRun writes(other, DType::kF32, all_tables().back().ops);
  CHECK(writes.ask(fits).error->field == "steps");
}

TEST_CASE("canvas: files that do not fit are refused with their key") {
  const auto load = [](const auto& change) {
    CanvasModel model = read_canvas("llada");
    change(model.file.metadata);
    const OwnedFile owned(model.file.file_bytes(DType::kF32));
    auto loaded = models::load_model(owned.file, all_tables().back().ops, nullptr);
    REQUIRE_FALSE(loaded.ok());
    return loaded.error().message;
  };
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(load([](auto& m) { m.erase("tokenizer.ggml.mask_token_id"); }),
      "tokenizer.ggml.mask_token_id");
  has(load([](auto& m) { m["tokenizer.ggml.mask_token_id"] = 128; }),
      "tokenizer.ggml.mask_token_id: 128, the model has 128 tokens");
  has(load([](auto& m) { m["llada.attention.causal"] = true; }), "llada.attention.causal");
  has(load([](auto& m) { m["diffusion.block_length"] = 513; }), "diffusion.block_length: 513");
  has(load([](auto& m) { m["diffusion.steps"] = 4097; }), "diffusion.steps: 4097");
  has(load([](auto& m) { m["diffusion.remasking"] = "best"; }), "diffusion.remasking: \"best\"");
}

}  // namespace
}  // namespace hearth::golden
