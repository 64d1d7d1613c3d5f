#pragma once
// A model's own chat template: messages in, the exact prompt out. The language is Jinja's as chat
// templates use it; whitespace, tojson, strftime_now, raise_exception and the generation block are
// as Hugging Face transformers sets them (documentation of "chat templating"). A template can
// access only its inputs, and its steps, memory, depth and output are bounded.
//
// Immutable once compiled, so any thread may render.

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "models/template/traced_text.h"

namespace hearth::models {

class GgufFile;
class Tokenizer;

/// What a template can use in addition to the conversation.
struct ChatSurroundings {
  std::string bos_token;  ///< as written; empty: undefined in the template
  std::string eos_token;
  std::tm now{};  ///< for strftime_now
};
/// The tokens of `tokenizer` and the local time.
ChatSurroundings chat_surroundings(const Tokenizer& tokenizer);

class ChatTemplate {
 public:
  /// kUnsupported names the construct and its line; kTooLarge a bound.
  static Result<ChatTemplate> compile(std::string_view source);

  /// `conversation`: a JSON object. `messages`, an array of objects, is required;
  /// `add_generation_prompt` is true if absent; `tools`, `documents` and every other key
  /// (enable_thinking, ...) are passed to the template under their names. kInvalidArgument names
  /// the line: the template rejects the messages or fails on them. kProtocol: not JSON.
  /// All texts of the conversation are data, except roles that chat APIs know: some
  /// templates make control tokens of them.
  Result<TracedText> render(std::string_view conversation,
                            const ChatSurroundings& surroundings) const;

 private:
  struct Parsed;
  std::shared_ptr<const Parsed> parsed_;
};

/// The templates of a model file: `tokenizer.chat_template`, and tokenizer.chat_template.NAME.
class ChatTemplates {
 public:
  static ChatTemplates load(const GgufFile& file);

  bool empty() const { return sources_.empty(); }
  /// The template without a name, if any, is first, as "".
  std::vector<std::string> names() const;

  /// The template for a conversation that names none.
  std::string_view name_for(bool with_tools) const;
  /// A template's source; empty if there is none of that name.
  std::string_view source(std::string_view name) const;

  /// Renders with the template `name`. If `name` is empty: with `tool_use` if the conversation has
  /// tools and the file has that template, else with the template without a name. kNotFound: the
  /// file has no (such) template; the message lists the existing ones.
  Result<TracedText> render(std::string_view name, std::string_view conversation,
                            const ChatSurroundings& surroundings) const;

 private:
  struct Source {
    std::string name;
    std::string text;
  };
  std::vector<Source> sources_;
};

}  // namespace hearth::models
