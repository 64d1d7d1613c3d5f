#pragma once
// POSTs over HTTP/1.1 to other servers, by libcurl, whose sockets the io context waits for. Nothing
// blocks. Connections are used again for later posts. What arrives waits in at most 64 KiB per
// post; while that is full, the connection is not read. Redirects, proxies of the environment,
// cookies and stored passwords are not followed or used. Owned by the io thread.

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/base/result.h"

namespace hearth::broker {

struct HttpPost {
  std::string url;           ///< https://..., http://...
  std::string key{};         ///< shown as "Authorization: Bearer KEY"; "": none
  std::string certificates;  ///< PEM, to trust in place of the system's; "": the system's
  std::string body{};        ///< JSON
  int64_t connect_timeout_ms = 10'000;  ///< name, connection and TLS together
};

class HttpPosts {
 public:
  /// Of a response's header, and of headers before and after it.
  static constexpr size_t kMaxHeaderBytes = 64 << 10;

  struct Handlers {
    /// Bytes of the body, and the status that came before them.
    std::function<void(int status, std::string_view bytes)> on_bytes;
    /// The last call: the body is complete, or the reason why it is not. Status 0: no response.
    std::function<void(int status, Result<void> end)> on_end;
  };

  static std::unique_ptr<HttpPosts> create(boost::asio::io_context& io);
  virtual ~HttpPosts() = default;

  /// The post's number. Its handlers are called later, never from within start() or cancel().
  virtual uint64_t start(HttpPost post, Handlers handlers) = 0;
  /// Closes its connection; no handler is called any more. May be called from its handlers.
  virtual void cancel(uint64_t number) = 0;
};

}  // namespace hearth::broker
