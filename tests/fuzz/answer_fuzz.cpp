// Any answer in any format: the same pieces however it is split, in UTF-8 where the answer is, and
// nothing lost: plain text is unchanged, and the output is not longer than the input, which has
// room for the escapes and quotes of formats whose strings are not JSON.
//
// Input: a byte (format), a byte (reasoning, open, one call), the answer.

#include <string>
#include <string_view>

#include "ipc/text/utf8.h"
#include "kernels/base/check.h"
#include "models/answer/answer_parser.h"
#include "tests/fuzz/input.h"

namespace {

using namespace hearth;
using namespace hearth::models;

AnswerPieces read(const AnswerShape& shape, std::string_view text, size_t step) {
  AnswerParser parser(shape);
  AnswerPieces all;
  for (size_t at = 0; at < text.size(); at += step) {
    AnswerPieces pieces;
    parser.push(text.substr(at, step), &pieces);
    for (const AnswerPiece& piece : pieces) append_piece(&all, piece.type, piece.text);
  }
  AnswerPieces last;
  parser.finish(&last);
  for (const AnswerPiece& piece : last) append_piece(&all, piece.type, piece.text);
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const auto formats = tool_formats();
  const auto which = static_cast<size_t>(input.number(0, static_cast<int>(formats.size())));
  const int flags = input.number(0, 7);
  AnswerShape shape;
  if (which < formats.size()) {
    shape.tools = &formats[which];
    shape.channels = shape.tools->style == CallStyle::kChannels;
    shape.functions = {{"f", {"a"}}, {"g"}};
  }
  if ((flags & 1) != 0) shape.reasoning = {"<think>", "</think>"};
  shape.reasoning_open = (flags & 2) != 0;
  shape.one_call = (flags & 4) != 0;
  const std::string_view text = input.rest();
  const AnswerPieces whole = read(shape, text, text.size() + 1);
  for (const size_t step : {size_t{1}, size_t{3}, size_t{7}}) {
    HEARTH_CHECK(read(shape, text, step) == whole, "step {}", step);
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
  return 0;
}
