#include "models/tokenizer/bpe_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/bpe_merges.h"
#include "models/tokenizer/byte_alphabet.h"
#include "models/tokenizer/char_classes.h"
#include "models/tokenizer/compose.h"
#include "models/tokenizer/pretokenizer/pretokenizer.h"
#include "models/tokenizer/special_tokens.h"
#include "models/tokenizer/string_pool.h"
#include "models/tokenizer/token_index.h"
#include "models/tokenizer/utf8.h"
#include "models/tokenizer/vocabulary.h"

namespace hearth::models {
namespace {

// Places in a piece are numbered in 32 bits; the front door refuses far shorter texts.
constexpr size_t kMaxTextBytes = size_t{1} << 30;
constexpr size_t kMaxMerges = 1 << 23;  // far above real lists (450 000)

Error corrupt(std::string message) { return Error{ErrorCode::kCorrupt, std::move(message), ""}; }

class BpeTokenizer final : public Tokenizer {
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
  std::string_view kind() const override { return "gpt2"; }

 private:
  Result<void> load_rule(const GgufFile& file);
  Result<void> index_tokens();
  Result<void> index_bytes();
  Result<void> load_merges(const GgufFile& file);
  void find_whole_pieces();

  bool is_text(int32_t id) const;
  void encode_plain(std::string_view text, std::vector<int32_t>* ids) const;
  void append_piece(std::string_view piece, std::vector<int32_t>* scratch,
                    std::vector<int32_t>* ids) const;
  void merge_piece(std::string_view piece, std::vector<int32_t>* ids) const;

  const PreTokenizer* rule_ = nullptr;
  Vocabulary vocabulary_;
  StringPool pieces_;
  size_t max_piece_bytes_ = 0;
  bool add_bos_ = false;
  bool add_space_prefix_ = false;
  TokenIndex ids_;  // of the bytes of what merging may produce; keys lie in pieces_
  BpeMerges merges_;
  // A piece with the text of this token is this token: merging would come to it too, or the rule
  // says so.
  std::vector<bool> is_whole_piece_;
  std::array<int32_t, 256> byte_ids_ = {};  // kNoByte: no token for that byte
  std::vector<int32_t> replacement_;        // U+FFFD, for a byte that the vocabulary cannot say
  SpecialTokens special_;
};

constexpr int32_t kNoByte = -1;

// ---- Loading --------------------------------------------------------------------------------

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::load(const GgufFile& file) {
  auto tokenizer = std::make_unique<BpeTokenizer>();
  HEARTH_ASSIGN_OR_RETURN(tokenizer->vocabulary_, Vocabulary::load(file));
  HEARTH_TRY(tokenizer->load_rule(file));
  HEARTH_TRY(tokenizer->index_tokens());
  HEARTH_TRY(tokenizer->load_merges(file));
  HEARTH_TRY(tokenizer->index_bytes());
  tokenizer->find_whole_pieces();
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Result<void> BpeTokenizer::load_rule(const GgufFile& file) {
  constexpr std::string_view kPre = "tokenizer.ggml.pre";
  constexpr std::string_view kAddBos = "tokenizer.ggml.add_bos_token";
  HEARTH_ASSIGN_OR_RETURN(const auto name, file.get_or<std::string_view>(kPre, "default"));
  rule_ = PreTokenizer::find(name);
  if (rule_ == nullptr) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: \"{}\", this build knows {}", kPre, printable(name),
                             PreTokenizer::known_names()),
                 ""};
  }
  const bool adds_bos = rule_->adds_bos && vocabulary_.bos().has_value();
  HEARTH_ASSIGN_OR_RETURN(add_bos_, file.get_or(kAddBos, adds_bos));
  HEARTH_ASSIGN_OR_RETURN(add_space_prefix_, file.get_or("tokenizer.ggml.add_space_prefix", false));
  if (add_bos_ && !vocabulary_.bos()) {
    return corrupt(fmt::format("{}: true, but tokenizer.ggml.bos_token_id is missing", kAddBos));
  }
  return {};
}

// Control and unknown tokens never come out of merging: text that spells "<|endoftext|>" stays
// text.
bool BpeTokenizer::is_text(int32_t id) const {
  const TokenType type = vocabulary_.type(id);
  return type != TokenType::kControl && type != TokenType::kUnknown;
}

Result<void> BpeTokenizer::index_tokens() {
  const int32_t size = vocabulary_.size();
  pieces_.reserve(static_cast<size_t>(size));
  for (int32_t id = 0; id < size; ++id) {
    const std::string_view entry = vocabulary_.entry(id);
    std::string text;
    switch (vocabulary_.type(id)) {
      case TokenType::kControl: special_.add(entry, id, true); break;
      case TokenType::kUnknown: text = kReplacementChar; break;
      case TokenType::kUserDefined:
        // Added to a trained vocabulary, so written as it is, not in the byte alphabet.
        text = entry;
        special_.add(entry, id, false);
        break;
      case TokenType::kByte: text.assign(1, static_cast<char>(*byte_of_entry(entry))); break;
      default: text = bytes_of_entry(entry);
    }
    max_piece_bytes_ = std::max(max_piece_bytes_, text.size());
    pieces_.add(text);
  }
  ids_.reserve(static_cast<size_t>(size));
  for (int32_t id = 0; id < size; ++id) {
    const bool is_merged = is_text(id) && vocabulary_.type(id) != TokenType::kUserDefined;
    if (is_merged && !piece(id).empty()) ids_.insert(piece(id), id);
  }
  return {};
}

Result<void> BpeTokenizer::load_merges(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.merges";
  HEARTH_ASSIGN_OR_RETURN(const auto merges, file.get<GgufStrings>(kKey));
  if (merges.size() > kMaxMerges) {
    return corrupt(fmt::format("{}: {} merges, want at most {}", kKey, merges.size(), kMaxMerges));
  }
  // Merges name tokens by their entries. Where two tokens have one entry, the one that may come out
  // of merging counts.
  TokenIndex by_entry;
  by_entry.reserve(static_cast<size_t>(vocabulary_.size()));
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    if (!is_text(id)) by_entry.insert(vocabulary_.entry(id), id);
  }
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    if (is_text(id)) by_entry.insert(vocabulary_.entry(id), id);
  }
  merges_.reserve(merges.size());
  size_t index = 0;
  std::string joined;
  for (const std::string_view merge : merges) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return corrupt(fmt::format("{}: merge {} is \"{}\", want two tokens with a space between",
                                 kKey, index, printable(merge)));
    }
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    joined.assign(left).append(right);
    std::array<int32_t, 3> ids = {};
    const std::array<std::string_view, 3> texts = {left, right, joined};
    for (size_t i = 0; i < texts.size(); ++i) {
      ids[i] = by_entry.find(texts[i]);
      if (ids[i] < 0) {
        return corrupt(fmt::format("{}: merge {} is \"{}\", but \"{}\" is no token", kKey, index,
                                   printable(merge), printable(texts[i])));
      }
    }
    if (is_text(ids[0]) && is_text(ids[1]) && is_text(ids[2])) {
      merges_.add(ids[0], ids[1], ids[2]);
    }
    ++index;
  }
  return {};
}

Result<void> BpeTokenizer::index_bytes() {
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const char text = static_cast<char>(byte);
    byte_ids_[byte] = ids_.find({&text, 1});
  }
  for (const char byte : kReplacementChar) {
    if (byte_ids_[static_cast<uint8_t>(byte)] == kNoByte) {
      return corrupt(fmt::format(
          "tokenizer.ggml.tokens: no token for byte 0x{:02X}, which U+FFFD needs to stand in for "
          "what cannot be said",
          static_cast<uint8_t>(byte)));
    }
  }
  merge_piece(kReplacementChar, &replacement_);
  return {};
}

void BpeTokenizer::find_whole_pieces() {
  is_whole_piece_.resize(static_cast<size_t>(vocabulary_.size()));
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    if (ids_.find(piece(id)) != id) continue;
    ids.clear();
    if (!rule_->whole_pieces_first) merge_piece(piece(id), &ids);
    is_whole_piece_[static_cast<size_t>(id)] =
        rule_->whole_pieces_first || (ids.size() == 1 && ids[0] == id);
  }
}

// ---- Encoding -------------------------------------------------------------------------------

std::vector<int32_t> BpeTokenizer::encode(std::string_view text,
                                          const EncodeOptions& options) const {
  HEARTH_CHECK(text.size() <= kMaxTextBytes, "{} bytes", text.size());
  std::vector<int32_t> ids;
  if (options.add_bos && add_bos_) ids.push_back(*vocabulary_.bos());
  special_.partition(
      text, options.parse_special, [&](std::string_view plain) { encode_plain(plain, &ids); },
      [&](int32_t id) { ids.push_back(id); });
  return ids;
}

void BpeTokenizer::encode_plain(std::string_view text, std::vector<int32_t>* ids) const {
  std::string changed;
  if (rule_->composes) text = changed = compose(text);
  if (add_space_prefix_ && !char_at(text, 0).is(kSpace)) {
    changed = fmt::format(" {}", text);
    text = changed;
  }
  std::vector<int32_t> scratch;
  rule_->split(text, [&](std::string_view piece) { append_piece(piece, &scratch, ids); });
}

void BpeTokenizer::append_piece(std::string_view piece, std::vector<int32_t>* scratch,
                                std::vector<int32_t>* ids) const {
  const int32_t whole = ids_.find(piece);
  if (whole >= 0 && is_whole_piece_[static_cast<size_t>(whole)]) {
    ids->push_back(whole);
    return;
  }
  scratch->clear();
  merge_piece(piece, scratch);
  for (const int32_t id : *scratch) {
    if (id == kNoByte) {
      ids->insert(ids->end(), replacement_.begin(), replacement_.end());
    } else {
      ids->push_back(id);
    }
  }
}

// Bytes without a token stay kNoByte.
void BpeTokenizer::merge_piece(std::string_view piece, std::vector<int32_t>* ids) const {
  ids->reserve(piece.size());
  for (const char byte : piece) ids->push_back(byte_ids_[static_cast<uint8_t>(byte)]);
  merges_.merge(ids);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_bpe_tokenizer(const GgufFile& file) {
  return BpeTokenizer::load(file);
}

}  // namespace hearth::models
