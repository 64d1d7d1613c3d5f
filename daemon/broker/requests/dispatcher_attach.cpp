// Second part of the dispatcher: attaching to a request, and forking one.

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "daemon/broker/requests/dispatcher.h"
#include "daemon/broker/requests/dispatcher_origin.h"
#include "ipc/wire/codec.h"
#include "kernels/base/log.h"
#include "kernels/base/sizes.h"

namespace hearth::broker {
namespace {

constexpr size_t kMaxWatchers = 16;  // of one request

// The same error for missing requests and for those of other owners, so that their ids stay
// private.
Error not_found() {
  return Error::not_found(
      "you have no live request of that id, and none that ended a short while ago", "id");
}

}  // namespace

void Dispatcher::attach(const Caller& caller, const std::string& id,
                        const ipc::AttachRequest& request) {
  const TokenLog* log = logs_.find(caller.uid, request.id);
  if (log == nullptr) return reply_error(caller.peer, id, not_found());
  LiveRequest* live = log->live() ? table_.find(log->number) : nullptr;
  if (live != nullptr && live->watchers.size() >= kMaxWatchers) {
    return reply_error(
        caller.peer, id,
        Error::busy(fmt::format("{} connections read this request already", kMaxWatchers), "id"));
  }
  const uint32_t from = request.from;
  ipc::AttachedEvent attached{
      .id = request.id, .model = log->model, .live = live != nullptr, .from = {}};
  std::vector<Outgoing> answers(1);
  const auto add = [&](const std::string& json) {
    if (!json.empty()) answers.emplace_back().payload = json;
  };
  add(log->started);
  add(log->prompt_logprobs);
  for (uint32_t i = 0; i < log->samples.size(); ++i) {
    const TokenLog::Sample& sample = log->samples[i];
    attached.from.push_back(replay_from(sample, from));
    Outgoing delta = replay_delta(sample, i, from);
    if (delta.is_delta) answers.push_back(std::move(delta));
  }
  for (const TokenLog::Sample& sample : log->samples) add(sample.done);
  add(log->last);
  answers.front().payload = ipc::encode_event(attached);

  // Not a request's number: if the same connection also reads the request itself, the two streams
  // must not merge.
  const uint64_t number = ~uint64_t{0} - watchers_made_++;
  const bool ended = live == nullptr;
  if (live != nullptr) live->watchers.push_back({caller.peer, id, number});
  for (Outgoing& answer : answers) {
    answer.number = number;
    answer.request_id = id;
    switch (output_.push(caller.peer, answer, false)) {
      case OutputBuffer::Outcome::kSent:
      case OutputBuffer::Outcome::kQueued: break;
      case OutputBuffer::Outcome::kGone: return connection_gone(caller.peer);
      case OutputBuffer::Outcome::kOverflow: {
        if (!ended)
          std::erase_if(live->watchers, [&](const auto& w) { return w.number == number; });
        Outgoing last;
        last.number = number;
        last.request_id = id;
        last.payload = ipc::encode_event(ipc::ErrorEvent{
            Error::too_large(
                fmt::format("{} bytes of answers wait for this connection; attach from a later "
                            "token, or read first",
                            output_.backlog_bytes(caller.peer)),
                "from"),
            0});
        output_.push(caller.peer, last, true);
        return;
      }
    }
  }
}

void Dispatcher::tell_watchers(LiveRequest& request, const OutgoingView& outgoing, bool must_fit) {
  std::erase_if(request.watchers, [&](const Watcher& watcher) {
    OutgoingView theirs = outgoing;
    theirs.number = watcher.number;
    theirs.request_id = watcher.id;
    switch (output_.push(watcher.peer, theirs, must_fit)) {
      case OutputBuffer::Outcome::kSent:
      case OutputBuffer::Outcome::kQueued: return false;
      case OutputBuffer::Outcome::kGone: gone_.insert(watcher.peer); return true;
      case OutputBuffer::Outcome::kOverflow: break;
    }
    log_warn("slow_watcher", "number={} owner={} backlog_bytes={}", request.number, request.owner,
             output_.backlog_bytes(watcher.peer));
    Outgoing last;
    last.number = watcher.number;
    last.request_id = watcher.id;
    last.payload = too_slow(output_.backlog_bytes(watcher.peer), "attach again");
    output_.push(watcher.peer, last, true);
    return true;
  });
}

void Dispatcher::unwatch(const PeerId& peer) {
  for (const uint64_t number :
       table_.numbers([](const LiveRequest& request) { return !request.watchers.empty(); })) {
    std::erase_if(table_.find(number)->watchers,
                  [&](const Watcher& watcher) { return watcher.peer == peer; });
  }
}

// From here on only attaches and forks need the log.
void Dispatcher::end_log(LiveRequest& request, const std::string& last) {
  if (request.log == nullptr) return;
  logs_.end(*std::exchange(request.log, nullptr), last, clock_.now_us());
}

void Dispatcher::fork(const Caller& caller, const std::string& id,
                      const ipc::ForkRequest& request) {
  const auto refuse = [&](Error error) { reply_error(caller.peer, id, std::move(error)); };
  const TokenLog* log = logs_.find(caller.uid, request.id);
  if (log == nullptr) return reply_error(caller.peer, id, not_found());
  if (log->is_remote) {
    return refuse(Error::unsupported(
        "a remote answers this request: its tokens have no ids here, so none can be continued",
        "id"));
  }
  if (std::cmp_greater_equal(request.sample, log->samples.size())) {
    return refuse(Error::invalid(
        fmt::format("sample: met {}, the request has {}", request.sample, log->samples.size()),
        "sample"));
  }
  const std::vector<int32_t>& ids = log->samples[request.sample].ids;
  const int32_t from = request.from < 0 ? size32(ids) : request.from;
  if (from > size32(ids)) {
    return refuse(Error::invalid(
        fmt::format("from: met {}, sample {} has {} tokens", from, request.sample, ids.size()),
        "from"));
  }
  ipc::GenerateRequest next = log->generate();
  next.model = log->model;  // the role may name another model now
  next.n = request.n;
  next.seed = request.seed;
  next.detach = request.detach;
  next.remote = false;  // it continues tokens that only this machine has
  next.prompt_logprobs = false;
  next.cache_keep_s = 0;
  if (request.max_tokens > 0) {
    next.max_tokens = request.max_tokens;
  } else if (next.max_tokens > 0) {
    next.max_tokens -= from;
    if (next.max_tokens <= 0) {
      return refuse(Error::invalid("max_tokens: the request had none left there, want a number",
                                   "max_tokens"));
    }
  }
  next.min_tokens = std::max(0, next.min_tokens - from);
  if (next.max_tokens > 0) next.min_tokens = std::min(next.min_tokens, next.max_tokens);

  Origin origin;
  origin.prefix = log->prefix;
  origin.prefix.insert(origin.prefix.end(), ids.begin(), ids.begin() + from);
  if (log->live()) origin.of = log->number;
  origin.sample = request.sample;
  if (from > 0 || !origin.prefix.empty()) origin.fingerprint = log->fingerprint;
  const size_t bytes = next.prompt.size() + next.messages.text.size() +
                       (next.prompt_ids.size() + origin.prefix.size()) * sizeof(int32_t);
  submit(caller, id, std::move(next), bytes, std::move(origin));
}

}  // namespace hearth::broker
