#include "daemon/broker/broker.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <thread>
#include <utility>

#include "daemon/broker/config/reload.h"
#include "daemon/broker/residency/worker_process.h"
#include "ipc/files/paths.h"
#include "ipc/schema/version.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/first_verb.h"
#include "ipc/wire/frames.h"
#include "kernels/base/log.h"
#include "kernels/base/log_level.h"
#include "kernels/base/match.h"
#include "kernels/base/random.h"

namespace hearth::broker {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{100};
// Descriptors of all but clients: workers, model and cache programs, remotes, files, epoll.
constexpr size_t kOtherDescriptors = 160 + Remotes::kMaxCalls;
constexpr uint64_t kSecondTicks = 10;
constexpr uint64_t kMemoryEveryTicks = 20;
// Delay before a full connection is retried: short at first, longer for a long stall.
constexpr int64_t kRetryMinMs = 1;
constexpr int64_t kRetryMaxMs = 16;
// How often to ask the service manager for more time, and for how much.
constexpr int64_t kExtendEveryUs = 1'000'000;
constexpr int64_t kExtendMs = 30'000;
// Two round trips of a client that asks again at once.
constexpr int64_t kAwakeUs = 100;
// How long workers may take to exit once the live requests have ended.
constexpr int64_t kWorkersExitUs = 5'000'000;

// If no program is found, the first use reports it.
std::filesystem::path worker_program(const WorkerConfig& config) {
  const Result<std::filesystem::path> found = find_worker_program(config);
  return found.ok() ? *found : std::filesystem::path("hearth-worker-cpu");
}

bool computes(ipc::Verb verb) {
  return verb == ipc::Verb::kGenerate || verb == ipc::Verb::kTokenize || verb == ipc::Verb::kEmbed;
}

}  // namespace

Result<std::unique_ptr<Broker>> Broker::create(const Config& config, ReadConfig reread) {
  ::umask(0077);  // files are private unless their mode is widened explicitly
  HEARTH_ASSIGN_OR_RETURN(Rights rights, Rights::create(config.server.admin_group, ::geteuid()));
  HEARTH_ASSIGN_OR_RETURN(RuntimeDir runtime_dir, RuntimeDir::take(config.server.runtime_dir));
  std::unique_ptr<Broker> broker(new Broker(config, std::move(runtime_dir), std::move(rights)));
  broker->reread_ = std::move(reread);
  HEARTH_TRY(broker->remotes_.configure(config.remotes));
  HEARTH_TRY(broker->listen());
  HEARTH_TRY(broker->listen_for_watchers());
  return broker;
}

Broker::Broker(const Config& config, RuntimeDir runtime_dir, Rights rights)
    : config_(config),
      runtime_dir_(std::move(runtime_dir)),
      rights_(std::move(rights)),
      signals_(io_, SIGTERM, SIGINT),
      sleep_signals_(io_, SIGUSR1, SIGUSR2),
      reload_signal_(io_, SIGHUP),
      tick_timer_(io_),
      output_timer_(io_),
      watchdog_timer_(io_),
      instance_{.id = fmt::format("{:016x}", random_bits()),
                .version = std::string(ipc::version()),
                .started_us = clock_.now_us(),
                .draining = false},
      models_(config.server.model_dirs, config.roles, config.server.other_model_dirs),
      admission_(config.limits),
      output_(config.limits.output_buffer_bytes,
              [this](const PeerId& peer, const OutgoingView& outgoing) {
                return send_to_client(peer, outgoing);
              }),
      residency_(clock_, config_,
                 MemoryBudget(
                     config_.residency.memory_bytes, [this] { return memory_.available_bytes(); },
                     [this] { return memory_.pressed(); }),
                 [this](const ModelFile& file, WorkerListener& lifecycle) {
                   return start_worker(file, lifecycle);
                 }),
      dispatcher_(clock_, admission_, models_, residency_, output_, config.limits),
      remotes_(io_, clock_, dispatcher_),
      model_verbs_(clock_, models_, residency_, dispatcher_),
      model_facts_(io_, worker_program(config.worker)),
      reports_(clock_, instance_, config_, models_, model_facts_, residency_, dispatcher_),
      cache_verbs_(io_, {worker_program(config.worker),
                         config.worker.prefix_store ? config.server.state_dir : "",
                         config.server.model_dirs, config.worker.prefix_pinned_bytes}),
      disk_budget_(config.server.state_dir.empty() ? std::filesystem::path()
                                                   : config.server.state_dir / "prefix",
                   config.cache.disk_bytes,
                   [this](std::set<std::string>& open, std::set<std::string>& known) {
                     models_.rescan();
                     for (const auto& name : residency_.running()) open.insert(database_name(name));
                     for (const auto& [name, file] : models_.models()) {
                       known.insert(database_name(name));
                     }
                   }),
      recorders_(clock_, dispatcher_, output_, config.limits.output_buffer_bytes, &side_),
      http_(dispatcher_, output_, reports_, side_, responses_, batches_, cache_verbs_, acceptor_,
            shares_) {
  residency_.add_listener(dispatcher_);
  residency_.add_listener(model_verbs_);
  dispatcher_.set_cache(config.cache);
  dispatcher_.set_remotes(remotes_);
  dispatcher_.owners().configure(config.owners);
  dispatcher_.set_side_thread(side_, {&responses_.thread(), &batches_.thread()});
  reports_.set_kept(responses_, batches_);
  dispatcher_.on_done([this](uint32_t owner, const std::string& id, const ipc::DoneEvent& done) {
    cache_verbs_.misses().note(owner, id, done);
  });
}

Result<void> Broker::listen() {
  const LimitsConfig& bounds = config_.limits;
  const size_t message_bytes = bounds.max_message_bytes;
  TransportLimits limits;
  limits.message = {.kept_frames = ipc::kMaxFrames,
                    .kept_bytes = message_bytes,
                    // Leaves room to answer with the reason before the connection ends.
                    .max_bytes = message_bytes + (1 << 20)};
  limits.connections = bounded_connections(
      bounds.max_connections,
      kOtherDescriptors + kMaxListeners + kMaxListenerConnections + config_.http.max_connections);
  // One user cannot take all the connections.
  limits.connections_per_user = std::min<size_t>(bounds.max_connections_per_owner,
                                                 limits.connections - limits.connections / 4);
  limits.receiving_bytes_per_user = message_bytes + (1 << 20);
  TransportHandlers handlers;
  handlers.on_message = [this](const TransportPeer& peer, zmtp::Message message) {
    const uint32_t uid = peer.credentials.uid;
    on_client_message(Caller{.peer = {.door = Door::kIpc, .uid = uid, .number = peer.number},
                             .uid = uid,
                             .is_admin = rights_.is_admin(peer.credentials)},
                      std::move(message));
  };
  const auto peer_id = [](const TransportPeer& peer) {
    return PeerId{.door = Door::kIpc, .uid = peer.credentials.uid, .number = peer.number};
  };
  handlers.on_writable = [this, peer_id](const TransportPeer& peer) { on_writable(peer_id(peer)); };
  handlers.on_gone = [this, peer_id](const TransportPeer& peer) { on_gone(peer_id(peer)); };
  HEARTH_ASSIGN_OR_RETURN(
      clients_, TransportServer::open(io_, clock_, acceptor_, shares_, runtime_dir_.api_socket(),
                                      SocketKind::kRouter, limits, std::move(handlers)));
  log_debug("bounds", "connections={} per_owner={}", limits.connections,
            limits.connections_per_user);
  if (!config_.server.tcp.empty()) HEARTH_TRY(listen_on_tcp());
  return http_.open(io_, config_, runtime_dir_.path(), instance_.id);
}

Result<void> Broker::listen_on_tcp() {
  TcpDoor::Handlers handlers;
  const auto peer_id = [](uint64_t number, uint32_t uid) {
    return PeerId{.door = Door::kTcp, .uid = uid, .number = number};
  };
  handlers.on_message = [this, peer_id](uint64_t number, uint32_t uid, zmtp::Message message) {
    // A key identifies a user. It never makes an administrator: that requires credentials from this
    // machine's kernel.
    on_client_message(Caller{.peer = peer_id(number, uid), .uid = uid, .is_admin = false},
                      std::move(message));
  };
  handlers.on_gone = [this, peer_id](uint64_t number, uint32_t uid) {
    on_gone(peer_id(number, uid));
  };
  HEARTH_ASSIGN_OR_RETURN(
      tcp_, TcpDoor::open(io_, clock_, config_.server, config_.limits.max_message_bytes,
                          ipc::workers_dir(runtime_dir_.path()) / "tcp.sock", std::move(handlers)));
  return {};
}

Result<std::unique_ptr<Worker>> Broker::start_worker(const ModelFile& file,
                                                     WorkerListener& lifecycle) {
  WorkerConfig config = config_.worker_of(file.model());
  ipc::ServeSettings settings;
  use_device(file, config_, &config, &settings);
  HEARTH_ASSIGN_OR_RETURN(const std::filesystem::path program, find_worker_program(config));
  const std::filesystem::path socket = runtime_dir_.worker_socket(++workers_started_);
  config.device = device_of_worker(config);
  if (file.draft != "auto") config.draft = file.draft;
  if (config.device != "cpu") {
    const uint64_t configured = config.prefix_ram_bytes;
    const uint64_t share =
        prefix_ram_share(configured, memory_.available_bytes(), residency_.host_bytes_to_come());
    if (share < configured) {
      log_info("prefix_ram", "model={} bytes={} configured={} why=\"half of what is free\"",
               file.name, share, configured);
    }
    config.prefix_ram_bytes = share;
  }
  settings.engine = config;
  settings.sampling = config_.sampling.of(file.model());
  settings.log_level = name(config_.server.log_level);
  settings.kv_events = config_.kv_events.publish;
  if (config.prefix_cache && config.prefix_store && !config_.server.state_dir.empty()) {
    settings.prefix_dir = (config_.server.state_dir / "prefix").string();
  }
  const WorkerProcess::Setup setup{.model = file.name,
                                   .number = workers_started_,
                                   .argv = worker_arguments(program, file.path, socket, settings),
                                   .socket = socket,
                                   .heartbeat_timeout_ms = config_.worker.heartbeat_timeout_ms,
                                   .load_timeout_ms = config_.worker.load_timeout_ms};
  const WorkerProcess::Receivers to{lifecycle, dispatcher_, *events_, kv_events_.get()};
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<WorkerProcess> worker,
                          WorkerProcess::start(io_, clock_, setup, to));
  return std::unique_ptr<Worker>(std::move(worker));
}

Result<void> Broker::listen_for_watchers() {
  HubSources sources;
  sources.stats = [this] { return ipc::encode_event(reports_.stats()); };
  sources.models = [this] { return ipc::encode_event(reports_.models()); };
  sources.requests = [this] { return reports_.hub_requests(); };
  sources.watch_workers = [this](bool on) {
    for (const auto& [name, resident] : residency_.residents()) {
      if (resident.worker != nullptr) resident.worker->watch(on);
    }
  };
  HEARTH_ASSIGN_OR_RETURN(
      events_, EventHub::open(io_, clock_, acceptor_, shares_, rights_,
                              ipc::events_socket(runtime_dir_.path()), std::move(sources)));
  HEARTH_ASSIGN_OR_RETURN(kv_events_, open_kv_events(io_, clock_, acceptor_, shares_,
                                                     config_.kv_events, runtime_dir_.path(),
                                                     std::bind_front(&Rights::is_admin, &rights_)));
  return {};
}

void Broker::run() {
  wait_for_signal();
  wait_for_sleep();
  wait_for_reload();
  const std::string& start = config_.server.start;
  if (start == "loaded" || (start == "auto" && systemd_.active())) model_verbs_.preload();
  every_tick();
  if (systemd_.watchdog_interval_ms() > 0) feed_watchdog();
  log_info("ready", "version={} instance={} socket={} models={}", instance_.version, instance_.id,
           runtime_dir_.api_socket().string(), models_.models().size());
  run_loop();
}

// A client that was just answered often asks again, and waking up takes longer than answering, so
// spin briefly before sleeping. Streams do not extend the spinning.
void Broker::run_loop() {
  while (io_.run_one() > 0) {
    while (steady_.now_us() < awake_until_us_ && !io_.stopped()) {
      if (io_.poll() == 0) std::this_thread::yield();
    }
  }
}

// ---- Clients -----------------------------------------------------------------------------------

void Broker::on_client_message(const Caller& caller, zmtp::Message message) {
  const std::vector<std::string_view> frames(message.frames.begin(), message.frames.end());
  const std::string id(ipc::request_id_of(frames).value_or(""));
  if (caller.peer.door == Door::kTcp && !output_.retry(caller.peer)) {
    dispatcher_.connection_gone(caller.peer);
  }
  if (std::cmp_greater(message.num_bytes, config_.limits.max_message_bytes)) {
    return refuse(caller, id,
                  Error::too_large(fmt::format("message of {} bytes, limit {}", message.num_bytes,
                                               config_.limits.max_message_bytes)));
  }
  const Result<ipc::ClientMessage> parsed = ipc::parse_client_message(frames);
  if (!parsed) return refuse(caller, id, parsed.error());
  const size_t bytes = message.num_bytes;
  // Refuse excess requests of a flood at once: parsing them first would delay all of them.
  if (const std::optional<ipc::Verb> verb = ipc::first_verb(parsed->json);
      verb && computes(*verb)) {
    if (Result<void> room = dispatcher_.admit(caller, bytes, 0); !room) {
      dispatcher_.reply_error(caller.peer, id, room.take_error());
      return hold_if_behind(caller.peer);
    }
  }
  if (bytes <= kInlineBytes) {
    handle(caller, id, ipc::decode_request(parsed->json), bytes);
    return hold_if_behind(caller.peer);
  }
  // Parse it on the side thread. Meanwhile take nothing more from this connection, because its next
  // message may refer to this request.
  const bool ipc = caller.peer.door == Door::kIpc;
  if (ipc) clients_->hold(caller.peer.number);
  auto json = std::make_shared<std::string>(std::move(message.frames[2]));
  auto request = std::make_shared<std::optional<Result<ipc::ClientRequest>>>();
  side_.run(
      caller.uid, bytes, [json, request] { request->emplace(ipc::take_request(std::move(*json))); },
      [this, caller, id, request, bytes, ipc] {
        handle(caller, id, std::move(**request), bytes);
        hold_if_behind(caller.peer);
        if (ipc) clients_->release(caller.peer.number);
      });
}

void Broker::refuse(const Caller& caller, std::string_view id, Error error) {
  ++num_malformed_;
  log_debug("malformed", "count={} code={} error=\"{}\"", num_malformed_, name(error.code),
            error.message);
  // Without a readable id the client could not match the answer to its message.
  if (!id.empty()) dispatcher_.reply_error(caller.peer, std::string(id), std::move(error));
  hold_if_behind(caller.peer);
}

// Stop reading from a connection that does not read its answers.
void Broker::hold_if_behind(const PeerId& peer) {
  if (peer.door != Door::kIpc || !output_.is_behind(peer)) return;
  if (behind_.insert(peer.number).second) clients_->hold(peer.number);
}

void Broker::on_writable(const PeerId& peer) {
  if (!output_.retry(peer)) return on_gone(peer);
  if (output_.backlog_bytes(peer) == 0 && behind_.erase(peer.number) > 0) {
    clients_->release(peer.number);
  }
}

void Broker::on_gone(const PeerId& peer) {
  if (peer.door == Door::kIpc) behind_.erase(peer.number);
  output_.drop(peer);
  dispatcher_.connection_gone(peer);
}

// The daemon's own user could place the file in a model directory as well. Callers over TCP or HTTP
// are never administrators here.
Result<void> Broker::adopt_path(const Caller& caller, ipc::ClientRequest* request) {
  if (!caller.is_admin || caller.uid != ::geteuid()) return {};
  const auto adopt = [this](std::string& model) -> Result<void> {
    if (!model.starts_with('/')) return {};
    HEARTH_ASSIGN_OR_RETURN(model, models_.adopt(model));
    return {};
  };
  return std::visit(
      [&adopt](auto& each) -> Result<void> {
        if constexpr (requires { each.model; } &&
                      !std::is_same_v<std::decay_t<decltype(each)>, ipc::CacheRequest>) {
          return adopt(each.model);
        }
        return {};
      },
      *request);
}

void Broker::handle(const Caller& caller, const std::string& id, Result<ipc::ClientRequest> decoded,
                    size_t bytes) {
  if (!decoded) return refuse(caller, id, decoded.take_error());
  ipc::ClientRequest request = std::move(decoded).value();
  if (Result<void> adopted = adopt_path(caller, &request); !adopted) {
    return dispatcher_.reply_error(caller.peer, id, adopted.take_error());
  }
  const auto reply = [&](const ipc::Event& event) {
    dispatcher_.reply(caller.peer, id, event);
    awake_until_us_ = steady_.now_us() + kAwakeUs;
  };
  const auto compute = [&](auto& each) { dispatcher_.submit(caller, id, std::move(each), bytes); };
  // While it stops, the broker changes no models.
  const auto change_models = [&](auto change) {
    if (!admission_.draining()) return change();
    dispatcher_.reply_error(caller.peer, id, Error::unavailable("the daemon is stopping"));
  };
  match(
      request,
      [&](const ipc::PingRequest&) { dispatcher_.reply(caller.peer, id, reports_.pong()); },
      [&](ipc::GenerateRequest& generate) { compute(generate); },
      [&](ipc::TokenizeRequest& tokenize) { compute(tokenize); },
      [&](ipc::EmbedRequest& embed) { compute(embed); },
      [&](const ipc::AttachRequest& attach) { dispatcher_.attach(caller, id, attach); },
      [&](const ipc::ForkRequest& fork) { dispatcher_.fork(caller, id, fork); },
      [&](const ipc::CancelRequest& cancel) { dispatcher_.cancel(caller, id, cancel); },
      [&](const ipc::RecordRequest& record) { recorders_.start(caller, id, record); },
      [&](const ipc::ModelsRequest&) { reply(reports_.models()); },
      [&](const ipc::PsRequest&) { reply(reports_.ps(caller)); },
      [&](const ipc::StatsRequest&) { reply(reports_.stats()); },
      [&](const ipc::HealthRequest&) { reply(reports_.health()); },
      [&](const ipc::LoadRequest& load) {
        change_models([&] { model_verbs_.load(caller, id, load); });
      },
      [&](const ipc::UnloadRequest& unload) {
        change_models([&] { model_verbs_.unload(caller, id, unload); });
      },
      [&](const ipc::SwapRequest& swap) {
        change_models([&] { model_verbs_.swap(caller, id, swap); });
      },
      [&](const ipc::CacheRequest& cache) {
        cache_verbs_.handle(caller, cache,
                            [this, peer = caller.peer, id](Result<ipc::CacheReply> answer) {
                              if (!answer.ok())
                                return dispatcher_.reply_error(peer, id, answer.take_error());
                              dispatcher_.reply(peer, id, *answer);
                            });
      });
}

ipc::SendOutcome Broker::send_to_client(const PeerId& peer, const OutgoingView& outgoing) {
  if (peer.door == Door::kNone) return ipc::SendOutcome::kUnreachable;
  if (peer.door == Door::kHttp) {
    const ipc::SendOutcome outcome = http_.send(peer.number, outgoing);
    // Retry on a timer as well, so that the pending output of a reader that has stopped ends its
    // connection.
    if (outcome == ipc::SendOutcome::kWouldBlock) retry_output();
    return outcome;
  }
  std::array<std::string_view, 6> frames = {ipc::kProtocol, outgoing.request_id,
                                            outgoing.is_delta ? ipc::kDeltaFrame : ipc::kEventFrame,
                                            outgoing.payload};
  size_t count = 4;
  if (outgoing.is_delta) frames[count++] = outgoing.ids;
  if (!outgoing.logprobs.empty()) frames[count++] = outgoing.logprobs;
  const std::span<const std::string_view> message(frames.data(), count);
  if (peer.door == Door::kIpc) return clients_->send(peer.number, message);
  const ipc::SendOutcome outcome = tcp_->send(peer.number, message);
  if (outcome == ipc::SendOutcome::kWouldBlock) retry_output();
  return outcome;
}

// libzmq does not signal that a full TCP connection has room again, so retry on a timer.
void Broker::retry_output() {
  if (output_retry_armed_) return;
  output_retry_armed_ = true;
  output_timer_.expires_after(milliseconds(output_retry_ms_));
  output_timer_.async_wait([this](const boost::system::error_code& error) {
    output_retry_armed_ = false;
    if (error) return;
    const size_t before = output_.total_bytes();
    for (const PeerId& peer : output_.retry()) dispatcher_.connection_gone(peer);
    const bool moved = output_.total_bytes() < before;
    output_retry_ms_ = moved ? kRetryMinMs : std::min(kRetryMaxMs, output_retry_ms_ * 2);
    if (output_.has_backlog()) {
      retry_output();
    } else {
      output_retry_ms_ = kRetryMinMs;
    }
  });
}

// ---- Time and signals --------------------------------------------------------------------------

void Broker::every_tick() {
  ++ticks_;
  residency_.tick();
  remotes_.tick();
  dispatcher_.tick();
  model_verbs_.tick();
  disk_budget_.tick(clock_.now_us());
  http_.tick(clock_.now_us());
  if (ticks_ % kSecondTicks == 1 && drain_deadline_us_ == 0) {
    models_.refresh();
    model_facts_.refresh(models_.models());
  }
  say_when_ready();
  watch_new_workers();
  clients_->tick();
  if (tcp_ != nullptr) tcp_->tick();
  events_->tick();
  if (kv_events_ != nullptr) kv_events_->tick();
  if (ticks_ % kSecondTicks == 0 && rights_.refresh(false)) {
    log_info("admins_changed", "group={}", config_.server.admin_group);
  }
  if (systemd_.active()) report_status();
  if (ticks_ % kMemoryEveryTicks == 0) return_memory();
  if (drain_deadline_us_ != 0) check_drained();
  tick_timer_.expires_after(kTick);
  tick_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) every_tick();
  });
}

void Broker::wait_for_signal() {
  signals_.async_wait([this](const boost::system::error_code& error, int number) {
    if (error) return;
    log_info("signal", "number={}", number);
    if (drain_deadline_us_ != 0) return io_.stop();  // the second signal
    begin_draining();
    wait_for_signal();
  });
}

// The service manager's hook sends these signals before and after the machine sleeps.
void Broker::wait_for_sleep() {
  sleep_signals_.async_wait([this](const boost::system::error_code& error, int number) {
    if (error) return;
    log_info(number == SIGUSR1 ? "sleep" : "awake", "closes={}", config_.server.sleep_closes);
    if (number == SIGUSR1) {
      residency_.suspend([this](const Worker& worker) {
        const std::string& closes = config_.server.sleep_closes;
        if (closes == "gpu") {
          return worker.facts() != nullptr && !worker.facts()->device.starts_with("cpu");
        }
        return closes == "all";
      });
    } else {
      residency_.resume();
    }
    wait_for_sleep();
  });
}

void Broker::wait_for_reload() {
  reload_signal_.async_wait([this](const boost::system::error_code& error, int) {
    if (error) return;
    if (reread_ && drain_deadline_us_ == 0) reload();
    wait_for_reload();
  });
}

// A file with an error changes nothing. Existing requests and workers keep their settings.
void Broker::reload() {
  systemd_.reloading();
  Result<Config> next = reread_();
  if (next) {
    if (auto read = remotes_.configure(next->remotes); !read) next = read.take_error();
  }
  if (!next) {
    log_error("not_reloaded", "error=\"{}\"", next.error().message);
  } else {
    const ConfigChanges changes = take_over(*next, &config_);
    set_log_level(config_.server.log_level);
    for (const Setting& setting : changes.taken) {
      log_info("reloaded", "{}={} from=\"{}\"", setting.key, setting.value, setting.source);
    }
    for (const Setting& setting : changes.refused) {
      log_warn("needs_restart", "{}={} from=\"{}\"", setting.key, setting.value, setting.source);
    }
    admission_.set_limits(config_.limits);
    dispatcher_.set_limits(config_.limits);
    dispatcher_.owners().configure(config_.owners);
    std::map<std::string, std::string> roles;
    for (const std::string& role : changes.roles) {
      const auto found = config_.roles.find(role);
      roles[role] = found == config_.roles.end() ? "" : found->second;
    }
    models_.configure(config_.server.model_dirs, config_.server.other_model_dirs, roles);
    rights_.refresh(true);
    if (tcp_ != nullptr) {
      if (const auto read = tcp_->read_clients(config_.server.tcp_clients_file); !read.ok()) {
        log_error("not_reloaded", "error=\"{}\"", read.error().message);
      }
    }
    if (const auto read = http_.reload(); !read.ok()) {
      log_error("not_reloaded", "error=\"{}\"", read.error().message);
    }
    for (const std::string& role : changes.roles) dispatcher_.repoint(role);
  }
  // Not before the first report: the service cannot generate a token yet.
  if (said_ready_) systemd_.ready(fmt::format("serving {}", runtime_dir_.path().string()));
}

void Broker::begin_draining() {
  systemd_.stopping();
  instance_.draining = true;
  admission_.stop_admitting();
  batches_.stop();
  drain_deadline_us_ = clock_.now_us() + config_.server.drain_timeout_ms * 1000;
  log_info("draining", "live={} timeout_ms={}", dispatcher_.requests().size(),
           config_.server.drain_timeout_ms);
  check_drained();
}

void Broker::check_drained() {
  const bool late = clock_.now_us() >= drain_deadline_us_;
  if (!workers_told_) {
    if (dispatcher_.requests().size() > 0 && !late) return;
    const Error stopped = Error::unavailable("the daemon stopped before the request could end");
    dispatcher_.fail_all(stopped);
    model_verbs_.fail_all(stopped);
    residency_.drain();
    workers_told_ = true;
    drain_deadline_us_ = clock_.now_us() + kWorkersExitUs;
    return;
  }
  // For TCP, at least one tick has passed since libzmq took the last answer.
  const bool sent = !output_.has_backlog() && clients_->idle() && http_.idle();
  if ((residency_.empty() && sent) || late) {
    log_info("stopped", "workers_left={} unsent_bytes={}", residency_.empty() ? 0 : 1,
             output_.total_bytes());
    io_.stop();
  }
}

// Reports ready once the service could generate a token: the default role's model is loaded, has
// failed (the status then gives the error, and other models are served), or is not loaded at start.
void Broker::say_when_ready() {
  if (said_ready_ || drain_deadline_us_ != 0) return extend_timeout();
  if (model_verbs_.preloading()) return extend_timeout();
  said_ready_ = true;
  systemd_.ready(fmt::format("serving {}", runtime_dir_.path().string()));
}

// load_timeout_ms bounds a load and drain_timeout_ms a drain. The service manager's own timeout
// knows neither the file nor the requests, so keep extending it.
void Broker::extend_timeout() {
  const bool in_a_hurry = !said_ready_ || drain_deadline_us_ != 0;
  const int64_t now_us = clock_.now_us();
  if (!in_a_hurry || now_us - extended_us_ < kExtendEveryUs) return;
  extended_us_ = now_us;
  systemd_.extend_timeout_ms(kExtendMs);
}

// Watches workers that became ready after a client began to listen.
void Broker::watch_new_workers() {
  if (events_->listeners() == 0) return;
  for (const auto& [name, resident] : residency_.residents()) {
    if (resident.worker != nullptr && resident.worker->is_ready() && !resident.worker->watched()) {
      resident.worker->watch(true);
    }
  }
}

void Broker::return_memory() {
  if (!freed_memory_.due(memory_use())) return;
  return_freed_memory();
  freed_memory_.returned(memory_use());
}

// The status line shown by `systemctl status`.
void Broker::report_status() {
  std::string status = reports_.service_status();
  if (status == status_) return;
  status_ = std::move(status);
  systemd_.status(status_);
}

// Notify the watchdog only if the io thread ran its ticks, in which workers are watched, requests
// time out and output moves; waking up is not enough.
void Broker::feed_watchdog() {
  if (ticks_ != std::exchange(ticks_fed_, ticks_)) systemd_.watchdog();
  watchdog_timer_.expires_after(milliseconds(systemd_.watchdog_interval_ms()));
  watchdog_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) feed_watchdog();
  });
}

}  // namespace hearth::broker
