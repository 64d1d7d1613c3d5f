#pragma once
// Lines of a system prompt that a program writes anew for each request, such as a hash. A prompt
// that begins with one shares no prefix with any other, so nothing of it is cached. Where the
// operator allows it, lines that match a pattern are left out before the prompt is made.

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/http/requests/api_request.h"
#include "ipc/wire/json.h"

namespace hearth::http {

/// Whether the whole of `line` matches: `*` stands for any bytes, everything else for itself.
bool matches_line(std::string_view pattern, std::string_view line);

/// Whether a pattern names something: at least four bytes other than `*`, and no line break.
bool is_line_pattern(std::string_view pattern);

/// Removes the lines that match from the system prompt of a request: from `system`, from
/// `instructions`, and from the messages of the roles system and developer that precede all
/// others. Parts of a list are lines of their own. Returns the number of lines, at most 16.
int32_t leave_out_volatile_lines(const PromptRules& rules, Api api, ipc::Json& body);

}  // namespace hearth::http
