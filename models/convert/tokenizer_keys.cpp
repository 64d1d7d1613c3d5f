#include "models/convert/tokenizer_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/numbers.h"
#include "models/convert/split_rules.h"
#include "models/convert/vocabulary_files.h"
#include "models/gguf/byte_cursor.h"
#include "models/gguf/file_mapping.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/kinds/bpe_tokenizer.h"
#include "models/tokenizer/vocabulary/vocabulary.h"

namespace hearth::models {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxTokenId = 1 << 22;

// tokenizer.ggml.token_type
constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

Error unsupported(std::string message) {
  return Error::unsupported("tokenizer.json: " + std::move(message));
}
Error corrupt_tokenizer(std::string message) {
  return Error::corrupt("tokenizer.json: " + std::move(message));
}

std::string type_of(const Json& part) {
  const Json* type = find(part, "type");
  return type != nullptr && type->is_string() ? type->get<std::string>() : std::string();
}

/// The parts of a Sequence, in order, or the part itself.
std::vector<const Json*> flat(const Json* part, const char* list) {
  if (part == nullptr) return {};
  if (type_of(*part) != "Sequence") return {part};
  std::vector<const Json*> out;
  const Json* parts = find(*part, list);
  if (parts == nullptr || !parts->is_array()) return {};
  for (const Json& each : *parts) out.push_back(&each);
  return out;
}

bool is_true(const Json& object, std::string_view key, bool fallback) {
  const Json* value = find(object, key);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : fallback;
}

class TokenizerReader {
 public:
  TokenizerReader(const Json& json, const Json& settings, const Json& config, uint64_t rows,
                  GgufWriter& writer)
      : json_(json), settings_(settings), config_(config), rows_(rows), w_(writer) {}

  Result<void> read() {
    const Json* model = find(json_, "model");
    if (model == nullptr) return corrupt_tokenizer("no model");
    const std::string type = type_of(*model);
    // Early files of byte-pair models have no type.
    const bool is_bpe = type == "BPE" || (type.empty() && find(*model, "merges") != nullptr);
    if (!is_bpe) {
      return unsupported(fmt::format("model of type \"{}\", want BPE", printable(type)));
    }
    HEARTH_TRY(read_vocabulary(*model));
    HEARTH_TRY(is_true(*model, "byte_fallback", false) ? read_sentence_pieces(*model)
                                                       : read_byte_level(*model));
    w_.set_strings("tokenizer.ggml.tokens", tokens_);
    w_.set_i32s("tokenizer.ggml.token_type", types_);
    return read_special_tokens();
  }

 private:
  Result<void> add(const std::string& text, uint64_t id, int32_t type) {
    if (id >= kMaxTokenId) return corrupt_tokenizer(fmt::format("token id {}", id));
    if (id >= tokens_.size()) {
      tokens_.resize(id + 1);
      types_.resize(id + 1, 0);
    }
    if (types_[id] != 0 && tokens_[id] != text) {
      return corrupt_tokenizer(fmt::format("two tokens of id {}", id));
    }
    const auto [at, fresh] = ids_.emplace(text, id);
    if (!fresh && at->second != id) {
      return corrupt_tokenizer(fmt::format("{} is two tokens", printable(text)));
    }
    tokens_[id] = text;
    types_[id] = type;
    return {};
  }

  Result<void> read_vocabulary(const Json& model) {
    const Json* vocab = find(model, "vocab");
    if (vocab == nullptr || !vocab->is_object() || vocab->empty())
      return corrupt_tokenizer("no vocab");
    for (const auto& [text, id] : vocab->items()) {
      if (!id.is_number_unsigned())
        return corrupt_tokenizer(fmt::format("{}: no id", printable(text)));
      HEARTH_TRY(add(text, id.get<uint64_t>(), kNormal));
    }
    const Json* added = find(json_, "added_tokens");
    if (added != nullptr && added->is_array()) {
      for (const Json& token : *added) {
        HEARTH_ASSIGN_OR_RETURN(const uint64_t id, want_count(token, "id"));
        HEARTH_ASSIGN_OR_RETURN(const auto text, text_at(token, "content"));
        if (!text || text->empty())
          return corrupt_tokenizer(fmt::format("added token {} without text", id));
        HEARTH_TRY(add(*text, id, is_true(token, "special", false) ? kControl : kUserDefined));
      }
    }
    if (tokens_.size() > rows_) {
      return corrupt_tokenizer(
          fmt::format("{} tokens, the embedding has {} rows", tokens_.size(), rows_));
    }
    tokens_.resize(rows_);
    types_.resize(rows_, 0);
    for (uint64_t id = 0; id < rows_; ++id) {
      if (types_[id] != 0) continue;
      tokens_[id] = fmt::format("[unused {}]", id);
      types_[id] = kUnused;
    }
    return {};
  }

  using Merges = std::vector<std::pair<std::string, std::string>>;
  static Result<Merges> merges_of(const Json& model) {
    const Json* merges = find(model, "merges");
    if (merges == nullptr || !merges->is_array()) return corrupt_tokenizer("no merges");
    Merges out;
    for (const Json& merge : *merges) {
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        out.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
        continue;
      }
      const std::string text = merge.is_string() ? merge.get<std::string>() : std::string();
      const size_t space = text.find(' ', 1);
      if (space == text.npos || space + 1 >= text.size()) {
        return corrupt_tokenizer(fmt::format("merge {} is not a pair", out.size()));
      }
      out.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
    return out;
  }

  /// Whether the merges are all ways to split each piece in two, piece after piece: then the
  /// pieces' order decides, as their scores did in the SentencePiece file.
  bool follow_from_scores(const Merges& merges) const {
    std::set<std::pair<std::string_view, std::string_view>> listed;
    std::set<std::string, std::less<>> ended;
    std::string piece;
    for (const auto& [left, right] : merges) {
      listed.emplace(left, right);
      if (left + right == piece) continue;
      ended.insert(std::exchange(piece, left + right));
      if (ended.contains(piece)) return false;
    }
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (types_[id] != kNormal) continue;
      const std::string_view text = tokens_[id];
      for (size_t cut = 1; cut < text.size(); ++cut) {
        const std::string_view left = text.substr(0, cut), right = text.substr(cut);
        const bool may_merge = ids_.contains(left) && ids_.contains(right);
        if (may_merge && !listed.contains({left, right})) return false;
      }
    }
    return true;
  }

  /// SentencePiece models: the score of a piece is the rank of its merge. The file does not have
  /// the scores, and only their order matters.
  Result<void> read_sentence_pieces(const Json& model) {
    bool prefix = false;
    for (const Json* part : flat(find(json_, "normalizer"), "normalizers")) {
      const std::string type = type_of(*part);
      if (type == "Prepend") {
        prefix = true;
      } else if (type != "Replace") {
        return unsupported(
            fmt::format("normalizer {} together with sentence pieces", printable(type)));
      }
    }
    for (const Json* part : flat(find(json_, "pre_tokenizer"), "pretokenizers")) {
      const std::string type = type_of(*part);
      if (type == "Metaspace") {
        HEARTH_ASSIGN_OR_RETURN(const auto scheme, text_at(*part, "prepend_scheme"));
        prefix = scheme ? *scheme != "never" : is_true(*part, "add_prefix_space", true);
      } else if (type != "Split") {  // splits at spaces, which were already replaced
        return unsupported(
            fmt::format("pre_tokenizer {} together with sentence pieces", printable(type)));
      }
    }
    HEARTH_ASSIGN_OR_RETURN(const Merges merges, merges_of(model));
    // Lower than the score of every merged piece.
    std::vector<float> scores(tokens_.size(), -static_cast<float>(merges.size() + 1));
    std::vector<bool> scored(tokens_.size(), false);
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const auto found = ids_.find(merges[rank].first + merges[rank].second);
      if (found == ids_.end() || scored[found->second]) continue;
      scored[found->second] = true;
      scores[found->second] = -static_cast<float>(rank);
    }
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (types_[id] == kNormal && byte_of_entry(tokens_[id])) types_[id] = kByte;
    }
    HEARTH_ASSIGN_OR_RETURN(const auto unknown, text_at(model, "unk_token"));
    if (unknown) {
      if (const auto found = ids_.find(*unknown); found != ids_.end()) {
        types_[found->second] = kUnknown;
        w_.set_u32("tokenizer.ggml.unknown_token_id", narrow<uint32_t>(found->second));
      }
    }
    const bool by_score = follow_from_scores(merges);
    w_.set_string("tokenizer.ggml.model", by_score ? "llama" : "gemma4");
    w_.set_string("tokenizer.ggml.pre", by_score ? "default" : "gemma4");
    w_.set_f32s("tokenizer.ggml.scores", scores);
    if (!by_score) set_merges(merges);
    w_.set_bool("tokenizer.ggml.add_space_prefix", prefix);
    return {};
  }

  /// The expression of a Split whose matches, and the texts between them, are pieces.
  static Result<std::string> expression_of(const Json& split) {
    const Json* pattern = find(split, "pattern");
    const Json* text = pattern == nullptr ? nullptr : find(*pattern, "Regex");
    if (text == nullptr || !text->is_string()) return unsupported("a Split without Regex");
    HEARTH_ASSIGN_OR_RETURN(const auto behavior, text_at(split, "behavior"));
    // The second way leaves out what does not match. Rules of one expression match everything.
    const bool inverted = is_true(split, "invert", false);
    if (behavior.value_or("") != (inverted ? "Removed" : "Isolated")) {
      return unsupported(fmt::format("a Split with behavior {}", printable(behavior.value_or(""))));
    }
    return text->get<std::string>();
  }

  Result<SplitSteps> split_steps(const Json& model) {
    SplitSteps out;
    for (const Json* part : flat(find(json_, "normalizer"), "normalizers")) {
      if (type_of(*part) != "NFC") {
        return unsupported(fmt::format("normalizer {}", printable(type_of(*part))));
      }
      out.composes = true;
    }
    out.whole_pieces_first = is_true(model, "ignore_merges", false);
    bool bytes = false, inverts = false;
    for (const Json* part : flat(find(json_, "pre_tokenizer"), "pretokenizers")) {
      const std::string type = type_of(*part);
      if (type == "ByteLevel" && !bytes) {
        if (is_true(*part, "add_prefix_space", false)) {
          return unsupported("pre_tokenizer ByteLevel with a leading space");
        }
        bytes = true;
        if (is_true(*part, "use_regex", true)) out.expressions.emplace_back(kGpt2Expression);
      } else if (type == "Digits" && !bytes && is_true(*part, "individual_digits", false)) {
        out.expressions.emplace_back(R"(\p{N})");
      } else if (type == "Split" && !bytes) {
        HEARTH_ASSIGN_OR_RETURN(std::string expression, expression_of(*part));
        out.expressions.push_back(std::move(expression));
        inverts = inverts || is_true(*part, "invert", false);
      } else {
        return unsupported(fmt::format("pre_tokenizer {}", printable(type)));
      }
    }
    if (!bytes) return unsupported("byte pairs without pre_tokenizer ByteLevel");
    if (inverts && out.expressions.size() > 1) {
      return unsupported("a Split that leaves text out before another step");
    }
    return out;
  }

  Result<void> read_byte_level(const Json& model) {
    HEARTH_ASSIGN_OR_RETURN(const SplitSteps steps, split_steps(model));
    const std::string_view pre = split_rule_name(steps);
    if (pre.empty()) {
      return unsupported(
          fmt::format("text is split by \"{}\"{}, which this build does not know",
                      printable(fmt::format("{}", fmt::join(steps.expressions, "\", \""))),
                      steps.composes ? ", composed" : ""));
    }
    HEARTH_ASSIGN_OR_RETURN(const Merges merges, merges_of(model));
    w_.set_string("tokenizer.ggml.model", "gpt2");
    w_.set_string("tokenizer.ggml.pre", pre);
    if (PreTokenizer::find(pre)->whole_pieces_first != steps.whole_pieces_first) {
      w_.set_bool(kWholePiecesKey, steps.whole_pieces_first);
    }
    set_merges(merges);
    return {};
  }

  void set_merges(const Merges& merges) {
    std::vector<std::string> joined;
    for (const auto& [left, right] : merges) joined.push_back(left + " " + right);
    w_.set_strings("tokenizer.ggml.merges", joined);
  }

  // ---- Special tokens

  /// The id of a token that tokenizer_config.json names, as a string or as an object with
  /// "content".
  Result<std::optional<uint64_t>> named(std::string_view key) const {
    const Json* value = find(settings_, key);
    if (value == nullptr) return std::optional<uint64_t>();
    if (value->is_object()) value = find(*value, "content");
    if (value == nullptr || !value->is_string()) return std::optional<uint64_t>();
    const auto found = ids_.find(value->get<std::string>());
    if (found == ids_.end()) return std::optional<uint64_t>();
    return std::optional<uint64_t>(found->second);
  }

  /// A number, or the first of a list; absent if the vocabulary has no such token.
  std::optional<uint64_t> first_id(std::string_view key) const {
    const Json* value = find(config_, key);
    if (value != nullptr && value->is_array() && !value->empty()) value = &value->front();
    if (value == nullptr || !value->is_number_unsigned()) return {};
    const auto id = value->get<uint64_t>();
    if (id >= types_.size() || types_[id] == kUnused) return {};
    return id;
  }

  bool template_begins_with_token() const {
    for (const Json* part : flat(find(json_, "post_processor"), "processors")) {
      const Json* single = find(*part, "single");
      if (type_of(*part) != "TemplateProcessing" || single == nullptr || !single->is_array()) {
        continue;
      }
      return !single->empty() && find(single->front(), "SpecialToken") != nullptr;
    }
    return false;
  }

  Result<void> read_special_tokens() {
    HEARTH_ASSIGN_OR_RETURN(auto bos, named("bos_token"));
    HEARTH_ASSIGN_OR_RETURN(auto eos, named("eos_token"));
    if (!bos) bos = first_id("bos_token_id");
    if (!eos) eos = first_id("eos_token_id");
    if (bos) w_.set_u32("tokenizer.ggml.bos_token_id", narrow<uint32_t>(*bos));
    if (eos) w_.set_u32("tokenizer.ggml.eos_token_id", narrow<uint32_t>(*eos));
    HEARTH_ASSIGN_OR_RETURN(const auto adds, flag_at(settings_, "add_bos_token"));
    w_.set_bool("tokenizer.ggml.add_bos_token", bos && adds.value_or(template_begins_with_token()));
    return {};
  }

  const Json& json_;
  const Json& settings_;
  const Json& config_;
  const uint64_t rows_;
  GgufWriter& w_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;  // 0: no token of that id
  std::map<std::string, uint64_t, std::less<>> ids_;
};

Result<std::string> chat_template(const fs::path& folder, const Json& settings) {
  const Json* text = find(settings, "chat_template");
  if (text != nullptr && text->is_string()) return text->get<std::string>();
  if (text != nullptr && text->is_array()) {
    for (const Json& each : *text) {
      HEARTH_ASSIGN_OR_RETURN(const auto name, text_at(each, "name"));
      HEARTH_ASSIGN_OR_RETURN(const auto body, text_at(each, "template"));
      if (name == "default" && body) return *body;
    }
  }
  constexpr size_t kMaxTemplateBytes = 1 << 20;
  const auto file = FileMapping::open(folder / "chat_template.jinja");
  if (!file.ok() || file->bytes().size() > kMaxTemplateBytes) return std::string();
  return std::string(as_text(file->bytes()));
}

}  // namespace

Result<void> add_tokenizer(const fs::path& folder, const Json& config, uint64_t rows,
                           GgufWriter& writer) {
  HEARTH_ASSIGN_OR_RETURN(const Json settings,
                          read_json_file_if_there(folder / "tokenizer_config.json"));
  HEARTH_ASSIGN_OR_RETURN(std::string text, chat_template(folder, settings));
  const auto json = read_json_file(folder / "tokenizer.json");
  if (!json.ok() && json.error().code == ErrorCode::kNotFound) {
    HEARTH_ASSIGN_OR_RETURN(const auto kind, add_vocabulary_file(folder, settings, rows, writer));
    if (!kind) return json.error();
    if (text.empty() && *kind == VocabularyFile::kWorld) text = "rwkv-world";
  } else if (!json.ok()) {
    return json.error();
  } else {
    HEARTH_TRY(TokenizerReader(*json, settings, config, rows, writer).read());
  }
  if (!text.empty()) writer.set_string("tokenizer.chat_template", text);
  return {};
}

}  // namespace hearth::models
