// The hearth program, run as a shell would run it, with a simulated daemon.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "ipc/cli/exit_code.h"
#include "tests/paths.h"
#include "tests/sanitizer_environment.h"
#include "tests/temp_dir.h"
#include "tests/unit/ipc/fake_daemon.h"

namespace hearth::cli {
namespace {

using tests::FakeDaemon;
using tests::TempDir;

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
};

/// A terminal that the test reads: bytes written to `device` are returned by text().
class Terminal {
 public:
  Terminal() : fd_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    REQUIRE(fd_ >= 0);
    REQUIRE(::grantpt(fd_) == 0);
    REQUIRE(::unlockpt(fd_) == 0);
  }
  ~Terminal() { ::close(fd_); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  std::string device() const { return ::ptsname(fd_); }
  /// Everything until the last writer has closed it.
  std::string text() const {
    std::string out;
    char chunk[4096];
    for (ssize_t n; (n = ::read(fd_, chunk, sizeof chunk)) > 0;) {
      out.append(chunk, static_cast<size_t>(n));
    }
    return out;
  }

 private:
  int fd_;
};

/// hearth with the test's own runtime directory, empty stdin, no home.
class Program {
 public:
  /// `terminal` empty: stdout and stderr are files; else both are that terminal.
  Program(const TempDir& temp, std::vector<std::string> words, const std::string& terminal = "")
      : dir_(temp.path()) {
    words.insert(words.begin(), hearth::tests::binary_dir() + "/bin/hearth");
    std::vector<std::string> variables = {"HEARTH_RUNTIME_DIR=" + dir_.string(),
                                          "HEARTH_STATE_DIR=" + (dir_ / "state").string(),
                                          "HOME=" + dir_.string(), "PATH=" + dir_.string()};
    for (std::string& variable : tests::sanitizer_variables()) {
      variables.push_back(std::move(variable));
    }
    std::vector<char*> argv, env;
    for (std::string& word : words) argv.push_back(word.data());
    for (std::string& variable : variables) env.push_back(variable.data());
    argv.push_back(nullptr);
    env.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(
        &actions, 1, (terminal.empty() ? (dir_ / "out").string() : terminal).c_str(),
        O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (terminal.empty()) {
      ::posix_spawn_file_actions_addopen(&actions, 2, (dir_ / "err").c_str(),
                                         O_WRONLY | O_CREAT | O_TRUNC, 0600);
    } else {
      ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
    }
    REQUIRE(::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), env.data()) == 0);
    ::posix_spawn_file_actions_destroy(&actions);
  }

  pid_t pid() const { return pid_; }
  std::string out() const { return text_of(dir_ / "out"); }
  Outcome wait() {
    int how = 0;
    REQUIRE(::waitpid(pid_, &how, 0) == pid_);
    return {WIFEXITED(how) ? WEXITSTATUS(how) : -1, out(), text_of(dir_ / "err")};
  }

 private:
  std::filesystem::path dir_;
  pid_t pid_ = -1;
};

Outcome hearth(const TempDir& temp, std::vector<std::string> words) {
  return Program(temp, std::move(words)).wait();
}

ipc::DoneEvent done(const char* reason) {
  ipc::DoneEvent event;
  event.finish_reasons = {reason};
  event.model = "tales";
  event.usage = {4, 0, 2};
  event.timings.ttft_ms = 5;
  event.timings.tpot_ms = 10;
  return event;
}

void answer_all(const ipc::ClientRequest& request, FakeDaemon::Reply reply) {
  if (!std::holds_alternative<ipc::GenerateRequest>(request)) return;
  reply.event(ipc::QueuedEvent{"loading", 0, 0});
  reply.delta(0, 0, "a \x1b[31mstory", {7});
  reply.delta(0, 1, "\n", {8});
  reply.event(done("stop"));
}

TEST_CASE("hearth reports that no daemon runs") {
  TempDir temp;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"ping"},
                                             {"ps"},
                                             {"models"},
                                             {"stats"},
                                             {"cancel", "r1"},
                                             {"stop"},
                                             {"run", "tales", "--no-start", "Once"},
                                             {"tokenize", "a-role", "--no-start", "Once"}}) {
    const Outcome outcome = hearth(temp, words);
    CHECK(outcome.status == kNoDaemon);
    CHECK(outcome.out.empty());
    CHECK(outcome.err.find("no daemon") != std::string::npos);
  }
}

TEST_CASE("piped, stdout is the text and nothing else") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), answer_all);
  const Outcome plain = hearth(temp, {"run", "tales", "Once"});
  CHECK(plain.status == kOk);
  CHECK(plain.out == "a \x1b[31mstory\n");
  CHECK(plain.err.empty());
  const Outcome stats = hearth(temp, {"run", "tales", "Once", "--stats"});
  CHECK(stats.out == plain.out);
  CHECK(stats.err == "prompt 4 (cached 0) · TTFT 5 ms · 100.0 tokens/s · stop\n");
  CHECK(hearth(temp, {"run", "tales", "Once", "--ids"}).out == "7 8 ");
}

TEST_CASE("on a terminal escapes are shown, lines end, and the timings follow") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), [](const ipc::ClientRequest& request, FakeDaemon::Reply reply) {
    if (!std::holds_alternative<ipc::GenerateRequest>(request)) return;
    reply.delta(0, 0, "a \x1b[31mstory\x07", {7});
    reply.event(done("length"));
  });
  const Terminal terminal;
  Program program(temp, {"run", "tales", "Once"}, terminal.device());
  const std::string seen = terminal.text();
  CHECK(program.wait().status == kOk);
  CHECK(seen == "a ␛[31mstory␇\r\nprompt 4 (cached 0) · TTFT 5 ms · 100.0 tokens/s · length\r\n");
}

TEST_CASE("in one log of text and timings the timings have their own line") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), [](const ipc::ClientRequest& request, FakeDaemon::Reply reply) {
    if (!std::holds_alternative<ipc::GenerateRequest>(request)) return;
    reply.delta(0, 0, "a story", {7});
    reply.event(done("length"));
  });
  const std::string log = (temp.path() / "log").string();
  CHECK(Program(temp, {"run", "tales", "Once", "--stats"}, log).wait().status == kOk);
  CHECK(text_of(log) == "a story\nprompt 4 (cached 0) · TTFT 5 ms · 100.0 tokens/s · length\n");
  CHECK(hearth(temp, {"run", "tales", "Once", "--stats"}).out == "a story");
}

TEST_CASE("a full disk is reported, and cancels the request") {
  TempDir temp;
  std::optional<FakeDaemon::Reply> stream;
  FakeDaemon daemon(temp.path(), [&](const ipc::ClientRequest& request, FakeDaemon::Reply reply) {
    if (std::holds_alternative<ipc::GenerateRequest>(request)) {
      stream = reply;
      return reply.delta(0, 0, "text", {1});
    }
    stream->event(done("cancelled"));
  });
  Program program(temp, {"run", "tales", "x"}, "/dev/full");
  CHECK(program.wait().status == kFailed);
  CHECK(daemon.num_cancels == 1);
}

TEST_CASE("--json is one object per line, the deltas among them") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), answer_all);
  const Outcome outcome = hearth(temp, {"run", "tales", "Once", "--json"});
  CHECK(outcome.status == kOk);
  std::vector<std::string> lines;
  std::istringstream out(outcome.out);
  for (std::string line; std::getline(out, line);) lines.push_back(line);
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].starts_with(R"({"event":"queued",)"));
  CHECK(lines[1] ==
        R"({"event":"delta","sample":0,"first_index":0,"text":"a \u001b[31mstory","ids":[7]})");
  CHECK(lines[3].starts_with(R"({"event":"done","finish_reasons":["stop"],)"));
}

TEST_CASE("the request's own error is status 1, a bad flag status 2") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), [](const ipc::ClientRequest&, FakeDaemon::Reply reply) {
    reply.event(ipc::ErrorEvent{{ErrorCode::kNotFound, "no model 'sales'", "model"}, 0});
  });
  const Outcome failed = hearth(temp, {"run", "sales", "Once"});
  CHECK(failed.status == kFailed);
  CHECK(failed.out.empty());
  CHECK(failed.err == "hearth: no model 'sales' [not_found]\n");
  const Outcome usage = hearth(temp, {"run", "tales", "--temperature", "-1", "Once"});
  CHECK(usage.status == kUsage);
  CHECK(usage.err == "hearth: temperature: met -1, want a number 0 to 10\n");
  CHECK(hearth(temp, {"cancel", "r1"}).status == kFailed);
  CHECK(hearth(temp, {"ping"}).status == kOk);
}

TEST_CASE("a typing error gets a suggestion, and status 2") {
  TempDir temp;
  const auto wrong = [&temp](std::vector<std::string> words, const std::string& err) {
    const Outcome outcome = hearth(temp, std::move(words));
    CHECK(outcome.status == kUsage);
    CHECK(outcome.out.empty());
    CHECK(outcome.err == "hearth: " + err + "\n");
  };
  wrong({"runn", "tales"}, "no verb runn; did you mean hearth run?");
  wrong({"list"}, "no verb list; did you mean hearth models?");
  wrong({"serve"}, "no verb serve; did you mean hearth start?");
  wrong({"zebra"}, "no verb zebra");
  wrong({"run", "tales", "--max-token", "5", "x"},
        "run: no option --max-token; did you mean --max-tokens?");
  wrong({"run", "tales", "--temp=0", "x"}, "run: no option --temp; did you mean --temperature?");
  wrong({"--bogus"}, "hearth: no option --bogus");
  CHECK(hearth(temp, {"help"}).out == hearth(temp, {"--help"}).out);
  CHECK(hearth(temp, {"help", "run"}).out == hearth(temp, {"run", "--help"}).out);
  CHECK(hearth(temp, {"-v"}).out == hearth(temp, {"--version"}).out);
}

TEST_CASE("every verb's help fits 80 columns") {
  TempDir temp;
  for (const char* verb :
       {"", "run", "chat", "load", "swap", "tokenize", "fork", "embed", "ping"}) {
    CAPTURE(verb);
    std::vector<std::string> words = {"help"};
    if (*verb != '\0') words.emplace_back(verb);
    const Outcome help = hearth(temp, words);
    CHECK(help.status == kOk);
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(line.size() <= 80, line);
  }
  CHECK(hearth(temp, {"chat", "--help"}).out.find("default 0") != std::string::npos);
}

TEST_CASE("words are a message; --raw continues them; an empty answer gives the reason") {
  TempDir temp;
  std::vector<ipc::GenerateRequest> asked;
  std::optional<FakeDaemon> daemon;
  daemon.emplace(temp.path(), [&](const ipc::ClientRequest& request, FakeDaemon::Reply reply) {
    const auto* generate = std::get_if<ipc::GenerateRequest>(&request);
    if (generate == nullptr) return;
    asked.push_back(*generate);
    reply.event(done("stop"));
  });
  const Outcome message = hearth(temp, {"run", "tales", "Why", "so?"});
  CHECK(message.status == kOk);
  CHECK(message.err ==
        "hearth: the answer is empty: the model ended it without a visible character\n");
  const Outcome raw = hearth(temp, {"run", "tales", "--raw", "--no-bos", "Once"});
  CHECK(raw.err.find("without --raw") != std::string::npos);
  CHECK(hearth(temp, {"run", "tales"}).status == kOk);  // /dev/null: it begins by itself
  daemon.reset();                                       // ends the thread that writes `asked`
  REQUIRE(asked.size() == 3);
  CHECK(asked[0].prompt == "Why so?");
  CHECK(asked[0].prompt_as == "message");
  CHECK_FALSE(asked[0].temperature.has_value());  // the model's own
  CHECK(asked[1].prompt_as == "text");
  CHECK(asked[1].raw);
  CHECK(asked[2].prompt_as == "text");
}

TEST_CASE("several samples are printed one after the other") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), [](const ipc::ClientRequest& request, FakeDaemon::Reply reply) {
    if (!std::holds_alternative<ipc::GenerateRequest>(request)) return;
    reply.delta(1, 0, "second ", {1});
    reply.delta(0, 0, "first ", {1});
    reply.delta(1, 1, "sample", {2});
    reply.delta(0, 1, "sample", {2});
    reply.event(done("stop"));
  });
  CHECK(hearth(temp, {"run", "tales", "Once", "--n", "2"}).out == "first sample\nsecond sample");
}

TEST_CASE("Ctrl-C cancels the request, keeps what came, and is status 130") {
  TempDir temp;
  std::optional<FakeDaemon::Reply> stream;
  std::atomic<bool> began{false};
  FakeDaemon daemon(temp.path(), [&](const ipc::ClientRequest& request, FakeDaemon::Reply reply) {
    if (std::holds_alternative<ipc::GenerateRequest>(request)) {
      stream = reply;
      reply.delta(0, 0, "Once", {1});
      began = true;
      return;
    }
    stream->event(done("cancelled"));
  });
  Program program(temp, {"run", "tales", "x"});
  while (!began || program.out().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  REQUIRE(::kill(program.pid(), SIGINT) == 0);
  const Outcome outcome = program.wait();
  CHECK(outcome.status == kInterrupted);
  CHECK(outcome.out == "Once");
  CHECK(daemon.num_cancels == 1);
}

TEST_CASE("a daemon lost in mid-stream is reported after a few pings without an answer") {
  TempDir temp;
  std::atomic<FakeDaemon*> running{nullptr};
  FakeDaemon daemon(temp.path(), [&running](const ipc::ClientRequest&, FakeDaemon::Reply reply) {
    reply.delta(0, 0, "Once", {1});
    running.load()->silent = true;
  });
  running = &daemon;
  const Outcome outcome = hearth(temp, {"run", "tales", "x"});
  CHECK(outcome.status == kNoDaemon);
  CHECK(outcome.out == "Once");
  CHECK(outcome.err.find("[lost]") != std::string::npos);
  CHECK(daemon.num_unanswered <= tests::pings_until_lost({}));
}

TEST_CASE("stop ends only the user's own daemon, as the kernel reports it") {
  TempDir temp;
  FakeDaemon daemon(temp.path(), [](const ipc::ClientRequest&, FakeDaemon::Reply) {});
  daemon.pong_pid = ::getpid() + 1;
  const Outcome outcome = hearth(temp, {"stop"});
  CHECK(outcome.status == kFailed);
  CHECK(outcome.err.find("not stopping either") != std::string::npos);
}

TEST_CASE("help, version and the protocol page go to stdout") {
  TempDir temp;
  const Outcome help = hearth(temp, {"--help"});
  CHECK(help.status == kOk);
  CHECK(help.out.find("Examples:") != std::string::npos);
  CHECK(help.out.find("Exit status:") != std::string::npos);
  CHECK(hearth(temp, {"run", "--help"}).out.find("--max-tokens") != std::string::npos);
  CHECK(hearth(temp, {"--version"}).out.starts_with("hearth "));
  CHECK(hearth(temp, {"protocol"}).out.starts_with("# HEARTH/1\n"));
}

TEST_CASE("the manual contains every verb") {
  TempDir temp;
  const Outcome help = hearth(temp, {"--help"});
  REQUIRE(help.status == kOk);
  const std::string manual =
      text_of(std::filesystem::path(hearth::tests::source_dir()) / "packaging/man/hearth.1");
  std::istringstream lines(help.out.substr(help.out.find("Subcommands:\n") + 13));
  int verbs = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  ")) {
      if (verbs > 0) break;
      continue;
    }
    const std::string verb = line.substr(2, line.find(' ', 2) - 2);
    CAPTURE(verb);
    CHECK(manual.find("\n.B hearth " + verb) != std::string::npos);
    ++verbs;
  }
  CHECK(verbs >= 13);
}

}  // namespace
}  // namespace hearth::cli
