#pragma once
// The life of a request inside the broker: admission, waiting for its model, forwarding to a
// worker, passing on its answers, resuming on the next worker after a death, the end. Owned by the
// io thread.

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/config/config.h"
#include "daemon/broker/process/side_thread.h"
#include "daemon/broker/remote/remotes.h"
#include "daemon/broker/requests/admission.h"
#include "daemon/broker/requests/owners.h"
#include "daemon/broker/requests/prefix_routes.h"
#include "daemon/broker/requests/request_table.h"
#include "daemon/broker/requests/session.h"
#include "daemon/broker/requests/token_log.h"
#include "daemon/broker/residency/model_directory.h"
#include "daemon/broker/residency/residency.h"
#include "daemon/broker/transport/output_buffer.h"
#include "daemon/http/model_traffic.h"
#include "ipc/schema/messages.h"
#include "kernels/base/clock.h"

namespace hearth::broker {

struct RequestCounters {
  uint64_t total = 0;  ///< admitted
  uint64_t done = 0;
  uint64_t failed = 0;
  uint64_t cancelled = 0;
  uint64_t output_tokens = 0;
  uint64_t replies_dropped = 0;  ///< to connections that send and do not read
};

/// How a request ended: one of these.
struct RequestEnd {
  const ipc::DoneEvent* done = nullptr;
  const Error* error = nullptr;
  std::string_view reply{};  ///< JSON, of a request that does not generate
};

/// Follows a dispatcher's requests, on the io thread. Must not call the dispatcher.
class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  /// Before the request leaves the table and its log ends.
  virtual void on_end(const LiveRequest& request, const RequestEnd& end) = 0;
  virtual void on_connection_gone(const PeerId& peer) = 0;
  virtual void on_tick() = 0;
  /// After fail_all().
  virtual void on_fail_all(const Error& error) = 0;
};

class Dispatcher final : public ResidencyListener, public AnswerSink, public RemoteSink {
 public:
  Dispatcher(const Clock& clock, Admission& admission, ModelDirectory& models, Residency& residency,
             OutputBuffer& output, const LimitsConfig& limits = {})
      : clock_(clock),
        admission_(admission),
        models_(models),
        residency_(residency),
        output_(output),
        logs_(limits) {}

  /// Called with each generate request that ends with `done`.
  using OnDone = std::function<void(uint32_t owner, const std::string& id, const ipc::DoneEvent&)>;
  void on_done(OnDone fn) { on_done_ = std::move(fn); }
  void set_observer(RequestObserver& observer) { observer_ = &observer; }
  /// The thread that encodes large requests for a worker; without one, they are encoded on the io
  /// thread.
  /// `stores`: write what is kept; the bytes that wait for them count like requests.
  void set_side_thread(SideThread& side, std::vector<const SideThread*> stores = {}) {
    side_ = &side;
    threads_ = std::move(stores);
    threads_.push_back(&side);
  }
  /// Where requests may go that this machine has no room for; without, all stay.
  void set_remotes(Remotes& remotes) { remotes_ = &remotes; }
  Owners& owners() { return owners_; }
  const Owners& owners() const { return owners_; }
  /// The storage tiers that requests may use.
  void set_cache(const CacheConfig& cache) { cache_ = cache; }

  /// For answers kept from now on.
  void set_limits(const LimitsConfig& limits) { logs_.set_limits(limits); }

  /// Whether a request of `bytes` that may generate `tokens` would be admitted now, or the reason
  /// it would not.
  Result<void> admit(const Caller& caller, size_t bytes, int64_t tokens) const;
  /// A request of `bytes`. The client always gets an answer.
  void submit(const Caller& caller, const std::string& id, ipc::ComputeRequest request,
              size_t bytes);
  /// Answers the cancel message `id`; the request it names ends with its own `done`.
  void cancel(const Caller& caller, const std::string& id, const ipc::CancelRequest& request);
  /// Ends only the reasoning of a live request. kNotFound: the caller has none of that id.
  Result<void> end_reasoning(const Caller& caller, const std::string& id);
  /// This user's requests ask a model to stay in memory for so long (asked_stay.h). False: that
  /// changes nothing.
  bool keep_alive(const Caller& caller, const std::string& name, int64_t ms);
  /// The same for leaving once it is idle. kForbidden: other users have used it.
  Result<void> release(const Caller& caller, const std::string& name);
  /// Sends the answers so far of one of this owner's requests, then those that follow.
  void attach(const Caller& caller, const std::string& id, const ipc::AttachRequest& request);
  /// A new request that continues one of this owner's requests.
  void fork(const Caller& caller, const std::string& id, const ipc::ForkRequest& request);
  /// `role` now names another model: requests that used the role and have not begun move to it.
  void repoint(const std::string& role);
  /// A connection closed: its requests are cancelled.
  void connection_gone(const PeerId& peer);
  /// Ends every live request with this error.
  void fail_all(const Error& error);
  /// Checks deadlines and queue positions of waiting requests. Call a few times a second.
  void tick();

  /// An event that belongs to no live request (a reply or a refusal).
  void reply(const PeerId& peer, const std::string& id, const ipc::Event& event);
  void reply_error(const PeerId& peer, const std::string& id, Error error);

  const RequestTable& requests() const { return table_; }
  const TokenLogs& logs() const { return logs_; }
  const RequestCounters& counters() const { return counters_; }
  /// Of each model that has or had requests; nothing about workers.
  http::ModelTraffics traffic() const;
  /// Of each role with a remote.
  std::vector<ipc::RemoteStats> remote_stats() const;

  void on_answer(const std::string& model, uint64_t number, const ipc::Answer& answer,
                 int64_t read_us) override;
  void on_model_ready(const std::string& model) override;
  void on_model_stopped(const std::string& model) override;
  void on_model_asleep(const std::string&) override {}
  void on_model_lost(const std::string& model, const std::string& how) override;
  void on_model_failed(const std::string& model, const Error& error) override;
  void on_remote_text(uint64_t number, const std::string& model, const RemoteText& text) override;
  void on_remote_done(uint64_t number, const std::string& model,
                      const std::vector<std::string>& reasons, const ipc::Usage& usage) override;
  void on_remote_failed(uint64_t number, Error error) override;

 private:
  struct Origin;
  void submit(const Caller& caller, const std::string& id, ipc::ComputeRequest request,
              size_t bytes, Origin origin);
  void tell_watchers(LiveRequest& request, const OutgoingView& outgoing, bool must_fit);
  void unwatch(const PeerId& peer);
  void end_log(LiveRequest& request, const std::string& last);
  Result<ModelFile> file_of(const std::string& name);
  ModelFile route(const LiveRequest& request, const ModelFile& file);
  void move_to(LiveRequest& request, const ModelFile& replica);
  bool move_on(LiveRequest& request);
  void spread_waiting(const std::string& model);
  void want_replicas(const ModelFile& file, std::string_view chosen);
  void place(LiveRequest& request, const ModelFile& file);
  void forward(LiveRequest& request, Worker& worker);
  void on_encoded(uint64_t number, uint64_t encoding, std::string json);
  const Remote* remote_for(const LiveRequest& request) const;
  Result<void> may_leave(uint32_t owner, const std::string& role,
                         const ipc::ComputeRequest& request) const;
  bool leaves_now(const LiveRequest& request);
  void send_to_remote(LiveRequest& request);
  void send_late_ones_to_remotes();
  void on_remote_encoded(uint64_t number, uint64_t encoding, Result<RemoteRequest> encoded);
  void begin_remote_answer(LiveRequest& request, const std::string& model);
  void return_from_remote(LiveRequest& request, const Error& error);
  Result<ModelFile> servable_file_of(const std::string& name);
  void note_remote_done(const LiveRequest& request, ipc::DoneEvent* done, bool cancelled);
  void note_remote_error(const LiveRequest& request, Error* error);
  void on_recalled(LiveRequest& request, const ipc::Answer& answer);
  void forget_recalls(const std::string& replica);
  void on_delta(LiveRequest& request, const ipc::Answer& answer, int64_t read_us);
  void note_times(LiveRequest& request, const ipc::DeltaHeader& header, int64_t now_us);
  void on_event(LiveRequest& request, std::string_view json);
  void on_sample_done(LiveRequest& request, ipc::SampleDoneEvent done, std::string_view json);
  void send_once(LiveRequest& request, std::string TokenLog::*event, std::string_view json);
  void announce_waiting();
  std::vector<uint64_t> forwarded_to(const std::string& replica) const;
  void forward_waiting(const std::string& replica);
  void note_progress(LiveRequest& request);
  Result<void> check_same_file(LiveRequest& request, const Worker& worker);
  Result<LiveRequest*> live_of(const Caller& caller, const std::string& id);
  void end_reasoning(LiveRequest& request);
  void cancel_request(LiveRequest& request);
  void tell_worker_to_cancel(LiveRequest& request);

  // The ways a request ends in the broker; the reference is invalid afterwards. `json`: the
  // worker's event; empty: the broker ends the request itself.
  void end_done(LiveRequest& request, ipc::DoneEvent done, std::string_view json = {});
  void end_without_worker(LiveRequest& request, const std::string& reason);
  void split_adapter(ipc::ComputeRequest& request);
  /// The files of the adapters that a request names.
  Result<std::vector<std::filesystem::path>> adapters_of(const ipc::ComputeRequest& request);
  void end_all_without_worker(const std::vector<uint64_t>& numbers, const std::string& reason);
  void end_error(LiveRequest& request, ipc::ErrorEvent error, std::string_view json = {});
  void end_reply(LiveRequest& request, std::string_view json);
  void send_newest(LiveRequest& request, std::string_view json);

  enum class Size { kBounded, kMustFit };
  void send_event(LiveRequest& request, std::string_view json, Size size);
  void send(LiveRequest& request, OutgoingView outgoing, Size size);
  void on_overflow(LiveRequest& request);
  void on_reply_dropped(const PeerId& peer, const std::string& id);
  void erase(LiveRequest& request);

  const Clock& clock_;
  Admission& admission_;
  ModelDirectory& models_;
  Residency& residency_;
  OutputBuffer& output_;
  SideThread* side_ = nullptr;
  std::vector<const SideThread*> threads_;  // whose bytes count
  Remotes* remotes_ = nullptr;
  std::map<std::string, ipc::RemoteStats> remote_stats_;  // by role; entries stay
  TokenLogs logs_;
  RequestTable table_;
  std::map<std::string, PrefixRoutes> routes_;  // of models with replicas
  uint64_t watchers_made_ = 0;
  uint64_t encodings_made_ = 0;
  size_t num_suspects_ = 0;  // live requests that ran when a worker died
  RequestCounters counters_;
  http::ModelTraffics traffic_;  // of models that were sent requests; entries stay
  OnDone on_done_;
  RequestObserver* observer_ = nullptr;
  Owners owners_;
  CacheConfig cache_;
  std::set<PeerId> gone_;  // connections found closed since the last tick
};

}  // namespace hearth::broker
