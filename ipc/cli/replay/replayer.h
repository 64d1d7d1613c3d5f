#pragma once
// Sends recorded requests again at their recorded times, over one connection, and pairs what was
// recorded with what was measured. One thread.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ipc/cli/replay/comparison.h"
#include "ipc/cli/replay/replay_requests.h"
#include "ipc/client/client.h"
#include "ipc/client/request_log.h"
#include "ipc/wire/token_digest.h"
#include "kernels/base/clock.h"
#include "kernels/base/result.h"

namespace hearth::cli {

struct ReplaySettings {
  double speed = 1;          ///< arrivals this many times as fast
  int32_t concurrency = 64;  ///< live requests at a time; later ones wait
  ReplayChoices choices;
};

struct ReplayProgress {
  size_t requests = 0;
  size_t sent = 0;
  size_t ended = 0;
  size_t failed = 0;
  size_t late = 0;  ///< sent more than 100 ms after their time
};

class Replayer {
 public:
  Replayer(ipc::Client& client, const ipc::RequestLog& log, ReplaySettings settings);

  /// Runs until all requests have ended or `stopped` returns true. `show` is called a few times a
  /// second. kLost: the daemon went away; the requests that ended before are kept.
  Result<void> run(const std::function<bool()>& stopped,
                   const std::function<void(const ReplayProgress&)>& show);

  /// The requests that have ended.
  const std::vector<Compared>& compared() const { return compared_; }
  const ReplayProgress& progress() const { return progress_; }
  /// Requests whose recording failed before its prompt was known, and which have no content: there
  /// is nothing to send.
  size_t left_out() const { return left_out_; }
  /// Why the first request failed that did not fail when it was recorded; "": none did.
  const std::string& first_failure() const { return first_failure_; }

 private:
  struct Live {
    size_t index = 0;
    bool generates = true;
    int64_t sent_us = 0;
    std::vector<ipc::TokenDigest> digests;  ///< per sample
  };

  Result<ipc::ClientRequest> request(size_t index);
  Result<const std::vector<int32_t>*> vocabulary(const std::string& model);
  Result<bool> send_due(int64_t now_us);
  void take(const ipc::Arrival& arrival);
  void take_event(const std::string& id, Live& live, const ipc::Event& event);
  void end(const std::string& id, const Live& live, Measured replayed, SameText text);
  SameText same_text(const Live& live, const ipc::DoneEvent& done) const;
  int64_t due_us(size_t index) const;

  ipc::Client& client_;
  const ipc::RequestLog& log_;
  const ReplaySettings settings_;
  const SyntheticPrompts synthetic_;
  SteadyClock clock_;
  int64_t began_us_ = 0;
  size_t next_ = 0;
  std::map<std::string, std::vector<int32_t>> vocabularies_;  // of models, without content
  std::map<std::string, Live> live_;
  std::vector<Compared> compared_;
  ReplayProgress progress_;
  size_t left_out_ = 0;
  std::string first_failure_;
};

}  // namespace hearth::cli
