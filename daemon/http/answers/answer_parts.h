#pragma once
// Shared parts of whole answers and streams of the APIs. Included by this folder's .cpp files only.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/answers/api_answer.h"
#include "ipc/schema/deltas.h"
#include "ipc/schema/events.h"
#include "ipc/wire/json.h"
#include "ipc/wire/json_text.h"

namespace hearth::http {

using ipc::append_quoted;
using ipc::Json;

struct Head {
  std::string id;  ///< with the API's prefix
  int64_t created_s = 0;
  std::string model;          ///< the file's name, once it is known
  std::string fingerprint{};  ///< of that file
};

struct MadeCall {
  ipc::ToolCall call;
  std::string arguments{};
  bool custom = false;  ///< of a custom tool, whose input is in the arguments
};
/// The text with which a custom tool was called; "": the call was cut short.
std::string custom_input(const MadeCall& call);
/// One sample of an answer, as received so far.
struct Sample {
  std::string text{};
  std::string reasoning{};
  std::vector<MadeCall> calls{};
  std::string reason{};
  std::string stop{};
};

// ---- OpenAI's completion APIs.
/// Empty: the sample was cancelled or its deadline has passed, and an error follows.
std::string finish_reason(std::string_view reason);
Json usage_json(const Call& call, const ipc::Usage& usage,
                const ipc::SpeculationStats& speculation);
/// Chat: {"role":"assistant","content":...,"reasoning_content":...,"tool_calls":[...]}
Json chat_message(const Sample& sample);

// ---- OpenAI's responses.
/// Sealed, if the call asks for it and the item is complete.
Json response_reasoning(const Call& call, const Head& head, std::string_view text,
                        std::string_view status);
Json response_call(const Head& head, const MadeCall& call, std::string_view status);
Json response_message(const Head& head, std::string_view text, std::string_view status);
/// `done` null: still in progress.
Json response_json(const Call& call, const Head& head, const Sample* sample,
                   const ipc::DoneEvent* done);
/// What of a complete answer is kept, without its request's input.
KeptResponse kept_response(const Call& call, const Head& head, Json response);

// ---- Anthropic's messages.
/// Blocks of thinking, text and tool_use.
Json anthropic_content(const Call& call, const Head& head, const Sample& sample);
/// "": nothing signs the thinking of this call.
std::string thinking_signature(const Call& call, const Head& head, std::string_view text);
Json stop_reason(const Sample& sample);
Json stop_sequence(const Sample& sample);
/// input_tokens excludes cached tokens, which the API counts separately.
Json anthropic_usage(const Call& call, const ipc::Usage& usage);
/// The arguments of a call as an object; truncated ones, which are not valid JSON, as an empty one.
Json arguments_object(const std::string& arguments);
/// Without the API's prefix.
std::string_view request_id_of(const Head& head);

/// A server-sent event with an event type.
void append_event(std::string_view type, const Json& data, std::string* out);

// ---- The writers.
/// Joins the answers to several prompts, of `n` samples each: choices in the order of the prompts.
std::unique_ptr<AnswerWriter> make_joined_answer(std::unique_ptr<AnswerWriter> inner, int32_t n);
std::unique_ptr<AnswerWriter> make_whole_answer(const Call& call, Head head);
std::unique_ptr<AnswerWriter> make_chunk_stream(const Call& call, Head head);
std::unique_ptr<AnswerWriter> make_response_stream(const Call& call, Head head);
std::unique_ptr<AnswerWriter> make_anthropic_stream(const Call& call, Head head);
/// Whole or streamed.
std::unique_ptr<AnswerWriter> make_ollama_answer(const Call& call, Head head);

}  // namespace hearth::http
