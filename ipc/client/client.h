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
// It never hangs. While anything is waited for it pings; a daemon from which nothing came for about
// 1.5 s, whose connection ended, or whose instance id changed is lost: every call then returns
// kLost, at once, and a new Client is needed. The end of a Client cancels its live requests, but
// for those with `detach`, which attach() comes back to.

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
  /// Where the daemon's sockets are; empty: client_runtime_dirs() in order, the first that answers.
  std::filesystem::path runtime_dir;
  /// "HOST:PORT": over TCP instead, with the daemon's public key and our own secret key's file;
  /// empty, and without a runtime_dir: $HEARTH_TCP, $HEARTH_TCP_SERVER_KEY, $HEARTH_TCP_KEY_FILE.
  std::string tcp = "";
  std::string tcp_server_key = "";
  std::filesystem::path tcp_key_file = {};
  int answer_ms = 1500;        ///< for the first pong of a daemon whose socket is open
  int ping_interval_ms = 400;  ///< of silence, then a ping
  int lost_after_ms = 1500;    ///< of silence; more than ping_interval_ms
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
  /// Asked at least every 100 ms; true cancels once, and `done` then says so.
  std::function<bool()> cancelled;
};

class Client {
 public:
  /// kUnavailable where no daemon listens (within 200 ms) or the one that does answers nothing.
  static Result<Client> connect(const ClientOptions& options = {});
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  /// What the daemon last said of itself.
  const PongReply& daemon() const;
  const std::filesystem::path& runtime_dir() const;

  // ---- One question, one answer: wait for it -------------------------------------------------
  Result<PongReply> ping();
  Result<ModelsReply> models();
  Result<PsReply> ps();
  Result<StatsReply> stats();
  Result<HealthReply> health();
  Result<CacheReply> cache(const CacheRequest& request);
  /// Loads the model where it is not resident; that may take long.
  Result<TokenizeReply> tokenize(const TokenizeRequest& request);
  Result<EmbedReply> embed(const EmbedRequest& request);
  /// Of a request of the same user, of this client or of another.
  Result<CancelReply> cancel(const std::string& request_id);

  /// The models' places in memory, for administrators. They wait until it is done, which may take
  /// long; `on_loading` hears how far it is.
  using OnLoading = std::function<void(const LoadingEvent&)>;
  Result<LoadReply> load(const LoadRequest& request, const OnLoading& on_loading = {});
  Result<UnloadReply> unload(const UnloadRequest& request, const OnLoading& on_loading = {});
  Result<SwapReply> swap(const SwapRequest& request, const OnLoading& on_loading = {});

  // ---- Generation -----------------------------------------------------------------------------
  /// Runs one request to its end. The request's own error, or kLost.
  Result<DoneEvent> generate(const GenerateRequest& request, const GenerateCallbacks& callbacks);

  /// Sends a request and returns its id without waiting. `id` empty: chosen here. kBusy when
  /// nothing more can be sent just now.
  Result<std::string> start(const GenerateRequest& request, std::string_view id = {});
  /// Goes back to a request of the same user, live or ended a short while ago: an AttachedEvent,
  /// then what it was answered from that token on, then what comes. The end of this Client does not
  /// end it. As start().
  Result<std::string> attach(const AttachRequest& request, std::string_view id = {});
  /// New samples that go on from such a request; answered like one. As start().
  Result<std::string> fork(const ForkRequest& request, std::string_view id = {});
  /// Asks for the end of a live request; its DoneEvent follows. Does not wait.
  Result<void> request_cancel(const std::string& request_id);
  /// The next arrival of any live request; nothing after `timeout_ms` (0: without waiting; -1: no
  /// limit). kLost: see above.
  Result<std::optional<Arrival>> next(int timeout_ms);
  /// Started and not yet ended.
  size_t num_live() const;

  /// Becomes readable when something arrives, for a program with its own poll(2): then call
  /// next(0) until it returns nothing; and call it every ping_interval_ms anyway.
  int fd() const;

 private:
  struct Impl;
  static Result<Client> connect_tcp(const ClientOptions& options);
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hearth::ipc
