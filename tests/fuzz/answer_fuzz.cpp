// Any answer in any format: the same pieces however it is split, in UTF-8 where the answer is, and
// nothing lost: plain text is unchanged, and the output is not longer than the input, which has
// room for the escapes and quotes of formats whose strings are not JSON. And any way in which a
// template writes calls: a format that reads them, or the reason why none does.
//
// Input: a byte (kind), a byte (flags, below), the answer or the way of writing calls.

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "ipc/text/utf8.h"
#include "kernels/base/check.h"
#include "models/answer/answer_format.h"
#include "models/answer/answer_parser.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/tool_format_kinds.h"

namespace {

using namespace hearth;
using namespace hearth::models;

// Kinds after those of the formats.
constexpr int kNoCalls = fuzz::kToolFormatKinds, kChannelsAlone = kNoCalls + 1,
              kTemplate = kNoCalls + 2;

AnswerPieces read(const AnswerShape& shape, std::string_view text, size_t step, bool cut_short) {
  AnswerParser parser(shape);
  AnswerPieces all;
  for (size_t at = 0; at < text.size(); at += step) {
    AnswerPieces pieces;
    parser.push(text.substr(at, step), &pieces);
    for (const AnswerPiece& piece : pieces) append_piece(&all, piece.type, piece.text);
  }
  parser.reasoning();
  AnswerPieces last;
  parser.finish(&last, cut_short);
  for (const AnswerPiece& piece : last) append_piece(&all, piece.type, piece.text);
  return all;
}

void check_answer(const AnswerShape& shape, std::string_view text, bool cut_short) {
  const AnswerPieces whole = read(shape, text, text.size() + 1, cut_short);
  for (const size_t step : {size_t{1}, size_t{3}, size_t{7}}) {
    HEARTH_CHECK(read(shape, text, step, cut_short) == whole, "step {}", step);
  }
  size_t bytes = 0;
  bool in_call = false;
  for (const AnswerPiece& piece : whole) {
    if (piece.type == AnswerPiece::Type::kCall) in_call = true;
    if (piece.type == AnswerPiece::Type::kArguments) HEARTH_CHECK(in_call);
    if (ipc::is_valid_utf8(text)) HEARTH_CHECK(ipc::is_valid_utf8(piece.text));
    bytes += piece.text.size();
  }
  const bool json = shape.tools == nullptr || (shape.tools->style != CallStyle::kTagged &&
                                               shape.tools->style != CallStyle::kQuoted);
  const size_t most = json ? text.size() : 6 * text.size();
  HEARTH_CHECK(bytes <= most, "{} of {}", bytes, text.size());
  if (!shape.any()) HEARTH_CHECK(bytes == text.size());
}

/// A template that writes a call in the way of the input, in which bytes below a blank stand for
/// what Jinja writes. A template of any text is the template target's: few of them write a call.
std::string template_of(std::string_view way, int flags) {
  constexpr std::array<std::string_view, 9> kWrites = {
      "{{ c.function.name }}",
      "{{ c.function.arguments | tojson }}",
      "{{ c.function | tojson }}",
      "{{ '' + c.function.arguments }}",
      "{% for k, v in c.function.arguments.items() %}",
      "{{ k }}",
      "{{ v }}",
      "{% endfor %}",
      "{{ v | tojson }}"};
  std::string call;
  for (const char c : way) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte >= 1 && byte <= kWrites.size()) {
      call += kWrites[byte - 1];
    } else {
      call += c == '%' || c == '#' ? ' ' : c;
    }
  }
  constexpr std::array<std::string_view, 8> kReasoning = {
      "",
      "{% if enable_thinking == false %}</think>{% else %}<think>\n{% endif %}",
      "{% if thinking %}<think>{% else %}</think>{% endif %}",
      "{% if thinking_budget == 0 %}<think></think>{% endif %}",
      "{% if reasoning_effort == 'none' %}[off]{% endif %}{# </think> #}",
      "{# <|channel|> <|message|> <|start|>assistant #}",
      "<think>{# [/THINK] </think> #}",
      "</think>"};
  std::string out = "{% for m in messages %}<|{{ m.role }}|>";
  // Before it, text; in place of it, a message without content; or calls are not rendered at all.
  out += (flags & 8) != 0 ? "{% if m.content is none or m.role == 'user' %}{{ m.content }}"
                          : "{% if true %}{{ m.content or '' }}";
  out += (flags & 16) != 0 ? "{% if false %}" : "{% if true %}";
  out += "{% for c in m.tool_calls or [] %}" + call + "{% endfor %}{% endif %}{% endif %}";
  out += "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>";
  return out + std::string(kReasoning[static_cast<size_t>(flags & 7)]) + "{% endif %}";
}

void check_format(std::string_view way, int flags) {
  GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_string("tokenizer.chat_template", template_of(way, flags));
  const std::vector<std::byte> bytes = writer.bytes();
  const Result<GgufFile> file = GgufFile::parse(bytes, "fuzz");
  if (!file.ok()) return;  // no UTF-8
  ChatSurroundings with;
  with.bos_token = "<s>";
  const AnswerFormat format = find_answer_format(ChatTemplates::load(*file), true, with);
  HEARTH_CHECK((format.tools == nullptr) == !format.problem.empty());
  HEARTH_CHECK(std::ranges::none_of(format.marks(), &std::string::empty));
  if (format.tools == nullptr) return;
  HEARTH_CHECK(find_tool_format(format.tools->id) == format.tools);
  HEARTH_CHECK(format.channels == (format.tools->style == CallStyle::kChannels));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const int kind = input.number(0, 63);
  const int flags = input.byte();
  const std::string_view text = input.rest();
  if (kind == kTemplate) {
    check_format(text, flags);
    return 0;
  }
  AnswerShape shape;
  shape.tools = fuzz::tool_format_of_kind(kind);
  if (shape.tools != nullptr) {
    shape.channels = shape.tools->style == CallStyle::kChannels;
    if ((flags & 8) == 0) shape.functions = {{"f", {"a"}}, {"g"}};
  } else if (kind == kChannelsAlone) {
    shape.channels = true;
  } else if (kind != kNoCalls) {
    return 0;  // a free number
  }
  if ((flags & 1) != 0) shape.reasoning = {"<think>", "</think>"};
  shape.reasoning_open = (flags & 2) != 0;
  shape.one_call = (flags & 4) != 0;
  shape.must_call = (flags & 16) != 0;
  check_answer(shape, text, (flags & 32) != 0);
  return 0;
}
