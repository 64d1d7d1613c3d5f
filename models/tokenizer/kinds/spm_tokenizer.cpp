#include "models/tokenizer/kinds/spm_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/kinds/bpe_merges.h"
#include "models/tokenizer/kinds/load_merges.h"
#include "models/tokenizer/kinds/vocabulary_tokenizer.h"
#include "models/tokenizer/text/utf8.h"
#include "models/tokenizer/vocabulary/token_index.h"

namespace hearth::models {
namespace {

// A character as a number: its bytes, four at most.
uint32_t key_of(std::string_view character) {
  uint32_t key = 0;
  for (const char byte : character) key = key << 8 | byte_of(byte);
  return key;
}

class SpmTokenizer : public VocabularyTokenizer {
 public:
  Result<void> load(const GgufFile& file);

 protected:
  /// Reads tokenizer.ggml.merges, whose order ranks the merges in place of the tokens' scores.
  Result<void> load_merges(const GgufFile& file);
  Result<void> index_tokens();
  void index_characters();
  void find_whole_pieces();

 private:
  void encode_plain(std::string_view text, EncodePace& pace, Ids* ids) const override;
  Result<void> load_scores(const GgufFile& file);
  void index_merges();

  void append_piece(std::string_view piece, std::vector<int32_t>* symbols,
                    std::vector<int32_t>* ids) const;
  void append_missing(std::string_view character, std::vector<int32_t>* ids) const;
  int32_t character_id(std::string_view character) const;
  int32_t symbol_id(std::string_view text) const;
  size_t joint_of(int32_t left, int32_t right) const;
  bool may_join(int32_t left, int32_t right) const;

  bool has_scores_ = false;
  std::vector<float> scores_;  // while loading
  TokenIndex ids_;  // by entry, the tokens that merging may produce; keys are views of the entries
  // Characters that are part of tokens but not tokens themselves have ids past the vocabulary's.
  std::unordered_map<uint32_t, int32_t> character_ids_;
  std::array<int32_t, 128> ascii_ids_ = {};  // ids of ASCII characters; kNoToken: in no token
  std::vector<std::string> characters_;      // the characters with ids past the vocabulary's
  // The pairs of adjacent characters inside tokens. No merge spans any other pair, so text is split
  // there, nearly always at spaces, and the pieces are short.
  // One bit per hash of a pair; a collision only makes a piece longer.
  std::vector<bool> joints_;
  BpeMerges merges_;
  std::vector<bool> is_whole_piece_;        // merging the token's own text gives the token
  std::array<int32_t, 256> byte_ids_ = {};  // kNoToken: none for that byte
};

// ---- Loading --------------------------------------------------------------------------------

Result<void> SpmTokenizer::load(const GgufFile& file) {
  set_defaults(true, true);
  HEARTH_TRY(load_vocabulary(file));
  HEARTH_TRY(load_scores(file));
  HEARTH_TRY(index_tokens());
  index_characters();
  index_merges();
  find_whole_pieces();
  return {};
}

Result<void> SpmTokenizer::load_scores(const GgufFile& file) {
  HEARTH_ASSIGN_OR_RETURN(scores_, read_scores(file));
  has_scores_ = true;
  return {};
}

Result<void> SpmTokenizer::index_tokens() {
  const auto text_of = [this](int32_t id) { return unmarked(entry(id)); };
  index_pieces(text_of, text_of);
  byte_ids_.fill(kNoToken);
  ids_.reserve(vocab_size());
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (vocabulary().type(id) == TokenType::kByte) byte_ids_[*byte_of_entry(entry(id))] = id;
    // Real vocabularies contain duplicates; the last one counts.
    if (may_be_spelled(id) && !entry(id).empty()) ids_.insert(entry(id), id);
  }
  const auto missing = std::find(byte_ids_.begin(), byte_ids_.end(), kNoToken);
  if (missing != byte_ids_.end() && !vocabulary().unknown()) {
    return Error::corrupt(
        fmt::format("tokenizer.ggml.tokens: no byte token <0x{:02X}> and no unknown token "
                    "to stand in for it",
                    missing - byte_ids_.begin()));
  }
  return {};
}

void SpmTokenizer::index_characters() {
  ascii_ids_.fill(kNoToken);
  size_t num_joints = 0;
  for (int32_t id = 0; id < vocab_size(); ++id) num_joints += entry(id).size();
  joints_.resize(std::bit_ceil(8 * num_joints));
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (ids_.find(entry(id)) != id) continue;
    int32_t previous = kNoToken;
    for (std::string_view rest = entry(id); !rest.empty();) {
      const std::string_view character = rest.substr(0, front_char(rest).bytes);
      rest.remove_prefix(character.size());
      const auto [at, is_new] = character_ids_.try_emplace(key_of(character), 0);
      if (is_new) {
        at->second = ids_.find(character);
        if (at->second == kNoToken) {
          at->second = vocab_size() + size32(characters_);
          characters_.emplace_back(character);
        }
        if (key_of(character) < ascii_ids_.size()) ascii_ids_[key_of(character)] = at->second;
      }
      if (previous != kNoToken) joints_[joint_of(previous, at->second)] = true;
      previous = at->second;
    }
  }
}

// Each way to split a token into two texts that are tokens or characters is a merge. The better the
// token's score, the lower the rank.
void SpmTokenizer::index_merges() {
  const std::vector<float> scores = std::exchange(scores_, {});  // not needed after this
  std::vector<float> best_first = scores;
  std::sort(best_first.begin(), best_first.end(), std::greater<>());
  best_first.erase(std::unique(best_first.begin(), best_first.end()), best_first.end());
  struct Merge {
    int32_t left, right, merged;
  };
  std::vector<Merge> merges;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const std::string_view text = entry(id);
    if (ids_.find(text) != id) continue;
    for (size_t cut = front_char(text).bytes; cut < text.size();
         cut += front_char(text.substr(cut)).bytes) {
      const int32_t left = symbol_id(text.substr(0, cut));
      const int32_t right = left == kNoToken ? kNoToken : symbol_id(text.substr(cut));
      if (right != kNoToken) merges.push_back({left, right, id});
    }
  }
  merges_.reserve(merges.size());
  for (const Merge& m : merges) {
    const auto rank =
        std::lower_bound(best_first.begin(), best_first.end(), scores[m.merged], std::greater<>());
    merges_.add(m.left, m.right, m.merged, narrow<uint32_t>(rank - best_first.begin()));
  }
}

Result<void> SpmTokenizer::load_merges(const GgufFile& file) {
  return models::load_merges(
      file, [this](std::string_view text) { return symbol_id(text); },
      [this](const std::array<int32_t, 3>& ids) { return ids[2] < vocab_size(); }, &merges_);
}

void SpmTokenizer::find_whole_pieces() {
  is_whole_piece_.resize(vocab_size());
  std::vector<int32_t> symbols;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (ids_.find(entry(id)) != id) continue;
    // Files may lack the merges of newlines: their text format did not hold them.
    if (entry(id).find_first_not_of('\n') == std::string_view::npos && !has_scores_) {
      is_whole_piece_[id] = true;
      continue;
    }
    symbols.clear();
    for (std::string_view rest = entry(id); !rest.empty();) {
      const size_t bytes = front_char(rest).bytes;
      symbols.push_back(character_id(rest.substr(0, bytes)));
      rest.remove_prefix(bytes);
    }
    merges_.merge(&symbols);
    is_whole_piece_[id] = symbols.size() == 1 && symbols[0] == id;
  }
}

/// The same, with a list of merges.
class ListedTokenizer final : public SpmTokenizer {
 public:
  Result<void> load(const GgufFile& file) {
    set_defaults(true, false);
    HEARTH_TRY(load_vocabulary(file));
    HEARTH_TRY(index_tokens());
    index_characters();
    HEARTH_TRY(load_merges(file));
    find_whole_pieces();
    return {};
  }
};

// ---- Encoding -------------------------------------------------------------------------------

void SpmTokenizer::encode_plain(std::string_view text, EncodePace& pace,
                                std::vector<int32_t>* ids) const {
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 2 + kSpaceMark.size());
  if (adds_space_prefix()) escaped += kSpaceMark;
  append_marked(text, &escaped);

  std::vector<int32_t> symbols;  // of the piece that begins at `begin`
  size_t begin = 0;
  const std::string_view whole = escaped;
  for (size_t at = 0; at < whole.size();) {
    const std::string_view character = whole.substr(at, front_char(whole.substr(at)).bytes);
    const int32_t id = character_id(character);
    if (!symbols.empty() && !may_join(symbols.back(), id)) {
      append_piece(whole.substr(begin, at - begin), &symbols, ids);
      symbols.clear();
      pace.done(at - begin);
      begin = at;
    }
    symbols.push_back(id);
    at += character.size();
  }
  append_piece(whole.substr(begin), &symbols, ids);
}

void SpmTokenizer::append_piece(std::string_view piece, std::vector<int32_t>* symbols,
                                std::vector<int32_t>* ids) const {
  const int32_t whole = ids_.find(piece);
  if (whole != kNoToken && is_whole_piece_[whole]) {
    ids->push_back(whole);
    return;
  }
  merges_.merge(symbols);
  for (const int32_t symbol : *symbols) {
    if (symbol == kNoToken) {
      append_missing(piece, ids);  // it merges with nothing, so it is the whole piece
    } else if (symbol >= vocab_size()) {
      append_missing(characters_[symbol - vocab_size()], ids);
    } else {
      ids->push_back(symbol);
    }
  }
}

int32_t SpmTokenizer::character_id(std::string_view character) const {
  const uint32_t key = key_of(character);
  if (key < ascii_ids_.size()) return ascii_ids_[key];
  const auto at = character_ids_.find(key);
  return at == character_ids_.end() ? kNoToken : at->second;
}

// The token or character with this text, or kNoToken.
int32_t SpmTokenizer::symbol_id(std::string_view text) const {
  const int32_t id = ids_.find(text);
  return id == kNoToken && front_char(text).bytes == text.size() ? character_id(text) : id;
}

size_t SpmTokenizer::joint_of(int32_t left, int32_t right) const {
  const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  return (pair * 0x9E3779B97F4A7C15) >> 32 & (joints_.size() - 1);
}

bool SpmTokenizer::may_join(int32_t left, int32_t right) const {
  return left != kNoToken && right != kNoToken && joints_[joint_of(left, right)];
}

void SpmTokenizer::append_missing(std::string_view character, std::vector<int32_t>* ids) const {
  const auto byte_id = [this](char c) { return byte_ids_[byte_of(c)]; };
  if (std::any_of(character.begin(), character.end(),
                  [&](char c) { return byte_id(c) == kNoToken; })) {
    ids->push_back(*vocabulary().unknown());
    return;
  }
  for (const char c : character) ids->push_back(byte_id(c));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_spm_tokenizer(const GgufFile& file) {
  return load_as<SpmTokenizer>(file);
}

Result<std::unique_ptr<Tokenizer>> load_listed_tokenizer(const GgufFile& file) {
  return load_as<ListedTokenizer>(file);
}

}  // namespace hearth::models
