#pragma once
// The worker's main thread: communicates with the broker, detokenizes and streams. Slow work runs
// on other threads: decoding and tokenizing in prep, computing in the engine.

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/worker/load/options.h"
#include "daemon/worker/observe/events_publisher.h"
#include "daemon/worker/observe/kv_events.h"
#include "daemon/worker/serve/broker_link.h"
#include "daemon/worker/serve/embed_jobs.h"
#include "daemon/worker/serve/engine_thread.h"
#include "daemon/worker/serve/prep_thread.h"
#include "daemon/worker/text/sample_text.h"
#include "kernels/base/clock.h"

namespace hearth::worker {

/// A request from its receipt until `done`.
struct Stream {
  Asked asked{};            ///< set once prepared
  int64_t received_us = 0;  ///< time of receipt here; once prepared, by the broker, on our clock
  bool in_engine = false;
  bool cancelled = false;       ///< cancelled before it reached the engine
  bool ends_reasoning = false;  ///< as its client asked
  bool embeds = false;          ///< an embedding request, handled by EmbedJobs
  int32_t prompt_tokens = 0;
  int32_t max_tokens = 0;  ///< of each sample
  std::vector<std::string> relaxed{}, without_effect{};
  std::vector<int32_t> prompt;
  bool prompt_logprobs = false;  ///< requested by the client
  bool encoding = false;         ///< they are being encoded; later events are held until then
  std::vector<engine::EngineEvent> held{};
  int64_t flushed_us = 0;  ///< when tokens were last sent
  bool touched = false;    ///< has tokens to send

  struct Sample {
    SampleText text;
    std::string finish_reason;  ///< empty while it runs
  };
  std::vector<Sample> samples;  ///< set once prepared
};

class FrontDoor {
 public:
  /// `signal_fd`: a signalfd of SIGTERM. Starts loading.
  FrontDoor(const ServeOptions& options, BrokerLink link, int signal_fd);

  /// Serves until the broker sends stop, until drained, or until the broker disconnects. Returns
  /// the process's exit status.
  int run();

 private:
  enum class State {
    kLoading,
    kServing,
    kDraining,  ///< admits nothing new; ends after the live requests
    kSettling,  ///< admits nothing new; sleeps after the live requests
    kLeaving,   ///< has sent its last event; waits briefly for the broker's stop
    kEnded,
  };

  void wait();
  void on_signal();
  void on_broker();
  void on_load(LoadMessage& message);
  void on_loaded(EngineLoaded loaded);
  void on_prep(PrepAnswer& answer);
  void begin(uint64_t number, Stream& stream, PreparedRequest prepared);
  void on_engine(engine::EngineEvent& event);
  void on_started(const engine::StartedEvent& started);
  void on_snapshot(const engine::SnapshotEvent& event);

  void on_request(RequestText request);
  void on_cancel(uint64_t number);
  void on_end_reasoning(uint64_t number);
  void begin_draining();
  void leave();
  void heartbeat();
  void note_ceilings_when_idle();

  Stream* find_or_hold(uint64_t number, engine::EngineEvent& event);
  void on_token(Stream& stream, const engine::TokenEvent& token);
  void on_sample_done(Stream& stream, const engine::SampleDoneEvent& done);
  void on_request_done(Stream& stream, const engine::RequestDoneEvent& done);
  void flush_due();
  void send_kv_events_due();
  int wait_ms() const;
  void flush(uint64_t number, Stream& stream);
  void end_cancelled(uint64_t number);
  void end_embed(const std::optional<EmbedJobs::Outcome>& outcome);
  void encode(engine::PromptLogprobsEvent event);
  void on_encoded(uint64_t number, const std::string& json);
  Stream* find(uint64_t number);
  double ms_since(int64_t from_us) const;

  const ServeOptions options_;
  SteadyClock clock_;
  BrokerLink link_;
  const int signal_fd_;
  const int broker_pid_;
  State state_ = State::kLoading;
  int exit_status_ = 0;
  int64_t leave_by_us_ = 0;
  int64_t next_heartbeat_us_ = 0;
  bool snapshot_asked_ = false;
  int64_t idle_since_us_ = 0;
  uint64_t load_bytes_ = 0;  // of the weights, as reported while loading
  EventsPublisher events_;
  KvEventBatch kv_events_;
  std::map<uint64_t, Stream> streams_;
  std::vector<uint64_t> touched_;  // streams with tokens to send

  // Destruction runs from the last member up: prep reads the tokenizer, which the engine thread
  // owns.
  std::unique_ptr<EngineThread> engine_thread_;
  std::optional<EngineLoaded> engine_;
  std::unique_ptr<PrepThread> prep_;
  // Of low priority: for requests above kShortRequestBytes, and those that become no stream.
  std::unique_ptr<PrepThread> long_prep_;
  std::optional<EmbedJobs> embeds_;
  std::optional<GpuWatch> gpu_;
  std::future<void> noting_ceilings_;  // awaited before exit
};

}  // namespace hearth::worker
