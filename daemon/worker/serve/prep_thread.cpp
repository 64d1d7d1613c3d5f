#include "daemon/worker/serve/prep_thread.h"

#include <sys/resource.h>

#include <chrono>
#include <utility>

#include "daemon/worker/serve/engine_thread.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/worker_codec.h"
#include "kernels/base/log.h"
#include "kernels/base/match.h"

namespace hearth::worker {
namespace {

constexpr size_t kPrepMessages = 1 << 16;
// A request that interrupts another is at most a quarter as long, so the nesting is bounded: 32
// MiB, the longest message by default, is 4^9 times 128 bytes.
constexpr size_t kShorterBy = 4;
constexpr int kMaxDepth = 10;
// Low priority, because a long request may wait and streams may not.
constexpr int kLowNiceness = 10;

Asked asked_by(ipc::WorkerRequest& request) {
  Asked out;
  out.resume = std::move(request.resume);
  out.received_ms_ago = request.received_ms_ago;
  if (auto* generate = std::get_if<ipc::GenerateRequest>(&request.task)) {
    out.n = generate->n;
    out.seed = generate->seed.value_or(0);
    out.stop = std::move(generate->stop);
    out.deadline_ms = generate->deadline_ms;
  }
  return out;
}

}  // namespace

PrepModel prep_model(const EngineLoaded& loaded) {
  PrepModel model = make_prep_model(loaded.info.name, loaded.context_length, *loaded.tokenizer,
                                    loaded.draft, loaded.templates);
  model.architecture = loaded.info.architecture;
  model.generates = loaded.info.generates;
  model.pooling = loaded.info.pooling;
  model.text_end = loaded.text_end;
  model.sampling = loaded.sampling;
  return model;
}

/// While a request is tokenized, lets shorter ones of other owners go first.
class PrepThread::Turn final : public models::EncodePause {
 public:
  Turn(PrepThread& thread, const std::string& owner, size_t bytes, int depth)
      : thread_(thread), owner_(owner), bytes_(bytes), depth_(depth) {}

  void pause() override {
    if (depth_ >= kMaxDepth) return;
    thread_.collect(std::chrono::microseconds(0));
    if (thread_.stopping_) return;
    auto shorter = thread_.take_shorter(owner_, bytes_ / kShorterBy);
    if (shorter) thread_.serve(shorter->first, std::move(shorter->second), depth_ + 1);
  }

 private:
  PrepThread& thread_;
  const std::string& owner_;
  const size_t bytes_;
  const int depth_;
};

PrepThread::PrepThread(PrepModel model, Priority priority)
    : model_(std::move(model)),
      inbox_(kPrepMessages),
      answers_(kPrepMessages, true),
      thread_([this, priority] {
        // On Linux the niceness applies to the calling thread only.
        if (priority == Priority::kLow && ::setpriority(PRIO_PROCESS, 0, kLowNiceness) != 0) {
          log_debug("prep_priority", "niceness={} is refused", kLowNiceness);
        }
        run();
      }) {}

PrepThread::~PrepThread() {
  inbox_.post(Stop{});
  thread_.join();
}

void PrepThread::post(uint64_t number, std::string json) {
  const size_t bytes = json.size();
  inbox_.post(Job{number, std::move(json), bytes});
}

void PrepThread::run() {
  while (!stopping_) {
    collect(waiting_.empty() ? std::chrono::hours(1) : std::chrono::microseconds(0));
    if (stopping_) return;
    if (auto next = take_next()) serve(next->first, std::move(next->second), 0);
  }
}

void PrepThread::collect(std::chrono::microseconds timeout) {
  auto arrived = timeout.count() > 0 ? inbox_.wait_and_drain(timeout) : inbox_.drain();
  for (auto& message : arrived) {
    if (auto* job = std::get_if<Job>(&message)) {
      std::string owner(ipc::owner_of_worker_request(job->json));
      waiting_[std::move(owner)].push_back(std::move(*job));
    } else {
      stopping_ = true;
    }
  }
}

// Owners take turns, so that one owner's many requests do not delay another's single one.
std::optional<std::pair<std::string, PrepThread::Job>> PrepThread::take_next() {
  if (waiting_.empty()) return std::nullopt;
  auto turn = waiting_.upper_bound(last_owner_);
  if (turn == waiting_.end()) turn = waiting_.begin();
  return take_front(turn->first);
}

std::optional<std::pair<std::string, PrepThread::Job>> PrepThread::take_shorter(
    const std::string& than_of, size_t bytes) {
  for (auto turn = waiting_.upper_bound(last_owner_); turn != waiting_.end(); ++turn) {
    if (turn->first != than_of && turn->second.front().bytes <= bytes)
      return take_front(turn->first);
  }
  for (const auto& [owner, jobs] : waiting_) {
    if (owner != than_of && jobs.front().bytes <= bytes) return take_front(owner);
  }
  return std::nullopt;
}

std::pair<std::string, PrepThread::Job> PrepThread::take_front(const std::string& owner) {
  const auto turn = waiting_.find(owner);
  std::pair<std::string, Job> out(turn->first, std::move(turn->second.front()));
  turn->second.pop_front();
  if (turn->second.empty()) waiting_.erase(turn);
  last_owner_ = out.first;
  return out;
}

void PrepThread::serve(const std::string& owner, Job job, int depth) {
  PrepAnswer answer;
  answer.number = job.number;
  Result<ipc::WorkerRequest> request =
      ipc::decode_worker_request(job.number, std::exchange(job.json, {}));
  if (!request) {
    answer.outcome = request.take_error();
    return answers_.post(std::move(answer));
  }
  Turn turn(*this, owner, job.bytes, depth);
  PrepResult result = prepare(model_, *request, &turn);
  answer.asked = asked_by(*request);
  match(
      result.outcome, [&](PreparedRequest& generate) { answer.outcome = std::move(generate); },
      [&](PreparedEmbed& embed) { answer.outcome = std::move(embed); },
      [&](ipc::TokenizeReply& reply) {
        answer.outcome = EncodedReply{ipc::encode_event(std::move(reply))};
      },
      [&](Error& error) { answer.outcome = std::move(error); });
  answers_.post(std::move(answer));
}

}  // namespace hearth::worker
