// Published models served by the real daemon: conversations in every API, answers bound to a
// schema, prefixes, swaps under streams, speculation.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/e2e/daemon.h"
#include "tests/e2e/http_client.h"
#include "tests/paths.h"
#include "tests/published/published_model.h"

namespace hearth::published {
namespace {

namespace fs = std::filesystem;
using e2e::Answer;
using e2e::Daemon;
using e2e::Sandbox;
using Json = nlohmann::json;

const std::string kKvBytes = "worker.kv_bytes=268435456";

/// A sandbox whose models are links to these files, with the same names.
void link_models(const Sandbox& sandbox, const std::vector<fs::path>& files) {
  for (const fs::path& file : files) {
    fs::create_symlink(file, sandbox.models() / file.filename());
  }
}

Answer answered(ipc::Client& client, const ipc::GenerateRequest& request) {
  Answer answer = e2e::run(client, request);
  REQUIRE_MESSAGE(answer.done.has_value(), e2e::why(answer));
  return answer;
}

ipc::GenerateRequest asking(const Model& model, const std::string& prompt, float temperature,
                            int32_t max_tokens) {
  ipc::GenerateRequest request;
  request.model = model.name;
  request.prompt = prompt;
  request.temperature = temperature;
  request.seed = 7;
  request.max_tokens = max_tokens;
  return request;
}

std::string story() { return e2e::text_of(hearth::tests::source_path("tests/published/text.txt")); }

Json posted(e2e::HttpClient& http, const std::string& path, const Json& body) {
  const e2e::HttpAnswer answer = http.ask("POST", path, body.dump());
  REQUIRE_MESSAGE(answer.status == 200, answer.body);
  return Json::parse(answer.body);
}

TEST_CASE("SmolLM2: a conversation has the same answer over ZeroMQ, OpenAI's API and Anthropic's") {
  HEARTH_NEEDS_MODEL(kSmolLm2);
  const Sandbox sandbox;
  link_models(sandbox, {file_of(kSmolLm2)});
  const Daemon daemon(sandbox, {kKvBytes});
  ipc::Client client = daemon.connect();
  const Json chat = recorded(kSmolLm2).at("chat");
  ipc::GenerateRequest request = asking(kSmolLm2, "", 0, 40);
  request.messages.text = chat.at("messages").dump();
  const Answer plain = answered(client, request);
  CHECK(plain.texts.at(0).find("Rome") != std::string::npos);
  CHECK(plain.done->finish_reasons.at(0) == "stop");
  // The prompt that Python's jinja2 renders from the file's template, as text.
  ipc::GenerateRequest rendered = asking(kSmolLm2, chat.at("prompt"), 0, 40);
  rendered.parse_special = true;
  CHECK(answered(client, rendered).ids == plain.ids);

  e2e::HttpClient http(daemon);
  const Json ask = {{"model", kSmolLm2.name},
                    {"messages", chat.at("messages")},
                    {"temperature", 0},
                    {"max_tokens", 40}};
  const Json openai = posted(http, "/v1/chat/completions", ask);
  CHECK(openai["choices"][0]["message"]["content"] == plain.texts.at(0));
  CHECK(openai["choices"][0]["finish_reason"] == "stop");
  CHECK(openai["usage"]["prompt_tokens"] == chat.at("ids").size());
  Json anthropic = ask;  // the system message is a separate field there
  anthropic["system"] = ask["messages"][0]["content"];
  anthropic["messages"].erase(anthropic["messages"].begin());
  const Json message = posted(http, "/v1/messages", anthropic);
  CHECK(message["content"][0]["text"] == plain.texts.at(0));
  CHECK(message["stop_reason"] == "end_turn");
  CHECK(message["usage"]["output_tokens"] == plain.done->usage.output_tokens);
}

TEST_CASE("SmolLM2: answers bound to a schema are valid") {
  HEARTH_NEEDS_MODEL(kSmolLm2);
  const Sandbox sandbox;
  link_models(sandbox, {file_of(kSmolLm2)});
  const Daemon daemon(sandbox, {kKvBytes});
  ipc::Client client = daemon.connect();
  const Json schema = Json::parse(R"({"type":"object","properties":{
      "city":{"type":"string","maxLength":20},"population":{"type":"integer","minimum":0,"maximum":99999999},
      "capital":{"type":"boolean"},"rivers":{"type":"array","items":{"type":"string","maxLength":15},"maxItems":3}},
      "required":["city","population","capital","rivers"],"additionalProperties":false})");
  const auto check = [&](const std::string& text) {
    CAPTURE(text);
    const Json value = Json::parse(text, nullptr, false);
    REQUIRE(value.is_object());
    CHECK(value.size() == 4);
    CHECK(value.at("city").get<std::string>().size() <= 4 * 20);
    CHECK(value.at("population").is_number_integer());
    CHECK(value.at("population").get<int64_t>() >= 0);
    CHECK(value.at("capital").is_boolean());
    REQUIRE(value.at("rivers").is_array());
    CHECK(value.at("rivers").size() <= 3);
    for (const Json& river : value.at("rivers")) CHECK(river.is_string());
  };
  const Json messages = {{{"role", "user"}, {"content", "Describe Paris as JSON."}}};
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    ipc::GenerateRequest request = asking(kSmolLm2, "", seed == 1 ? 0.0f : 1.0f, 200);
    request.messages.text = messages.dump();
    request.json_schema = schema.dump();
    request.seed = seed;
    const Answer answer = answered(client, request);
    CHECK(answer.done->finish_reasons.at(0) == "stop");
    check(answer.texts.at(0));
  }
  e2e::HttpClient http(daemon);
  const Json body = {{"model", kSmolLm2.name},
                     {"messages", messages},
                     {"max_tokens", 200},
                     {"seed", 3},
                     {"response_format",
                      {{"type", "json_schema"},
                       {"json_schema", {{"name", "city"}, {"schema", schema}, {"strict", true}}}}}};
  check(posted(http, "/v1/chat/completions", body)["choices"][0]["message"]["content"]);
}

void prefixes(const Model& model) {
  const Sandbox sandbox;
  link_models(sandbox, {file_of(model)});
  const std::vector<std::string> settings = {kKvBytes, "worker.prefix_restore=always"};
  const std::string text = story();
  // One prompt for each way in which the daemon ends, greedy and drawn.
  const std::vector<ipc::GenerateRequest> requests = {
      asking(model, text.substr(0, 2000), 0, 40), asking(model, text.substr(2000, 2000), 0.8f, 40)};
  std::vector<std::vector<int32_t>> want;
  const auto saved = [](const Daemon& daemon) {
    const ipc::StatsReply reply = daemon.stats();
    return reply.workers.empty() ? 0 : reply.workers.front().snapshot.store.chunks_saved;
  };
  {
    Daemon daemon(sandbox, settings);
    ipc::Client client = daemon.connect();
    for (const ipc::GenerateRequest& request : requests) {
      const Answer cold = answered(client, request);
      CHECK(cold.done->usage.cached_tokens == 0);
      want.push_back(cold.ids.at(0));
      const Answer warm = answered(client, request);
      CHECK(warm.done->usage.cached_tokens == (warm.done->usage.prompt_tokens - 1) / 16 * 16);
      CHECK(warm.done->usage.cached_disk_tokens == 0);
      CHECK(warm.ids.at(0) == want.back());
    }
    REQUIRE(e2e::eventually([&] { return saved(daemon) >= requests.size(); }, 50));
    daemon.signal(SIGTERM);
    CHECK(daemon.wait_for_exit() == 0);
  }
  for (const bool killed : {false, true}) {
    CAPTURE(killed);
    Daemon daemon(sandbox, settings);
    ipc::Client client = daemon.connect();
    for (size_t i = 0; i < requests.size(); ++i) {
      const Answer restored = answered(client, requests[i]);
      CHECK(restored.done->usage.cached_disk_tokens > 0);
      CHECK(restored.ids.at(0) == want[i]);
    }
    if (killed) break;
    // A worker and a broker that die at once: the next daemon finds what was saved.
    const pid_t worker = daemon.wait_for_worker();
    ::kill(worker, SIGKILL);
    daemon.signal(SIGKILL);
    daemon.wait_for_exit();
  }
}

TEST_CASE(
    "SmolLM2: the same tokens cold, from memory, from disk after a restart and after kill -9") {
  HEARTH_NEEDS_MODEL(kSmolLm2);
  prefixes(kSmolLm2);
}

TEST_CASE(
    "Gemma 3: the same tokens cold, from memory, from disk after a restart and after kill -9") {
  HEARTH_NEEDS_MODEL(kGemma3);
  prefixes(kGemma3);
}

/// Continuous streams to the role while it is swapped between two models.
void swaps(const fs::path& first, const fs::path& second, int count) {
  const Sandbox sandbox;
  link_models(sandbox, {first, second});
  const std::string names[] = {first.stem().string(), second.stem().string()};
  const Daemon daemon(sandbox, {"worker.kv_bytes=67108864", "limits.max_resident=2"});
  const auto request_of = [](const std::string& model, uint64_t seed) {
    ipc::GenerateRequest request;
    request.model = model;
    request.prompt = "Once upon a time";
    request.max_tokens = 60;
    request.seed = seed;
    request.ignore_eos = true;
    return request;
  };
  struct Stream {
    std::vector<std::pair<std::pair<std::string, uint64_t>, std::vector<int32_t>>> texts;
    std::vector<std::string> problems;
  };
  ipc::Client admin = daemon.connect();
  REQUIRE(admin.swap({.role = "default", .model = names[0]}).ok());
  std::atomic<bool> stop = false;
  std::atomic<int> answers[2] = {0, 0};  // of the first and the second model
  std::vector<Stream> streams(3);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < streams.size(); ++i) {
    threads.emplace_back([&, i] {
      Stream& stream = streams[i];
      Result<ipc::Client> client = ipc::Client::connect(daemon.client_options());
      if (!client) return stream.problems.push_back(client.error().message);
      for (uint64_t seed = i; !stop; seed = (seed + 1) % 3) {
        std::vector<int32_t> ids;
        ipc::GenerateCallbacks callbacks;
        callbacks.on_delta = [&](const ipc::Delta& delta) {
          ids.insert(ids.end(), delta.ids.begin(), delta.ids.end());
        };
        const Result<ipc::DoneEvent> done =
            client->generate(request_of("default", seed), callbacks);
        if (!done) return stream.problems.push_back(done.error().message);
        ++answers[done->model == names[1] ? 1 : 0];
        stream.texts.push_back({{done->model, seed}, std::move(ids)});
      }
    });
  }
  for (int i = 1; i <= count; ++i) {
    const Result<ipc::SwapReply> reply = admin.swap({.role = "default", .model = names[i % 2]});
    CHECK_MESSAGE(reply.ok(), (reply.ok() ? "" : reply.error().message));
    // Until it has served, so that every swap happens under streams of the other model.
    const int before = answers[i % 2];
    CHECK(e2e::eventually([&] { return answers[i % 2] > before; }));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  std::map<std::pair<std::string, uint64_t>, std::vector<int32_t>> want;
  for (const std::string& name : names) {
    for (uint64_t seed = 0; seed < 3; ++seed) {
      want[{name, seed}] = answered(admin, request_of(name, seed)).ids.at(0);
    }
  }
  std::map<std::string, int> by_model;
  for (const Stream& stream : streams) {
    CHECK(stream.problems == std::vector<std::string>{});
    for (const auto& [key, ids] : stream.texts) {
      CHECK(ids == want.at(key));
      ++by_model[key.first];
    }
  }
  CHECK(by_model.size() == 2);
}

TEST_CASE("a role is swapped between SmolLM2 and the bundled model under streams") {
  HEARTH_NEEDS_MODEL(kSmolLm2);
  swaps(file_of(kSmolLm2), hearth::tests::source_path("models/demo/tales.gguf"), 4);
}

TEST_CASE("a role is swapped between SmolLM2 and Gemma 3 under streams") {
  HEARTH_NEEDS_MODEL(kGemma3);
  HEARTH_NEEDS_MODEL(kSmolLm2);
  swaps(file_of(kSmolLm2), file_of(kGemma3), 10);
}

void speculation(const Model& model) {
  const Sandbox sandbox;
  link_models(sandbox, {file_of(model)});
  const Daemon daemon(sandbox, {kKvBytes});
  ipc::Client client = daemon.connect();
  // The model continues a list that the prompt has begun, so that lookup finds something.
  const std::string prompt =
      "one two three four five six seven eight nine ten\none two three four five six seven eight "
      "nine ten\none two three four";
  for (const float temperature : {0.0f, 0.8f}) {
    CAPTURE(temperature);
    int32_t drafted = 0, accepted = 0;
    for (uint64_t seed = 1; seed <= (temperature == 0 ? 1u : 4u); ++seed) {
      ipc::GenerateRequest request = asking(model, prompt, temperature, 80);
      request.seed = seed;
      request.ignore_eos = true;
      request.speculate = false;
      const Answer plain = answered(client, request);
      CHECK(plain.done->usage.drafted_tokens == 0);
      request.speculate = true;
      const Answer speculated = answered(client, request);
      CHECK(speculated.ids == plain.ids);
      CHECK(speculated.texts == plain.texts);
      drafted += speculated.done->usage.drafted_tokens;
      accepted += speculated.done->usage.accepted_tokens;
    }
    MESSAGE("temperature " << temperature << ": " << accepted << " of " << drafted << " accepted");
    CHECK(drafted > 0);
    CHECK(accepted > 0);
  }
}

TEST_CASE("SmolLM2: the same tokens with speculation and without, greedy and drawn") {
  HEARTH_NEEDS_MODEL(kSmolLm2);
  speculation(kSmolLm2);
}

TEST_CASE("Gemma 3: the same tokens with speculation and without, greedy and drawn") {
  HEARTH_NEEDS_MODEL(kGemma3);
  speculation(kGemma3);
}

TEST_CASE(
    "SmolLM2 and the bundled model stay resident in 2 GiB, and idle take little but weights") {
  HEARTH_NEEDS_MODEL(kSmolLm2);
  const Sandbox sandbox;
  const fs::path tales = hearth::tests::source_path("models/demo/tales.gguf");
  const bool gemma = !file_of(kGemma3).empty();
  link_models(sandbox, {file_of(kSmolLm2), gemma ? file_of(kGemma3) : tales});
  // worker.kv_bytes=0: the room that the daemon gives by itself.
  const Daemon daemon(sandbox, {"worker.kv_bytes=0", "residency.memory_bytes=2147483648"},
                      e2e::Company::kAlone);
  ipc::Client client = daemon.connect();
  const std::vector<std::string> names = {kSmolLm2.name, gemma ? kGemma3.name : "tales"};
  for (const std::string& name : names) {
    ipc::GenerateRequest request;
    request.model = name;
    request.prompt = "Once upon a time";
    request.temperature = 0;
    request.max_tokens = 40;
    answered(client, request);
  }
  // They pack their weights and give unused memory back in idle moments.
  int64_t beyond = 0;
  const auto settled = [&] {
    const Result<ipc::ModelsReply> models = client.models();
    REQUIRE(models.ok());
    beyond = 0;
    for (const ipc::ModelEntry& model : models->models) {
      if (model.state != "resident") return false;
      const std::string status = e2e::text_of(fmt::format("/proc/{}/status", model.worker_pid));
      const size_t at = status.find("RssAnon:");
      if (at == status.npos) return false;
      beyond += std::stoll(status.substr(at + 8)) * 1024 - static_cast<int64_t>(model.weight_bytes);
    }
    return beyond <= int64_t{100} << 20;
  };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)settled;  // a sanitizer's own memory counts, too
#else
  CHECK_MESSAGE(e2e::eventually(settled, 100), beyond << " bytes beyond the weights");
#endif
  const auto after = client.models();
  REQUIRE(after.ok());
  for (const ipc::ModelEntry& model : after->models) CHECK(model.state == "resident");
}

}  // namespace
}  // namespace hearth::published
