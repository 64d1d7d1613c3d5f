#include "models/convert/vocabulary_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"
#include "models/gguf/byte_cursor.h"
#include "models/gguf/file_mapping.h"
#include "models/tokenizer/text/byte_alphabet.h"
#include "models/tokenizer/text/utf8.h"
#include "models/tokenizer/vocabulary/token_index.h"
#include "models/tokenizer/vocabulary/vocabulary.h"

namespace hearth::models {
namespace fs = std::filesystem;
namespace {

constexpr const char* kWorldFile = "rwkv_vocab_v20230424.txt";
constexpr const char* kPlamoFile = "tokenizer.jsonl";
constexpr const char* kKimiFile = "tiktoken.model";
constexpr size_t kMaxVocabularyBytes = size_t{64} << 20;

struct Tokens {
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<int32_t> types;

  void add(std::string text, TokenType type, float score = 0) {
    texts.push_back(std::move(text));
    types.push_back(static_cast<int32_t>(type));
    scores.push_back(score);
  }
  std::optional<uint32_t> id_of(std::string_view text) const {
    const auto at = std::ranges::find(texts, text);
    if (at == texts.end()) return {};
    return narrow<uint32_t>(at - texts.begin());
  }
  void write(GgufWriter& writer) const {
    writer.set_strings("tokenizer.ggml.tokens", texts);
    writer.set_i32s("tokenizer.ggml.token_type", types);
  }
};

/// A line of a vocabulary file, for its errors.
struct Line {
  const char* file;
  size_t number;
  std::string_view text;

  Error corrupt(std::string_view want) const {
    return Error::corrupt(fmt::format("{}, line {}: want {}", file, number, want));
  }
};

/// Calls `read` for each line that is not empty.
template <class ReadFn>
Result<void> for_each_line(const char* name, std::string_view text, const ReadFn& read) {
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) HEARTH_TRY(read(Line{name, number, line}));
  }
  return {};
}

/// The bytes of Python's literal of a string or of bytes; none if it is not one.
std::optional<std::string> python_literal(std::string_view text) {
  const bool bytes = text.starts_with('b');
  if (bytes) text.remove_prefix(1);
  if (text.size() < 2 || text.front() != text.back()) return {};
  const char quote = text.front();
  if (quote != '\'' && quote != '"') return {};
  text = text.substr(1, text.size() - 2);
  std::string out;
  while (!text.empty()) {
    const char c = text.front();
    text.remove_prefix(1);
    if (c == quote) return {};
    if (c != '\\') {
      out.push_back(c);
      continue;
    }
    if (text.empty()) return {};
    const char kind = text.front();
    text.remove_prefix(1);
    switch (kind) {
      case 't': out.push_back('\t'); continue;
      case 'n': out.push_back('\n'); continue;
      case 'r': out.push_back('\r'); continue;
      case '\\':
      case '\'':
      case '"': out.push_back(kind); continue;
      case 'x':
      case 'u':
      case 'U': break;
      default: return {};
    }
    const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
    if ((bytes && kind != 'x') || text.size() < digits) return {};
    uint32_t code = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + digits, code, 16);
    if (parsed.ptr != text.data() + digits || code > 0x10FFFF) return {};
    text.remove_prefix(digits);
    if (bytes) {
      out.push_back(std::bit_cast<char>(narrow<uint8_t>(code)));
    } else {
      append_char(out, code);
    }
  }
  return out;
}

/// With the escapes that world_tokenizer.h names.
std::string escaped(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const uint8_t byte = byte_of(c);
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (byte < 0x20 || byte > 0x7E) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out.push_back(c);
    }
  }
  return out;
}

/// The ids of the tokens that tokenizer_config.json names.
Result<void> set_named_tokens(const char* file, const Json& settings, const Tokens& tokens,
                              GgufWriter& writer) {
  for (const auto& [key, name] : {std::pair{"bos_token", "bos"}, std::pair{"eos_token", "eos"},
                                  std::pair{"unk_token", "unknown"}}) {
    HEARTH_ASSIGN_OR_RETURN(const auto token, text_at(settings, key));
    if (!token) continue;
    const auto id = tokens.id_of(*token);
    if (!id) return Error::corrupt(fmt::format("{}: want a token of {}", key, file));
    writer.set_u32(fmt::format("tokenizer.ggml.{}_token_id", name), *id);
  }
  return {};
}

// ---- World

Result<void> read_world_line(const Line& line, Tokens& tokens) {
  const size_t first = line.text.find(' '), last = line.text.rfind(' ');
  if (first == line.text.npos || first == last) return line.corrupt("ID LITERAL BYTES");
  uint64_t id = 0, size = 0;
  const auto number = [](std::string_view text, uint64_t& to) {
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), to);
    return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  };
  if (!number(line.text.substr(0, first), id) || !number(line.text.substr(last + 1), size)) {
    return line.corrupt("ID LITERAL BYTES");
  }
  if (id != tokens.texts.size()) {
    return line.corrupt(fmt::format("token {}, since ids ascend", tokens.texts.size()));
  }
  const auto bytes = python_literal(line.text.substr(first + 1, last - first - 1));
  if (!bytes || bytes->empty()) return line.corrupt("a literal of Python");
  if (bytes->size() != size) return line.corrupt(fmt::format("{} bytes", size));
  tokens.add(escaped(*bytes), TokenType::kNormal);
  return {};
}

Result<Tokens> read_world(std::string_view text, GgufWriter& writer) {
  Tokens tokens;
  tokens.add("<s>", TokenType::kControl);  // ends texts, and they begin with it
  HEARTH_TRY(for_each_line(kWorldFile, text,
                           [&](const Line& line) { return read_world_line(line, tokens); }));
  writer.set_string("tokenizer.ggml.model", "rwkv");
  writer.set_u32("tokenizer.ggml.bos_token_id", 0);
  writer.set_u32("tokenizer.ggml.eos_token_id", 0);
  // Turns of a conversation end with an empty line.
  if (const auto id = tokens.id_of("\\n\\n")) writer.set_u32("tokenizer.ggml.eot_token_id", *id);
  return tokens;
}

// ---- PLaMo 2

Result<void> read_plamo_line(const Line& line, Tokens& tokens) {
  const Json parts = Json::parse(line.text, nullptr, false);
  if (!parts.is_array() || parts.size() < 2 || !parts[0].is_string() || !parts[1].is_number()) {
    return line.corrupt("a list of a text, a score and a kind");
  }
  const auto text = parts[0].get<std::string>();
  const std::string kind =
      parts.size() > 2 && parts[2].is_string() ? parts[2].get<std::string>() : "NORMAL";
  TokenType type = TokenType::kNormal;
  if (kind == "UNKNOWN") {
    type = TokenType::kUnknown;
  } else if (kind == "BYTE") {
    type = TokenType::kByte;
  } else if (kind == "CONTROL" || (text.starts_with("<|plamo:") && text.ends_with("|>"))) {
    type = TokenType::kControl;
  }
  tokens.add(text, type, as_float(parts[1].get<double>()));
  return {};
}

Result<Tokens> read_plamo(std::string_view text, const Json& settings, GgufWriter& writer) {
  Tokens tokens;
  HEARTH_TRY(for_each_line(kPlamoFile, text,
                           [&](const Line& line) { return read_plamo_line(line, tokens); }));
  writer.set_string("tokenizer.ggml.model", "plamo2");
  writer.set_string("tokenizer.ggml.pre", "default");
  HEARTH_TRY(set_named_tokens(kPlamoFile, settings, tokens, writer));
  HEARTH_ASSIGN_OR_RETURN(const auto adds, flag_at(settings, "add_bos_token"));
  if (adds) writer.set_bool("tokenizer.ggml.add_bos_token", *adds);
  // Turns of a conversation end with it.
  if (const auto id = tokens.id_of("<|plamo:op|>")) {
    writer.set_u32("tokenizer.ggml.eot_token_id", *id);
  }
  return tokens;
}

// ---- Kimi

std::optional<std::string> base64_bytes(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return {};
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::string out;
  uint32_t bits = 0, count = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) return {};
    bits = bits << 6 | narrow<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(std::bit_cast<char>(narrow<uint8_t>(bits >> count & 0xFF)));
  }
  return out;
}

std::string in_byte_alphabet(std::string_view bytes) {
  constexpr auto kAlphabet = byte_alphabet();
  std::string out;
  for (const char byte : bytes) append_char(out, kAlphabet[byte_of(byte)]);
  return out;
}

/// Where the last merge joins a token's two parts: pairs merge by the rank of what they become,
/// the lowest first. 0 if merging does not lead to the token.
size_t last_border(const TokenIndex& ranks, std::string_view token, int32_t rank) {
  constexpr int32_t kNever = INT32_MAX;
  std::vector<size_t> starts(token.size() + 1);
  std::iota(starts.begin(), starts.end(), size_t{0});
  const auto rank_at = [&](size_t part) {
    if (part + 2 >= starts.size()) return kNever;
    const int32_t met = ranks.find(token.substr(starts[part], starts[part + 2] - starts[part]));
    return met >= 0 && met < rank ? met : kNever;
  };
  std::vector<int32_t> ranks_of_pairs;
  for (size_t part = 0; part < token.size(); ++part) ranks_of_pairs.push_back(rank_at(part));
  while (starts.size() > 3) {
    const auto least = std::ranges::min_element(ranks_of_pairs);
    if (*least == kNever) return 0;
    const auto part = least - ranks_of_pairs.begin();
    starts.erase(starts.begin() + part + 1);
    ranks_of_pairs.erase(least + 1);
    for (auto i = std::max<ptrdiff_t>(part - 1, 0); i <= part; ++i) {
      ranks_of_pairs[narrow<size_t>(i)] = rank_at(narrow<size_t>(i));
    }
  }
  return starts[1];
}

Result<std::string> read_kimi_line(const Line& line, size_t rank) {
  constexpr size_t kMaxTokenBytes = 1024;
  const size_t space = std::min(line.text.find(' '), line.text.size());
  const auto bytes = base64_bytes(line.text.substr(0, space));
  if (!bytes || bytes->empty() || bytes->size() > kMaxTokenBytes) {
    return line.corrupt("1 to 1024 bytes in base64 and a rank");
  }
  if (line.text.substr(space) == fmt::format(" {}", rank)) return *bytes;
  return line.corrupt(fmt::format("rank {}, since ranks ascend", rank));
}

/// Tokens after those of the file, as tokenizer_config.json names them. The tokenizer's code
/// names the others of kReserved.
Result<void> add_kimi_special_tokens(const Json& settings, Tokens& tokens) {
  constexpr size_t kReserved = 256;
  const Json* added = find(settings, "added_tokens_decoder");
  for (const size_t end = tokens.texts.size() + kReserved; tokens.texts.size() < end;) {
    const size_t id = tokens.texts.size();
    const Json* token = added == nullptr ? nullptr : find(*added, fmt::format("{}", id));
    if (token == nullptr) {
      tokens.add(fmt::format("<|reserved_token_{}|>", id), TokenType::kControl);
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(const auto text, text_at(*token, "content"));
    if (!text) return Error::corrupt(fmt::format("{}: token {} without text", kKimiFile, id));
    HEARTH_ASSIGN_OR_RETURN(const auto special, flag_at(*token, "special"));
    tokens.add(*text, special.value_or(false) ? TokenType::kControl : TokenType::kUserDefined);
  }
  return {};
}

Result<Tokens> read_kimi(std::string_view text, const Json& settings, GgufWriter& writer) {
  constexpr std::string_view kClass = "TikTokenTokenizer";
  HEARTH_ASSIGN_OR_RETURN(const auto reader, text_at(settings, "tokenizer_class"));
  if (reader.value_or(std::string(kClass)) != kClass) {
    return Error::unsupported(
        fmt::format("{}: read by {}, want {}", kKimiFile, printable(*reader), kClass));
  }
  std::vector<std::string> bytes;
  HEARTH_TRY(for_each_line(kKimiFile, text, [&](const Line& line) -> Result<void> {
    HEARTH_ASSIGN_OR_RETURN(bytes.emplace_back(), read_kimi_line(line, bytes.size()));
    return {};
  }));
  TokenIndex ranks;
  ranks.reserve(bytes.size());
  Tokens tokens;
  for (const std::string& token : bytes) {
    if (ranks.find(token) >= 0) {
      return Error::corrupt(
          fmt::format("{}: token {} appears twice", kKimiFile, tokens.texts.size()));
    }
    ranks.insert(token, size32(tokens.texts));
    tokens.add(in_byte_alphabet(token), TokenType::kNormal);
  }
  std::vector<std::string> merges;
  for (int32_t rank = 0; rank < size32(bytes); ++rank) {
    const std::string_view token = bytes[rank];
    const size_t border = token.size() < 2 ? 0 : last_border(ranks, token, rank);
    if (border == 0) continue;
    merges.push_back(in_byte_alphabet(token.substr(0, border)) + " " +
                     in_byte_alphabet(token.substr(border)));
  }
  HEARTH_TRY(add_kimi_special_tokens(settings, tokens));
  writer.set_string("tokenizer.ggml.model", "gpt2");
  writer.set_string("tokenizer.ggml.pre", "kimi-k2");
  writer.set_strings("tokenizer.ggml.merges", merges);
  HEARTH_TRY(set_named_tokens(kKimiFile, settings, tokens, writer));
  writer.set_bool("tokenizer.ggml.add_bos_token", false);
  return tokens;
}

Result<Tokens> read_as(VocabularyFile kind, std::string_view text, const Json& settings,
                       GgufWriter& writer) {
  switch (kind) {
    case VocabularyFile::kWorld: return read_world(text, writer);
    case VocabularyFile::kPlamo: return read_plamo(text, settings, writer);
    case VocabularyFile::kKimi: return read_kimi(text, settings, writer);
  }
  return Error::corrupt("a vocabulary of no kind");
}

}  // namespace

Result<std::optional<VocabularyFile>> add_vocabulary_file(const fs::path& folder,
                                                          const Json& settings, uint64_t rows,
                                                          GgufWriter& writer) {
  constexpr float kScoreOfUnused = -1000;
  for (const auto& [kind, name] : {std::pair{VocabularyFile::kWorld, kWorldFile},
                                   std::pair{VocabularyFile::kPlamo, kPlamoFile},
                                   std::pair{VocabularyFile::kKimi, kKimiFile}}) {
    const auto file = FileMapping::open(folder / name);
    if (!file.ok() && file.error().code == ErrorCode::kNotFound) continue;
    if (!file.ok()) return file.error();
    if (file->bytes().size() > kMaxVocabularyBytes) {
      return Error::corrupt(fmt::format("{}: larger than 64 MiB", name));
    }
    const std::string_view text = as_text(file->bytes());
    HEARTH_ASSIGN_OR_RETURN(Tokens tokens, read_as(kind, text, settings, writer));
    if (tokens.texts.size() > rows) {
      return Error::corrupt(
          fmt::format("{}: {} tokens, the embedding has {} rows", name, tokens.texts.size(), rows));
    }
    while (tokens.texts.size() < rows) {
      tokens.add(fmt::format("[unused {}]", tokens.texts.size()), TokenType::kUnused,
                 kScoreOfUnused);
    }
    tokens.write(writer);
    if (kind == VocabularyFile::kPlamo) {
      writer.set_f32s("tokenizer.ggml.scores", tokens.scores);
    }
    return std::optional(kind);
  }
  return std::optional<VocabularyFile>();
}

}  // namespace hearth::models
