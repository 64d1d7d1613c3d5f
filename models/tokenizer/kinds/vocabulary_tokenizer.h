#pragma once
// The common part of all tokenizers: the vocabulary, the bytes of its tokens, BOS, and special
// tokens in text. Each kind adds the encoding of the plain text between them.

#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/vocabulary/special_tokens.h"
#include "models/tokenizer/vocabulary/string_pool.h"
#include "models/tokenizer/vocabulary/vocabulary.h"

namespace hearth::models {

/// Counts the encoded text and pauses after each slice. A pause is possible between any two pieces,
/// because no token spans two pieces.
class EncodePace {
 public:
  explicit EncodePace(EncodePause* pause) : pause_(pause) {}
  /// The next `bytes` of the text are encoded.
  void done(size_t bytes) {
    done_ += bytes;
    if (pause_ == nullptr || done_ < Tokenizer::kSliceBytes) return;
    done_ = 0;
    pause_->pause();
  }

 private:
  EncodePause* pause_;
  size_t done_ = 0;
};

class VocabularyTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string_view kind() const override { return kind_; }
  std::string_view piece(int32_t id) const override { return pieces_[id]; }
  std::string_view entry(int32_t id) const override { return vocabulary_.entry(id); }
  int32_t vocab_size() const override { return vocabulary_.size(); }
  bool is_end_of_generation(int32_t id) const override {
    return vocabulary_.is_end_of_generation(id);
  }
  bool is_control(int32_t id) const override { return vocabulary_.type(id) == TokenType::kControl; }
  std::optional<int32_t> bos() const override { return vocabulary_.bos(); }
  std::optional<int32_t> eos() const override { return vocabulary_.eos(); }
  bool adds_space_prefix() const override { return add_space_prefix_; }
  size_t max_piece_bytes() const override { return max_piece_bytes_; }

 protected:
  using Ids = std::vector<int32_t>;
  static constexpr int32_t kNoToken = -1;
  /// U+2581, which stands for a space in the entries of some kinds.
  static constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

  /// Ids of a run of text without special tokens, never empty and at most kMaxTextBytes.
  /// Calls `pace` after each piece.
  virtual void encode_plain(std::string_view text, EncodePace& pace, Ids* ids) const = 0;

  /// Reads the kind, the vocabulary, tokenizer.ggml.add_bos_token and
  /// tokenizer.ggml.add_space_prefix.
  Result<void> load_vocabulary(const GgufFile& file);
  /// tokenizer.ggml.scores, one for each token.
  Result<std::vector<float>> read_scores(const GgufFile& file) const;
  /// Sets the flags for metadata that does not define them. Call before load_vocabulary(). BOS is
  /// added by default only if the vocabulary has one.
  void set_defaults(bool add_bos, bool add_space_prefix);
  /// Sets piece() of every token, and the special tokens. `text_of(id)` gives the text of tokens
  /// that are not control, unknown, user-defined or byte tokens; `name_of(id)` gives the text of
  /// user-defined tokens, by which they are also found in text.
  template <typename TextOf, typename NameOf>
  void index_pieces(const TextOf& text_of, const NameOf& name_of) {
    pieces_.reserve(vocabulary_.size());
    for (int32_t id = 0; id < vocabulary_.size(); ++id) {
      switch (vocabulary_.type(id)) {
        case TokenType::kControl:
          special_.add(vocabulary_.entry(id), id, true);
          add_piece({});
          break;
        case TokenType::kUnknown: add_piece("\xEF\xBF\xBD"); break;
        case TokenType::kByte: {
          const char byte = static_cast<char>(*byte_of_entry(vocabulary_.entry(id)));
          add_piece({&byte, 1});
          break;
        }
        case TokenType::kUserDefined: {
          const std::string name = name_of(id);
          special_.add(name, id, false);
          add_piece(name);
          break;
        }
        default: add_piece(text_of(id));
      }
    }
  }
  /// Whether plain text may encode to this token. Not so for control, unknown and byte tokens:
  /// "<s>" and "<0x0A>" stay text.
  bool may_be_spelled(int32_t id) const;
  /// Replaces space marks by spaces, and spaces by space marks.
  static std::string unmarked(std::string_view entry);
  static void append_marked(std::string_view text, std::string* out);

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  void add_piece(std::string_view text);

  std::string kind_;
  Vocabulary vocabulary_;
  StringPool pieces_;
  SpecialTokens special_;
  size_t max_piece_bytes_ = 0;
  bool add_bos_ = false;
  bool add_space_prefix_ = false;
};

/// Entry point of each kind: a tokenizer of type T loaded by its `Result<void> load(file)`.
template <typename T>
Result<std::unique_ptr<Tokenizer>> load_as(const GgufFile& file) {
  auto tokenizer = std::make_unique<T>();
  HEARTH_TRY(tokenizer->load(file));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace hearth::models
