#pragma once
// Cache marks in a conversation: "keep this message and everything before it for this long". A
// message or a tool carries the mark in the member `cache_keep_s`; `cache_keep_bytes` next to it
// limits the mark to that many bytes of the message's content. Templates never see these members,
// so the prompt is the same with and without marks.
//
// The marked tokens cannot be read off the template's output. Rendering the conversation cut off at
// the mark fails in the most important cases: many templates refuse a lone system message, put it
// into the first user message, or write earlier answers differently from the last. So the
// conversation is rendered a second time, unchanged except that all words after the mark are
// replaced; the common prefix of both texts does not depend on those words. It extends to the first
// word of the next message, some tokens past the mark. If a template writes the marked message
// after later content, the prefix is empty; if it refuses the changed conversation, nothing is kept
// and the request continues.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/wire/json.h"
#include "kernels/base/result.h"

namespace hearth::worker {

struct KeepMark {
  int64_t message = -1;  ///< in the list of messages; -1: on a tool, before all messages
  size_t bytes = std::string::npos;  ///< bytes of its text content; npos: the whole message
  int64_t seconds = 0;
};
inline constexpr size_t kMaxKeepMarks = 4;

/// Removes the marks from a conversation in the form that ChatTemplates::render takes.
/// kInvalidArgument names the message and member of an invalid mark, or reports more than
/// kMaxKeepMarks.
Result<std::vector<KeepMark>> take_marks(ipc::Json& conversation);

/// The same conversation with all words after the mark replaced.
ipc::Json changed_behind(ipc::Json conversation, const KeepMark& mark);

}  // namespace hearth::worker
