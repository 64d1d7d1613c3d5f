#pragma once
// Opens the sockets of KV events as the configuration asks for them.

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <functional>
#include <memory>

#include "daemon/broker/config/config.h"
#include "daemon/broker/observe/kv_publisher.h"
#include "kernels/base/result.h"

namespace hearth::broker {

/// Null if they are off. `may_subscribe`: see KvPublisherConfig.
Result<std::unique_ptr<KvPublisher>> open_kv_events(
    boost::asio::io_context& io, const Clock& clock, Acceptor& acceptor, LoopShares& shares,
    const KvEventsConfig& config, const std::filesystem::path& runtime_dir,
    std::function<bool(const ipc::PeerCredentials&)> may_subscribe);

}  // namespace hearth::broker
