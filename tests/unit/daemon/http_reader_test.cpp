#include <doctest/doctest.h>

#include <string>

#include "daemon/http/request_reader.h"

namespace hearth::http {
namespace {

using State = RequestReader::State;
constexpr ReaderLimits kSmall{.header_bytes = 1024, .body_bytes = 100};

// Bytes all at once, or one by one: the same.
struct Outcome {
  State state;
  int status = 0;
  HttpRequest request;
};
Outcome outcome_of(std::string_view bytes, size_t step) {
  RequestReader reader(kSmall);
  for (size_t i = 0; i < bytes.size(); i += step) reader.push(bytes.substr(i, step));
  Outcome out{.state = reader.state(), .status = reader.status(), .request = {}};
  if (out.state == State::kDone) out.request = reader.take();
  return out;
}

TEST_CASE("a request is read, however its bytes are split") {
  const std::string text =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a\r\n"
      "authorization: Bearer k\r\nAnthropic-Version: 1\r\nX-API-Key: k2\r\nContent-Type: "
      "application/json\r\n"
      "Content-Length: 5\r\n\r\n{\"a\"}GET";
  for (const size_t step : {size_t{1}, size_t{7}, text.size()}) {
    const Outcome out = outcome_of(text, step);
    REQUIRE(out.state == State::kDone);
    CHECK(out.request.method == "POST");
    CHECK(out.request.target == "/v1/completions");
    CHECK(out.request.hosts == std::vector<std::string>{"localhost"});
    CHECK(out.request.origins == std::vector<std::string>{"http://a"});
    CHECK(out.request.authorizations == std::vector<std::string>{"Bearer k"});
    CHECK(out.request.api_keys == std::vector<std::string>{"k2"});
    CHECK(out.request.anthropic);
    CHECK(out.request.body == "{\"a\"}");
    CHECK(out.request.keep_alive);
    CHECK(out.request.may_chunk);
  }
}

TEST_CASE("a client's name for its session is read from each of three headers, up to a bound") {
  const auto session = [](const std::string& fields) {
    return outcome_of("GET / HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n", 5).request.session;
  };
  CHECK(session("").empty());
  CHECK(session("X-Session-Id: a b\r\n") == "a b");
  CHECK(session("session-id: 1\r\n") == "1");
  CHECK(session("X-Claude-Code-Session-Id: 2\r\nSession-Id: 3\r\n") == "2");
  CHECK(session("X-Session: 4\r\n").empty());
  CHECK(session("session-id: " + std::string(300, 'x') + "\r\n") == std::string(128, 'x'));
}

TEST_CASE("a head may be as long as the limit") {
  const std::string head = "GET / HTTP/1.1\r\nHost: h\r\nX: ";
  const std::string text = head + std::string(1024 - head.size() - 4, 'a') + "\r\n\r\n";
  for (size_t step = 1; step <= text.size(); step += 5) {
    CHECK(outcome_of(text, step).state == State::kDone);
  }
}

TEST_CASE("chunks are joined") {
  const Outcome out = outcome_of(
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n",
      3);
  REQUIRE(out.state == State::kDone);
  CHECK(out.request.body == "abcde");
}

TEST_CASE("pipelined requests are read one after the other") {
  RequestReader reader(kSmall);
  reader.push("GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.0\r\nHost: h\r\n\r\nGET /c");
  REQUIRE(reader.state() == State::kDone);
  CHECK(reader.take().target == "/a");
  REQUIRE(reader.state() == State::kDone);
  const HttpRequest second = reader.take();
  CHECK(second.target == "/b");
  CHECK_FALSE(second.keep_alive);
  CHECK_FALSE(second.may_chunk);
  CHECK(reader.state() == State::kHeader);
}

TEST_CASE("the head is known before the body") {
  RequestReader reader(kSmall);
  CHECK(reader.push("") == State::kIdle);
  CHECK(reader.push("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n") == State::kHeader);
  CHECK(reader.push("Content-Length: 3\r\n\r\n") == State::kBody);
  CHECK(reader.head().expectations == std::vector<std::string>{"100-continue"});
  CHECK(reader.push("ab") == State::kBody);
  CHECK(reader.push("c") == State::kDone);
}

TEST_CASE("bytes that are not a request, or too many of them, get their status") {
  struct Case {
    std::string bytes;
    int status;
  };
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  const Case cases[] = {
      {"\x16\x03\x01\x02 hello", 400},
      {"GET\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505},
      {"GET / HTTP/2.0 and more\r\nHost: h\r\n\r\n", 505},
      {"GET / HTTP/1.x HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400},
      {std::string("GET / HTTP/1.1\r\nHo\0st: h\r\n\r\n", 28), 400},
      {"GET / HTTP/1.1\nHost: h\n\n", 400},  // lines that end in LF alone
      {"GET / HTTP/1.1\nHost: h\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\n\n", 400},
      {post + "Content-Length: x\r\n\r\n", 400},
      {post + "Content-Length: -1\r\n\r\n", 400},
      {post + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
      {post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400},
      {post + "Content-Length: 101\r\n\r\n", 413},
      {chunked + "zz\r\n", 400},
      {chunked + "-1\r\n", 400},
      {chunked + "fffffffffffffffff\r\n", 400},
      {chunked + "3\r\nabcd\r\n0\r\n\r\n", 400},
      {chunked + "3\nabc\r\n", 400},
      {chunked + "65\r\n" + std::string(101, 'a') + "\r\n", 413},
      {chunked + "3;" + std::string(300, 'x') + "\r\n", 400},
      {chunked + "3;" + std::string(5000, 'x'), 400},
      {"GET /" + std::string(2000, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n", 431},
      {post + "X: " + std::string(2000, 'a') + "\r\n\r\n", 431},
      {post + "X: " + std::string(2000, 'a'), 431},
      {post + "X: " + std::string(992, 'a') + "\r\n\r\n", 431},  // one byte too many
  };
  for (const Case& each : cases) {
    for (const size_t step : {size_t{1}, size_t{21}, size_t{500}, size_t{1000000}}) {
      const Outcome out = outcome_of(each.bytes, step);
      CHECK_MESSAGE(out.state == State::kFailed, each.bytes.substr(0, 120));
      CHECK_MESSAGE(out.status == each.status, each.bytes.substr(0, 120));
    }
  }
}

}  // namespace
}  // namespace hearth::http
