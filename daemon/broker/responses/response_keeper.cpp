#include "daemon/broker/responses/response_keeper.h"

#include <fmt/core.h>

#include <utility>

#include "kernels/base/log.h"

namespace hearth::broker {
namespace {

constexpr int64_t kSweepEveryUs = 60'000'000;
constexpr int64_t kLogEveryUs = 10'000'000;
/// The owner of the keeper's own work.
constexpr uint32_t kNoOwner = UINT32_MAX;

}  // namespace

/// What a piece of work has brought, and the store's counts after it.
struct ResponseKeeper::Job {
  Result<std::string> text = std::string();
  Result<void> written{};
  int64_t entries = 0;
  int64_t bytes = 0;
};

// A request waits for the answers that it continues, so the thread is as urgent as the loop.
ResponseKeeper::ResponseKeeper(boost::asio::io_context& io) : thread_(io, 0) {}

void ResponseKeeper::start(ResponseStoreConfig config, ResponseQueueBounds bounds) {
  log_info("responses_kept", "file=\"{}\" keep_s={} bytes={} owner_bytes={}", config.file.string(),
           config.keep_s, config.bytes, config.owner_bytes);
  bounds_ = bounds;
  store_ = std::make_unique<ResponseStore>(std::move(config));
}

void ResponseKeeper::discard(std::filesystem::path file) {
  thread_.run(
      kNoOwner, 0,
      [file = std::move(file)] {
        if (StateFile::remove(file)) log_info("responses_removed", "file=\"{}\"", file.string());
      },
      [] {});
}

void ResponseKeeper::run(uint32_t owner, size_t bytes, std::function<void(Job&)> work,
                         std::function<void(Job&)> then) {
  auto job = std::make_shared<Job>();
  ++waiting_;
  thread_.run(
      owner, bytes,
      [this, job, work = std::move(work)] {
        work(*job);
        job->entries = store_->entries();
        job->bytes = store_->bytes();
      },
      [this, job, then = std::move(then)] {
        --waiting_;
        entries_ = job->entries;
        bytes_ = job->bytes;
        then(*job);
      });
}

void ResponseKeeper::lose(uint32_t owner, const Error& error) {
  ++not_kept_;
  if (error.field.empty()) problem_ = error.message;  // otherwise it is the answer's own size
  if (logged_us_ != 0 && now_us_ - logged_us_ < kLogEveryUs) return;
  logged_us_ = now_us_;
  log_warn("response_not_kept", "uid={} count={} code={} error=\"{}\"", owner, not_kept_,
           name(error.code), error.message);
}

void ResponseKeeper::keep(uint32_t owner, http::KeptResponse response) {
  if (store_ == nullptr) return;
  const size_t bytes = response.bytes();
  if (thread_.bytes_of(owner) + bytes > bounds_.owner_bytes ||
      thread_.bytes() + bytes > bounds_.bytes) {
    return lose(owner, Error::busy("too many answers wait to be written"));
  }
  auto kept = std::make_shared<http::KeptResponse>(std::move(response));
  run(
      owner, bytes, [this, owner, kept](Job& job) { job.written = store_->keep(owner, *kept); },
      [this, owner](Job& job) {
        if (!job.written.ok()) return lose(owner, job.written.error());
        problem_.clear();
      });
}

void ResponseKeeper::ask(uint32_t owner, http::KeptQuery query,
                         std::function<void(Result<std::string>)> then) {
  if (store_ == nullptr) {
    return then(Error::unsupported("answers are not kept here (http.responses_keep_s)"));
  }
  auto asked = std::make_shared<http::KeptQuery>(std::move(query));
  run(
      owner, 0, [this, owner, asked](Job& job) { job.text = store_->ask(owner, *asked); },
      [then = std::move(then)](Job& job) {
        if (job.text.ok() || !job.text.error().field.empty()) return then(std::move(job.text));
        log_warn("responses_unreadable", "error=\"{}\"", job.text.error().message);
        then(Error::unavailable("the kept answers cannot be read: " + job.text.error().message));
      });
}

void ResponseKeeper::tick(int64_t now_us) {
  now_us_ = now_us;
  if (store_ == nullptr || (swept_us_ != 0 && now_us - swept_us_ < kSweepEveryUs)) return;
  swept_us_ = now_us;
  run(
      kNoOwner, 0, [this](Job& job) { job.written = store_->sweep(); },
      [this](Job& job) { problem_ = job.written.ok() ? "" : job.written.error().message; });
}

http::KeptStats ResponseKeeper::stats() const {
  return {.enabled = enabled(), .entries = entries_, .bytes = bytes_, .not_kept = not_kept_};
}

}  // namespace hearth::broker
