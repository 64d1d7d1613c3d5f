// The dispatcher's part for requests that a role's remote may answer (docs/remotes.md).
//
// A request leaves while it waits, in the broker or in its worker's queue, which is then asked to
// give it back. Its text comes without tokens, so no worker can go on with it: a remote that fails
// amid its answer ends the request, one that fails before that returns it to this machine. It is
// sent to a remote once at most.

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "daemon/broker/requests/dispatcher.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/frames.h"
#include "kernels/base/log.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::broker {
namespace {

double ms_from_to(int64_t from_us, int64_t to_us) { return us_as_ms(to_us - from_us); }

}  // namespace

/// Whether its client, its owner and its content let a request leave. The error is empty if its
/// role has no remote.
Result<void> Dispatcher::may_leave(uint32_t owner, const std::string& role,
                                   const ipc::ComputeRequest& request) const {
  if (remotes_ == nullptr || remotes_->find(role) == nullptr) return Error{};
  const auto stays = [&](std::string_view why) {
    return Error::forbidden(fmt::format("the remote of role {} may not answer: {}", role, why));
  };
  const auto* const generate = std::get_if<ipc::GenerateRequest>(&request);
  if (generate == nullptr) return stays("it generates text, and nothing else");
  if (!owners_.may_leave(owner, generate->remote)) {
    return stays(
        "neither the request (\"remote\": true) nor the configuration of its owner lets it");
  }
  if (const Result<void> portable = check_portable(*generate); !portable) {
    return stays(portable.error().message);
  }
  return {};
}

/// Null: the request stays here.
const Remote* Dispatcher::remote_for(const LiveRequest& request) const {
  if (!request.may_leave || remotes_ == nullptr || !remotes_->has_room()) return nullptr;
  return remotes_->find(request.named);
}

bool Dispatcher::leaves_now(const LiveRequest& request) {
  const Remote* const remote = remote_for(request);
  const bool waits = !request.started() && request.deaths == 0 && !request.muted &&
                     !request.cancelling && request.state != LiveRequest::State::kRemote;
  if (remote == nullptr || !waits) return false;
  const bool forwarded = request.state == LiveRequest::State::kForwarded;
  const Worker* const worker = residency_.worker_of(request.replica);
  const bool absent = !forwarded && (worker == nullptr || !worker->is_ready());
  if (absent && remote->rule.absent) return true;
  // Batches can wait, and a remote may charge for its answers.
  if (remote->rule.queue_ms < 0 || request.generate().priority == "batch") return false;
  const int64_t waited_ms = (clock_.now_us() - request.received_us) / 1000;
  // It is unknown when the requests of other models will end.
  const bool known = absent && residency_.waiting_reason(request.replica) != "busy";
  const int64_t estimate_ms =
      known ? residency_.estimate_ms(request.replica) : request.queued.estimate_ms;
  return waited_ms + estimate_ms > remote->rule.queue_ms;
}

void Dispatcher::send_late_ones_to_remotes() {
  if (remotes_ == nullptr) return;
  const std::vector<uint64_t> waiting = table_.numbers(
      [](const LiveRequest& request) { return request.may_leave && !request.started(); });
  for (const uint64_t number : waiting) {
    LiveRequest* const request = table_.find(number);
    if (request != nullptr && leaves_now(*request)) send_to_remote(*request);
  }
}

// The request may have ended afterwards.
void Dispatcher::send_to_remote(LiveRequest& request) {
  const Remote& remote = *remotes_->find(request.named);
  Worker* const worker = residency_.worker_of(request.replica);
  if (request.state == LiveRequest::State::kForwarded && request.encoding == 0 &&
      worker != nullptr) {
    request.recalled = true;
    worker->send_cancel(request.number);
  }
  request.may_leave = false;
  request.state = LiveRequest::State::kRemote;
  request.remote = remote.host;
  request.left_us = clock_.now_us();
  request.queued = kNotQueued;
  request.use.reset();
  ++remote_stats_[request.named].requests_sent;
  log_info("remote_sent", "number={} owner={} role={} remote={} waited_ms={:.0f}", request.number,
           request.owner, request.named, request.remote,
           ms_from_to(request.received_us, request.left_us));

  auto encode = [asked = request.request, model = remote.model, with_seed = request.chose_seed] {
    return make_remote_request(std::get<ipc::GenerateRequest>(*asked), model, with_seed);
  };
  request.encoding = ++encodings_made_;
  if (side_ == nullptr || request.bytes <= kInlineBytes) {
    return on_remote_encoded(request.number, request.encoding, encode());
  }
  auto encoded = std::make_shared<Result<RemoteRequest>>(RemoteRequest{});
  side_->run(
      request.owner, 0,  // the request table counts the request's bytes
      [encoded, encode = std::move(encode)] { *encoded = encode(); },
      [this, number = request.number, encoding = request.encoding, encoded] {
        on_remote_encoded(number, encoding, std::move(*encoded));
      });
}

// Meanwhile the request may have ended, or its role may have lost its remote.
void Dispatcher::on_remote_encoded(uint64_t number, uint64_t encoding,
                                   Result<RemoteRequest> encoded) {
  LiveRequest* const request = table_.find(number);
  if (request == nullptr || request->encoding != encoding) return;
  request->encoding = 0;
  if (!encoded) return return_from_remote(*request, encoded.error());
  if (remotes_->find(request->named) == nullptr) {
    return return_from_remote(*request, Error::unavailable("the role has no remote any more"));
  }
  remotes_->start(number, request->named, std::move(encoded).value());
}

// ---- From remotes ------------------------------------------------------------------------------

void Dispatcher::begin_remote_answer(LiveRequest& request, const std::string& model) {
  request.log->is_remote = true;
  request.remote_model = model.empty() ? request.named : model;
  ipc::StartedEvent started;
  started.model = request.remote_model;
  started.queue_ms = ms_from_to(request.received_us, request.left_us);
  started.max_tokens = request.generate().max_tokens;
  started.remote = request.remote;
  send_once(request, &TokenLog::started, ipc::encode_event(started));
}

void Dispatcher::on_remote_text(uint64_t number, const std::string& model, const RemoteText& text) {
  LiveRequest* const request = table_.find(number);
  if (request == nullptr || request->state != LiveRequest::State::kRemote) return;
  if (!request->started()) begin_remote_answer(*request, model);
  if (request->first_delta_us == 0) request->first_delta_us = clock_.now_us();
  logs_.add_text(*request->log, text.sample, text.payload);
  send(*request,
       {.number = request->number,
        .request_id = request->id,
        .is_delta = true,
        .sample = text.sample,
        .payload = text.payload},
       Size::kBounded);
}

void Dispatcher::on_remote_done(uint64_t number, const std::string& model,
                                const std::vector<std::string>& reasons, const ipc::Usage& usage) {
  LiveRequest* const request = table_.find(number);
  if (request == nullptr || request->state != LiveRequest::State::kRemote) return;
  if (request->muted) return end_without_worker(*request, "cancelled");
  if (!request->started()) begin_remote_answer(*request, model);
  for (int32_t i = 0; i < size32(reasons); ++i) {
    // How the tokens are divided among samples is not known.
    const int32_t tokens = reasons.size() == 1 ? usage.output_tokens : 0;
    ipc::SampleDoneEvent sample{.sample = i, .reason = reasons[i], .num_tokens = tokens};
    const std::string json = ipc::encode_event(sample);
    on_sample_done(*request, std::move(sample), json);
  }
  const int64_t now_us = clock_.now_us();
  ipc::DoneEvent done;
  done.finish_reasons = reasons;
  done.model = request->remote_model;
  done.seed = request->chose_seed ? *request->generate().seed : 0;
  done.usage = usage;
  done.timings.queue_ms = ms_from_to(request->received_us, request->left_us);
  done.timings.total_ms = ms_from_to(request->received_us, now_us);
  if (request->first_delta_us > 0) {
    done.timings.ttft_ms = ms_from_to(request->received_us, request->first_delta_us);
    const int32_t gaps = std::max(usage.output_tokens, 2) - 1;
    done.timings.tpot_ms = ms_from_to(request->first_delta_us, now_us) / gaps;
  }
  end_done(*request, std::move(done));
}

void Dispatcher::on_remote_failed(uint64_t number, Error error) {
  LiveRequest* const request = table_.find(number);
  if (request == nullptr || request->state != LiveRequest::State::kRemote) return;
  if (request->muted) return end_without_worker(*request, "cancelled");
  if (!request->started()) return return_from_remote(*request, error);
  end_error(*request, ipc::ErrorEvent{std::move(error), 0});
}

// The remote's answer did not begin: the request goes on here, if this machine can answer it.
void Dispatcher::return_from_remote(LiveRequest& request, const Error& error) {
  ipc::RemoteStats& stats = remote_stats_[request.named];
  request.state = LiveRequest::State::kWaiting;
  request.encoding = 0;
  request.remote.clear();
  request.remote_failure = error.message;
  Result<ModelFile> file = servable_file_of(request.named);
  if (!file) {
    ++stats.requests_failed;
    return end_error(request, ipc::ErrorEvent{Error::unavailable(file.error().message), 0});
  }
  ++stats.requests_returned;
  log_info("remote_returned", "number={} owner={} role={}", request.number, request.owner,
           request.named);
  const ModelFile to = route(request, *file);
  if (to.name != request.replica) request.recalled = false;  // another worker never had it
  move_to(request, to);
  place(request, *file);
}

void Dispatcher::note_remote_done(const LiveRequest& request, ipc::DoneEvent* done,
                                  bool cancelled) {
  if (request.remote.empty()) return;
  ipc::RemoteStats& stats = remote_stats_[request.named];
  ++(cancelled ? stats.requests_cancelled : stats.requests_done);
  stats.output_tokens_total += done->usage.output_tokens;
  done->usage.remote = request.remote;
  log_info("remote_done", "number={} role={} remote={} tokens={}", request.number, request.named,
           request.remote, done->usage.output_tokens);
}

void Dispatcher::note_remote_error(const LiveRequest& request, Error* error) {
  if (!request.remote.empty()) ++remote_stats_[request.named].requests_failed;
  if (!request.remote_failure.empty()) {
    error->message += "; and before that: " + request.remote_failure;
  }
}

std::vector<ipc::RemoteStats> Dispatcher::remote_stats() const {
  std::vector<ipc::RemoteStats> out;
  if (remotes_ == nullptr) return out;
  for (const std::string& role : remotes_->roles()) {
    const auto known = remote_stats_.find(role);
    ipc::RemoteStats stats = known == remote_stats_.end() ? ipc::RemoteStats() : known->second;
    stats.role = role;
    stats.remote = remotes_->find(role)->host;
    table_.for_each([&](const LiveRequest& request) {
      if (request.state == LiveRequest::State::kRemote && request.named == role) {
        ++stats.requests_live;
      }
    });
    out.push_back(std::move(stats));
  }
  return out;
}

// ---- Requests that a worker gives back ---------------------------------------------------------

// What it still answers is not for the client, which gets the remote's answer or a later one's of
// this worker.
void Dispatcher::on_recalled(LiveRequest& request, const ipc::Answer& answer) {
  if (answer.is_delta) return;
  const std::optional<ipc::EventKind> kind = ipc::event_kind(answer.json);
  if (kind != ipc::EventKind::kDone && kind != ipc::EventKind::kError) return;
  request.recalled = false;
  if (request.state == LiveRequest::State::kWaiting) forward_waiting(std::string(request.replica));
}

// Their worker is gone.
void Dispatcher::forget_recalls(const std::string& replica) {
  for (const uint64_t number : table_.numbers([&](const LiveRequest& request) {
         return request.recalled && request.replica == replica;
       })) {
    table_.find(number)->recalled = false;
  }
}

}  // namespace hearth::broker
