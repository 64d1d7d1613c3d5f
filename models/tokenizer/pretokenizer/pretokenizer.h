#pragma once
// Splits text into the pieces inside which byte-level BPE merges, by the rule that
// tokenizer.ggml.pre names. A rule is a list of stages. The matches of a stage, and the texts
// between them, are separate inputs of the next stage.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "models/tokenizer/pretokenizer/stages.h"

namespace hearth::models {

/// A rule and the flags that its name implies. All data is static.
struct PreTokenizer {
  std::span<const Stage> stages;
  /// A piece that equals a token becomes that token, regardless of merges.
  bool whole_pieces_first = false;
  /// The default for adding BOS, if the metadata does not define it.
  bool adds_bos = false;
  /// Text is converted to Unicode form NFC first.
  bool composes = false;

  /// Null for a name this build does not know.
  static const PreTokenizer* find(std::string_view name);
  /// "default, gpt-2, ...", for messages.
  static std::string known_names();

  /// Calls `emit(piece)` for each piece in order; joined, the pieces are `text`.
  template <typename Emit>
  void split(std::string_view text, const Emit& emit) const {
    split_from(0, text, emit);
  }

 private:
  template <typename Emit>
  void split_from(size_t stage, std::string_view text, const Emit& emit) const {
    if (stage == stages.size()) {
      emit(text);
      return;
    }
    for (size_t at = 0; at < text.size();) {
      const TextSpan match = stages[stage](text, at);
      if (match.begin > at) split_from(stage + 1, text.substr(at, match.begin - at), emit);
      if (match.end > match.begin) {
        split_from(stage + 1, text.substr(match.begin, match.end - match.begin), emit);
      }
      at = match.end;
    }
  }
};

}  // namespace hearth::models
