#include "daemon/broker/broker.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "daemon/broker/config_reload.h"
#include "daemon/broker/worker_process.h"
#include "ipc/codec.h"
#include "ipc/curve.h"
#include "ipc/first_verb.h"
#include "ipc/frames.h"
#include "ipc/paths.h"
#include "ipc/version.h"
#include "kernels/base/log.h"
#include "kernels/base/log_level.h"

namespace hearth::broker {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{100};
// A client's queue inside libzmq; beyond it the backlog waits in the OutputBuffer, where it merges.
constexpr int kClientHighWater = 64;
// How soon a full connection is tried again: at once for a short stall, seldom for a long one.
constexpr int64_t kRetryMinMs = 1;
constexpr int64_t kRetryMaxMs = 16;
// How often the service manager is asked for more time, and for how much.
constexpr int64_t kExtendEveryUs = 1'000'000;
constexpr int64_t kExtendMs = 30'000;
constexpr int64_t kMemoryEveryUs = 100'000;
// Two round trips of a client that asks again at once.
constexpr int64_t kAwakeUs = 100;
// After the live requests: for the workers to exit.
constexpr int64_t kWorkersExitUs = 5'000'000;

// Where there is none, the first use says so.
std::filesystem::path worker_program(const WorkerConfig& config) {
  const Result<std::filesystem::path> found = find_worker_program(config);
  return found.ok() ? *found : std::filesystem::path("hearth-worker-cpu");
}

bool computes(ipc::Verb verb) {
  return verb == ipc::Verb::kGenerate || verb == ipc::Verb::kTokenize || verb == ipc::Verb::kEmbed;
}

std::string random_hex() {
  unsigned char bytes[8] = {};
  [[maybe_unused]] const ssize_t n = ::getrandom(bytes, sizeof bytes, 0);
  std::string out;
  for (const unsigned char byte : bytes) out += fmt::format("{:02x}", byte);
  return out;
}

}  // namespace

Result<std::unique_ptr<Broker>> Broker::create(const Config& config, ReadConfig reread) {
  ::umask(0077);  // whatever is made from here on is ours alone until it is opened on purpose
  HEARTH_ASSIGN_OR_RETURN(Rights rights, Rights::create(config.server.admin_group, ::geteuid()));
  HEARTH_ASSIGN_OR_RETURN(RuntimeDir runtime_dir, RuntimeDir::take(config.server.runtime_dir));
  HEARTH_ASSIGN_OR_RETURN(ipc::Context context, ipc::Context::create());
  std::unique_ptr<Broker> broker(
      new Broker(config, std::move(runtime_dir), std::move(context), std::move(rights)));
  broker->reread_ = std::move(reread);
  HEARTH_TRY(broker->listen());
  HEARTH_TRY(broker->listen_for_watchers());
  return broker;
}

Broker::Broker(const Config& config, RuntimeDir runtime_dir, ipc::Context context, Rights rights)
    : config_(config),
      runtime_dir_(std::move(runtime_dir)),
      context_(std::move(context)),
      rights_(std::move(rights)),
      signals_(io_, SIGTERM, SIGINT),
      sleep_signals_(io_, SIGUSR1, SIGUSR2),
      reload_signal_(io_, SIGHUP),
      tick_timer_(io_),
      output_timer_(io_),
      watchdog_timer_(io_),
      instance_{.id = random_hex(),
                .version = std::string(ipc::version()),
                .started_us = clock_.now_us(),
                .draining = false},
      models_(config.server.model_dirs, config.roles),
      admission_(config.limits),
      output_(static_cast<size_t>(config.limits.output_buffer_bytes),
              [this](const std::string& identity, const OutgoingView& outgoing) {
                return send_to_client(identity, outgoing);
              }),
      dispatcher_(clock_, admission_, models_, output_, config.limits),
      residency_(clock_, config_,
                 MemoryBudget(static_cast<uint64_t>(config_.residency.memory_bytes),
                              [this] { return available_memory(); }),
                 [this](const ModelFile& file, WorkerListener& listener) {
                   return start_worker(file, listener);
                 }),
      model_verbs_(clock_, models_, residency_, dispatcher_),
      reports_(clock_, instance_, models_, residency_, dispatcher_),
      cache_verbs_(io_, {worker_program(config.worker),
                         config.worker.prefix_store ? config.server.state_dir : "",
                         config.server.model_dirs, config.worker.prefix_pinned_bytes}),
      disk_budget_(config.server.state_dir.empty() ? std::filesystem::path()
                                                   : config.server.state_dir / "prefix",
                   static_cast<uint64_t>(config.cache.disk_bytes),
                   [this](std::set<std::string>& open, std::set<std::string>& known) {
                     models_.rescan();
                     for (const std::string& name : residency_.running()) {
                       open.insert(database_name(name));
                     }
                     for (const auto& [name, file] : models_.models()) {
                       known.insert(database_name(name));
                     }
                   }),
      http_(dispatcher_, output_, reports_) {
  dispatcher_.set_residency(residency_);
  residency_.add_listener(dispatcher_);
  residency_.add_listener(model_verbs_);
  dispatcher_.set_cache(config.cache);
  dispatcher_.on_done([this](uint32_t owner, const std::string& id, const ipc::DoneEvent& done) {
    cache_verbs_.misses().note(owner, id, done);
  });
}

Result<void> Broker::listen() {
  const ipc::SocketOptions options{
      .send_high_water = kClientHighWater,
      .receive_high_water = kClientHighWater,
      // A frame over it ends the connection, so it leaves room for a reply that says why.
      .max_frame_bytes = config_.limits.max_message_bytes + (1 << 20),
      .reconnect = true,
      .routing_id = {}};
  HEARTH_ASSIGN_OR_RETURN(ipc::Socket socket,
                          ipc::Socket::open(context_, ipc::SocketType::kRouter, options));
  HEARTH_ASSIGN_OR_RETURN(const std::string endpoint, ipc::ipc_endpoint(runtime_dir_.api_socket()));
  HEARTH_TRY(socket.bind(endpoint));
  if (::chmod(runtime_dir_.api_socket().c_str(), 0660) != 0) {
    return Error{ErrorCode::kIo, fmt::format("chmod {}", runtime_dir_.api_socket().string()), ""};
  }
  if (!config_.server.tcp.empty()) HEARTH_TRY(listen_on_tcp(socket));
  clients_ = std::make_unique<ZmqOnAsio>(
      io_, std::move(socket),
      [this](ipc::Message& message, bool ok) { on_client_message(message, ok); });
  return http_.open(io_, config_, runtime_dir_.path(), instance_.id);
}

// On the same ROUTER, so that no two connections have one name; what was bound before keeps the
// kernel's word for who speaks.
Result<void> Broker::listen_on_tcp(ipc::Socket& socket) {
  const ServerConfig& server = config_.server;
  if (server.tcp_secret_file.empty() || server.tcp_clients_file.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "server.tcp: want server.tcp_secret_file (hearth keygen) and "
                 "server.tcp_clients_file, too: nobody connects without a key",
                 "server"};
  }
  HEARTH_ASSIGN_OR_RETURN(const ipc::CurveKeys keys, ipc::read_secret_key(server.tcp_secret_file));
  HEARTH_ASSIGN_OR_RETURN(auto clients, ipc::read_client_keys(server.tcp_clients_file));
  HEARTH_ASSIGN_OR_RETURN(gate_, CurveGate::open(io_, context_, std::move(clients)));
  HEARTH_TRY(ipc::serve_curve(socket, keys));
  HEARTH_TRY(socket.bind("tcp://" + server.tcp));
  log_info("listening", "tcp={} public_key={}", server.tcp, keys.public_key);
  return {};
}

Result<std::unique_ptr<Worker>> Broker::start_worker(const ModelFile& file,
                                                     WorkerListener& listener) {
  HEARTH_ASSIGN_OR_RETURN(const std::filesystem::path program, find_worker_program(config_.worker));
  const std::filesystem::path socket = runtime_dir_.worker_socket(++workers_started_);
  WorkerConfig config = config_.worker;
  config.device = device_of_worker(config);
  if (file.draft != "auto") config.draft = file.draft;
  if (config.device != "cpu") {
    const auto configured = static_cast<uint64_t>(config.prefix_ram_bytes);
    const uint64_t share =
        prefix_ram_share(configured, available_memory(), residency_.host_bytes_to_come());
    if (share < configured) {
      log_info("prefix_ram", "model={} bytes={} configured={} why=\"half of what is free\"",
               file.name, share, configured);
    }
    config.prefix_ram_bytes = static_cast<int64_t>(share);
  }
  std::vector<std::string> argv = worker_arguments(
      program, config, file.path, socket, config_.server.state_dir, config_.server.log_level);
  const std::string sampling = config_.sampling.arguments(file.name);
  if (!sampling.empty()) argv.insert(argv.end(), {"--sampling", sampling});
  const WorkerProcess::Setup setup{
      .argv = std::move(argv),
      .socket = socket,
      .heartbeat_timeout_ms = config_.worker.heartbeat_timeout_ms,
      .load_timeout_ms = config_.worker.load_timeout_ms};
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<WorkerProcess> worker,
                          WorkerProcess::start(io_, clock_, setup, listener));
  return std::unique_ptr<Worker>(std::move(worker));
}

// Asked for each request that waits; the kernel is asked a few times a second.
uint64_t Broker::available_memory() {
  const int64_t now_us = clock_.now_us();
  if (available_memory_us_ == 0 || now_us - available_memory_us_ >= kMemoryEveryUs) {
    available_memory_ = available_memory_bytes();
    available_memory_us_ = now_us;
  }
  return available_memory_;
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
      events_, EventHub::open(io_, context_, clock_, rights_,
                              ipc::events_socket(runtime_dir_.path()), std::move(sources)));
  residency_.set_watcher([this](const std::string& model, std::string_view update) {
    events_->on_watch(model, update);
  });
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

// Who has had an answer at once often asks again: for a moment the loop looks instead of sleeping,
// since to be woken takes longer than to answer. Streams do not keep it awake.
void Broker::run_loop() {
  while (io_.run_one() > 0) {
    while (steady_.now_us() < awake_until_us_ && !io_.stopped()) {
      if (io_.poll() == 0) std::this_thread::yield();
    }
  }
}

// ---- Clients -----------------------------------------------------------------------------------

void Broker::on_client_message(ipc::Message& message, bool ok) {
  const std::vector<std::string_view> frames = ipc::views(message, 1);
  Result<Caller> caller = identify(message, rights_);
  const std::optional<std::string_view> id = ipc::request_id_of(frames);
  if (const std::string identity(message.front().view()); !output_.retry(identity)) {
    dispatcher_.connection_gone(identity);
  }
  const auto refuse = [&](Error error) {
    ++num_malformed_;
    log_debug("malformed", "count={} code={} error=\"{}\"", num_malformed_, name(error.code),
              error.message);
    // Without a readable id nobody could tell what the answer answers.
    if (id) {
      dispatcher_.reply_error(std::string(message.front().view()), std::string(*id),
                              std::move(error));
    }
  };
  if (!caller) return refuse(caller.take_error());
  Result<ipc::ClientMessage> parsed = ipc::parse_client_message(frames);
  if (!parsed) return refuse(parsed.take_error());
  if (!ok) return refuse(Error{ErrorCode::kProtocol, "too many frames, want 3", ""});
  size_t bytes = 0;
  for (const std::string_view frame : frames) bytes += frame.size();
  if (bytes > static_cast<size_t>(config_.limits.max_message_bytes)) {
    return refuse(Error{
        ErrorCode::kTooLarge,
        fmt::format("message of {} bytes, limit {}", bytes, config_.limits.max_message_bytes), ""});
  }
  // Of a flood, the surplus is told at once: to read it first is what would make all of it late.
  if (const std::optional<ipc::Verb> verb = ipc::first_verb(parsed->json);
      verb && computes(*verb)) {
    if (Result<void> room = dispatcher_.admit(*caller, bytes, 0); !room) {
      return dispatcher_.reply_error(caller->identity, std::string(parsed->request_id),
                                     room.take_error());
    }
  }
  Result<ipc::ClientRequest> request = ipc::decode_request(parsed->json);
  if (!request) return refuse(request.take_error());
  if (Result<void> adopted = adopt_path(*caller, &request.value()); !adopted) {
    return dispatcher_.reply_error(caller->identity, std::string(parsed->request_id),
                                   adopted.take_error());
  }
  handle(*caller, std::string(parsed->request_id), std::move(request).value(), bytes);
}

// The daemon's own user could put the file into a model directory as well. Nobody over TCP or HTTP
// is an administrator here.
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

void Broker::handle(const Caller& caller, const std::string& id, ipc::ClientRequest request,
                    size_t bytes) {
  const auto reply = [&](const ipc::Event& event) {
    dispatcher_.reply(caller.identity, id, event);
    awake_until_us_ = steady_.now_us() + kAwakeUs;
  };
  switch (ipc::verb_of(request)) {
    case ipc::Verb::kPing: return dispatcher_.reply(caller.identity, id, reports_.pong());
    case ipc::Verb::kGenerate:
    case ipc::Verb::kTokenize:
    case ipc::Verb::kEmbed: return dispatcher_.submit(caller, id, std::move(request), bytes);
    case ipc::Verb::kAttach:
      return dispatcher_.attach(caller, id, std::get<ipc::AttachRequest>(request));
    case ipc::Verb::kFork: return dispatcher_.fork(caller, id, std::get<ipc::ForkRequest>(request));
    case ipc::Verb::kCancel:
      return dispatcher_.cancel(caller, id, std::get<ipc::CancelRequest>(request));
    case ipc::Verb::kModels: return reply(reports_.models());
    case ipc::Verb::kPs: return reply(reports_.ps(caller));
    case ipc::Verb::kStats: return reply(reports_.stats());
    case ipc::Verb::kHealth: return reply(reports_.health());
    case ipc::Verb::kLoad:
    case ipc::Verb::kUnload:
    case ipc::Verb::kSwap: return change_models(caller, id, request);
    case ipc::Verb::kCache:
      return cache_verbs_.handle(
          caller, std::get<ipc::CacheRequest>(request),
          [this, identity = caller.identity, id](Result<ipc::CacheReply> answer) {
            if (!answer.ok()) return dispatcher_.reply_error(identity, id, answer.take_error());
            dispatcher_.reply(identity, id, *answer);
          });
  }
}

void Broker::change_models(const Caller& caller, const std::string& id,
                           const ipc::ClientRequest& request) {
  if (admission_.draining()) {
    return dispatcher_.reply_error(caller.identity, id,
                                   Error{ErrorCode::kUnavailable, "the daemon is stopping", ""});
  }
  if (const auto* load = std::get_if<ipc::LoadRequest>(&request)) {
    model_verbs_.load(caller, id, *load);
  } else if (const auto* unload = std::get_if<ipc::UnloadRequest>(&request)) {
    model_verbs_.unload(caller, id, *unload);
  } else {
    model_verbs_.swap(caller, id, std::get<ipc::SwapRequest>(request));
  }
}

ipc::SendOutcome Broker::send_to_client(const std::string& identity, const OutgoingView& outgoing) {
  if (http::is_http_identity(identity)) {
    const ipc::SendOutcome outcome = http_.send(identity, outgoing);
    if (outcome == ipc::SendOutcome::kWouldBlock) retry_output();
    return outcome;
  }
  ipc::Message message;
  ipc::append(message, identity, ipc::kProtocol, outgoing.request_id,
              outgoing.is_delta ? ipc::kDeltaFrame : ipc::kEventFrame, outgoing.payload);
  if (outgoing.is_delta) ipc::append(message, outgoing.ids);
  if (!outgoing.logprobs.empty()) ipc::append(message, outgoing.logprobs);
  const ipc::SendOutcome outcome = clients_->send(message);
  if (outcome == ipc::SendOutcome::kWouldBlock) retry_output();
  return outcome;
}

// A ROUTER does not say when a full connection has room again, so it is tried by the clock.
void Broker::retry_output() {
  if (output_retry_armed_) return;
  output_retry_armed_ = true;
  output_timer_.expires_after(milliseconds(output_retry_ms_));
  output_timer_.async_wait([this](const boost::system::error_code& error) {
    output_retry_armed_ = false;
    if (error) return;
    const size_t before = output_.total_bytes();
    for (const std::string& identity : output_.retry()) dispatcher_.connection_gone(identity);
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
  dispatcher_.tick();
  model_verbs_.tick();
  disk_budget_.tick(clock_.now_us());
  say_when_ready();
  watch_new_workers();
  events_->tick();
  report_status();
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
    if (drain_deadline_us_ != 0) return io_.stop();  // the second one
    begin_draining();
    wait_for_signal();
  });
}

// From the hook that the service manager runs before and after the machine sleeps.
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

// A file that cannot be read changes nothing. Requests and workers that are there keep what they
// began with.
void Broker::reload() {
  systemd_.reloading();
  const Result<Config> next = reread_();
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
    std::map<std::string, std::string> roles;
    for (const std::string& role : changes.roles) {
      const auto found = config_.roles.find(role);
      roles[role] = found == config_.roles.end() ? "" : found->second;
    }
    models_.configure(config_.server.model_dirs, roles);
    if (gate_ != nullptr) {
      auto clients = ipc::read_client_keys(config_.server.tcp_clients_file);
      if (clients.ok()) {
        gate_->set_clients(std::move(clients).value());
      } else {
        log_error("not_reloaded", "error=\"{}\"", clients.error().message);
      }
    }
    for (const std::string& role : changes.roles) dispatcher_.repoint(role);
  }
  // Not said before the first time: a token could not be made yet.
  if (said_ready_) systemd_.ready(fmt::format("serving {}", runtime_dir_.path().string()));
}

void Broker::begin_draining() {
  systemd_.stopping();
  instance_.draining = true;
  admission_.stop_admitting();
  drain_deadline_us_ = clock_.now_us() + config_.server.drain_timeout_ms * 1000;
  log_info("draining", "live={} timeout_ms={}", dispatcher_.requests().size(),
           config_.server.drain_timeout_ms);
  check_drained();
}

void Broker::check_drained() {
  const bool late = clock_.now_us() >= drain_deadline_us_;
  if (!workers_told_) {
    if (dispatcher_.requests().size() > 0 && !late) return;
    const Error stopped{ErrorCode::kUnavailable, "the daemon stopped before the request could end",
                        ""};
    dispatcher_.fail_all(stopped);
    model_verbs_.fail_all(stopped);
    residency_.drain();
    workers_told_ = true;
    drain_deadline_us_ = clock_.now_us() + kWorkersExitUs;
    return;
  }
  // At least a tick after the last answer was handed to libzmq, which has sent it by then.
  const bool sent = !output_.has_backlog() && http_.idle();
  if ((residency_.empty() && sent) || late) {
    log_info("stopped", "workers_left={} unsent_bytes={}", residency_.empty() ? 0 : 1,
             output_.total_bytes());
    io_.stop();
  }
}

// Once a token could be made: the default role's model is there, or has failed (what is wrong then
// is in the status, and other models are served), or nobody asked for it at start.
void Broker::say_when_ready() {
  if (said_ready_ || drain_deadline_us_ != 0) return extend_timeout();
  if (model_verbs_.preloading()) return extend_timeout();
  said_ready_ = true;
  systemd_.ready(fmt::format("serving {}", runtime_dir_.path().string()));
}

// A load is watched by load_timeout_ms and a drain ends by drain_timeout_ms: the service manager's
// own patience, which knows neither the file nor the requests, is not the measure.
void Broker::extend_timeout() {
  const bool in_a_hurry = !said_ready_ || drain_deadline_us_ != 0;
  const int64_t now_us = clock_.now_us();
  if (!in_a_hurry || now_us - extended_us_ < kExtendEveryUs) return;
  extended_us_ = now_us;
  systemd_.extend_timeout_ms(kExtendMs);
}

// Those that have become ready since somebody began to listen.
void Broker::watch_new_workers() {
  if (events_->listeners() == 0) return;
  for (const auto& [name, resident] : residency_.residents()) {
    if (resident.worker != nullptr && resident.worker->is_ready() && !resident.worker->watched()) {
      resident.worker->watch(true);
    }
  }
}

// What `systemctl status` shows.
void Broker::report_status() {
  std::string status = fmt::format("{} live requests; models:", dispatcher_.requests().size());
  if (drain_deadline_us_ != 0) status = "stopping; " + status;
  if (residency_.suspended()) status = "asleep; " + status;
  for (const auto& [name, resident] : residency_.residents()) {
    if (resident.worker == nullptr) {
      if (resident.problem) status += fmt::format(" {} (failed)", name);
    } else if (resident.worker->is_ready()) {
      status += " " + name;
    } else if (resident.worker->is_leaving()) {
      status += fmt::format(" {} (leaving)", name);
    } else {
      // In tenths: a line for each percent would be a message for each tick.
      const int percent = static_cast<int>(resident.worker->load_share() * 10) * 10;
      status += fmt::format(" {} (loading, {} %)", name, percent);
    }
  }
  if (status == status_) return;
  status_ = status;
  systemd_.status(status_);
}

// Fed for what the io thread did, not for being woken: its ticks, in which workers are watched,
// requests time out and output moves.
void Broker::feed_watchdog() {
  if (ticks_ != std::exchange(ticks_fed_, ticks_)) systemd_.watchdog();
  watchdog_timer_.expires_after(milliseconds(systemd_.watchdog_interval_ms()));
  watchdog_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) feed_watchdog();
  });
}

}  // namespace hearth::broker
