#include "models/tokenizer/kinds/unigram_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/kinds/vocabulary_tokenizer.h"
#include "models/tokenizer/text/charsmap.h"
#include "models/tokenizer/text/utf8.h"
#include "models/tokenizer/vocabulary/byte_trie.h"

namespace hearth::models {
namespace {

// An unknown character scores this much less than the worst token.
constexpr double kUnknownPenalty = 10;

class UnigramTokenizer final : public VocabularyTokenizer {
 public:
  Result<void> load(const GgufFile& file);

 private:
  void encode_plain(std::string_view text, EncodePace& pace, Ids* ids) const override;

  /// The best segmentation of the text up to a place: its last token and where that begins.
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    size_t begin = 0;
    int32_t id = kNoToken;  // kNoToken: an unknown character
  };

  Result<void> load_scores(const GgufFile& file);
  Result<void> index_tokens();
  std::string normalized(std::string_view text) const;
  void append_path(std::string_view text, const std::vector<Best>& best, bool* after_unknown,
                   std::vector<int32_t>* ids) const;

  std::vector<float> scores_;
  double unknown_score_ = 0;
  ByteTrie trie_;  // of entries
  Charsmap charsmap_;
  bool remove_extra_spaces_ = true;
  bool has_all_bytes_ = false;
  std::array<int32_t, 256> byte_ids_ = {};
};

// ---- Loading --------------------------------------------------------------------------------

Result<void> UnigramTokenizer::load(const GgufFile& file) {
  set_defaults(false, true);
  HEARTH_TRY(load_vocabulary(file));
  HEARTH_ASSIGN_OR_RETURN(remove_extra_spaces_,
                          file.get_or("tokenizer.ggml.remove_extra_whitespaces", true));
  HEARTH_ASSIGN_OR_RETURN(charsmap_, Charsmap::load(file));
  HEARTH_TRY(load_scores(file));
  return index_tokens();
}

Result<void> UnigramTokenizer::load_scores(const GgufFile& file) {
  HEARTH_ASSIGN_OR_RETURN(scores_, read_scores(file));
  double worst = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < scores_.size(); ++i) {
    if (vocabulary().type(narrow<int32_t>(i)) == TokenType::kNormal)
      worst = std::min<double>(worst, scores_[i]);
  }
  if (std::isinf(worst)) worst = 0;  // no normal token at all
  unknown_score_ = worst - kUnknownPenalty;
  return {};
}

Result<void> UnigramTokenizer::index_tokens() {
  const auto text_of = [this](int32_t id) { return unmarked(entry(id)); };
  index_pieces(text_of, text_of);
  byte_ids_.fill(kNoToken);
  std::vector<std::pair<std::string_view, int32_t>> texts;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (vocabulary().type(id) == TokenType::kByte) byte_ids_[*byte_of_entry(entry(id))] = id;
    const bool is_used = vocabulary().type(id) != TokenType::kUnused;
    if (may_be_spelled(id) && is_used && !entry(id).empty()) texts.emplace_back(entry(id), id);
  }
  trie_ = ByteTrie(std::move(texts));
  has_all_bytes_ = std::find(byte_ids_.begin(), byte_ids_.end(), kNoToken) == byte_ids_.end();
  if (!has_all_bytes_ && !vocabulary().unknown()) {
    return Error::corrupt(
        "tokenizer.ggml.unknown_token_id: missing, and the vocabulary has no byte tokens for "
        "text that no token covers");
  }
  return {};
}

// ---- Encoding -------------------------------------------------------------------------------

// The normalized text, with kSpaceMark for spaces. One is added in front if adds_space_prefix(). If
// extra spaces are removed, each run becomes one mark and trailing spaces are dropped.
std::string UnigramTokenizer::normalized(std::string_view text) const {
  std::string out;
  out.reserve(text.size() + text.size() / 2 + kSpaceMark.size());
  bool owes_space = false, after_space = true;
  if (adds_space_prefix()) out += kSpaceMark;
  const auto append = [&](std::string_view part) {
    for (const char c : part) {
      if (c != ' ') {
        if (owes_space) out += kSpaceMark;
        owes_space = after_space = false;
        out.push_back(c);
      } else if (!remove_extra_spaces_) {
        out += kSpaceMark;
      } else if (!after_space) {
        owes_space = after_space = true;
      }
    }
  };
  while (!text.empty()) {
    const Charsmap::Match match = charsmap_.match_front(text);
    if (match.bytes > 0) {
      append(match.replacement);
      text.remove_prefix(match.bytes);
      continue;
    }
    const Utf8Char front = front_char(text);
    append(front.kind == Utf8Char::Kind::kWhole ? text.substr(0, front.bytes) : kReplacementChar);
    text.remove_prefix(front.bytes);
  }
  if (out == kSpaceMark && after_space && remove_extra_spaces_) out.clear();  // the text is empty
  return out;
}

void UnigramTokenizer::encode_plain(std::string_view plain, EncodePace& pace,
                                    std::vector<int32_t>* ids) const {
  const std::string text = normalized(plain);
  // If no token that began earlier extends past a place, every path goes through that place. The
  // path up to there is then final, so `best` covers only about a word at a time.
  std::vector<Best> best(1);
  best[0].score = 0;
  size_t begin = 0;  // where `best` begins
  bool after_unknown = false;
  for (size_t at = 0; at < text.size();) {
    if (at > begin && at - begin + 1 == best.size()) {
      append_path(std::string_view(text).substr(begin), best, &after_unknown, ids);
      best.assign(1, {.score = 0});
      pace.done(at - begin);
      begin = at;
    }
    const std::string_view rest = std::string_view(text).substr(at);
    const size_t char_bytes = front_char(rest).bytes;
    const double so_far = best[at - begin].score;
    const auto offer = [&](int32_t id, size_t bytes, double score) {
      const size_t end = at - begin + bytes;
      if (end >= best.size()) best.resize(end + 1);
      if (so_far + score > best[end].score) best[end] = {so_far + score, at - begin, id};
    };
    bool is_known = false;
    trie_.match_front(rest, [&](int32_t id, size_t bytes) {
      is_known |= bytes == char_bytes;
      const bool is_added = vocabulary().type(id) == TokenType::kUserDefined;
      offer(id, bytes, is_added ? 0 : scores_[id]);
    });
    if (!is_known) offer(kNoToken, char_bytes, unknown_score_);
    at += char_bytes;
  }
  append_path(std::string_view(text).substr(begin), best, &after_unknown, ids);
}

// Adjacent unknown characters become one unknown token, unless byte tokens can represent them.
void UnigramTokenizer::append_path(std::string_view text, const std::vector<Best>& best,
                                   bool* after_unknown, std::vector<int32_t>* ids) const {
  std::vector<size_t> ends;
  for (size_t end = best.size() - 1; end > 0; end = best[end].begin) ends.push_back(end);
  for (size_t i = ends.size(); i-- > 0;) {
    const Best& step = best[ends[i]];
    if (step.id != kNoToken) {
      ids->push_back(step.id);
    } else if (has_all_bytes_) {
      for (const char c : text.substr(step.begin, ends[i] - step.begin))
        ids->push_back(byte_ids_[byte_of(c)]);
    } else if (!*after_unknown) {
      ids->push_back(*vocabulary().unknown());
    }
    *after_unknown = step.id == kNoToken;
  }
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_unigram_tokenizer(const GgufFile& file) {
  return load_as<UnigramTokenizer>(file);
}

}  // namespace hearth::models
