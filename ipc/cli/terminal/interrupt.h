#pragma once
// Ctrl-C and SIGTERM as a flag, so that a request is cancelled and its output so far is kept.

namespace hearth::cli {

/// From now on the first SIGINT or SIGTERM sets the flag and the second ends the program.
void catch_interrupts();
bool interrupted();
/// Clears the flag, for callers that continue after an interrupt.
void clear_interrupt();

}  // namespace hearth::cli
