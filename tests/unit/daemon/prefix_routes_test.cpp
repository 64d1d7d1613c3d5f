#include "daemon/broker/requests/prefix_routes.h"

#include <doctest/doctest.h>

#include <string>

namespace hearth::broker {
namespace {

ipc::GenerateRequest asking(std::string prompt) {
  ipc::GenerateRequest request;
  request.prompt = std::move(prompt);
  return request;
}

std::string text(char letter, size_t bytes) { return std::string(bytes, letter); }

TEST_CASE("prompts that begin alike have the same first pieces") {
  const auto one = PrefixRoutes::chain(asking(text('a', 1000) + "one"), "uid:1");
  const auto two = PrefixRoutes::chain(asking(text('a', 1000) + "two" + text('b', 300)), "uid:1");
  CHECK(one.size() == 3);  // of 256 bytes
  CHECK(two.size() == 5);
  CHECK(std::equal(one.begin(), one.end(), two.begin()));
  const auto other = PrefixRoutes::chain(asking("b" + text('a', 1000)), "uid:1");
  CHECK(other.size() == 3);
  CHECK(other[1] != one[1]);  // the same text after another
  CHECK(PrefixRoutes::chain(asking("short"), "uid:1").empty());
  CHECK(PrefixRoutes::chain(asking(text('a', 10 << 20)), "uid:1").size() == 1024);
}

TEST_CASE("what is cached apart has other pieces") {
  ipc::GenerateRequest request = asking(text('a', 300));
  const auto mine = PrefixRoutes::chain(request, "uid:1");
  CHECK(PrefixRoutes::chain(request, "uid:2") != mine);
  request.adapter = "style";
  CHECK(PrefixRoutes::chain(request, "uid:1") != mine);
  request.adapter.clear();
  request.cache_share = "team";
  CHECK(PrefixRoutes::chain(request, "uid:1") == PrefixRoutes::chain(request, "uid:2"));
  request.cache = "off";
  CHECK(PrefixRoutes::chain(request, "uid:1").empty());
  CHECK(PrefixRoutes::chain(ipc::EmbedRequest{}, "uid:1").empty());
  ipc::GenerateRequest ids;
  ids.prompt_ids.assign(130, 7);
  CHECK(PrefixRoutes::chain(ids, "uid:1").size() == 2);
  ipc::GenerateRequest chat;
  chat.messages.text = R"([{"role":"system","content":")" + text('s', 300);
  chat.tools.text = text('t', 256);
  CHECK(PrefixRoutes::chain(chat, "uid:1").size() == 2);
}

TEST_CASE("workers know what they were sent, until it is forgotten") {
  PrefixRoutes routes;
  const auto one = PrefixRoutes::chain(asking(text('a', 1000)), "uid:1");
  const auto longer = PrefixRoutes::chain(asking(text('a', 1000) + text('b', 500)), "uid:1");
  routes.note(one, 1);
  CHECK(routes.known(longer, 1) == 3);
  CHECK(routes.known(longer, 0) == 0);
  routes.note(longer, 0);
  CHECK(routes.known(longer, 0) == 5);
  CHECK(routes.known(longer, 1) == 3);
  routes.forget(0);
  CHECK(routes.known(longer, 0) == 0);
  CHECK(routes.known(longer, 1) == 3);
  // Many others push it out.
  for (int i = 0; i < 3 * 65'536; ++i) {
    routes.note(PrefixRoutes::chain(asking(std::to_string(i) + text('x', 256)), "uid:1"), 0);
  }
  CHECK(routes.known(longer, 1) == 0);
}

TEST_CASE("a request goes where its prefix is, else to the shortest queue") {
  using Choices = std::vector<RouteChoice>;
  CHECK(choose_route(Choices{{true, 3, 0}, {true, 1, 0}}) == 1);
  CHECK(choose_route(Choices{{true, 1, 0}, {true, 1, 0}}) == 0);
  CHECK(choose_route(Choices{{true, 3, 5}, {true, 1, 0}}) == 0);
  CHECK(choose_route(Choices{{true, 4, 5}, {true, 1, 0}}) == 1);  // too many wait there
  CHECK(choose_route(Choices{{true, 3, 5}, {true, 1, 5}}) == 1);  // both have it
  CHECK(choose_route(Choices{{true, 2, 2}, {true, 3, 5}, {true, 1, 0}}) == 1);
  CHECK(choose_route(Choices{{false, 0, 9}, {true, 9, 0}}) == 1);
  CHECK(choose_route(Choices{{false, 2, 0}, {false, 1, 0}}) == 1);  // none is ready
}

}  // namespace
}  // namespace hearth::broker
