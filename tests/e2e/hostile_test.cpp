// What arrives may be anything. The daemon answers what it can address, drops the rest, and another
// client's stream is not changed by a letter.

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/e2e/daemon.h"
#include "tests/e2e/raw_client.h"
#include "tests/e2e/tiny_model.h"
#include "tests/skip.h"

namespace hearth::e2e {
namespace {

using Json = nlohmann::json;

// The error that answers `id`, by its wire code; "" when none comes.
Json error_for(RawClient& client, const std::string& id) {
  while (const auto frames = client.receive(10'000)) {
    if (frames->size() == 4 && frames->at(1) == id) return Json::parse(frames->at(3));
  }
  return {};
}

std::string bytes_of(std::mt19937& random, size_t max) {
  std::string out(random() % (max + 1), '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

TEST_CASE("every number at its extremes is an error that names its field, or is served") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {"worker.context_length=256"});
  ipc::Client watcher = daemon.connect();
  const Answer before = run(watcher, seeded(42, 60));
  REQUIRE(before.done);
  RawClient client(daemon);
  const std::vector<std::string> fields = {"n",
                                           "max_tokens",
                                           "min_tokens",
                                           "temperature",
                                           "top_k",
                                           "top_p",
                                           "min_p",
                                           "typical_p",
                                           "logprobs",
                                           "repetition_penalty",
                                           "presence_penalty",
                                           "frequency_penalty",
                                           "deadline_ms",
                                           "penalty_window",
                                           "seed"};
  const std::vector<std::string> values = {"-1",
                                           "0",
                                           "1e308",
                                           "-1e308",
                                           "9223372036854775808",
                                           "NaN",
                                           "1e999",
                                           "0.5",
                                           "null",
                                           "\"1\"",
                                           "[]",
                                           "{}",
                                           "true",
                                           "18446744073709551616",
                                           "-9223372036854775809"};
  int number = 0;
  for (const std::string& field : fields) {
    for (const std::string& value : values) {
      const std::string id = "x" + std::to_string(number++);
      client.send_json(id, R"({"verb":"generate","prompt":"the","max_tokens":4,)" +
                               std::string(field == "max_tokens" ? R"("n":1,)" : "") + "\"" +
                               field + "\":" + value + "}");
      const auto last = [&]() -> Json {
        while (const auto frames = client.receive()) {
          if (frames->at(1) != id || frames->at(2) != "event") continue;
          Json event = Json::parse(frames->at(3));
          if (event["event"] == "done" || event["event"] == "error") return event;
        }
        return {};
      }();
      CAPTURE(field);
      CAPTURE(value);
      REQUIRE(last.is_object());
      if (last["event"] != "error") continue;
      const std::string code = last["code"];
      const std::string message = last["message"];
      CHECK(code != "internal");
      CHECK((message.find(field) != std::string::npos || last["field"] == field ||
             code == "protocol"));  // NaN is no JSON at all
    }
  }
  const Answer after = run(watcher, seeded(42, 60));
  CHECK(after.ids == before.ids);
}

TEST_CASE("what can be addressed is answered with the place, whatever else is wrong") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  RawClient client(daemon);
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"HEARTH/1", "a1", "{"}, "protocol"},
      {{"HEARTH/1", "a2", ""}, "protocol"},
      {{"HEARTH/1", "a3", "[1,2]"}, "protocol"},
      {{"HEARTH/1", "a4", "{\"verb\":\"nothing\"}"}, "protocol"},
      {{"HEARTH/1", "a5", "{\"verb\":\"generate\",\"prompt\":\"a\",\"promt\":1}"}, "unknown_field"},
      {{"HEARTH/9", "a6", "{\"verb\":\"ping\"}"}, "protocol"},
      {{"HEARTH/1", "a7", "{\"verb\":\"ping\"}", "more"}, "protocol"},
      {{"HEARTH/1", "a8"}, "protocol"},
      {{"HEARTH/1", "a9", "{\"verb\":\"generate\",\"prompt\":\"\xFF\xFE\"}"}, ""},
      {{"HEARTH/1", "b1", std::string(100'000, '[')}, ""},
      {{"HEARTH/1", "b2", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}, "protocol"},
  };
  for (const auto& [frames, code] : cases) {
    client.send(frames);
    const Json error = error_for(client, frames[1]);
    CAPTURE(frames[1]);
    REQUIRE(error.is_object());
    CHECK(error["event"] == "error");
    if (!code.empty()) CHECK(error["code"] == code);
    CHECK(error["message"].get<std::string>().size() > 5);
  }
  // Nothing here says what it would answer: dropped, and the connection goes on.
  client.send({"HEARTH/1", std::string(65, 'i'), "{\"verb\":\"ping\"}"});
  client.send({"HEARTH/1", "", "{\"verb\":\"ping\"}"});
  client.send({"HEARTH/1", "with blank", "{\"verb\":\"ping\"}"});
  client.send({""});
  client.send_json("alive", "{\"verb\":\"ping\"}");
  CHECK(error_for(client, "alive")["verb"] == "ping");
}

TEST_CASE("a flood of noise changes nothing of another client's stream") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  ipc::Client client = daemon.connect();
  const ipc::GenerateRequest request = seeded(8, 3000);
  const Answer want = run(client, request);
  REQUIRE(want.done);

  const std::vector<std::string> good = {
      R"({"verb":"generate","prompt":"the abc","max_tokens":3,"stop":["x"],"logit_bias":[[5,1.5]]})",
      R"({"verb":"tokenize","text":"the abc"})", R"({"verb":"cancel","id":"q"})",
      R"({"verb":"stats"})"};
  RawClient noise(daemon);
  std::mt19937 random(99);
  const int limit = tests::full_counts() ? 200'000 : 5'000;
  int sent = 0;
  const auto make_noise = [&](int count) {
    for (int i = 0; i < count && sent < limit; ++i, ++sent) {
      std::vector<std::string> frames;
      if (random() % 3 == 0) {
        for (size_t f = random() % 6; f > 0; --f) frames.push_back(bytes_of(random, 64));
        if (frames.empty()) frames.emplace_back();
      } else {  // something valid with a few bytes changed
        std::string json = good[random() % good.size()];
        for (size_t changes = random() % 4; changes > 0; --changes) {
          json[random() % json.size()] = static_cast<char>(random());
        }
        frames = {"HEARTH/1", "n" + std::to_string(sent),
                  json.substr(0, random() % 2 == 0 ? json.size() : random() % json.size())};
      }
      noise.send(frames);
      while (noise.receive(0)) {
      }
    }
  };
  int turns = 0;
  const Answer answer = run(client, request, [&](const Answer&) {
    if (turns++ % 10 == 0) make_noise(50);
  });
  REQUIRE_MESSAGE(answer.done, why(answer));
  CHECK(answer.ids == want.ids);
  CHECK(answer.texts == want.texts);
  make_noise(limit);
  noise.send_json("end", "{\"verb\":\"ping\"}");
  bool pong = false;
  while (const auto frames = noise.receive()) {
    if (frames->size() == 4 && frames->at(1) == "end") {
      pong = true;
      break;
    }
  }
  CHECK(pong);
  CHECK(daemon.wait_until_idle());
  CHECK(daemon.stats().workers[0].restarts == 0);
}

}  // namespace
}  // namespace hearth::e2e
