#pragma once
// One request over HTTP that the daemon makes to itself, on a connection of its own.

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/base/result.h"

namespace hearth::broker {

struct InnerAnswer {
  int status = 0;
  std::string request_id;
  std::string body;
};
/// From all bytes of the connection. kProtocol: the answer is not whole.
Result<InnerAnswer> parse_inner_answer(std::string bytes);

class InnerRequest final : public std::enable_shared_from_this<InnerRequest> {
 public:
  using Then = std::function<void(Result<InnerAnswer>)>;
  /// `fd`: the client's end of a connection, which it closes.
  InnerRequest(boost::asio::io_context& io, int fd);

  /// Sends the request and calls `then` once, from the loop, with its answer. kTooLarge: the answer
  /// has more than `max_bytes`; kIo: the connection broke.
  void start(std::string_view path, std::string_view body, size_t max_bytes, Then then);
  /// Closes the connection, which ends the request; `then` is not called.
  void cancel();

 private:
  void read();
  void finish(Result<InnerAnswer> answer);

  boost::asio::local::stream_protocol::socket socket_;
  std::string out_;
  std::string in_;
  size_t max_bytes_ = 0;
  Then then_;
};

}  // namespace hearth::broker
