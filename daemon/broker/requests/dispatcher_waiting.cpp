// Reports queue positions and estimates to clients while their requests wait.

#include <map>
#include <string>
#include <vector>

#include "daemon/broker/requests/dispatcher.h"
#include "daemon/broker/residency/residency.h"
#include "ipc/wire/codec.h"

namespace hearth::broker {
namespace {

// How often a changed estimate alone justifies an event.
constexpr int64_t kEstimateEveryUs = 1'000'000;

}  // namespace

void Dispatcher::announce_waiting() {
  struct Waiting {
    std::string reason;
    int64_t estimate_ms = 0;
    int32_t ahead = 0;
  };
  std::map<std::string, Waiting> replicas;
  const int64_t now_us = clock_.now_us();
  const std::vector<uint64_t> waiting = table_.numbers(
      [](const LiveRequest& request) { return request.state == LiveRequest::State::kWaiting; });
  for (const uint64_t number : waiting) {
    LiveRequest* request = table_.find(number);
    const auto [replica, first] = replicas.try_emplace(request->replica);
    if (first) {
      const Worker* worker = residency_.worker_of(request->replica);
      // A ready worker with waiting requests: suspects of its last death run alone first.
      replica->second.reason = worker != nullptr && worker->is_ready()
                                   ? "recovering"
                                   : residency_.waiting_reason(request->replica);
      // It is unknown when the requests of other models will end.
      const bool behind_others = replica->second.reason == "busy";
      replica->second.estimate_ms = behind_others ? 0 : residency_.estimate_ms(request->replica);
    }
    const ipc::QueuedEvent now{.reason = replica->second.reason,
                               .position = replica->second.ahead++,
                               .estimate_ms = replica->second.estimate_ms};
    const bool better_known = now.estimate_ms != request->queued.estimate_ms &&
                              now_us - request->queued_said_us >= kEstimateEveryUs;
    const bool news = better_known || now.reason != request->queued.reason ||
                      now.position != request->queued.position;
    if (!news || !request->is_generate()) continue;
    request->queued = now;
    request->queued_said_us = now_us;
    send_event(*request, ipc::encode_event(now), Size::kBounded);
  }
}

// Only the latest event matters, so none is queued for a client that reads too slowly.
void Dispatcher::send_newest(LiveRequest& request, std::string_view json) {
  if (request.left || output_.backlog_messages(request.peer) == 0) {
    send_event(request, json, Size::kBounded);
  }
}

}  // namespace hearth::broker
