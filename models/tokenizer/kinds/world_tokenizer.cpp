#include "models/tokenizer/kinds/world_tokenizer.h"

#include <fmt/core.h>

#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/chars.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/kinds/vocabulary_tokenizer.h"
#include "models/tokenizer/vocabulary/byte_trie.h"

namespace hearth::models {
namespace {

/// The bytes of an entry; none if an escape is incomplete.
std::optional<std::string> unescaped(std::string_view entry) {
  std::string out;
  for (size_t i = 0; i < entry.size(); ++i) {
    if (entry[i] != '\\') {
      out.push_back(entry[i]);
      continue;
    }
    if (++i == entry.size()) return std::nullopt;
    switch (entry[i]) {
      case 't': out.push_back('\t'); break;
      case 'n': out.push_back('\n'); break;
      case 'r': out.push_back('\r'); break;
      case 'x': {
        constexpr size_t kDigits = 2;
        const std::string_view digits = entry.substr(i + 1, kDigits);
        uint8_t byte = 0;
        const auto parsed = std::from_chars(digits.begin(), digits.end(), byte, 16);
        if (digits.size() < kDigits || parsed.ptr != digits.end()) return std::nullopt;
        out.push_back(static_cast<char>(byte));
        i += kDigits;
        break;
      }
      default: out.push_back(entry[i]);
    }
  }
  return out;
}

class WorldTokenizer final : public VocabularyTokenizer {
 public:
  Result<void> load(const GgufFile& file);

 private:
  void encode_plain(std::string_view text, EncodePace& pace, Ids* ids) const override;

  ByteTrie trie_;  // of tokens that text is made of
};

Result<void> WorldTokenizer::load(const GgufFile& file) {
  set_defaults(false, false);
  HEARTH_TRY(load_vocabulary(file));
  std::vector<std::string> texts;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    std::optional<std::string> text = unescaped(entry(id));
    if (!text && may_be_spelled(id)) {
      return Error::corrupt(fmt::format(
          "tokenizer.ggml.tokens: token {} reads \"{}\", want whole escapes (\\n, \\xHH)", id,
          printable(entry(id))));
    }
    texts.push_back(std::move(text).value_or(std::string(entry(id))));
  }
  const auto text_of = [&texts](int32_t id) { return texts[id]; };
  index_pieces(text_of, text_of);
  std::vector<std::pair<std::string_view, int32_t>> spelled;
  std::vector<bool> bytes(256, false);
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const bool byte = vocabulary().type(id) == TokenType::kByte;
    if (!byte && !may_be_spelled(id)) continue;
    if (vocabulary().type(id) == TokenType::kUnused || piece(id).empty()) continue;
    spelled.emplace_back(piece(id), id);
    if (piece(id).size() == 1) bytes[byte_of(piece(id).front())] = true;
  }
  trie_ = ByteTrie(std::move(spelled));
  const auto missing = std::ranges::find(bytes, false);
  if (missing == bytes.end()) return {};
  return Error::corrupt(fmt::format("tokenizer.ggml.tokens: no token for the byte 0x{:02X}",
                                    missing - bytes.begin()));
}

void WorldTokenizer::encode_plain(std::string_view text, EncodePace& pace, Ids* ids) const {
  while (!text.empty()) {
    size_t longest = 0;
    int32_t token = kNoToken;
    trie_.match_front(text, [&](int32_t id, size_t bytes) {
      token = id;
      longest = bytes;
    });
    ids->push_back(token);
    text.remove_prefix(longest);
    pace.done(longest);
  }
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_world_tokenizer(const GgufFile& file) {
  return load_as<WorldTokenizer>(file);
}

}  // namespace hearth::models
