#include "ipc/client/client.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "ipc/files/paths.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/curve.h"
#include "ipc/wire/probe.h"
#include "ipc/wire/socket.h"
#include "kernels/base/clock.h"
#include "kernels/base/match.h"
#include "kernels/base/numbers.h"
#include "kernels/base/random.h"

namespace hearth::ipc {
namespace fs = std::filesystem;
namespace {

constexpr int kCallMs = 5000;  ///< for verbs that the broker answers by itself
constexpr int kNoLimit = -1;

std::string random_prefix() { return fmt::format("{:08x}", random_bits() >> 32); }

}  // namespace

struct Client::Impl {
  Impl(ClientOptions given, fs::path dir, Context zmq, Socket dealer)
      : options(std::move(given)),
        runtime_dir(std::move(dir)),
        context(std::move(zmq)),
        socket(std::move(dealer)) {}

  /// What the client knows of a live generate request: per sample, the index its next token has.
  struct Stream {
    std::map<uint32_t, uint32_t> next_index;
    bool reader = false;  ///< attached to a request that goes on when this client leaves
  };

  Result<std::string> start(const ClientRequest& request, std::string_view id, bool reader) {
    std::string chosen = id.empty() ? new_id() : std::string(id);
    if (!is_request_id(chosen) || streams.contains(chosen)) {
      return Error::invalid("id: want 1 to 64 visible ASCII characters that no live request has",
                            "id");
    }
    HEARTH_TRY(send(chosen, request));
    streams[chosen].reader = reader;
    return chosen;
  }

  // ---- Sending ----

  Result<void> send(const std::string& id, const ClientRequest& request) {
    if (lost_error) return *lost_error;
    Message message;
    append(message, kProtocol, id, encode_request(request));
    switch (socket.send(message)) {
      case SendOutcome::kSent: return {};
      case SendOutcome::kWouldBlock:
        // The daemon's queue is full, or the connection has ended (it may not come back).
        HEARTH_TRY(check_listener());
        return Error::busy("the daemon takes no more requests just now");
      case SendOutcome::kUnreachable:
      case SendOutcome::kFailed: break;
    }
    return set_lost("the connection to the daemon failed");
  }

  Error set_lost(std::string message) {
    lost_error = Error::lost(std::move(message));
    return *lost_error;
  }

  Result<void> check_listener() {
    if (!options.tcp.empty()) return {};  // its silence shows that the daemon is gone
    const auto listener = probe_listener(api_socket(runtime_dir));
    if (listener.ok()) return {};
    return set_lost(fmt::format("the daemon is gone ({})", listener.error().message));
  }

  // ---- Receiving ----

  /// Takes everything that has arrived.
  Result<void> drain() {
    if (lost_error) return *lost_error;
    Message message;
    // A bound, so that a flood cannot keep the caller from its own timeout.
    for (int i = 0; i < 1000; ++i) {
      switch (socket.receive(message)) {
        case ReceiveOutcome::kReceived: break;
        case ReceiveOutcome::kWouldBlock: return {};
        case ReceiveOutcome::kMalformed: continue;
        case ReceiveOutcome::kFailed: return set_lost("the connection to the daemon failed");
      }
      last_heard_us = clock.now_us();
      unanswered_ping_us.reset();
      const auto frames = views(message);
      const auto parsed = parse_daemon_message(frames);
      if (parsed.ok()) HEARTH_TRY(take(*parsed));
    }
    return {};
  }

  Result<void> take(const DaemonMessage& message) {
    const std::string id(message.request_id);
    if (id == ping_id || id == call_id) return take_reply(id, message.answer);
    const auto found = streams.find(id);
    if (found == streams.end()) return {};  // the last words of a request that has ended
    if (message.answer.is_delta) {
      take_delta(id, found->second, message.answer);
      return {};
    }
    Result<Event> event = decode_event(message.answer.json);
    if (!event.ok()) {
      if (event.error().code != ErrorCode::kUnsupported) break_stream(id, event.take_error());
      return {};
    }
    if (const auto* attached = std::get_if<AttachedEvent>(&*event)) {
      for (uint32_t i = 0; i < attached->from.size(); ++i) {
        found->second.next_index[i] = std::max(0, attached->from[i]);
      }
    }
    const EventKind kind = kind_of(*event);
    if (kind == EventKind::kDone || kind == EventKind::kError || kind == EventKind::kReply) {
      streams.erase(found);
    }
    arrivals.push_back({id, std::move(event).value()});
    return {};
  }

  Result<void> take_reply(const std::string& id, const Answer& answer) {
    if (answer.is_delta) return {};
    Result<Event> event = decode_event(answer.json);
    if (event.ok()) {
      if (const auto* seen = std::get_if<PongReply>(&*event)) HEARTH_TRY(take_pong(*seen));
      switch (kind_of(*event)) {
        // tokenize may wait for its model; only a reply or an error ends the call.
        case EventKind::kQueued:
        case EventKind::kProgress:
        case EventKind::kStarted: return {};
        case EventKind::kLoading:
          if (id == call_id && on_loading) on_loading(std::get<LoadingEvent>(*event));
          return {};
        case EventKind::kPromptLogprobs:
        case EventKind::kSampleDone:
        case EventKind::kDone:
        case EventKind::kError:
        case EventKind::kAttached:
        case EventKind::kRecord:
        case EventKind::kReply: break;
      }
    }
    if (id == call_id) call_answer = std::move(event);
    return {};
  }

  Result<void> take_pong(const PongReply& seen) {
    if (!pong.instance.empty() && pong.instance != seen.instance) {
      return set_lost("the daemon was replaced by another (its instance id changed)");
    }
    pong = seen;
    return {};
  }

  void take_delta(const std::string& id, Stream& stream, const Answer& answer) {
    Result<Delta> delta = decode_delta(answer);
    if (!delta.ok()) return break_stream(id, delta.take_error());
    const DeltaHeader& header = delta->header;
    uint32_t& next = stream.next_index[header.sample];
    if (header.first_index != next) {
      return break_stream(
          id, Error::lost(fmt::format("sample {}: met token {}, want {}: a delta was lost",
                                      header.sample, header.first_index, next)));
    }
    next += header.num_tokens;
    arrivals.push_back({id, std::move(delta).value()});
  }

  /// What follows would be text with a hole in it.
  void break_stream(const std::string& id, Error error) {
    const bool reader = streams[id].reader;
    streams.erase(id);
    arrivals.push_back({id, Event(ErrorEvent{std::move(error), 0})});
    if (reader) return;
    (void)send(new_id(), CancelRequest{id});  // if it fails, the daemon is gone anyway
  }

  // ---- Waiting ----

  /// Waits until something arrives, a signal comes or `until_us` passes; pings the while.
  Result<void> wait(int64_t until_us) {
    HEARTH_TRY(drain());
    if (!arrivals.empty() || call_answer) return {};
    HEARTH_TRY(check_alive());
    const int64_t now_us = clock.now_us();
    const int64_t wake_us = std::min(until_us, next_check_us());
    if (wake_us > now_us) {
      PollItem item{.socket = &socket};
      poll({&item, 1}, narrow<int>((wake_us - now_us + 999) / 1000));
    }
    return drain();
  }

  int64_t interval_us() const { return int64_t{options.ping_interval_ms} * 1000; }
  int64_t patience_us() const {
    return std::max<int64_t>(options.lost_after_ms - options.ping_interval_ms, 1) * 1000;
  }
  int64_t next_check_us() const {
    if (!unanswered_ping_us) return last_heard_us + interval_us();
    return std::min(last_ping_us + interval_us(), *unanswered_ping_us + patience_us());
  }

  /// After ping_interval_ms of silence a ping; after lost_after_ms of it, lost. The silence counts
  /// from the first unanswered ping: a program that was busy elsewhere has not lost its daemon.
  Result<void> check_alive() {
    const int64_t now_us = clock.now_us();
    if (unanswered_ping_us && now_us - *unanswered_ping_us >= patience_us()) {
      return set_lost(
          fmt::format("the daemon has not answered for {} ms",
                      (now_us - *unanswered_ping_us) / 1000 + options.ping_interval_ms));
    }
    const int64_t quiet_since_us = unanswered_ping_us ? last_ping_us : last_heard_us;
    if (now_us - quiet_since_us < interval_us()) return {};
    last_ping_us = now_us;
    if (!unanswered_ping_us) unanswered_ping_us = now_us;
    const Result<void> sent = send(ping_id, PingRequest{});
    if (!sent.ok() && sent.error().code == ErrorCode::kLost) return sent.error();
    return {};
  }

  int64_t until_us(int timeout_ms) const {
    return timeout_ms < 0 ? INT64_MAX : clock.now_us() + int64_t{timeout_ms} * 1000;
  }

  // ---- Calls ----

  Result<Event> call(const ClientRequest& request, int timeout_ms) {
    call_id = new_id();
    call_answer.reset();
    HEARTH_TRY(send(call_id, request));
    const int64_t deadline_us = until_us(timeout_ms);
    // Arrivals of live streams are put aside in order, because wait() returns while there are any.
    std::deque<Arrival> kept;
    Result<void> waited;
    while (waited.ok() && !call_answer && clock.now_us() < deadline_us) {
      waited = wait(deadline_us);
      std::move(arrivals.begin(), arrivals.end(), std::back_inserter(kept));
      arrivals.clear();
    }
    arrivals = std::move(kept);
    call_id.clear();
    if (!waited.ok()) return waited.take_error();
    if (!call_answer) {
      return Error::deadline(fmt::format("no answer within {} ms", timeout_ms));
    }
    Result<Event> answer = std::move(*call_answer);
    call_answer.reset();
    if (answer.ok()) {
      if (auto* error = std::get_if<ErrorEvent>(&*answer)) return std::move(error->error);
    }
    return answer;
  }

  template <class Reply>
  Result<Reply> call_for(const ClientRequest& request, int timeout_ms) {
    HEARTH_ASSIGN_OR_RETURN(Event event, call(request, timeout_ms));
    if (auto* reply = std::get_if<Reply>(&event)) return std::move(*reply);
    return Error::protocol("the answer is not of the verb that was asked");
  }

  template <class Reply>
  Result<Reply> call_loading(const ClientRequest& request, const OnLoading& heard) {
    on_loading = heard;
    Result<Reply> reply = call_for<Reply>(request, kNoLimit);
    on_loading = nullptr;
    return reply;
  }

  // ---- Generation ----

  /// Runs request `id` to its end; what arrives for others goes to `others`.
  Result<DoneEvent> follow(Client& client, const std::string& id,
                           const GenerateCallbacks& callbacks, std::deque<Arrival>& others) {
    bool cancelled = false;
    while (true) {
      if (!cancelled && callbacks.cancelled && callbacks.cancelled()) {
        HEARTH_TRY(client.request_cancel(id));
        cancelled = true;
      }
      HEARTH_ASSIGN_OR_RETURN(std::optional<Arrival> arrival, client.next(100));
      if (!arrival) continue;
      if (arrival->request_id != id) {
        others.push_back(std::move(*arrival));
        continue;
      }
      using End = std::optional<Result<DoneEvent>>;
      End end = match(
          arrival->what,
          [&](const Delta& delta) -> End {
            if (callbacks.on_delta) callbacks.on_delta(delta);
            return {};
          },
          [&](Event& event) -> End {
            if (auto* done = std::get_if<DoneEvent>(&event)) return std::move(*done);
            if (auto* error = std::get_if<ErrorEvent>(&event)) return std::move(error->error);
            if (callbacks.on_event) callbacks.on_event(event);
            return {};
          });
      if (end) return std::move(*end);
    }
  }

  std::string new_id() { return fmt::format("{}-{}", prefix, ++last_id); }

  const ClientOptions options;
  const fs::path runtime_dir;
  Context context;
  Socket socket;  // after its context: closed before it
  SteadyClock clock;
  const std::string prefix = random_prefix();
  const std::string ping_id = prefix + "-ping";
  uint64_t last_id = 0;

  PongReply pong;
  std::optional<Error> lost_error;
  int64_t last_heard_us = 0;
  int64_t last_ping_us = 0;
  std::optional<int64_t> unanswered_ping_us;  ///< when the first of them was sent

  std::map<std::string, Stream> streams;
  std::deque<Arrival> arrivals;
  std::string call_id;
  std::optional<Result<Event>> call_answer;
  OnLoading on_loading;
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

Result<Client> Client::connect_tcp(const ClientOptions& options) {
  if (!is_curve_key(options.tcp_server_key)) {
    return Error::invalid("HEARTH_TCP_SERVER_KEY: want the daemon's public key, 40 characters");
  }
  if (options.tcp_key_file.empty()) {
    return Error::invalid(
        "HEARTH_TCP_KEY_FILE: want the file of your own secret key (hearth keygen FILE)");
  }
  HEARTH_ASSIGN_OR_RETURN(const CurveKeys keys, read_secret_key(options.tcp_key_file));
  HEARTH_ASSIGN_OR_RETURN(Context context, Context::create());
  SocketOptions socket_options;
  socket_options.reconnect = false;
  socket_options.max_frame_bytes = int64_t{256} << 20;
  HEARTH_ASSIGN_OR_RETURN(Socket socket,
                          Socket::open(context, SocketType::kDealer, socket_options));
  HEARTH_TRY(use_curve(socket, options.tcp_server_key, keys));
  HEARTH_TRY(socket.connect("tcp://" + options.tcp));
  auto impl = std::make_unique<Impl>(options, fs::path(), std::move(context), std::move(socket));
  impl->last_heard_us = impl->clock.now_us();
  const Result<PongReply> pong = impl->call_for<PongReply>(PingRequest{}, options.answer_ms);
  if (pong.ok()) return Client(std::move(impl));
  return Error::unavailable(
      fmt::format("no answer from tcp {}: no daemon is there, its public key is not "
                  "HEARTH_TCP_SERVER_KEY's, or its server.tcp_clients_file has no line "
                  "for this client's key, {}",
                  options.tcp, keys.public_key));
}

Result<Client> Client::connect(const ClientOptions& given) {
  ClientOptions options = given;
  if (options.tcp.empty() && options.runtime_dir.empty()) {
    const Environment environment = Environment::of_process();
    options.tcp = environment.variable("HEARTH_TCP");
    options.tcp_server_key = environment.variable("HEARTH_TCP_SERVER_KEY");
    options.tcp_key_file = environment.variable("HEARTH_TCP_KEY_FILE");
  }
  if (!options.tcp.empty()) return connect_tcp(options);
  std::vector<fs::path> dirs = {options.runtime_dir};
  if (options.runtime_dir.empty()) dirs = client_runtime_dirs(Environment::of_process());
  std::optional<Error> first;
  for (const fs::path& dir : dirs) {
    HEARTH_ASSIGN_OR_RETURN(const std::string endpoint, ipc_endpoint(api_socket(dir)));
    Result<PeerCredentials> listener = probe_listener(api_socket(dir));
    if (!listener.ok()) {
      // kForbidden is more precise than "not found", and starting a daemon does not resolve it.
      if (!first || listener.error().code == ErrorCode::kForbidden) first = listener.take_error();
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(Context context, Context::create());
    SocketOptions socket_options;
    socket_options.reconnect = false;  // another daemon knows nothing of our requests
    socket_options.max_frame_bytes = int64_t{256} << 20;
    HEARTH_ASSIGN_OR_RETURN(Socket socket,
                            Socket::open(context, SocketType::kDealer, socket_options));
    HEARTH_TRY(socket.connect(endpoint));
    auto impl = std::make_unique<Impl>(options, dir, std::move(context), std::move(socket));
    impl->last_heard_us = impl->clock.now_us();
    Result<PongReply> pong = impl->call_for<PongReply>(PingRequest{}, options.answer_ms);
    if (pong.ok()) return Client(std::move(impl));
    if (!first) {
      first = Error::unavailable(fmt::format("{}: pid {} listens and does not answer ({})",
                                             api_socket(dir).string(), listener->pid,
                                             pong.error().message));
    }
  }
  return Error::unavailable(fmt::format("no daemon: {}", first->message));
}

const PongReply& Client::daemon() const { return impl_->pong; }
const fs::path& Client::runtime_dir() const { return impl_->runtime_dir; }

Result<PongReply> Client::ping() { return impl_->call_for<PongReply>(PingRequest{}, kCallMs); }
Result<ModelsReply> Client::models() {
  return impl_->call_for<ModelsReply>(ModelsRequest{}, kCallMs);
}
Result<PsReply> Client::ps() { return impl_->call_for<PsReply>(PsRequest{}, kCallMs); }
Result<StatsReply> Client::stats() { return impl_->call_for<StatsReply>(StatsRequest{}, kCallMs); }
Result<HealthReply> Client::health() {
  return impl_->call_for<HealthReply>(HealthRequest{}, kCallMs);
}
Result<CacheReply> Client::cache(const CacheRequest& request) {
  return impl_->call_for<CacheReply>(request, kNoLimit);
}
Result<TokenizeReply> Client::tokenize(const TokenizeRequest& request) {
  return impl_->call_for<TokenizeReply>(request, kNoLimit);
}
Result<EmbedReply> Client::embed(const EmbedRequest& request) {
  return impl_->call_for<EmbedReply>(request, kNoLimit);
}
Result<CancelReply> Client::cancel(const std::string& request_id) {
  return impl_->call_for<CancelReply>(CancelRequest{request_id}, kCallMs);
}

Result<LoadReply> Client::load(const LoadRequest& request, const OnLoading& on_loading) {
  return impl_->call_loading<LoadReply>(request, on_loading);
}
Result<UnloadReply> Client::unload(const UnloadRequest& request, const OnLoading& on_loading) {
  return impl_->call_loading<UnloadReply>(request, on_loading);
}
Result<SwapReply> Client::swap(const SwapRequest& request, const OnLoading& on_loading) {
  return impl_->call_loading<SwapReply>(request, on_loading);
}

Result<std::string> Client::start(const GenerateRequest& request, std::string_view id) {
  return impl_->start(request, id, false);
}

Result<std::string> Client::attach(const AttachRequest& request, std::string_view id) {
  return impl_->start(request, id, true);
}

Result<std::string> Client::fork(const ForkRequest& request, std::string_view id) {
  return impl_->start(request, id, false);
}

Result<std::string> Client::start_embed(const EmbedRequest& request, std::string_view id) {
  return impl_->start(request, id, false);
}

Result<std::string> Client::record(const RecordRequest& request, std::string_view id) {
  return impl_->start(request, id, true);
}

Result<CancelReply> Client::end_reasoning(const std::string& request_id) {
  return impl_->call_for<CancelReply>(CancelRequest{.id = request_id, .reasoning = true}, kCallMs);
}

Result<void> Client::request_cancel(const std::string& request_id) {
  return impl_->send(impl_->new_id(), CancelRequest{request_id});
}

Result<std::optional<Arrival>> Client::next(int timeout_ms) {
  const int64_t until_us = impl_->until_us(timeout_ms);
  do {
    // What arrived before the daemon was lost is still good.
    if (impl_->arrivals.empty()) {
      Result<void> waited = impl_->wait(until_us);
      if (!waited.ok() && impl_->arrivals.empty()) return waited.take_error();
    }
    if (!impl_->arrivals.empty()) {
      std::optional<Arrival> arrival = std::move(impl_->arrivals.front());
      impl_->arrivals.pop_front();
      return arrival;
    }
  } while (impl_->clock.now_us() < until_us);
  return std::optional<Arrival>{};
}

size_t Client::num_live() const { return impl_->streams.size(); }
int Client::fd() const { return impl_->socket.fd(); }

Result<DoneEvent> Client::generate(const GenerateRequest& request,
                                   const GenerateCallbacks& callbacks) {
  HEARTH_ASSIGN_OR_RETURN(const std::string id, start(request));
  std::deque<Arrival> others;
  Result<DoneEvent> result = impl_->follow(*this, id, callbacks, others);
  impl_->arrivals.insert(impl_->arrivals.begin(), std::make_move_iterator(others.begin()),
                         std::make_move_iterator(others.end()));
  return result;
}

}  // namespace hearth::ipc
