#include "daemon/broker/kv_front.h"

#include <fmt/core.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>

#include "daemon/http/guard.h"
#include "daemon/http/peer.h"
#include "ipc/files/paths.h"
#include "kernels/base/wall_clock.h"

namespace hearth::broker {
namespace {

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != 0 ? name : "hearth";
}

// check_config() has seen to it that no other machine reaches it.
Result<std::optional<TcpAddress>> address_of(const char* setting, const std::string& text) {
  if (text.empty()) return std::optional<TcpAddress>();
  HEARTH_ASSIGN_OR_RETURN(const http::Endpoint endpoint, http::parse_endpoint(text, setting));
  return std::optional(TcpAddress{.name = fmt::format("{} {}", setting, text),
                                  .address = endpoint.address,
                                  .port = endpoint.port,
                                  .name_user = http::tcp_peer_uid});
}

}  // namespace

Result<std::unique_ptr<KvPublisher>> open_kv_events(
    boost::asio::io_context& io, const Clock& clock, Acceptor& acceptor, LoopShares& shares,
    const KvEventsConfig& config, const std::filesystem::path& runtime_dir,
    std::function<bool(const ipc::PeerCredentials&)> may_subscribe) {
  if (config.publish == "off") return std::unique_ptr<KvPublisher>();
  KvPublisherConfig out;
  out.pod = config.pod.empty() ? host_name() : config.pod;
  out.buffer_bytes = config.buffer_bytes;
  out.events_socket = ipc::kv_events_socket(runtime_dir);
  out.replay_socket = ipc::kv_replay_socket(runtime_dir);
  HEARTH_ASSIGN_OR_RETURN(out.events_address, address_of("kv_events.listen", config.listen));
  HEARTH_ASSIGN_OR_RETURN(out.replay_address,
                          address_of("kv_events.replay_listen", config.replay_listen));
  out.may_subscribe = std::move(may_subscribe);
  out.now_s = fractional_seconds_since_1970;
  return KvPublisher::open(io, clock, acceptor, shares, std::move(out));
}

}  // namespace hearth::broker
