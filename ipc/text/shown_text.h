#pragma once
// Formats untrusted text and numbers for display. Pure functions; any thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ipc/schema/worker_stats.h"

namespace hearth::ipc {

/// `text` (valid UTF-8) with every control character except newline and tab made visible: ESC as ␛,
/// the 8-bit controls as U+FFFD. For model output and untrusted names.
std::string terminal_safe(std::string_view text);

/// Any bytes as one line of a table: invalid UTF-8 becomes U+FFFD; control characters (line ends
/// and tabs included) and characters that change the writing direction are made visible. Cut after
/// `max_chars` characters, with "…" for the rest; 0: not cut.
std::string one_line(std::string_view bytes, size_t max_chars);

std::string human_bytes(uint64_t bytes);  ///< "1.2 GiB"
std::string human_count(uint64_t count);  ///< "1.1 M"
std::string human_duration(int64_t ms);   ///< "850 ms", "12.3 s", "2 h 5 min"

/// The state of a GPU on one line, empty if nothing is known: "NVIDIA H200: 83.1 GiB of
/// 139.8 GiB used, 97 % busy, 412 W of 700, 1755 MHz of 1980, memory 3201 MHz, 51 C, driver
/// 580.65.06, slowed by power limit".
std::string gpu_text(const GpuSnapshot& gpu);

/// "layers 0 to 11, 600.0 MiB weights, 1.0 GiB KV, 12.0 MiB more, of 2.0 GiB".
std::string stage_text(const StageUse& stage);

}  // namespace hearth::ipc
