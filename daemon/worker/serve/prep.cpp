#include "daemon/worker/serve/prep.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "daemon/worker/serve/canvas_request.h"
#include "daemon/worker/text/chat_prompt.h"
#include "daemon/worker/text/kept_marks.h"
#include "daemon/worker/text/reasoning_of.h"
#include "daemon/worker/text/token_spans.h"
#include "ipc/text/adapter_names.h"
#include "ipc/text/utf8.h"
#include "kernels/base/match.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "models/pooling_in_use.h"

namespace hearth::worker {
namespace {

/// Added to the logit of a token that must not be drawn.
constexpr float kBan = -10'000;
/// A query's bytes times the texts that it is read with: what the texts of one request may have.
constexpr size_t kMostQueryBytes = 16 << 20;

engine::Priority priority_of(const std::string& name) {
  if (name == "interactive") return engine::Priority::kInteractive;
  if (name == "batch") return engine::Priority::kBatch;
  return engine::Priority::kNormal;
}

Result<void> check_id(const PrepModel& model, int32_t id, std::string_view field, size_t index) {
  const int32_t vocab_size = model.tokenizer->vocab_size();
  if (id >= 0 && id < vocab_size) return {};
  return Error::invalid(fmt::format("{}[{}] is {}, model {} has tokens 0..{}", field, index, id,
                                    model.name, vocab_size - 1),
                        std::string(field));
}

Result<void> check_ids(const PrepModel& model, const std::vector<int32_t>& ids,
                       std::string_view field) {
  for (size_t i = 0; i < ids.size(); ++i) HEARTH_TRY(check_id(model, ids[i], field, i));
  return {};
}

// No token stands for more bytes than this, and BOS and an added leading space only add tokens, so
// a longer text always has more tokens than the context.
uint64_t most_text_bytes(const PrepModel& model) {
  return model.context_length * std::max<uint64_t>(1, model.tokenizer->max_piece_bytes());
}

Result<void> check_could_fit(const PrepModel& model, size_t text_bytes, std::string_view field) {
  const uint64_t most = most_text_bytes(model);
  if (text_bytes <= most) return {};
  return Error::context_overflow(
      fmt::format("{} of {} bytes: the context of {} tokens holds at most {} bytes", field,
                  text_bytes, model.context_length, most),
      std::string(field));
}

/// The number of tokens that lie within the text's first `bytes` bytes, BOS included.
int32_t tokens_within(const PrepModel& model, const std::vector<int32_t>& tokens,
                      std::string_view text, size_t bytes) {
  int32_t count = 0;
  for (const std::optional<ByteSpan>& span : token_spans(*model.tokenizer, tokens, text)) {
    if (!span || span->end > bytes) break;
    ++count;
  }
  return count;
}

struct Prompt {
  std::vector<int32_t> ids;
  std::vector<engine::KeptPrefix> kept{};          ///< requested by marks in the conversation
  std::shared_ptr<const AnswerReading> reading{};  ///< for a conversation's answer
  std::optional<engine::CallGrammar> calls{};      ///< what the answer's calls must be
  std::optional<int32_t> banned{};                 ///< a token that the answer must not have
  std::vector<std::string> without_effect{};       ///< see ipc::StartedEvent
};

/// Converts the marks of a conversation to prefixes of its rendered prompt: see kept_marks.h.
std::vector<engine::KeptPrefix> kept_by_marks(const PrepModel& model, const ChatPrompt& prompt,
                                              const ipc::Json& conversation,
                                              const std::vector<KeepMark>& marks,
                                              const models::ChatSurroundings& surroundings) {
  std::vector<engine::KeptPrefix> out;
  for (const KeepMark& mark : marks) {
    const ipc::Json changed = changed_behind(conversation, mark);
    if (changed == conversation) {
      out.push_back({size32(prompt.ids), mark.seconds});
      continue;
    }
    const Result<models::TracedText> other =
        model.templates->render("", ipc::dump_json(changed), surroundings);
    if (!other.ok()) continue;
    const auto differ = std::ranges::mismatch(prompt.text, other->text).in1;
    const size_t alike = differ - prompt.text.begin();
    out.push_back({tokens_within(model, prompt.ids, prompt.text, alike), mark.seconds});
  }
  return out;
}

/// Whether messages may have members that templates do not see.
bool has_marks(std::string_view conversation) {
  return conversation.find("\"cache_keep_") != std::string_view::npos ||
         conversation.find(fmt::format("\"{}\"", ipc::kReasoningOf)) != std::string_view::npos;
}

// Renders the conversation with the model's template and tokenizes it.
Result<Prompt> chat_tokens(const PrepModel& model, const ipc::GenerateRequest& request,
                           models::EncodePause* pause) {
  if (model.templates == nullptr || model.templates->empty()) {
    return Error::unsupported(
        fmt::format("messages: model {} has no chat template; send prompt", model.name),
        "messages");
  }
  HEARTH_ASSIGN_OR_RETURN(ChatRequest chat, model.chat->read(request));
  std::string& conversation = chat.conversation;
  std::vector<KeepMark> marks;
  std::vector<std::string> without_effect;
  if (chat.no_reasoning) without_effect.emplace_back("reasoning");
  ipc::Json parsed;
  if (has_marks(conversation)) {
    parsed = ipc::Json::parse(conversation, nullptr, false);
    if (parsed.is_object()) {
      if (leave_out_foreign_reasoning(parsed, model.fingerprint)) {
        without_effect.emplace_back(ipc::kReasoningOf);
      }
      HEARTH_ASSIGN_OR_RETURN(marks, take_marks(parsed));
      conversation = ipc::dump_json(parsed);
    }
  }
  const models::ChatSurroundings surroundings = models::chat_surroundings(*model.tokenizer);
  Result<ChatPrompt> prompt = chat_prompt(*model.tokenizer, *model.templates, "", conversation,
                                          surroundings, most_text_bytes(model), pause);
  if (prompt && prompt->ids.empty()) {
    return Error::invalid("messages: the template makes no tokens of them", "messages");
  }
  if (prompt) {
    std::vector<engine::KeptPrefix> kept =
        kept_by_marks(model, *prompt, parsed, marks, surroundings);
    Prompt out{.ids = {}, .kept = std::move(kept)};
    out.reading = model.chat->reading(chat, prompt->text, prompt->ids, request.seed.value_or(0));
    out.ids = std::move(prompt->ids);
    out.banned = chat.banned;
    out.without_effect = std::move(without_effect);
    out.calls = std::move(chat.calls);
    if (!out.calls) return out;
    out.calls->reasoning = out.reading->shape.reasoning;
    out.calls->reasoning_open = out.reading->shape.reasoning_open;
    for (const auto& [id, mark] : out.reading->marks) out.calls->control_marks.push_back(mark);
    return out;
  }
  Error error = prompt.take_error();
  // Not found here means a template for these messages, not a model.
  if (error.code == ErrorCode::kNotFound) error.code = ErrorCode::kUnsupported;
  error.message = "messages: " + error.message;
  error.field = "messages";
  return error;
}

/// Whether the prompt is to be rendered as a user's message, and the model has a template for it.
bool is_message(const PrepModel& model, const ipc::GenerateRequest& request) {
  return request.prompt_as == "message" && request.prompt_ids.empty() && request.messages.empty() &&
         request.suffix.empty() && model.templates != nullptr && !model.templates->empty();
}

/// `request` with its prompt as the conversation's only message.
ipc::GenerateRequest as_conversation(const ipc::GenerateRequest& request) {
  ipc::GenerateRequest out = request;
  const ipc::Json message = {{"role", "user"}, {"content", request.prompt}};
  out.messages.text = ipc::dump_json(ipc::Json::array({message}));
  return out;
}

/// The prompt of a request with `suffix`.
Result<std::vector<int32_t>> fill_tokens(const PrepModel& model,
                                         const ipc::GenerateRequest& request,
                                         models::EncodePause* pause) {
  if (!request.prompt_ids.empty() || !request.messages.empty()) {
    return Error::invalid("suffix: met it without prompt, want the text before it as prompt",
                          "suffix");
  }
  if (!model.fill_marks) {
    return Error::unsupported(
        fmt::format("suffix: model {} has no tokens for filling in a text", model.name), "suffix");
  }
  HEARTH_TRY(check_could_fit(model, request.prompt.size(), "prompt"));
  HEARTH_TRY(check_could_fit(model, request.suffix.size(), "suffix"));
  const auto encode = [&](std::string_view text, bool add_bos) {
    return model.tokenizer->encode(
        text, {.add_bos = add_bos, .parse_special = request.parse_special, .pause = pause});
  };
  std::vector<int32_t> out = encode("", !request.raw);
  const std::vector<int32_t> body =
      model.fill_marks->prompt(encode(request.prompt, false), encode(request.suffix, false));
  out.insert(out.end(), body.begin(), body.end());
  return out;
}

Result<Prompt> prompt_of(const PrepModel& model, const ipc::GenerateRequest& request,
                         models::EncodePause* pause) {
  if (!request.suffix.empty()) {
    HEARTH_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, fill_tokens(model, request, pause));
    return Prompt{std::move(tokens), {}};
  }
  if (!request.prompt_ids.empty()) {
    HEARTH_TRY(check_ids(model, request.prompt_ids, "prompt_ids"));
    return Prompt{request.prompt_ids, {}};
  }
  if (!request.messages.empty()) return chat_tokens(model, request, pause);
  if (is_message(model, request)) return chat_tokens(model, as_conversation(request), pause);
  HEARTH_TRY(check_could_fit(model, request.prompt.size(), "prompt"));
  const models::EncodeOptions options{
      .add_bos = !request.raw, .parse_special = request.parse_special, .pause = pause};
  std::vector<int32_t> tokens = model.tokenizer->encode(request.prompt, options);
  if (tokens.empty()) {
    return Error::invalid("prompt: no tokens; this model adds none, so want some text", "prompt");
  }
  return Prompt{std::move(tokens), {}};
}

/// The number of tokens that may follow the prompt.
Result<int32_t> check_context(const PrepModel& model, size_t prompt,
                              const ipc::GenerateRequest& request) {
  int32_t max_tokens = request.max_tokens;
  if (std::cmp_less(prompt, model.context_length)) {
    const int32_t room = model.context_length - narrow<int32_t>(prompt);
    const bool denoises = model.canvas.mask_token >= 0;
    if (max_tokens == 0) return denoises ? std::min(room, models::kUsualCanvas) : room;
    if (request.clip_max_tokens) return std::min(max_tokens, room);
  }
  max_tokens = std::max(max_tokens, 1);
  const uint64_t together = prompt + max_tokens;
  if (std::cmp_less_equal(together, model.context_length)) return max_tokens;
  return Error::context_overflow(
      fmt::format("the prompt's {} tokens and max_tokens {} make {}, the context of model "
                  "{} holds {}",
                  prompt, max_tokens, together, model.name, model.context_length),
      "max_tokens");
}

engine::SamplingParams sampling_of(const ipc::GenerateRequest& request,
                                   const ipc::SamplingDefaults& defaults) {
  engine::SamplingParams out;
  out.temperature = request.temperature.value_or(defaults.temperature);
  out.top_k = request.top_k.value_or(defaults.top_k);
  out.top_p = request.top_p.value_or(defaults.top_p);
  out.min_p = request.min_p.value_or(defaults.min_p);
  out.typical_p = request.typical_p;
  out.repetition_penalty = request.repetition_penalty.value_or(defaults.repetition_penalty);
  out.presence_penalty = request.presence_penalty;
  out.frequency_penalty = request.frequency_penalty;
  out.penalty_window = request.penalty_window.value_or(defaults.penalty_window);
  out.logit_bias = request.logit_bias;
  out.seed = request.seed.value_or(0);
  out.top_logprobs = request.logprobs;
  out.prompt_logprobs = request.prompt_logprobs;
  return out;
}

/// Sets the prefix to keep that the request's own fields ask for.
Result<void> mark_kept(const PrepModel& model, const ipc::GenerateRequest& request,
                       engine::Request* to) {
  const bool no_text = request.prompt.empty() || is_message(model, request);
  if (request.cache_keep_bytes != 0 && request.cache_keep_s != 0 && no_text) {
    return Error::invalid(
        "cache_keep_bytes: met no text as prompt; want cache_keep_tokens, or cache_keep_s "
        "in a message",
        "cache_keep_bytes");
  }
  if (request.cache_keep_s == 0) return {};
  engine::KeptPrefix keep{size32(to->prompt), request.cache_keep_s};
  if (request.cache_keep_tokens != 0) {
    keep.num_tokens = std::min(keep.num_tokens, request.cache_keep_tokens);
  }
  if (request.cache_keep_bytes != 0) {
    keep.num_tokens = std::min(keep.num_tokens, tokens_within(model, to->prompt, request.prompt,
                                                              request.cache_keep_bytes));
  }
  to->kept.push_back(keep);
  return {};
}

/// A draft model requested by name must be the one loaded. Without it the text would be the same,
/// but slower than the client expects.
Result<void> check_draft(const PrepModel& model, const std::string& draft) {
  if (draft == "auto" || draft == "none" || draft == model.draft) return {};
  const std::string there = model.draft.empty() ? "no draft model" : "draft model " + model.draft;
  return Error::invalid(
      fmt::format("draft {}: model {} was loaded with {}", draft, model.name, there), "draft");
}

/// The adapters of a request, opened.
Result<std::vector<engine::UsedAdapter>> adapters_of(const PrepModel& model,
                                                     const ipc::WorkerRequest& request) {
  std::vector<engine::UsedAdapter> out;
  HEARTH_ASSIGN_OR_RETURN(const auto choices, ipc::parse_adapters(request.generate().adapter));
  if (choices.size() != request.adapter_paths.size()) {
    return Error::protocol(
        fmt::format("adapter_paths: met {}, want {}", request.adapter_paths.size(), choices.size()),
        "adapter_paths");
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    auto file = model.adapters->open(request.adapter_paths[i]);
    const std::string name = std::filesystem::path(request.adapter_paths[i]).stem().string();
    if (!file.ok()) {
      return Error{file.error().code, fmt::format("adapter {}: {}", name, file.error().message),
                   "adapter"};
    }
    out.push_back({name, std::move(file).value(), choices[i].scale});
  }
  return out;
}

bool all_control(const PrepModel& model, const std::vector<int32_t>& tokens) {
  return std::all_of(tokens.begin(), tokens.end(),
                     [&](int32_t id) { return model.tokenizer->is_control(id); });
}

Result<PreparedRequest> prepare_generate(const PrepModel& model, const ipc::WorkerRequest& request,
                                         models::EncodePause* pause) {
  const ipc::GenerateRequest& generate = request.generate();
  if (!model.generates) {
    return Error::unsupported(
        fmt::format("model {} makes vectors of texts (embed) and no text", model.name), "model");
  }
  HEARTH_TRY(check_ids(model, generate.stop_ids, "stop_ids"));
  for (size_t i = 0; i < generate.logit_bias.size(); ++i) {
    HEARTH_TRY(check_id(model, generate.logit_bias[i].first, "logit_bias", i));
  }
  for (const std::vector<int32_t>& sample : request.resume) {
    HEARTH_TRY(check_ids(model, sample, "resume"));
  }
  HEARTH_TRY(check_draft(model, generate.draft));
  HEARTH_ASSIGN_OR_RETURN(std::vector<engine::UsedAdapter> adapters, adapters_of(model, request));
  HEARTH_ASSIGN_OR_RETURN(Prompt prompt, prompt_of(model, generate, pause));
  // The text begins where the prompt ends; for a fork, where the original prompt ended.
  const bool begins = all_control(model, prompt.ids);
  HEARTH_TRY(check_ids(model, request.prefix, "prefix"));
  prompt.ids.insert(prompt.ids.end(), request.prefix.begin(), request.prefix.end());
  HEARTH_ASSIGN_OR_RETURN(const int32_t max_tokens,
                          check_context(model, prompt.ids.size(), generate));
  if (generate.min_tokens > max_tokens) {
    return Error::invalid(fmt::format("min_tokens: met {}, the context has room for {}",
                                      generate.min_tokens, max_tokens),
                          "min_tokens");
  }

  HEARTH_ASSIGN_OR_RETURN(const auto canvas, canvas_of(model, generate, max_tokens));
  if (prompt.calls && canvas) return no_canvas(model, "tool_choice");

  PreparedRequest out;
  out.request.canvas = canvas;
  const bool adds_space = model.tokenizer->adds_space_prefix();
  out.strip_first_space = adds_space && all_control(model, prompt.ids);
  engine::Request& to = out.request;
  to.id = request.id;
  to.owner = request.owner;
  to.cache_salt = generate.cache_share.empty()
                      ? request.owner
                      : std::string(engine::kSharedSalt) + generate.cache_share;
  to.priority = priority_of(generate.priority);
  to.prompt = std::move(prompt.ids);
  to.kept = std::move(prompt.kept);
  to.n = generate.n;
  to.max_tokens = max_tokens;
  to.min_tokens = generate.min_tokens;
  to.stop_ids = generate.stop_ids;
  if (!generate.ignore_eos) {
    const std::vector<int32_t> ends =
        prompt.reading ? model.chat->end_ids(*prompt.reading, model.end_ids) : model.end_ids;
    to.stop_ids.insert(to.stop_ids.end(), ends.begin(), ends.end());
    if (!generate.suffix.empty()) {
      const std::vector<int32_t>& marks = model.fill_marks->ends;
      to.stop_ids.insert(to.stop_ids.end(), marks.begin(), marks.end());
    }
  }
  if (prompt.reading && !canvas) {
    to.reasoning = model.chat->reasoning_bound(*prompt.reading, generate.reasoning_budget);
    to.end_reasoning = request.end_reasoning;
  }
  to.sampling = sampling_of(generate, model.sampling);
  if (canvas) to.sampling.repetition_penalty = 1;
  if (prompt.banned) to.sampling.logit_bias.emplace_back(*prompt.banned, kBan);
  to.speculate = generate.speculate;
  if (generate.speculate && !generate.prediction.empty()) {
    to.prediction =
        model.tokenizer->encode(generate.prediction, {.add_bos = false, .pause = pause});
  }
  to.use_draft = generate.draft != "none";
  to.use_prefix_cache = generate.cache != "off";
  to.use_prefix_store = generate.cache == "disk";
  HEARTH_TRY(mark_kept(model, generate, &to));
  to.resume = request.resume;
  to.constraint_prefix = size32(request.prefix);
  to.adapters = std::move(adapters);
  to.fork_of = request.fork_of;
  to.fork_sample = request.fork_sample;
  if (const auto rule = text_rule(generate); rule && !prompt.calls) {
    if (generate.ignore_eos) {
      return Error::invalid(
          "ignore_eos: a text that follows a schema or a grammar ends where that does",
          "ignore_eos");
    }
    HEARTH_ASSIGN_OR_RETURN(
        CompiledConstraint compiled,
        model.constraints->get(*rule, adds_space && begins, generate.relax_schema));
    to.constraint = std::move(compiled.constraint);
    out.relaxed = std::move(compiled.relaxed);
  }
  if (prompt.calls) {
    std::vector<int32_t> marks;
    for (const auto& [id, mark] : prompt.reading->marks) marks.push_back(id);
    HEARTH_ASSIGN_OR_RETURN(CompiledConstraint compiled,
                            model.constraints->get(*prompt.calls, marks, generate.relax_schema));
    to.constraint = std::move(compiled.constraint);
    out.relaxed = std::move(compiled.relaxed);
  }
  out.without_effect = std::move(prompt.without_effect);
  out.reading = std::move(prompt.reading);
  out.answered = request.prefix;
  return out;
}

/// Control tokens are shown as their entries. The space that the tokenizer added is left out.
std::string text_of_ids(const models::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string bytes;
  bool first = tokenizer.adds_space_prefix();
  for (const int32_t id : ids) {
    std::string_view piece = tokenizer.is_control(id) ? tokenizer.entry(id) : tokenizer.piece(id);
    if (!tokenizer.is_control(id) && std::exchange(first, false) && piece.starts_with(' ')) {
      piece.remove_prefix(1);
    }
    bytes += piece;
  }
  return ipc::to_valid_utf8(bytes);
}

Result<ipc::TokenizeReply> prepare_tokenize(const PrepModel& model,
                                            const ipc::TokenizeRequest& request,
                                            models::EncodePause* pause) {
  HEARTH_TRY(check_could_fit(model, request.text.size(), "text"));
  ipc::TokenizeReply reply;
  reply.model = model.name;
  if (!request.messages.empty()) {
    ipc::GenerateRequest conversation;
    conversation.messages = request.messages;
    conversation.tools = request.tools;
    conversation.template_kwargs = request.template_kwargs;
    conversation.reasoning = request.reasoning;
    conversation.tool_form = request.tool_form;
    HEARTH_ASSIGN_OR_RETURN(Prompt prompt, chat_tokens(model, conversation, pause));
    reply.ids = std::move(prompt.ids);
  } else if (!request.ids.empty()) {
    HEARTH_TRY(check_ids(model, request.ids, "ids"));
    reply.ids = request.ids;
    reply.text = text_of_ids(*model.tokenizer, request.ids);
  } else {
    reply.ids = model.tokenizer->encode(
        request.text,
        {.add_bos = !request.raw, .parse_special = request.parse_special, .pause = pause});
  }
  for (const int32_t id : reply.ids) reply.entries.emplace_back(model.tokenizer->entry(id));
  if (const auto bos = model.tokenizer->bos()) reply.bos = model.tokenizer->entry(*bos);
  if (const auto eos = model.tokenizer->eos()) reply.eos = model.tokenizer->entry(*eos);
  return reply;
}

models::Pooling pooling_of(const PrepModel& model, const std::string& name) {
  if (name == "mean") return models::Pooling::kMean;
  if (name == "cls") return models::Pooling::kCls;
  if (name == "last") return models::Pooling::kLast;
  return models::pooling_in_use(model.pooling);
}

/// Tokenizes a text to embed and appends its end token.
Result<std::vector<int32_t>> text_tokens(const PrepModel& model, const std::string& text,
                                         const std::string& field, models::EncodePause* pause) {
  HEARTH_TRY(check_could_fit(model, text.size(), field));
  std::vector<int32_t> tokens = model.tokenizer->encode(text, {.pause = pause});
  if (model.text_end) tokens.push_back(*model.text_end);
  if (!tokens.empty()) return tokens;
  return Error::invalid(fmt::format("{}: no tokens, want some text", field), "texts");
}

/// Whether the request fits what the model makes of texts: vectors, or scores of pairs.
Result<void> check_ranks(const PrepModel& model, const ipc::EmbedRequest& embed) {
  if (embed.query.empty()) {
    if (!model.ranker || embed.pooling != "auto") return {};
    return Error::unsupported(
        fmt::format("model {} ranks texts: send a query with them, or name a pooling for vectors",
                    model.name),
        "query");
  }
  if (!model.ranker) {
    return Error::unsupported(fmt::format("query: model {} does not rank texts", model.name),
                              "query");
  }
  if (embed.texts.empty()) return Error::invalid("query: met it without texts", "query");
  // It is read once with each of them.
  const size_t repeated = embed.query.size() * embed.texts.size();
  if (repeated > kMostQueryBytes) {
    return Error::too_large(
        fmt::format("query: {} bytes with each of {} texts, want at most {} bytes "
                    "in all",
                    embed.query.size(), embed.texts.size(), kMostQueryBytes),
        "query");
  }
  if (embed.pooling == "auto") return {};
  return Error::invalid("pooling: met it with query, want auto", "pooling");
}

Result<PreparedEmbed> prepare_embed(const PrepModel& model, const ipc::WorkerRequest& request,
                                    models::EncodePause* pause) {
  const auto& embed = std::get<ipc::EmbedRequest>(request.task);
  HEARTH_TRY(check_ranks(model, embed));
  PreparedEmbed out;
  if (!embed.query.empty()) {
    HEARTH_TRY(check_could_fit(model, embed.query.size(), "query"));
    out.ranker = model.ranker;
    out.as_chances = embed.normalize;
  }
  const models::Pooling pooling = out.ranker ? out.ranker->row() : pooling_of(model, embed.pooling);
  const size_t count = embed.texts.size() + embed.ids.size();
  for (size_t i = 0; i < count; ++i) {
    const bool text = !embed.texts.empty();
    const std::string field = fmt::format("{}[{}]", text ? "texts" : "ids", i);
    engine::Request to;
    if (out.ranker) {
      HEARTH_TRY(check_could_fit(model, embed.texts[i].size(), field));
      to.prompt = out.ranker->tokens(*model.tokenizer, embed.query, embed.texts[i], pause);
    } else if (text) {
      HEARTH_ASSIGN_OR_RETURN(to.prompt, text_tokens(model, embed.texts[i], field, pause));
    } else {
      HEARTH_TRY(check_ids(model, embed.ids[i], field));
      to.prompt = embed.ids[i];
    }
    if (std::cmp_greater(to.prompt.size(), model.context_length)) {
      return Error::context_overflow(
          fmt::format("{}: {} tokens, the context of model {} holds {}", field, to.prompt.size(),
                      model.name, model.context_length),
          text ? "texts" : "ids");
    }
    to.owner = to.cache_salt = request.owner;
    to.pooling = pooling;
    to.normalize = embed.normalize && !out.ranker;
    to.sampling.temperature = 0;
    to.use_prefix_store = false;
    to.speculate = false;
    out.texts.push_back(std::move(to));
  }
  return out;
}

template <typename T>
PrepResult result_of(uint64_t number, Result<T> outcome) {
  if (outcome.ok()) return {number, std::move(outcome).value()};
  return {number, outcome.take_error()};
}

}  // namespace

PrepModel make_prep_model(std::string name, int32_t context_length,
                          const models::Tokenizer& tokenizer, std::string draft,
                          const models::ChatTemplates* templates, std::string tool_form) {
  PrepModel model;
  model.name = std::move(name);
  model.context_length = context_length;
  model.tokenizer = &tokenizer;
  model.draft = std::move(draft);
  model.constraints = std::make_shared<ConstraintCache>(tokenizer);
  model.templates = templates;
  model.chat = std::make_shared<ChatModel>(tokenizer, templates, std::move(tool_form));
  model.adapters = std::make_shared<AdapterFiles>();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_end_of_generation(id)) model.end_ids.push_back(id);
  }
  return model;
}

PrepResult prepare(const PrepModel& model, const ipc::WorkerRequest& request,
                   models::EncodePause* pause) {
  return match(
      request.task,
      [&](const ipc::GenerateRequest&) {
        return result_of(request.id, prepare_generate(model, request, pause));
      },
      [&](const ipc::TokenizeRequest& tokenize) {
        return result_of(request.id, prepare_tokenize(model, tokenize, pause));
      },
      [&](const ipc::EmbedRequest&) {
        return result_of(request.id, prepare_embed(model, request, pause));
      });
}

}  // namespace hearth::worker
