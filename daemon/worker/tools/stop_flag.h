#pragma once
// Ctrl-C, SIGTERM and SIGHUP as a flag, so that a verb ends between two pieces of work and cleans
// up behind itself.

namespace hearth::worker {

/// From here on these signals raise the flag and do nothing else; a closed pipe is a failed write.
void catch_stop_signals();
bool stop_wanted();

}  // namespace hearth::worker
