#include "daemon/http/request_reader.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <optional>
#include <utility>

#include "kernels/base/numbers.h"

namespace hearth::http {
namespace {

namespace beast = boost::beast;
using beast::error_code;
using beast::http::field;

// Bound on a chunk's header line and on bytes between chunks.
constexpr size_t kChunkLineBytes = 256;

}  // namespace

/// Whether the first line has a valid HTTP version other than ours after its method and target.
/// Looks at no byte that the parser does not need to find that out, however the bytes were split.
bool other_version(std::string_view bytes) {
  const size_t target = bytes.find(' ');
  const size_t begin = target == std::string_view::npos ? target : bytes.find(' ', target + 1);
  if (begin == std::string_view::npos) return false;
  const std::string_view version = bytes.substr(begin + 1, 8);
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return version.size() == 8 && version.starts_with("HTTP/") && digit(version[5]) &&
         version[6] == '.' && digit(version[7]) && version != "HTTP/1.0" && version != "HTTP/1.1";
}

bool has_bare_line_feed(std::string_view head) {
  for (size_t at = head.find('\n'); at != std::string_view::npos; at = head.find('\n', at + 1)) {
    if (at == 0 || head[at - 1] != '\r') return true;
  }
  return false;
}

// Wraps Beast's parser and fills an HttpRequest.
class RequestReader::Parser final : public beast::http::basic_parser<true> {
 public:
  HttpRequest request;

 private:
  void on_request_impl(beast::http::verb, beast::string_view method, beast::string_view target,
                       int version, error_code&) override {
    request.may_chunk = version >= 11;
    request.method.assign(method.data(), method.size());
    request.target.assign(target.data(), target.size());
  }
  void on_response_impl(int, beast::string_view, int, error_code&) override {}
  void on_field_impl(field name, beast::string_view name_text, beast::string_view value,
                     error_code&) override {
    const std::string text(value.data(), value.size());
    switch (name) {
      case field::host: request.hosts.push_back(text); return;
      case field::origin: request.origins.push_back(text); return;
      case field::authorization: request.authorizations.push_back(text); return;
      case field::content_type: request.content_types.push_back(text); return;
      case field::expect: request.expectations.push_back(text); return;
      case field::transfer_encoding: request.codings.push_back(text); return;
      case field::content_encoding: request.content_encoding = text; return;
      case field::access_control_request_method: request.fetch_method = true; return;
      default: break;
    }
    if (beast::iequals(name_text, "x-api-key")) request.api_keys.push_back(text);
    if (beast::iequals(name_text, "sec-fetch-site")) request.fetch_site = text;
    if (beast::iequals(name_text, "anthropic-version")) request.anthropic = true;
    for (const char* session : {"x-claude-code-session-id", "x-session-id", "session-id"}) {
      if (request.session.empty() && beast::iequals(name_text, session)) {
        request.session = text.substr(0, kMaxSessionBytes);
      }
    }
  }
  void on_header_impl(error_code&) override {
    request.keep_alive = keep_alive();
    request.has_body = chunked() || content_length().value_or(0) > 0;
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(beast::string_view body, error_code&) override {
    // Untouched memory costs nothing, and growing would hold the bytes twice for a moment.
    if (request.body.size() + body.size() > kShortBodyBytes) {
      request.body.reserve(content_length().value_or(0));
    }
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t, beast::string_view extensions,
                            error_code& error) override {
    // Extensions are not used and could be sent without end.
    if (extensions.size() > kChunkLineBytes) error = beast::http::error::bad_chunk_extension;
  }
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view body, error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_finish_impl(error_code&) override {}
};

RequestReader::RequestReader(ReaderLimits limits) : limits_(limits) {}
RequestReader::~RequestReader() = default;

const HttpRequest& RequestReader::head() const { return parser_->request; }

size_t RequestReader::held_bytes() const {
  return bytes_.size() + (parser_ ? parser_->request.body.size() : 0);
}

size_t RequestReader::declared_bytes() const {
  if (state_ != State::kBody) return 0;
  const size_t bytes = parser_->content_length().value_or(0);
  return bytes > kShortBodyBytes ? bytes : 0;
}

void RequestReader::fail(int status, std::string problem) {
  state_ = State::kFailed;
  status_ = status;
  problem_ = std::move(problem);
  bytes_.clear();
}

RequestReader::State RequestReader::push(std::string_view bytes) {
  if (state_ == State::kFailed) return state_;
  bytes_.append(bytes);
  if (state_ != State::kDone) parse();
  return state_;
}

HttpRequest RequestReader::take() {
  HttpRequest request = std::move(parser_->request);
  parser_.reset();
  head_bytes_ = 0;
  state_ = State::kIdle;
  if (!bytes_.empty()) parse();
  return request;
}

void RequestReader::parse() {
  if (!parser_) {
    parser_ = std::make_unique<Parser>();
    // Bounds are checked below, because Beast's depend on how the bytes were split.
    parser_->header_limit(narrow<std::uint32_t>(limits_.header_bytes + 8));
    parser_->body_limit(limits_.body_bytes);
    parser_->eager(true);
  }
  if (!parser_->is_header_done()) {
    // The parser may have consumed the first line and its line end.
    const bool ends = head_bytes_ > 0 && bytes_.starts_with("\r\n");
    const size_t end = ends ? 0 : bytes_.find("\r\n\r\n");
    const size_t rest = end == std::string::npos ? bytes_.size() : end + (ends ? 2 : 4);
    if (head_bytes_ + rest > limits_.header_bytes) {
      return fail(431, "the request's head is too large");
    }
  }
  size_t used = 0;
  error_code error;
  const bool fresh = state_ == State::kIdle || state_ == State::kHeader;
  while (used < bytes_.size() && !parser_->is_done()) {
    const size_t n =
        parser_->put(boost::asio::buffer(bytes_.data() + used, bytes_.size() - used), error);
    used += n;
    if (error || n == 0) break;
  }
  if (!parser_->is_header_done()) head_bytes_ += used;
  const bool version = error == beast::http::error::bad_version && fresh && other_version(bytes_);
  bytes_.erase(0, used);
  if (error == beast::http::error::header_limit) {
    return fail(431, "the request's head is too large");
  }
  if (error == beast::http::error::body_limit) return fail(413, "the request's body is too large");
  if (version) return fail(505, "want HTTP/1.1 or HTTP/1.0");
  if (error && error != beast::http::error::need_more) {
    return fail(400, "the request is not well-formed HTTP: " + error.message());
  }
  // The parser would wait forever for an empty line.
  if (!parser_->is_header_done() && has_bare_line_feed(bytes_)) {
    return fail(400, "a line of the head ends in LF without CR");
  }
  // The parser consumes only whole headers, and whole lines between chunks.
  const size_t most =
      parser_->is_header_done() ? kChunkLineBytes + limits_.header_bytes : limits_.header_bytes;
  if (!parser_->is_done() && bytes_.size() > most) {
    return fail(parser_->is_header_done() ? 400 : 431, "a line of the request is too long");
  }
  if (parser_->is_done()) {
    state_ = State::kDone;
  } else if (parser_->is_header_done()) {
    state_ = State::kBody;
  } else if (state_ != State::kIdle || used > 0 || !bytes_.empty()) {
    state_ = State::kHeader;
  }
}

}  // namespace hearth::http
