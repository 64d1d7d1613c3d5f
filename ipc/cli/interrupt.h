#pragma once
// Ctrl-C and SIGTERM as a flag, so that a request is cancelled and what came is kept.

namespace hearth::cli {

/// From here on the first SIGINT or SIGTERM raises the flag; the second ends the program.
void catch_interrupts();
bool interrupted();
/// The flag is down again: for who goes on after it.
void clear_interrupt();

}  // namespace hearth::cli
