#include "ipc/cli/replay/replay_requests.h"

#include <algorithm>
#include <utility>

#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::cli {
namespace {

// How far back a prompt's parent is looked for, which keeps long recordings linear.
constexpr size_t kParents = 4096;

/// A value for (prompt, position) that looks random: the finalizer of splitmix64.
uint64_t mixed(uint64_t prompt, uint64_t position) {
  uint64_t x = prompt * 0x9E3779B97F4A7C15 + position + 0x632BE59BD9B4E019;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

int32_t token(uint64_t prompt, uint64_t position, std::span<const int32_t> vocabulary) {
  return vocabulary[mixed(prompt, position) % vocabulary.size()];
}

bool was_cut_short(const ipc::RecordedEvent& record) {
  return std::ranges::find(record.finish_reasons, "cancelled") != record.finish_reasons.end();
}

int32_t tokens_per_sample(const ipc::RecordedEvent& record, int32_t n) {
  return std::max(1, (record.usage.output_tokens + n - 1) / n);
}

void set_max_tokens(ipc::GenerateRequest& request, int32_t tokens) {
  request.max_tokens = tokens;
  request.min_tokens = std::min(request.min_tokens, tokens);
}

}  // namespace

SyntheticPrompts::SyntheticPrompts(std::span<const ipc::RecordedEvent> records) {
  for (const ipc::RecordedEvent& record : records) {
    Prompt prompt{.tokens = std::max(1, record.usage.prompt_tokens)};
    const int32_t wanted = std::min(record.usage.cached_tokens, prompt.tokens);
    const size_t oldest = prompts_.size() - std::min(prompts_.size(), kParents);
    for (size_t i = prompts_.size(); wanted > prompt.shared && i-- > oldest;) {
      const int32_t shared = std::min(wanted, prompts_[i].tokens);
      if (records[i].model != record.model || shared <= prompt.shared) continue;
      prompt.shared = shared;
      prompt.parent = i;
    }
    prompts_.push_back(prompt);
  }
}

std::vector<int32_t> SyntheticPrompts::ids(size_t index,
                                           std::span<const int32_t> vocabulary) const {
  std::vector<int32_t> out(prompts_[index].tokens);
  // From the end: the prompt's own tokens, then those of its parent that it shares, and so on.
  for (int32_t end = prompts_[index].tokens; end > 0;) {
    const Prompt& prompt = prompts_[index];
    const int32_t begin = std::min(end, prompt.shared);
    for (int32_t i = begin; i < end; ++i) out[i] = token(index, i, vocabulary);
    end = begin;
    index = prompt.parent;
  }
  return out;
}

std::vector<std::vector<int32_t>> SyntheticPrompts::texts(
    size_t index, std::span<const int32_t> token_counts,
    std::span<const int32_t> vocabulary) const {
  std::vector<std::vector<int32_t>> out;
  uint64_t position = 0;
  for (const int32_t tokens : token_counts) {
    std::vector<int32_t>& text = out.emplace_back(std::max(1, tokens));
    for (int32_t& id : text) id = token(index, position++, vocabulary);
  }
  return out;
}

ipc::GenerateRequest replayed(ipc::GenerateRequest request, const ipc::RecordedEvent& record,
                              const ReplayChoices& choices) {
  if (!choices.against.empty()) {
    request.model = choices.against;
    // A draft model that the request names belongs to the recorded model.
    if (request.draft != "none") request.draft = "auto";
  }
  if (request.cache_share.empty() && !choices.share.empty()) {
    request.cache_share = choices.share;
    // No later request finds these prefixes, so they must not take others' room on disk.
    if (request.cache == "disk") request.cache = "memory";
  }
  request.seed = record.seed;
  request.detach = false;
  request.cache_keep_s = 0;
  // The client left before the end, so generate only as many tokens as were recorded.
  if (was_cut_short(record)) {
    set_max_tokens(request, tokens_per_sample(record, request.n));
  }
  return request;
}

ipc::GenerateRequest replayed(ipc::GenerateRequest shape, const ipc::RecordedEvent& record,
                              std::vector<int32_t> prompt, const ReplayChoices& choices) {
  shape.prompt.clear();
  shape.prompt_ids = std::move(prompt);
  set_max_tokens(shape, tokens_per_sample(record, shape.n));
  shape.ignore_eos = true;
  return replayed(std::move(shape), record, choices);
}

}  // namespace hearth::cli
