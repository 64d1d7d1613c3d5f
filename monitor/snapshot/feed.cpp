#include "monitor/snapshot/feed.h"

#include <chrono>
#include <functional>
#include <optional>

#include "ipc/client/client.h"
#include "ipc/files/paths.h"
#include "ipc/schema/watch.h"
#include "ipc/wire/codec.h"
#include "kernels/base/clock.h"

namespace hearth::monitor {
namespace {

constexpr int kAskEveryMs = 250;
constexpr int kTryAgainMs = 1000;
constexpr int64_t kSilentUs = 1'000'000;
constexpr size_t kAnswers = 64;

std::filesystem::path usual_dir() {
  const auto dirs = ipc::client_runtime_dirs(ipc::Environment::of_process());
  std::error_code ignored;
  for (const std::filesystem::path& dir : dirs) {
    if (std::filesystem::exists(ipc::api_socket(dir), ignored)) return dir;
  }
  return dirs.empty() ? std::filesystem::path{} : dirs.front();
}

}  // namespace

ipc::StreamMessage requests_message(int64_t time_us, const ipc::PsReply& reply) {
  ipc::WatchUpdate update;
  update.now_us = time_us;
  for (const ipc::PsEntry& entry : reply.requests) {
    ipc::WatchedRequest row;
    // The reply has no number; equal name and owner mean the same request.
    row.number = std::hash<std::string>()(entry.owner + '\n' + entry.id) | 1;
    row.id = entry.id;
    row.owner = entry.owner;
    row.model = entry.model;
    row.state = entry.state;
    row.priority = entry.priority;
    row.prompt_tokens = entry.prompt_tokens;
    row.output_tokens = entry.output_tokens;
    row.age_ms = entry.age_ms;
    update.requests.push_back(std::move(row));
  }
  return {time_us, "requests", "", ipc::encode_watch(update)};
}

Result<std::unique_ptr<Feed>> Feed::open(std::filesystem::path runtime_dir) {
  if (runtime_dir.empty()) runtime_dir = usual_dir();
  HEARTH_ASSIGN_OR_RETURN(ipc::EventStream stream, ipc::EventStream::open(runtime_dir));
  return std::unique_ptr<Feed>(new Feed(std::move(runtime_dir), std::move(stream)));
}

Feed::Feed(std::filesystem::path runtime_dir, ipc::EventStream stream)
    : runtime_dir_(std::move(runtime_dir)),
      stream_(std::move(stream)),
      answers_(kAnswers),
      thread_([this] { ask(); }) {}

Feed::~Feed() {
  stop_ = true;
  thread_.join();
}

std::vector<ipc::StreamMessage> Feed::wait(int timeout_ms) {
  std::vector<ipc::StreamMessage> out = stream_.wait(timeout_ms);
  std::vector<ipc::StreamMessage> answers = answers_.drain();
  if (!out.empty()) {
    heard_us_ = SteadyClock().now_us();
    return out;
  }
  return answers;
}

void Feed::ask() {
  const SteadyClock clock;
  std::optional<ipc::Client> client;
  const auto pause = [this](int ms) {
    for (int waited = 0; waited < ms && !stop_; waited += 50) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  };
  const auto post = [this](ipc::StreamMessage message) { (void)answers_.try_post(message); };
  pause(kSilentUs / 1000);
  for (uint64_t turn = 0; !stop_; ++turn) {
    if (heard_us_ != 0 && clock.now_us() - heard_us_ < kSilentUs) {
      pause(kAskEveryMs);
      continue;
    }
    if (!client) {
      ipc::ClientOptions options;
      options.runtime_dir = runtime_dir_;
      Result<ipc::Client> connected = ipc::Client::connect(options);
      if (!connected.ok()) {
        pause(kTryAgainMs);
        continue;
      }
      client.emplace(std::move(connected).value());
    }
    const Result<ipc::StatsReply> stats = client->stats();
    const Result<ipc::PsReply> ps = client->ps();
    if (!stats.ok() || !ps.ok()) {
      client.reset();
      continue;
    }
    const int64_t now_us = clock.now_us();
    if (turn % 4 == 0) {
      if (const Result<ipc::ModelsReply> models = client->models(); models.ok()) {
        post({now_us, "models", "", ipc::encode_event(*models)});
      }
    }
    post({now_us, "stats", "", ipc::encode_event(*stats)});
    post(requests_message(now_us, *ps));
    pause(kAskEveryMs);
  }
}

}  // namespace hearth::monitor
