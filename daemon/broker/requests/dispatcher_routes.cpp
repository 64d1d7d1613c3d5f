// The dispatcher's part that chooses one of a model's workers for a request (prefix_routes.h), and
// another one when that is gone.

#include <vector>

#include "daemon/broker/requests/dispatcher.h"
#include "kernels/base/numbers.h"

namespace hearth::broker {
namespace {

bool serves(const Worker* worker) { return worker != nullptr && worker->is_ready(); }

/// It serves, or loads its model, which replicas do at the same time.
bool will_serve(const Worker* worker) {
  return serves(worker) || (worker != nullptr && worker->state() == Worker::State::kStarting);
}

}  // namespace

ModelFile Dispatcher::route(const LiveRequest& request, const ModelFile& file) {
  const std::vector<ModelFile> replicas = residency_.replicas(file);
  if (replicas.size() == 1) return replicas.front();
  const LiveRequest* const origin = request.fork_of > 0 ? table_.find(request.fork_of) : nullptr;
  PrefixRoutes& routes = routes_[file.name];
  const std::vector<uint64_t> chain =
      PrefixRoutes::chain(*request.request, owners_.name(request.owner));
  std::vector<RouteChoice> choices(replicas.size());
  for (size_t i = 0; i < replicas.size(); ++i) {
    choices[i].ready = serves(residency_.worker_of(replicas[i].name));
    choices[i].known = routes.known(chain, i);
    table_.for_each([&](const LiveRequest& other) {
      if (other.replica == replicas[i].name && &other != &request) ++choices[i].requests;
    });
    // A fork shares the blocks of a live request.
    if (origin != nullptr && origin->replica == replicas[i].name && choices[i].ready) {
      return replicas[i];
    }
  }
  const size_t chosen = choose_route(choices);
  routes.note(chain, chosen);
  return replicas[chosen];
}

// Those that could not be loaded are tried again when they are chosen, or by `load`.
void Dispatcher::want_replicas(const ModelFile& file, std::string_view chosen) {
  const std::string replica(chosen);  // its request may end meanwhile
  for (const ModelFile& each : residency_.replicas(file)) {
    const Residency::Resident* const known = residency_.find(each.name);
    const bool failed = known != nullptr && known->problem;
    if (!failed || each.name == replica) residency_.want(each);
  }
}

void Dispatcher::move_to(LiveRequest& request, const ModelFile& replica) {
  request.move_to(replica, residency_.use(replica.name));
  residency_.note_user(replica.name, request.owner);
}

// A request whose replica cannot be loaded goes to another one, if one serves or is on its way.
// False: there is none.
bool Dispatcher::move_on(LiveRequest& request) {
  const Residency::Resident* const failed = residency_.find(request.replica);
  if (failed == nullptr || failed->file.replica_of.empty()) return false;
  for (const auto& [name, resident] : residency_.residents()) {
    if (name == request.replica || resident.file.model() != request.model) continue;
    const bool leaves = resident.worker == nullptr || resident.worker->is_leaving();
    if (leaves && !resident.wanted) continue;
    request.state = LiveRequest::State::kWaiting;
    request.encoding = 0;
    move_to(request, resident.file);
    forward_waiting(name);  // may end the request
    return true;
  }
  return false;
}

// A worker of `replica` is ready, or is gone: requests that wait for workers that are not there go
// to those that are.
void Dispatcher::spread_waiting(const std::string& replica) {
  const Residency::Resident* const resident = residency_.find(replica);
  if (resident == nullptr || resident->file.replica_of.empty()) return;
  ModelFile file = resident->file;
  file.name = resident->file.model();
  const std::vector<ModelFile> replicas = residency_.replicas(file);
  for (size_t i = 0; i < replicas.size(); ++i) {
    const bool gone = replicas[i].name == replica && !serves(resident->worker.get());
    if (gone) routes_[file.name].forget(i);
  }
  const std::vector<uint64_t> waiting = table_.numbers([&](const LiveRequest& request) {
    return request.model == file.name && request.state == LiveRequest::State::kWaiting &&
           !request.muted && !request.recalled &&
           !will_serve(residency_.worker_of(request.replica));
  });
  for (const uint64_t number : waiting) {
    LiveRequest* const request = table_.find(number);
    if (request == nullptr) continue;
    const ModelFile to = route(*request, file);
    if (to.name == request->replica) continue;
    move_to(*request, to);
    forward_waiting(to.name);
  }
}

}  // namespace hearth::broker
