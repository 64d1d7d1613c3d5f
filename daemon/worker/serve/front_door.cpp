#include "daemon/worker/serve/front_door.h"

#include <fmt/core.h>
#include <malloc.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "daemon/worker/load/device.h"
#include "daemon/worker/serve/to_wire.h"
#include "daemon/worker/text/prompt_logprobs.h"
#include "ipc/schema/version.h"
#include "ipc/text/shown_text.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/worker_codec.h"
#include "kernels/base/check.h"
#include "kernels/base/log.h"
#include "kernels/base/match.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::worker {
namespace {

constexpr int64_t kHeartbeatUs = 250'000;
constexpr int kWaitMs = 250;  // also bounds how late a lost broker is noticed
constexpr int kWatchedWaitMs = 100;
constexpr int kDeltaEveryMs = 2;         // per stream
constexpr int64_t kIdleUs = 10'000'000;  // idle time before the device's ceilings are measured
constexpr int64_t kLeaveUs = 2'000'000;
constexpr int kExitFailed = 3;  // could not serve; the reason was reported

std::string_view reason_name(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop: return "stop";
    case engine::FinishReason::kLength: return "length";
    case engine::FinishReason::kCancelled: return "cancelled";
    case engine::FinishReason::kDeadline: return "deadline";
  }
  return "stop";
}

double to_ms(int64_t us) { return us_as_ms(us); }

std::optional<ipc::TokenLogprobs> logprobs_of(const models::Tokenizer& tokenizer,
                                              const engine::TokenEvent& token) {
  if (!token.logprob) return std::nullopt;
  ipc::TokenLogprobs out;
  out.logprob = *token.logprob;
  out.text = shown_token(tokenizer, token.token);
  for (const engine::TokenLogprob& top : token.top_logprobs) {
    out.top.push_back({top.token, top.logprob, shown_token(tokenizer, top.token)});
  }
  return out;
}

std::string miss_words(engine::MissReason reason, int32_t first_missed) {
  const std::string from = fmt::format("from token {} on: ", first_missed);
  switch (reason) {
    case engine::MissReason::kNone: break;
    case engine::MissReason::kOff:
      return "from token 0 on: the cache is off, for this request or in the configuration";
    case engine::MissReason::kNew: return from + "nothing that begins like it was kept";
    case engine::MissReason::kOther: return from + "the stored prefix continues with other tokens";
    case engine::MissReason::kEnded:
      return from + "what was kept ends there; more of it was never computed, or was evicted";
    case engine::MissReason::kSlow:
      return from + "the rest is on disk, but computing it was expected to be faster";
    case engine::MissReason::kOverlapped:
      return from + "computed while what follows came from disk, which was faster than either";
  }
  return "";
}

/// The prompt's text around `token`, where the cached prefix ends, for the request's owner. The
/// cache has the first part but not all of the second, which is one block.
std::string parting_words(const models::Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                          int32_t token) {
  constexpr int32_t kBefore = 8, kBehind = kernels::kAttentionTile;
  const auto text = [&](int32_t begin, int32_t end) {
    std::string out;
    for (int32_t i = std::max(0, begin); i < std::min(end, size32(prompt)); ++i) {
      const auto id = prompt[i];
      out += tokenizer.is_control(id) ? tokenizer.entry(id) : tokenizer.piece(id);
    }
    return ipc::one_line(out, 80);
  };
  if (token <= 0 || token >= size32(prompt)) return "";
  return fmt::format("; after \"{}\" it reads \"{}\"", text(token - kBefore, token),
                     text(token, token + kBehind));
}

}  // namespace

FrontDoor::FrontDoor(const ServeOptions& options, BrokerLink link, int signal_fd)
    : options_(options),
      link_(std::move(link)),
      signal_fd_(signal_fd),
      broker_pid_(::getppid()),
      engine_thread_(std::make_unique<EngineThread>(options_, clock_)) {
  link_.send(ipc::WorkerHello{.pid = ::getpid(),
                              .version = std::string(ipc::version()),
                              .device = std::string(device_kind())});
}

int FrontDoor::run() {
  while (state_ != State::kEnded) {
    wait();
    if (::getppid() != broker_pid_ || link_.ended()) {
      // The broker is gone, and no state here needs an orderly end.
      log_warn("broker_gone", "pid={}", broker_pid_);
      std::_Exit(kExitFailed);
    }
    if (state_ == State::kLeaving && clock_.now_us() >= leave_by_us_) state_ = State::kEnded;
    if (state_ == State::kDraining && streams_.empty()) leave();
    if (state_ == State::kSettling && streams_.empty()) {
      engine_->commands->post(engine::Sleep{});
      state_ = State::kServing;
    }
    heartbeat();
    note_ceilings_when_idle();
  }
  // A load in progress cannot be interrupted, and nothing in it needs an orderly end.
  if (!engine_) std::_Exit(exit_status_);
  return exit_status_;
}

void FrontDoor::wait() {
  const int engine_fd = engine_ ? engine_->events->fd() : -1;
  const int prep_fd = prep_ ? prep_->answers().fd() : -1;
  const int long_prep_fd = long_prep_ ? long_prep_->answers().fd() : -1;
  // poll() ignores negative descriptors.
  std::array<pollfd, 6> items = {{{link_.fd(), link_.events(), 0},
                                  {signal_fd_, POLLIN, 0},
                                  {engine_thread_->messages().fd(), POLLIN, 0},
                                  {engine_fd, POLLIN, 0},
                                  {prep_fd, POLLIN, 0},
                                  {long_prep_fd, POLLIN, 0}}};
  if (::poll(items.data(), items.size(), wait_ms()) < 0) {
    for (pollfd& item : items) item.revents = 0;  // interrupted by a signal
  }

  if (items[1].revents != 0) on_signal();
  if (items[0].revents != 0) on_broker();
  for (LoadMessage& message : engine_thread_->messages().drain()) on_load(message);
  for (PrepThread* prep : {prep_.get(), long_prep_.get()}) {
    if (prep == nullptr) continue;
    for (PrepAnswer& answer : prep->answers().drain()) on_prep(answer);
  }
  if (engine_) {
    for (auto& step : engine_->events->drain()) {
      for (engine::EngineEvent& event : step) on_engine(event);
    }
    flush_due();
    send_kv_events_due();
  }
  link_.flush();
}

int FrontDoor::wait_ms() const {
  if (!touched_.empty()) return kDeltaEveryMs;
  if (!kv_events_.empty()) return KvEventBatch::kEveryUs / 1000;
  return events_.on() ? kWatchedWaitMs : kWaitMs;
}

// A message costs the same with one token or with five, so tokens of a stream that arrive in quick
// succession are sent together. The first token of a request, and tokens that arrive slowly, are
// sent at once.
void FrontDoor::flush_due() {
  const int64_t now_us = clock_.now_us();
  std::erase_if(touched_, [&](uint64_t number) {
    Stream* stream = find(number);
    if (stream == nullptr) return true;
    if (now_us - stream->flushed_us < kDeltaEveryMs * 1000) return false;
    stream->touched = false;
    flush(number, *stream);
    return true;
  });
}

void FrontDoor::send_kv_events_due() {
  if (kv_events_.empty()) return;
  if (const auto due = kv_events_.take_due(clock_.now_us())) link_.send_kv_events(*due);
}

// ---- The broker --------------------------------------------------------------------------------

void FrontDoor::on_signal() {
  signalfd_siginfo info{};
  if (::read(signal_fd_, &info, sizeof info) == sizeof info) begin_draining();
}

void FrontDoor::on_broker() {
  while (std::optional<FromBroker> message = link_.receive()) {
    match(
        *message, [this](RequestText& request) { on_request(std::move(request)); },
        [this](const WatchControl& watch) {
          watch.on ? events_.start() : events_.stop();
          next_heartbeat_us_ = 0;
        },
        [this](DropAdapter& drop) {
          if (engine_) engine_->commands->post(engine::DropAdapters{std::move(drop.name)});
        },
        [this](const BrokerControl& control) {
          switch (control.control) {
            case ipc::WorkerControl::kCancel: return on_cancel(control.number);
            case ipc::WorkerControl::kEndReasoning: return on_end_reasoning(control.number);
            case ipc::WorkerControl::kDrain: return begin_draining();
            case ipc::WorkerControl::kStop: state_ = State::kEnded; return;
            case ipc::WorkerControl::kKvBound:
              if (engine_) engine_->commands->post(engine::KvBound{control.number});
              return;
            case ipc::WorkerControl::kSleep:
              if (state_ == State::kServing) state_ = State::kSettling;
              return;
            case ipc::WorkerControl::kWake:
              if (engine_) engine_->commands->post(engine::Wake{});
              return;
          }
        });
    if (state_ == State::kEnded) return;
  }
}

void FrontDoor::on_request(RequestText request) {
  // The broker sent it before it read our `stopped`, and gives it to the next worker.
  if (state_ != State::kServing) return;
  Stream stream;
  stream.received_us = clock_.now_us();
  if (!streams_.emplace(request.number, std::move(stream)).second) {
    log_error("request_twice", "number={}", request.number);
    return;
  }
  const bool streams = !ipc::asks_for_tokens(request.json);
  PrepThread& prep = streams && request.json.size() <= kShortRequestBytes ? *prep_ : *long_prep_;
  prep.post(request.number, std::move(request.json));
}

void FrontDoor::on_cancel(uint64_t number) {
  Stream* stream = find(number);
  if (stream == nullptr) return;  // it ended while this message was on its way
  if (stream->embeds) {
    embeds_->cancel(number);
  } else if (stream->in_engine) {
    engine_->commands->post(engine::CancelRequest{number});
  } else {
    stream->cancelled = true;
  }
}

void FrontDoor::on_end_reasoning(uint64_t number) {
  Stream* stream = find(number);
  if (stream == nullptr) return;  // it ended while this message was on its way
  stream->ends_reasoning = true;
  if (stream->in_engine) engine_->commands->post(engine::EndReasoning{number});
}

void FrontDoor::begin_draining() {
  if (state_ == State::kServing || state_ == State::kSettling) state_ = State::kDraining;
  if (state_ == State::kLoading) leave();
}

void FrontDoor::leave() {
  link_.send(ipc::WorkerStopped{});
  state_ = State::kLeaving;
  leave_by_us_ = clock_.now_us() + kLeaveUs;
}

// ---- Loading -----------------------------------------------------------------------------------

void FrontDoor::on_load(LoadMessage& message) {
  match(
      message,
      [this](const models::LoadProgress& progress) {
        link_.send(ipc::WorkerLoadProgress{progress.bytes_done, progress.bytes_total, "reading"});
        load_bytes_ = progress.bytes_total;
      },
      [this](const LoadPlan& plan) {
        link_.send(ipc::WorkerPlan{plan.weight_bytes, plan.kv_bytes, plan.other_bytes,
                                   plan.device_free_bytes, plan.host_bytes, plan.kv_floor_bytes,
                                   plan.stages});
      },
      [this](const WarmingUp&) {
        link_.send(ipc::WorkerLoadProgress{load_bytes_, load_bytes_, "warming_up"});
      },
      [this](EngineLoaded& loaded) { on_loaded(std::move(loaded)); },
      [this](const Error& error) {
        log_error("load_failed", "code={} error=\"{}\"", name(error.code), error.message);
        link_.send(ipc::WorkerFailed{error});
        exit_status_ = kExitFailed;
        state_ = State::kLeaving;
        leave_by_us_ = clock_.now_us() + kLeaveUs;
      });
}

void FrontDoor::on_loaded(EngineLoaded loaded) {
  engine_ = std::move(loaded);
  prep_ = std::make_unique<PrepThread>(prep_model(*engine_, options_.tool_form));
  long_prep_ = std::make_unique<PrepThread>(prep_model(*engine_, options_.tool_form),
                                            PrepThread::Priority::kLow);
  embeds_.emplace(*engine_->commands, engine_->info.name);
  kv_events_.set_form({.pool_medium = engine_->device.kind == "cpu" ? "CPU" : "GPU",
                       .block_size = engine_->kv_block_size,
                       .groups = engine_->kv_groups});
  if (engine_->read_gpu) gpu_.emplace(std::move(engine_->read_gpu), clock_);
  link_.send(to_wire(*engine_));
  if (state_ == State::kLoading) state_ = State::kServing;
}

// A snapshot request that the engine's thread answers shows that the thread is alive.
void FrontDoor::heartbeat() {
  if (!engine_ || snapshot_asked_ || clock_.now_us() < next_heartbeat_us_) return;
  snapshot_asked_ = true;
  next_heartbeat_us_ = clock_.now_us() + (events_.on() ? EventsPublisher::kEveryUs : kHeartbeatUs);
  engine_->watch->wanted.store(events_.on(), std::memory_order_relaxed);
  engine_->commands->post(engine::WantSnapshot{});
}

void FrontDoor::note_ceilings_when_idle() {
  if (!engine_ || !engine_->note_ceilings || state_ != State::kServing) return;
  if (!streams_.empty() || idle_since_us_ == 0) idle_since_us_ = clock_.now_us();
  if (clock_.now_us() - idle_since_us_ < kIdleUs) return;
  noting_ceilings_ = std::async(std::launch::async, std::exchange(engine_->note_ceilings, nullptr));
}

// ---- Streams -----------------------------------------------------------------------------------

Stream* FrontDoor::find(uint64_t number) {
  const auto it = streams_.find(number);
  return it == streams_.end() ? nullptr : &it->second;
}

double FrontDoor::ms_since(int64_t from_us) const { return to_ms(clock_.now_us() - from_us); }

void FrontDoor::on_prep(PrepAnswer& answer) {
  const uint64_t number = answer.number;
  Stream* stream = find(number);
  HEARTH_CHECK(stream != nullptr, "number={}", number);
  const auto take_asked = [&] {
    stream->asked = std::move(answer.asked);
    stream->received_us -= stream->asked.received_ms_ago * 1000;
  };
  match(
      answer.outcome,
      [&](Error& error) {
        link_.send_error(number, std::move(error));
        streams_.erase(number);
      },
      [&](const EncodedReply& reply) {
        link_.send_event(number, reply.json);
        streams_.erase(number);
      },
      [&](const EncodedPromptLogprobs& encoded) { on_encoded(number, encoded.json); },
      [&](PreparedEmbed& embed) {
        take_asked();
        stream->embeds = true;
        const bool cancelled = stream->cancelled;
        end_embed(embeds_->begin(number, stream->received_us, std::move(embed)));
        if (cancelled) embeds_->cancel(number);
      },
      [&](PreparedRequest& prepared) {
        take_asked();
        if (stream->cancelled) return end_cancelled(number);
        begin(number, *stream, std::move(prepared));
      });
}

void FrontDoor::begin(uint64_t number, Stream& stream, PreparedRequest prepared) {
  engine::Request& request = prepared.request;
  stream.prompt_tokens = size32(request.prompt);
  stream.max_tokens = request.max_tokens;
  stream.relaxed = std::move(prepared.relaxed);
  stream.without_effect = std::move(prepared.without_effect);
  stream.prompt = request.prompt;
  stream.prompt_logprobs = request.sampling.prompt_logprobs;
  request.received_us = stream.received_us;
  if (stream.asked.deadline_ms > 0) {
    request.deadline_us = stream.received_us + stream.asked.deadline_ms * 1000;
  }
  for (uint32_t i = 0; i < stream.asked.n; ++i) {
    Stream::Sample sample{
        SampleText(*engine_->tokenizer, prepared.strip_first_space, stream.asked.stop), ""};
    if (prepared.reading) {
      sample.text.read_as(prepared.reading, i, *engine_->tokenizer, prepared.answered);
    }
    if (i < stream.asked.resume.size()) sample.text.replay(stream.asked.resume[i]);
    stream.samples.push_back(std::move(sample));
  }
  request.end_reasoning = request.end_reasoning || stream.ends_reasoning;
  engine::EngineCommand command = std::move(request);
  if (!engine_->commands->try_post(command)) {
    link_.send_error(number, Error::busy("the engine's inbox is full"));
    streams_.erase(number);
    return;
  }
  stream.in_engine = true;
}

void FrontDoor::end_cancelled(uint64_t number) {
  const Stream& stream = *find(number);
  ipc::DoneEvent done;
  done.finish_reasons.assign(stream.asked.n, "cancelled");
  done.model = engine_->info.name;
  done.seed = stream.asked.seed;
  done.timings.queue_ms = done.timings.total_ms = ms_since(stream.received_us);
  link_.send(number, done);
  streams_.erase(number);
}

// The event's stream; null: there is none, or the event waits with the stream.
Stream* FrontDoor::find_or_hold(uint64_t number, engine::EngineEvent& event) {
  Stream* stream = find(number);
  if (stream == nullptr || !stream->encoding) return stream;
  stream->held.push_back(std::move(event));
  return nullptr;
}

void FrontDoor::on_engine(engine::EngineEvent& event) {
  match(
      event,
      [&](const engine::TokenEvent& token) {
        if (Stream* stream = find_or_hold(token.id, event)) on_token(*stream, token);
      },
      [this](const engine::StartedEvent& started) { on_started(started); },
      [this](const engine::ProgressEvent& progress) {
        if (EmbedJobs::owns(progress.id)) return;
        link_.send(progress.id, to_wire(progress, *engine_->tokenizer));
      },
      [this](engine::PromptLogprobsEvent& prompt) { encode(std::move(prompt)); },
      [&](const engine::SampleDoneEvent& done) {
        if (Stream* stream = find_or_hold(done.id, event)) on_sample_done(*stream, done);
      },
      [this](const engine::EmbeddingEvent& embedding) { end_embed(embeds_->take(embedding)); },
      [&](const engine::RequestDoneEvent& done) {
        if (EmbedJobs::owns(done.id)) return end_embed(embeds_->take(done));
        if (Stream* stream = find_or_hold(done.id, event)) on_request_done(*stream, done);
      },
      [&](const engine::RequestFailedEvent& failed) {
        if (EmbedJobs::owns(failed.id)) return end_embed(embeds_->take(failed));
        Stream* stream = find_or_hold(failed.id, event);
        if (stream == nullptr) return;
        flush(failed.id, *stream);
        link_.send_error(failed.id, failed.error);
        streams_.erase(failed.id);
      },
      // The broker starts another worker for new requests.
      [this](const engine::ModelLostEvent&) { begin_draining(); },
      [this](const engine::SnapshotEvent& snapshot) { on_snapshot(snapshot); },
      [this](const engine::AsleepEvent& asleep) {
        ::malloc_trim(0);
        link_.send(ipc::WorkerAsleep{asleep.put_off_bytes});
      },
      [this](engine::CacheEventsEvent& happened) {
        kv_events_.add(std::move(happened.events), clock_.now_us());
      },
      [](const engine::StoppedEvent&) {});
}

void FrontDoor::on_started(const engine::StartedEvent& started) {
  const Stream* stream = find(started.id);
  if (stream == nullptr) return;
  link_.send(started.id, ipc::StartedEvent{.model = engine_->info.name,
                                           .prompt_tokens = stream->prompt_tokens,
                                           .cached_tokens = started.cached_tokens,
                                           .queue_ms = to_ms(started.queue_us),
                                           .max_tokens = stream->max_tokens,
                                           .relaxed = stream->relaxed,
                                           .without_effect = stream->without_effect});
  // The prompt has only one token, which has no log probability, so the engine reports none.
  if (stream->prompt_logprobs && stream->prompt.size() == 1) encode({started.id, {}, {}});
}

void FrontDoor::on_snapshot(const engine::SnapshotEvent& event) {
  snapshot_asked_ = false;
  ipc::WorkerHeartbeat beat{to_wire(event.snapshot)};
  beat.snapshot.device_memory = engine_->device_memory;
  if (gpu_) beat.snapshot.gpu = gpu_->latest();
  link_.send(std::move(beat));
  for (auto& watch : engine_->watch->out.drain()) {
    if (events_.on()) link_.send_watch(events_.encode(std::move(watch)));
  }
}

void FrontDoor::end_embed(const std::optional<EmbedJobs::Outcome>& outcome) {
  if (!outcome) return;
  if (outcome->reply.ok()) {
    link_.send(outcome->number, *outcome->reply);
  } else {
    link_.send_error(outcome->number, outcome->reply.error());
  }
  streams_.erase(outcome->number);
}

// On a prep thread, because those of a long prompt take long. The stream's later events wait, since
// clients receive the log probabilities before any text.
void FrontDoor::encode(engine::PromptLogprobsEvent event) {
  Stream* stream = find(event.id);
  if (stream == nullptr) return;
  stream->encoding = true;
  const uint64_t number = event.id;
  const size_t bytes = prompt_logprobs_bytes(stream->prompt, event);
  PrepThread& prep = bytes <= kShortRequestBytes ? *prep_ : *long_prep_;
  prep.post(number, stream->asked.owner, bytes, {stream->prompt, std::move(event)});
}

void FrontDoor::on_encoded(uint64_t number, const std::string& json) {
  link_.send_event(number, json);
  Stream& stream = *find(number);  // its end is held as well
  stream.encoding = false;
  for (engine::EngineEvent& event : std::exchange(stream.held, {})) on_engine(event);
}

void FrontDoor::on_token(Stream& stream, const engine::TokenEvent& token) {
  SampleText& text = stream.samples[token.sample].text;
  if (!text.stopped()) {
    text.push(token.token, logprobs_of(*engine_->tokenizer, token));
    if (!std::exchange(stream.touched, true)) touched_.push_back(token.id);
  }
  // Repeated for each further token: when a resumed request first posted it, the engine may not
  // have had the sample yet.
  if (text.stopped()) {
    engine_->commands->post(engine::FinishSample{token.id, token.sample});
  }
}

void FrontDoor::flush(uint64_t number, Stream& stream) {
  bool sent = false;
  for (uint32_t i = 0; i < stream.samples.size(); ++i) {
    if (const auto pending = stream.samples[i].text.take()) {
      link_.send_delta(number, i, *pending);
      sent = true;
    }
  }
  if (!sent) return;
  const int64_t now_us = clock_.now_us();
  if (stream.flushed_us > 0) events_.add_gap(now_us - stream.flushed_us);
  stream.flushed_us = now_us;
}

void FrontDoor::on_sample_done(Stream& stream, const engine::SampleDoneEvent& done) {
  flush(done.id, stream);
  Stream::Sample& sample = stream.samples[done.sample];
  // The end of the text that belongs to no token: a delta of zero tokens after the others.
  const SampleText::Pending tail = sample.text.finish(done.reason != engine::FinishReason::kStop);
  const int32_t num_tokens = sample.text.num_tokens();
  if (!tail.text.empty() || !tail.parts.empty()) {
    link_.send_delta(done.id, done.sample, tail);
  }
  sample.finish_reason = sample.text.stopped() ? "stop" : reason_name(done.reason);
  const bool calls = sample.text.num_calls() > 0 && sample.text.stop().empty();
  if (calls && sample.finish_reason == "stop") sample.finish_reason = "tool_calls";
  link_.send(done.id, ipc::SampleDoneEvent{.sample = done.sample,
                                           .reason = sample.finish_reason,
                                           .num_tokens = num_tokens,
                                           .stop = sample.text.stop()});
}

void FrontDoor::on_request_done(Stream& stream, const engine::RequestDoneEvent& from) {
  ipc::DoneEvent done;
  for (const Stream::Sample& sample : stream.samples) {
    done.finish_reasons.push_back(sample.finish_reason);
    done.usage.output_tokens += sample.text.num_tokens();
    done.usage.reasoning_tokens += sample.text.num_reasoning_tokens();
  }
  done.model = engine_->info.name;
  done.seed = stream.asked.seed;
  done.usage.prompt_tokens = from.prompt_tokens;
  done.usage.cached_tokens = from.cached_tokens;
  done.usage.drafted_tokens = narrow<int32_t>(from.speculation.drafted_tokens);
  done.usage.accepted_tokens = narrow<int32_t>(from.speculation.accepted_tokens);
  done.usage.cached_disk_tokens = from.cached_disk_tokens;
  done.timings.queue_ms = to_ms(from.queue_us);
  done.timings.prefill_ms = to_ms(from.prefill_us);
  done.timings.ttft_ms = to_ms(from.ttft_us);
  done.timings.tpot_ms = from.tpot_us / 1000.0;
  done.timings.total_ms = ms_since(stream.received_us);
  done.timings.restore_ms = to_ms(from.restore_us);
  done.timings.saved_ms = to_ms(from.saved_us);
  done.preemptions = from.preemptions;
  done.cache_miss = miss_words(from.miss, from.missed_from);
  const bool parts =
      from.miss == engine::MissReason::kOther || from.miss == engine::MissReason::kEnded;
  if (parts) done.cache_miss += parting_words(*engine_->tokenizer, stream.prompt, from.missed_from);
  done.bandwidth_share = from.bandwidth_share;
  done.speculation = to_wire(from.speculation);
  link_.send(from.id, done);
  streams_.erase(from.id);
}

}  // namespace hearth::worker
