#include "daemon/broker/requests/dispatcher.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "daemon/broker/requests/dispatcher_origin.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/frames.h"
#include "ipc/wire/worker_codec.h"
#include "kernels/base/log.h"
#include "kernels/base/numbers.h"
#include "kernels/base/random.h"

namespace hearth::broker {
namespace {

// Below 2^53, so that every JSON reader preserves the number.
uint64_t random_seed() { return random_bits() >> 11; }

const std::string& model_of(const ipc::ComputeRequest& request) {
  return std::visit([](const auto& each) -> const std::string& { return each.model; }, request);
}

/// The id of a request that came over HTTP, of its answer's id, which has a prefix of its API, or
/// of the answer's x-request-id.
std::string id_over_http(std::string_view id) {
  for (const std::string_view prefix : {"cmpl-", "chatcmpl-", "resp_", "msg_"}) {
    if (id.starts_with(prefix)) return fmt::format("http-{}", id.substr(prefix.size()));
  }
  return fmt::format("http-{}", id);
}

// An event of a worker that the broker must read; nothing if it is not a valid T.
template <class T>
std::optional<T> read_event(uint64_t number, std::string_view json) {
  Result<ipc::Event> event = ipc::decode_event(json);
  if (T* found = event ? std::get_if<T>(&*event) : nullptr) return std::move(*found);
  log_error("worker_protocol", "number={} error=\"{}\"", number,
            event ? "an event that names another first" : event.error().message);
  return std::nullopt;
}

double ms_between(int64_t from_us, int64_t to_us) { return us_as_ms(to_us - from_us); }

}  // namespace

std::string too_slow(size_t backlog_bytes, std::string_view consequence) {
  return ipc::encode_event(ipc::ErrorEvent{
      Error::too_large(
          fmt::format("{} bytes of answers wait for this connection, which reads too slowly; {}",
                      backlog_bytes, consequence)),
      0});
}

// ---- From clients ------------------------------------------------------------------------------

void Dispatcher::submit(const Caller& caller, const std::string& id, ipc::ComputeRequest request,
                        size_t bytes) {
  submit(caller, id, std::move(request), bytes, Origin{});
}

Result<void> Dispatcher::admit(const Caller& caller, size_t bytes, int64_t tokens) const {
  const RequestTable::OwnerUse owner = table_.owner_use(caller.uid);
  Load load{.live = table_.size(),
            .owner_live = owner.requests,
            .queued_bytes = table_.queued_bytes(),
            .owner_bytes = owner.bytes,
            .owner_tokens = owner.tokens};
  for (const SideThread* thread : threads_) {
    load.queued_bytes += thread->bytes();
    load.owner_bytes += thread->bytes_of(caller.uid);
  }
  return admission_.admit(load, {.bytes = bytes, .tokens = tokens}, owners_.find(caller.uid));
}

void Dispatcher::submit(const Caller& caller, const std::string& id, ipc::ComputeRequest request,
                        size_t bytes, Origin origin) {
  if (Result<void> admitted = admit(caller, bytes, max_output_tokens_of(request)); !admitted) {
    return reply_error(caller.peer, id, admitted.take_error());
  }
  split_adapter(request);
  LiveRequest live;
  live.named = model_of(request);
  const Result<void> leave = may_leave(caller.uid, live.named, request);
  live.may_leave = leave.ok();
  Result<ModelFile> file = servable_file_of(live.named);
  const Remote* const remote = remote_for(live);
  if (!file && (remote == nullptr || !remote->rule.absent)) {
    Error error = file.take_error();
    if (!leave && !leave.error().message.empty()) error.message += "; " + leave.error().message;
    return reply_error(caller.peer, id, std::move(error));
  }
  Result<std::vector<std::filesystem::path>> adapters = adapters_of(request);
  if (!adapters) return reply_error(caller.peer, id, adapters.take_error());
  live.adapters = std::move(adapters).value();
  live.peer = caller.peer;
  live.id = id;
  live.owner = caller.uid;
  live.model = live.replica = file ? file->name : models_.target_of(live.named);
  live.bytes = bytes;
  live.received_us = clock_.now_us();
  if (auto* generate = std::get_if<ipc::GenerateRequest>(&request)) {
    live.chose_seed = generate->seed.has_value();
    // Chosen by the broker rather than a worker, so that a resumed request continues the same text.
    if (!generate->seed) generate->seed = random_seed();
    generate->cache = cache_.allowed(owners_.name(caller.uid), generate->cache);
    owners_.bound_priority(caller.uid, generate);
  }
  live.request = std::make_shared<const ipc::ComputeRequest>(std::move(request));
  live.fork_of = origin.of;
  live.fork_sample = origin.sample;
  if (file) move_to(live, route(live, *file));
  Result<LiveRequest*> added = table_.add(std::move(live));
  if (!added) return reply_error(caller.peer, id, added.take_error());
  if ((*added)->is_generate()) {
    (*added)->log = &logs_.begin((*added)->number, caller.uid, id, (*added)->model,
                                 (*added)->request, std::move(origin.prefix));
    (*added)->log->fingerprint = std::move(origin.fingerprint);
  }
  ++counters_.total;
  log_debug("request", "number={} owner={} model={} bytes={}", (*added)->number, caller.uid,
            (*added)->model, bytes);
  file ? place(**added, *file) : send_to_remote(**added);
}

void Dispatcher::place(LiveRequest& request, const ModelFile& file) {
  const uint64_t number = request.number;
  want_replicas(file, request.replica);
  if (table_.find(number) == nullptr) return;  // the model could not start; client has the error
  if (request.state != LiveRequest::State::kWaiting) return;  // a worker woke, or none could start
  Worker* worker = residency_.worker_of(request.replica);
  if (worker != nullptr && !worker->is_ready()) worker = nullptr;
  if (worker != nullptr && num_suspects_ == 0 && !request.recalled) {
    forward(request, *worker);
  } else if (leaves_now(request)) {
    send_to_remote(request);
  } else {
    if (worker != nullptr) forward_waiting(std::string(request.replica));
    announce_waiting();
  }
}

void Dispatcher::forward(LiveRequest& request, Worker& worker) {
  if (Result<void> same = check_same_file(request, worker); !same) {
    return end_error(request, ipc::ErrorEvent{same.take_error(), 0});
  }
  ipc::WorkerEnvelope envelope;
  envelope.id = request.number;
  envelope.owner = owners_.name(request.owner);
  envelope.received_ms_ago = (clock_.now_us() - request.received_us) / 1000;
  if (request.log != nullptr) {
    envelope.resume = request.log->resume();
    envelope.prefix = request.log->prefix;
    envelope.fork_of = request.fork_of;
    envelope.fork_sample = request.fork_sample;
  }
  envelope.end_reasoning = request.ends_reasoning;
  for (const auto& path : request.adapters) envelope.adapter_paths.push_back(path.string());
  request.state = LiveRequest::State::kForwarded;
  request.traffic = &traffic_[request.model];
  request.queued = kNotQueued;  // until the worker reports its queue position
  request.encoding = 0;
  if (side_ == nullptr || request.bytes <= kInlineBytes) {
    return worker.send_request(request.number,
                               ipc::encode_worker_request(envelope, *request.request));
  }
  request.encoding = ++encodings_made_;
  auto json = std::make_shared<std::string>();
  side_->run(
      request.owner, 0,  // the request table counts the request's bytes
      [json, envelope = std::move(envelope), asked = request.request] {
        *json = ipc::encode_worker_request(envelope, *asked);
      },
      [this, number = request.number, encoding = request.encoding, json] {
        on_encoded(number, encoding, std::move(*json));
      });
}

// Meanwhile the request may have ended, or be waiting again because its worker is gone.
void Dispatcher::on_encoded(uint64_t number, uint64_t encoding, std::string json) {
  LiveRequest* request = table_.find(number);
  if (request == nullptr || request->encoding != encoding ||
      request->state != LiveRequest::State::kForwarded) {
    return;
  }
  request->encoding = 0;
  if (request->cancelling || request->muted) return end_without_worker(*request, "cancelled");
  if (Worker* worker = residency_.worker_of(request->replica)) {
    worker->send_request(number, std::move(json));
    if (request->ends_reasoning) worker->send_end_reasoning(number);
  }
}

// Requests of other owners are reported as not found, so that their ids stay private.
Result<LiveRequest*> Dispatcher::live_of(const Caller& caller, const std::string& id) {
  for (const std::string& each : {id, id_over_http(id)}) {
    LiveRequest* target = table_.find(caller.uid, each);
    if (target == nullptr && caller.is_admin) target = table_.find_any_owner(each);
    if (target != nullptr) return target;
  }
  return Error::not_found("you have no live request of that id", "id");
}

void Dispatcher::cancel(const Caller& caller, const std::string& id,
                        const ipc::CancelRequest& request) {
  const Result<LiveRequest*> target = live_of(caller, request.id);
  if (!target) return reply_error(caller.peer, id, target.error());
  const uint64_t number = (*target)->number;
  reply(caller.peer, id, ipc::CancelReply{.id = request.id});
  // Sending the answer may have found the connection closed, which ends its requests.
  LiveRequest* const live = table_.find(number);
  if (live == nullptr) return;
  request.reasoning ? end_reasoning(*live) : cancel_request(*live);
}

Result<void> Dispatcher::end_reasoning(const Caller& caller, const std::string& id) {
  HEARTH_ASSIGN_OR_RETURN(LiveRequest * live, live_of(caller, id));
  end_reasoning(*live);
  return {};
}

// The worker is asked once it has the request; the envelope of the next one contains it.
void Dispatcher::end_reasoning(LiveRequest& request) {
  request.ends_reasoning = true;
  if (request.state != LiveRequest::State::kForwarded || request.encoding != 0) return;
  if (Worker* worker = residency_.worker_of(request.replica)) {
    worker->send_end_reasoning(request.number);
  }
}

void Dispatcher::cancel_request(LiveRequest& request) {
  if (request.state != LiveRequest::State::kForwarded) {
    end_without_worker(request, "cancelled");
  } else {
    tell_worker_to_cancel(request);
  }
}

void Dispatcher::tell_worker_to_cancel(LiveRequest& request) {
  if (request.cancelling || request.state == LiveRequest::State::kWaiting) return;
  request.cancelling = true;
  if (request.state == LiveRequest::State::kRemote) return remotes_->cancel(request.number);
  if (Worker* worker = residency_.worker_of(request.replica)) {
    worker->send_cancel(request.number);
  }
}

void Dispatcher::connection_gone(const PeerId& peer) {
  unwatch(peer);
  if (observer_ != nullptr) observer_->on_connection_gone(peer);
  const std::vector<uint64_t> numbers = table_.numbers([&](const LiveRequest& request) {
    return request.peer == peer && !request.muted && !request.left;
  });
  for (const uint64_t number : numbers) {
    LiveRequest* request = table_.find(number);
    if (request == nullptr) continue;
    if (request->is_generate() && request->generate().detach) {
      request->left = true;
      continue;
    }
    log_info("peer_gone", "number={} owner={}", number, request->owner);
    request->muted = true;
    cancel_request(*request);
  }
}

void Dispatcher::fail_all(const Error& error) {
  for (const uint64_t number : table_.numbers([](const LiveRequest&) { return true; })) {
    LiveRequest* request = table_.find(number);
    if (request == nullptr) continue;
    tell_worker_to_cancel(*request);
    end_error(*request, ipc::ErrorEvent{error, 0});
  }
  if (observer_ != nullptr) observer_->on_fail_all(error);
}

void Dispatcher::tick() {
  if (observer_ != nullptr) observer_->on_tick();
  for (const PeerId& peer : std::exchange(gone_, {})) connection_gone(peer);
  const std::vector<uint64_t> unread = table_.numbers([](const LiveRequest& request) {
    return request.state != LiveRequest::State::kForwarded && request.muted;
  });
  end_all_without_worker(unread, "cancelled");

  const int64_t now_us = clock_.now_us();
  const std::vector<uint64_t> late = table_.numbers([&](const LiveRequest& request) {
    // A worker watches the deadlines of forwarded requests.
    return request.state != LiveRequest::State::kForwarded && request.is_generate() &&
           request.generate().deadline_ms > 0 &&
           (now_us - request.received_us) / 1000 >= request.generate().deadline_ms;
  });
  end_all_without_worker(late, "deadline");
  send_late_ones_to_remotes();
  logs_.tick(now_us);
  announce_waiting();
}

// Ending one request may end others or let others begin.
void Dispatcher::end_all_without_worker(const std::vector<uint64_t>& numbers,
                                        const std::string& reason) {
  for (const uint64_t number : numbers) {
    LiveRequest* request = table_.find(number);
    if (request != nullptr && request->state != LiveRequest::State::kForwarded) {
      end_without_worker(*request, reason);
    }
  }
}

// ---- From workers ------------------------------------------------------------------------------

void Dispatcher::on_answer(const std::string& model, uint64_t number, const ipc::Answer& answer,
                           int64_t read_us) {
  LiveRequest* request = table_.find(number);
  // Answers to a request that has ended here are late, not wrong.
  if (request == nullptr || request->replica != model) return;
  if (request->recalled) return on_recalled(*request, answer);
  if (request->state != LiveRequest::State::kForwarded) return;
  if (answer.is_delta) {
    on_delta(*request, answer, read_us);
  } else {
    on_event(*request, answer.json);
  }
}

// The text is passed on as it came. Only the header is read, for the log.
void Dispatcher::on_delta(LiveRequest& request, const ipc::Answer& answer, int64_t read_us) {
  Result<ipc::DeltaHeader> header = ipc::decode_delta_header(answer.payload);
  if (header && request.log == nullptr) header = Error::internal("delta of no generate request");
  const Result<bool> wanted =
      header ? logs_.add(*request.log, *header, answer) : Result<bool>(header.error());
  if (!wanted) {
    log_error("worker_protocol", "number={} error=\"{}\"", request.number, wanted.error().message);
    tell_worker_to_cancel(request);
    return end_error(request, ipc::ErrorEvent{Error::internal(wanted.error().message), 0});
  }
  if (!*wanted) return;
  note_times(request, *header, read_us);
  counters_.output_tokens += header->num_tokens;
  send(request,
       {.number = request.number,
        .request_id = request.id,
        .is_delta = true,
        .sample = header->sample,
        .payload = answer.payload,
        .ids = answer.ids,
        .logprobs = answer.logprobs},
       Size::kBounded);
  if (request.deaths > 0) note_progress(request);
}

// Events are passed on as they came. Reading one costs more than passing it on, and a large one
// would delay all other users, so only events with something for the broker are decoded.
void Dispatcher::on_event(LiveRequest& request, std::string_view json) {
  const std::optional<ipc::EventKind> kind = ipc::event_kind(json);
  if (!kind) {
    log_error("worker_protocol", "number={} error=\"an event without a known name\"",
              request.number);
    return;
  }
  switch (*kind) {
    case ipc::EventKind::kStarted:
      if (const auto started = read_event<ipc::StartedEvent>(request.number, json)) {
        request.prompt_tokens = started->prompt_tokens;
        send_once(request, &TokenLog::started, json);
      }
      return;
    case ipc::EventKind::kPromptLogprobs:
      return send_once(request, &TokenLog::prompt_logprobs, json);
    case ipc::EventKind::kSampleDone:
      if (auto done = read_event<ipc::SampleDoneEvent>(request.number, json)) {
        on_sample_done(request, std::move(*done), json);
      }
      return;
    case ipc::EventKind::kQueued:
      if (auto queued = read_event<ipc::QueuedEvent>(request.number, json)) {
        request.queued = std::move(*queued);
        send_newest(request, json);
      }
      return;
    case ipc::EventKind::kProgress: request.queued = kNotQueued; return send_newest(request, json);
    case ipc::EventKind::kDone:
      if (auto done = read_event<ipc::DoneEvent>(request.number, json)) {
        end_done(request, std::move(*done), json);
      }
      return;
    case ipc::EventKind::kError:
      if (auto error = read_event<ipc::ErrorEvent>(request.number, json)) {
        end_error(request, std::move(*error), json);
      }
      return;
    case ipc::EventKind::kLoading:
    case ipc::EventKind::kAttached:
    case ipc::EventKind::kRecord:
    case ipc::EventKind::kReply: return end_reply(request, json);
  }
}

void Dispatcher::on_sample_done(LiveRequest& request, ipc::SampleDoneEvent done,
                                std::string_view json) {
  const size_t sample = done.sample;
  if (request.log == nullptr || sample >= request.log->samples.size() ||
      !request.log->samples[sample].finish_reason.empty()) {
    return;
  }
  logs_.note_sample_done(*request.log, sample, std::move(done.reason), json);
  send_event(request, json, Size::kBounded);
}

// A resumed request starts again in its new worker; what the client has seen is not repeated.
void Dispatcher::send_once(LiveRequest& request, std::string TokenLog::*event,
                           std::string_view json) {
  if (request.log == nullptr || !(request.log->*event).empty()) return;
  logs_.note(*request.log, event, json);
  send_event(request, json, Size::kBounded);
}

void Dispatcher::end_reply(LiveRequest& request, std::string_view json) {
  if (observer_ != nullptr) observer_->on_end(request, {.reply = json});
  send_event(request, json, Size::kBounded);
  ++counters_.done;
  erase(request);
}

void Dispatcher::on_model_failed(const std::string& model, const Error& error) {
  forget_recalls(model);
  const std::vector<uint64_t> numbers = table_.numbers([&](const LiveRequest& request) {
    return request.replica == model && request.state != LiveRequest::State::kRemote;
  });
  for (const uint64_t number : numbers) {
    LiveRequest* const request = table_.find(number);
    if (request == nullptr || move_on(*request)) continue;
    if (leaves_now(*request)) {
      send_to_remote(*request);
    } else {
      end_error(*request, ipc::ErrorEvent{error, 0});
    }
  }
}

// ---- Endings -----------------------------------------------------------------------------------

void Dispatcher::end_done(LiveRequest& request, ipc::DoneEvent done, std::string_view json) {
  const bool cancelled = std::find(done.finish_reasons.begin(), done.finish_reasons.end(),
                                   "cancelled") != done.finish_reasons.end();
  if (request.resumed > 0) {
    // The last worker knows only its own part.
    const int64_t now_us = clock_.now_us();
    done.resumed = request.resumed;
    if (request.first_delta_us > 0) {
      done.timings.ttft_ms = ms_between(request.received_us, request.first_delta_us);
      const size_t gaps = std::max<size_t>(request.log->samples.front().ids.size(), 2) - 1;
      done.timings.tpot_ms = ms_between(request.first_delta_us, now_us) / as_double(gaps);
    }
  }
  ++(cancelled ? counters_.cancelled : counters_.done);
  log_info("request_done",
           "number={} owner={} model={} tokens={} ms={:.0f} resumed={} cancelled={}",
           request.number, request.owner, request.model, request.output_tokens(),
           ms_between(request.received_us, clock_.now_us()), done.resumed, cancelled);
  note_remote_done(request, &done, cancelled);
  if (on_done_) on_done_(request.owner, request.id, done);
  if (observer_ != nullptr) observer_->on_end(request, {.done = &done});
  const bool as_it_came = !json.empty() && request.resumed == 0;
  const std::string last = as_it_came ? std::string(json) : ipc::encode_event(done);
  send_event(request, last, Size::kMustFit);
  end_log(request, last);
  erase(request);
}

// For a request that no worker has, the broker fills in `done` itself.
void Dispatcher::end_without_worker(LiveRequest& request, const std::string& reason) {
  if (!request.is_generate()) {
    return end_error(request, ipc::ErrorEvent{Error::cancelled("cancelled"), 0});
  }
  ipc::DoneEvent done;
  for (const TokenLog::Sample& sample : request.log->samples) {
    done.finish_reasons.push_back(sample.finish_reason.empty() ? reason : sample.finish_reason);
  }
  done.model = request.model;
  done.seed = request.generate().seed.value_or(0);
  done.usage.prompt_tokens = request.prompt_tokens;
  done.usage.output_tokens = request.output_tokens();
  done.timings.total_ms = ms_between(request.received_us, clock_.now_us());
  if (!request.started()) done.timings.queue_ms = done.timings.total_ms;
  end_done(request, std::move(done));
}

void Dispatcher::end_error(LiveRequest& request, ipc::ErrorEvent error, std::string_view json) {
  const bool adds_retry = error.error.code == ErrorCode::kBusy && error.retry_ms == 0;
  if (adds_retry) error.retry_ms = admission_.retry_ms(table_.size());
  note_remote_error(request, &error.error);
  log_info("request_failed", "number={} owner={} model={} code={}", request.number, request.owner,
           request.model, name(error.error.code));
  ++counters_.failed;
  if (observer_ != nullptr) observer_->on_end(request, {.error = &error.error});
  const bool as_it_came = !json.empty() && !adds_retry && request.remote_failure.empty();
  const std::string last = as_it_came ? std::string(json) : ipc::encode_event(error);
  send_event(request, last, Size::kMustFit);
  end_log(request, last);
  erase(request);
}

void Dispatcher::erase(LiveRequest& request) {
  admission_.note_duration_ms(ms_between(request.received_us, clock_.now_us()));
  const bool others_waited = num_suspects_ > 0;
  if (request.deaths > 0) --num_suspects_;
  if (request.state == LiveRequest::State::kRemote) remotes_->cancel(request.number);
  const std::string replica = others_waited ? request.replica : std::string();
  table_.erase(request.number);
  if (others_waited) forward_waiting(replica);
}

// ---- To clients --------------------------------------------------------------------------------

void Dispatcher::send_event(LiveRequest& request, std::string_view json, Size size) {
  OutgoingView out;
  out.payload = json;
  send(request, out, size);
}

void Dispatcher::send(LiveRequest& request, OutgoingView outgoing, Size size) {
  if (!request.watchers.empty()) tell_watchers(request, outgoing, size == Size::kMustFit);
  if (request.muted || request.left) return;
  outgoing.number = request.number;
  outgoing.request_id = request.id;
  switch (output_.push(request.peer, outgoing, size == Size::kMustFit)) {
    case OutputBuffer::Outcome::kSent:
    case OutputBuffer::Outcome::kQueued: break;
    case OutputBuffer::Outcome::kOverflow: on_overflow(request); break;
    case OutputBuffer::Outcome::kGone:
      if (request.is_generate() && request.generate().detach) {
        request.left = true;
      } else {
        request.muted = true;
        tell_worker_to_cancel(request);
      }
      gone_.insert(request.peer);  // the connection's other requests end at the next tick
      break;
  }
}

void Dispatcher::on_overflow(LiveRequest& request) {
  log_warn("slow_reader", "number={} owner={} backlog_bytes={}", request.number, request.owner,
           output_.backlog_bytes(request.peer));
  const bool detach = request.is_generate() && request.generate().detach;
  Outgoing last;
  last.number = request.number;
  last.request_id = request.id;
  last.payload = too_slow(
      output_.backlog_bytes(request.peer),
      detach ? "the request continues; attach shows it again" : "the request was cancelled");
  output_.push(request.peer, last, true);
  if (detach) {
    request.left = true;
    return;
  }
  request.muted = true;
  tell_worker_to_cancel(request);
}

void Dispatcher::reply(const PeerId& peer, const std::string& id, const ipc::Event& event) {
  Outgoing out;
  out.request_id = id;
  out.payload = ipc::encode_event(event);
  switch (output_.push(peer, out, false)) {
    case OutputBuffer::Outcome::kSent:
    case OutputBuffer::Outcome::kQueued: break;
    case OutputBuffer::Outcome::kGone: connection_gone(peer); break;
    case OutputBuffer::Outcome::kOverflow: on_reply_dropped(peer, id); break;
  }
}

// Reported once per stall: a report for each reply would continue the flood.
void Dispatcher::on_reply_dropped(const PeerId& peer, const std::string& id) {
  ++counters_.replies_dropped;
  if (!output_.note_dropped(peer)) return;
  const size_t bytes = output_.backlog_bytes(peer);
  log_warn("replies_dropped", "id={} backlog_bytes={} total={}", id, bytes,
           counters_.replies_dropped);
  Outgoing notice;
  notice.request_id = id;
  notice.payload = ipc::encode_event(
      ipc::ErrorEvent{Error::too_large(fmt::format(
                          "{} bytes of answers wait for this connection, which does not read; this "
                          "answer and those that follow are dropped until it does",
                          bytes)),
                      0});
  output_.push(peer, notice, true);
}

void Dispatcher::reply_error(const PeerId& peer, const std::string& id, Error error) {
  ipc::ErrorEvent event{std::move(error), 0};
  if (event.error.code == ErrorCode::kBusy) event.retry_ms = admission_.retry_ms(table_.size());
  reply(peer, id, event);
}

}  // namespace hearth::broker
