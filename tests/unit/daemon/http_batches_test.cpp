// Files and batches of OpenAI's API: forms, lines, bodies.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "daemon/http/batch.h"
#include "daemon/http/routes.h"

namespace hearth::http {
namespace {

using Json = nlohmann::json;

std::string part(const std::string& disposition, const std::string& content) {
  return fmt::format("--b\r\nContent-Disposition: form-data; {}\r\n\r\n{}\r\n", disposition,
                     content);
}
const std::string kPurpose = part("name=\"purpose\"", "batch");
const std::string kFile = part("name=\"file\"; filename=\"a.jsonl\"", "one\r\n--x\r\ntwo\n");

TEST_CASE("an upload is a form with a purpose and a file, in any order") {
  for (const std::string& parts : {kPurpose + kFile, kFile + kPurpose}) {
    const std::string body = parts + "--b--\r\n";
    const Result<Upload> upload = parse_upload(body, "b");
    REQUIRE_MESSAGE(upload.ok(), upload.error().message);
    CHECK(upload->name == "a.jsonl");
    CHECK(upload->purpose == "batch");
    CHECK(upload->content == "one\r\n--x\r\ntwo\n");
  }
  // Names as tokens, other headers, any case of them.
  const std::string body =
      "--b\r\ncontent-type: text/plain\r\nCONTENT-disposition: form-data; name=purpose\r\n\r\n"
      "batch\r\n--b\r\nContent-Disposition: form-data; filename=\"x;\\\"y\\\".jsonl\"; "
      "name=file\r\n"
      "Content-Type: application/jsonl\r\n\r\n\r\n--b--";
  const Result<Upload> upload = parse_upload(body, "b");
  REQUIRE_MESSAGE(upload.ok(), upload.error().message);
  CHECK(upload->name == "x;\"y\".jsonl");
  CHECK(upload->content.empty());
}

TEST_CASE("a form that is none, or has other parts, is refused by name") {
  struct Case {
    std::string body;
    std::string_view field;
    std::string_view part;
  };
  const std::string end = "--b--\r\n";
  const Case cases[] = {
      {"", "file", "does not begin with its boundary"},
      {"{}", "file", "does not begin with its boundary"},
      {"--b", "file", "no line end"},
      {"--b\r\nno head", "file", "no head"},
      {"--b\r\nA: b\r\n\r\n", "file", "no end"},
      {"--b\r\nA: b\r\n\r\nx\r\n" + end, "file", "no name"},
      {part("name=\"\"", "x") + end, "", "is not a part"},
      {kPurpose + end, "file", "file: absent"},
      {kFile + end, "purpose", "want batch"},
      {part("name=\"purpose\"", "assistants") + kFile + end, "purpose", "met 'assistants'"},
      {kPurpose + kFile + kFile + end, "file", "want one"},
      {kPurpose + part("name=\"file\"", "x") + end, "file", "want a filename"},
      {kPurpose + part("name=\"file\"; filename=\"a\tb\"", "x") + end, "file", "want a filename"},
      {kPurpose + part("name=\"file\"; filename=\"\xff\"", "x") + end, "file", "want a filename"},
      {kPurpose + part(fmt::format("name=\"file\"; filename=\"{}\"", std::string(256, 'a')), "x") +
           end,
       "file", "want a filename"},
      {kPurpose + part("name=\"expires_after[seconds]\"", "1") + kFile + end,
       "expires_after[seconds]", "is not a part"},
      {kPurpose + kPurpose + kPurpose + kPurpose + kPurpose + kPurpose + kPurpose + kPurpose +
           kFile + end,
       "file", "too many parts"},
      {"--b\r\nA: " + std::string(5000, 'a') + "\r\n\r\n" + end, "file", "no head"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.body.substr(0, 200));
    const Result<Upload> upload = parse_upload(each.body, "b");
    REQUIRE_FALSE(upload.ok());
    CHECK(upload.error().field == each.field);
    CHECK_MESSAGE(upload.error().message.find(each.part) != std::string::npos,
                  upload.error().message);
  }
  CHECK(form_boundary("multipart/form-data; boundary=abc") == "abc");
  CHECK(form_boundary("Multipart/Form-Data; charset=utf-8; Boundary=\"a b\"") == "a b");
  for (const char* none : {"", "application/json", "multipart/form-data",
                           "multipart/mixed; boundary=a", "multipart/form-data; boundary=\"a"}) {
    CHECK(form_boundary(none).empty());
  }
  CHECK(form_boundary("multipart/form-data; boundary=" + std::string(71, 'a')).empty());
}

TEST_CASE("a line of a batch is one request to the batch's endpoint") {
  const std::string_view chat = "/v1/chat/completions";
  const Result<BatchLine> line = parse_batch_line(
      R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"stream":false,"x":1}})"
      "\r",
      chat);
  REQUIRE_MESSAGE(line.ok(), line.error().message);
  CHECK(line->custom_id == "a");
  CHECK(Json::parse(line->body) == Json({{"stream", false}, {"x", 1}}));
  struct Case {
    const char* text;
    const char* field;
  };
  const Case cases[] = {
      {"{", ""},
      {"[]", ""},
      {R"({"url":"/v1/chat/completions","body":{}})", "custom_id"},
      {R"({"custom_id":"","url":"/v1/chat/completions","body":{}})", "custom_id"},
      {R"({"custom_id":1,"url":"/v1/chat/completions","body":{}})", "custom_id"},
      {R"({"custom_id":"a","url":"/v1/completions","body":{}})", "url"},
      {R"({"custom_id":"a","body":{}})", "url"},
      {R"({"custom_id":"a","method":"GET","url":"/v1/chat/completions","body":{}})", "method"},
      {R"({"custom_id":"a","url":"/v1/chat/completions"})", "body"},
      {R"({"custom_id":"a","url":"/v1/chat/completions","body":[]})", "body"},
      {R"({"custom_id":"a","url":"/v1/chat/completions","body":{"stream":true}})", "body.stream"},
      {R"({"custom_id":"a","url":"/v1/chat/completions","body":{},"more":1})", "more"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.text);
    std::string custom_id;
    const Result<BatchLine> met = parse_batch_line(each.text, chat, &custom_id);
    REQUIRE_FALSE(met.ok());
    CHECK(met.error().field == each.field);
    const bool has_one =
        std::string_view(each.text).find(R"("custom_id":"a")") != std::string::npos;
    CHECK(custom_id == (has_one ? "a" : ""));
  }
}

TEST_CASE("a request for a batch names a file and an endpoint") {
  const Result<CreateBatch> batch = parse_create_batch(
      R"({"input_file_id":"file-a","endpoint":"/v1/embeddings","completion_window":"24h",)"
      R"("metadata":{"k":"v"}})");
  REQUIRE_MESSAGE(batch.ok(), batch.error().message);
  CHECK(batch->input_file_id == "file-a");
  CHECK(batch->endpoint == "/v1/embeddings");
  CHECK(Json::parse(batch->metadata) == Json({{"k", "v"}}));
  struct Case {
    const char* body;
    const char* field;
  };
  const Case cases[] = {
      {R"({"endpoint":"/v1/embeddings"})", "input_file_id"},
      {R"({"input_file_id":"a"})", "endpoint"},
      {R"({"input_file_id":"a","endpoint":"/metrics"})", "endpoint"},
      {R"({"input_file_id":"a","endpoint":"/v1/embeddings","completion_window":"1h"})",
       "completion_window"},
      {R"({"input_file_id":"a","endpoint":"/v1/embeddings","metadata":[]})", "metadata"},
      {R"({"input_file_id":"a","endpoint":"/v1/embeddings","output_expires_after":{}})",
       "output_expires_after"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.body);
    const Result<CreateBatch> met = parse_create_batch(each.body);
    REQUIRE_FALSE(met.ok());
    CHECK(met.error().field == each.field);
  }
}

TEST_CASE("bodies about files and batches are those of OpenAI's API") {
  const StoredFile file{
      .id = "file-a", .name = "a\"b", .purpose = "batch", .created_s = 7, .bytes = 9};
  const Json shown = Json::parse(file_body(file));
  CHECK(shown["filename"] == "a\"b");
  CHECK(shown["bytes"] == 9);
  Batch batch;
  batch.id = "batch_a";
  batch.status = "failed";
  batch.problem = "empty";
  batch.metadata = R"({"k":"v"})";
  batch.created_s = 1;
  batch.ended_s = 5;
  const Json failed = Json::parse(batch_body(batch));
  CHECK(failed["failed_at"] == 5);
  CHECK(failed["completed_at"].is_null());
  CHECK(failed["output_file_id"].is_null());
  CHECK(failed["errors"]["data"][0]["message"] == "empty");
  CHECK(failed["metadata"]["k"] == "v");
  const Json list =
      Json::parse(list_body({file_body(file), file_body(file)}, "file-a", "file-b", true));
  CHECK(list["data"].size() == 2);
  CHECK(list["last_id"] == "file-b");
  CHECK(list["has_more"] == true);
  CHECK(Json::parse(list_body({}, "", "", false))["first_id"].is_null());

  const Json answered = Json::parse(result_line(
      {.id = "r", .custom_id = "c", .status = 400, .request_id = "q\"", .body = R"({"a":1})"}));
  CHECK(answered["response"]["status_code"] == 400);
  CHECK(answered["response"]["body"]["a"] == 1);
  CHECK(answered["error"].is_null());
  const std::string missed = result_line({.id = "r", .error_code = "e", .error = "w\n"});
  CHECK(missed.find('\n') == missed.size() - 1);
  CHECK(Json::parse(missed)["response"].is_null());
  CHECK(Json::parse(missed)["custom_id"].is_null());
}

TEST_CASE("lists have pages") {
  std::string purpose;
  const Result<ItemPage> page =
      parse_list_page("limit=3&after=file-a&order=asc&purpose=batch", &purpose);
  REQUIRE(page.ok());
  CHECK(page->limit == 3);
  CHECK(page->after == "file-a");
  CHECK(page->ascending);
  CHECK(purpose == "batch");
  for (const char* wrong : {"limit=0", "limit=x", "limit=10001", "order=up", "what=1"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_list_page(wrong, &purpose).ok());
  }
  CHECK(parse_list_page("purpose=batch", nullptr).error().field == "purpose");
}

TEST_CASE("paths of files and batches") {
  const auto at = [](const std::string& method, const std::string& target,
                     const std::string& type) {
    HttpRequest head;
    head.method = method;
    head.target = target;
    head.hosts = {"localhost"};
    if (!type.empty()) head.content_types = {type};
    Route found;
    const auto refusal =
        route({.hosts = HostRules::of_unix_socket({}), .origins = {}}, head, &found);
    return std::pair(refusal ? refusal->status : 200, found);
  };
  const std::string form = "multipart/form-data; boundary=b";
  const std::string json = "application/json";
  CHECK(at("POST", "/v1/files", form).second.action == Action::kUploadFile);
  CHECK(at("POST", "/files", form).second.action == Action::kUploadFile);
  CHECK(at("POST", "/v1/files", json).first == 415);
  CHECK(at("POST", "/v1/files", "").first == 415);
  CHECK(at("POST", "/v1/batches", form).first == 415);
  CHECK(at("POST", "/v1/batches", json).second.action == Action::kCreateBatch);
  CHECK(at("PUT", "/v1/batches", json).first == 405);
  const auto [status, list] = at("GET", "/v1/files?limit=2", "");
  CHECK(status == 200);
  CHECK(list.query == "limit=2");
  const auto [read, content] = at("GET", "/v1/files/file-a/content", "");
  CHECK(read == 200);
  CHECK(content.action == Action::kFileContent);
  CHECK(content.name == "file-a");
  CHECK(at("DELETE", "/v1/files/file-a", "").second.action == Action::kRemoveFile);
  CHECK(at("DELETE", "/v1/files/file-a/content", "").first == 405);
  CHECK(at("POST", "/v1/batches/b/cancel", "").second.action == Action::kCancelBatch);
  CHECK(at("GET", "/v1/batches/b", "").second.action == Action::kBatch);
  CHECK(at("GET", "/v1/batches/b/c", "").first == 404);
}

}  // namespace
}  // namespace hearth::http
