// What a router or a probe asks of the real daemon: /ready and /metrics.

#include <doctest/doctest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tests/e2e/http_client.h"
#include "tests/e2e/tiny_model.h"

namespace hearth::e2e {
namespace {

using Json = nlohmann::json;

TEST_CASE(
    "a router finds the load, the KV blocks and the waits of a model, and when to send none") {
  const Sandbox sandbox;
  Daemon daemon(sandbox);
  HttpClient http(daemon);
  CHECK(http.ask("GET", "/ready").status == 200);
  REQUIRE(http.ask("POST", "/v1/completions",
                   R"({"model":"tiny","prompt":"the","max_tokens":8,"ignore_eos":true})")
              .status == 200);
  const auto has = [&](std::string_view line) {
    return http.ask("GET", "/metrics").body.find(line) != std::string::npos;
  };
  // The worker reports its engine's figures a few times a second.
  CHECK(eventually([&] { return has("\nvllm:kv_cache_usage_perc{model_name=\"tiny\"} 0\n"); }));
  CHECK(eventually([&] { return has("\nvllm:num_requests_running{model_name=\"tiny\"} 0\n"); }));
  CHECK(eventually([&] { return has("\nvllm:num_requests_waiting{model_name=\"tiny\"} 0\n"); }));
  CHECK(has("\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\""));
  CHECK_FALSE(has("num_gpu_blocks=\"0\""));
  CHECK(has("\nvllm:time_to_first_token_seconds_count{model_name=\"tiny\"} 1\n"));
  CHECK(has("\nhearth_token_gap_seconds_count{model=\"tiny\"} "));  // 0 if all came at once

  ipc::Client client = daemon.connect();
  bool asked = false;
  run(client, seeded(1, kTinyContext - 100), [&](const Answer& so_far) {
    if (asked || so_far.ids[0].size() < 5) return;
    asked = true;
    daemon.signal(SIGTERM);
    CHECK(eventually([&] { return http.ask("GET", "/health").status == 503; }));
    const HttpAnswer ready = http.ask("GET", "/ready");
    CHECK(ready.status == 503);
    CHECK(ready.body.find("stopping") != std::string::npos);
    HttpClient head(daemon);
    head.send("HEAD /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    CHECK(head.read(13) == "HTTP/1.1 503 ");
    daemon.signal(SIGTERM);  // ends the request
  });
  CHECK(asked);
}

TEST_CASE("without a model that can be served the daemon is not ready, until there is one") {
  const Sandbox sandbox;
  std::ofstream(sandbox.models() / "notes.txt") << "no model";
  const Daemon daemon(sandbox);
  HttpClient http(daemon);
  const auto reason = [&]() -> std::string {
    const HttpAnswer ready = http.ask("GET", "/ready");
    const Json body = Json::parse(ready.body);
    CHECK(ready.status == (body["ready"] == true ? 200 : 503));
    return body["ready"] == true ? "" : body["reason"];
  };
  CHECK(reason() == "no model can be served; the model directories contain no model");
  std::ofstream(sandbox.models() / "broken.gguf") << "GGUF, or so it claims";
  CHECK(eventually([&] { return reason().empty(); }));  // it was not loaded yet
  CHECK(http.ask("POST", "/v1/completions", R"({"model":"broken","prompt":"a"})").status >= 400);
  CHECK(reason().starts_with("no model can be served; model broken: "));
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  CHECK(eventually([&] { return reason().empty(); }));
}

}  // namespace
}  // namespace hearth::e2e
