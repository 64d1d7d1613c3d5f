#pragma once
// The remotes of the configuration, asked over HTTP. Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/config/remote_config.h"
#include "daemon/broker/remote/remotes.h"
#include "kernels/base/clock.h"
#include "kernels/base/result.h"

namespace hearth::broker {

class HttpPosts;

class HttpRemotes final : public Remotes {
 public:
  HttpRemotes(boost::asio::io_context& io, const Clock& clock, RemoteSink& sink);
  ~HttpRemotes() override;

  /// Replaces the remotes and reads their files; an error changes nothing. Calls go on as they
  /// began.
  Result<void> configure(const std::map<std::string, RemoteConfig>& remotes);
  /// Ends calls whose remote is silent for too long. Call a few times a second.
  void tick();

  const Remote* find(const std::string& role) const override;
  std::vector<std::string> roles() const override;
  bool has_room() const override { return calls_.size() < kMaxCalls; }
  void start(uint64_t number, const std::string& role, RemoteRequest request) override;
  void cancel(uint64_t number) override;

 private:
  struct Known {
    Remote remote;
    std::string url;  ///< up to the API's own part
    std::string key;
    std::string certificates;
    int64_t stall_ms = 0;
  };
  struct Call;

  void on_bytes(uint64_t number, int status, std::string_view bytes);
  void on_end(uint64_t number, int status, const Result<void>& end);
  void finish(uint64_t number);
  void fail(uint64_t number, std::string_view message, std::string_view for_log);
  void forget(uint64_t number);

  const Clock& clock_;
  RemoteSink& sink_;
  std::map<std::string, Known> remotes_;  // by role
  std::map<uint64_t, std::unique_ptr<Call>> calls_;
  std::unique_ptr<HttpPosts> posts_;
};

}  // namespace hearth::broker
