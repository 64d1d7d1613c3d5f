#include "tests/e2e/daemon.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/e2e/tiny_model.h"
#include "tests/other_user.h"
#include "tests/paths.h"
#include "tests/skip.h"

extern char** environ;

namespace hearth::e2e {
namespace fs = std::filesystem;

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool eventually(const std::function<bool()>& condition, int every_ms) {
  const int64_t end = now_ms() + kPatienceMs;
  while (!condition()) {
    if (now_ms() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(every_ms));
  }
  return true;
}

Sandbox::Sandbox() {
  fs::create_directory(models());
  ::setenv("HEARTH_ALLOW_ROOT", "1",
           1);  // tests run as the user that builds, in containers as root
}

fs::path program(const std::string& name) {
  return fs::path(hearth::tests::binary_dir()) / "bin" / name;
}

pid_t start_program(const std::vector<std::string>& argv, const fs::path& output) {
  std::vector<char*> raw;
  for (const std::string& argument : argv) raw.push_back(const_cast<char*>(argument.c_str()));
  raw.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  const std::string to = output.empty() ? "/dev/null" : output.string();
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, to.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = -1;
  const int failed = ::posix_spawn(&pid, raw[0], &actions, nullptr, raw.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  REQUIRE_MESSAGE(failed == 0, argv.front());
  return pid;
}

std::optional<int> wait_for_exit(pid_t pid, int timeout_ms) {
  const int64_t end = now_ms() + timeout_ms;
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (now_ms() > end) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return status;
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  // Without iterators, which throw if a process's file in /proc disappears with the process.
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

Daemon::Daemon(const Sandbox& sandbox, std::vector<std::string> settings, Company company,
               const fs::path& config)
    : runtime_(sandbox.runtime()) {
  if (fs::is_empty(sandbox.models())) write_tiny_model(sandbox.models() / "tiny.gguf", 1);
  std::vector<std::string> argv = {program("hearthd").string(),
                                   "--config",
                                   config.empty() ? "/dev/null" : config.string(),
                                   "--runtime-dir",
                                   runtime_.string(),
                                   "--model-dir",
                                   sandbox.models().string()};
  settings.insert(settings.begin(), {"worker.kv_bytes=33554432", "worker.restart_delay_ms=10",
                                     "server.state_dir=" + sandbox.state().string()});
  for (const std::string& setting : settings) {
    argv.emplace_back("--set");
    argv.push_back(setting);
  }
  const fs::path log = sandbox.path() / "log";
  pid_ = start_program(argv, log);
  bool ended = false;
  const bool up = eventually([&] {
    ended = ::waitpid(pid_, nullptr, WNOHANG) == pid_;
    return ended || ipc::Client::connect({.runtime_dir = runtime_}).ok();
  });
  if (ended) pid_ = -1;
  REQUIRE_MESSAGE((up && !ended), "hearthd did not answer; its log:\n" << text_of(log));
  const char* noise = std::getenv("HEARTH_TEST_NOISE");
  if (noise == nullptr || *noise != '1' || company == Company::kAlone || ::geteuid() != 0) return;
  tests::let_other_user_in(sandbox.path(), runtime_);
  noise_ = start_program(
      {program("e2e_noise").string(), runtime_.string(), std::to_string(tests::night_seed() + 1)});
}

Daemon::~Daemon() {
  end_noise();
  if (pid_ < 0) return;
  signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Daemon::end_noise() const {
  if (noise_ < 0) return;
  ::kill(noise_, SIGKILL);
  ::waitpid(noise_, nullptr, 0);
  noise_ = -1;
}

void Daemon::signal(int number) const { ::kill(pid_, number); }

int Daemon::wait_for_exit() {
  const std::optional<int> status = e2e::wait_for_exit(pid_, kPatienceMs);
  REQUIRE_MESSAGE(status.has_value(), "hearthd did not end");
  pid_ = -1;
  return *status;
}

ipc::ClientOptions Daemon::client_options() const {
  return {.runtime_dir = runtime_, .answer_ms = 10'000, .lost_after_ms = 10'000};
}

ipc::Client Daemon::connect(const ipc::ClientOptions& options) {
  Result<ipc::Client> client = ipc::Client::connect(options);
  REQUIRE_MESSAGE(client.ok(), (client.ok() ? "" : client.error().message));
  return std::move(client).value();
}

ipc::StatsReply Daemon::stats() const {
  ipc::Client client = connect();
  Result<ipc::StatsReply> reply = client.stats();
  REQUIRE(reply.ok());
  return std::move(reply).value();
}

pid_t Daemon::wait_for_worker() const {
  pid_t pid = -1;
  const bool ready = eventually([&] {
    for (const ipc::WorkerStats& worker : stats().workers) {
      if (worker.state == "ready") pid = worker.pid;
    }
    return pid > 0;
  });
  REQUIRE(ready);
  return pid;
}

bool Daemon::wait_until_idle() const {
  end_noise();
  // Two heartbeats: what is then reported is newer than this call.
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  return eventually(
      [&] {
        const ipc::StatsReply reply = stats();
        if (reply.requests_live != 0) return false;
        for (const ipc::WorkerStats& worker : reply.workers) {
          if (worker.snapshot.num_running + worker.snapshot.num_waiting != 0) return false;
          for (const int32_t used : worker.snapshot.kv_blocks_used) {
            if (used != 0) return false;
          }
        }
        return true;
      },
      100);
}

namespace {

// True with the last event of the request.
bool add(Answer* answer, const ipc::Arrival& arrival) {
  if (const auto* delta = std::get_if<ipc::Delta>(&arrival.what)) {
    const size_t sample = delta->header.sample;
    if (answer->texts.size() <= sample) {
      answer->texts.resize(sample + 1);
      answer->ids.resize(sample + 1);
    }
    CHECK(delta->header.first_index == answer->ids[sample].size());
    answer->texts[sample] += delta->text;
    answer->ids[sample].insert(answer->ids[sample].end(), delta->ids.begin(), delta->ids.end());
    return false;
  }
  const auto& event = std::get<ipc::Event>(arrival.what);
  if (const auto* done = std::get_if<ipc::DoneEvent>(&event)) {
    answer->done = *done;
    return true;
  }
  if (const auto* error = std::get_if<ipc::ErrorEvent>(&event)) {
    answer->error = error->error;
    answer->retry_ms = error->retry_ms;
    return true;
  }
  answer->events.push_back(event);
  return false;
}

}  // namespace

std::string why(const Answer& answer) {
  if (!answer.error) return answer.done ? "done" : "no end";
  return std::string(name(answer.error->code)) + ": " + answer.error->message;
}

Answer run(ipc::Client& client, const ipc::GenerateRequest& request,
           const std::function<void(const Answer&)>& on_delta) {
  Answer answer;
  const Result<std::string> id = client.start(request);
  REQUIRE(id.ok());
  const int64_t end = now_ms() + kPatienceMs;
  while (now_ms() < end) {
    Result<std::optional<ipc::Arrival>> arrival = client.next(1000);
    if (!arrival) {
      answer.error = arrival.error();
      return answer;
    }
    if (!*arrival || (**arrival).request_id != *id) continue;
    if (add(&answer, **arrival)) return answer;
    if (on_delta && std::holds_alternative<ipc::Delta>((**arrival).what)) on_delta(answer);
  }
  FAIL("the request did not end");
  return answer;
}

std::map<std::string, Answer> collect(ipc::Client& client, int requests) {
  std::map<std::string, Answer> answers;
  const int64_t end = now_ms() + kPatienceMs;
  while (requests > 0 && now_ms() < end) {
    Result<std::optional<ipc::Arrival>> arrival = client.next(1000);
    REQUIRE_MESSAGE(arrival.ok(), (arrival.ok() ? "" : arrival.error().message));
    if (*arrival && add(&answers[(**arrival).request_id], **arrival)) --requests;
  }
  CHECK(requests == 0);
  return answers;
}

ipc::GenerateRequest seeded(uint64_t seed, int32_t max_tokens, const std::string& prompt) {
  ipc::GenerateRequest request;
  request.prompt = prompt;
  request.max_tokens = max_tokens;
  request.temperature = 1.0f;
  request.top_k = 0;
  request.top_p = 1.0f;
  request.seed = seed;
  request.ignore_eos = true;
  return request;
}

}  // namespace hearth::e2e
