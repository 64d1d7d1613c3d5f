#pragma once
// Records Ctrl-C, SIGTERM and SIGHUP in a flag, so that a verb ends between two pieces of work and
// cleans up.

namespace hearth::worker {

/// From now on these signals only set the flag, and writing to a closed pipe returns an error.
void catch_stop_signals();
bool stop_wanted();

}  // namespace hearth::worker
