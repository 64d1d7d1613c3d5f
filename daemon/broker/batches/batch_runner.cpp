#include "daemon/broker/batches/batch_runner.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "kernels/base/log.h"

namespace hearth::broker {
namespace {

constexpr int64_t kSweepEveryUs = 60'000'000;
/// Bytes of a batch's input that are read at once; more are read if fewer lines than this remain.
constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kFewLines = 4;
constexpr int64_t kFirstPauseUs = 1'000'000;
constexpr int64_t kMostPauseUs = 30'000'000;
/// Attempts of a line while its model is unavailable, with those pauses: two and a half minutes.
constexpr int kMostTries = 10;
/// The owner of the runner's own work.
constexpr uint32_t kNoOwner = UINT32_MAX;

/// True if the daemon was busy or is stopping: the same request may succeed later.
bool is_busy(int status) { return status == 429; }
/// True if the request's model is not available now.
bool is_unavailable(int status) { return status == 503 || status == 529; }

}  // namespace

struct BatchRunner::Running {
  struct Written {
    int64_t line = 0;
    http::LineResult result;
  };
  LiveBatch batch;
  bool begun = false;  // its lines are checked
  bool busy = false;   // the store works for it
  InputPlace next;
  bool read_all = false;
  std::deque<Waiting> waiting;
  std::map<int64_t, std::shared_ptr<InnerRequest>> asked;  // by line
  std::deque<Written> results;                             // to be written
  std::string ending;  // the status with which it ends; "": it goes on
  std::string problem;
  int64_t not_before_us = 0;
  int64_t pause_us = kFirstPauseUs;

  size_t in_progress() const { return asked.size() + results.size(); }
  // Once for all requests that were refused together.
  void pause(int64_t now_us) {
    if (now_us < not_before_us) return;
    not_before_us = now_us + pause_us;
    pause_us = std::min(pause_us * 2, kMostPauseUs);
  }
};

BatchRunner::BatchRunner(boost::asio::io_context& io) : io_(io), thread_(io) {}

BatchRunner::~BatchRunner() {
  *alive_ = false;
  stop();
}

void BatchRunner::start(BatchRunnerConfig config, Connect connect) {
  log_info("batches_kept", "file=\"{}\" keep_s={} bytes={} owner_bytes={} requests={}",
           config.store.file.string(), config.store.keep_s, config.store.bytes,
           config.store.owner_bytes, config.requests);
  config_ = std::move(config);
  connect_ = std::move(connect);
  store_ = std::make_unique<BatchStore>(config_.store);
  refresh();
}

void BatchRunner::discard(std::filesystem::path file) {
  thread_.run(
      kNoOwner, 0,
      [file = std::move(file)] {
        if (StateFile::remove(file)) log_info("batches_removed", "file=\"{}\"", file.string());
      },
      [] {});
}

template <class T>
void BatchRunner::run(uint32_t owner, size_t bytes, std::function<Result<T>()> work,
                      std::function<void(Result<T>)> then) {
  struct Job {
    Result<T> result = Error::internal("not run");
    int64_t files = 0;
    int64_t bytes = 0;
  };
  auto job = std::make_shared<Job>();
  ++jobs_;
  thread_.run(
      owner, bytes,
      [this, job, work = std::move(work)] {
        job->result = work();
        job->files = store_->files();
        job->bytes = store_->bytes();
      },
      [this, job, then = std::move(then)] {
        --jobs_;
        files_ = job->files;
        bytes_ = job->bytes;
        if (job->result.ok()) {
          problem_.clear();
        } else if (job->result.error().field.empty()) {
          if (problem_.empty()) {
            log_warn("batches_unusable", "error=\"{}\"", job->result.error().message);
          }
          problem_ = job->result.error().message;
        }
        then(std::move(job->result));
      });
}

/// For one batch, which has no other work meanwhile. A failure of the store pauses it.
template <class T>
void BatchRunner::run_for(const std::shared_ptr<Running>& batch, std::function<Result<T>()> work,
                          std::function<void(T)> then) {
  batch->busy = true;
  run<T>(batch->batch.owner, 0, std::move(work),
         [this, batch, then = std::move(then)](Result<T> result) {
           batch->busy = false;
           if (result.ok()) {
             then(std::move(result).value());
           } else if (result.error().field.empty()) {
             batch->pause(now_us_);
           } else if (result.error().code == ErrorCode::kNotFound) {
             // The file was damaged, and an empty one has taken its place.
             cancel_requests(*batch);
             running_.erase(batch->batch.seq);
           } else {
             batch->problem = result.error().message;
             batch->ending = "failed";
             cancel_requests(*batch);
           }
           pump();
         });
}

// ---- Questions of users ------------------------------------------------------------------------

void BatchRunner::ask(uint32_t owner, http::BatchQuery query,
                      std::function<void(Result<http::BatchReply>)> then) {
  if (store_ == nullptr) {
    return then(Error::unsupported("files and batches are not kept here (http.batches_keep_s)"));
  }
  const bool changes = std::holds_alternative<http::CreateBatch>(query) ||
                       std::holds_alternative<http::CancelBatch>(query);
  const size_t bytes = http::bytes_of(query);
  auto asked = std::make_shared<http::BatchQuery>(std::move(query));
  run<http::BatchReply>(
      owner, bytes, [this, owner, asked] { return store_->ask(owner, std::move(*asked)); },
      [this, changes, then = std::move(then)](Result<http::BatchReply> reply) {
        if (reply.ok() && changes) refresh();
        if (reply.ok() || !reply.error().field.empty()) return then(std::move(reply));
        then(Error::unavailable("files and batches cannot be used: " + reply.error().message));
      });
}

void BatchRunner::refresh() {
  run<std::vector<LiveBatch>>(
      kNoOwner, 0, [this] { return store_->live(); },
      [this](Result<std::vector<LiveBatch>> live) {
        known_ = live.ok();
        if (live.ok()) take_over(*live);
        pump();
      });
}

void BatchRunner::take_over(const std::vector<LiveBatch>& live) {
  for (const LiveBatch& each : live) {
    std::shared_ptr<Running>& batch = running_[each.seq];
    if (batch == nullptr) {
      batch = std::make_shared<Running>();
      log_info("batch", "id={} uid={} status={}", each.id, each.owner, each.status);
    }
    batch->batch = each;
    if (each.status == "cancelling" && batch->ending.empty()) {
      batch->ending = "cancelled";
      cancel_requests(*batch);
    }
  }
}

// ---- Running -----------------------------------------------------------------------------------

size_t BatchRunner::in_progress() const {
  size_t sum = 0;
  for (const auto& [seq, batch] : running_) sum += batch->in_progress();
  return sum;
}

void BatchRunner::pump() {
  if (stopped_ || std::exchange(pumping_, true)) return;
  // A batch that ends leaves the table.
  std::vector<std::shared_ptr<Running>> all;
  for (const auto& [seq, batch] : running_) all.push_back(batch);
  for (const auto& batch : all) {
    while (advance(batch)) {
    }
  }
  while (in_progress() < config_.requests) {
    const std::shared_ptr<Running> batch = next_to_ask();
    if (batch == nullptr) break;
    ask_line(batch);
  }
  pumping_ = false;
}

// The next work of the store for a batch. True: it may have more.
bool BatchRunner::advance(const std::shared_ptr<Running>& batch) {
  if (batch->busy || now_us_ < batch->not_before_us) return false;
  const int64_t seq = batch->batch.seq;
  if (batch->ending.empty() && config_.store.now_s() >= batch->batch.expires_s) {
    batch->ending = "expired";
    cancel_requests(*batch);
  }
  if (!batch->results.empty()) {
    write(batch);
  } else if (!batch->ending.empty()) {
    if (batch->asked.empty()) end(batch);
  } else if (!batch->begun) {
    run_for<std::string>(
        batch, [this, seq] { return store_->begin(seq); },
        [this, batch](const std::string& status) {
          batch->begun = true;
          if (status != "failed") return;
          log_info("batch", "id={} status=failed", batch->batch.id);
          running_.erase(batch->batch.seq);
        });
  } else if (!batch->read_all && batch->waiting.size() < kFewLines) {
    run_for<InputPart>(
        batch, [this, seq, from = batch->next] { return store_->read(seq, from, kReadBytes); },
        [batch](InputPart part) {
          batch->next = part.next;
          batch->read_all = part.ended;
          for (InputLine& line : part.lines) batch->waiting.push_back({std::move(line)});
        });
  } else if (batch->read_all && batch->waiting.empty() && batch->asked.empty()) {
    batch->ending = "completed";
    return true;
  }
  return false;
}

void BatchRunner::end(const std::shared_ptr<Running>& batch) {
  run_for<bool>(
      batch,
      [this, seq = batch->batch.seq, status = batch->ending,
       problem = batch->problem]() -> Result<bool> {
        HEARTH_TRY(store_->end(seq, status, problem));
        return true;
      },
      [this, batch](bool) {
        log_info("batch", "id={} status={}", batch->batch.id, batch->ending);
        running_.erase(batch->batch.seq);
      });
}

void BatchRunner::write(const std::shared_ptr<Running>& batch) {
  run_for<bool>(
      batch,
      [this, seq = batch->batch.seq, next = batch->results.front()]() -> Result<bool> {
        HEARTH_TRY(store_->append(seq, next.line, next.result));
        return true;
      },
      [this, batch](bool) {
        ++lines_;
        batch->results.pop_front();
      });
}

// Of the owner with the fewest requests in progress, the oldest batch.
std::shared_ptr<BatchRunner::Running> BatchRunner::next_to_ask() const {
  std::map<uint32_t, size_t> of_owner;
  for (const auto& [seq, batch] : running_) {
    of_owner[batch->batch.owner] += batch->in_progress();
  }
  std::shared_ptr<Running> best;
  for (const auto& [seq, batch] : running_) {
    const bool ready =
        batch->ending.empty() && !batch->waiting.empty() && now_us_ >= batch->not_before_us;
    if (!ready) continue;
    if (best == nullptr || of_owner[batch->batch.owner] < of_owner[best->batch.owner]) {
      best = batch;
    }
  }
  return best;
}

void BatchRunner::ask_line(const std::shared_ptr<Running>& batch) {
  auto waiting = std::make_shared<Waiting>(std::move(batch->waiting.front()));
  batch->waiting.pop_front();
  const int fd = connect_(batch->batch.owner);
  if (fd < 0) {
    batch->waiting.push_front(std::move(*waiting));
    return batch->pause(now_us_);
  }
  const int64_t number = waiting->line.number;
  auto request = std::make_shared<InnerRequest>(io_, fd);
  batch->asked.emplace(number, request);
  request->start(batch->batch.endpoint, waiting->line.request.body, config_.answer_bytes,
                 [this, alive = alive_, batch, waiting, number](Result<InnerAnswer> answer) {
                   if (!*alive) return;
                   batch->asked.erase(number);
                   on_answer(batch, *waiting, std::move(answer));
                   pump();
                 });
}

void BatchRunner::on_answer(const std::shared_ptr<Running>& batch, Waiting& waiting,
                            Result<InnerAnswer> answer) {
  const bool broken = !answer.ok() && answer.error().code == ErrorCode::kIo;
  const bool absent = broken || (answer.ok() && is_unavailable(answer->status));
  if ((answer.ok() && is_busy(answer->status)) || (absent && ++waiting.tries < kMostTries)) {
    batch->waiting.push_front(std::move(waiting));
    return batch->pause(now_us_);
  }
  batch->pause_us = kFirstPauseUs;
  http::LineResult result{.custom_id = waiting.line.request.custom_id};
  if (answer.ok()) {
    result.status = answer->status;
    result.request_id = answer->request_id;
    result.body = std::move(answer->body);
  } else {
    result.error_code = std::string(name(answer.error().code));
    result.error = answer.error().message;
  }
  batch->results.push_back({.line = waiting.line.number, .result = std::move(result)});
}

void BatchRunner::cancel_requests(Running& batch) {
  for (const auto& [line, request] : std::exchange(batch.asked, {})) request->cancel();
  batch.waiting.clear();
}

void BatchRunner::stop() {
  stopped_ = true;
  for (const auto& [seq, batch] : running_) cancel_requests(*batch);
}

void BatchRunner::tick(int64_t now_us) {
  now_us_ = now_us;
  if (store_ == nullptr || stopped_) return;
  if (swept_us_ == 0 || now_us - swept_us_ >= kSweepEveryUs) {
    swept_us_ = now_us;
    run<bool>(
        kNoOwner, 0,
        [this]() -> Result<bool> {
          HEARTH_TRY(store_->sweep());
          return true;
        },
        [](const Result<bool>&) {});
    if (!known_) refresh();
  }
  pump();
}

http::BatchStats BatchRunner::stats() const {
  return {.enabled = enabled(),
          .files = files_,
          .bytes = bytes_,
          .live = std::ssize(running_),
          .lines = lines_,
          .in_progress = in_progress()};
}

}  // namespace hearth::broker
