#pragma once
// How long this process's threads run at a time where others want the core too. The broker works
// for microseconds and is waited for; the worker computes for as long as it may. A kernel that
// knows only one length for all (Linux before 6.12) takes no notice, and nothing else depends on
// it.

namespace hearth::broker {

/// The calling thread, and those that it starts from here on, ask for turns of 0.1 ms, which come
/// sooner than long ones. False: the kernel refused.
bool take_short_turns();

/// As if it never had. Async-signal-safe, for a child on its way to be another program.
void take_usual_turns();

}  // namespace hearth::broker
