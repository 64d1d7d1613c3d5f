#pragma once
// Everything that goes between clients and the daemon; protocol.h has the frames.

#include <variant>

#include "ipc/schema/deltas.h"
#include "ipc/schema/events.h"
#include "ipc/schema/protocol.h"
#include "ipc/schema/record.h"
#include "ipc/schema/replies.h"
#include "ipc/schema/requests.h"

namespace hearth::ipc {

/// Every JSON event that a client can be sent.
using Event =
    std::variant<QueuedEvent, ProgressEvent, StartedEvent, PromptLogprobsEvent, SampleDoneEvent,
                 DoneEvent, ErrorEvent, PongReply, TokenizeReply, CancelReply, ModelsReply, PsReply,
                 StatsReply, HealthReply, LoadingEvent, LoadReply, UnloadReply, SwapReply,
                 CacheReply, AttachedEvent, EmbedReply, RecordingEvent, RecordedEvent>;

/// What an event is, without its members. All replies to verbs are one kind.
enum class EventKind {
  kQueued,
  kProgress,
  kStarted,
  kPromptLogprobs,
  kSampleDone,
  kDone,
  kError,
  kLoading,
  kAttached,
  kRecord,  ///< both events that answer `record`
  kReply,
};

}  // namespace hearth::ipc
