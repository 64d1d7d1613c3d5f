// What the dispatcher measures for /metrics: see daemon/http/model_traffic.h.

#include <utility>

#include "daemon/broker/requests/dispatcher.h"

namespace hearth::broker {

void Dispatcher::note_times(LiveRequest& request, const ipc::DeltaHeader& header, int64_t now_us) {
  const bool first = request.first_delta_us == 0;
  if (first) request.first_delta_us = now_us;
  if (header.num_tokens == 0) return;  // the end of a text, which belongs to no token
  if (first) request.traffic->ttft.add(now_us - request.received_us);
  const int64_t before_us =
      std::exchange(request.log->samples[header.sample].last_tokens_us, now_us);
  if (before_us > 0) request.traffic->gaps.add(now_us - before_us);
}

http::ModelTraffics Dispatcher::traffic() const {
  http::ModelTraffics out = traffic_;
  table_.for_each([&](const LiveRequest& request) {
    if (request.state == LiveRequest::State::kWaiting) ++out[request.model].num_waiting;
  });
  return out;
}

}  // namespace hearth::broker
