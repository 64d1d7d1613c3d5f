#include "ipc/cli/replay/replayer.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/base/match.h"
#include "kernels/base/numbers.h"

namespace hearth::cli {
namespace {

constexpr int64_t kLateUs = 100'000;
constexpr int64_t kWaitUs = 100'000;
constexpr size_t kVocabularies = 64;

// Its tokens make up synthetic prompts: ordinary ones of any vocabulary, and no control tokens.
constexpr std::string_view kWords =
    "The old harbour lay quiet in the morning light, and the first boats came home before seven. "
    "Nine women stood on the quay with baskets, counting fish, while children ran between crates "
    "of ice. \"Is there news from the island?\" asked one. Nothing yet: the mail ship, due at "
    "6:45, "
    "had not passed the lighthouse. Beyond the wall a train whistled, wheels turned, and smoke "
    "drifted over red roofs (some of them new) toward the hills.";

SameText same(bool equal) { return equal ? SameText::kEqual : SameText::kDifferent; }

/// Of a generate or an embed request.
std::string model_of(const ipc::ClientRequest& request) {
  const auto* generate = std::get_if<ipc::GenerateRequest>(&request);
  return generate != nullptr ? generate->model : std::get<ipc::EmbedRequest>(request).model;
}

bool ended_by_itself(const std::vector<std::string>& reasons) {
  return std::ranges::none_of(reasons, [](const std::string& reason) {
    return reason == "cancelled" || reason == "deadline";
  });
}

}  // namespace

Replayer::Replayer(ipc::Client& client, const ipc::RequestLog& log, ReplaySettings settings)
    : client_(client), log_(log), settings_(std::move(settings)), synthetic_(log.records()) {
  progress_.requests = log.records().size();
}

Result<void> Replayer::run(const std::function<bool()>& stopped,
                           const std::function<void(const ReplayProgress&)>& show) {
  // Vocabularies first: a model that loads later would delay all requests after its first one.
  for (size_t i = 0; i < log_.records().size() && !log_.header().text && !stopped(); ++i) {
    if (log_.records()[i].usage.prompt_tokens == 0) continue;
    HEARTH_ASSIGN_OR_RETURN(const ipc::ClientRequest recorded, log_.request(i));
    HEARTH_TRY(vocabulary(model_of(recorded)));
  }
  began_us_ = clock_.now_us();
  while (!stopped() && (next_ < progress_.requests || !live_.empty())) {
    HEARTH_ASSIGN_OR_RETURN(const bool waits, send_due(clock_.now_us()));
    int64_t wait_us = kWaitUs;
    if (!waits && next_ < progress_.requests) {
      wait_us = std::clamp<int64_t>(due_us(next_) - clock_.now_us(), 0, kWaitUs);
    }
    HEARTH_ASSIGN_OR_RETURN(const std::optional<ipc::Arrival> arrival,
                            client_.next(narrow<int>((wait_us + 999) / 1000)));
    if (arrival) take(*arrival);
    show(progress_);
  }
  return {};
}

int64_t Replayer::due_us(size_t index) const {
  const double after_us =
      as_double(log_.records()[index].arrival_us - log_.records().front().arrival_us);
  return began_us_ + static_cast<int64_t>(after_us / settings_.speed);
}

/// Sends what is due. True: the next request is due and waits for others to end.
Result<bool> Replayer::send_due(int64_t now_us) {
  while (next_ < progress_.requests && due_us(next_) <= now_us) {
    if (std::cmp_greater_equal(live_.size(), settings_.concurrency)) return true;
    const ipc::RecordedEvent& record = log_.records()[next_];
    if (!log_.header().text && record.usage.prompt_tokens == 0) {
      ++left_out_;
      ++next_;
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(const ipc::ClientRequest sent, request(next_));
    const auto* generate = std::get_if<ipc::GenerateRequest>(&sent);
    const Result<std::string> id = generate != nullptr
                                       ? client_.start(*generate)
                                       : client_.start_embed(std::get<ipc::EmbedRequest>(sent));
    // Its queue is full: it takes more once it has read.
    if (!id.ok() && id.error().code == ErrorCode::kBusy) return true;
    if (!id.ok()) return id.error();
    if (now_us - due_us(next_) > kLateUs) ++progress_.late;
    ++progress_.sent;
    live_[*id] = {.index = next_++,
                  .generates = generate != nullptr,
                  .sent_us = clock_.now_us(),
                  .digests = {}};
  }
  return false;
}

Result<ipc::ClientRequest> Replayer::request(size_t index) {
  const ipc::RecordedEvent& record = log_.records()[index];
  HEARTH_ASSIGN_OR_RETURN(ipc::ClientRequest recorded, log_.request(index));
  const bool text = log_.header().text;
  if (auto* generate = std::get_if<ipc::GenerateRequest>(&recorded)) {
    if (text) return ipc::ClientRequest(replayed(std::move(*generate), record, settings_.choices));
    HEARTH_ASSIGN_OR_RETURN(const std::vector<int32_t>* ids, vocabulary(generate->model));
    return ipc::ClientRequest(
        replayed(std::move(*generate), record, synthetic_.ids(index, *ids), settings_.choices));
  }
  ipc::EmbedRequest& embed = std::get<ipc::EmbedRequest>(recorded);
  if (!text) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<int32_t>* ids, vocabulary(embed.model));
    embed.texts.clear();
    embed.ids = synthetic_.texts(index, record.text_tokens, *ids);
  }
  if (!settings_.choices.against.empty()) embed.model = settings_.choices.against;
  return recorded;
}

/// Token ids that the model has. The first call for a model loads it.
Result<const std::vector<int32_t>*> Replayer::vocabulary(const std::string& recorded_model) {
  const std::string& against = settings_.choices.against;
  const std::string& model = against.empty() ? recorded_model : against;
  const auto found = vocabularies_.find(model);
  if (found != vocabularies_.end()) return &found->second;
  if (vocabularies_.size() >= kVocabularies) {
    return Error::too_large(fmt::format("requests of more than {} models", kVocabularies));
  }
  ipc::TokenizeRequest words;
  words.model = model;
  words.text = kWords;
  words.raw = true;
  HEARTH_ASSIGN_OR_RETURN(const ipc::TokenizeReply tokens, client_.tokenize(words));
  if (tokens.ids.empty()) return Error::internal(fmt::format("{}: no tokens", model));
  return &(vocabularies_[model] = tokens.ids);
}

void Replayer::take(const ipc::Arrival& arrival) {
  const auto found = live_.find(arrival.request_id);
  if (found == live_.end()) return;
  Live& live = found->second;
  match(
      arrival.what,
      [&](const ipc::Delta& delta) {
        const size_t sample = delta.header.sample;
        constexpr size_t kSamples = 16;
        if (sample >= kSamples) return;
        if (live.digests.size() <= sample) live.digests.resize(sample + 1);
        live.digests[sample].add(delta.ids);
      },
      [&](const ipc::Event& event) { take_event(arrival.request_id, live, event); });
}

void Replayer::take_event(const std::string& id, Live& live, const ipc::Event& event) {
  Measured measured{.arrival_us = live.sent_us - began_us_,
                    .generates = live.generates,
                    .total_ms = us_as_ms(clock_.now_us() - live.sent_us)};
  if (const auto* done = std::get_if<ipc::DoneEvent>(&event)) {
    ipc::RecordedEvent as_recorded;
    as_recorded.arrival_us = measured.arrival_us;
    as_recorded.usage = done->usage;
    as_recorded.timings = done->timings;
    return end(id, live, measured_of(as_recorded, true), same_text(live, *done));
  }
  if (const auto* reply = std::get_if<ipc::EmbedReply>(&event)) {
    for (const int32_t tokens : reply->prompt_tokens) measured.prompt_tokens += tokens;
    return end(id, live, measured, SameText::kNotComparable);
  }
  if (const auto* error = std::get_if<ipc::ErrorEvent>(&event)) {
    measured.failed = true;
    if (first_failure_.empty() && log_.records()[live.index].error.empty()) {
      first_failure_ = error->error.message;
    }
    end(id, live, measured, SameText::kNotComparable);
  }
}

SameText Replayer::same_text(const Live& live, const ipc::DoneEvent& done) const {
  const ipc::RecordedEvent& record = log_.records()[live.index];
  if (record.digests.empty() || !ended_by_itself(record.finish_reasons) ||
      !ended_by_itself(done.finish_reasons)) {
    return SameText::kNotComparable;
  }
  std::vector<std::string> digests;
  for (const ipc::TokenDigest& digest : live.digests) digests.push_back(digest.hex());
  // A sample without a token sends no delta.
  digests.resize(std::max(digests.size(), record.digests.size()), ipc::TokenDigest().hex());
  return same(digests == record.digests);
}

void Replayer::end(const std::string& id, const Live& live, Measured replayed, SameText text) {
  ++progress_.ended;
  progress_.failed += replayed.failed ? 1 : 0;
  compared_.push_back({.recorded = measured_of(log_.records()[live.index], live.generates),
                       .replayed = replayed,
                       .text = text});
  live_.erase(id);
}

}  // namespace hearth::cli
