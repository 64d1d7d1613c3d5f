#pragma once
// HTTP/1.1 requests out of the bytes of a connection (RFC 9112), bounded. No socket in it: what a
// request is depends on its bytes alone, however they were cut.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::http {

/// A request as it came. Fields that may stand once stand in lists, so that a second one is seen.
struct HttpRequest {
  std::string method;
  std::string target;
  bool keep_alive = false;  ///< the connection may carry another request
  bool may_chunk = false;   ///< HTTP/1.1: the answer may be chunked
  bool has_body = false;
  std::vector<std::string> hosts;
  std::vector<std::string> origins;
  std::vector<std::string> authorizations;
  std::vector<std::string> api_keys;  ///< x-api-key
  std::vector<std::string> content_types;
  std::vector<std::string> expectations;
  std::vector<std::string> codings;  ///< transfer-encoding
  std::string content_encoding;
  std::string fetch_site;     ///< sec-fetch-site: browsers say where the page is from
  bool fetch_method = false;  ///< access-control-request-method: a preflight
  std::string body;
};

struct ReaderLimits {
  size_t header_bytes = 16 << 10;  ///< request line and fields together
  size_t body_bytes = 32 << 20;
};

class RequestReader {
 public:
  explicit RequestReader(ReaderLimits limits);
  ~RequestReader();

  enum class State {
    kIdle,    ///< nothing of a request has come
    kHeader,  ///< a part of its head
    kBody,    ///< the head, and a part of its body
    kDone,    ///< take() it
    kFailed,  ///< not HTTP, or over a bound; nothing more is read
  };
  /// Takes what came. Bytes behind a whole request wait until it was taken.
  State push(std::string_view bytes);
  State state() const { return state_; }
  /// The head of a request whose body is still to come, or that is done.
  const HttpRequest& head() const;
  /// kDone: the request. What follows it is looked at next.
  HttpRequest take();
  /// kFailed: the status to answer with, and why.
  int status() const { return status_; }
  const std::string& problem() const { return problem_; }
  /// Memory of what has come and was not taken.
  size_t held_bytes() const;
  /// Bytes that wait behind the request.
  size_t waiting_bytes() const { return bytes_.size(); }

 private:
  class Parser;
  void parse();
  void fail(int status, std::string problem);

  const ReaderLimits limits_;
  std::unique_ptr<Parser> parser_;
  std::string bytes_;      // not parsed yet
  size_t head_bytes_ = 0;  // parsed of a head that is not done
  State state_ = State::kIdle;
  int status_ = 0;
  std::string problem_;
};

}  // namespace hearth::http
