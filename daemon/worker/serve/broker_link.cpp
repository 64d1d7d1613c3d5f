#include "daemon/worker/serve/broker_link.h"

#include <poll.h>

#include <utility>

#include "ipc/wire/codec.h"
#include "ipc/wire/worker_codec.h"
#include "kernels/base/log.h"
#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace {

// Bytes of answers per message; larger messages only delay their first answer.
constexpr size_t kAnswersBytes = 64 << 10;

}  // namespace

Result<BrokerLink> BrokerLink::connect(const std::filesystem::path& socket) {
  HEARTH_ASSIGN_OR_RETURN(ipc::WorkerPipe pipe, ipc::WorkerPipe::connect(socket));
  return BrokerLink(std::move(pipe));
}

short BrokerLink::events() const {
  return narrow<short>(pipe_.has_unsent() ? POLLIN | POLLOUT : POLLIN);
}

std::optional<FromBroker> BrokerLink::receive() {
  while (!ended_) {
    const Result<std::optional<ipc::PipeMessage>> next = pipe_.next();
    if (!next) {
      log_error("broker_message", "error=\"{}\"", next.error().message);
      ended_ = true;
      break;
    }
    if (!*next) {
      if (std::exchange(drained_, false)) return std::nullopt;
      const ipc::WorkerPipe::Read read = pipe_.read();
      ended_ = read == ipc::WorkerPipe::Read::kEnded;
      drained_ = read == ipc::WorkerPipe::Read::kDrained;
      continue;
    }
    const ipc::PipeMessage& message = **next;
    if (message.kind == ipc::PipeKind::kWatch) return WatchControl{message.bytes == "1"};
    if (message.kind == ipc::PipeKind::kDropAdapter) return DropAdapter{std::string(message.bytes)};
    if (message.kind == ipc::PipeKind::kControl) {
      const Result<ipc::WorkerControl> control = ipc::decode_worker_control(message.bytes);
      if (control) return BrokerControl{message.number, *control};
      log_error("broker_control", "error=\"{}\"", control.error().message);
    } else if (message.kind == ipc::PipeKind::kRequest) {
      return RequestText{message.number, std::string(message.bytes)};
    } else {
      log_error("broker_message", "kind={}", to_underlying(message.kind));
    }
  }
  return std::nullopt;
}

void BrokerLink::send(ipc::PipeKind kind, const std::string& bytes) {
  if (!pipe_.send({kind, 0, bytes})) ended_ = true;
}

void BrokerLink::flush() {
  if (!answers_.empty()) {
    send(ipc::PipeKind::kAnswers, answers_);
    answers_.clear();
    if (answers_.capacity() > 2 * kAnswersBytes) answers_.shrink_to_fit();
  } else if (pipe_.has_unsent() && !pipe_.write()) {
    ended_ = true;
  }
}

void BrokerLink::add(uint64_t number, const ipc::Answer& answer) {
  ipc::append_answer(answers_, number, answer);
  if (answers_.size() >= kAnswersBytes) flush();
}

void BrokerLink::send(const ipc::WorkerEvent& event) {
  flush();
  send(ipc::PipeKind::kEvent, ipc::encode_worker_event(event));
}

void BrokerLink::send_kv_events(const std::string& events) {
  send(ipc::PipeKind::kKvEvents, events);
}

void BrokerLink::send_watch(const std::string& update) { send(ipc::PipeKind::kWatch, update); }

void BrokerLink::send(uint64_t number, const ipc::Event& event) {
  send_event(number, ipc::encode_event(event));
}

void BrokerLink::send_event(uint64_t number, const std::string& json) {
  add(number, {.is_delta = false, .json = json, .payload = {}, .ids = {}, .logprobs = {}});
}

void BrokerLink::send_error(uint64_t number, Error error) {
  send(number, ipc::ErrorEvent{std::move(error), 0});
}

void BrokerLink::send_delta(uint64_t number, uint32_t sample, const SampleText::Pending& pending) {
  const ipc::DeltaHeader header{.sample = sample,
                                .first_index = pending.first_index,
                                .num_tokens = narrow<uint32_t>(pending.ids.size()),
                                .num_parts = 0};
  const std::string payload = pending.parts.empty()
                                  ? ipc::encode_delta_payload(header, pending.text)
                                  : ipc::encode_delta_payload(header, pending.parts);
  const std::string ids = ipc::encode_ids(pending.ids);
  const std::string logprobs =
      pending.logprobs.empty() ? std::string() : ipc::encode_logprobs(pending.logprobs);
  add(number, {.is_delta = true, .json = {}, .payload = payload, .ids = ids, .logprobs = logprobs});
}

}  // namespace hearth::worker
