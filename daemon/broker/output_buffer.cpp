#include "daemon/broker/output_buffer.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "ipc/deltas.h"
#include "ipc/frames.h"
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
    // Where one of them has parts, plain text becomes a part of its own.
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

OutputBuffer::Outcome OutputBuffer::push(const std::string& identity, const OutgoingView& answer,
                                         bool must_fit) {
  const auto it = backlogs_.find(identity);
  if (it == backlogs_.end()) {
    switch (send_(identity, answer)) {
      case ipc::SendOutcome::kSent: return Outcome::kSent;
      case ipc::SendOutcome::kUnreachable:
      case ipc::SendOutcome::kFailed: return Outcome::kGone;
      case ipc::SendOutcome::kWouldBlock: break;
    }
    enqueue(backlogs_[identity], answer);
    return Outcome::kQueued;
  }
  Backlog& backlog = it->second;
  if (!must_fit && backlog.bytes + answer.bytes() > bytes_max_) return Outcome::kOverflow;
  if (!answer.is_delta || !merge(backlog, answer)) enqueue(backlog, answer);
  return Outcome::kQueued;
}

bool OutputBuffer::merge(Backlog& backlog, const OutgoingView& answer) {
  const auto found = backlog.last_delta.find(answer.number);
  if (found == backlog.last_delta.end()) return false;
  for (auto& [sample, queued] : found->second) {
    if (sample != answer.sample) continue;
    const size_t before = queued->bytes();
    merge_deltas(&*queued, answer);
    backlog.bytes += queued->bytes() - before;
    ++num_merged_;
    return true;
  }
  return false;
}

void OutputBuffer::enqueue(Backlog& backlog, const OutgoingView& answer) {
  const bool is_delta = answer.is_delta;
  const uint64_t number = answer.number;
  const uint32_t sample = answer.sample;
  backlog.bytes += answer.bytes();
  backlog.answers.emplace_back(answer);
  if (is_delta) {
    backlog.last_delta[number].emplace_back(sample, std::prev(backlog.answers.end()));
  } else {
    // A later delta must not overtake this event by merging into an earlier one.
    backlog.last_delta.erase(number);
  }
}

void OutputBuffer::pop_front(Backlog& backlog) {
  const auto front = backlog.answers.begin();
  backlog.bytes -= front->bytes();
  const auto found = backlog.last_delta.find(front->number);
  if (front->is_delta && found != backlog.last_delta.end()) {
    std::erase_if(found->second, [&](const auto& entry) { return entry.second == front; });
    if (found->second.empty()) backlog.last_delta.erase(found);
  }
  backlog.answers.pop_front();
}

ipc::SendOutcome OutputBuffer::send_what_fits(const std::string& identity, Backlog& backlog) {
  while (!backlog.answers.empty()) {
    const ipc::SendOutcome outcome = send_(identity, backlog.answers.front());
    if (outcome != ipc::SendOutcome::kSent) return outcome;
    pop_front(backlog);
  }
  return ipc::SendOutcome::kSent;
}

bool OutputBuffer::retry(const std::string& identity) {
  const auto it = backlogs_.find(identity);
  if (it == backlogs_.end()) return true;
  const ipc::SendOutcome outcome = send_what_fits(identity, it->second);
  if (outcome == ipc::SendOutcome::kWouldBlock) return true;
  backlogs_.erase(it);
  return outcome == ipc::SendOutcome::kSent;
}

bool OutputBuffer::note_dropped(const std::string& identity) {
  const auto it = backlogs_.find(identity);
  return it != backlogs_.end() && !std::exchange(it->second.told_of_drops, true);
}

std::vector<std::string> OutputBuffer::retry() {
  std::vector<std::string> gone;
  for (auto it = backlogs_.begin(); it != backlogs_.end();) {
    const ipc::SendOutcome outcome = send_what_fits(it->first, it->second);
    if (outcome == ipc::SendOutcome::kWouldBlock) {
      ++it;
      continue;
    }
    if (outcome != ipc::SendOutcome::kSent) gone.push_back(it->first);
    it = backlogs_.erase(it);
  }
  return gone;
}

size_t OutputBuffer::backlog_bytes(const std::string& identity) const {
  const auto it = backlogs_.find(identity);
  return it == backlogs_.end() ? 0 : it->second.bytes;
}

size_t OutputBuffer::backlog_messages(const std::string& identity) const {
  const auto it = backlogs_.find(identity);
  return it == backlogs_.end() ? 0 : it->second.answers.size();
}

size_t OutputBuffer::total_bytes() const {
  size_t total = 0;
  for (const auto& [identity, backlog] : backlogs_) total += backlog.bytes;
  return total;
}

}  // namespace hearth::broker
