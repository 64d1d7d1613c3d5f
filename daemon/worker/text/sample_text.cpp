#include "daemon/worker/text/sample_text.h"

#include <algorithm>
#include <utility>

#include "ipc/wire/codec.h"

namespace hearth::worker {
namespace {

ipc::DeltaChannel channel_of(models::AnswerPiece::Type type) {
  switch (type) {
    case models::AnswerPiece::Type::kText: return ipc::DeltaChannel::kText;
    case models::AnswerPiece::Type::kReasoning: return ipc::DeltaChannel::kReasoning;
    case models::AnswerPiece::Type::kCall: return ipc::DeltaChannel::kCall;
    case models::AnswerPiece::Type::kArguments: return ipc::DeltaChannel::kArguments;
  }
  return ipc::DeltaChannel::kText;
}

// A delta with a single text part is sent as plain text.
void make_plain(SampleText::Pending* pending) {
  if (pending->parts.size() != 1 || pending->parts[0].channel != ipc::DeltaChannel::kText) return;
  pending->text = std::move(pending->parts[0].text);
  pending->parts.clear();
}

}  // namespace

void SampleText::read_as(std::shared_ptr<const AnswerReading> reading, uint32_t sample,
                         const models::Tokenizer& tokenizer, const std::vector<int32_t>& answered) {
  reading_ = std::move(reading);
  parser_.emplace(reading_->shape);
  sample_ = sample;
  models::StreamingDetokenizer before(tokenizer, false);
  std::swap(before, detokenizer_);
  for (const int32_t id : answered) add(text_of(id), Part::kMore);
  std::swap(before, detokenizer_);
  pending_ = {};
}

std::string SampleText::text_of(int32_t id) {
  std::string text = detokenizer_.push(id);
  if (!reading_) return text;
  const auto mark = reading_->marks.find(id);
  if (mark != reading_->marks.end()) text += mark->second;
  return text;
}

// Adds text to the pending delta.
void SampleText::add(std::string_view text, Part part) {
  if (!parser_) {
    pending_.text += text;
    return;
  }
  models::AnswerPieces pieces;
  parser_->push(text, &pieces);
  ended_ = parser_->ended();
  if (part != Part::kMore) parser_->finish(&pieces, part == Part::kCutShort);
  for (models::AnswerPiece& piece : pieces) {
    const ipc::DeltaChannel channel = channel_of(piece.type);
    if (channel == ipc::DeltaChannel::kCall) {
      const int32_t index = num_calls_++;
      piece.text = ipc::encode_tool_call(
          {.index = index, .id = call_id(reading_->call_key, sample_, index), .name = piece.text});
    }
    auto& parts = pending_.parts;
    const bool begins = channel == ipc::DeltaChannel::kCall;
    if (begins || parts.empty() || parts.back().channel != channel) parts.push_back({channel, {}});
    parts.back().text += piece.text;
  }
}

void SampleText::replay(const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) {
    ++num_tokens_;
    add(stops_.push(text_of(id)), Part::kMore);
    if (parser_ && parser_->reasoning()) ++num_reasoning_tokens_;
  }
  pending_ = {};
  pending_.first_index = num_tokens_;
}

void SampleText::push(int32_t id, std::optional<ipc::TokenLogprobs> logprobs) {
  if (stopped()) return;
  ++num_tokens_;
  pending_.ids.push_back(id);
  add(stops_.push(text_of(id)), Part::kMore);
  if (parser_ && parser_->reasoning()) ++num_reasoning_tokens_;
  if (logprobs) pending_.logprobs.push_back(std::move(*logprobs));
}

SampleText::Pending SampleText::finish(bool cut_short) {
  std::string text;
  if (!stops_.matched()) {
    text = stops_.push(detokenizer_.finish());
    if (!stops_.matched()) text += stops_.finish();
  }
  // A stop string cuts a call short, too.
  add(text, cut_short || stops_.matched() ? Part::kCutShort : Part::kLast);
  Pending out = std::exchange(pending_, {});
  out.first_index = num_tokens_;
  make_plain(&out);
  return out;
}

std::optional<SampleText::Pending> SampleText::take() {
  if (pending_.ids.empty()) return std::nullopt;
  Pending next;
  next.first_index = num_tokens_;
  Pending out = std::exchange(pending_, std::move(next));
  make_plain(&out);
  return out;
}

}  // namespace hearth::worker
