#include "models/tokenizer/kinds/plamo2_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/kinds/vocabulary_tokenizer.h"
#include "models/tokenizer/text/utf8.h"
#include "models/tokenizer/vocabulary/byte_trie.h"

namespace hearth::models {
namespace {

// Costs are negative scores in these units: whole numbers, whose sums are exact.
constexpr double kUnitsPerScore = 1e4;
constexpr int64_t kUnknownCost = 10'000'000;
/// A token that costs or gains as much is never used.
constexpr int64_t kUnusableCost = 2 * kUnknownCost;

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char front = front_char(text);
    if (front.kind != Utf8Char::Kind::kWhole) return false;
    text.remove_prefix(front.bytes);
  }
  return true;
}

class Plamo2Tokenizer final : public VocabularyTokenizer {
 public:
  Result<void> load(const GgufFile& file);

 private:
  /// The best way on from a place in a text: its first token.
  struct Step {
    int64_t cost = 0;  ///< up to the end of the text
    uint32_t bytes = 0;
    int32_t id = kNoToken;  ///< kNoToken: a character in no token
  };

  void encode_plain(std::string_view text, EncodePace& pace, Ids* ids) const override;
  void append_best(std::string_view text, Ids* ids) const;
  Result<void> index_tokens(const GgufFile& file);

  std::vector<int64_t> costs_;  // by id
  ByteTrie trie_;               // of entries that may be used
  std::array<int32_t, 256> byte_ids_ = {};
};

// ---- Loading --------------------------------------------------------------------------------

Result<void> Plamo2Tokenizer::load(const GgufFile& file) {
  set_defaults(false, false);
  HEARTH_TRY(load_vocabulary(file));
  return index_tokens(file);
}

Result<void> Plamo2Tokenizer::index_tokens(const GgufFile& file) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<float> scores, read_scores(file));
  const auto text_of = [this](int32_t id) { return std::string(entry(id)); };
  index_pieces(text_of, text_of);
  byte_ids_.fill(kNoToken);
  costs_.resize(scores.size());
  std::vector<std::pair<std::string_view, int32_t>> texts;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (vocabulary().type(id) == TokenType::kByte) byte_ids_[*byte_of_entry(entry(id))] = id;
    if (!may_be_spelled(id) || vocabulary().type(id) == TokenType::kUnused) continue;
    const double cost = double{scores[id]} * -kUnitsPerScore;
    if (std::fabs(cost) > as_double(kUnusableCost)) continue;
    costs_[id] = std::llrint(cost);
    if (costs_[id] >= kUnusableCost) continue;
    if (!entry(id).empty() && is_utf8(entry(id))) texts.emplace_back(entry(id), id);
  }
  trie_ = ByteTrie(std::move(texts));
  const auto missing = std::ranges::find(byte_ids_, kNoToken);
  if (missing == byte_ids_.end()) return {};
  return Error::corrupt(
      fmt::format("tokenizer.ggml.tokens: no byte token <0x{:02X}>", missing - byte_ids_.begin()));
}

// ---- Encoding -------------------------------------------------------------------------------

// Where no token that began earlier extends past a place, every segmentation has a border there:
// the parts on both sides are independent.
void Plamo2Tokenizer::encode_plain(std::string_view text, EncodePace& pace, Ids* ids) const {
  size_t begin = 0, reach = 0;
  for (size_t at = 0; at < text.size();) {
    if (at > begin && reach <= at) {
      append_best(text.substr(begin, at - begin), ids);
      pace.done(at - begin);
      begin = at;
    }
    const std::string_view rest = text.substr(at);
    trie_.match_front(rest, [&](int32_t, size_t bytes) { reach = std::max(reach, at + bytes); });
    at += front_char(rest).bytes;
    reach = std::max(reach, at);
  }
  append_best(text.substr(begin), ids);
}

// From the end to the front, so that of equal sums the one with the longer token in front wins.
void Plamo2Tokenizer::append_best(std::string_view text, Ids* ids) const {
  std::vector<size_t> places;
  for (size_t at = 0; at < text.size(); at += front_char(text.substr(at)).bytes) {
    places.push_back(at);
  }
  std::vector<Step> steps(text.size() + 1);
  size_t next = text.size();
  for (size_t i = places.size(); i-- > 0;) {
    const size_t at = std::exchange(next, places[i]);
    Step& best = steps[places[i]];
    const auto bytes_of_char = narrow<uint32_t>(at - places[i]);
    best = {steps[at].cost + kUnknownCost, bytes_of_char, kNoToken};
    trie_.match_front(text.substr(places[i]), [&](int32_t id, size_t bytes) {
      const int64_t cost = steps[places[i] + bytes].cost + costs_[id];
      if (cost <= best.cost) best = {cost, narrow<uint32_t>(bytes), id};
    });
  }
  for (size_t at = 0; at < text.size(); at += steps[at].bytes) {
    const Step& step = steps[at];
    if (step.id != kNoToken) {
      ids->push_back(step.id);
      continue;
    }
    for (const char c : text.substr(at, step.bytes)) ids->push_back(byte_ids_[byte_of(c)]);
  }
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_plamo2_tokenizer(const GgufFile& file) {
  return load_as<Plamo2Tokenizer>(file);
}

}  // namespace hearth::models
