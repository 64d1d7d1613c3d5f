#include "models/tokenizer/kinds/bpe_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/chars.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/kinds/bpe_merges.h"
#include "models/tokenizer/kinds/load_merges.h"
#include "models/tokenizer/kinds/vocabulary_tokenizer.h"
#include "models/tokenizer/pretokenizer/pretokenizer.h"
#include "models/tokenizer/text/byte_alphabet.h"
#include "models/tokenizer/text/char_classes.h"
#include "models/tokenizer/text/compose.h"
#include "models/tokenizer/text/utf8.h"
#include "models/tokenizer/vocabulary/token_index.h"

namespace hearth::models {
namespace {

class BpeTokenizer final : public VocabularyTokenizer {
 public:
  Result<void> load(const GgufFile& file);

 private:
  void encode_plain(std::string_view text, EncodePace& pace, Ids* ids) const override;

  Result<void> load_rule(const GgufFile& file);
  void index_tokens();
  Result<void> load_merges(const GgufFile& file);
  Result<void> index_bytes();
  void find_whole_pieces();

  void append_piece(std::string_view piece, std::vector<int32_t>* scratch,
                    std::vector<int32_t>* ids) const;
  void merge_piece(std::string_view piece, std::vector<int32_t>* ids) const;

  const PreTokenizer* rule_ = nullptr;
  bool whole_pieces_first_ = false;
  TokenIndex ids_;  // by bytes, the tokens that merging may produce; keys are views of pieces
  BpeMerges merges_;
  // Whether a piece with this token's text becomes this token: because merging gives the same
  // result, or because the rule requires it.
  std::vector<bool> is_whole_piece_;
  std::array<int32_t, 256> byte_ids_ = {};  // kNoToken: no token for that byte
  std::vector<int32_t> replacement_;        // U+FFFD, for a byte without a token
};

// ---- Loading --------------------------------------------------------------------------------

Result<void> BpeTokenizer::load(const GgufFile& file) {
  HEARTH_TRY(load_rule(file));
  set_defaults(rule_->adds_bos, false);
  HEARTH_TRY(load_vocabulary(file));
  index_tokens();
  HEARTH_TRY(load_merges(file));
  HEARTH_TRY(index_bytes());
  find_whole_pieces();
  return {};
}

Result<void> BpeTokenizer::load_rule(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.pre";
  HEARTH_ASSIGN_OR_RETURN(const auto name, file.get_or<std::string_view>(kKey, "default"));
  rule_ = PreTokenizer::find(name);
  if (rule_ == nullptr) {
    return Error::unsupported(fmt::format("{}: \"{}\", this build knows {}", kKey, printable(name),
                                          PreTokenizer::known_names()));
  }
  HEARTH_ASSIGN_OR_RETURN(whole_pieces_first_,
                          file.get_or<bool>(kWholePiecesKey, rule_->whole_pieces_first));
  return {};
}

void BpeTokenizer::index_tokens() {
  // User-defined tokens were added to a trained vocabulary, so they are plain text, not in the byte
  // alphabet.
  index_pieces([this](int32_t id) { return bytes_of_entry(entry(id)); },
               [this](int32_t id) { return std::string(entry(id)); });
  ids_.reserve(vocab_size());
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const bool is_added = vocabulary().type(id) == TokenType::kUserDefined;
    if (may_be_spelled(id) && !is_added && !piece(id).empty()) ids_.insert(piece(id), id);
  }
}

Result<void> BpeTokenizer::load_merges(const GgufFile& file) {
  // Merges name tokens by their entries. If two tokens have the same entry, the one that plain text
  // may encode to counts.
  TokenIndex by_entry;
  by_entry.reserve(vocab_size());
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (!may_be_spelled(id)) by_entry.insert(entry(id), id);
  }
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (may_be_spelled(id)) by_entry.insert(entry(id), id);
  }
  return models::load_merges(
      file, [&](std::string_view text) { return by_entry.find(text); },
      [&](const std::array<int32_t, 3>& ids) {
        return std::ranges::all_of(ids, [&](int32_t id) { return may_be_spelled(id); });
      },
      &merges_);
}

Result<void> BpeTokenizer::index_bytes() {
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const char text = static_cast<char>(byte);
    byte_ids_[byte] = ids_.find({&text, 1});
  }
  for (const char byte : kReplacementChar) {
    if (byte_ids_[byte_of(byte)] == kNoToken) {
      return Error::corrupt(fmt::format(
          "tokenizer.ggml.tokens: no token for byte 0x{:02X} of U+FFFD, which replaces bytes that "
          "have no token",
          byte_of(byte)));
    }
  }
  merge_piece(kReplacementChar, &replacement_);
  return {};
}

void BpeTokenizer::find_whole_pieces() {
  is_whole_piece_.resize(vocab_size());
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (ids_.find(piece(id)) != id) continue;
    ids.clear();
    if (!whole_pieces_first_) merge_piece(piece(id), &ids);
    is_whole_piece_[id] = whole_pieces_first_ || (ids.size() == 1 && ids[0] == id);
  }
}

// ---- Encoding -------------------------------------------------------------------------------

void BpeTokenizer::encode_plain(std::string_view text, EncodePace& pace,
                                std::vector<int32_t>* ids) const {
  std::string changed;
  if (rule_->composes) text = changed = compose(text);
  if (adds_space_prefix() && !char_at(text, 0).is(kSpace)) {
    changed = fmt::format(" {}", text);
    text = changed;
  }
  std::vector<int32_t> scratch;
  rule_->split(text, [&](std::string_view piece) {
    append_piece(piece, &scratch, ids);
    pace.done(piece.size());
  });
}

void BpeTokenizer::append_piece(std::string_view piece, std::vector<int32_t>* scratch,
                                std::vector<int32_t>* ids) const {
  const int32_t whole = ids_.find(piece);
  if (whole >= 0 && is_whole_piece_[whole]) {
    ids->push_back(whole);
    return;
  }
  scratch->clear();
  merge_piece(piece, scratch);
  for (const int32_t id : *scratch) {
    if (id == kNoToken) {
      ids->insert(ids->end(), replacement_.begin(), replacement_.end());
    } else {
      ids->push_back(id);
    }
  }
}

// Bytes without a token stay kNoToken.
void BpeTokenizer::merge_piece(std::string_view piece, std::vector<int32_t>* ids) const {
  ids->reserve(piece.size());
  for (const char byte : piece) ids->push_back(byte_ids_[byte_of(byte)]);
  merges_.merge(ids);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_bpe_tokenizer(const GgufFile& file) {
  return load_as<BpeTokenizer>(file);
}

}  // namespace hearth::models
