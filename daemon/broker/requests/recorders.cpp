#include "daemon/broker/requests/recorders.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "ipc/wire/codec.h"
#include "ipc/wire/token_digest.h"
#include "kernels/base/log.h"
#include "kernels/base/match.h"
#include "kernels/base/numbers.h"

namespace hearth::broker {
namespace {

// Around the content of a record: names, counts, timings, digests.
constexpr size_t kRecordBytes = 4096;

/// The request of a record, as JSON.
std::string content_of(const ipc::ComputeRequest& request, bool text) {
  return match(
      request,
      [&](const ipc::GenerateRequest& generate) {
        return ipc::encode_request(text ? generate : ipc::shape_of(generate));
      },
      [&](const ipc::EmbedRequest& embed) {
        return ipc::encode_request(text ? embed : ipc::shape_of(embed));
      },
      [](const ipc::TokenizeRequest&) { return std::string(); });
}

/// All of a record but its request.
ipc::RecordedEvent record_of(const LiveRequest& request, const RequestEnd& end, bool text,
                             int64_t began_us, int64_t now_us) {
  ipc::RecordedEvent record;
  record.arrival_us = request.received_us - began_us;
  record.model = request.model;
  record.usage.prompt_tokens = request.prompt_tokens;
  record.usage.output_tokens = request.output_tokens();
  record.timings.total_ms = us_as_ms(now_us - request.received_us);
  if (request.is_generate()) record.seed = request.generate().seed.value_or(0);
  if (end.error != nullptr) record.error = name(end.error->code);
  if (end.done != nullptr) {
    record.finish_reasons = end.done->finish_reasons;
    record.usage = end.done->usage;
    record.timings = end.done->timings;
  }
  if (!end.reply.empty()) {
    record.text_tokens = ipc::tokens_of_embed_reply(end.reply);
    const int64_t tokens =
        std::accumulate(record.text_tokens.begin(), record.text_tokens.end(), int64_t{0});
    record.usage.prompt_tokens = narrow<int32_t>(std::clamp<int64_t>(tokens, 0, INT32_MAX));
  }
  // Without ids of a remote's tokens there is nothing to compare.
  if (text && end.done != nullptr && request.log != nullptr && request.remote.empty()) {
    for (const TokenLog::Sample& sample : request.log->samples) {
      ipc::TokenDigest digest;
      digest.add(sample.ids);
      record.digests.push_back(digest.hex());
    }
  }
  return record;
}

}  // namespace

Result<void> Recorders::check(const Caller& caller, const std::string& id) const {
  // A key proves a user to the daemon, but a stolen one must not show all that the user asks.
  if (caller.peer.door != Door::kIpc) {
    return Error::forbidden("record: only over the local socket");
  }
  const auto of_owner = std::ranges::count(recorders_, caller.uid, &Recorder::owner);
  if (recorders_.size() >= kAll || std::cmp_greater_equal(of_owner, kPerOwner)) {
    return Error::busy(
        fmt::format("{} recordings run already, {} of them yours", recorders_.size(), of_owner));
  }
  const auto same = [&](const Recorder& each) { return each.peer == caller.peer && each.id == id; };
  if (std::ranges::any_of(recorders_, same)) {
    return Error::invalid("id: this connection has a recording of that id", "id");
  }
  return {};
}

void Recorders::start(const Caller& caller, const std::string& id,
                      const ipc::RecordRequest& request) {
  if (Result<void> may = check(caller, id); !may) {
    return dispatcher_.reply_error(caller.peer, id, may.take_error());
  }
  log_info("recording", "owner={} text={}", caller.uid, request.text);
  recorders_.push_back({.number = ++last_number_,
                        .peer = caller.peer,
                        .id = id,
                        .owner = caller.uid,
                        .text = request.text,
                        .began_us = clock_.now_us()});
  dispatcher_.reply(caller.peer, id, ipc::RecordingEvent{.text = request.text, .lost = 0});
}

void Recorders::on_end(const LiveRequest& request, const RequestEnd& end) {
  if (std::holds_alternative<ipc::TokenizeRequest>(*request.request)) return;
  // A fork continues tokens that no request of its own names.
  if (request.log != nullptr && (request.fork_of != 0 || !request.log->prefix.empty())) return;
  for (Recorder& recorder : recorders_) {
    if (recorder.owner != request.owner || request.received_us < recorder.began_us) continue;
    add(recorder, request, end);
  }
}

void Recorders::add(Recorder& recorder, const LiveRequest& request, const RequestEnd& end) {
  const size_t bytes = kRecordBytes + (recorder.text ? request.bytes : 0);
  if (!has_room(recorder, bytes)) {
    ++recorder.lost;
    return;
  }
  ipc::RecordedEvent record =
      record_of(request, end, recorder.text, recorder.began_us, clock_.now_us());
  if (side_ == nullptr || bytes <= kInlineBytes) {
    record.request.text = content_of(*request.request, recorder.text);
    return send_record(recorder, ipc::encode_event(record));
  }
  recorder.writing_bytes += bytes;
  auto json = std::make_shared<std::string>();
  side_->run(
      recorder.owner, 0,  // counted here, not against the owner's requests
      [json, record = std::move(record), content = request.request,
       text = recorder.text]() mutable {
        record.request.text = content_of(*content, text);
        *json = ipc::encode_event(record);
      },
      [this, number = recorder.number, bytes, json] { on_written(number, bytes, *json); });
}

// A record that is longer than the bound passes while nothing else waits.
bool Recorders::has_room(const Recorder& recorder, size_t bytes) const {
  const size_t waiting = output_.backlog_bytes(recorder.peer) + recorder.writing_bytes;
  return waiting == 0 || waiting + bytes <= bytes_max_;
}

void Recorders::on_written(uint64_t number, size_t bytes, const std::string& json) {
  const auto recorder = std::ranges::find(recorders_, number, &Recorder::number);
  if (recorder == recorders_.end()) return;  // its connection has ended
  recorder->writing_bytes -= bytes;
  send_record(*recorder, json);
}

void Recorders::send_record(Recorder& recorder, const std::string& json) {
  switch (push(recorder, json, false)) {
    case OutputBuffer::Outcome::kSent:
    case OutputBuffer::Outcome::kQueued:
    case OutputBuffer::Outcome::kGone: return;  // its end is reported by the transport
    case OutputBuffer::Outcome::kOverflow: ++recorder.lost;
  }
}

void Recorders::on_tick() {
  for (Recorder& recorder : recorders_) {
    if (recorder.lost == recorder.reported_lost || output_.backlog_bytes(recorder.peer) > 0) {
      continue;
    }
    log_warn("records_lost", "owner={} lost={}", recorder.owner, recorder.lost);
    recorder.reported_lost = recorder.lost;
    push(recorder,
         ipc::encode_event(ipc::RecordingEvent{.text = recorder.text, .lost = recorder.lost}),
         false);
  }
}

void Recorders::on_connection_gone(const PeerId& peer) {
  std::erase_if(recorders_, [&](const Recorder& recorder) { return recorder.peer == peer; });
}

void Recorders::on_fail_all(const Error& error) {
  for (const Recorder& recorder : std::exchange(recorders_, {})) {
    push(recorder, ipc::encode_event(ipc::ErrorEvent{error, 0}), true);
  }
}

OutputBuffer::Outcome Recorders::push(const Recorder& recorder, const std::string& json,
                                      bool must_fit) {
  return output_.push(recorder.peer, {.request_id = recorder.id, .payload = json}, must_fit);
}

}  // namespace hearth::broker
