// A model that denoises in a real daemon: blocks and progress on the socket, the same text together
// with others and after a worker's death, over HTTP and from the command line; and what is refused.

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/e2e/command.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/family_file.h"
#include "tests/e2e/http_client.h"
#include "tests/e2e/tiny_model.h"
#include "tests/paths.h"

namespace hearth::e2e {
namespace {

using Json = nlohmann::json;

struct CanvasSandbox : Sandbox {
  CanvasSandbox() {
    std::ifstream in(hearth::tests::source_path("tests/golden/canvas/llada.json"));
    const Json root = Json::parse(in);
    golden::FamilyModel m;
    root.at("name").get_to(m.name);
    root.at("architecture").get_to(m.architecture);
    root.at("seed").get_to(m.seed);
    m.metadata = root.at("metadata");
    m.metadata["tokenizer.ggml.mask_token_id"] = root.at("mask_token");
    m.metadata["tokenizer.chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    for (const Json& each : root.at("tensors")) {
      m.tensors.push_back({each.at(0), each.at(1), each.at(2), each.at(3)});
    }
    write_family(m, models() / "canvas.gguf");
    write_tiny_model(models() / "tiny.gguf", 1);
  }
};

ipc::GenerateRequest canvas(uint64_t seed, int32_t max_tokens) {
  ipc::GenerateRequest request = seeded(seed, max_tokens);
  request.model = "canvas";
  request.block_length = 4;
  request.ignore_eos = true;
  return request;
}

TEST_CASE("canvas: blocks in order, progress between them, and the same text whatever happens") {
  const CanvasSandbox sandbox;
  const Daemon daemon(sandbox, {}, Company::kAlone);
  ipc::Client client = daemon.connect();
  size_t deltas = 0;
  const Answer alone = run(client, canvas(7, 200), [&](const Answer& so_far) {
    ++deltas;
    CHECK(so_far.ids[0].size() % 4 == 0);
  });
  REQUIRE_MESSAGE(alone.done, why(alone));
  CHECK(alone.ids[0].size() == 200);
  CHECK(deltas > 1);
  CHECK(alone.done->usage.cached_tokens == 0);
  CHECK(alone.done->finish_reasons == std::vector<std::string>{"length"});
  size_t shown = 0;
  for (const ipc::Event& event : alone.events) {
    const auto* progress = std::get_if<ipc::ProgressEvent>(&event);
    if (progress == nullptr || !progress->canvas) continue;
    ++shown;
    CHECK(progress->canvas->passes == 200);
    CHECK(progress->canvas->texts.size() == 200);
    CHECK(progress->canvas->confidence.size() == 200);
  }
  CHECK(shown > 0);

  // Next to others, of which one is cancelled.
  const std::string one = *client.start(canvas(7, 200));
  const std::string two = *client.start(canvas(8, 100));
  const std::string three = *client.start(canvas(9, 200));
  REQUIRE(client.request_cancel(three).ok());
  auto together = collect(client, 3);
  CHECK(together[one].ids[0] == alone.ids[0]);
  CHECK(together[two].ids[0].size() == 100);
  CHECK(together[three].done->finish_reasons == std::vector<std::string>{"cancelled"});

  // Its worker dies in the middle.
  bool killed = false;
  const Answer resumed = run(client, canvas(7, 200), [&](const Answer& so_far) {
    if (killed || so_far.ids[0].size() < 20) return;
    killed = true;
    ::kill(daemon.wait_for_worker(), SIGKILL);
  });
  REQUIRE_MESSAGE(resumed.done, why(resumed));
  CHECK(killed);
  CHECK(resumed.ids[0] == alone.ids[0]);
}

TEST_CASE("canvas: fields that do not fit the model are refused by name, on both sides") {
  const CanvasSandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  const auto field_of = [&](auto&& change) {
    ipc::GenerateRequest request = canvas(1, 8);
    change(request);
    const Answer answer = run(client, request);
    REQUIRE(answer.error);
    CHECK(answer.error->code == ErrorCode::kUnsupported);
    return answer.error->field;
  };
  using R = ipc::GenerateRequest;
  CHECK(field_of([](R& r) { r.logprobs = 1; }) == "logprobs");
  CHECK(field_of([](R& r) { r.prompt_logprobs = true; }) == "prompt_logprobs");
  CHECK(field_of([](R& r) { r.prediction = "a"; }) == "prediction");
  CHECK(field_of([](R& r) { r.grammar = "root ::= \"a\""; }) == "grammar");
  CHECK(field_of([](R& r) { r.regex = "a"; }) == "regex");
  CHECK(field_of([](R& r) { r.json_schema = "{}"; }) == "json_schema");
  CHECK(field_of([](R& r) { r.presence_penalty = 1; }) == "presence_penalty");
  CHECK(field_of([](R& r) { r.frequency_penalty = 1; }) == "frequency_penalty");
  CHECK(field_of([](R& r) { r.repetition_penalty = 1.5f; }) == "repetition_penalty");
  CHECK(field_of([](R& r) { r.model = "tiny"; }) == "block_length");

  HttpClient http(daemon);
  const HttpAnswer logprobs =
      http.ask("POST", "/v1/completions",
               R"({"model":"canvas","prompt":"the","max_tokens":8,"logprobs":1})");
  CHECK(logprobs.status == 400);
  CHECK_MESSAGE(logprobs.body.find("logprobs") != std::string::npos, logprobs.body);
}

TEST_CASE("canvas: over HTTP and from the command line") {
  const CanvasSandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest request = canvas(3, 24);
  request.steps = 12;
  request.remasking = "entropy";
  const Answer want = run(client, request);
  REQUIRE_MESSAGE(want.done, why(want));

  HttpClient http(daemon);
  const std::string fields =
      R"("model":"canvas","max_tokens":24,"seed":3,"temperature":1,"steps":12,"block_length":4,)"
      R"("remasking":"entropy","ignore_eos":true)";
  const HttpAnswer whole = http.ask("POST", "/v1/completions",
                                    R"({"prompt":"the","top_p":0.95,"top_k":40,)" + fields + "}");
  REQUIRE_MESSAGE(whole.status == 200, whole.body);
  const Json completion = Json::parse(whole.body);
  CHECK(completion["usage"]["completion_tokens"] == 24);
  const HttpAnswer streamed =
      http.ask("POST", "/v1/chat/completions",
               R"({"messages":[{"role":"user","content":"the"}],"stream":true,)" + fields + "}");
  REQUIRE_MESSAGE(streamed.status == 200, streamed.body);
  CHECK(streamed.body.find("data: [DONE]") != std::string::npos);

  const CommandOutcome printed =
      run_hearth(sandbox,
                 "run --no-start --raw --ids canvas --max-tokens 24 --seed 3 --steps 12 "
                 "--block-length 4 --remasking entropy --ignore-eos --temperature " +
                     std::to_string(*request.temperature) + " the");
  REQUIRE_MESSAGE(printed.status == 0, printed.err);
  std::string ids;
  for (const int32_t id : want.ids[0]) ids += std::to_string(id) + " ";
  CHECK(printed.out == ids);

  const CommandOutcome measured = run_hearth(sandbox, "bench --quick canvas");
  CHECK(measured.status != 0);
  CHECK_MESSAGE(measured.err.find("fills canvases") != std::string::npos, measured.err);
}

TEST_CASE("canvas: the bundled model fills one with words") {
  const Sandbox sandbox;
  std::filesystem::copy(hearth::tests::source_path("models/demo/tales-canvas.gguf"),
                        sandbox.models() / "canvas.gguf");
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest request = canvas(11, 64);
  request.block_length = 32;
  request.prompt = "Once upon a time there was";
  const Answer answer = run(client, request);
  REQUIRE_MESSAGE(answer.done, why(answer));
  const std::string& text = answer.texts[0];
  const auto is_plain = [](unsigned char c) { return std::isalpha(c) != 0 || c == ' '; };
  CHECK_MESSAGE(std::ranges::count_if(text, is_plain) * 10 > std::ssize(text) * 8, text);
  const bool has_words = text.find(" the ") != text.npos || text.find(" and ") != text.npos ||
                         text.find(" he ") != text.npos || text.find(" a ") != text.npos;
  CHECK_MESSAGE(has_words, text);
  CHECK(run(client, request).texts[0] == text);
}

}  // namespace
}  // namespace hearth::e2e
