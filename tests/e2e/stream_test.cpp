// What a client receives: streams, samples, stop strings, seeds, errors that name the problem.

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/e2e/daemon.h"
#include "tests/e2e/tiny_model.h"
#include "tests/skip.h"

namespace hearth::e2e {
namespace {

template <typename T>
int count_of(const Answer& answer) {
  int count = 0;
  for (const ipc::Event& event : answer.events) count += std::holds_alternative<T>(event) ? 1 : 0;
  return count;
}

TEST_CASE("a request is streamed: queued, started, deltas, sample_done, done") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  const Answer answer = run(client, seeded(5, 64));
  REQUIRE_MESSAGE(answer.done, why(answer));
  REQUIRE(answer.ids.size() == 1);
  CHECK(answer.ids[0].size() == 64);
  CHECK_FALSE(answer.texts[0].empty());
  CHECK(answer.done->finish_reasons == std::vector<std::string>{"length"});
  CHECK(answer.done->model == "tiny");
  CHECK(answer.done->seed == 5);
  CHECK(answer.done->usage.output_tokens == 64);
  CHECK(answer.done->usage.prompt_tokens > 0);
  CHECK(answer.done->resumed == 0);
  CHECK(answer.done->timings.ttft_ms > 0);
  CHECK(answer.done->timings.total_ms >= answer.done->timings.ttft_ms);
  CHECK(count_of<ipc::QueuedEvent>(answer) >= 1);  // the model had to be loaded
  CHECK(count_of<ipc::StartedEvent>(answer) == 1);
  CHECK(count_of<ipc::SampleDoneEvent>(answer) == 1);
}

TEST_CASE("a waiting request gets its place in the queue and an estimate from measured rates") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"worker.max_seqs=1"}, Company::kAlone);
  ipc::Client client = daemon.connect();
  ipc::Client watcher = daemon.connect();
  // The rate is that of this request.
  const Answer measured = run(client, seeded(1, 300));
  REQUIRE_MESSAGE(measured.done, why(measured));
  REQUIRE(client.start(seeded(2, 6000), "long").ok());
  REQUIRE(eventually([&] {
    const auto ps = watcher.ps();
    return ps.ok() && ps->requests.size() == 1 && ps->requests[0].state == "decode";
  }));
  REQUIRE(client.start(seeded(3, 8), "first").ok());
  REQUIRE(client.start(seeded(4, 8), "second").ok());
  auto answers = collect(client, 3);
  const auto waits_of = [&](const std::string& id) {
    std::vector<ipc::QueuedEvent> out;
    for (const ipc::Event& event : answers[id].events) {
      const auto* queued = std::get_if<ipc::QueuedEvent>(&event);
      if (queued != nullptr && queued->reason == "slots") out.push_back(*queued);
    }
    return out;
  };
  CHECK(waits_of("long").empty());
  const auto first = waits_of("first"), second = waits_of("second");
  REQUIRE_FALSE(first.empty());
  REQUIRE_FALSE(second.empty());
  for (const ipc::QueuedEvent& event : first) CHECK(event.position == 0);
  CHECK(second.front().position == 1);
  // As long as the measured one took, for each request that has to end before it: in whole
  // milliseconds, rounded down.
  const int64_t one_ms = first.front().estimate_ms;
  CHECK(one_ms > 0);
  CHECK(static_cast<double>(one_ms) <= measured.done->timings.total_ms);
  CHECK(second.front().estimate_ms >= 2 * one_ms);
  CHECK(second.front().estimate_ms <= 2 * one_ms + 1);
  CHECK(answers["first"].done->usage.output_tokens == 8);
  CHECK(answers["second"].done->usage.output_tokens == 8);
}

TEST_CASE("a real model gives the recorded text word for word") {
  const std::filesystem::path model = tests::test_data("models/stories260K-f32.gguf");
  const std::filesystem::path reference = tests::test_data("models/stories260K-reference.json");
  if (model.empty() || reference.empty()) HEARTH_SKIP("no stories260K in HEARTH_TEST_DATA");
  const Sandbox sandbox;
  std::filesystem::copy(model, sandbox.models());
  const Daemon daemon(sandbox, {"worker.kv_type=f32"});
  ipc::Client client = daemon.connect();
  std::ifstream file(reference);
  const auto cases = nlohmann::json::parse(file);
  REQUIRE(cases.size() == 3);
  for (const auto& each : cases) {
    ipc::GenerateRequest request;
    request.prompt = each["prompt"];
    request.max_tokens = 200;
    request.temperature = 0;
    const Answer answer = run(client, request);
    REQUIRE_MESSAGE(answer.done, why(answer));
    CHECK(answer.ids[0] == each["greedy_ids"].get<std::vector<int32_t>>());
    CHECK(answer.texts[0] == each["text"].get<std::string>());
  }
}

TEST_CASE("each of sixteen concurrent clients gets exactly the text it gets alone") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  constexpr uint64_t kClients = 16;
  std::vector<Answer> alone;
  {
    ipc::Client client = daemon.connect();
    for (uint64_t i = 0; i < kClients; ++i) {
      ipc::GenerateRequest request = seeded(100 + i, 120, "the abc " + std::string(i * 3, 'q'));
      request.cache = "off";
      alone.push_back(run(client, request));
      REQUIRE(alone.back().done);
    }
  }
  std::vector<ipc::Client> clients;
  for (uint64_t i = 0; i < kClients; ++i) clients.push_back(daemon.connect());
  for (uint64_t i = 0; i < kClients; ++i) {
    REQUIRE(clients[i].start(seeded(100 + i, 120, "the abc " + std::string(i * 3, 'q'))).ok());
  }
  for (uint64_t i = 0; i < kClients; ++i) {
    const auto answers = collect(clients[i], 1);
    REQUIRE(answers.size() == 1);
    const Answer& answer = answers.begin()->second;
    REQUIRE_MESSAGE(answer.done, why(answer));
    CHECK(answer.ids == alone[i].ids);
    CHECK(answer.texts == alone[i].texts);
  }
}

TEST_CASE("a seed reproduces its text; without one `done` reports the seed that was drawn") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest request = seeded(0, 40);
  request.seed.reset();
  const Answer first = run(client, request);
  const Answer other = run(client, request);
  REQUIRE(first.done);
  REQUIRE(other.done);
  CHECK(first.done->seed != other.done->seed);
  CHECK(first.ids != other.ids);
  request.seed = first.done->seed;
  CHECK(run(client, request).ids == first.ids);
}

TEST_CASE("samples of one request differ, share a seed, and are reproducible") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest request = seeded(9, 30);
  request.n = 4;
  const Answer answer = run(client, request);
  REQUIRE_MESSAGE(answer.done, why(answer));
  REQUIRE(answer.ids.size() == 4);
  CHECK(std::set<std::vector<int32_t>>(answer.ids.begin(), answer.ids.end()).size() == 4);
  CHECK(answer.done->finish_reasons.size() == 4);
  CHECK(answer.done->usage.output_tokens == 120);
  CHECK(count_of<ipc::SampleDoneEvent>(answer) == 4);
  CHECK(run(client, request).ids == answer.ids);
  request.n = 1;  // sample 0 does not depend on the others
  CHECK(run(client, request).ids[0] == answer.ids[0]);
}

TEST_CASE("a stop string ends the text before itself, however it is split into tokens") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  const Answer whole = run(client, seeded(21, 80));
  REQUIRE(whole.done);
  const std::string& text = whole.texts[0];
  REQUIRE(text.size() > 40);
  int tried = 0;
  for (size_t at = 10; at + 6 < text.size() && tried < 6; at += 9) {
    if (static_cast<unsigned char>(text[at]) >= 0x80 ||
        static_cast<unsigned char>(text[at + 5]) >= 0x80) {
      continue;
    }
    size_t length = 5;
    while ((static_cast<unsigned char>(text[at + length]) & 0xC0) == 0x80) ++length;
    ipc::GenerateRequest request = seeded(21, 80);
    request.stop = {text.substr(at, length), "never in this text"};
    const Answer answer = run(client, request);
    REQUIRE_MESSAGE(answer.done, why(answer));
    CHECK(answer.done->finish_reasons[0] == "stop");
    CHECK(answer.texts[0] == text.substr(0, text.find(request.stop[0])));
    CHECK(answer.ids[0].size() < 80);
    CHECK(answer.done->usage.output_tokens == static_cast<int32_t>(answer.ids[0].size()));
    ++tried;
  }
  CHECK(tried > 0);
  CHECK(daemon.wait_until_idle());
}

TEST_CASE("logprobs come one per token, with the requested number of alternatives") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest request = seeded(3, 25);
  request.logprobs = 3;
  request.prompt_logprobs = true;
  size_t tokens = 0;
  size_t prompt_logprobs = 0;
  ipc::GenerateCallbacks callbacks;
  callbacks.on_delta = [&](const ipc::Delta& delta) {
    CHECK(prompt_logprobs > 0);  // before any text
    CHECK(delta.logprobs.size() == delta.ids.size());
    for (const ipc::TokenLogprobs& each : delta.logprobs) {
      CHECK(each.logprob <= 0.0f);
      CHECK(each.top.size() == 3);
    }
    tokens += delta.ids.size();
  };
  callbacks.on_event = [&](const ipc::Event& event) {
    if (const auto* prompt = std::get_if<ipc::PromptLogprobsEvent>(&event)) {
      prompt_logprobs = prompt->logprobs.size();
    }
  };
  const Result<ipc::DoneEvent> done = client.generate(request, callbacks);
  REQUIRE(done.ok());
  CHECK(tokens == 25);
  CHECK(prompt_logprobs == static_cast<size_t>(done->usage.prompt_tokens) - 1);
}

TEST_CASE("a prompt that was computed before is found in the cache, and the text is unchanged") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  std::string prompt;
  for (int i = 0; i < 100; ++i) prompt += "the abc xyz ";
  const Answer first = run(client, seeded(4, 30, prompt));
  const Answer second = run(client, seeded(4, 30, prompt));
  REQUIRE(first.done);
  REQUIRE(second.done);
  CHECK(first.done->usage.cached_tokens == 0);
  CHECK(second.done->usage.cached_tokens > 100);
  CHECK(second.ids == first.ids);
}

TEST_CASE("drafts by lookup and by a draft model: the same text, and done reports how many") {
  const Sandbox sandbox;
  std::filesystem::create_directories(sandbox.models());
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  // The same weights under another name draft only right tokens.
  write_tiny_model(sandbox.path() / "copy.gguf", 1);
  ipc::GenerateRequest loop = seeded(4, 60);
  loop.temperature = 0;  // random weights soon repeat themselves
  ipc::GenerateRequest plain = loop;
  plain.speculate = false;
  Answer want;
  {
    const Daemon daemon(sandbox);
    ipc::Client client = daemon.connect();
    want = run(client, plain);
    REQUIRE_MESSAGE(want.done, why(want));
    CHECK(want.done->usage.drafted_tokens == 0);
    const Answer drafted = run(client, loop);
    REQUIRE_MESSAGE(drafted.done, why(drafted));
    CHECK(drafted.ids == want.ids);
    CHECK(drafted.texts == want.texts);
    CHECK(drafted.done->usage.accepted_tokens <= drafted.done->usage.drafted_tokens);
  }
  for (const char* draft : {"copy.gguf", "nowhere.gguf"}) {
    const Daemon daemon(sandbox, {"worker.draft=" + (sandbox.path() / draft).string()});
    ipc::Client client = daemon.connect();
    const Answer drafted = run(client, loop);
    REQUIRE_MESSAGE(drafted.done, why(drafted));
    CHECK(drafted.ids == want.ids);
    const ipc::SpeculationStats& counts = drafted.done->speculation;
    CHECK(counts.drafted_tokens == static_cast<uint64_t>(drafted.done->usage.drafted_tokens));
    CHECK(counts.drafted_at.size() == counts.accepted_at.size());
    // By name: the loaded one, or refused.
    ipc::GenerateRequest named = loop;
    named.draft = "copy";
    const Answer answer = run(client, named);
    if (std::string(draft) == "copy.gguf") {
      REQUIRE_MESSAGE(answer.done, why(answer));
      CHECK(answer.ids == want.ids);
    } else {
      REQUIRE(answer.error);
      CHECK(answer.error->field == "draft");
    }
  }
  const Daemon off(sandbox, {"worker.speculation=off"});
  ipc::Client client = off.connect();
  const Answer answer = run(client, loop);
  REQUIRE_MESSAGE(answer.done, why(answer));
  CHECK(answer.ids == want.ids);
  CHECK(answer.done->usage.drafted_tokens == 0);
}

TEST_CASE("heads next to a model are its draft: the same text; heads of another model are none") {
  const Sandbox sandbox;
  std::filesystem::create_directories(sandbox.models());
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  ipc::GenerateRequest loop = seeded(4, 60);
  loop.temperature = 0;
  ipc::GenerateRequest plain = loop, named = loop, none = loop;
  plain.speculate = false;
  none.draft = "none";
  // Of several files, the last kind comes first.
  for (const auto& [kind, other] : {std::pair<std::string, bool>{"medusa", false},
                                    {"medusa", true},
                                    {"eagle3", false},
                                    {"eagle3", true},
                                    {"dflash", false},
                                    {"dflash", true}}) {
    CAPTURE(kind);
    CAPTURE(other);
    named.draft = "tiny-" + kind;
    const std::filesystem::path heads = sandbox.models() / (named.draft + ".gguf");
    const auto write = kind == "medusa"   ? write_tiny_heads
                       : kind == "eagle3" ? write_tiny_eagle3
                                          : write_tiny_dflash;
    write(heads, other);
    const Daemon daemon(sandbox);
    ipc::Client client = daemon.connect();
    const Answer want = run(client, plain);
    REQUIRE_MESSAGE(want.done, why(want));
    for (const ipc::GenerateRequest& request : {loop, none}) {
      const Answer drafted = run(client, request);
      REQUIRE_MESSAGE(drafted.done, why(drafted));
      CHECK(drafted.ids == want.ids);
      for (const ipc::ProposerStats& by : drafted.done->speculation.by) {
        CHECK((by.name == "lookup" || (by.name == kind && !other && request.draft != "none")));
      }
    }
    const Answer answer = run(client, named);
    CHECK(answer.done.has_value() == !other);
    if (other) {
      REQUIRE(answer.error);
      CHECK(answer.error->field == "draft");
    } else {
      CHECK(answer.ids == want.ids);
    }
  }
}

TEST_CASE("a context that is too small is an error with both sizes") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"worker.context_length=100"});
  ipc::Client client = daemon.connect();
  const Answer answer = run(client, seeded(1, 200));
  REQUIRE(answer.error);
  CHECK(answer.error->code == ErrorCode::kContextOverflow);
  CHECK(answer.error->message.find("200") != std::string::npos);
  CHECK(answer.error->message.find("holds 100") != std::string::npos);
  const Answer huge = run(client, seeded(1, 1, std::string(1'000'000, 'a')));
  REQUIRE(huge.error);
  CHECK(huge.error->code == ErrorCode::kContextOverflow);
  CHECK(huge.error->message.find("1000000 bytes") != std::string::npos);
  CHECK(run(client, seeded(1, 20)).done.has_value());
}

TEST_CASE("a deadline ends a request with the text it has so far") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  run(client, seeded(1, 1));  // loaded
  ipc::GenerateRequest request = seeded(1, kTinyContext - 100);
  request.deadline_ms = 150;
  const Answer answer = run(client, request);
  REQUIRE_MESSAGE(answer.done, why(answer));
  CHECK(answer.done->finish_reasons[0] == "deadline");
  CHECK(answer.ids[0].size() < static_cast<size_t>(request.max_tokens));
}

TEST_CASE("tokenize, models, ps, stats and health answer") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"roles.small=tiny"});
  ipc::Client client = daemon.connect();
  const Result<ipc::TokenizeReply> tokens = client.tokenize({.model = "small", .text = "the abc"});
  REQUIRE(tokens.ok());
  CHECK(tokens->model == "tiny");
  CHECK(tokens->ids.size() == tokens->entries.size());
  CHECK(tokens->ids.size() > 1);

  const Result<ipc::ModelsReply> models = client.models();
  REQUIRE(models.ok());
  REQUIRE(models->models.size() == 1);
  CHECK(models->models[0].name == "tiny");
  CHECK(models->models[0].roles == std::vector<std::string>{"default", "small"});
  CHECK(models->models[0].state == "resident");
  CHECK(models->models[0].context_length == kTinyContext);

  const Result<std::string> id = client.start(seeded(1, 8000), "my-request");
  REQUIRE(id.ok());
  const Result<ipc::PsReply> ps = client.ps();
  REQUIRE(ps.ok());
  REQUIRE(ps->requests.size() == 1);
  CHECK(ps->requests[0].id == "my-request");
  CHECK(ps->requests[0].model == "tiny");
  REQUIRE(client.cancel("my-request").ok());
  const auto answers = collect(client, 1);
  REQUIRE_MESSAGE(answers.at("my-request").done, why(answers.at("my-request")));
  CHECK(answers.at("my-request").done->finish_reasons[0] == "cancelled");

  CHECK(client.health()->status == "ok");
  const Result<ipc::StatsReply> stats = client.stats();
  REQUIRE(stats.ok());
  CHECK(stats->requests_cancelled == 1);
  REQUIRE(stats->workers.size() == 1);
  // A worker on the CPU reports no GPU.
  CHECK_FALSE(stats->workers[0].snapshot.gpu.has_value());
  REQUIRE(ps->models.size() == 1);
  CHECK_FALSE(ps->models[0].gpu.has_value());
}

TEST_CASE(
    "an unknown model's error lists the known ones; a path is refused; a broken file's error gives "
    "the reason") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  std::ofstream(sandbox.models() / "broken.gguf") << "GGUF and then nothing of the kind";
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest request = seeded(1, 5);
  request.model = "missing";
  Answer answer = run(client, request);
  REQUIRE(answer.error);
  CHECK(answer.error->code == ErrorCode::kNotFound);
  CHECK(answer.error->message.find("broken, tiny") != std::string::npos);
  request.model = "../models/tiny";
  answer = run(client, request);
  REQUIRE(answer.error);
  CHECK(answer.error->code == ErrorCode::kForbidden);
  // The daemon's own user may name a model's file; this is not one.
  request.model = "/etc/passwd";
  answer = run(client, request);
  REQUIRE(answer.error);
  CHECK(answer.error->code == ErrorCode::kNotFound);
  request.model = "broken";
  answer = run(client, request);
  REQUIRE(answer.error);
  CHECK(answer.error->code != ErrorCode::kInternal);
  CHECK(answer.error->code != ErrorCode::kUnavailable);
  CHECK(client.health()->status == "degraded");
  request.model = "tiny";
  CHECK(run(client, request).done.has_value());
}

TEST_CASE("with room for one model, another replaces it once no request uses it") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "one.gguf", 1);
  write_tiny_model(sandbox.models() / "two.gguf", 2);
  const Daemon daemon(sandbox, {"limits.max_resident=1"});
  ipc::Client client = daemon.connect();
  ipc::GenerateRequest one = seeded(1, 2000);
  one.model = "one";
  ipc::GenerateRequest two = seeded(1, 20);
  two.model = "two";
  REQUIRE(client.start(one, "one").ok());
  REQUIRE(client.start(two, "two").ok());
  auto answers = collect(client, 2);
  REQUIRE_MESSAGE(answers["one"].done, why(answers["one"]));
  REQUIRE_MESSAGE(answers["two"].done, why(answers["two"]));
  CHECK(answers["one"].done->model == "one");
  CHECK(answers["two"].done->model == "two");
  CHECK(answers["one"].done->resumed == 0);
  bool said_busy = false;
  for (const ipc::Event& event : answers["two"].events) {
    const auto* queued = std::get_if<ipc::QueuedEvent>(&event);
    if (queued != nullptr && queued->reason == "busy") said_busy = true;
  }
  CHECK(said_busy);
  CHECK(daemon.stats().workers.size() == 1);
}

}  // namespace
}  // namespace hearth::e2e
