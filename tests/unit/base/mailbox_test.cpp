#include "kernels/base/mailbox.h"

#include <doctest/doctest.h>
#include <poll.h>

#include <string>
#include <thread>
#include <vector>

namespace hearth {
namespace {

bool readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

TEST_CASE("a full mailbox refuses and does not change the message") {
  Mailbox<std::string> box(2);
  std::string a = "a", b = "b", c = "c";
  CHECK(box.try_post(a));
  CHECK(box.try_post(b));
  CHECK_FALSE(box.try_post(c));
  CHECK(c == "c");
  CHECK(box.drain() == std::vector<std::string>{"a", "b"});
  CHECK(box.try_post(c));
}

TEST_CASE("the descriptor is readable exactly while messages wait") {
  Mailbox<int> box(4, true);
  CHECK_FALSE(readable(box.fd()));
  int one = 1;
  CHECK(box.try_post(one));
  CHECK(readable(box.fd()));
  CHECK(box.drain().size() == 1);
  CHECK_FALSE(readable(box.fd()));
}

TEST_CASE("no message is lost between many senders and one reader") {
  constexpr int kThreads = 4, kEach = 2000;
  Mailbox<int> box(64);
  std::vector<std::thread> posters;
  for (int t = 0; t < kThreads; ++t) {
    posters.emplace_back([&box, t] {
      for (int i = 0; i < kEach; ++i) {
        int message = t * kEach + i;
        while (!box.try_post(message)) std::this_thread::yield();
      }
    });
  }
  std::vector<bool> seen(kThreads * kEach, false);
  std::vector<int> last(kThreads, -1);
  int received = 0;
  while (received < kThreads * kEach) {
    for (const int message : box.wait_and_drain(std::chrono::milliseconds(100))) {
      CHECK_FALSE(seen[static_cast<size_t>(message)]);
      seen[static_cast<size_t>(message)] = true;
      const auto poster = static_cast<size_t>(message / kEach);
      CHECK(message > last[poster]);  // order per sender is kept
      last[poster] = message;
      ++received;
    }
  }
  for (std::thread& thread : posters) thread.join();
}

}  // namespace
}  // namespace hearth
