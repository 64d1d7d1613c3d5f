#pragma once
// The broker: one io thread that owns all client sockets, worker processes, timers and signals, and
// hands each arrival to the component responsible for it.

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "daemon/broker/batches/batch_runner.h"
#include "daemon/broker/config/config.h"
#include "daemon/broker/http_front.h"
#include "daemon/broker/kv_front.h"
#include "daemon/broker/observe/event_hub.h"
#include "daemon/broker/observe/reports.h"
#include "daemon/broker/process/awake_clock.h"
#include "daemon/broker/process/freed_memory.h"
#include "daemon/broker/process/loop_shares.h"
#include "daemon/broker/process/runtime_dir.h"
#include "daemon/broker/process/side_thread.h"
#include "daemon/broker/process/systemd.h"
#include "daemon/broker/remote/http_remotes.h"
#include "daemon/broker/requests/admission.h"
#include "daemon/broker/requests/cache_verbs.h"
#include "daemon/broker/requests/dispatcher.h"
#include "daemon/broker/requests/model_verbs.h"
#include "daemon/broker/requests/recorders.h"
#include "daemon/broker/requests/session.h"
#include "daemon/broker/residency/disk_budget.h"
#include "daemon/broker/residency/memory_watch.h"
#include "daemon/broker/residency/model_directory.h"
#include "daemon/broker/residency/model_facts.h"
#include "daemon/broker/residency/residency.h"
#include "daemon/broker/responses/response_keeper.h"
#include "daemon/broker/transport/output_buffer.h"
#include "daemon/broker/transport/server.h"
#include "daemon/broker/transport/tcp_door.h"
#include "ipc/schema/messages.h"
#include "kernels/base/clock.h"
#include "kernels/base/result.h"

namespace hearth::broker {

class Broker {
 public:
  /// Takes the runtime directory and binds the socket. An error is the reason why the daemon cannot
  /// start. `reread` reads the configuration again, for SIGHUP.
  using ReadConfig = std::function<Result<Config>()>;
  static Result<std::unique_ptr<Broker>> create(const Config& config, ReadConfig reread = nullptr);

  /// Serves until SIGTERM or SIGINT, then admits nothing new, gives live requests up to
  /// drain_timeout_ms to finish, and returns. A second signal ends it at once.
  void run();

 private:
  Broker(const Config& config, RuntimeDir runtime_dir, Rights rights);

  void run_loop();
  Result<void> listen();
  Result<void> listen_for_watchers();
  Result<void> listen_on_tcp();
  void on_client_message(const Caller& caller, zmtp::Message message);
  void refuse(const Caller& caller, std::string_view id, Error error);
  /// Gives a name to a model that the daemon's own user requests by absolute path.
  Result<void> adopt_path(const Caller& caller, ipc::ClientRequest* request);
  void handle(const Caller& caller, const std::string& id, Result<ipc::ClientRequest> request,
              size_t bytes);
  ipc::SendOutcome send_to_client(const PeerId& peer, const OutgoingView& outgoing);
  void on_writable(const PeerId& peer);
  void on_gone(const PeerId& peer);
  void hold_if_behind(const PeerId& peer);

  void wait_for_signal();
  void wait_for_sleep();
  void wait_for_reload();
  void reload();
  void begin_draining();
  void check_drained();
  void every_tick();
  void retry_output();
  void feed_watchdog();
  void report_status();
  void return_memory();
  void say_when_ready();
  void extend_timeout();
  Result<std::unique_ptr<Worker>> start_worker(const ModelFile& file, WorkerListener& lifecycle);
  void watch_new_workers();

  Config config_;
  ReadConfig reread_;
  RuntimeDir runtime_dir_;
  Rights rights_;
  SteadyClock steady_;
  AwakeClock clock_{steady_};
  MemoryWatch memory_{clock_};
  SystemdNotifier systemd_;
  boost::asio::io_context io_;
  Acceptor acceptor_{io_, steady_};
  LoopShares shares_{io_};
  boost::asio::signal_set signals_;
  boost::asio::signal_set sleep_signals_;
  boost::asio::signal_set reload_signal_;
  boost::asio::steady_timer tick_timer_;
  boost::asio::steady_timer output_timer_;
  boost::asio::steady_timer watchdog_timer_;

  Instance instance_;
  ModelDirectory models_;
  Admission admission_;
  OutputBuffer output_;
  Residency residency_;
  Dispatcher dispatcher_;
  HttpRemotes remotes_;
  ModelVerbs model_verbs_;
  ModelFacts model_facts_;
  Reports reports_;
  CacheVerbs cache_verbs_;
  DiskBudget disk_budget_;
  std::unique_ptr<TransportServer> clients_;
  std::unique_ptr<TcpDoor> tcp_;  // null without TCP
  std::set<uint64_t> behind_;     // connections of clients_ held until they read their backlog
  std::unique_ptr<EventHub> events_;
  std::unique_ptr<KvPublisher> kv_events_;  // null: off
  SideThread side_{io_};
  ResponseKeeper responses_{io_};
  BatchRunner batches_{io_};
  Recorders recorders_;
  HttpFront http_;

  int64_t drain_deadline_us_ = 0;  // 0: not draining
  bool workers_told_ = false;
  bool output_retry_armed_ = false;
  int64_t output_retry_ms_ = 1;
  uint64_t num_malformed_ = 0;
  uint64_t workers_started_ = 0;
  int64_t awake_until_us_ = 0;
  bool said_ready_ = false;
  int64_t extended_us_ = 0;
  FreedMemory freed_memory_;
  uint64_t ticks_ = 0;
  uint64_t ticks_fed_ = 0;  // at the last watchdog notification
  std::string status_;      // last status sent to systemd
};

}  // namespace hearth::broker
