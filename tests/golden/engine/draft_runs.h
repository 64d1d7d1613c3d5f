#pragma once
// Requests and runs of engines whose model drafts by itself, or by what was added to it.

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "engine/config.h"
#include "engine/request.h"
#include "engine/store/block_store.h"
#include "tests/golden/engine/engine_run.h"
#include "tests/golden/random_llama.h"

namespace hearth::golden {

inline constexpr int32_t kVocab = 128;

/// Drafts of that width; 0: as many as pay; below 0: none.
engine::EngineConfig config_of(int32_t width);
/// Greedy and sampled, with log probabilities, penalties, several samples, shared prompts.
std::vector<engine::Request> mixed_requests();
/// So many of them at a time.
std::vector<EngineAnswer> ask_together(EngineRun* run, const std::vector<engine::Request>& asked,
                                       size_t together);
void check_equal(const std::vector<EngineAnswer>& met, const std::vector<EngineAnswer>& want);
/// Fewer blocks than seven sequences need, and states of a few of them.
uint64_t few_bytes(const engine::KvLayout& layout);
/// A model whose next token depends mostly on the last one.
LlamaShape predictable_llama();
/// A cached prefix, a fork and a prompt computed in steps of so many rows get the same drafts.
void check_same_drafts(const OwnedFile& model, const OwnedFile& heads,
                       std::initializer_list<int32_t> step_rows);

}  // namespace hearth::golden
