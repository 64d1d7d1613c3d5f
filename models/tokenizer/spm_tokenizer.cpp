#include "models/tokenizer/spm_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/bpe_merges.h"
#include "models/tokenizer/special_tokens.h"
#include "models/tokenizer/string_pool.h"
#include "models/tokenizer/token_index.h"
#include "models/tokenizer/utf8.h"
#include "models/tokenizer/vocabulary.h"

namespace hearth::models {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

// Symbols are numbered in 31 bits; the front door refuses far shorter texts.
constexpr size_t kMaxTextBytes = size_t{1} << 29;

constexpr int32_t kNoToken = -1;

void append_escaped(std::string* out, std::string_view text) {
  for (const char c : text) {
    if (c == ' ') {
      *out += kSpace;
    } else {
      out->push_back(c);
    }
  }
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (text.substr(i, kSpace.size()) == kSpace) {
      out.push_back(' ');
      i += kSpace.size();
    } else {
      out.push_back(text[i++]);
    }
  }
  return out;
}

// A character as a number: its bytes, four at most.
uint32_t key_of(std::string_view character) {
  uint32_t key = 0;
  for (const char byte : character) key = key << 8 | static_cast<uint8_t>(byte);
  return key;
}

class SpmTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> load(const GgufFile& file);

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string_view piece(int32_t id) const override { return pieces_[static_cast<size_t>(id)]; }
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
  std::string_view kind() const override { return "llama"; }

 private:
  Result<void> load_scores(const GgufFile& file);
  Result<void> load_flags(const GgufFile& file);
  Result<void> index_tokens();

  void index_characters();
  void index_merges();

  void encode_plain(std::string_view text, std::vector<int32_t>* ids) const;
  void append_piece(std::string_view piece, std::vector<int32_t>* symbols,
                    std::vector<int32_t>* ids) const;
  void append_missing(std::string_view character, std::vector<int32_t>* ids) const;
  int32_t character_id(std::string_view character) const;
  int32_t symbol_id(std::string_view text) const;
  size_t joint_of(int32_t left, int32_t right) const;
  bool may_join(int32_t left, int32_t right) const;

  Vocabulary vocabulary_;
  std::vector<float> scores_;
  StringPool pieces_;
  size_t max_piece_bytes_ = 0;
  bool add_bos_ = false;
  bool add_space_prefix_ = false;
  TokenIndex ids_;  // of the entries of what merging may produce; keys lie in vocabulary_
  // Characters that are no tokens but parts of some go by ids past the vocabulary's.
  std::unordered_map<uint32_t, int32_t> character_ids_;
  std::array<int32_t, 128> ascii_ids_ = {};  // the same for ASCII; kNoToken: in no token
  std::vector<std::string> characters_;      // of the ids past the vocabulary's
  // Two characters side by side in some token. No merge reaches across any other two, so text is
  // cut there: nearly always at the spaces, and the pieces are short.
  // A bit for each hash of such a pair: one bit for two pairs only makes a piece longer.
  std::vector<bool> joints_;
  BpeMerges merges_;
  std::vector<bool> is_whole_piece_;        // merging the token's own text ends with the token
  std::array<int32_t, 256> byte_ids_ = {};  // kNoToken: none for that byte
  SpecialTokens special_;
};

// ---- Loading --------------------------------------------------------------------------------

Result<std::unique_ptr<Tokenizer>> SpmTokenizer::load(const GgufFile& file) {
  auto tokenizer = std::make_unique<SpmTokenizer>();
  HEARTH_ASSIGN_OR_RETURN(tokenizer->vocabulary_, Vocabulary::load(file));
  HEARTH_TRY(tokenizer->load_scores(file));
  HEARTH_TRY(tokenizer->load_flags(file));
  HEARTH_TRY(tokenizer->index_tokens());
  tokenizer->index_characters();
  tokenizer->index_merges();
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Result<void> SpmTokenizer::load_scores(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.scores";
  HEARTH_ASSIGN_OR_RETURN(const auto scores, file.get<GgufNumbers<float>>(kKey));
  const auto wanted = static_cast<size_t>(vocabulary_.size());
  if (scores.size() != wanted) {
    return Error{
        ErrorCode::kCorrupt,
        fmt::format("{}: {} scores, want one for each of {} tokens", kKey, scores.size(), wanted),
        ""};
  }
  scores_.resize(wanted);
  for (size_t i = 0; i < wanted; ++i) scores_[i] = scores[i];
  return {};
}

Result<void> SpmTokenizer::load_flags(const GgufFile& file) {
  constexpr std::string_view kAddBos = "tokenizer.ggml.add_bos_token";
  HEARTH_ASSIGN_OR_RETURN(add_bos_, file.get_or(kAddBos, vocabulary_.bos().has_value()));
  HEARTH_ASSIGN_OR_RETURN(add_space_prefix_, file.get_or("tokenizer.ggml.add_space_prefix", true));
  if (add_bos_ && !vocabulary_.bos()) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("{}: true, but tokenizer.ggml.bos_token_id is missing", kAddBos), ""};
  }
  // tokenizer.ggml.add_eos_token is not read: encode() makes prompts, and a prompt that ends in EOS
  // asks for nothing more.
  return {};
}

Result<void> SpmTokenizer::index_tokens() {
  byte_ids_.fill(kNoToken);
  ids_.reserve(static_cast<size_t>(vocabulary_.size()));
  pieces_.reserve(static_cast<size_t>(vocabulary_.size()));
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view entry = vocabulary_.entry(id);
    const TokenType type = vocabulary_.type(id);
    std::string text;
    switch (type) {
      case TokenType::kByte: {
        const uint8_t byte = *byte_of_entry(entry);
        byte_ids_[byte] = id;
        text.assign(1, static_cast<char>(byte));
        break;
      }
      case TokenType::kControl: special_.add(entry, id, true); break;
      case TokenType::kUnknown: text = kReplacementChar; break;
      case TokenType::kUserDefined:
        text = unescaped(entry);
        special_.add(text, id, false);
        break;
      default: text = unescaped(entry);
    }
    // Control, unknown and byte tokens never come out of merging: text that happens to spell
    // "<s>" or "<0x0A>" stays text. Vocabularies in the wild hold duplicates; the last one counts.
    if (!entry.empty() && type != TokenType::kControl && type != TokenType::kUnknown &&
        type != TokenType::kByte) {
      ids_.insert(entry, id);
    }
    max_piece_bytes_ = std::max(max_piece_bytes_, text.size());
    pieces_.add(text);
  }
  const auto missing = std::find(byte_ids_.begin(), byte_ids_.end(), kNoToken);
  if (missing != byte_ids_.end() && !vocabulary_.unknown()) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("tokenizer.ggml.tokens: no byte token <0x{:02X}> and no unknown token "
                             "to stand in for it",
                             missing - byte_ids_.begin()),
                 ""};
  }
  return {};
}

void SpmTokenizer::index_characters() {
  ascii_ids_.fill(kNoToken);
  size_t num_joints = 0;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) num_joints += vocabulary_.entry(id).size();
  joints_.resize(std::bit_ceil(8 * num_joints));
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    if (ids_.find(vocabulary_.entry(id)) != id) continue;
    int32_t previous = kNoToken;
    for (std::string_view rest = vocabulary_.entry(id); !rest.empty();) {
      const std::string_view character = rest.substr(0, front_char(rest).bytes);
      rest.remove_prefix(character.size());
      const auto [at, is_new] = character_ids_.try_emplace(key_of(character), 0);
      if (is_new) {
        at->second = ids_.find(character);
        if (at->second == kNoToken) {
          at->second = vocabulary_.size() + static_cast<int32_t>(characters_.size());
          characters_.emplace_back(character);
        }
        if (key_of(character) < ascii_ids_.size()) ascii_ids_[key_of(character)] = at->second;
      }
      if (previous != kNoToken) joints_[joint_of(previous, at->second)] = true;
      previous = at->second;
    }
  }
}

// A merge makes a token of two texts that are tokens or characters: every such way of cutting
// every token is one. The better the token's score, the sooner.
void SpmTokenizer::index_merges() {
  std::vector<float> best_first = scores_;
  std::sort(best_first.begin(), best_first.end(), std::greater<>());
  best_first.erase(std::unique(best_first.begin(), best_first.end()), best_first.end());
  struct Merge {
    int32_t left, right, merged;
  };
  std::vector<Merge> merges;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view entry = vocabulary_.entry(id);
    if (ids_.find(entry) != id) continue;
    for (size_t cut = front_char(entry).bytes; cut < entry.size();
         cut += front_char(entry.substr(cut)).bytes) {
      const int32_t left = symbol_id(entry.substr(0, cut));
      const int32_t right = left == kNoToken ? kNoToken : symbol_id(entry.substr(cut));
      if (right != kNoToken) merges.push_back({left, right, id});
    }
  }
  merges_.reserve(merges.size());
  for (const Merge& m : merges) {
    const auto rank = std::lower_bound(best_first.begin(), best_first.end(),
                                       scores_[static_cast<size_t>(m.merged)], std::greater<>());
    merges_.add(m.left, m.right, m.merged, static_cast<uint32_t>(rank - best_first.begin()));
  }
  is_whole_piece_.resize(static_cast<size_t>(vocabulary_.size()));
  std::vector<int32_t> symbols;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    if (ids_.find(vocabulary_.entry(id)) != id) continue;
    symbols.clear();
    for (std::string_view rest = vocabulary_.entry(id); !rest.empty();) {
      const size_t bytes = front_char(rest).bytes;
      symbols.push_back(character_id(rest.substr(0, bytes)));
      rest.remove_prefix(bytes);
    }
    merges_.merge(&symbols);
    is_whole_piece_[static_cast<size_t>(id)] = symbols.size() == 1 && symbols[0] == id;
  }
}

// ---- Encoding -------------------------------------------------------------------------------

std::vector<int32_t> SpmTokenizer::encode(std::string_view text,
                                          const EncodeOptions& options) const {
  HEARTH_CHECK(text.size() <= kMaxTextBytes, "{} bytes", text.size());
  std::vector<int32_t> ids;
  if (options.add_bos && add_bos_) ids.push_back(*vocabulary_.bos());
  // Between special tokens lie runs of plain text; each is a text of its own, so each gets the
  // space in front. That is how the models were trained on chats.
  special_.partition(
      text, options.parse_special, [&](std::string_view plain) { encode_plain(plain, &ids); },
      [&](int32_t id) { ids.push_back(id); });
  return ids;
}

void SpmTokenizer::encode_plain(std::string_view text, std::vector<int32_t>* ids) const {
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 2 + kSpace.size());
  if (add_space_prefix_) escaped += kSpace;
  append_escaped(&escaped, text);

  std::vector<int32_t> symbols;  // of the piece that begins at `begin`
  size_t begin = 0;
  const std::string_view whole = escaped;
  for (size_t at = 0; at < whole.size();) {
    const std::string_view character = whole.substr(at, front_char(whole.substr(at)).bytes);
    const int32_t id = character_id(character);
    if (!symbols.empty() && !may_join(symbols.back(), id)) {
      append_piece(whole.substr(begin, at - begin), &symbols, ids);
      symbols.clear();
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
  if (whole != kNoToken && is_whole_piece_[static_cast<size_t>(whole)]) {
    ids->push_back(whole);
    return;
  }
  merges_.merge(symbols);
  for (const int32_t symbol : *symbols) {
    if (symbol == kNoToken) {
      append_missing(piece, ids);  // joins nothing, so it is all of the piece
    } else if (symbol >= vocabulary_.size()) {
      append_missing(characters_[static_cast<size_t>(symbol - vocabulary_.size())], ids);
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
  const auto byte_id = [this](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (std::any_of(character.begin(), character.end(),
                  [&](char c) { return byte_id(c) == kNoToken; })) {
    ids->push_back(*vocabulary_.unknown());
    return;
  }
  for (const char c : character) ids->push_back(byte_id(c));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_spm_tokenizer(const GgufFile& file) {
  return SpmTokenizer::load(file);
}

}  // namespace hearth::models
