#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "daemon/http/guard.h"
#include "daemon/http/peer.h"
#include "daemon/http/routes.h"

namespace hearth::http {
namespace {

TEST_CASE("a body is JSON, and one without a content type not from a browser") {
  const auto status = [](const auto& change) {
    HttpRequest head;
    head.method = "POST";
    head.target = "/v1/completions";
    head.hosts = {"localhost"};
    change(head);
    Route out;
    const Rules rules{.hosts = HostRules::of_unix_socket({}), .origins = {"http://localhost:3000"}};
    const std::optional<Refusal> refusal = route(rules, head, &out);
    return refusal ? refusal->status : 200;
  };
  const std::pair<std::vector<std::string>, int> content_types[] = {
      {{"text/plain"}, 415},
      {{"Application/JSON; charset=UTF-8"}, 200},
      {{"application/json; charset=latin-1"}, 415},
      {{}, 200}};
  for (const auto& [types, want] : content_types) {
    CHECK(status([&types](HttpRequest& h) { h.content_types = types; }) == want);
  }
  CHECK(status([](HttpRequest& h) { h.origins = {"http://localhost:3000"}; }) == 415);
  CHECK(status([](HttpRequest& h) { h.fetch_site = "same-origin"; }) == 415);
}

TEST_CASE("literal addresses with a port are listened on") {
  const Result<Endpoint> v4 = parse_endpoint("127.0.0.1:8080");
  REQUIRE(v4.ok());
  CHECK(v4->address == "127.0.0.1");
  CHECK(v4->port == 8080);
  const Result<Endpoint> v6 = parse_endpoint("[::1]:80");
  REQUIRE(v6.ok());
  CHECK(v6->v6);
  CHECK(v6->address == "::1");
  CHECK(parse_endpoint("127.8.9.10:0").ok());
  CHECK(parse_endpoint("[0:0::0:1]:80")->address == "::1");
  using namespace std::string_view_literals;
  CHECK_FALSE(parse_endpoint("[::1\0x]:80"sv).ok());
  CHECK_FALSE(parse_endpoint("127.0.0.1\0.evil.test:80"sv).ok());
  CHECK(v4->loopback);
  CHECK(v6->loopback);
  for (const char* text : {"0.0.0.0:8080", "[::]:8080", "192.168.1.7:8080", "[fe80::1]:80",
                           "[::ffff:1.2.3.4]:80", "8.8.8.8:80", "[::ffff:127.0.0.1]:80"}) {
    const Result<Endpoint> endpoint = parse_endpoint(text);
    REQUIRE_MESSAGE(endpoint.ok(), text);
    CHECK_FALSE(endpoint->loopback);
  }
  for (const char* text : {"*:8080", ":8080", "8080", "localhost:8080", "127.0.0.1",
                           "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:80x",
                           "[127.0.0.1]:80", "::1:80", "", "[]:1", "127.1:80", "0x7f.0.0.1:80"}) {
    const Result<Endpoint> endpoint = parse_endpoint(text);
    REQUIRE_FALSE_MESSAGE(endpoint.ok(), text);
    CHECK(endpoint.error().field == "http.listen");
  }
}

TEST_CASE("Host is exactly one of the listener's names") {
  struct Case {
    const char* host;
    bool tcp;   // 127.0.0.1:8080
    bool unix;  // http.sock
  };
  const Case cases[] = {
      {"127.0.0.1:8080", true, false},
      {"localhost:8080", true, false},
      {"LocalHost:8080", true, false},
      {"[::1]:8080", true, false},
      {"models.test:8080", true, true},  // http.allowed_hosts
      {"MODELS.test:8080", true, true},
      {"localhost", false, true},
      {"hearth", false, true},
      {"HEARTH", false, true},
      {"127.0.0.1", false, false},
      {"", false, false},
      {"localhost:80", false, false},
      {"localhost:8081", false, false},
      {"localhost:08080", false, false},
      {"localhost:8080 ", false, false},
      {" localhost:8080", false, false},
      {"localhost.:8080", false, false},
      {"localhost:8080.", false, false},
      {"evil.example:8080", false, false},
      {"localhost.evil.example:8080", false, false},
      {"evil.example", false, false},
      {"127.0.0.1.nip.io:8080", false, false},
      {"user@localhost:8080", false, false},
      {"localhost:8080@evil.example", false, false},
      {"localhost:8080,evil.example", false, false},
      {"127.1:8080", false, false},
      {"2130706433:8080", false, false},
      {"0.0.0.0:8080", false, false},
      {"::1:8080", false, false},
      {"[::ffff:127.0.0.1]:8080", false, false},
      {"http://localhost:8080", false, false},
      {"hearth:8080", false, false},
      {"models.test", false, false},
  };
  CHECK(std::size(cases) >= 30);
  const HostRules tcp = HostRules::of_tcp(*parse_endpoint("127.0.0.1:8080"), {"models.test:8080"});
  const HostRules unix = HostRules::of_unix_socket({"models.test:8080"});
  for (const Case& each : cases) {
    CHECK_MESSAGE(tcp.allows(each.host) == each.tcp, each.host);
    CHECK_MESSAGE(unix.allows(each.host) == each.unix, each.host);
  }
  CHECK(HostRules::of_tcp(*parse_endpoint("127.0.0.1:80"), {}).allows("localhost"));
}

TEST_CASE("Origin is absent or equals an allowed one, byte for byte") {
  struct Case {
    std::vector<std::string> origins;
    const char* site;
    bool allowed;
  };
  const Case cases[] = {
      {{}, "", true},
      {{}, "none", true},
      {{}, "same-origin", true},
      {{}, "cross-site", false},
      {{}, "same-site", false},
      {{}, "anything", false},
      {{"http://localhost:3000"}, "", true},
      {{"http://localhost:3000"}, "cross-site", true},
      {{"https://app.example"}, "", true},
      {{"null"}, "", false},
      {{""}, "", false},
      {{"http://localhost"}, "", false},
      {{"http://localhost:3001"}, "", false},
      {{"https://localhost:3000"}, "", false},
      {{"http://localhost:3000/"}, "", false},
      {{"http://localhost:3000 "}, "", false},
      {{"HTTP://localhost:3000"}, "", false},
      {{"http://LOCALHOST:3000"}, "", false},
      {{"http://localhost:3000.evil.example"}, "", false},
      {{"http://evil.example"}, "", false},
      {{"http://evil.example"}, "same-origin", false},
      {{"https://app.example.evil.example"}, "", false},
      {{"https://app.example:443"}, "", false},
      {{"http://localhost:3000", "http://localhost:3000"}, "", false},
      {{"http://localhost:3000", "http://evil.example"}, "", false},
      {{"http://localhost:3000,http://evil.example"}, "", false},
      {{"file://"}, "", false},
      {{"chrome-extension://abcdef"}, "", false},
  };
  CHECK(std::size(cases) >= 25);
  const std::vector<std::string> allowed = {"http://localhost:3000", "https://app.example", "null"};
  for (const Case& each : cases) {
    CHECK_MESSAGE(origin_allowed(each.origins, each.site, allowed) == each.allowed,
                  (each.origins.empty() ? "" : each.origins.front()) << " from " << each.site);
  }
}

constexpr const char* kAll = "0123456789abcdef-all";
constexpr const char* kRead = "0123456789abcdef-read";

Keys two_keys() {
  return std::move(Keys::parse("# ours\n\nme all 0123456789abcdef-all\n"
                               "you  read,metrics\t0123456789abcdef-read\r\n",
                               "keys"))
      .value();
}

TEST_CASE("a key permits what its scopes name") {
  const Keys keys = two_keys();
  CHECK(keys.size() == 2);
  CHECK(keys.check(kAll, Scope::kGenerate).verdict == Keys::Verdict::kAdmitted);
  CHECK(keys.check(kAll, Scope::kMetrics).verdict == Keys::Verdict::kAdmitted);
  CHECK(keys.check(kRead, Scope::kRead).verdict == Keys::Verdict::kAdmitted);
  CHECK(keys.check(kRead, Scope::kGenerate).verdict == Keys::Verdict::kOutOfScope);
  for (const char* wrong : {"", "0", "0123456789abcdef-al", "0123456789abcdef-alll",
                            "0123456789abcdef-ALL", "0123456789abcdef-all0123456789abcdef-all"}) {
    CHECK_MESSAGE(keys.check(wrong, Scope::kRead).verdict == Keys::Verdict::kUnknown, wrong);
  }
  CHECK(bearer("Bearer abc") == "abc");
  CHECK(bearer("bearer   abc") == "abc");
  CHECK_FALSE(bearer("Basic abc").has_value());
  CHECK_FALSE(bearer("Bearer").has_value());
}

TEST_CASE("each key has an owner of its own, above the users of this machine") {
  const Keys keys = two_keys();
  const uint32_t me = keys.check(kAll, Scope::kRead).owner;
  const uint32_t you = keys.check(kRead, Scope::kRead).owner;
  CHECK(keys.owners() == std::map<uint32_t, std::string>{{me, "me"}, {you, "you"}});
  CHECK(me == key_owner("me"));
  CHECK(me == 0xB417'1553U);  // what is kept belongs to it after every restart and update
  for (const uint32_t owner : {me, you}) {
    CHECK(owner >= 0x8000'0000U);
    CHECK(owner < UINT32_MAX);
  }
  CHECK(keys.check("0123456789abcdef-none", Scope::kRead).owner == 0);
}

TEST_CASE("an address that other machines reach takes any Host, unless names are listed") {
  const Endpoint endpoint = *parse_endpoint("192.0.2.7:8443");
  const HostRules any = HostRules::of_tcp(endpoint, {});
  for (const char* host : {"192.0.2.7:8443", "box.example", "localhost:8443", ""}) {
    CHECK(any.allows(host));
  }
  const HostRules listed = HostRules::of_tcp(endpoint, {"Box.example"});
  CHECK(listed.allows("box.example"));
  CHECK(listed.allows("192.0.2.7:8443"));
  CHECK_FALSE(listed.allows("other.example"));
}

TEST_CASE("a peer's machine is known by its address") {
  CHECK(canonical_address("192.0.2.7") == "192.0.2.7");
  CHECK(canonical_address("::ffff:192.0.2.7") == "192.0.2.7");
  CHECK(canonical_address("2001:DB8:0::1") == "2001:db8::1");
  for (const char* text : {"", "localhost", "192.0.2", "1.2.3.4:5", "[::1]"}) {
    CHECK_MESSAGE(canonical_address(text).empty(), text);
  }
  const auto number = [](const char* text) {
    sockaddr_storage out{};
    sockaddr_in v4{.sin_family = AF_INET, .sin_port = 1, .sin_addr = {}, .sin_zero = {}};
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    if (::inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
      std::memcpy(&out, &v4, sizeof v4);
    } else {
      REQUIRE(::inet_pton(AF_INET6, text, &v6.sin6_addr) == 1);
      std::memcpy(&out, &v6, sizeof v6);
    }
    return network_peer_number(out);
  };
  CHECK(number("192.0.2.7") == number("::ffff:192.0.2.7"));
  CHECK(number("2001:db8::1") == number("2001:db8::2"));  // one network of 64 bits
  std::set<uint32_t> met;
  for (int i = 0; i < 64; ++i) met.insert(number(fmt::format("192.0.2.{}", i).c_str()));
  CHECK(met.size() > 32);
  for (const uint32_t each : met) CHECK(each >= 0x8000'0000U);
}

TEST_CASE("an error in a key file names its line and does not quote it") {
  for (const char* text :
       {"", "# none\n", "me all\n", "me all 0123456789abcdef more\n", "me all short\n",
        "me some 0123456789abcdef\n", "me all 0123456789abcdef\nme read 0123456789abcdeg\n",
        "me all 0123456789abcdef\nyou read 0123456789abcdef\n", "m:e all 0123456789abcdef\n",
        "m\xC3\xA9 all 0123456789abcdef\n"}) {
    const Result<Keys> keys = Keys::parse(text, "keys");
    REQUIRE_FALSE_MESSAGE(keys.ok(), text);
    CHECK(keys.error().message.find("0123456789") == std::string::npos);
  }
  std::string pattern = (std::filesystem::temp_directory_path() / "hearth-keys-XXXXXX").string();
  const int fd = ::mkstemp(pattern.data());
  REQUIRE(fd >= 0);
  ::close(fd);
  std::ofstream(pattern) << "me all 0123456789abcdef\n";
  REQUIRE(::chmod(pattern.c_str(), 0600) == 0);
  CHECK(Keys::load(pattern).ok());
  for (const mode_t mode : {0640u, 0604u, 0620u}) {
    REQUIRE(::chmod(pattern.c_str(), mode) == 0);
    CHECK(Keys::load(pattern).error().code == ErrorCode::kForbidden);
  }
  std::filesystem::remove(pattern);
  CHECK(Keys::load(pattern).error().code == ErrorCode::kIo);
  CHECK_FALSE(Keys::load("/").ok());
}

TEST_CASE("requests are routed, or refused with the right status") {
  const Keys keys = two_keys();
  const Rules rules{.hosts = HostRules::of_tcp(*parse_endpoint("127.0.0.1:8080"), {}),
                    .origins = {"http://localhost:3000"},
                    .keys = &keys};
  const auto status = [&](const auto& change, Route* route_out = nullptr) {
    HttpRequest head;
    head.method = "POST";
    head.target = "/v1/completions";
    head.hosts = {"localhost:8080"};
    head.content_types = {"application/json"};
    head.authorizations = {std::string("Bearer ") + kAll};
    change(head);
    Route out;
    const std::optional<Refusal> refusal = route(rules, head, &out);
    if (route_out != nullptr) *route_out = out;
    return refusal ? refusal->status : 200;
  };
  using Head = HttpRequest;
  CHECK(status([](Head&) {}) == 200);
  CHECK(status([](Head& h) { h.hosts = {"evil.example"}; }) == 421);
  CHECK(status([](Head& h) { h.hosts.clear(); }) == 400);
  CHECK(status([](Head& h) { h.hosts.push_back("localhost:8080"); }) == 400);
  CHECK(status([](Head& h) { h.origins = {"http://evil.example"}; }) == 403);
  CHECK(status([](Head& h) { h.fetch_site = "cross-site"; }) == 403);
  CHECK(status([](Head& h) { h.authorizations.clear(); }) == 401);
  CHECK(status([](Head& h) { h.authorizations = {"Bearer 0123456789abcdef-none"}; }) == 401);
  CHECK(status([](Head& h) { h.authorizations = {std::string("Bearer ") + kRead}; }) == 403);
  CHECK(status([](Head& h) { h.api_keys = {kAll}; }) == 400);  // two keys
  CHECK(status([](Head& h) {
          h.authorizations.clear();
          h.api_keys = {kAll};
        }) == 200);
  CHECK(status([](Head& h) { h.content_encoding = "gzip"; }) == 415);
  CHECK(status([](Head& h) { h.codings = {"chunked"}; }) == 200);
  CHECK(status([](Head& h) { h.codings = {"gzip, chunked"}; }) == 501);
  CHECK(status([](Head& h) { h.expectations = {"tea"}; }) == 417);
  CHECK(status([](Head& h) { h.target = "http://localhost:8080/v1/completions"; }) == 200);
  CHECK(status([](Head& h) { h.target = "HTTP://evil.example/v1/completions"; }) == 421);
  CHECK(status([](Head& h) { h.target = "http:///v1/completions"; }) == 400);
  CHECK(status([](Head& h) { h.target = "https://localhost:8080/v1/completions"; }) == 400);
  CHECK(status([](Head& h) { h.target = "*"; }) == 400);
  for (const char* target : {"/health", "/ready", "http://localhost:8080/health"}) {
    CHECK(status([&](Head& h) {
            h.method = "HEAD";
            h.target = target;
          }) == 200);
  }
  CHECK(status([](Head& h) { h.method = "HEAD"; }) == 405);
  CHECK(status([](Head& h) { h.target = "/v1/completions?x=1"; }) == 400);
  CHECK(status([](Head& h) { h.target = "/v1/nonesuch"; }) == 404);
  CHECK(status([](Head& h) { h.target = "/v1/completions/"; }) == 200);
  CHECK(status([](Head& h) { h.method = "GET"; }) == 405);
  for (const char* target : {"/health", "/ready"}) {
    CHECK(status([&](Head& h) {
            h.method = "GET";
            h.target = target;
            h.authorizations.clear();
          }) == 200);
  }
  Route found;
  CHECK(status(
            [](Head& h) {
              h.method = "GET";
              h.target = "/v1/models/a%20b.c";
              h.authorizations = {std::string("Bearer ") + kRead};
            },
            &found) == 200);
  CHECK(found.action == Action::kModel);
  CHECK(found.name == "a b.c");
  CHECK(status([](Head& h) {
          h.method = "GET";
          h.target = "/v1/models/a%2";
        }) == 400);
  CHECK(status(
            [](Head& h) {
              h.method = "OPTIONS";
              h.origins = {"http://localhost:3000"};
              h.fetch_method = true;
              h.authorizations.clear();
            },
            &found) == 200);
  CHECK(found.action == Action::kPreflight);
  CHECK(status(
            [](Head& h) {
              h.target = "/v1/messages";
              h.authorizations.clear();
            },
            &found) == 401);
  CHECK(found.api == Api::kMessages);  // the API whose error form is used
}

}  // namespace
}  // namespace hearth::http
