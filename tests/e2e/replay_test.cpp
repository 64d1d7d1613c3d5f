// hearth record and hearth replay: a mix of requests over the socket and HTTP, recorded and sent
// again.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ipc/client/request_log.h"
#include "tests/e2e/command.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/http_client.h"
#include "tests/other_user.h"

namespace hearth::e2e {
namespace {

using Json = nlohmann::json;

/// hearth record, in the background.
class Recorder {
 public:
  Recorder(const Sandbox& sandbox, const std::string& name, bool text)
      : file_(sandbox.path() / name) {
    std::vector<std::string> argv = {"/usr/bin/env",
                                     "HEARTH_RUNTIME_DIR=" + sandbox.runtime().string(),
                                     program("hearth").string(), "record", file_.string()};
    if (text) argv.emplace_back("--text");
    const auto output = sandbox.path() / (name + ".out");
    pid_ = start_program(argv, output);
    REQUIRE(eventually([&] { return text_of(output).find("recording\n") == 0; }));
  }
  ~Recorder() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Waits for so many records, ends it, and reads the file.
  ipc::RequestLog end(ptrdiff_t records) {
    CHECK(eventually([&] {
      const std::string text = text_of(file_);
      return std::ranges::count(text, '\n') == records + 1;
    }));
    ::kill(pid_, SIGINT);
    const std::optional<int> status = wait_for_exit(pid_, kPatienceMs);
    pid_ = -1;
    CHECK((status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0));
    Result<ipc::RequestLog> log = ipc::RequestLog::open(file_);
    REQUIRE_MESSAGE(log.ok(), (log.ok() ? "" : log.error().message));
    CHECK(std::cmp_equal(log->records().size(), records));
    return std::move(log).value();
  }

 private:
  std::filesystem::path file_;
  pid_t pid_ = -1;
};

/// Requests of another user, where the test may be two users. They have ended when it returns.
void ask_as_other_user(const Sandbox& sandbox, const Daemon& daemon) {
  if (::geteuid() != 0) return;
  tests::let_other_user_in(sandbox.path(), daemon.runtime());
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    if (!tests::become_other_user(parent)) ::_exit(9);
    Result<ipc::Client> client = ipc::Client::connect(daemon.client_options());
    for (uint64_t seed = 100; client.ok() && seed < 103; ++seed) {
      if (!client->generate(seeded(seed, 10, "theirs"), {}).ok()) ::_exit(8);
    }
    ::_exit(client.ok() ? 0 : 7);
  }
  const std::optional<int> status = wait_for_exit(child, kPatienceMs);
  CHECK((status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0));
}

constexpr ptrdiff_t kGenerated = 8;
constexpr ptrdiff_t kEmbedded = 1;
constexpr ptrdiff_t kRefused = 1;

/// A small mix: five requests with seeds, one without, one that is too long, two over HTTP, and an
/// embedding.
void ask_mix(const Daemon& daemon) {
  ipc::Client client = daemon.connect();
  const std::string prompt(60, 'a');
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    ipc::GenerateRequest request = seeded(seed, 20, prompt + "b");
    if (seed == 5) request.n = 2;
    const Answer answer = run(client, request);
    REQUIRE_MESSAGE(answer.done, why(answer));
  }
  ipc::GenerateRequest unseeded = seeded(0, 20, prompt + "c");
  unseeded.seed.reset();
  REQUIRE(run(client, unseeded).done);
  // Long enough to be written on the broker's side thread.
  const Answer refused = run(client, seeded(8, 20, std::string(300'000, 'z')));
  REQUIRE(refused.error);
  CHECK(refused.error->code == ErrorCode::kContextOverflow);
  HttpClient http(daemon);
  for (const int seed : {6, 7}) {
    const Json body = {{"model", "tiny"},
                       {"prompt", prompt + "d"},
                       {"max_tokens", 12},
                       {"seed", seed},
                       {"temperature", 1}};
    const HttpAnswer answer = http.ask("POST", "/v1/completions", body.dump());
    REQUIRE_MESSAGE(answer.status == 200, answer.body);
  }
  ipc::EmbedRequest embed;
  embed.texts = {"the", "a b"};
  REQUIRE(client.embed(embed).ok());
}

Json replayed(const Sandbox& sandbox, const std::string& words) {
  const CommandOutcome outcome = run_hearth(sandbox, "replay " + words + " --json");
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  return Json::parse(outcome.out);
}

TEST_CASE("recorded requests give the same texts when they are replayed") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {}, Company::kAlone);
  Recorder recorder(sandbox, "day", true);
  ask_as_other_user(sandbox, daemon);
  ask_mix(daemon);
  ask_as_other_user(sandbox, daemon);
  const ipc::RequestLog log = recorder.end(kGenerated + kEmbedded + kRefused);
  CHECK(log.header().text);
  int64_t output_tokens = 0;
  for (size_t i = 0; i < log.records().size(); ++i) {
    const ipc::RecordedEvent& record = log.records()[i];
    const auto request = log.request(i);
    REQUIRE(request.ok());
    if (const auto* embed = std::get_if<ipc::EmbedRequest>(&*request)) {
      CHECK(embed->texts == std::vector<std::string>{"the", "a b"});
      CHECK(record.text_tokens.size() == 2);
      continue;
    }
    const std::string& prompt = std::get<ipc::GenerateRequest>(*request).prompt;
    if (!record.error.empty()) {
      CHECK(record.error == "context_overflow");
      CHECK(prompt == std::string(300'000, 'z'));
      continue;
    }
    CHECK(prompt.starts_with("aaaa"));
    CHECK(record.timings.ttft_ms > 0);
    CHECK(record.usage.prompt_tokens > 0);
    output_tokens += record.usage.output_tokens;
  }
  CHECK(output_tokens == 5 * 20 + 20 + 20 + 2 * 12);

  const Json comparison = replayed(sandbox, "day --speed 4");
  CHECK(comparison["requests"] == kGenerated + kEmbedded + kRefused);
  CHECK(comparison["texts_equal"] == kGenerated);
  CHECK(comparison["texts_different"] == 0);
  CHECK(comparison["texts_not_comparable"] == kEmbedded + kRefused);
  CHECK(comparison["recorded"]["errors"] == kRefused);
  CHECK(comparison["replayed"]["errors"] == kRefused);
  CHECK(comparison["newly_failed"] == 0);
  CHECK(comparison["replayed"]["output_tokens"] == output_tokens);
  CHECK(comparison["replayed"]["prompt_tokens"] == comparison["recorded"]["prompt_tokens"]);
  // The replay has a cache of its own, in which the prompts share what they shared before.
  CHECK(comparison["replayed"]["cached_share"] <= comparison["recorded"]["cached_share"]);
  CHECK(replayed(sandbox, "day --speed 1000 --warm")["replayed"]["cached_share"] >
        comparison["replayed"]["cached_share"]);

  const CommandOutcome table = run_hearth(sandbox, "replay day --speed 1000");
  CHECK(table.status == 0);
  CHECK(table.out.find("8 equal, 0 different, 2 not comparable") != std::string::npos);
  const CommandOutcome none = run_hearth(sandbox, "replay day --speed 1000 --against nonesuch");
  CHECK(none.status == 1);
  CHECK(none.err.find("nonesuch") != std::string::npos);
}

TEST_CASE("a replay against a configuration has a daemon of its own") {
  const Sandbox sandbox;
  {
    const Daemon daemon(sandbox, {}, Company::kAlone);
    Recorder recorder(sandbox, "day", true);
    ask_mix(daemon);
    recorder.end(kGenerated + kEmbedded + kRefused);
  }
  // No other daemon runs.
  std::ofstream(sandbox.path() / "new.toml") << "[worker]\nthreads = 1\n[http]\nlisten = \"\"\n";
  const Json comparison = replayed(sandbox, "day --speed 1000 --against new.toml");
  CHECK(comparison["texts_equal"] == kGenerated);
  CHECK(comparison["newly_failed"] == 0);
  std::ofstream(sandbox.path() / "short.toml") << "[worker]\ncontext_length = 32\n";
  const CommandOutcome failing =
      run_hearth(sandbox, "replay day --speed 1000 --against short.toml");
  CHECK(failing.status == 1);
  CHECK(failing.err.find("first failure: ") != std::string::npos);
  // A file that is none, or wrong, has its reason.
  std::ofstream(sandbox.path() / "wrong.toml") << "[worker]\nthreads = \"x\"\n";
  const CommandOutcome wrong = run_hearth(sandbox, "replay day --against wrong.toml");
  CHECK(wrong.status == 1);
  CHECK(wrong.err.find("threads") != std::string::npos);
  const CommandOutcome absent = run_hearth(sandbox, "replay day --against absent.toml");
  CHECK(absent.status == 1);
  CHECK(absent.err.find("absent.toml: No such file") != std::string::npos);
  // Nothing of them is left.
  for (const auto& entry : std::filesystem::directory_iterator(sandbox.state())) {
    CHECK_FALSE(entry.path().filename().string().starts_with("own-"));
  }
}

TEST_CASE("without text a recording holds counts, and its replay does as much work") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox, {}, Company::kAlone);
  Recorder recorder(sandbox, "shape", false);
  ask_mix(daemon);
  const ipc::RequestLog log = recorder.end(kGenerated + kEmbedded + kRefused);
  CHECK_FALSE(log.header().text);
  CHECK(text_of(sandbox.path() / "shape").find("aaaa") == std::string::npos);
  const Json comparison = replayed(sandbox, "shape --speed 4");
  CHECK(comparison["requests"] == kGenerated + kEmbedded);
  CHECK(comparison["texts_not_comparable"] == kGenerated + kEmbedded);
  CHECK(comparison["newly_failed"] == 0);
  for (const char* count : {"prompt_tokens", "output_tokens"}) {
    CHECK(comparison["replayed"][count] == comparison["recorded"][count]);
  }
}

TEST_CASE("a recording that is damaged, and a daemon that stops while it is recorded") {
  const Sandbox sandbox;
  Daemon daemon(sandbox, {}, Company::kAlone);
  const CommandOutcome damaged = run_hearth(sandbox, "replay out");
  CHECK(damaged.status == 1);
  CHECK(damaged.err.find("out:1: not a recording") != std::string::npos);
  CHECK(run_hearth(sandbox, "replay day --speed 0").status == 2);
  CHECK(run_hearth(sandbox, "record day --for soon").status == 2);
  const CommandOutcome timed = run_hearth(sandbox, "record day --for 1s");
  CHECK(timed.status == 0);
  CHECK(timed.err == "recording\n0 requests in day\n");
  CHECK(run_hearth(sandbox, "record day --for 1s").err.find("exists already") != std::string::npos);
  daemon.signal(SIGTERM);
  daemon.wait_for_exit();
  CHECK(run_hearth(sandbox, "record evening").status == 3);
}

}  // namespace
}  // namespace hearth::e2e
