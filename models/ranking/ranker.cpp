#include "models/ranking/ranker.h"

#include <fmt/core.h>

#include <algorithm>

#include "models/gguf/gguf_file.h"
#include "models/tokenizer/text/text_end.h"
#include "models/weights/file_info.h"

namespace hearth::models {
namespace {

constexpr std::string_view kForm = "tokenizer.chat_template.rerank";
constexpr size_t kMaxForm = 64 << 10;
constexpr std::string_view kQuery = "{query}", kDocument = "{document}";

}  // namespace

Result<std::shared_ptr<const Ranker>> Ranker::load(const GgufFile& file,
                                                   const Tokenizer& tokenizer) {
  HEARTH_ASSIGN_OR_RETURN(const auto architecture,
                          file.get<std::string_view>("general.architecture"));
  HEARTH_ASSIGN_OR_RETURN(const Pooling pooling, load_pooling(file, architecture));
  if (pooling != Pooling::kRank) return std::shared_ptr<const Ranker>();
  auto out = std::make_shared<Ranker>();
  HEARTH_ASSIGN_OR_RETURN(out->classifier_, Classifier::load(file));
  HEARTH_TRY(out->load_form(file, tokenizer));
  return std::shared_ptr<const Ranker>(std::move(out));
}

Result<void> Ranker::load_form(const GgufFile& file, const Tokenizer& tokenizer) {
  if (file.has(kForm)) {
    row_ = Pooling::kLast;
    HEARTH_ASSIGN_OR_RETURN(std::string_view rest, file.get<std::string_view>(kForm));
    if (rest.size() > kMaxForm) {
      return Error::corrupt(
          fmt::format("{}: {} bytes, want at most {}", kForm, rest.size(), kMaxForm));
    }
    for (;;) {
      const size_t query = rest.find(kQuery), document = rest.find(kDocument);
      const size_t at = std::min(query, document);
      form_.emplace_back(rest.substr(0, at));
      if (at == std::string_view::npos) break;
      places_.push_back(query < document);
      rest.remove_prefix(at + (query < document ? kQuery : kDocument).size());
    }
    const auto queries = std::ranges::count(places_, true);
    if (places_.size() == 2 && queries == 1) return {};
    return Error::unsupported(
        fmt::format("{}: want {} and {} once each", kForm, kQuery, kDocument));
  }
  if (const GgufTensor* const types = file.find_tensor("token_types.weight");
      types != nullptr && types->dims[1] > 1) {
    return Error::unsupported(fmt::format(
        "token_types.weight: {} types; pairs in which the second text has one of its own are not "
        "supported",
        types->dims[1]));
  }
  HEARTH_ASSIGN_OR_RETURN(end_, load_text_end(file, tokenizer));
  if (!end_) {
    return Error::unsupported(fmt::format(
        "{}: missing, and no token ends a text: the form of pairs is not known", kForm));
  }
  doubled_ = tokenizer.kind() != "bert";
  return {};
}

std::vector<int32_t> Ranker::tokens(const Tokenizer& tokenizer, std::string_view query,
                                    std::string_view document, EncodePause* pause) const {
  if (!form_.empty()) {
    std::string text = form_.front();
    std::vector<ByteSpan> data;
    for (size_t i = 0; i < places_.size(); ++i) {
      const size_t begin = text.size();
      text += places_[i] ? query : document;
      if (text.size() > begin) data.push_back({begin, text.size()});
      text += form_[i + 1];
    }
    return tokenizer.encode(text, {.parse_special = true, .data = data, .pause = pause});
  }
  std::vector<int32_t> out = tokenizer.encode(query, {.pause = pause});
  out.push_back(*end_);
  if (doubled_) out.push_back(*end_);
  const std::vector<int32_t> second =
      tokenizer.encode(document, {.add_bos = false, .pause = pause});
  out.insert(out.end(), second.begin(), second.end());
  out.push_back(*end_);
  return out;
}

}  // namespace hearth::models
