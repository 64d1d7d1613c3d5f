#include "models/tokenizer/spm_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <queue>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "models/gguf/gguf_file.h"
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

// A run of text that is one token so far: a link of the list that merging shortens.
struct Symbol {
  std::string_view text;  // empty once merged into its left neighbour
  int32_t prev = -1;
  int32_t next = -1;
};

// Two neighbours whose joined text is in the vocabulary. Stale once either was merged otherwise.
struct Candidate {
  float score;
  int32_t left;
  int32_t right;
  size_t bytes;  // of the joined text
};

struct WorseCandidate {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.score != b.score ? a.score < b.score : a.left > b.left;
  }
};

using CandidateQueue = std::priority_queue<Candidate, std::vector<Candidate>, WorseCandidate>;

// Two characters side by side, told apart from all others.
uint64_t char_pair(std::string_view left, std::string_view right) {
  uint64_t key = 0;
  for (const std::string_view text : {left, right}) {
    uint32_t bytes = 0;
    std::memcpy(&bytes, text.data(), text.size());  // a character has at most 4
    key = key << 32 | bytes;
  }
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
  void add_char_pairs(std::string_view entry);

  void encode_plain(std::string_view text, std::vector<int32_t>* ids) const;
  void merge_run(std::vector<Symbol>* symbols, std::vector<int32_t>* ids) const;
  void append_symbol(std::string_view symbol, std::vector<int32_t>* ids) const;
  std::optional<Candidate> candidate(const std::vector<Symbol>& symbols, int32_t left,
                                     int32_t right) const;

  Vocabulary vocabulary_;
  std::vector<float> scores_;
  StringPool pieces_;
  size_t max_piece_bytes_ = 0;
  bool add_bos_ = false;
  bool add_space_prefix_ = false;
  TokenIndex ids_;  // what merging may produce; texts are views into vocabulary_
  std::unordered_set<uint64_t> char_pairs_;  // that occur inside any of those
  std::array<int32_t, 256> byte_ids_ = {};   // -1: no token for that byte
  SpecialTokens special_;
};

// ---- Loading --------------------------------------------------------------------------------

Result<std::unique_ptr<Tokenizer>> SpmTokenizer::load(const GgufFile& file) {
  auto tokenizer = std::make_unique<SpmTokenizer>();
  HEARTH_ASSIGN_OR_RETURN(tokenizer->vocabulary_, Vocabulary::load(file));
  HEARTH_TRY(tokenizer->load_scores(file));
  HEARTH_TRY(tokenizer->load_flags(file));
  HEARTH_TRY(tokenizer->index_tokens());
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
  byte_ids_.fill(-1);
  pieces_.reserve(static_cast<size_t>(vocabulary_.size()));
  ids_.reserve(static_cast<size_t>(vocabulary_.size()));
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
      add_char_pairs(entry);
    }
    max_piece_bytes_ = std::max(max_piece_bytes_, text.size());
    pieces_.add(text);
  }
  const auto missing = std::find(byte_ids_.begin(), byte_ids_.end(), -1);
  if (missing != byte_ids_.end() && !vocabulary_.unknown()) {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("tokenizer.ggml.tokens: no byte token <0x{:02X}> and no unknown token "
                             "to stand in for it",
                             missing - byte_ids_.begin()),
                 ""};
  }
  return {};
}

void SpmTokenizer::add_char_pairs(std::string_view entry) {
  std::string_view left = entry.substr(0, front_char(entry).bytes);
  while (left.data() + left.size() < entry.data() + entry.size()) {
    entry.remove_prefix(left.size());
    const std::string_view right = entry.substr(0, front_char(entry).bytes);
    char_pairs_.insert(char_pair(left, right));
    left = right;
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

  // Two characters that stand side by side in no token are never merged across, so the text falls
  // into runs (mostly words) that merge on their own: many small queues instead of one large one.
  std::vector<Symbol> run;
  for (std::string_view rest = escaped; !rest.empty();) {
    const std::string_view next = rest.substr(0, front_char(rest).bytes);
    if (!run.empty() && !char_pairs_.contains(char_pair(run.back().text, next))) {
      merge_run(&run, ids);
      run.clear();
    }
    const auto index = static_cast<int32_t>(run.size());
    run.push_back({next, index - 1, index + 1});
    rest.remove_prefix(next.size());
  }
  merge_run(&run, ids);
}

void SpmTokenizer::merge_run(std::vector<Symbol>* run, std::vector<int32_t>* ids) const {
  std::vector<Symbol>& symbols = *run;
  symbols.back().next = -1;
  std::vector<Candidate> pairs;
  for (int32_t i = 1; i < static_cast<int32_t>(symbols.size()); ++i) {
    if (const auto pair = candidate(symbols, i - 1, i)) pairs.push_back(*pair);
  }
  // Every merge removes a symbol and adds at most two candidates, so the queue sees fewer than
  // three times the run's characters.
  CandidateQueue queue(WorseCandidate{}, std::move(pairs));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[static_cast<size_t>(best.left)];
    Symbol& right = symbols[static_cast<size_t>(best.right)];
    if (left.text.empty() || right.text.empty() ||
        left.text.size() + right.text.size() != best.bytes) {
      continue;
    }
    left.text = {left.text.data(), best.bytes};
    right.text = {};
    left.next = right.next;
    if (right.next >= 0) symbols[static_cast<size_t>(right.next)].prev = best.left;
    if (const auto pair = candidate(symbols, left.prev, best.left)) queue.push(*pair);
    if (const auto pair = candidate(symbols, best.left, left.next)) queue.push(*pair);
  }
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    append_symbol(symbols[static_cast<size_t>(i)].text, ids);
  }
}

std::optional<Candidate> SpmTokenizer::candidate(const std::vector<Symbol>& symbols, int32_t left,
                                                 int32_t right) const {
  if (left < 0 || right < 0) return std::nullopt;
  const std::string_view a = symbols[static_cast<size_t>(left)].text;
  const size_t bytes = a.size() + symbols[static_cast<size_t>(right)].text.size();
  const int32_t id = ids_.find({a.data(), bytes});  // neighbours lie side by side in the text
  if (id < 0) return std::nullopt;
  return Candidate{scores_[static_cast<size_t>(id)], left, right, bytes};
}

void SpmTokenizer::append_symbol(std::string_view symbol, std::vector<int32_t>* ids) const {
  if (const int32_t id = ids_.find(symbol); id >= 0) {
    ids->push_back(id);
    return;
  }
  // Only a single character (or a byte of none) can be missing: merging makes known texts alone.
  const auto byte_id = [this](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (std::any_of(symbol.begin(), symbol.end(), [&](char c) { return byte_id(c) < 0; })) {
    ids->push_back(*vocabulary_.unknown());
    return;
  }
  for (const char c : symbol) ids->push_back(byte_id(c));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_spm_tokenizer(const GgufFile& file) {
  return SpmTokenizer::load(file);
}

}  // namespace hearth::models
