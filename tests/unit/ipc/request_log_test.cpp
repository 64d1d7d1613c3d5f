#include "ipc/client/request_log.h"

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "ipc/wire/codec.h"
#include "ipc/wire/token_digest.h"
#include "tests/temp_dir.h"

namespace hearth::ipc {
namespace {

namespace fs = std::filesystem;

RecordedEvent recorded(int64_t arrival_us, const ClientRequest& request) {
  RecordedEvent out;
  out.arrival_us = arrival_us;
  out.model = "tiny";
  out.request.text = encode_request(request);
  out.finish_reasons = {"length"};
  out.seed = 18446744073709551615u;
  out.usage = {.prompt_tokens = 40, .cached_tokens = 32, .output_tokens = 7};
  out.timings = {.queue_ms = 0.5, .ttft_ms = 3.25, .tpot_ms = 1.5, .total_ms = 20};
  out.digests = {TokenDigest().hex()};
  return out;
}

GenerateRequest full_request() {
  GenerateRequest request;
  request.model = "tiny";
  request.messages = {R"([{"role":"user","content":"a \"quoted\" word\nand a line"}])"};
  request.tools = {R"([{"type":"function","function":{"name":"f"}}])"};
  request.seed = 7;
  request.temperature = 0.5f;
  request.stop = {"\n\n"};
  return request;
}

std::string text_of(const fs::path& file) {
  std::ostringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}

struct Files {
  tests::TempDir dir;
  fs::path file = dir.path() / "day";

  void write(const std::string& text) const { std::ofstream(file, std::ios::binary) << text; }
  std::string refusal() const {
    const Result<RequestLog> log = RequestLog::open(file);
    return log.ok() ? "" : log.error().message;
  }
};

const std::string kHeader = encode_log_header({.text = true, .began = "2026-11-27T09:30:00Z"});

TEST_CASE("a recording is read as it was written, by arrival") {
  const Files files;
  EmbedRequest embed;
  embed.texts = {"one", ""};
  RecordedEvent third = recorded(3'000'000, embed);
  third.text_tokens = {2, 1};
  const std::vector<RecordedEvent> events = {recorded(2'000'000, full_request()), third,
                                             recorded(1'000'000, GenerateRequest{})};
  {
    Result<RequestLogWriter> writer = RequestLogWriter::create(
        files.file, {.text = true, .began = "2026-11-27T09:30:00Z"}, 1 << 20);
    REQUIRE(writer.ok());
    for (const RecordedEvent& event : events) {
      const Result<bool> added = writer->add(event);
      REQUIRE((added.ok() && *added));
    }
    CHECK(writer->bytes() == fs::file_size(files.file));
  }
  struct stat facts {};
  REQUIRE(::stat(files.file.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);

  const Result<RequestLog> log = RequestLog::open(files.file);
  REQUIRE_MESSAGE(log.ok(), files.refusal());
  CHECK(log->header() == RequestLogHeader{.text = true, .began = "2026-11-27T09:30:00Z"});
  CHECK_FALSE(log->cut());
  REQUIRE(log->records().size() == 3);
  const size_t written[] = {2, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    RecordedEvent want = events[written[i]];
    const Result<ClientRequest> request = log->request(i);
    REQUIRE(request.ok());
    CHECK(encode_request(*request) == want.request.text);
    want.request.text.clear();
    CHECK(log->records()[i] == want);
  }
}

TEST_CASE("a recording is not written over a file, nor past its bound") {
  const Files files;
  files.write("kept");
  const Result<RequestLogWriter> refused = RequestLogWriter::create(files.file, {}, 1 << 20);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kInvalidArgument);
  CHECK(text_of(files.file) == "kept");
  fs::remove(files.file);
  CHECK_FALSE(RequestLogWriter::create(files.file, {}, 10).ok());
  fs::remove(files.file);
  Result<RequestLogWriter> writer = RequestLogWriter::create(files.file, {}, 1000);
  REQUIRE(writer.ok());
  int added = 0;
  Result<bool> fits = true;
  for (; fits.ok() && *fits && added < 10; ++added) fits = writer->add(recorded(0, full_request()));
  CHECK((fits.ok() && !*fits));
  CHECK(fs::file_size(files.file) <= 1000);
  const std::string text = text_of(files.file);
  CHECK(text.back() == '\n');
  CHECK(RequestLog::open(files.file).ok());
}

TEST_CASE("a last line without its end is left out") {
  const Files files;
  const std::string line = encode_event(recorded(0, full_request()));
  for (const size_t kept : {size_t{1}, line.size() / 2, line.size()}) {
    files.write(kHeader + "\n" + line + "\n" + line.substr(0, kept));
    const Result<RequestLog> log = RequestLog::open(files.file);
    REQUIRE(log.ok());
    CHECK(log->cut());
    CHECK(log->records().size() == 1);
  }
}

TEST_CASE("a file other than a recording of this version is refused") {
  const Files files;
  CHECK(files.refusal().find("no such file") != std::string::npos);
  for (const std::string text : {"", "\n", "{}\n", "HEARTHREC1\n", "[1]\n",
                                 R"({"format":"hearth-requests"})"
                                 "\n",
                                 R"({"format":"hearth-requests","version":1})"
                                 "\n",
                                 R"({"format":"hearth-requests","version":"1","text":true})"
                                 "\n"}) {
    files.write(text);
    CHECK_MESSAGE(files.refusal().find("day:1: not a recording") != std::string::npos,
                  files.refusal());
  }
  files.write(R"({"format":"hearth-requests","version":2,"text":true})"
              "\n");
  CHECK(files.refusal().find("day:1: version: met 2, this build reads 1") != std::string::npos);
  files.write(std::string(2000, ' ') + kHeader + "\n");
  CHECK(files.refusal().find("day:1: a line of more than 1024 bytes") != std::string::npos);
}

/// The refusal of a recording whose third line is `line`.
std::string refusal_of(const std::string& line) {
  const Files files;
  files.write(kHeader + "\n" + encode_event(recorded(0, full_request())) + "\n" + line + "\n");
  const std::string refusal = files.refusal();
  const size_t place = refusal.find("day:3: ");
  return place == std::string::npos ? "no line: " + refusal : refusal.substr(place + 7);
}

std::string refusal_of(const std::function<void(RecordedEvent&)>& change) {
  RecordedEvent event = recorded(0, full_request());
  change(event);
  return refusal_of(encode_event(event));
}

TEST_CASE("a broken line is refused with its number") {
  for (const std::string line :
       {"", "{", "[]", "null", "{}", R"({"event":"done"})", R"({"event":"sung"})",
        R"({"event":"recorded","arrival_us":1.5,"request":{"verb":"generate","prompt":""}})",
        R"({"event":"recorded"})", R"({"event":"recorded","request":[]})",
        R"({"event":"recorded","request":{"verb":"generate"}})",
        R"({"event":"recorded","request":{"verb":"ping"}})",
        R"({"event":"recorded","request":{"verb":"generate","prompt":"","sung":1}})",
        R"({"event":"recorded","request":{"verb":"generate","prompt":"","temperature":-1}})"}) {
    const std::string refusal = refusal_of(line);
    CHECK_MESSAGE(!refusal.starts_with("no line"), line, ": ", refusal);
  }
  const auto names = [](const std::string& refusal, std::string_view field) {
    CHECK_MESSAGE(refusal.starts_with(field), refusal);
  };
  names(refusal_of([](auto& r) { r.arrival_us = -1; }), "arrival_us");
  names(refusal_of([](auto& r) { r.arrival_us = INT64_MAX; }), "arrival_us");
  names(refusal_of([](auto& r) { r.usage.output_tokens = -1; }), "output_tokens");
  names(refusal_of([](auto& r) { r.usage.prompt_tokens = 1 << 30; }), "prompt_tokens");
  names(refusal_of([](auto& r) { r.usage.cached_tokens = 41; }), "cached_tokens");
  names(refusal_of([](auto& r) { r.timings.ttft_ms = -0.5; }), "ttft_ms");
  names(refusal_of([](auto& r) { r.timings.total_ms = 1e300; }), "total_ms");
  names(refusal_of([](auto& r) { r.digests = {"xyz"}; }), "digests");
  names(refusal_of([](auto& r) { r.digests.resize(17, TokenDigest().hex()); }), "digests");
  names(refusal_of([](auto& r) { r.text_tokens = {-1}; }), "text_tokens");
  names(refusal_of([](auto& r) { r.text_tokens.assign(2000, 16 << 20); }), "text_tokens in all");
  names(refusal_of([](auto& r) { r.finish_reasons = {std::string(65, 'x')}; }), "finish_reasons");
}

TEST_CASE("a line beyond the bound is refused without being held") {
  const Files files;
  files.write(kHeader + "\n");
  {
    std::ofstream out(files.file, std::ios::binary | std::ios::app);
    out << "{\"event\":\"recorded\",\"model\":\"";
    const std::string chunk(1 << 20, 'x');
    for (size_t i = 0; i < RequestLogLimits::kLineBytes / chunk.size() + 1; ++i) out << chunk;
    out << "\"}\n";
  }
  CHECK(files.refusal().find("day:2: a line of more than") != std::string::npos);
}

TEST_CASE("a shape is a valid request and holds nothing of its content") {
  GenerateRequest request = full_request();
  request.grammar = "root ::= \"secret\"";
  request.regex = "secret";
  request.cache_share = "secret";
  request.tool_choice = "secret";
  request.template_kwargs = {R"({"secret":1})"};
  request.logit_bias = {{5, 1.0f}};
  request.stop_ids = {5};
  const std::string shape = encode_request(shape_of(request));
  for (const char* word : {"secret", "quoted", "function", "logit_bias", "stop"}) {
    CHECK_MESSAGE(shape.find(word) == std::string::npos, shape);
  }
  const Result<ClientRequest> read = decode_request(shape);
  REQUIRE(read.ok());
  CHECK(std::get<GenerateRequest>(*read) == shape_of(request));
  CHECK(std::get<GenerateRequest>(*read).temperature == request.temperature);
  EmbedRequest embed;
  embed.texts = {"secret", "more"};
  CHECK(encode_request(shape_of(embed)).find("secret") == std::string::npos);
  CHECK(shape_of(embed).texts.size() == 2);
}

TEST_CASE("a digest is of the ids in order, however they are cut") {
  const std::vector<int32_t> ids = {1, 256, 65536, 2};
  TokenDigest whole, pieces, other;
  whole.add(ids);
  pieces.add(std::span(ids).first(1));
  pieces.add({});
  pieces.add(std::span(ids).last(3));
  other.add(std::vector<int32_t>{256, 1, 65536, 2});
  CHECK(whole.hex() == pieces.hex());
  CHECK(whole.hex() != other.hex());
  CHECK(TokenDigest().hex() == "cbf29ce484222325");
}

TEST_CASE("the tokens of an embed reply are read without its vectors") {
  EmbedReply reply{"m", 2, {3, 4}, {"mpkZPwAAAL8=", "mpkZPwAAAL8="}};
  CHECK(tokens_of_embed_reply(encode_event(reply)) == std::vector<int32_t>{3, 4});
  CHECK(tokens_of_embed_reply("rubbish").empty());
  CHECK(tokens_of_embed_reply(R"({"event":"reply","vectors":[]})").empty());
  CHECK(tokens_of_embed_reply(R"(x,"vectors":[])").empty());
}

}  // namespace
}  // namespace hearth::ipc
