#pragma once
// A vocabulary of bytes and a family's control tokens, which shows what of a prompt becomes a
// control token; and conversations in which everything contains the text of these tokens.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/template/json.h"
#include "models/template/renderer.h"
#include "tests/unit/models/bpe_vocab.h"
#include "tests/unit/models/load_vocabulary.h"

namespace hearth::models {

class ControlVocab {
 public:
  explicit ControlVocab(const std::vector<std::string>& control) {
    TestBpeVocab vocab = small_bpe_vocab();
    for (const std::string& token : control) {
      if (token != "<|end|>") vocab.add(token, 3);
    }
    tokenizer_ = load_vocabulary(vocab_file(vocab, "gpt-2")).value();
  }

  std::vector<int32_t> encode(const TracedText& prompt) const {
    return tokenizer_->encode(prompt.text,
                              {.add_bos = false, .parse_special = true, .data = prompt.data});
  }
  /// As if the template itself had written everything.
  std::vector<int32_t> encode_untraced(const TracedText& prompt) const {
    return tokenizer_->encode(prompt.text, {.add_bos = false, .parse_special = true});
  }
  /// The control tokens among `ids`.
  std::vector<int32_t> control_of(std::vector<int32_t> ids) const {
    std::erase_if(ids, [this](int32_t id) { return !tokenizer_->is_control(id); });
    return ids;
  }
  /// The text that the tokens stand for, control tokens as they are written.
  std::string text_of(const std::vector<int32_t>& ids) const {
    std::string out;
    for (const int32_t id : ids) {
      out += tokenizer_->is_control(id) ? tokenizer_->entry(id) : tokenizer_->piece(id);
    }
    return out;
  }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
};

/// A copy of a conversation in which `words` follow every text, except for those that select what
/// the template does.
inline jinja::Value with_words(jinja::Renderer& run, const jinja::Value& value,
                               std::string_view words) {
  using jinja::Value;
  if (value.is_string()) {
    TracedText text;
    text.text = std::string(value.text()) + std::string(words);
    return run.text(std::move(text));
  }
  if (value.is_sequence()) {
    std::vector<Value> items;
    for (const Value& each : value.list().items) items.push_back(with_words(run, each, words));
    return run.list(std::move(items)).value();
  }
  if (!value.is_dict()) return value;
  jinja::Dict* const out = run.arena().new_dict();
  for (const auto& [key, member] : value.dict().entries()) {
    const std::string_view name = key.text();
    const bool selects = name == "role" || name == "type" || name == "tool_call_id" ||
                         name == "id" || name == "required" || name == "reasoning_effort";
    out->set(key, selects ? member : with_words(run, member, words));
  }
  return Value::of(out);
}

/// Checks a template on a conversation, in the form that ChatTemplate::render takes: ordinary texts
/// give the same tokens as ever, and no text that is part of the conversation becomes one of
/// `control`, the family's control tokens. Returns the number of texts that would have become one.
inline size_t check_words_stay_text(const ChatTemplate& chat, const jinja::Value& conversation,
                                    const std::vector<std::string>& control,
                                    const ChatSurroundings& surroundings) {
  const ControlVocab vocab(control);
  jinja::Renderer run({}, std::tm{});
  const auto render = [&](const jinja::Value& value) {
    return chat.render(jinja::to_json(run, value, {}).value().text, surroundings);
  };
  const auto ordinary = render(conversation);
  if (!ordinary.ok()) return 0;  // the template refuses this conversation
  CHECK(vocab.encode(*ordinary) == vocab.encode_untraced(*ordinary));

  std::string words, harmless;
  for (const std::string& token : control) {
    words += " " + token;
    harmless += " " + token.substr(0, 1) + "." + token.substr(1);
  }
  const auto met = render(with_words(run, conversation, words));
  const auto wanted = render(with_words(run, conversation, harmless));
  REQUIRE(met.ok() == wanted.ok());
  if (!met.ok()) return 0;
  const std::vector<int32_t> ids = vocab.encode(*met);
  CHECK(vocab.control_of(ids) == vocab.control_of(vocab.encode(*wanted)));
  CHECK(vocab.text_of(ids) == met->text);
  return vocab.control_of(vocab.encode_untraced(*met)).size() - vocab.control_of(ids).size();
}

}  // namespace hearth::models
