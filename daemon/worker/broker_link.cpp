#include "daemon/worker/broker_link.h"

#include <array>
#include <utility>
#include <vector>

#include "ipc/codec.h"
#include "ipc/frames.h"
#include "ipc/paths.h"
#include "ipc/watch.h"
#include "ipc/worker_codec.h"
#include "kernels/base/log.h"

namespace hearth::worker {

Result<BrokerLink> BrokerLink::connect(const ipc::Context& context,
                                       const std::filesystem::path& path) {
  // No bounds: what comes was admitted by the broker, and what goes is bounded by the tokens that
  // live requests may have; the broker reads at once.
  const ipc::SocketOptions options{.send_high_water = 0,
                                   .receive_high_water = 0,
                                   .max_frame_bytes = -1,
                                   .reconnect = true,
                                   .routing_id = {}};
  HEARTH_ASSIGN_OR_RETURN(const std::string endpoint, ipc::ipc_endpoint(path));
  HEARTH_ASSIGN_OR_RETURN(ipc::Socket socket,
                          ipc::Socket::open(context, ipc::SocketType::kDealer, options));
  HEARTH_TRY(socket.connect(endpoint));
  return BrokerLink(std::move(socket));
}

std::optional<FromBroker> BrokerLink::receive() {
  ipc::Message message;
  while (true) {
    const ipc::ReceiveOutcome outcome = socket_.receive(message);
    if (outcome == ipc::ReceiveOutcome::kWouldBlock || outcome == ipc::ReceiveOutcome::kFailed) {
      return std::nullopt;
    }
    if (message.size() == 3 && message[1].view() == ipc::kWatchFrame) {
      return WatchControl{message[2].view() == "1"};
    }
    const Result<ipc::BrokerMessage> parsed = ipc::parse_broker_message(ipc::views(message));
    if (!parsed) {
      log_error("broker_message", "error=\"{}\"", parsed.error().message);
      continue;
    }
    if (parsed->is_control) {
      const Result<ipc::WorkerControl> control = ipc::decode_worker_control(parsed->json);
      if (control) return BrokerControl{parsed->number, *control};
      log_error("broker_control", "error=\"{}\"", control.error().message);
      continue;
    }
    Result<ipc::WorkerRequest> request = ipc::decode_worker_request(parsed->number, parsed->json);
    if (!request) return UnreadableRequest{parsed->number, request.take_error()};
    return std::move(request).value();
  }
}

void BrokerLink::send_frames(uint64_t number, ipc::Message rest) {
  const std::array<char, 8> address = ipc::encode_number(number);
  rest.emplace(rest.begin(), std::string_view(address.data(), address.size()));
  if (socket_.send(rest) != ipc::SendOutcome::kSent) {
    // Without a high-water mark only a closed socket refuses; the broker's end is ours too.
    log_error("broker_send", "number={}", number);
  }
}

void BrokerLink::send(const ipc::WorkerEvent& event) {
  ipc::Message message;
  ipc::append(message, ipc::kEventFrame, ipc::encode_worker_event(event));
  send_frames(0, std::move(message));
}

void BrokerLink::send_watch(const std::string& update) {
  ipc::Message message;
  ipc::append(message, ipc::kWatchFrame, update);
  send_frames(0, std::move(message));
}

void BrokerLink::send(uint64_t number, const ipc::Event& event) {
  ipc::Message message;
  ipc::append(message, ipc::kEventFrame, ipc::encode_event(event));
  send_frames(number, std::move(message));
}

void BrokerLink::send_error(uint64_t number, Error error) {
  send(number, ipc::ErrorEvent{std::move(error), 0});
}

void BrokerLink::send_delta(uint64_t number, uint32_t sample, const SampleText::Pending& pending) {
  const ipc::DeltaHeader header{.sample = sample,
                                .first_index = pending.first_index,
                                .num_tokens = static_cast<uint32_t>(pending.ids.size()),
                                .num_parts = 0};
  ipc::Message message;
  ipc::append(message, ipc::kDeltaFrame,
              pending.parts.empty() ? ipc::encode_delta_payload(header, pending.text)
                                    : ipc::encode_delta_payload(header, pending.parts),
              ipc::encode_ids(pending.ids));
  if (!pending.logprobs.empty()) ipc::append(message, ipc::encode_logprobs(pending.logprobs));
  send_frames(number, std::move(message));
}

}  // namespace hearth::worker
