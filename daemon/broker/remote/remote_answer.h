#pragma once
// Reads the stream of OpenAI's completion APIs as it arrives, in any pieces: server-sent events
// whose data are chunks of an answer. The bytes come from another server and are not trusted:
// lines, events and the whole answer are bounded, and anything but such a stream is an error that
// describes it. Pure.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/schema/events.h"
#include "kernels/base/result.h"

namespace hearth::broker {

/// New text of a sample, as the payload of a delta without tokens: a remote's tokens have no ids
/// here.
struct RemoteText {
  uint32_t sample = 0;
  std::string payload{};
};

/// Words of another server, for an error: at most 200 bytes between quotes, without control
/// characters.
std::string quote_remote(std::string_view text);

class RemoteAnswer {
 public:
  static constexpr size_t kMaxEventBytes = 1 << 20;
  static constexpr size_t kMaxTextBytes = 16 << 20;

  RemoteAnswer(bool chat, int32_t samples) : chat_(chat), samples_(samples) {}

  /// The next bytes of the body; their texts are appended to `out`. After an error, no more.
  Result<void> add(std::string_view bytes, std::vector<RemoteText>* out);
  /// The body has ended. An error if the answer is not complete.
  Result<void> end();
  /// All samples have ended, and the stream has.
  bool complete() const { return done_; }

  /// The model that the remote names, with visible characters alone; "": none yet.
  const std::string& model() const { return model_; }
  /// Per sample, as in SampleDoneEvent.
  std::vector<std::string> reasons() const;
  /// As the remote counts; zeros if it does not.
  const ipc::Usage& usage() const { return usage_; }
  size_t text_bytes() const { return text_bytes_; }  ///< of all texts so far

 private:
  using Json = nlohmann::ordered_json;
  struct Sample {
    std::string reason{};   // "": it has not ended
    int32_t num_calls = 0;  // the last of them is open
  };

  Result<void> on_line(std::string_view line, std::vector<RemoteText>* out);
  Result<void> on_event(std::string_view data, std::vector<RemoteText>* out);
  Result<void> on_choice(const Json& choice, std::vector<RemoteText>* out);
  Result<void> take_parts(const Json& choice, Sample& sample, std::vector<ipc::DeltaPart>* parts);
  Result<void> add_calls(const Json& calls, Sample& sample, std::vector<ipc::DeltaPart>* parts);
  void read_usage(const Json& usage);

  const bool chat_;
  std::vector<Sample> samples_;
  std::string line_;  // so far
  std::string data_;  // of the event so far
  std::string model_;
  ipc::Usage usage_;
  size_t text_bytes_ = 0;
  bool done_ = false;
};

}  // namespace hearth::broker
