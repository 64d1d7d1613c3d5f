#pragma once
// Connects the HTTP front door to the broker. An HTTP request is one more connection that makes one
// request. Owned by the io thread.

#include <functional>
#include <memory>
#include <utility>

#include "daemon/broker/batches/batch_runner.h"
#include "daemon/broker/config/config.h"
#include "daemon/broker/observe/reports.h"
#include "daemon/broker/process/acceptor.h"
#include "daemon/broker/process/loop_shares.h"
#include "daemon/broker/process/side_thread.h"
#include "daemon/broker/requests/cache_verbs.h"
#include "daemon/broker/requests/dispatcher.h"
#include "daemon/broker/responses/response_keeper.h"
#include "daemon/broker/transport/output_buffer.h"
#include "daemon/http/server.h"

namespace hearth::broker {

class HttpFront final : public http::Backend {
 public:
  HttpFront(Dispatcher& dispatcher, OutputBuffer& output, const Reports& reports, SideThread& side,
            ResponseKeeper& responses, BatchRunner& batches, CacheVerbs& cache_verbs,
            Acceptor& acceptor, LoopShares& shares)
      : dispatcher_(dispatcher),
        output_(output),
        reports_(reports),
        side_(side),
        responses_(responses),
        batches_(batches),
        cache_verbs_(cache_verbs),
        acceptor_(acceptor),
        shares_(shares) {}

  /// Listens on the configured addresses, if any.
  Result<void> open(boost::asio::io_context& io, const Config& config,
                    const std::filesystem::path& runtime_dir, const std::string& instance);

  /// Reads keys and certificates anew; an error changes nothing.
  Result<void> reload();

  /// `exchange`: the number of a peer of Door::kHttp.
  ipc::SendOutcome send(uint64_t exchange, const OutgoingView& outgoing);
  /// No response is in progress, and nothing waits to be written.
  bool idle() const {
    return (!server_ || server_->idle()) && responses_.idle() && batches_.idle();
  }
  void tick(int64_t now_us) {
    if (server_) server_->tick();
    responses_.tick(now_us);
    batches_.tick(now_us);
  }

  void take_turn(uint32_t uid, std::function<void()> work) override {
    shares_.take_turn(uid, std::move(work));
  }
  uint64_t accept_from(int listener, http::NameUser name_user,
                       http::OnConnection on_connection) override;
  void accept_no_more(uint64_t number) override { acceptor_.remove(number); }
  Result<void> admit(uint32_t uid, size_t bytes) const override;
  void run_aside(uint32_t uid, size_t bytes, std::function<void()> work,
                 std::function<void()> then) override {
    side_.run(uid, bytes, std::move(work), std::move(then));
  }
  void submit(const http::Exchanger& from, const std::string& id, ipc::ComputeRequest request,
              size_t bytes) override;
  void note_left_out(uint32_t uid, const std::string& id, int32_t lines) override {
    cache_verbs_.misses().note_left_out(uid, id, lines);
  }
  bool keep_alive(uint32_t uid, const std::string& model, int64_t ms) override;
  Result<void> release(uint32_t uid, const std::string& model) override;
  std::string fingerprint(const std::string& model) const override {
    return reports_.fingerprint(model);
  }
  Result<void> end_reasoning(uint32_t uid, const std::string& id) override;
  bool keeps_responses(uint32_t uid) const override;
  void keep_response(uint32_t uid, http::KeptResponse response) override {
    responses_.keep(uid, std::move(response));
  }
  void ask_kept(uint32_t uid, http::KeptQuery query,
                std::function<void(Result<std::string>)> then) override {
    responses_.ask(uid, std::move(query), std::move(then));
  }
  http::KeptStats kept_stats() const override { return responses_.stats(); }
  bool keeps_batches(uint32_t uid) const override;
  void ask_batches(uint32_t uid, http::BatchQuery query,
                   std::function<void(Result<http::BatchReply>)> then) override {
    batches_.ask(uid, std::move(query), std::move(then));
  }
  http::BatchStats batch_stats() const override { return batches_.stats(); }
  void gone(const http::Exchanger& from) override;
  void writable(const http::Exchanger& from) override;
  size_t backlog_bytes(const http::Exchanger& from) const override;
  ipc::ModelsReply models() const override { return reports_.models(); }
  ipc::StatsReply stats() const override { return reports_.stats(); }
  ipc::HealthReply health() const override { return reports_.health(); }
  Result<void> ready(uint32_t uid) const override;
  http::ModelTraffics traffic() const override { return reports_.traffic(); }

 private:
  void keep_responses(const Config& config);
  void keep_batches(const Config& config);
  int connect_own(uint32_t uid);

  Dispatcher& dispatcher_;
  OutputBuffer& output_;
  const Reports& reports_;
  SideThread& side_;
  ResponseKeeper& responses_;
  BatchRunner& batches_;
  CacheVerbs& cache_verbs_;
  CacheConfig cache_;  // whose texts may be on disk
  Acceptor& acceptor_;
  LoopShares& shares_;
  std::unique_ptr<http::HttpServer> server_;
};

}  // namespace hearth::broker
