#pragma once
// Parses HTTP/1.1 requests from a connection's bytes (RFC 9112), within bounds. It has no socket:
// the result depends only on the bytes, however they were split.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::http {

/// A request as received. Fields that may occur only once are lists too, so that a second one is
/// noticed.
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
  /// The name that the client gives its session, up to kMaxSessionBytes; "": none. For the log:
  /// it proves no identity.
  std::string session;
  bool anthropic = false;     ///< anthropic-version: a client of Anthropic's API
  std::string fetch_site;     ///< sec-fetch-site: browsers state the relation to the page's origin
  bool fetch_method = false;  ///< access-control-request-method: a preflight
  std::string body;
};

inline constexpr size_t kMaxSessionBytes = 128;

/// Bodies above it are long: their memory is taken in one piece.
inline constexpr size_t kShortBodyBytes = 64 << 10;

struct ReaderLimits {
  size_t header_bytes = 16 << 10;  ///< request line and header fields together
  size_t body_bytes = 32 << 20;
};

class RequestReader {
 public:
  explicit RequestReader(ReaderLimits limits);
  ~RequestReader();

  enum class State {
    kIdle,    ///< no byte of a request has arrived
    kHeader,  ///< part of the header has arrived
    kBody,    ///< the header and part of the body have arrived
    kDone,    ///< complete: take() it
    kFailed,  ///< not HTTP, or beyond a bound; reads no further
  };
  /// Adds received bytes. Bytes after a complete request wait until it is taken.
  State push(std::string_view bytes);
  State state() const { return state_; }
  /// The header of a request whose body is still arriving, or of a complete one.
  const HttpRequest& head() const;
  /// kDone: returns the request, then parses the bytes after it.
  HttpRequest take();
  /// kFailed: the status and the reason to answer with.
  int status() const { return status_; }
  const std::string& problem() const { return problem_; }
  /// Memory of received bytes that were not taken.
  size_t held_bytes() const;
  /// Bytes that the header of a long body declares, while the body is arriving; 0: none is
  /// arriving, it is short, or its length is unknown.
  size_t declared_bytes() const;
  /// Bytes received after the current request.
  size_t waiting_bytes() const { return bytes_.size(); }

 private:
  class Parser;
  void parse();
  void fail(int status, std::string problem);

  const ReaderLimits limits_;
  std::unique_ptr<Parser> parser_;
  std::string bytes_;      // not parsed yet
  size_t head_bytes_ = 0;  // bytes parsed of an incomplete header
  State state_ = State::kIdle;
  int status_ = 0;
  std::string problem_;
};

}  // namespace hearth::http
