#include "daemon/worker/sample_text.h"

#include <utility>

namespace hearth::worker {

void SampleText::replay(const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) {
    ++num_tokens_;
    stops_.push(detokenizer_.push(id));
  }
  pending_.first_index = static_cast<uint32_t>(num_tokens_);
}

void SampleText::push(int32_t id, std::optional<ipc::TokenLogprobs> logprobs) {
  if (stopped()) return;
  ++num_tokens_;
  pending_.ids.push_back(id);
  pending_.text += stops_.push(detokenizer_.push(id));
  if (logprobs) pending_.logprobs.push_back(std::move(*logprobs));
}

std::string SampleText::finish() {
  if (stopped()) return {};
  std::string text = stops_.push(detokenizer_.finish());
  if (!stopped()) text += stops_.finish();
  return text;
}

std::optional<SampleText::Pending> SampleText::take() {
  if (pending_.ids.empty()) return std::nullopt;
  Pending next;
  next.first_index = static_cast<uint32_t>(num_tokens_);
  return std::exchange(pending_, std::move(next));
}

}  // namespace hearth::worker
