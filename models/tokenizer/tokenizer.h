#pragma once
// Text to token ids and back. Immutable once loaded, so any thread may use it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::models {

class GgufFile;

/// Lets a thread do other work while it encodes a long text.
class EncodePause {
 public:
  virtual ~EncodePause() = default;
  /// Called between two pieces of the text, each time about Tokenizer::kSliceBytes of it are done.
  /// It may call encode() of the same tokenizer. The ids do not depend on it.
  virtual void pause() = 0;
};

struct EncodeOptions {
  bool add_bos = true;  ///< as the file's metadata says; false: never
  bool parse_special =
      false;  ///< text of control tokens becomes those tokens; otherwise it stays text
  EncodePause* pause = nullptr;  ///< null: the text is encoded in one go
};

class Tokenizer {
 public:
  /// Text between two calls of EncodePause::pause(): a few milliseconds.
  static constexpr size_t kSliceBytes = 16 << 10;

  virtual ~Tokenizer() = default;

  /// Any bytes are accepted; what is not UTF-8 goes through byte tokens.
  virtual std::vector<int32_t> encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;

  /// The bytes that `id` stands for inside running text; empty for control tokens. Bytes of one
  /// character may be spread over tokens. `id` is below vocab_size().
  virtual std::string_view piece(int32_t id) const = 0;
  /// The entry of the vocabulary as written, control tokens too ("<s>", "▁the").
  virtual std::string_view entry(int32_t id) const = 0;

  virtual int32_t vocab_size() const = 0;
  /// Ends a generation: EOS and the end-of-turn tokens of the metadata.
  virtual bool is_end_of_generation(int32_t id) const = 0;
  virtual bool is_control(int32_t id) const = 0;
  virtual std::optional<int32_t> bos() const = 0;
  virtual std::optional<int32_t> eos() const = 0;
  /// The first token of a text carries a space that the user did not write.
  virtual bool adds_space_prefix() const = 0;
  /// Bytes of the longest token: bounds what a context of n tokens can hold.
  virtual size_t max_piece_bytes() const = 0;
  /// "llama", "gpt2", ...
  virtual std::string_view kind() const = 0;
};

/// The tokenizer that the file's metadata describes. kUnsupported names an unknown
/// tokenizer.ggml.model; kCorrupt names the key that contradicts itself.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const GgufFile& file);

/// Turns tokens into text piece by piece: holds back bytes until the UTF-8 character is whole,
/// replaces what can never become one by U+FFFD, so what comes out is always valid UTF-8.
class StreamingDetokenizer {
 public:
  /// `strip_first_space`: drop the space that adds_space_prefix() put in front (true only when the
  /// text shown begins at the sequence's first token).
  StreamingDetokenizer(const Tokenizer& tokenizer, bool strip_first_space);

  /// Text that became complete with this token; may be empty.
  std::string push(int32_t id);
  /// What is still held back, replaced where incomplete. Ends the text.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool strip_first_space_;
  std::string held_;
};

}  // namespace hearth::models
