#include "daemon/broker/transport/output_buffer.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "ipc/schema/deltas.h"
#include "ipc/wire/frames.h"
#include "kernels/base/check.h"

namespace hearth::broker {

void merge_deltas(Outgoing* first, const OutgoingView& next) {
  HEARTH_CHECK(first->payload.size() >= ipc::kDeltaHeaderBytes &&
               next.payload.size() >= ipc::kDeltaHeaderBytes);
  ipc::DeltaHeader header;
  ipc::DeltaHeader added;
  std::memcpy(&header, first->payload.data(), sizeof header);
  std::memcpy(&added, next.payload.data(), sizeof added);
  header.num_tokens += added.num_tokens;
  std::string_view more = next.payload.substr(ipc::kDeltaHeaderBytes);
  std::string more_part;
  if (header.num_parts > 0 || added.num_parts > 0) {
    // If either has parts, plain text is converted to a part.
    if (header.num_parts == 0) {
      const std::string_view text = std::string_view(first->payload).substr(sizeof header);
      first->payload.replace(sizeof header, std::string::npos, ipc::text_as_part(text));
      header.num_parts = 1;
    }
    if (added.num_parts == 0) more = more_part = ipc::text_as_part(more);
    header.num_parts += std::max(added.num_parts, uint32_t{1});
  }
  std::memcpy(first->payload.data(), &header, sizeof header);
  first->payload.append(more);
  first->ids += next.ids;
  if (next.logprobs.size() <= 2) return;  // none, or "[]"
  if (first->logprobs.size() <= 2) {
    first->logprobs = next.logprobs;
  } else {
    first->logprobs.back() = ',';  // "[a]" and "[b]" become "[a,b]"
    first->logprobs.append(next.logprobs, 1);
  }
}

OutputBuffer::Outcome OutputBuffer::push(const PeerId& peer, const OutgoingView& answer,
                                         bool must_fit) {
  const auto it = backlogs_.find(peer);
  if (it == backlogs_.end()) {
    switch (send_(peer, answer)) {
      case ipc::SendOutcome::kSent: return Outcome::kSent;
      case ipc::SendOutcome::kUnreachable:
      case ipc::SendOutcome::kFailed: return Outcome::kGone;
      case ipc::SendOutcome::kWouldBlock: break;
    }
    if (!must_fit && !fits(peer, 0, answer.bytes())) return Outcome::kOverflow;
    enqueue(peer, backlogs_[peer], answer);
    return Outcome::kQueued;
  }
  Backlog& backlog = it->second;
  if (!must_fit && !fits(peer, backlog.bytes, answer.bytes())) return Outcome::kOverflow;
  if (!answer.is_delta || !merge(peer, backlog, answer)) enqueue(peer, backlog, answer);
  return Outcome::kQueued;
}

bool OutputBuffer::fits(const PeerId& peer, size_t backlog_bytes, size_t bytes) const {
  return backlog_bytes + bytes <= bytes_max_ &&
         user_bytes(peer.uid) + bytes <= kConnectionsOfUser * bytes_max_;
}

void OutputBuffer::count(const PeerId& peer, Backlog& backlog, size_t added, size_t removed) {
  backlog.bytes = backlog.bytes + added - removed;
  size_t& of_user = user_bytes_[peer.uid];
  of_user = of_user + added - removed;
  if (of_user == 0) user_bytes_.erase(peer.uid);
}

OutputBuffer::Backlogs::iterator OutputBuffer::erase(Backlogs::iterator backlog) {
  count(backlog->first, backlog->second, 0, backlog->second.bytes);
  return backlogs_.erase(backlog);
}

void OutputBuffer::drop(const PeerId& peer) {
  if (const auto it = backlogs_.find(peer); it != backlogs_.end()) erase(it);
}

size_t OutputBuffer::user_bytes(uint32_t uid) const {
  const auto it = user_bytes_.find(uid);
  return it == user_bytes_.end() ? 0 : it->second;
}

bool OutputBuffer::merge(const PeerId& peer, Backlog& backlog, const OutgoingView& answer) {
  const auto found = backlog.last_delta.find(answer.number);
  if (found == backlog.last_delta.end()) return false;
  for (auto& [sample, queued] : found->second) {
    if (sample != answer.sample) continue;
    const size_t before = queued->bytes();
    merge_deltas(&*queued, answer);
    count(peer, backlog, queued->bytes(), before);
    ++num_merged_;
    return true;
  }
  return false;
}

void OutputBuffer::enqueue(const PeerId& peer, Backlog& backlog, const OutgoingView& answer) {
  const bool is_delta = answer.is_delta;
  const uint64_t number = answer.number;
  const uint32_t sample = answer.sample;
  count(peer, backlog, answer.bytes(), 0);
  backlog.answers.emplace_back(answer);
  if (is_delta) {
    backlog.last_delta[number].emplace_back(sample, std::prev(backlog.answers.end()));
  } else {
    // A later delta must not overtake this event by merging into an earlier one.
    backlog.last_delta.erase(number);
  }
}

void OutputBuffer::pop_front(const PeerId& peer, Backlog& backlog) {
  const auto front = backlog.answers.begin();
  count(peer, backlog, 0, front->bytes());
  const auto found = backlog.last_delta.find(front->number);
  if (front->is_delta && found != backlog.last_delta.end()) {
    std::erase_if(found->second, [&](const auto& entry) { return entry.second == front; });
    if (found->second.empty()) backlog.last_delta.erase(found);
  }
  backlog.answers.pop_front();
}

ipc::SendOutcome OutputBuffer::send_what_fits(const PeerId& peer, Backlog& backlog) {
  while (!backlog.answers.empty()) {
    const ipc::SendOutcome outcome = send_(peer, backlog.answers.front());
    if (outcome != ipc::SendOutcome::kSent) return outcome;
    pop_front(peer, backlog);
  }
  return ipc::SendOutcome::kSent;
}

bool OutputBuffer::retry(const PeerId& peer) {
  const auto it = backlogs_.find(peer);
  if (it == backlogs_.end()) return true;
  const ipc::SendOutcome outcome = send_what_fits(peer, it->second);
  if (outcome == ipc::SendOutcome::kWouldBlock) return true;
  erase(it);
  return outcome == ipc::SendOutcome::kSent;
}

bool OutputBuffer::note_dropped(const PeerId& peer) {
  const auto it = backlogs_.find(peer);
  return it != backlogs_.end() && !std::exchange(it->second.told_of_drops, true);
}

std::vector<PeerId> OutputBuffer::retry() {
  std::vector<PeerId> gone;
  for (auto it = backlogs_.begin(); it != backlogs_.end();) {
    const ipc::SendOutcome outcome = send_what_fits(it->first, it->second);
    if (outcome == ipc::SendOutcome::kWouldBlock) {
      ++it;
      continue;
    }
    if (outcome != ipc::SendOutcome::kSent) gone.push_back(it->first);
    it = erase(it);
  }
  return gone;
}

size_t OutputBuffer::backlog_bytes(const PeerId& peer) const {
  const auto it = backlogs_.find(peer);
  return it == backlogs_.end() ? 0 : it->second.bytes;
}

bool OutputBuffer::is_behind(const PeerId& peer) const {
  const size_t bytes = backlog_bytes(peer);
  return bytes * 2 >= bytes_max_ ||
         (bytes > 0 && user_bytes(peer.uid) * 2 >= kConnectionsOfUser * bytes_max_);
}

size_t OutputBuffer::backlog_messages(const PeerId& peer) const {
  const auto it = backlogs_.find(peer);
  return it == backlogs_.end() ? 0 : it->second.answers.size();
}

size_t OutputBuffer::total_bytes() const {
  size_t total = 0;
  for (const auto& [peer, backlog] : backlogs_) total += backlog.bytes;
  return total;
}

}  // namespace hearth::broker
