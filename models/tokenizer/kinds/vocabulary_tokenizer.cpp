#include "models/tokenizer/kinds/vocabulary_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>

#include "kernels/base/check.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {
namespace {

// Positions in a text take 31 bits; the worker rejects far shorter texts.
constexpr size_t kMaxTextBytes = size_t{1} << 29;

}  // namespace

void VocabularyTokenizer::set_defaults(bool add_bos, bool add_space_prefix) {
  add_bos_ = add_bos;
  add_space_prefix_ = add_space_prefix;
}

Result<std::vector<float>> VocabularyTokenizer::read_scores(const GgufFile& file) const {
  constexpr std::string_view kKey = "tokenizer.ggml.scores";
  HEARTH_ASSIGN_OR_RETURN(const auto scores, file.get<GgufNumbers<float>>(kKey));
  const size_t wanted = vocab_size();
  if (scores.size() != wanted) {
    return Error::corrupt(
        fmt::format("{}: {} scores, want one for each of {} tokens", kKey, scores.size(), wanted));
  }
  std::vector<float> out(wanted);
  for (size_t i = 0; i < wanted; ++i) out[i] = scores[i];
  return out;
}

Result<void> VocabularyTokenizer::load_vocabulary(const GgufFile& file) {
  constexpr std::string_view kAddBos = "tokenizer.ggml.add_bos_token";
  HEARTH_ASSIGN_OR_RETURN(kind_, file.get<std::string_view>("tokenizer.ggml.model"));
  HEARTH_ASSIGN_OR_RETURN(vocabulary_, Vocabulary::load(file));
  HEARTH_ASSIGN_OR_RETURN(add_bos_, file.get_or(kAddBos, add_bos_ && bos().has_value()));
  HEARTH_ASSIGN_OR_RETURN(add_space_prefix_,
                          file.get_or("tokenizer.ggml.add_space_prefix", add_space_prefix_));
  if (add_bos_ && !bos()) {
    return Error::corrupt(
        fmt::format("{}: true, but tokenizer.ggml.bos_token_id is missing", kAddBos));
  }
  // tokenizer.ggml.add_eos_token is not read: encode() makes prompts, and after EOS a model has
  // nothing to continue.
  return {};
}

std::vector<int32_t> VocabularyTokenizer::encode(std::string_view text,
                                                 const EncodeOptions& options) const {
  HEARTH_CHECK(text.size() <= kMaxTextBytes, "{} bytes", text.size());
  std::vector<int32_t> ids;
  EncodePace pace(options.pause);
  if (options.add_bos && add_bos_) ids.push_back(*bos());
  // Each run of plain text between special tokens is encoded as a separate text, so each gets the
  // space prefix, as in the models' chat training.
  special_.partition(
      text, options.parse_special, options.data,
      [&](std::string_view plain) { encode_plain(plain, pace, &ids); },
      [&](int32_t id) { ids.push_back(id); });
  return ids;
}

bool VocabularyTokenizer::may_be_spelled(int32_t id) const {
  const TokenType type = vocabulary_.type(id);
  return type != TokenType::kControl && type != TokenType::kUnknown && type != TokenType::kByte;
}

void VocabularyTokenizer::add_piece(std::string_view text) {
  max_piece_bytes_ = std::max(max_piece_bytes_, text.size());
  pieces_.add(text);
}

std::string VocabularyTokenizer::unmarked(std::string_view entry) {
  std::string out;
  for (size_t i = 0; i < entry.size();) {
    if (entry.substr(i, kSpaceMark.size()) == kSpaceMark) {
      out.push_back(' ');
      i += kSpaceMark.size();
    } else {
      out.push_back(entry[i++]);
    }
  }
  return out;
}

void VocabularyTokenizer::append_marked(std::string_view text, std::string* out) {
  for (const char c : text) {
    if (c == ' ') {
      *out += kSpaceMark;
    } else {
      out->push_back(c);
    }
  }
}

}  // namespace hearth::models
