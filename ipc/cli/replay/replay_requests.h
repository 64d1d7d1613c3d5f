#pragma once
// The requests of a replay: the recorded ones where the recording has their content, else requests
// of the same shape with synthetic prompts. Pure functions.
//
// A synthetic prompt has the recorded number of tokens, and shares as many of them with an earlier
// prompt of the recording as the daemon reported cached: with the latest one that is long enough,
// or with all of the longest one. That is what conversations do, except that their answers become
// part of the next prompt, which a synthetic one cannot contain.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ipc/client/request_log.h"
#include "ipc/schema/messages.h"

namespace hearth::cli {

class SyntheticPrompts {
 public:
  explicit SyntheticPrompts(std::span<const ipc::RecordedEvent> records);

  /// The prompt of records[index], of tokens that are drawn from `vocabulary` (not empty).
  std::vector<int32_t> ids(size_t index, std::span<const int32_t> vocabulary) const;
  /// Texts of an embed request, which share nothing.
  std::vector<std::vector<int32_t>> texts(size_t index, std::span<const int32_t> token_counts,
                                          std::span<const int32_t> vocabulary) const;

 private:
  struct Prompt {
    int32_t tokens = 0;
    int32_t shared = 0;  ///< of them, the first ones of `parent`
    size_t parent = 0;
  };
  std::vector<Prompt> prompts_;
};

struct ReplayChoices {
  std::string against;  ///< the model of all requests; "": as recorded
  /// cache_share of requests that name none, which then keep nothing on disk; "": none.
  std::string share;
};

/// The request as it is sent again: with the seed that the daemon reported, without `detach`, pins
/// and an earlier cancellation.
ipc::GenerateRequest replayed(ipc::GenerateRequest request, const ipc::RecordedEvent& record,
                              const ReplayChoices& choices);
/// The same for a shape: `prompt` in place of the content, and as many tokens as the answer had.
ipc::GenerateRequest replayed(ipc::GenerateRequest shape, const ipc::RecordedEvent& record,
                              std::vector<int32_t> prompt, const ReplayChoices& choices);

}  // namespace hearth::cli
