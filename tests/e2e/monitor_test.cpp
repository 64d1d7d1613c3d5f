// The dashboard with the real daemon: its snapshot while requests run, the effect of its commands,
// and the picture that hearth-monitor takes.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "monitor/commands/actions.h"
#include "monitor/snapshot/feed.h"
#include "monitor/snapshot/snapshot.h"
#include "tests/e2e/daemon.h"
#include "tests/skip.h"

namespace hearth::e2e {
namespace {

using monitor::Command;

/// Sends requests for `tokens` tokens each, one after another, from its own client, until it is
/// destroyed. Two of different lengths do not end in the same step, so that the daemon always
/// computes.
class Load {
 public:
  Load(const Daemon& daemon, int tokens)
      : client_(daemon.connect()), tokens_(tokens), thread_([this] { go_on(); }) {}
  ~Load() {
    stop_ = true;
    thread_.join();
  }

 private:
  void go_on() {
    for (uint64_t seed = 1; !stop_; ++seed) {
      ipc::GenerateCallbacks callbacks;
      callbacks.cancelled = [this] { return stop_.load(); };
      (void)client_.generate(seeded(seed, tokens_), callbacks).ok();
    }
  }
  ipc::Client client_;
  int tokens_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

monitor::Answer answer_to(monitor::Actions& actions, const Command& command) {
  actions.ask(command);
  monitor::Answer answer;
  CHECK(eventually([&] {
    for (monitor::Answer& each : actions.answers()) answer = std::move(each);
    return !answer.text.empty();
  }));
  return answer;
}

TEST_CASE("the dashboard's snapshot of a working daemon") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  monitor::Snapshot snapshot;
  auto feed = monitor::Feed::open(daemon.runtime());
  REQUIRE(feed.ok());
  {
    const Load load(daemon, 400);
    const Load more(daemon, 270);
    CHECK(eventually([&] {
      for (const ipc::StreamMessage& message : (*feed)->wait(50)) snapshot.apply(message);
      const auto& views = snapshot.model_views();
      if (!views.contains("tiny") || views.at("tiny").pools.empty()) return false;
      const monitor::ModelView& view = views.at("tiny");
      const auto prefills = [](const auto& step) { return !step.prefills.empty(); };
      return view.steps.size() > 50 && std::ranges::any_of(view.steps, prefills) &&
             view.pools[0].known && view.pools[0].counts[1] > 0 && view.resident_bytes > 0 &&
             view.prefixes_us > 0 && view.gaps.count() > 10 && snapshot.num_ttfts() > 1;
    }));
  }
  CHECK(snapshot.messages_refused() == 0);
  const monitor::ModelView& view = snapshot.model_views().at("tiny");
  // A busy machine may run steps faster than they are published; then skipped ones are counted.
  const uint64_t spanned = view.steps.back().step - view.steps.front().step + 1;
  CHECK(spanned - view.steps.size() <= view.steps_lost);
  CHECK(view.messages_lost == 0);
  // Tokens that come faster are sent together.
  CHECK(view.gaps.ms(0.5) >= 1.9);
  CHECK(view.gaps.ms(0.99) >= view.gaps.ms(0.5));
  int64_t cells = 0;
  for (const int64_t count : view.pools[0].counts) cells += count;
  CHECK(cells == static_cast<int64_t>(view.pools[0].cells.size()));
  for (const auto& [number, request] : snapshot.requests()) {
    CHECK(request.row.model == "tiny");
    CHECK(request.row.owner.starts_with("uid:"));
  }
}

TEST_CASE("the dashboard's commands: load, plan, cancel, swap, unload") {
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  monitor::Actions actions(daemon.runtime(), program("hearth"));
  using Kind = Command::Kind;
  CHECK(answer_to(actions, {Kind::kLoad, "tiny", ""}).ok);
  CHECK(daemon.wait_for_worker() > 0);
  const monitor::Answer unknown = answer_to(actions, {Kind::kLoad, "nonesuch", ""});
  CHECK_FALSE(unknown.ok);
  CHECK(unknown.text.find("nonesuch") != std::string::npos);
  // While the worker is stopped, the request can be cancelled.
  ipc::Client client = daemon.connect();
  const pid_t worker = daemon.wait_for_worker();
  ::kill(worker, SIGSTOP);
  REQUIRE(client.start(seeded(3, 400), "mine").ok());
  CHECK(eventually([&] { return !client.ps().value().requests.empty(); }));
  const monitor::Answer cancelled = answer_to(actions, {Kind::kCancel, "mine", ""});
  ::kill(worker, SIGCONT);
  CHECK_MESSAGE(cancelled.ok, cancelled.text);
  CHECK_FALSE(answer_to(actions, {Kind::kCancel, "no-such-request", ""}).ok);
  CHECK(answer_to(actions, {Kind::kSwap, "tiny", "default"}).ok);
  CHECK(answer_to(actions, {Kind::kUnload, "tiny", ""}).ok);
  const monitor::Answer list = answer_to(actions, {Kind::kListCache, "", ""});
  CHECK(list.text.starts_with("["));
  // A daemon that has ended is reported at once.
  monitor::Actions nowhere(sandbox.path() / "nowhere", "/nonexistent/hearth");
  CHECK_FALSE(answer_to(nowhere, {Kind::kLoad, "tiny", ""}).ok);
  CHECK_FALSE(answer_to(nowhere, {Kind::kPlan, "tiny", ""}).ok);
}

TEST_CASE("hearth-monitor --screenshot of a working daemon") {
#ifndef HEARTH_E2E_MONITOR
  HEARTH_SKIP("hearth-monitor is not built, or is built with a sanitizer");
#else
  const Sandbox sandbox;
  const Daemon daemon(sandbox);
  REQUIRE(run(*std::make_unique<ipc::Client>(daemon.connect()), seeded(1, 4)).done);
  const std::filesystem::path texts = sandbox.path() / "texts", log = sandbox.path() / "monitor";
  const Load load(daemon, 400);
  const Load more(daemon, 270);
  const pid_t pid =
      start_program({program("hearth-monitor").string(), "--runtime-dir", daemon.runtime().string(),
                     "--screenshot", (sandbox.path() / "live.png").string(), "--panel", "all",
                     "--after", "1.2", "--texts", texts.string()},
                    log);
  const std::optional<int> how = wait_for_exit(pid, kPatienceMs);
  REQUIRE(how.has_value());
  if (text_of(log).find("EGL") != std::string::npos) HEARTH_SKIP(text_of(log).c_str());
  REQUIRE_MESSAGE((WIFEXITED(*how) && WEXITSTATUS(*how) == 0), text_of(log));
  std::map<std::string, std::string> shown;
  std::istringstream lines(text_of(texts));
  for (std::string line; std::getline(lines, line);) {
    const size_t tab = line.find('\t');
    if (tab != std::string::npos) shown[line.substr(0, tab)] = line.substr(tab + 1);
  }
  CHECK(shown["side/state"] == "daemon answers");
  const std::string words = shown["batches/words/1"];
  CHECK_MESSAGE((words.starts_with("decode ") || words.starts_with("prefill ")), words);
  CHECK_FALSE(shown["batches/words/8/took"].empty());
  CHECK(std::atoi(shown["blocks/count/in use"].c_str()) > 0);
  CHECK(shown["models/tiny/State"] == "resident");
  CHECK(shown["now/ttft/value"].find("ms") != std::string::npos);
  bool decodes = false;
  for (const auto& [place, text] : shown) {
    if (place.starts_with("requests/") && place.ends_with("/State")) {
      decodes = decodes || text == "decode" || text == "ended";
    }
  }
  CHECK(decodes);
  for (const char* panel : {"now", "batches", "blocks", "requests", "cache"}) {
    const std::string png = text_of(sandbox.path() / (std::string("live-") + panel + ".png"));
    CHECK(png.starts_with("\x89PNG"));
    CHECK(png.size() > 10'000);
  }
#endif
}

}  // namespace
}  // namespace hearth::e2e
