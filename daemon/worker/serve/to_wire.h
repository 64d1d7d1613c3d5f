#pragma once
// Converts the engine's reports to wire messages.

#include "daemon/worker/serve/engine_thread.h"
#include "ipc/schema/messages.h"
#include "ipc/schema/worker_messages.h"

namespace hearth::worker {

ipc::SpeculationStats to_wire(const engine::SpeculationCounts& from);
ipc::WorkerSnapshot to_wire(const engine::EngineSnapshot& from);
ipc::WorkerReady to_wire(const EngineLoaded& loaded);
/// QueuedEvent while the request waits in the engine's queue, else ProgressEvent.
ipc::Event to_wire(const engine::ProgressEvent& from, const models::Tokenizer& tokenizer);

}  // namespace hearth::worker
