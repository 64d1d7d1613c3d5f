#pragma once
// Marks in a conversation: "keep this message and all before it, for so long". A message, or a
// tool, says so in a member of its own, `cache_keep_s`; `cache_keep_bytes` beside it leaves out
// what comes behind the first so many bytes of the message's content. No template sees these
// members: a prompt is the same with marks and without.
//
// Which tokens are meant cannot be read off a template's output, and cutting the conversation at
// the mark and rendering that fails where it matters most: many templates refuse a system message
// alone, put it into the first user message, or write earlier answers otherwise than the last. So
// the conversation is rendered a second time as it is but with all words behind the mark changed:
// what both texts begin with is what does not depend on them. It goes on to where the next
// message's own words begin, some tokens past the mark. Where a template writes all of the marked
// message behind something that is said later, that is nothing; and where it refuses the changed
// conversation, nothing is kept and the request goes on.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/wire/json.h"
#include "kernels/base/result.h"

namespace hearth::worker {

struct KeepMark {
  int64_t message = -1;              ///< in the list of messages; -1: on a tool, before all of them
  size_t bytes = std::string::npos;  ///< of its content, a text; npos: the whole message
  int64_t seconds = 0;
};
inline constexpr size_t kMaxKeepMarks = 4;

/// Takes the marks out of a conversation as ChatTemplates::render wants it. kInvalidArgument names
/// the message and member that is no mark, or says that there are more than kMaxKeepMarks.
Result<std::vector<KeepMark>> take_marks(ipc::Json& conversation);

/// The same conversation, all that is said behind the mark said in other letters.
ipc::Json changed_behind(ipc::Json conversation, const KeepMark& mark);

}  // namespace hearth::worker
