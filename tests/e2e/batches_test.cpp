// Files and batches: answered as single requests are, across restarts, for their owner alone.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/e2e/http_client.h"
#include "tests/e2e/other_answer.h"
#include "tests/e2e/tiny_model.h"
#include "tests/skip.h"

namespace hearth::e2e {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kEndpoint = "/v1/completions";

Json body_of(int i, int tokens = 12) {
  return {{"model", "tiny"},
          {"prompt", fmt::format("the {}", i)},
          {"max_tokens", tokens},
          {"temperature", 1},
          {"seed", i},
          {"ignore_eos", true}};
}

std::string line_of(const std::string& id, const Json& body) {
  return Json({{"custom_id", id}, {"method", "POST"}, {"url", kEndpoint}, {"body", body}}).dump() +
         "\n";
}

HttpAnswer ask(const Daemon& daemon, const std::string& method, const std::string& path,
               const std::string& body = {}) {
  return HttpClient(daemon).ask(method, path, body);
}

HttpAnswer try_upload(const Daemon& daemon, const std::string& content) {
  const std::string form =
      "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n"
      "Content-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n"
      "Content-Type: application/jsonl\r\n\r\n" +
      content + "\r\n--b--\r\n";
  HttpClient http(daemon);
  http.send(
      fmt::format("POST /v1/files HTTP/1.1\r\nHost: localhost\r\n"
                  "Content-Type: multipart/form-data; boundary=b\r\n"
                  "Content-Length: {}\r\n\r\n{}",
                  form.size(), form));
  const std::optional<HttpAnswer> answer = http.receive();
  REQUIRE(answer.has_value());
  return *answer;
}

std::string upload(const Daemon& daemon, const std::string& content) {
  const HttpAnswer answer = try_upload(daemon, content);
  REQUIRE_MESSAGE(answer.status == 200, answer.body);
  return Json::parse(answer.body)["id"];
}

std::string create(const Daemon& daemon, const std::string& file) {
  const HttpAnswer answer =
      ask(daemon, "POST", "/v1/batches",
          Json({{"input_file_id", file}, {"endpoint", kEndpoint}, {"completion_window", "24h"}})
              .dump());
  REQUIRE_MESSAGE(answer.status == 200, answer.body);
  return Json::parse(answer.body)["id"];
}

Json shown(const Daemon& daemon, const std::string& id) {
  const HttpAnswer answer = ask(daemon, "GET", "/v1/batches/" + id);
  REQUIRE_MESSAGE(answer.status == 200, answer.body);
  return Json::parse(answer.body);
}

Json wait_for_end(const Daemon& daemon, const std::string& id) {
  Json batch;
  CHECK(eventually([&] {
    batch = shown(daemon, id);
    const std::string status = batch["status"];
    return status != "validating" && status != "in_progress" && status != "cancelling";
  }));
  return batch;
}

std::map<std::string, Json> results(const Daemon& daemon, const Json& file) {
  std::map<std::string, Json> out;
  if (file.is_null()) return out;
  const HttpAnswer answer =
      ask(daemon, "GET", fmt::format("/v1/files/{}/content", file.get<std::string>()));
  REQUIRE(answer.status == 200);
  std::string_view text = answer.body;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    REQUIRE(end != std::string_view::npos);
    const Json line = Json::parse(text.substr(0, end));
    CHECK(out.emplace(line["custom_id"].is_null() ? "" : line["custom_id"], line).second);
    text.remove_prefix(end + 1);
  }
  return out;
}

Json choices_of(const Daemon& daemon, const Json& body) {
  const HttpAnswer answer = ask(daemon, "POST", kEndpoint, body.dump());
  REQUIRE_MESSAGE(answer.status == 200, answer.body);
  return Json::parse(answer.body)["choices"];
}

TEST_CASE("a batch answers as single requests do, once each, across restarts and kill -9") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  auto daemon = std::make_unique<Daemon>(sandbox);
  constexpr int kLines = 120;
  std::string input;
  for (int i = 0; i < kLines; ++i) input += line_of(fmt::format("r{}", i), body_of(i, 400));
  const std::string file = upload(*daemon, input);
  CHECK(ask(*daemon, "GET", "/v1/files/" + file + "/content").body == input);
  const std::string id = create(*daemon, file);
  for (const int number : {SIGKILL, SIGTERM, SIGKILL}) {
    CAPTURE(number);
    const Json before = shown(*daemon, id)["request_counts"]["completed"];
    CHECK(eventually([&] { return shown(*daemon, id)["request_counts"]["completed"] > before; }));
    daemon->signal(number);
    daemon->wait_for_exit();
    daemon = std::make_unique<Daemon>(sandbox);
    CHECK(shown(*daemon, id)["output_file_id"].is_null());
  }
  const Json batch = wait_for_end(*daemon, id);
  CHECK(batch["status"] == "completed");
  CHECK(batch["request_counts"] == Json({{"total", kLines}, {"completed", kLines}, {"failed", 0}}));
  CHECK(batch["error_file_id"].is_null());
  const auto answers = results(*daemon, batch["output_file_id"]);
  REQUIRE(answers.size() == kLines);
  for (int i = 0; i < kLines; i += 10) {
    const Json& response = answers.at(fmt::format("r{}", i))["response"];
    CHECK(response["status_code"] == 200);
    CHECK(response["body"]["choices"] == choices_of(*daemon, body_of(i, 400)));
  }
}

TEST_CASE("lines that are wrong fail, each with its reason, and other requests go on") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  const Daemon daemon(sandbox);
  std::string input = line_of("a", body_of(1)) + "{broken\n\n" + line_of("a", body_of(2)) +
                      line_of("unknown", {{"model", "tiny"}, {"prompt", "x"}, {"nope", 1}}) +
                      line_of("absent", {{"model", "none"}, {"prompt", "x"}}) +
                      line_of("b", body_of(3));
  const Json batch = wait_for_end(daemon, create(daemon, upload(daemon, input)));
  CHECK(batch["status"] == "completed");
  CHECK(batch["request_counts"] == Json({{"total", 6}, {"completed", 2}, {"failed", 4}}));
  const auto answers = results(daemon, batch["output_file_id"]);
  CHECK(answers.size() == 2);
  CHECK(answers.at("b")["response"]["body"]["choices"] == choices_of(daemon, body_of(3)));
  const auto errors = results(daemon, batch["error_file_id"]);
  REQUIRE(errors.size() == 4);
  CHECK(errors.at("")["error"]["message"].get<std::string>().starts_with("line 2: "));
  CHECK(errors.at("a")["error"]["message"].get<std::string>().starts_with("line 4: custom_id"));
  CHECK(errors.at("unknown")["response"]["status_code"] == 400);
  CHECK(errors.at("absent")["response"]["status_code"] == 404);

  // Long ones of a batch wait for a single request, whose class is higher.
  input.clear();
  for (int i = 0; i < 40; ++i) input += line_of(std::to_string(i), body_of(i, 2000));
  const std::string long_one = create(daemon, upload(daemon, input));
  choices_of(daemon, body_of(7));
  CHECK(shown(daemon, long_one)["status"] != "completed");
  const HttpAnswer cancelled = ask(daemon, "POST", "/v1/batches/" + long_one + "/cancel");
  CHECK(cancelled.status == 200);
  CHECK(Json::parse(cancelled.body)["status"] == "cancelling");
  const Json ended = wait_for_end(daemon, long_one);
  CHECK(ended["status"] == "cancelled");
  CHECK(results(daemon, ended["output_file_id"]).size() ==
        ended["request_counts"]["completed"].get<size_t>());
  CHECK(ask(daemon, "POST", "/v1/batches/" + long_one + "/cancel").status == 400);
  // Its requests have ended, too.
  CHECK(eventually([&] {
    return ask(daemon, "GET", "/metrics").body.find("hearth_requests_live 0\n") !=
           std::string::npos;
  }));
}

TEST_CASE("files and batches belong to their owner") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  const Daemon daemon(sandbox);
  const std::string file = upload(daemon, line_of("a", body_of(1)));
  const std::string batch = create(daemon, file);
  struct stat info {};
  REQUIRE(::stat((sandbox.state() / "batches.db").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  const Json ended = wait_for_end(daemon, batch);
  if (::geteuid() == 0) {
    const std::string output = ended["output_file_id"];
    for (const auto& [method, path] : {std::pair{"GET", "/v1/files/" + file},
                                       {"GET", "/v1/files/" + output + "/content"},
                                       {"DELETE", "/v1/files/" + file},
                                       {"GET", "/v1/batches/" + batch},
                                       {"POST", "/v1/batches/" + batch + "/cancel"}}) {
      CAPTURE(path);
      CHECK(answer_to_other(sandbox, daemon, method, path).starts_with("404 "));
    }
    const std::string foreign = Json({{"input_file_id", file}, {"endpoint", kEndpoint}}).dump();
    CHECK(answer_to_other(sandbox, daemon, "POST", "/v1/batches", foreign).starts_with("400 "));
    CHECK(answer_to_other(sandbox, daemon, "GET", "/v1/files").find(file) == std::string::npos);
  }
  const Json listed = Json::parse(ask(daemon, "GET", "/v1/files?purpose=batch").body);
  REQUIRE(listed["data"].size() == 1);
  CHECK(listed["data"][0]["id"] == file);
  HttpClient head(daemon);
  head.send(fmt::format(
      "HEAD /v1/files/{}/content HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", file));
  const std::string bare = head.read(1 << 20);
  CHECK(bare.starts_with("HTTP/1.1 200 "));
  CHECK(bare.ends_with("\r\n\r\n"));
  CHECK(ask(daemon, "DELETE", "/v1/files/" + file).status == 200);
  CHECK(ask(daemon, "GET", "/v1/files/" + file).status == 404);
  CHECK(ask(daemon, "GET", "/v1/files/" + file + "/content").status == 404);
}

TEST_CASE("a long file comes whole to a slow reader, and uploads are bounded") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  const Daemon daemon(sandbox, {"http.batches_bytes_per_owner=8000000"});
  std::string content(5'000'000, 'a');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>('a' + i * 31 % 23);
  const std::string file = upload(daemon, content);
  const HttpAnswer full = try_upload(daemon, content);
  CHECK(full.status == 413);
  CHECK(full.body.find("do not fit") != std::string::npos);
  HttpClient slow(daemon, 4096);
  slow.send(fmt::format("GET /v1/files/{}/content HTTP/1.1\r\nHost: localhost\r\n\r\n", file));
  // Another one on the same connection waits for it.
  slow.send(fmt::format("GET /v1/files/{} HTTP/1.1\r\nHost: localhost\r\n\r\n", file));
  const std::optional<HttpAnswer> first = slow.receive();
  REQUIRE(first.has_value());
  CHECK(first->body == content);
  const std::optional<HttpAnswer> second = slow.receive();
  REQUIRE(second.has_value());
  CHECK(Json::parse(second->body)["bytes"] == content.size());
}

TEST_CASE("the configuration turns files and batches off, for all or for one owner") {
  const Sandbox sandbox;
  write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  {
    Daemon daemon(sandbox);
    upload(daemon, "x");
    daemon.signal(SIGTERM);
    daemon.wait_for_exit();
  }
  const std::vector<std::string> settings[] = {
      {fmt::format(R"(cache_owners."uid:{}"="memory")", ::geteuid())}, {"http.batches_keep_s=0"}};
  for (const std::vector<std::string>& off : settings) {
    CAPTURE(off[0]);
    const Daemon daemon(sandbox, off);
    const HttpAnswer refused = try_upload(daemon, "x");
    CHECK(refused.status == 400);
    CHECK(refused.body.find("not kept here") != std::string::npos);
    CHECK(ask(daemon, "GET", "/v1/files").status == 400);
    CHECK(ask(daemon, "GET", "/v1/files/file-x/content").status == 400);
    CHECK(ask(daemon, "GET", "/v1/batches/batch_x").status == 400);
    if (&off == &settings[0]) continue;  // other owners may have files
    CHECK(eventually([&] { return !fs::exists(sandbox.state() / "batches.db"); }));
  }
}

}  // namespace
}  // namespace hearth::e2e
