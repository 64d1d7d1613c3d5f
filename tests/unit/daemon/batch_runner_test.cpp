// How batches are run: refusals, turns, ends. The HTTP front door is the test.

#include "daemon/broker/batches/batch_runner.h"

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/base/numbers.h"
#include "tests/temp_dir.h"

namespace hearth::broker {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kEndpoint = "/v1/completions";
constexpr int64_t kSecondUs = 1'000'000;

std::string lines_of(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) {
    out += Json({{"custom_id", name}, {"url", kEndpoint}, {"body", {{"prompt", name}}}}).dump();
    out += '\n';
  }
  return out;
}

class Rig {
 public:
  ~Rig() {
    for (const Asked& each : asked) ::close(each.fd);
  }

  /// A request that the runner has made and that has no answer yet.
  struct Asked {
    uint32_t owner = 0;
    int fd = -1;
    std::string prompt{};
  };

  void open(size_t requests) {
    BatchRunnerConfig config;
    config.store = {.file = dir.path() / "state" / "batches.db",
                    .keep_s = 1'000'000,
                    .bytes = 1 << 20,
                    .owner_bytes = 1 << 20,
                    .now_s = [this] { return now_s; }};
    config.requests = requests;
    config.answer_bytes = 10'000;
    runner = std::make_unique<BatchRunner>(io);
    runner->start(config, [this](uint32_t owner) { return connect(owner); });
    settle();
  }
  int connect(uint32_t owner) {
    int ends[2];
    if (refuses_connections || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return -1;
    }
    asked.push_back({.owner = owner, .fd = ends[0]});
    return ends[1];
  }
  /// Until the store has nothing to do and all requests have been sent.
  void settle() {
    while (!runner->idle()) REQUIRE(io.run_one_for(std::chrono::seconds(60)) == 1);
    io.poll();
    while (!runner->idle()) REQUIRE(io.run_one_for(std::chrono::seconds(60)) == 1);
    for (Asked& each : asked) {
      if (!each.prompt.empty()) continue;
      std::string text(4096, '\0');
      const ssize_t n = ::recv(each.fd, text.data(), text.size(), 0);
      REQUIRE(n > 0);
      text.resize(narrow<size_t>(n));
      CHECK(text.starts_with(fmt::format("POST {} HTTP/1.1\r\n", kEndpoint)));
      each.prompt = Json::parse(text.substr(text.find("\r\n\r\n")))["prompt"];
    }
  }
  void pass(int64_t us) {
    now_us += us;
    runner->tick(now_us);
    settle();
  }
  /// Answers the oldest request. 0: closes the connection without an answer.
  std::string answer(int status, const std::string& body = "{}") {
    REQUIRE_FALSE(asked.empty());
    const Asked first = asked.front();
    asked.erase(asked.begin());
    if (status != 0) {
      const std::string text =
          fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n\r\n{}", status, body.size(), body);
      REQUIRE(
          std::cmp_equal(::send(first.fd, text.data(), text.size(), MSG_NOSIGNAL), text.size()));
    }
    ::close(first.fd);
    // Until the runner has read it.
    const size_t before = runner->stats().in_progress + runner->stats().lines;
    for (int i = 0; i < 10; ++i) {
      io.run_one_for(std::chrono::milliseconds(50));
      if (runner->stats().in_progress + runner->stats().lines != before) break;
      if (!runner->idle()) break;
    }
    settle();
    return first.prompt;
  }
  Result<Json> ask(uint32_t owner, http::BatchQuery query) {
    std::optional<Result<http::BatchReply>> got;
    runner->ask(owner, std::move(query), [&](Result<http::BatchReply> reply) { got = reply; });
    while (!got) REQUIRE(io.run_one_for(std::chrono::seconds(60)) == 1);
    settle();
    if (!got->ok()) return got->error();
    return Json::parse((*got)->text);
  }
  std::string create(uint32_t owner, const std::string& input) {
    const Result<Json> file = ask(
        owner,
        http::UploadFile{.body = "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n"
                                 "batch\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; "
                                 "filename=\"in.jsonl\"\r\n\r\n" +
                                 input + "\r\n--b--\r\n",
                         .boundary = "b"});
    REQUIRE_MESSAGE(file.ok(), file.error().message);
    const Result<Json> batch =
        ask(owner, http::CreateBatch{.input_file_id = (*file)["id"], .endpoint = kEndpoint});
    REQUIRE_MESSAGE(batch.ok(), batch.error().message);
    return (*batch)["id"];
  }
  Json shown(uint32_t owner, const std::string& id) {
    const Result<Json> batch = ask(owner, http::ShowBatch{id});
    REQUIRE_MESSAGE(batch.ok(), batch.error().message);
    return *batch;
  }
  std::string content(uint32_t owner, const Json& id) {
    std::optional<std::string> got;
    runner->ask(owner, http::ReadFile{.id = id},
                [&](Result<http::BatchReply> reply) { got = reply.ok() ? reply->text : "none"; });
    while (!got) REQUIRE(io.run_one_for(std::chrono::seconds(60)) == 1);
    return *got;
  }

  tests::TempDir dir;
  boost::asio::io_context io;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> open_{
      boost::asio::make_work_guard(io)};
  int64_t now_s = 1000;
  int64_t now_us = 0;
  bool refuses_connections = false;
  std::vector<Asked> asked;
  std::unique_ptr<BatchRunner> runner;
};

TEST_CASE("so many requests are in progress, and owners take turns") {
  Rig rig;
  rig.open(3);
  const std::string first = rig.create(1, lines_of({"a", "b", "c", "d", "e"}));
  CHECK(rig.asked.size() == 3);
  const std::string second = rig.create(2, lines_of({"x", "y"}));
  CHECK(rig.asked.size() == 3);
  CHECK(rig.runner->stats().live == 2);
  CHECK(rig.runner->stats().in_progress == 3);
  CHECK(rig.answer(200) == "a");
  CHECK(rig.asked.back().prompt == "x");  // the other owner has fewer
  CHECK(rig.asked.back().owner == 2);
  CHECK(rig.answer(200) == "b");
  // One each: the older batch goes on.
  CHECK(rig.asked.back().prompt == "d");
  while (!rig.asked.empty()) rig.answer(200);
  for (const auto& [owner, id, total] : {std::tuple(1u, first, 5), {2u, second, 2}}) {
    const Json batch = rig.shown(owner, id);
    CHECK(batch["status"] == "completed");
    CHECK(batch["request_counts"]["completed"] == total);
  }
  CHECK(rig.runner->stats().live == 0);
  CHECK(rig.runner->stats().lines == 7);
}

TEST_CASE("a refusal that passes is asked again later, as often as it takes") {
  Rig rig;
  rig.open(2);
  const std::string id = rig.create(1, lines_of({"a", "b"}));
  // Both at once: one pause.
  rig.answer(429);
  rig.answer(429);
  CHECK(rig.asked.empty());
  rig.pass(kSecondUs - 1);
  CHECK(rig.asked.empty());
  rig.pass(1);
  CHECK(rig.asked.size() == 2);
  for (int i = 0; i < 20; ++i) {
    CAPTURE(i);
    rig.answer(429);
    rig.answer(429);
    rig.pass(30 * kSecondUs);
    CHECK(rig.asked.size() == 2);
  }
  rig.answer(200, R"({"of":"b"})");
  rig.answer(200, R"({"of":"a"})");
  const Json batch = rig.shown(1, id);
  CHECK(batch["status"] == "completed");
  CHECK(batch["request_counts"]["failed"] == 0);
}

TEST_CASE("a model that stays away fails the line, which has its last answer") {
  Rig rig;
  rig.open(1);
  const std::string id = rig.create(1, lines_of({"a"}));
  int64_t waited_s = 0;
  int tries = 0;
  while (rig.runner->stats().live > 0) {
    while (rig.asked.empty()) {
      rig.pass(kSecondUs);
      ++waited_s;
    }
    ++tries;
    rig.answer(tries % 2 == 0 ? 503 : 529, R"({"error":"away"})");
    REQUIRE(tries <= 10);
  }
  CHECK(tries == 10);
  CHECK(waited_s == 151);  // docs/http.md: two and a half minutes
  const Json batch = rig.shown(1, id);
  CHECK(batch["status"] == "completed");
  CHECK(batch["request_counts"]["failed"] == 1);
  const Json line = Json::parse(rig.content(1, batch["error_file_id"]));
  CHECK(line["response"]["status_code"] == 503);
  CHECK(line["response"]["body"]["error"] == "away");
}

TEST_CASE("an answer that is broken or too long fails its line") {
  Rig rig;
  rig.open(1);
  const std::string id = rig.create(1, lines_of({"a", "b", "c"}));
  rig.answer(0);
  CHECK(rig.asked.front().prompt == "b");
  rig.answer(200, std::string(20'000, 'x'));
  rig.answer(200);
  const Json batch = rig.shown(1, id);
  CHECK(batch["request_counts"]["failed"] == 2);
  const std::string errors = rig.content(1, batch["error_file_id"]);
  CHECK(errors.find(R"("code":"protocol")") != std::string::npos);
  CHECK(errors.find(R"("code":"too_large")") != std::string::npos);
}

TEST_CASE("without a connection a batch waits") {
  Rig rig;
  rig.refuses_connections = true;
  rig.open(4);
  const std::string id = rig.create(1, lines_of({"a"}));
  rig.pass(10 * kSecondUs);
  CHECK(rig.asked.empty());
  CHECK(rig.shown(1, id)["status"] == "in_progress");
  rig.refuses_connections = false;
  rig.pass(30 * kSecondUs);
  CHECK(rig.asked.size() == 1);
}

TEST_CASE("what is in progress when the daemon stops is asked again after it has started") {
  Rig rig;
  rig.open(2);
  const std::string id = rig.create(1, lines_of({"a", "b", "c", "d"}));
  rig.answer(200);
  rig.runner->stop();
  rig.settle();
  rig.pass(60 * kSecondUs);
  CHECK(rig.runner->stats().in_progress == 0);
  for (const Rig::Asked& each : rig.asked) ::close(each.fd);
  rig.asked.clear();
  rig.open(4);
  std::vector<std::string> prompts;
  for (const Rig::Asked& each : rig.asked) prompts.push_back(each.prompt);
  CHECK(prompts == std::vector<std::string>{"b", "c", "d"});
  while (!rig.asked.empty()) rig.answer(200);
  CHECK(rig.shown(1, id)["request_counts"]["completed"] == 4);
}

TEST_CASE("a batch ends when it is cancelled or too old, with its requests") {
  Rig rig;
  rig.open(1);
  const std::string id = rig.create(1, lines_of({"a", "b", "c"}));
  rig.answer(200);
  CHECK(rig.asked.size() == 1);
  SUBCASE("cancelled") {
    REQUIRE(rig.ask(1, http::CancelBatch{id}).ok());
    rig.pass(kSecondUs);
    CHECK(rig.shown(1, id)["status"] == "cancelled");
    CHECK(rig.shown(1, id)["request_counts"]["failed"] == 0);
  }
  SUBCASE("expired") {
    rig.now_s += 86'400;
    rig.pass(kSecondUs);
    CHECK(rig.shown(1, id)["status"] == "expired");
    CHECK(rig.shown(1, id)["request_counts"]["failed"] == 2);
  }
  char byte = 0;
  CHECK(::recv(rig.asked.front().fd, &byte, 1, 0) == 0);  // its connection was closed
  CHECK(rig.runner->stats().live == 0);
}

TEST_CASE("a store that cannot be opened holds batches up, and no longer than that") {
  Rig rig;
  rig.open(1);
  const std::string id = rig.create(1, lines_of({"a"}));
  rig.runner->stop();
  rig.settle();
  rig.runner.reset();
  for (const Rig::Asked& each : rig.asked) ::close(each.fd);
  rig.asked.clear();
  const fs::path folder = rig.dir.path() / "state", away = rig.dir.path() / "away";
  fs::rename(folder, away);
  std::ofstream(folder) << "a file";
  rig.open(1);
  CHECK_FALSE(rig.runner->problem().empty());
  CHECK(rig.ask(1, http::ShowBatch{id}).error().code == ErrorCode::kUnavailable);
  fs::remove(folder);
  fs::rename(away, folder);
  rig.pass(kSecondUs);
  rig.pass(60 * kSecondUs);
  CHECK(rig.runner->problem().empty());
  CHECK(rig.asked.size() == 1);
}

}  // namespace
}  // namespace hearth::broker
