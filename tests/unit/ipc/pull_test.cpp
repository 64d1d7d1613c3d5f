// hearth pull with a server of our own that breaks off, forgets, redirects and sends false answers.

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ipc/cli/pull/download.h"
#include "ipc/cli/pull/part_on_disk.h"
#include "ipc/cli/pull/pull_file.h"
#include "ipc/cli/pull/sha256.h"
#include "ipc/cli/pull/source.h"
#include "tests/temp_dir.h"
#include "tests/unit/ipc/http_server.h"

namespace hearth::cli {
namespace {

using tests::http_head;
using tests::HttpAnswer;
using tests::HttpRequest;
using tests::HttpServer;
using tests::TempDir;

std::string hash_of(std::string_view text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.finish();
}

std::string model_text() {
  std::string text = "GGUF";
  for (int i = 0; text.size() < 200'000; ++i) text += fmt::format("{} ", i * 7919);
  return text;
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

DownloadOptions options_for(const std::string& url, const TempDir& dir) {
  DownloadOptions options;
  options.url = url;
  options.target = dir.path() / "model.gguf";
  options.pause_ms = 1;
  options.stall_s = 5;
  return options;
}

/// A server that supports ranges and has a tag.
HttpAnswer serve_ranges(const HttpRequest& request, const std::string& text,
                        const std::string& tag = "\"v1\"") {
  const std::string lines = "ETag: " + tag + "\r\n";
  const bool same = request.if_range.empty() || request.if_range == tag;
  if (!request.range_from || !same) return {http_head("200 OK", text.size(), lines), text};
  if (*request.range_from >= text.size()) {
    return {http_head("416 No", 0, fmt::format("Content-Range: bytes */{}\r\n", text.size())), ""};
  }
  const std::string rest = text.substr(*request.range_from);
  return {http_head("206 Partial", rest.size(),
                    lines + fmt::format("Content-Range: bytes {}-{}/{}\r\n", *request.range_from,
                                        text.size() - 1, text.size())),
          rest};
}

/// Sends the first `bytes` of an answer's body and then ends the connection.
HttpAnswer cut(HttpAnswer answer, size_t bytes, bool reset) {
  answer.body.resize(std::min(bytes, answer.body.size()));
  answer.reset = reset;
  return answer;
}

void check_nothing_left(const TempDir& dir) { CHECK(std::filesystem::is_empty(dir.path())); }

TEST_CASE("SHA-256, by the standard's own examples, in pieces of any size") {
  CHECK(hash_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash_of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  const std::string text = model_text().substr(0, 300);
  for (const size_t piece : {1u, 3u, 63u, 64u, 65u, 200u}) {
    Sha256 hash;
    for (size_t from = 0; from < text.size(); from += piece) {
      hash.update(
          std::as_bytes(std::span(text)).subspan(from, std::min(piece, text.size() - from)));
    }
    CHECK(hash.finish() == hash_of(text));
  }
}

TEST_CASE("sources: what is fetched, and under which name") {
  const std::string hub = "https://hub.example/";
  const auto hf = parse_source("hf:owner/repo/sub/a.Q8_0.gguf", hub, false);
  REQUIRE(hf.ok());
  CHECK(hf->url == "https://hub.example/owner/repo/resolve/main/sub/a.Q8_0.gguf");
  CHECK(hf->file_name == "a.Q8_0.gguf");
  CHECK(hf->hash_in_tag);
  CHECK(parse_source("hf:o/r@v1/a.gguf", hub, false)->url ==
        "https://hub.example/o/r/resolve/v1/a.gguf");
  CHECK(parse_source("https://x.example/d/a%20b.gguf?c=1#d", hub, false)->file_name == "a_b.gguf");
  CHECK(parse_source("http://localhost:1/a.gguf", hub, false).ok());
  CHECK(parse_source("http://[::1]:1/a.gguf", hub, false).ok());
  CHECK(parse_source("http://x.example/a.gguf", hub, true).ok());
  for (const char* refused :
       {"http://x.example/a.gguf", "http://127.0.0.1.x.example/a.gguf", "ftp://x.example/a.gguf",
        "file:///etc/a.gguf", "HTTP://x.example/a.gguf"}) {
    CAPTURE(refused);
    CHECK(parse_source(refused, hub, false).error().code == ErrorCode::kForbidden);
  }
  for (const char* senseless :
       {"", "a.gguf", "hf:a.gguf", "hf:o/r", "hf:o/../a.gguf", "hf:o/r@/a.gguf", "hf:o/r/..",
        "hf:o//a.gguf", "hf:o/r/a b.gguf", "https://x.example/", "https://x.example/a.bin",
        "https://x.example/.gguf", "https://"}) {
    CAPTURE(senseless);
    const auto parsed = parse_source(senseless, hub, false);
    REQUIRE_FALSE(parsed.ok());
    CHECK(parsed.error().code == ErrorCode::kInvalidArgument);
  }
  CHECK(file_name_of("/a/..%2F..%2Fetc%2Fx.gguf").value() == "_.._etc_x.gguf");
  CHECK(file_name_of("..hidden.gguf").value() == "hidden.gguf");
  CHECK(file_name_of("a\x1b[31m.gguf").value() == "a__31m.gguf");
  CHECK_FALSE(file_name_of(std::string(300, 'a') + ".gguf").ok());
}

TEST_CASE("a file is complete and verified before it gets its name") {
  const std::string text = model_text();
  HttpServer server([&](const HttpRequest& request) { return serve_ranges(request, text); });
  const TempDir dir;
  DownloadOptions options = options_for(server.url("/m.gguf"), dir);
  SUBCASE("a requested hash") { options.sha256 = hash_of(text); }
  SUBCASE("none") {}
  uint64_t most = 0;
  const auto done = download(options, [&](const DownloadProgress& at) {
    most = std::max(most, at.bytes_done);
    CHECK_FALSE(std::filesystem::exists(options.target));
    return true;
  });
  REQUIRE_MESSAGE(done.ok(), (done.ok() ? "" : done.error().message));
  CHECK(content_of(options.target) == text);
  CHECK(done->sha256 == hash_of(text));
  CHECK(done->verified == !options.sha256.empty());
  CHECK(done->bytes == text.size());
  CHECK(most <= text.size());
  CHECK_FALSE(std::filesystem::exists(options.target.string() + ".part"));
  CHECK_FALSE(std::filesystem::exists(options.target.string() + ".part.tag"));
}

TEST_CASE("an interrupted download continues where it stopped") {
  const std::string text = model_text();
  for (const bool reset : {false, true}) {
    int asked = 0;
    HttpServer server([&](const HttpRequest& request) {
      const HttpAnswer whole = serve_ranges(request, text);
      return ++asked <= 3 ? cut(whole, 50'000, reset) : whole;
    });
    const TempDir dir;
    const DownloadOptions options = options_for(server.url("/m.gguf"), dir);
    const auto done = download(options, nullptr);
    REQUIRE_MESSAGE(done.ok(), (done.ok() ? "" : done.error().message));
    CHECK(content_of(options.target) == text);
    CHECK(done->sha256 == hash_of(text));
    const auto requests = server.requests();
    CHECK(requests.size() == 4);
    CHECK_FALSE(requests[0].range_from.has_value());
    CHECK(requests.back().range_from.has_value());
    CHECK(requests.back().if_range == "\"v1\"");
    if (!reset) CHECK(*requests[1].range_from == 50'000);
  }
}

TEST_CASE("an interrupted pull goes on in the next one") {
  const std::string text = model_text();
  bool broken = true;
  HttpServer server([&](const HttpRequest& request) {
    const HttpAnswer whole = serve_ranges(request, text);
    return broken ? cut(whole, request.range_from ? 0 : 70'000, false) : whole;
  });
  const TempDir dir;
  DownloadOptions options = options_for(server.url("/m.gguf"), dir);
  const auto first = download(options, nullptr);
  REQUIRE_FALSE(first.ok());
  CHECK(first.error().code == ErrorCode::kIo);
  CHECK_FALSE(std::filesystem::exists(options.target));
  CHECK(std::filesystem::file_size(options.target.string() + ".part") == 70'000);
  broken = false;
  const auto second = download(options, nullptr);
  REQUIRE(second.ok());
  CHECK(second->bytes_kept == 70'000);
  CHECK(content_of(options.target) == text);
  CHECK(second->sha256 == hash_of(text));

  broken = true;
  std::filesystem::remove(options.target);
  int looks = 0;
  const auto stopped = download(options, [&](const DownloadProgress&) { return ++looks < 3; });
  CHECK(stopped.error().code == ErrorCode::kCancelled);
  CHECK_FALSE(std::filesystem::exists(options.target));
}

TEST_CASE("a server without ranges restarts; so does one with another version") {
  const std::string text = model_text(), other = "GGUF, the second version" + text;
  const TempDir dir;
  int asked = 0;
  SUBCASE("no ranges") {
    HttpServer server([&](const HttpRequest&) {
      const HttpAnswer whole{http_head("200 OK", text.size()), text};
      return ++asked <= 2 ? cut(whole, 60'000, false) : whole;
    });
    const auto done = download(options_for(server.url("/m.gguf"), dir), nullptr);
    REQUIRE_MESSAGE(done.ok(), (done.ok() ? "" : done.error().message));
    CHECK(content_of(dir.path() / "model.gguf") == text);
    CHECK(done->bytes_kept == 0);
  }
  SUBCASE("another version between two tries") {
    HttpServer server([&](const HttpRequest& request) {
      if (++asked == 1) return cut(serve_ranges(request, text), 60'000, false);
      return serve_ranges(request, other, "\"v2\"");
    });
    const auto done = download(options_for(server.url("/m.gguf"), dir), nullptr);
    REQUIRE(done.ok());
    CHECK(content_of(dir.path() / "model.gguf") == other);
  }
  SUBCASE("another version, from a server that does not look at If-Range") {
    HttpServer server([&](HttpRequest request) {
      if (++asked == 1) return cut(serve_ranges(request, text), 60'000, false);
      request.if_range.clear();
      return serve_ranges(request, other, "\"v2\"");
    });
    const auto done = download(options_for(server.url("/m.gguf"), dir), nullptr);
    REQUIRE(done.ok());
    CHECK(content_of(dir.path() / "model.gguf") == other);
  }
  SUBCASE("it ended just before the rename") {
    HttpServer server([&](const HttpRequest& request) { return serve_ranges(request, text); });
    std::ofstream(dir.path() / "model.gguf.part") << text;
    std::ofstream(dir.path() / "model.gguf.part.tag") << "\"v1\"\n";
    const auto done = download(options_for(server.url("/m.gguf"), dir), nullptr);
    REQUIRE(done.ok());
    CHECK(done->bytes_kept == text.size());
    CHECK(content_of(dir.path() / "model.gguf") == text);
  }
  SUBCASE("the partial file is of unknown origin") {
    HttpServer server([&](const HttpRequest& request) { return serve_ranges(request, text); });
    std::ofstream(dir.path() / "model.gguf.part") << "GGUF of another version";
    const auto done = download(options_for(server.url("/m.gguf"), dir), nullptr);
    REQUIRE(done.ok());
    CHECK(content_of(dir.path() / "model.gguf") == text);
  }
}

TEST_CASE("another hash, or a file that is not a model: nothing is kept") {
  const std::string text = model_text();
  const TempDir dir;
  std::string body = text, lines;
  HttpServer server([&](const HttpRequest&) {
    return HttpAnswer{http_head("200 OK", body.size(), lines), body};
  });
  DownloadOptions options = options_for(server.url("/m.gguf"), dir);
  SUBCASE("the caller's") { options.sha256 = std::string(64, 'a'); }
  SUBCASE("the hub's") {
    options.hash_in_tag = true;
    lines = "X-Linked-ETag: \"" + std::string(64, 'b') + "\"\r\n";
  }
  SUBCASE("a page of text") { body = "<html>sign in</html>"; }
  SUBCASE("nothing") { body = ""; }
  const auto done = download(options, nullptr);
  REQUIRE_FALSE(done.ok());
  CHECK(done.error().code == ErrorCode::kCorrupt);
  std::filesystem::remove(options.target.string() +
                          ".part");  // of the page, before its type showed
  check_nothing_left(dir);
}

TEST_CASE("wrong lengths") {
  const std::string text = model_text();
  const TempDir dir;
  SUBCASE("fewer bytes than announced, for ever") {
    HttpServer server([&](const HttpRequest& request) {
      if (request.range_from) return HttpAnswer{http_head("200 OK", text.size()), ""};
      return HttpAnswer{http_head("200 OK", text.size() + 10), text};
    });
    const auto done = download(options_for(server.url("/m.gguf"), dir), nullptr);
    REQUIRE_FALSE(done.ok());
    CHECK(done.error().code == ErrorCode::kIo);
  }
  SUBCASE("another part than requested") {
    HttpServer server([&](const HttpRequest& request) {
      HttpRequest wrong = request;
      if (!request.range_from) return cut(serve_ranges(request, text), 1000, false);
      wrong.range_from = *request.range_from + 1;
      return serve_ranges(wrong, text);
    });
    const auto done = download(options_for(server.url("/m.gguf"), dir), nullptr);
    REQUIRE_FALSE(done.ok());
    CHECK(done.error().message.find("another part") != std::string::npos);
  }
  SUBCASE("more than the disk holds") {
    HttpServer server([&](const HttpRequest&) {
      return HttpAnswer{http_head("200 OK", size_t{1} << 45), text};
    });
    const auto done = download(options_for(server.url("/m.gguf"), dir), nullptr);
    REQUIRE_FALSE(done.ok());
    CHECK(done.error().code == ErrorCode::kOutOfMemory);
  }
  CHECK_FALSE(std::filesystem::exists(dir.path() / "model.gguf"));
}

TEST_CASE("redirects are followed within bounds, the token stays with its host") {
  const std::string text = model_text();
  const TempDir dir;
  HttpServer elsewhere([&](const HttpRequest& request) { return serve_ranges(request, text); });
  std::string to = elsewhere.url("/blob");
  const std::string digest = hash_of(text);
  HttpServer server([&](const HttpRequest&) {
    return HttpAnswer{
        http_head("302 Found", 0, "Location: " + to + "\r\nX-Linked-ETag: \"" + digest + "\"\r\n"),
        ""};
  });
  DownloadOptions options = options_for(server.url("/m.gguf"), dir);
  options.hash_in_tag = true;
  options.token = "secret";
  SUBCASE("to the content") {
    const auto done = download(options, nullptr);
    REQUIRE_MESSAGE(done.ok(), (done.ok() ? "" : done.error().message));
    CHECK(done->verified);
    CHECK(server.requests().at(0).authorization == "Bearer secret");
    CHECK(elsewhere.requests().at(0).authorization == "");
  }
  SUBCASE("to plain http elsewhere") {
    to = "http://192.0.2.1/blob";
    CHECK(download(options, nullptr).error().code == ErrorCode::kForbidden);
  }
  SUBCASE("to a file") {
    to = "file:///etc/passwd";
    CHECK(download(options, nullptr).error().code == ErrorCode::kForbidden);
  }
  SUBCASE("for ever") {
    to = server.url("/again");
    const auto done = download(options, nullptr);
    REQUIRE_FALSE(done.ok());
    CHECK(done.error().message.find("redirects") != std::string::npos);
  }
}

TEST_CASE("refusals of a server, and a server that recovers") {
  const std::string text = model_text();
  const TempDir dir;
  std::string status = "404 Not Found";
  int asked = 0;
  HttpServer server([&](const HttpRequest& request) {
    ++asked;
    return status.empty() ? serve_ranges(request, text) : HttpAnswer{http_head(status, 4), "GGUF"};
  });
  const DownloadOptions options = options_for(server.url("/m.gguf"), dir);
  CHECK(download(options, nullptr).error().code == ErrorCode::kNotFound);
  status = "403 Forbidden";
  CHECK(download(options, nullptr).error().code == ErrorCode::kForbidden);
  CHECK(asked == 2);
  status = "503 Busy";
  const auto busy = download(options, nullptr);
  REQUIRE_FALSE(busy.ok());
  CHECK(busy.error().message.find("503") != std::string::npos);
  CHECK(asked == 2 + options.max_failures);
  check_nothing_left(dir);
  const auto recovered = download(options, [&](const DownloadProgress& at) {
    if (!at.trouble.empty()) status.clear();
    return true;
  });
  CHECK(recovered.ok());
  DownloadOptions wrong = options;
  wrong.sha256 = "abc";
  CHECK(download(wrong, nullptr).error().field == "sha256");
}

TEST_CASE("two pulls of one name do not mix") {
  const TempDir dir;
  const auto first = PartOnDisk::open(dir.path() / "m.gguf");
  REQUIRE(first.ok());
  const auto second = PartOnDisk::open(dir.path() / "m.gguf");
  REQUIRE_FALSE(second.ok());
  CHECK(second.error().code == ErrorCode::kBusy);
  CHECK(std::filesystem::exists(dir.path() / "m.gguf.part"));
}

TEST_CASE("the first part of a split model names the others") {
  const auto addresses = [](const std::string& source) {
    std::vector<std::string> out;
    for (const PullSource& each :
         parts_of_source(parse_source(source, "https://h.example", false).value())) {
      out.push_back(each.url + " " + each.file_name);
    }
    return out;
  };
  CHECK(
      addresses("hf:o/r/q4/m.Q4-00001-of-00003.gguf") ==
      std::vector<std::string>{
          "https://h.example/o/r/resolve/main/q4/m.Q4-00001-of-00003.gguf m.Q4-00001-of-00003.gguf",
          "https://h.example/o/r/resolve/main/q4/m.Q4-00002-of-00003.gguf m.Q4-00002-of-00003.gguf",
          "https://h.example/o/r/resolve/main/q4/m.Q4-00003-of-00003.gguf "
          "m.Q4-00003-of-00003.gguf"});
  CHECK(addresses("https://x.example/a%20b-00001-of-00002.gguf?download=true#00001-of-00002")
            .back() ==
        "https://x.example/a%20b-00002-of-00002.gguf?download=true#00001-of-00002 "
        "a_b-00002-of-00002.gguf");
  for (const char* alone :
       {"https://x.example/m.gguf", "https://x.example/m-00002-of-00003.gguf",
        "https://x.example/m-00001-of-00001.gguf", "https://x.example/m-00001-of-99999.gguf",
        "https://x.example/m-00001-of-00003.gguf/n.gguf"}) {
    CAPTURE(alone);
    CHECK(addresses(alone).size() == 1);
  }
}

/// Pulls from these servers, in order; the content's hash is known.
FilePull pull_of(const std::vector<const HttpServer*>& servers, const TempDir& dir,
                 const std::string& text) {
  FilePull pull;
  for (const HttpServer* server : servers) {
    pull.sources.push_back(options_for(server->url("/m.gguf"), dir));
    pull.sources.back().sha256 = hash_of(text);
  }
  return pull;
}

const auto kIgnore = [](const std::string&) {};

TEST_CASE("a file that is there is adopted by its hash, without a byte of it downloaded") {
  const std::string text = model_text();
  const TempDir dir;
  HttpServer server([&](const HttpRequest& request) {
    return HttpAnswer{
        http_head("200 OK", text.size(), "X-Linked-ETag: \"" + hash_of(text) + "\"\r\n"),
        request.path == "/m.gguf" ? text : ""};
  });
  FilePull pull = pull_of({&server}, dir, text);
  const std::filesystem::path target = pull.sources[0].target;
  const auto put = [&](const std::string& content) {
    std::ofstream(target, std::ios::binary) << content;
  };
  put(text);
  const auto adopted = pull_file(pull, nullptr, kIgnore);
  REQUIRE_MESSAGE(adopted.ok(), (adopted.ok() ? "" : adopted.error().message));
  CHECK(adopted->was_there);
  CHECK(adopted->file.verified);
  CHECK(adopted->file.sha256 == hash_of(text));
  CHECK(adopted->file.bytes == text.size());
  CHECK(server.requests().empty());
  CHECK(pull_file(
            pull, [](const DownloadProgress&) { return false; }, kIgnore)
            .error()
            .code == ErrorCode::kCancelled);

  // A hub is asked for the hash.
  pull.sources[0].sha256.clear();
  CHECK(pull_file(pull, nullptr, kIgnore).error().message.find("is there already (--force") !=
        std::string::npos);
  CHECK(server.requests().empty());
  pull.sources[0].hash_in_tag = true;
  CHECK(pull_file(pull, nullptr, kIgnore)->file.verified);
  CHECK(server.requests().size() == 1);
  CHECK(server.requests()[0].method == "HEAD");
  CHECK(std::filesystem::exists(target));

  // Another content stays, unless it may be replaced.
  put(text + "more");
  const auto other = pull_file(pull, nullptr, kIgnore);
  REQUIRE_FALSE(other.ok());
  CHECK(other.error().code == ErrorCode::kInvalidArgument);
  CHECK(other.error().message.find("is there already, its SHA-256 is ") != std::string::npos);
  CHECK(content_of(target) == text + "more");
  pull.force = true;
  CHECK_FALSE(pull_file(pull, nullptr, kIgnore)->was_there);
  CHECK(content_of(target) == text);
}

TEST_CASE("a part that is there counts by its size where its hash is not known") {
  const std::string text = model_text();
  const TempDir dir;
  HttpServer server([&](const HttpRequest& request) { return serve_ranges(request, text); });
  FilePull pull = pull_of({&server}, dir, text);
  pull.sources[0].sha256.clear();
  pull.part_of_set = true;
  std::ofstream(pull.sources[0].target) << text;
  const auto there = pull_file(pull, nullptr, kIgnore);
  REQUIRE_MESSAGE(there.ok(), (there.ok() ? "" : there.error().message));
  CHECK(there->was_there);
  CHECK_FALSE(there->file.verified);
  std::ofstream(pull.sources[0].target) << text << "x";
  const auto longer = pull_file(pull, nullptr, kIgnore);
  REQUIRE_FALSE(longer.ok());
  CHECK(longer.error().message.find(fmt::format("with {} bytes, its source has {}", text.size() + 1,
                                                text.size())) != std::string::npos);
}

TEST_CASE("where a mirror fails the next continues with what came") {
  const std::string text = model_text();
  const TempDir dir;
  std::vector<std::string> reports;
  const auto report = [&](const std::string& line) { reports.push_back(line); };
  HttpServer dead([](const HttpRequest&) { return HttpAnswer{http_head("404 Gone", 0), ""}; });
  HttpServer breaks([&](const HttpRequest& request) {
    return cut(serve_ranges(request, text, "\"a\""), request.range_from ? 0 : 70'000, false);
  });
  HttpServer good(
      [&](const HttpRequest& request) { return serve_ranges(request, text, "\"other\""); });
  const FilePull pull = pull_of({&dead, &breaks, &good}, dir, text);
  const auto done = pull_file(pull, nullptr, report);
  REQUIRE_MESSAGE(done.ok(), (done.ok() ? "" : done.error().message));
  CHECK(done->file.verified);
  CHECK(done->file.bytes_kept == 70'000);
  CHECK(content_of(pull.sources[0].target) == text);
  REQUIRE(good.requests().size() == 1);
  CHECK(good.requests()[0].range_from == 70'000);
  CHECK(good.requests()[0].if_range.empty());
  REQUIRE(reports.size() == 2);
  CHECK(reports[0].find("status 404; going on with http://127.0.0.1:") != std::string::npos);
}

TEST_CASE("mirrors with another content, without ranges, or without a hash") {
  const std::string text = model_text(), other = "GGUF of another version " + model_text();
  const TempDir dir;
  HttpServer wrong([&](const HttpRequest& request) {
    return cut(serve_ranges(request, other), request.range_from ? 0 : 70'000, false);
  });
  HttpServer all_wrong([&](const HttpRequest& request) { return serve_ranges(request, other); });
  HttpServer good([&](const HttpRequest& request) { return serve_ranges(request, text); });
  HttpServer plain([&](const HttpRequest&) {
    return HttpAnswer{http_head("200 OK", text.size()), text};
  });
  SUBCASE("a beginning of another content is dropped") {
    const FilePull pull = pull_of({&wrong, &good}, dir, text);
    const auto done = pull_file(pull, nullptr, kIgnore);
    REQUIRE_MESSAGE(done.ok(), (done.ok() ? "" : done.error().message));
    CHECK(content_of(pull.sources[0].target) == text);
    CHECK(good.requests().size() == 2);
  }
  SUBCASE("a whole file of another content is dropped") {
    const FilePull pull = pull_of({&all_wrong, &plain}, dir, text);
    REQUIRE(pull_file(pull, nullptr, kIgnore).ok());
    CHECK(content_of(pull.sources[0].target) == text);
  }
  SUBCASE("a server without ranges begins again") {
    const FilePull pull = pull_of({&wrong, &plain}, dir, text);
    REQUIRE(pull_file(pull, nullptr, kIgnore).ok());
    CHECK(content_of(pull.sources[0].target) == text);
  }
  SUBCASE("no source has it") {
    const FilePull pull = pull_of({&all_wrong, &all_wrong}, dir, text);
    CHECK(pull_file(pull, nullptr, kIgnore).error().code == ErrorCode::kCorrupt);
    check_nothing_left(dir);
  }
  SUBCASE("without a hash") {
    FilePull pull = pull_of({&good, &plain}, dir, text);
    for (DownloadOptions& source : pull.sources) source.sha256.clear();
    CHECK(pull_file(pull, nullptr, kIgnore).error().field == "sha256");
    CHECK(good.requests().empty());
  }
}

}  // namespace
}  // namespace hearth::cli
