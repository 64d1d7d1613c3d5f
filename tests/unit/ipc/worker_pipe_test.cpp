#include "ipc/wire/worker_pipe.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

namespace hearth::ipc {
namespace {

using Read = WorkerPipe::Read;

std::pair<WorkerPipe, WorkerPipe> two_ends() {
  int fds[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  return {WorkerPipe(fds[0]), WorkerPipe(fds[1])};
}

TEST_CASE("a pipe's message is a header of sixteen little-endian bytes and its payload") {
  std::string wire;
  append_pipe_message(wire, {PipeKind::kEvent, 0x0102030405060708u, "abc"});
  CHECK(wire == std::string("\x03\0\0\0\x03\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01"
                            "abc",
                            19));
}

TEST_CASE("messages are read from a stream however it was split") {
  const std::string large(200'000, 'x');
  std::string wire;
  append_pipe_message(wire, {PipeKind::kRequest, 1, "{}"});
  append_pipe_message(wire, {PipeKind::kAnswers, UINT64_MAX, large});
  append_pipe_message(wire, {PipeKind::kWatch, 0, ""});
  for (const size_t piece : {size_t{1}, size_t{15}, size_t{17}, size_t{4099}, size_t{65536}}) {
    CAPTURE(piece);
    PipeReader reader;
    std::vector<std::pair<PipeKind, uint64_t>> met;
    std::vector<size_t> sizes;
    for (size_t at = 0; at < wire.size(); at += piece) {
      const size_t bytes = wire.copy(reader.room().data(), piece, at);
      reader.filled(bytes);
      while (true) {
        const auto message = reader.next();
        REQUIRE(message.ok());
        if (!*message) break;
        met.emplace_back((*message)->kind, (*message)->number);
        sizes.push_back((*message)->bytes.size());
        if (sizes.size() == 2) CHECK((*message)->bytes == large);
      }
    }
    CHECK(met == std::vector<std::pair<PipeKind, uint64_t>>{{PipeKind::kRequest, 1},
                                                            {PipeKind::kAnswers, UINT64_MAX},
                                                            {PipeKind::kWatch, 0}});
    CHECK(sizes == std::vector<size_t>{2, large.size(), 0});
  }
}

TEST_CASE("bytes that cannot be a message are an error, once and permanently") {
  for (const std::string_view header : {std::string_view("\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0", 16),
                                        std::string_view("\0\0\0\x80\0\0\0\0\0\0\0\0\0\0\0\0", 16),
                                        std::string_view("GET / HTTP/1.1\r\n", 16)}) {
    PipeReader reader;
    header.copy(reader.room().data(), header.size());
    reader.filled(header.size());
    REQUIRE_FALSE(reader.next().ok());
    CHECK(reader.next().error().code == ErrorCode::kProtocol);
  }
}

TEST_CASE("neither end waits for the other, and what the socket refuses is sent later, complete") {
  auto [from, to] = two_ends();
  CHECK(to.read() == Read::kDrained);
  const std::string part(10'000, 'p');
  constexpr uint64_t kMessages = 200;
  for (uint64_t i = 1; i <= kMessages; ++i) REQUIRE(from.send({PipeKind::kAnswers, i, part}));
  CHECK(from.has_unsent());  // nothing was read, and it returned
  uint64_t met = 0;
  while (met < kMessages) {
    REQUIRE(to.read() != Read::kEnded);
    while (true) {
      const auto message = to.next();
      REQUIRE(message.ok());
      if (!*message) break;
      REQUIRE((*message)->number == ++met);
      REQUIRE((*message)->bytes == part);
    }
    REQUIRE(from.write());
  }
  CHECK_FALSE(from.has_unsent());
}

TEST_CASE("long messages, which are not copied, and short ones arrive complete and in order") {
  auto [from, to] = two_ends();
  const std::vector<size_t> sizes = {3, 1'000'000, 0, 5, 300'000, 300'000, 7, 262'144, 262'143, 1};
  for (size_t i = 0; i < sizes.size(); ++i) {
    REQUIRE(from.send(PipeKind::kRequest, i, std::string(sizes[i], static_cast<char>('a' + i))));
  }
  CHECK(from.has_unsent());
  size_t met = 0;
  while (met < sizes.size()) {
    REQUIRE(to.read() != Read::kEnded);
    while (true) {
      const auto message = to.next();
      REQUIRE(message.ok());
      if (!*message) break;
      REQUIRE((*message)->number == met);
      REQUIRE((*message)->bytes == std::string(sizes[met], static_cast<char>('a' + met)));
      ++met;
    }
    REQUIRE(from.write());
  }
  CHECK_FALSE(from.has_unsent());
}

TEST_CASE("messages sent before an end closed are read, then its end") {
  auto [stays, goes] = two_ends();
  {
    WorkerPipe last = std::move(goes);
    REQUIRE(last.send({PipeKind::kEvent, 0, "why"}));
  }
  CHECK(stays.read() == Read::kDrained);
  const auto message = stays.next();
  REQUIRE(message.ok());
  REQUIRE(message->has_value());
  CHECK((*message)->bytes == "why");
  CHECK(stays.read() == Read::kEnded);
  CHECK_FALSE(stays.send({PipeKind::kControl, 0, "{}"}));  // and no signal
}

TEST_CASE("connecting to a missing socket is an error that names it") {
  const auto pipe = WorkerPipe::connect("/nonexistent/1.sock");
  REQUIRE_FALSE(pipe.ok());
  CHECK(pipe.error().message.find("/nonexistent/1.sock") != std::string::npos);
  CHECK_FALSE(WorkerPipe::connect(std::string(200, 'x')).ok());
}

}  // namespace
}  // namespace hearth::ipc
