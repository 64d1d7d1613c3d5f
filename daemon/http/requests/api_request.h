#pragma once
// Converts requests of the OpenAI, Anthropic and Ollama APIs to the daemon's own. Pure: text in,
// struct or error out. Unsupported parameters are refused by name, and nothing that would change
// the answer is ignored. Error::field is the API's own name of the parameter.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/reasoning_seal.h"
#include "ipc/schema/protocol.h"
#include "ipc/schema/requests.h"
#include "kernels/base/result.h"

namespace hearth::http {

enum class Api {
  kCompletions,     ///< POST /v1/completions
  kChat,            ///< POST /v1/chat/completions
  kResponses,       ///< POST /v1/responses
  kMessages,        ///< POST /v1/messages (Anthropic)
  kOllamaGenerate,  ///< POST /api/generate (Ollama)
  kOllamaChat,      ///< POST /api/chat, and errors of all other paths of Ollama's API
};

constexpr bool is_ollama(Api api) { return api == Api::kOllamaGenerate || api == Api::kOllamaChat; }

/// A prompt after the first: a text, or token ids.
struct FurtherPrompt {
  std::string text{};
  std::vector<int32_t> ids{};
};

/// The parameter of the function that stands for a custom tool.
inline constexpr const char* kCustomParameter = "input";
/// A tool that takes any text, and not the arguments of a function.
struct CustomTool {
  std::string name{};
  std::string sent{};  ///< JSON, as it was sent
};

/// A body that was parsed as JSON and not read further.
struct UnreadBody;

struct Call {
  Api api = Api::kCompletions;
  ipc::GenerateRequest request{};
  /// kCompletions: answered after `request` in the same way, one after another.
  std::vector<FurtherPrompt> further{};
  bool stream = false;
  bool loads = false;  ///< Ollama: without a prompt; only loads the model
  /// Ollama: how long the model is to stay in memory. Below 0: as long as it may; with `loads` 0
  /// means that it is not loaded but leaves.
  std::optional<int64_t> keep_alive_ms{};
  bool include_usage = false;     ///< in a stream of kCompletions or kChat
  bool continuous_usage = false;  ///< and in each of its chunks, so far
  bool echo = false;              ///< kCompletions, not streamed: the prompt before each text
  /// kChat and kResponses: which of the functions are custom tools.
  std::vector<CustomTool> custom_tools{};
  bool scores_prompt = false;  ///< echo alone: the one generated token is not part of the answer
  // kResponses:
  std::string instructions{};          ///< sent back
  bool store = false;                  ///< the answer is kept
  std::string previous_response_id{};  ///< the answer that this request continues
  std::string kept_input{};            ///< JSON list of the request's items, if `store`
  /// Not null: the conversation before is wanted first. Only previous_response_id is set; see
  /// continue_call.
  std::shared_ptr<UnreadBody> unread{};
  /// Parameters of the request that change nothing (field_lists.h).
  std::vector<std::string_view> ignored{};
  /// Parameters that ask for reasoning, or bound it. With a model that has none they change
  /// nothing.
  std::vector<std::string_view> about_reasoning{};
  /// The client gets the answer's reasoning sealed (kResponses) or signed (kMessages) with this.
  std::optional<ReasoningSeal> seal{};
  int32_t volatile_lines = 0;  ///< of the system prompt, which were left out

  bool is_custom(std::string_view function) const {
    for (const CustomTool& tool : custom_tools) {
      if (tool.name == function) return true;
    }
    return false;
  }
  /// Nothing is asked but that the model leaves.
  bool releases() const { return loads && keep_alive_ms == 0; }
  /// Samples of all prompts.
  size_t num_choices() const { return request.n * (1 + further.size()); }
};

/// How the operator lets a request's prompt be changed.
struct PromptRules {
  /// Patterns of lines that a system prompt loses (volatile_lines.h).
  std::vector<std::string> volatile_lines{};
  /// Answers of the responses API are kept unless a request declines it.
  bool keeps_answers = false;
  /// Of the request's user. Nothing: reasoning is neither sealed nor read from a seal.
  std::optional<ReasoningSeal> seal{};
};

/// kProtocol if the body is not a JSON object; kInvalidArgument, kUnsupported, kUnknownField and
/// kTooLarge name the parameter. Frees the body before it builds the request.
Result<Call> parse_call(Api api, std::string body, const PromptRules& rules = {});

/// Goes on with a call whose body is unread. `conversation`: {"items":[...]}, all items before the
/// request's own. The prompt is the one of a request that sends them all itself.
Result<Call> continue_call(Call call, std::string conversation, const PromptRules& rules);

/// POST /api/show: the model.
Result<std::string> parse_ollama_name(std::string body);

}  // namespace hearth::http
