#include "daemon/worker/serve/prep_thread.h"

#include <sys/resource.h>

#include <chrono>
#include <utility>

#include "daemon/worker/serve/engine_thread.h"
#include "daemon/worker/text/prompt_logprobs.h"
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
  out.owner = std::move(request.owner);
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

PrepModel prep_model(const EngineLoaded& loaded, const std::string& tool_form) {
  PrepModel model = make_prep_model(loaded.info.name, loaded.context_length, *loaded.tokenizer,
                                    loaded.draft, loaded.templates, tool_form);
  model.architecture = loaded.info.architecture;
  model.fingerprint = loaded.info.fingerprint;
  model.generates = loaded.info.generates;
  model.canvas = loaded.info.canvas;
  model.pooling = loaded.info.pooling;
  model.text_end = loaded.text_end;
  model.fill_marks = loaded.fill_marks;
  model.ranker = loaded.ranker;
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
    auto shorter = thread_.waiting_.take_if([this](const std::string& owner, const Job& job) {
      return owner != owner_ && job.bytes <= bytes_ / kShorterBy;
    });
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
  std::string owner(ipc::owner_of_worker_request(json));
  const size_t bytes = json.size();
  inbox_.post(Job{number, std::move(owner), bytes, std::move(json)});
}

void PrepThread::post(uint64_t number, const std::string& owner, size_t bytes,
                      PromptLogprobs logprobs) {
  inbox_.post(Job{number, owner, bytes, std::move(logprobs)});
}

void PrepThread::run() {
  while (!stopping_) {
    collect(waiting_.empty() ? std::chrono::hours(1) : std::chrono::microseconds(0));
    if (stopping_) return;
    if (auto next = waiting_.take()) serve(next->first, std::move(next->second), 0);
  }
}

void PrepThread::collect(std::chrono::microseconds timeout) {
  auto arrived = timeout.count() > 0 ? inbox_.wait_and_drain(timeout) : inbox_.drain();
  for (auto& message : arrived) {
    match(
        message,
        [this](Job& job) {
          const std::string owner = job.owner;
          waiting_.add(owner, std::move(job));
        },
        [this](Stop&) { stopping_ = true; });
  }
}

void PrepThread::serve(const std::string& owner, Job job, int depth) {
  PrepAnswer answer;
  answer.number = job.number;
  Turn turn(*this, owner, job.bytes, depth);
  match(
      job.work,
      [&](const PromptLogprobs& logprobs) {
        answer.outcome = EncodedPromptLogprobs{
            encode_prompt_logprobs(*model_.tokenizer, logprobs.prompt, logprobs.event, &turn)};
      },
      [&](std::string& json) {
        Result<ipc::WorkerRequest> request =
            ipc::decode_worker_request(job.number, std::exchange(json, {}));
        if (!request) {
          answer.outcome = request.take_error();
          return;
        }
        PrepResult result = prepare(model_, *request, &turn);
        answer.asked = asked_by(*request);
        match(
            result.outcome,
            [&](PreparedRequest& generate) { answer.outcome = std::move(generate); },
            [&](PreparedEmbed& embed) { answer.outcome = std::move(embed); },
            [&](ipc::TokenizeReply& reply) {
              answer.outcome = EncodedReply{ipc::encode_event(std::move(reply))};
            },
            [&](Error& error) { answer.outcome = std::move(error); });
      });
  answers_.post(std::move(answer));
}

}  // namespace hearth::worker
