#pragma once
// The events that answer `record`: a user's own requests with their timings, for `hearth record`
// and `hearth replay`.

#include <cstdint>
#include <string>
#include <vector>

#include "ipc/schema/events.h"
#include "ipc/schema/requests.h"

namespace hearth::ipc {

/// The first answer to `record`; sent again after records were lost.
struct RecordingEvent {
  bool text = false;  ///< as asked
  uint64_t lost = 0;  ///< records dropped so far, because the connection did not read
  bool operator==(const RecordingEvent&) const = default;
};

/// One request that has ended.
struct RecordedEvent {
  int64_t arrival_us = 0;  ///< from the start of the recording
  std::string model;       ///< the file, not the role
  /// The request, a generate or an embed; its seed is set. Without `text`, its shape: see
  /// shape_of().
  JsonText request;
  std::string error;                        ///< the code's name; "": it did not fail
  std::vector<std::string> finish_reasons;  ///< as in DoneEvent
  uint64_t seed = 0;
  Usage usage;
  Timings timings;                   ///< embed: total_ms alone
  std::vector<int32_t> text_tokens;  ///< embed: tokens of each text
  std::vector<std::string> digests;  ///< with `text`: of each sample's token ids
  bool operator==(const RecordedEvent&) const = default;
};

/// What remains of a request without its content: no text, ids, schemas, biases or names given by
/// the user. Still a valid request, with an empty prompt.
GenerateRequest shape_of(const GenerateRequest& request);
/// As many texts as `request` has, all empty.
EmbedRequest shape_of(const EmbedRequest& request);

}  // namespace hearth::ipc
