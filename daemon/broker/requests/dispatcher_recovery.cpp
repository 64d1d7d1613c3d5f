// Third part of the dispatcher: recovers the requests of a worker that has ended.
//
// A request that kills its worker takes all other requests there with it, and would also kill the
// next worker if they were all sent there together. So each request that was running at a death is
// a suspect, and suspects are sent before all other requests of their model:
//
//   after one death    they are tried one after the other, each until its next token, next to those
//                      already tried. If the worker dies, the death counts against the one on
//                      trial.
//   after two deaths   each runs alone until its end.
//
// Only a request that ran alone at its second or a later death is refused.

#include <fmt/core.h>

#include <utility>

#include "daemon/broker/requests/dispatcher.h"
#include "ipc/files/model_file.h"
#include "kernels/base/log.h"

namespace hearth::broker {
namespace {

constexpr int32_t kDeathsToPoison = 2;

}  // namespace

std::vector<uint64_t> Dispatcher::forwarded_to(const std::string& replica) const {
  return table_.numbers([&](const LiveRequest& request) {
    return request.replica == replica && request.state == LiveRequest::State::kForwarded;
  });
}

void Dispatcher::on_model_ready(const std::string& model) {
  spread_waiting(model);
  forward_waiting(model);
}

void Dispatcher::on_model_stopped(const std::string& model) {
  forget_recalls(model);
  for (const uint64_t number : forwarded_to(model)) {
    LiveRequest* request = table_.find(number);
    if (request == nullptr) continue;
    if (request->muted || request->cancelling) {
      end_without_worker(*request, "cancelled");
    } else {
      request->state = LiveRequest::State::kWaiting;
    }
  }
  spread_waiting(model);
}

void Dispatcher::on_model_lost(const std::string& model, const std::string& how) {
  forget_recalls(model);
  const std::vector<uint64_t> forwarded = forwarded_to(model);
  size_t present = 0;  // requests that the worker had; others were not sent to it yet
  bool trial = false;
  for (const uint64_t number : forwarded) {
    const LiveRequest& request = *table_.find(number);
    if (request.encoding != 0) continue;
    ++present;
    trial |= request.is_tried();
  }
  for (const uint64_t number : forwarded) {
    LiveRequest* request = table_.find(number);
    if (request == nullptr) continue;
    if (request->encoding == 0) {
      const bool counts = !trial || request->is_tried();
      if (counts && request->deaths++ == 0) ++num_suspects_;
      request->went_on = false;
      ++request->resumed;
    }
    if (request->muted || request->cancelling) {
      end_without_worker(*request, "cancelled");
    } else if (request->encoding == 0 && present == 1 && request->deaths >= kDeathsToPoison) {
      end_error(*request, ipc::ErrorEvent{Error::poison(fmt::format(
                                              "was being computed at {} deaths of the worker, "
                                              "alone at the last one ({}), and is not tried "
                                              "again",
                                              request->deaths, how)),
                                          0});
    } else {
      request->state = LiveRequest::State::kWaiting;
      request->encoding = 0;
    }
  }
  spread_waiting(model);
}

// Forwards the waiting requests that may run now to the model's worker.
void Dispatcher::forward_waiting(const std::string& replica) {
  Worker* worker = residency_.worker_of(replica);
  if (worker == nullptr || !worker->is_ready()) return;
  std::vector<uint64_t> waiting;
  size_t forwarded = 0;
  bool trial = false;
  LiveRequest* once = nullptr;   // the first request with one death
  LiveRequest* twice = nullptr;  // the first with two or more
  for (const uint64_t number :
       table_.numbers([&](const LiveRequest& request) { return request.replica == replica; })) {
    LiveRequest& request = *table_.find(number);
    if (request.state == LiveRequest::State::kForwarded) {
      ++forwarded;
      trial |= request.is_tried();
    } else if (request.state == LiveRequest::State::kWaiting && !request.muted &&
               !request.recalled) {
      waiting.push_back(number);
      if (once == nullptr && request.is_tried()) once = &request;
      if (twice == nullptr && request.deaths >= 2) twice = &request;
    }
  }
  if (trial) return;
  if (twice != nullptr) {
    if (forwarded == 0) forward(*twice, *worker);
    return;
  }
  if (once != nullptr) return forward(*once, *worker);
  for (const uint64_t number : waiting) {
    // Forwarding a request may end it, which may forward others.
    LiveRequest* request = table_.find(number);
    if (request != nullptr && request->state == LiveRequest::State::kWaiting) {
      forward(*request, *worker);
    }
  }
}

// The request on trial produced a token, so the next one is tried.
void Dispatcher::note_progress(LiveRequest& request) {
  if (!std::exchange(request.went_on, true)) forward_waiting(std::string(request.replica));
}

// A text may continue only with the weights that it began with.
Result<void> Dispatcher::check_same_file(LiveRequest& request, const Worker& worker) {
  if (request.log == nullptr) return {};
  TokenLog& log = *request.log;
  std::string now = worker.facts() == nullptr ? "" : worker.facts()->fingerprint;
  for (const auto& path : request.adapters) {
    const ipc::FoundModel file = ipc::model_of_file(path);
    now += fmt::format(" {} {} {}", file.name, file.bytes, file.changed_ns);
  }
  const bool has_text = log.num_tokens() > 0 || !log.prompt_logprobs.empty() || !log.prefix.empty();
  if (has_text && !log.fingerprint.empty() && log.fingerprint != now) {
    log_warn("file_changed", "number={} model={} began_with={} met={}", request.number,
             request.model, log.fingerprint, now);
    return Error::unavailable(fmt::format("the file of model {}, or of an adapter, was changed "
                                          "after this text began: it cannot go "
                                          "on; send the request again",
                                          request.model),
                              "model");
  }
  log.fingerprint = now;
  return {};
}

}  // namespace hearth::broker
