#pragma once
// Text to token ids and back. Immutable once loaded, so any thread may use it.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "models/tokenizer/vocabulary/byte_span.h"

namespace hearth::models {

class GgufFile;

/// Lets a thread do other work while it encodes a long text.
class EncodePause {
 public:
  virtual ~EncodePause() = default;
  /// Called between two pieces of the text, after every Tokenizer::kSliceBytes or so. It may call
  /// encode() of the same tokenizer. It does not affect the ids.
  virtual void pause() = 0;
};

struct EncodeOptions {
  bool add_bos = true;  ///< if the file's metadata asks for it; false: never
  bool parse_special =
      false;  ///< the text of a control token becomes that token; otherwise it stays text
  /// With parse_special: a text that shares a byte with one of these never becomes a control token.
  /// Ascending and disjoint.
  std::span<const ByteSpan> data = {};
  EncodePause* pause = nullptr;  ///< null: encode without pauses
};

class Tokenizer {
 public:
  /// Text between two calls of EncodePause::pause(): a few milliseconds.
  static constexpr size_t kSliceBytes = 16 << 10;

  virtual ~Tokenizer() = default;

  /// Accepts any bytes; invalid UTF-8 is encoded with byte tokens.
  virtual std::vector<int32_t> encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;

  /// The bytes that `id` stands for inside running text; empty for control tokens. A character's
  /// bytes may be split over several tokens. `id` is below vocab_size().
  virtual std::string_view piece(int32_t id) const = 0;
  /// The entry of the vocabulary as written, including control tokens ("<s>", "▁the").
  virtual std::string_view entry(int32_t id) const = 0;

  virtual int32_t vocab_size() const = 0;
  /// Whether the token ends a generation: EOS and end-of-turn tokens.
  virtual bool is_end_of_generation(int32_t id) const = 0;
  virtual bool is_control(int32_t id) const = 0;
  virtual std::optional<int32_t> bos() const = 0;
  virtual std::optional<int32_t> eos() const = 0;
  /// Whether the first token of a text contains a space that the user did not write.
  virtual bool adds_space_prefix() const = 0;
  /// Bytes of the longest token; bounds the text that n tokens can hold.
  virtual size_t max_piece_bytes() const = 0;
  /// "llama", "gpt2", ...
  virtual std::string_view kind() const = 0;
};

/// The tokenizer that the file's metadata describes. kUnsupported names an unknown
/// tokenizer.ggml.model; kCorrupt names the inconsistent key.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const GgufFile& file);

/// Converts tokens to text one by one. Holds back the bytes of an incomplete UTF-8 character and
/// replaces invalid bytes by U+FFFD, so the output is always valid UTF-8.
class StreamingDetokenizer {
 public:
  /// `strip_first_space`: drop the space that the tokenizer added if adds_space_prefix() (true only
  /// if the output begins at the sequence's first token).
  StreamingDetokenizer(const Tokenizer& tokenizer, bool strip_first_space);

  /// The text that this token completes; may be empty.
  std::string push(int32_t id);
  /// Ends the text: returns U+FFFD if an incomplete character was held back.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool strip_first_space_;
  std::string held_;
};

}  // namespace hearth::models
