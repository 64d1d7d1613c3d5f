// Any schema, GBNF, regular expression and functions to call give a grammar or an error with a
// message, soon. The rest of the input walks through the grammar; masks agree with asking for each
// token, and an answer that has to be a call is read as one.
//
// Input: a byte (kind), for calls two bytes (format, flags), the source, the byte 0x1E, bytes that
// choose among what is allowed. Of calls the source is a schema of arguments, and after the byte
// 0x1D one of the answer.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/call_grammar.h"
#include "engine/grammar/constraint.h"
#include "kernels/base/check.h"
#include "models/answer/answer_parser.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/tool_format_kinds.h"

namespace {

using namespace hearth;
using namespace hearth::engine;

/// Of control marks, by their symbols.
constexpr size_t kMostMarks = 8;

std::shared_ptr<const TokenTrie> vocabulary() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> out = {"", "{\"", "\":", "\": ", "true", "12", "\xC3\xA9", "\\u00"};
    for (int b = 0; b < 256; ++b) out.emplace_back(1, static_cast<char>(b));
    for (size_t i = 0; i < kMostMarks; ++i) out.push_back(mark_symbol(i));
    return out;
  }();
  const std::vector<std::string_view> pieces(texts.begin(), texts.end());
  return std::make_shared<TokenTrie>(pieces);
}

/// Takes a way by `choices`; a token that is the only one takes none. Returns the text if it is
/// complete.
std::optional<std::string> walk(Grammar grammar, std::string_view choices) {
  static const std::shared_ptr<const TokenTrie> trie = vocabulary();
  constexpr int kMostSteps = 1000;
  Constraint constraint(std::move(grammar), trie);
  int32_t state = Constraint::kStart;
  std::string text;
  for (int step = 0; step < kMostSteps; ++step) {
    const std::vector<uint64_t> bits = constraint.mask(state).bits;
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < trie->vocab_size(); ++id) {
      const auto at = static_cast<size_t>(id);
      const bool may = (bits[at / 64] >> (at % 64) & 1) != 0;
      HEARTH_CHECK(may == (constraint.advance(state, id) != Constraint::kDead), "token {}", id);
      if (may) allowed.push_back(id);
    }
    if (allowed.empty()) break;
    size_t chosen = 0;
    if (allowed.size() > 1) {
      if (choices.empty()) break;
      chosen = static_cast<uint8_t>(choices.front()) % allowed.size();
      choices.remove_prefix(1);
    }
    text += trie->piece(allowed[chosen]);
    state = constraint.advance(state, allowed[chosen]);
  }
  if (!constraint.accepts(state)) return std::nullopt;
  return text;
}

std::string with_marks(std::string_view text, const std::vector<std::string>& marks) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\xFF') {
      out += marks.at(static_cast<uint8_t>(text[++i]) - 1u);
    } else {
      out += text[i];
    }
  }
  return out;
}

/// An answer that has to consist of calls does, as the parser reads it.
void check_calls(const CallGrammar& wanted, std::string_view text) {
  models::AnswerShape shape;
  shape.tools = wanted.format;
  shape.channels = wanted.format->style == models::CallStyle::kChannels;
  for (const CallableFunction& function : wanted.functions) {
    shape.functions.push_back({function.name, string_parameters(function.schema)});
  }
  shape.reasoning = wanted.reasoning;
  shape.reasoning_open = wanted.reasoning_open;
  models::AnswerParser parser(shape);
  models::AnswerPieces pieces;
  parser.push(with_marks(text, wanted.control_marks), &pieces);
  parser.finish(&pieces);
  using Type = models::AnswerPiece::Type;
  HEARTH_CHECK(std::ranges::any_of(pieces, [](const auto& p) { return p.type == Type::kCall; }));
  HEARTH_CHECK(std::ranges::none_of(pieces, [](const auto& p) { return p.type == Type::kText; }));
}

struct Compiled {
  Result<Grammar> grammar;
  std::optional<CallGrammar> calls{};
};

Compiled compile_calls(fuzz::Input* input, std::string_view* walk) {
  CallGrammar wanted;
  wanted.format = fuzz::tool_format_of_kind(input->number(0, fuzz::kToolFormatKinds - 1));
  if (wanted.format == nullptr) return {Error::invalid("a free number")};
  const int flags = input->byte();
  const std::string_view all = input->rest();
  const size_t gap = std::min(all.find('\x1E'), all.size());
  const std::string_view source = all.substr(0, gap);
  *walk = all.substr(std::min(gap + 1, all.size()));
  const size_t end = std::min(source.find('\x1D'), source.size());
  wanted.functions = {{"f", std::string(source.substr(0, end)), (flags & 1) != 0}, {"g", "{}"}};
  if (end < source.size()) wanted.answer_schema = source.substr(end + 1);
  wanted.among_text = (flags & 2) != 0 && wanted.answer_schema.empty();
  wanted.one_call = (flags & 4) != 0;
  if ((flags & 8) != 0) wanted.reasoning = {"<think>", "</think>"};
  wanted.reasoning_open = (flags & 24) == 24;
  if ((flags & 32) != 0) {
    for (const std::string_view mark : wanted.format->marks) {
      if (wanted.control_marks.size() < kMostMarks) wanted.control_marks.emplace_back(mark);
    }
  }
  wanted.relax_answer = (flags & 64) != 0;
  std::vector<std::string> relaxed;
  Result<Grammar> grammar = compile_call_grammar(wanted, (flags & 128) != 0 ? &relaxed : nullptr);
  return {std::move(grammar), std::move(wanted)};
}

/// The number of a new kind is the next.
Compiled compile(fuzz::Input* input, std::string_view* walk) {
  const int kind = input->number(0, 15);
  if (kind == 3) return compile_calls(input, walk);
  const std::string_view all = input->rest();
  const size_t gap = std::min(all.find('\x1E'), all.size());
  const std::string_view source = all.substr(0, gap);
  *walk = all.substr(std::min(gap + 1, all.size()));
  std::vector<std::string> relaxed;
  switch (kind) {
    case 0: return {compile_gbnf(source)};
    case 1: return {compile_json_schema(source)};
    case 2: return {compile_regex(source)};
    case 4: return {compile_json_schema(source, &relaxed)};
    default: return {Error::invalid("a free number")};
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  std::string_view choices;
  Compiled compiled = compile(&input, &choices);
  if (!compiled.grammar.ok()) {
    HEARTH_CHECK(!compiled.grammar.error().message.empty());
    return 0;
  }
  if (compiled.grammar->num_nodes() > 20'000) return 0;  // right, and slow
  const auto text = walk(std::move(*compiled.grammar), choices);
  if (!text || !compiled.calls) return 0;
  const CallGrammar& wanted = *compiled.calls;
  if (!wanted.among_text && wanted.answer_schema.empty()) check_calls(wanted, *text);
  return 0;
}
