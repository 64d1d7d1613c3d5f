#include "daemon/worker/serve/embed_jobs.h"

#include <cmath>
#include <span>
#include <utility>

#include "ipc/text/base64.h"
#include "kernels/base/sizes.h"

namespace hearth::worker {
namespace {

// Texts of one request in the engine at the same time.
constexpr size_t kAtOnce = 32;
constexpr int kIndexBits = 12;  // 2048 texts at most
static_assert(kAtOnce < (size_t{1} << kIndexBits));

engine::RequestId id_of(uint64_t number, size_t index) {
  return uint64_t{1} << 63 | number << kIndexBits | index;
}
uint64_t number_of(engine::RequestId id) { return (id & ~(uint64_t{1} << 63)) >> kIndexBits; }
size_t index_of(engine::RequestId id) { return id & ((size_t{1} << kIndexBits) - 1); }

}  // namespace

std::optional<EmbedJobs::Outcome> EmbedJobs::begin(uint64_t number, int64_t received_us,
                                                   PreparedEmbed prepared) {
  Job& job = jobs_[number];
  job.texts = std::move(prepared.texts);
  job.ranker = std::move(prepared.ranker);
  job.as_chances = prepared.as_chances;
  job.reply.model = model_;
  job.reply.vectors.resize(job.texts.size());
  for (size_t i = 0; i < job.texts.size(); ++i) {
    job.texts[i].id = id_of(number, i);
    job.texts[i].received_us = received_us;
    job.reply.prompt_tokens.push_back(size32(job.texts[i].prompt));
  }
  post_more(job);
  return end_if_all_have(number);
}

void EmbedJobs::post_more(Job& job) {
  while (!job.error && job.posted < job.texts.size() && job.posted < job.ended + kAtOnce) {
    engine::EngineCommand command = std::move(job.texts[job.posted]);
    if (!commands_.try_post(command)) {
      job.error = Error::busy("the engine's inbox is full");
      return;
    }
    ++job.posted;
  }
}

void EmbedJobs::cancel(uint64_t number) {
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  if (!job.error) job.error = Error::cancelled("cancelled");
  for (size_t i = 0; i < job.posted; ++i) commands_.post(engine::CancelRequest{id_of(number, i)});
}

std::optional<EmbedJobs::Outcome> EmbedJobs::take(const engine::EmbeddingEvent& event) {
  const auto found = jobs_.find(number_of(event.id));
  if (found == jobs_.end()) return std::nullopt;
  Job& job = found->second;
  std::span<const float> values = event.values;
  float score = 0;
  if (job.ranker) {
    score = job.ranker->classifier().score(values, job.as_chances);
    values = {&score, 1};
    if (!std::isfinite(score) && !job.error) {
      job.error = Error::corrupt("the model's classifier makes a score that is not a number");
    }
  }
  job.reply.dimensions = size32(values);
  job.reply.vectors[index_of(event.id)] = ipc::base64_of_floats(values);
  return std::nullopt;  // the done event follows
}

std::optional<EmbedJobs::Outcome> EmbedJobs::take(const engine::RequestDoneEvent& event) {
  return end_one(event.id, std::nullopt);
}

std::optional<EmbedJobs::Outcome> EmbedJobs::take(const engine::RequestFailedEvent& event) {
  return end_one(event.id, event.error);
}

std::optional<EmbedJobs::Outcome> EmbedJobs::end_one(engine::RequestId id,
                                                     std::optional<Error> error) {
  const uint64_t number = number_of(id);
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return std::nullopt;
  Job& job = found->second;
  ++job.ended;
  if (error && !job.error) job.error = std::move(error);
  post_more(job);
  return end_if_all_have(number);
}

std::optional<EmbedJobs::Outcome> EmbedJobs::end_if_all_have(uint64_t number) {
  const auto found = jobs_.find(number);
  Job& job = found->second;
  const size_t wanted = job.error ? job.posted : job.texts.size();
  if (job.ended < wanted) return std::nullopt;
  Outcome out{number, job.error ? Result<ipc::EmbedReply>(std::move(*job.error))
                                : Result<ipc::EmbedReply>(std::move(job.reply))};
  jobs_.erase(found);
  return out;
}

}  // namespace hearth::worker
