#include "daemon/broker/batches/inner_request.h"

#include <fmt/core.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <utility>

namespace hearth::broker {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::string_view kVersion = "HTTP/1.1 ";
constexpr size_t kReceiveBytes = 16 << 10;

/// The value of the header line that begins with `name`.
std::string_view header(std::string_view head, std::string_view name) {
  const size_t at = head.find(name);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = head.substr(at + name.size());
  return rest.substr(0, rest.find("\r\n"));
}

}  // namespace

Result<InnerAnswer> parse_inner_answer(std::string bytes) {
  const size_t head_end = bytes.find("\r\n\r\n");
  InnerAnswer answer;
  const char* const end = bytes.data() + bytes.size();
  if (head_end == std::string::npos || !bytes.starts_with(kVersion) ||
      std::from_chars(bytes.data() + kVersion.size(), end, answer.status).ec != std::errc()) {
    return Error::protocol("the answer has no head");
  }
  const std::string_view head = std::string_view(bytes).substr(0, head_end + 2);
  size_t length = 0;
  const std::string_view declared = header(head, "\r\nContent-Length: ");
  std::from_chars(declared.data(), declared.data() + declared.size(), length);
  if (bytes.size() - head_end - 4 != length) return Error::protocol("the answer is not whole");
  answer.request_id = header(head, "request-id: ");
  bytes.erase(0, head_end + 4);
  answer.body = std::move(bytes);
  return answer;
}

InnerRequest::InnerRequest(asio::io_context& io, int fd) : socket_(io) {
  error_code error;
  socket_.assign(asio::local::stream_protocol(), fd, error);
  if (error) ::close(fd);
}

void InnerRequest::start(std::string_view path, std::string_view body, size_t max_bytes,
                         Then then) {
  max_bytes_ = max_bytes;
  then_ = std::move(then);
  out_ = fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\nConnection: close\r\n\r\n",
      path, body.size());
  out_ += body;
  // An answer may come before the whole request is sent, so a failure to send it shows there.
  asio::async_write(socket_, asio::buffer(out_),
                    [self = shared_from_this()](const error_code&, size_t) { self->out_ = {}; });
  read();
}

void InnerRequest::read() {
  const size_t had = in_.size();
  in_.resize(had + kReceiveBytes);
  socket_.async_read_some(asio::buffer(in_.data() + had, kReceiveBytes),
                          [self = shared_from_this(), had](const error_code& error, size_t bytes) {
                            if (!self->then_) return;
                            self->in_.resize(had + bytes);
                            if (error == asio::error::eof) {
                              return self->finish(parse_inner_answer(std::move(self->in_)));
                            }
                            if (error) return self->finish(Error::io(error.message()));
                            if (self->in_.size() > self->max_bytes_) {
                              return self->finish(Error::too_large(fmt::format(
                                  "the answer has more than {} bytes", self->max_bytes_)));
                            }
                            self->read();
                          });
}

void InnerRequest::finish(Result<InnerAnswer> answer) {
  const Then then = std::exchange(then_, nullptr);
  cancel();
  then(std::move(answer));
}

void InnerRequest::cancel() {
  then_ = nullptr;
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace hearth::broker
