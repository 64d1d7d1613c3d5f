#pragma once
// What the HTTP front door asks of the broker, in the broker's own terms: an HTTP request is one
// more connection that asks for one thing. Owned by the io thread.

#include <memory>

#include "daemon/broker/config.h"
#include "daemon/broker/dispatcher.h"
#include "daemon/broker/output_buffer.h"
#include "daemon/broker/reports.h"
#include "daemon/http/server.h"

namespace hearth::broker {

class HttpFront final : public http::Backend {
 public:
  HttpFront(Dispatcher& dispatcher, OutputBuffer& output, const Reports& reports)
      : dispatcher_(dispatcher), output_(output), reports_(reports) {}

  /// Listens where the configuration says, if anywhere.
  Result<void> open(boost::asio::io_context& io, const Config& config,
                    const std::filesystem::path& runtime_dir, const std::string& instance);

  ipc::SendOutcome send(const std::string& identity, const OutgoingView& outgoing);
  /// No answer is under way.
  bool idle() const { return !server_ || server_->idle(); }

  void submit(const std::string& identity, const std::string& id, uint32_t uid,
              ipc::ClientRequest request, size_t bytes) override;
  void gone(const std::string& identity) override { dispatcher_.connection_gone(identity); }
  void writable(const std::string& identity) override;
  size_t backlog_bytes(const std::string& identity) const override {
    return output_.backlog_bytes(identity);
  }
  ipc::ModelsReply models() const override { return reports_.models(); }
  ipc::StatsReply stats() const override { return reports_.stats(); }
  ipc::HealthReply health() const override { return reports_.health(); }

 private:
  Dispatcher& dispatcher_;
  OutputBuffer& output_;
  const Reports& reports_;
  std::unique_ptr<http::HttpServer> server_;
};

}  // namespace hearth::broker
