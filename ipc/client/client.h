#pragma once
// The client that a local program links (hearth::ipc). One thread; any number of requests at once.
//
//   #include "ipc/client/client.h"
//   using namespace hearth;
//
//   Result<ipc::Client> client = ipc::Client::connect();
//   if (!client.ok()) return fail(client.error().message);   // no daemon: known within 200 ms
//
//   ipc::GenerateRequest request;
//   request.prompt = "Once upon a time";
//   request.max_tokens = 200;
//   request.seed = 7;
//
//   ipc::GenerateCallbacks callbacks;
//   callbacks.on_delta = [](const ipc::Delta& delta) { std::cout << delta.text << std::flush; };
//   Result<ipc::DoneEvent> done = client->generate(request, callbacks);
//   if (!done.ok()) return fail(done.error().message);       // kLost: the daemon went away
//   std::cout << "\n" << done->usage.output_tokens << " tokens, seed " << done->seed << "\n";
//
//   // Or several at once, pulled:
//   Result<std::string> a = client->start(request), b = client->start(other);
//   while (client->num_live() > 0) {
//     Result<std::optional<ipc::Arrival>> next = client->next(1000);
//     if (!next.ok()) break;                                 // kLost
//     if (*next) handle((*next)->request_id, (*next)->what); // Delta or Event
//   }
//
// It never hangs: it pings while it waits. A daemon is lost if it sent nothing for about 1.5 s, its
// connection ended, or its instance id changed. Every call then returns kLost at once, and a new
// Client is needed. Destroying a Client cancels its live requests, except those with `detach`, to
// which attach() returns.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "ipc/schema/messages.h"
#include "kernels/base/result.h"

namespace hearth::ipc {

struct ClientOptions {
  /// The directory of the daemon's sockets; empty: the first of client_runtime_dirs() that answers.
  std::filesystem::path runtime_dir;
  /// "HOST:PORT": over TCP instead, with the daemon's public key and our own secret key's file;
  /// empty, and without a runtime_dir: $HEARTH_TCP, $HEARTH_TCP_SERVER_KEY, $HEARTH_TCP_KEY_FILE.
  std::string tcp = "";
  std::string tcp_server_key = "";
  std::filesystem::path tcp_key_file = {};
  int answer_ms = 1500;        ///< how long a daemon may take for its first pong
  int ping_interval_ms = 400;  ///< silence before a ping
  int lost_after_ms = 1500;    ///< silence after which it is lost; more than ping_interval_ms
};

/// Something for one request.
struct Arrival {
  std::string request_id;
  /// DoneEvent and ErrorEvent are the last of their request. A lost delta shows as an ErrorEvent
  /// kLost (and the request is cancelled), never as text with a hole.
  std::variant<Delta, Event> what;
};

struct GenerateCallbacks {
  std::function<void(const Delta&)> on_delta;
  std::function<void(const Event&)> on_event;  ///< queued, progress, started, sample_done, ...
  /// Called at least every 100 ms. If it returns true the request is cancelled, and its `done` has
  /// the reason `cancelled`.
  std::function<bool()> cancelled;
};

class Client {
 public:
  /// kUnavailable if no daemon listens (known within 200 ms) or the one that listens does not
  /// answer.
  static Result<Client> connect(const ClientOptions& options = {});
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  /// The daemon's latest pong.
  const PongReply& daemon() const;
  const std::filesystem::path& runtime_dir() const;

  // ---- One question, one answer: wait for it -------------------------------------------------
  Result<PongReply> ping();
  Result<ModelsReply> models();
  Result<PsReply> ps();
  Result<StatsReply> stats();
  Result<HealthReply> health();
  Result<CacheReply> cache(const CacheRequest& request);
  /// Loads the model if it is not resident, which may take long.
  Result<TokenizeReply> tokenize(const TokenizeRequest& request);
  Result<EmbedReply> embed(const EmbedRequest& request);
  /// Of a request of the same user, of this client or of another.
  Result<CancelReply> cancel(const std::string& request_id);
  /// Ends only the request's reasoning; its answer goes on.
  Result<CancelReply> end_reasoning(const std::string& request_id);

  /// Model management, for administrators. These wait until it is done, which may take long;
  /// `on_loading` receives the progress.
  using OnLoading = std::function<void(const LoadingEvent&)>;
  Result<LoadReply> load(const LoadRequest& request, const OnLoading& on_loading = {});
  Result<UnloadReply> unload(const UnloadRequest& request, const OnLoading& on_loading = {});
  Result<SwapReply> swap(const SwapRequest& request, const OnLoading& on_loading = {});

  // ---- Generation -----------------------------------------------------------------------------
  /// Runs one request to its end. The request's own error, or kLost.
  Result<DoneEvent> generate(const GenerateRequest& request, const GenerateCallbacks& callbacks);

  /// Sends a request and returns its id without waiting. An empty `id` is replaced by a random one.
  /// kBusy if nothing more can be sent at the moment.
  Result<std::string> start(const GenerateRequest& request, std::string_view id = {});
  /// Returns to a request of the same user, live or recently ended: an AttachedEvent, then its
  /// answers from that token on, then what follows. Destroying this Client does not cancel it. Like
  /// start().
  Result<std::string> attach(const AttachRequest& request, std::string_view id = {});
  /// New samples that continue such a request; answered like one. Like start().
  Result<std::string> fork(const ForkRequest& request, std::string_view id = {});
  /// Like start(); its EmbedReply or ErrorEvent arrives, perhaps after `queued`.
  Result<std::string> start_embed(const EmbedRequest& request, std::string_view id = {});
  /// The user's own requests as they end: a RecordingEvent, then a RecordedEvent for each, until
  /// this Client is destroyed. Like start().
  Result<std::string> record(const RecordRequest& request, std::string_view id = {});
  /// Cancels a live request; its DoneEvent follows. Does not wait.
  Result<void> request_cancel(const std::string& request_id);
  /// The next arrival of any live request; nothing after `timeout_ms` (0: without waiting; -1: no
  /// limit). kLost: see above.
  Result<std::optional<Arrival>> next(int timeout_ms);
  /// Started and not yet ended.
  size_t num_live() const;

  /// Becomes readable when something arrives, for a program with its own poll(2). Then call next(0)
  /// until it returns nothing. Also call it every ping_interval_ms.
  int fd() const;

 private:
  struct Impl;
  static Result<Client> connect_tcp(const ClientOptions& options);
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hearth::ipc
