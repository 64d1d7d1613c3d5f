#pragma once
// The splitting rules of byte-level tokenizers, as tokenizer.json describes them.

#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer/pretokenizer/pretokenizer.h"

namespace hearth::models {

/// What a tokenizer.json does to a text before it merges bytes.
struct SplitSteps {
  std::vector<std::string> expressions;  ///< each splits what the ones before it left
  bool composes = false;                 ///< to NFC, before
  bool whole_pieces_first = false;       ///< "ignore_merges"
};

inline constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// The name of a rule (tokenizer.ggml.pre) that splits and composes like this; of several, one with
/// the same whole_pieces_first if there is one. Empty: this build knows none.
std::string_view split_rule_name(const SplitSteps& steps);

}  // namespace hearth::models
