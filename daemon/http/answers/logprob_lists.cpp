#include "daemon/http/answers/logprob_lists.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ipc/wire/codec.h"
#include "ipc/wire/json_text.h"
#include "kernels/base/chars.h"

namespace hearth::http {
namespace {

constexpr std::string_view kBytesMark = "bytes:\\x";  // see ipc::TokenLogprobs

/// "0," to "255,".
struct ByteText {
  std::array<char, 4> text{};
  uint8_t size = 0;
};
constexpr std::array<ByteText, 256> make_byte_texts() {
  std::array<ByteText, 256> out{};
  for (unsigned value = 0; value < out.size(); ++value) {
    ByteText& to = out[value];
    for (const unsigned place : {100u, 10u, 1u}) {
      if (value >= place || place == 1) {
        to.text[to.size++] = static_cast<char>('0' + value / place % 10);
      }
    }
    to.text[to.size++] = ',';
  }
  return out;
}
constexpr std::array<ByteText, 256> kByteTexts = make_byte_texts();

/// The text of a token: a view into `quoted`, or into `memory` if it contains escapes.
std::string_view unquoted(std::string_view quoted, std::string* memory) {
  if (quoted.find('\\') == std::string_view::npos) return quoted.substr(1, quoted.size() - 2);
  memory->clear();
  ipc::append_unquoted(quoted, memory);
  return *memory;
}

/// Appends the bytes of a token's text as a list.
void append_bytes(std::string_view text, std::string* out) {
  const auto append = [out](unsigned char byte) {
    out->append(kByteTexts[byte].text.data(), kByteTexts[byte].size);
  };
  *out += '[';
  if (text.starts_with(kBytesMark)) {
    for (text.remove_prefix(kBytesMark.size() - 2); text.size() >= 4; text.remove_prefix(4)) {
      unsigned char value = 0;
      std::from_chars(text.data() + 2, text.data() + 4, value, 16);
      append(value);
    }
  } else {
    for (const char c : text) append(byte_of(c));
  }
  out->back() == '[' ? out->push_back(']') : void(out->back() = ']');
}

void append_chat_token(const ipc::LogprobText& token, std::string* memory, std::string* out) {
  *out += R"({"token":)";
  *out += token.text;
  *out += R"(,"logprob":)";
  *out += token.logprob;
  *out += R"(,"bytes":)";
  append_bytes(unquoted(token.text, memory), out);
}

void separate(std::string* members) {
  if (!members->empty()) *members += ',';
}

}  // namespace

void append_chat_logprobs(const ipc::LogprobTexts& texts, std::string* members) {
  std::string memory;
  for (const ipc::LogprobTexts::Token& token : texts.tokens) {
    separate(members);
    append_chat_token(token.own, &memory, members);
    *members += R"(,"top_logprobs":[)";
    for (size_t i = token.top_begin; i < token.top_end; ++i) {
      if (i > token.top_begin) *members += ',';
      append_chat_token(texts.top[i], &memory, members);
      *members += '}';
    }
    *members += "]}";
  }
}

void append_chat_logprobs_object(const std::string& members, std::string* out) {
  *out += R"({"content":[)";
  *out += members;
  *out += R"(],"refusal":null})";
}

void CompletionLogprobs::add(const ipc::LogprobTexts& texts) {
  for (const ipc::LogprobTexts::Token& token : texts.tokens) {
    add(token.own, texts.top.data() + token.top_begin, token.top_end - token.top_begin, true);
  }
}

void CompletionLogprobs::add_prompt(const ipc::PromptLogprobsEvent& prompt) {
  std::vector<ipc::TokenLogprobs> tokens;
  for (size_t i = 0; i < prompt.texts.size(); ++i) {
    ipc::TokenLogprobs& token = tokens.emplace_back();
    token.text = prompt.texts[i];
    if (i > 0 && i <= prompt.logprobs.size()) token.logprob = prompt.logprobs[i - 1];
    if (i > 0 && i <= prompt.top.size()) token.top = prompt.top[i - 1];
  }
  const std::string frame = ipc::encode_logprobs(tokens);
  ipc::LogprobTexts texts;
  if (!ipc::read_logprobs(frame, &texts)) return;
  for (size_t i = 0; i < texts.tokens.size(); ++i) {
    const ipc::LogprobTexts::Token& token = texts.tokens[i];
    add(token.own, texts.top.data() + token.top_begin, token.top_end - token.top_begin, i > 0);
  }
}

void CompletionLogprobs::add(const ipc::LogprobText& own, const ipc::LogprobText* top,
                             size_t num_top, bool has_logprob) {
  for (std::string* list : {&tokens_, &logprobs_, &tops_, &offsets_}) separate(list);
  tokens_ += own.text;
  logprobs_ += has_logprob ? own.logprob : std::string_view("null");
  if (has_logprob) {
    tops_ += '{';
    const auto same_text = [](const ipc::LogprobText& a) {
      return [&a](const ipc::LogprobText& b) { return a.text == b.text; };
    };
    // Two tokens may have the same text. Write each key once, with the value of the last.
    for (const ipc::LogprobText* each = top; each != top + num_top; ++each) {
      if (std::any_of(top, each, same_text(*each))) continue;
      const ipc::LogprobText* last = each;
      for (const ipc::LogprobText* other = each + 1; other != top + num_top; ++other) {
        if (other->text == each->text) last = other;
      }
      if (tops_.back() != '{') tops_ += ',';
      tops_ += each->text;
      tops_ += ':';
      tops_ += last->logprob;
    }
    tops_ += '}';
  } else {
    tops_ += "null";
  }
  offsets_ += std::to_string(offset_);
  const std::string_view text = unquoted(own.text, &text_);
  if (text.starts_with(kBytesMark)) return;
  offset_ += std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

void CompletionLogprobs::append_to(std::string* out) const {
  *out += R"({"tokens":[)";
  *out += tokens_;
  *out += R"(],"token_logprobs":[)";
  *out += logprobs_;
  *out += R"(],"top_logprobs":[)";
  *out += tops_;
  *out += R"(],"text_offset":[)";
  *out += offsets_;
  *out += "]}";
}

}  // namespace hearth::http
