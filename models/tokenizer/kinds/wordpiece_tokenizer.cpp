#include "models/tokenizer/kinds/wordpiece_tokenizer.h"

#include <fmt/core.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "models/gguf/gguf_file.h"
#include "models/tokenizer/kinds/vocabulary_tokenizer.h"
#include "models/tokenizer/text/char_classes.h"
#include "models/tokenizer/text/utf8.h"
#include "models/tokenizer/vocabulary/token_index.h"

namespace hearth::models {
namespace {

constexpr size_t kMaxWordChars = 100;  // longer words are unknown
constexpr uint32_t kReplacementCharacter = 0xFFFD;
// More than enough for the NFD decomposition of one character.
constexpr size_t kMaxDecomposed = 32;

// Han characters as BERT defines them; each is a word.
bool is_han(uint32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B73F) ||
         (code >= 0x2B740 && code <= 0x2B81F) || (code >= 0x2B920 && code <= 0x2CEAF) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
}

// Controls, unassigned code points, and replacements of invalid bytes.
bool is_dropped(const Char& c) {
  if (c.code == '\t' || c.code == '\n' || c.code == '\r') return false;
  const bool is_c1_space = c.code == '\v' || c.code == '\f' || c.code == 0x85;
  return c.classes == 0 || is_c1_space || c.code == kReplacementCharacter;
}

bool is_punctuation(uint32_t code) {
  const uint8_t classes = char_classes(code);
  return (classes & kPunctuation) != 0 || (code < 0x80 && (classes & kSymbol) != 0);
}

class WordPieceTokenizer final : public VocabularyTokenizer {
 public:
  Result<void> load(const GgufFile& file);

 private:
  void encode_plain(std::string_view text, EncodePace& pace, Ids* ids) const override;

  /// The current word: kSpaceMark and its characters.
  struct Word {
    std::string text{kSpaceMark};
    size_t num_chars = 0;
  };
  void append_char(uint32_t code, Word* word, std::vector<int32_t>* ids) const;
  void append_normalized(uint32_t code, Word* word, std::vector<int32_t>* ids) const;
  void end_word(Word* word, std::vector<int32_t>* ids) const;

  TokenIndex ids_;  // keys are views of entries
  bool lowercase_ = true;
  bool strip_accents_ = true;
};

Result<void> WordPieceTokenizer::load(const GgufFile& file) {
  set_defaults(true, true);
  HEARTH_TRY(load_vocabulary(file));
  HEARTH_ASSIGN_OR_RETURN(lowercase_, file.get_or("tokenizer.ggml.normalizer.lowercase", true));
  HEARTH_ASSIGN_OR_RETURN(strip_accents_,
                          file.get_or("tokenizer.ggml.normalizer.strip_accents", lowercase_));
  if (!vocabulary().unknown()) {
    return Error::corrupt(
        "tokenizer.ggml.unknown_token_id: missing, and WordPiece needs it for words that "
        "no token covers");
  }
  const auto text_of = [this](int32_t id) { return unmarked(entry(id)); };
  index_pieces(text_of, text_of);
  ids_.reserve(vocab_size());
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (may_be_spelled(id) && !entry(id).empty()) ids_.insert(entry(id), id);
  }
  return {};
}

void WordPieceTokenizer::encode_plain(std::string_view text, EncodePace& pace,
                                      std::vector<int32_t>* ids) const {
  Word word;
  for (size_t at = 0; at < text.size();) {
    const Char c = char_at(text, at);
    at += c.bytes;
    pace.done(c.bytes);
    if (is_dropped(c)) continue;
    if (c.is(kSpace)) {
      end_word(&word, ids);
    } else if (is_han(c.code)) {
      end_word(&word, ids);
      append_normalized(c.code, &word, ids);
      end_word(&word, ids);
    } else {
      append_normalized(c.code, &word, ids);
    }
  }
  end_word(&word, ids);
}

void WordPieceTokenizer::append_normalized(uint32_t code, Word* word,
                                           std::vector<int32_t>* ids) const {
  if (!strip_accents_) {
    append_char(code, word, ids);
    return;
  }
  // Decomposing characters one by one may leave marks in another order than NFD. That does not
  // matter, because the marks that would move are dropped.
  std::array<utf8proc_int32_t, kMaxDecomposed> parts;
  int boundary = 0;
  const auto count =
      utf8proc_decompose_char(code, parts.data(), parts.size(), UTF8PROC_DECOMPOSE, &boundary);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    if (utf8proc_category(parts[i]) == UTF8PROC_CATEGORY_MN) continue;
    append_char(parts[i], word, ids);
  }
}

void WordPieceTokenizer::append_char(uint32_t code, Word* word, std::vector<int32_t>* ids) const {
  if (lowercase_) {
    code = utf8proc_tolower(code);
  }
  const bool is_word = is_punctuation(code);
  if (is_word) end_word(word, ids);
  // Past the bound only the word's length matters, not its text.
  if (++word->num_chars <= kMaxWordChars) models::append_char(word->text, code);
  if (is_word) end_word(word, ids);
}

void WordPieceTokenizer::end_word(Word* word, std::vector<int32_t>* ids) const {
  if (word->num_chars == 0) return;
  const size_t before = ids->size();
  std::string_view rest = word->text;
  while (!rest.empty() && word->num_chars <= kMaxWordChars) {
    size_t length = std::min(rest.size(), ids_.max_bytes());
    int32_t id = kNoToken;
    for (; length > 0; --length) {
      id = ids_.find(rest.substr(0, length));
      if (id != kNoToken) break;
    }
    if (id == kNoToken) break;
    ids->push_back(id);
    rest.remove_prefix(length);
  }
  if (!rest.empty()) {
    ids->resize(before);
    ids->push_back(*vocabulary().unknown());
  }
  word->text.resize(kSpaceMark.size());
  word->num_chars = 0;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_wordpiece_tokenizer(const GgufFile& file) {
  return load_as<WordPieceTokenizer>(file);
}

}  // namespace hearth::models
