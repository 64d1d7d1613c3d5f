#pragma once
// Sets the scheduler time slice of this process's threads on a busy core. The broker works for
// microseconds and others wait for it; the worker computes as long as it can. Kernels with one
// slice length for all threads (Linux before 6.12) ignore it, and nothing depends on it.

namespace hearth::broker {

/// Requests slices of 0.1 ms for the calling thread and the threads that it starts later. Short
/// slices are scheduled sooner than long ones. False: the kernel refused.
bool take_short_turns();

/// Restores the default. Async-signal-safe, for a child between fork and exec.
void take_usual_turns();

}  // namespace hearth::broker
