#include "daemon/broker/batches/batch_store.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "daemon/broker/batches/inner_request.h"
#include "tests/temp_dir.h"
#include "tests/unit/engine/faulty_vfs.h"

namespace hearth::broker {
namespace {

namespace fs = std::filesystem;
using tests::Fault;
using tests::FaultyVfs;
using Json = nlohmann::json;

constexpr const char* kEndpoint = "/v1/completions";

std::string line_of(const std::string& id) {
  return Json({{"custom_id", id}, {"url", kEndpoint}, {"body", {{"prompt", id}}}}).dump() + "\n";
}

class Rig {
 public:
  BatchStoreConfig config() {
    BatchStoreConfig config;
    config.file = dir.path() / "state" / "batches.db";
    config.keep_s = 100'000;
    config.bytes = 4 << 20;
    config.owner_bytes = 3 << 20;
    config.now_s = [this] { return now_s; };
    return config;
  }
  void open(const BatchStoreConfig& config) { store = std::make_unique<BatchStore>(config); }
  void open() { open(config()); }
  void open_again() {
    store.reset();
    open();
  }
  Result<Json> ask(uint32_t owner, http::BatchQuery query) {
    HEARTH_ASSIGN_OR_RETURN(const http::BatchReply reply, store->ask(owner, std::move(query)));
    return Json::parse(reply.text);
  }
  Result<Json> try_upload(uint32_t owner, const std::string& content) {
    return ask(owner, http::UploadFile{
                          .body = "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n"
                                  "batch\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; "
                                  "filename=\"in.jsonl\"\r\n\r\n" +
                                  content + "\r\n--b--\r\n",
                          .boundary = "b"});
  }
  std::string upload(uint32_t owner, const std::string& content) {
    const Result<Json> file = try_upload(owner, content);
    REQUIRE_MESSAGE(file.ok(), file.error().message);
    return (*file)["id"];
  }
  std::string content(uint32_t owner, const std::string& id) {
    std::string all;
    while (true) {
      const auto piece =
          store->ask(owner, http::ReadFile{.id = id, .at = static_cast<int64_t>(all.size())});
      REQUIRE_MESSAGE(piece.ok(), piece.error().message);
      if (std::cmp_equal(all.size(), piece->file_bytes)) return all;
      REQUIRE_FALSE(piece->text.empty());
      all += piece->text;
    }
  }
  /// The results in a file, by custom_id.
  std::map<std::string, Json> results(uint32_t owner, const Json& id) {
    std::map<std::string, Json> out;
    if (id.is_null()) return out;
    std::string text = content(owner, id);
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
      const Json line = Json::parse(text.substr(0, end));
      const std::string name =
          line["custom_id"].is_null() ? "" : line["custom_id"].get<std::string>();
      CHECK(out.emplace(name, line).second);
    }
    CHECK(text.empty());
    return out;
  }
  std::string create(uint32_t owner, const std::string& file) {
    const Result<Json> batch =
        ask(owner, http::CreateBatch{.input_file_id = file, .endpoint = kEndpoint});
    REQUIRE_MESSAGE(batch.ok(), batch.error().message);
    CHECK((*batch)["status"] == "validating");
    return (*batch)["id"];
  }
  Json shown(uint32_t owner, const std::string& id) {
    const Result<Json> batch = ask(owner, http::ShowBatch{id});
    REQUIRE_MESSAGE(batch.ok(), batch.error().message);
    return *batch;
  }
  LiveBatch only_live() {
    const auto live = store->live();
    REQUIRE(live.ok());
    REQUIRE(live->size() == 1);
    return live->front();
  }
  /// Answers the lines that have no result, but for the last `leave`.
  void answer(int64_t seq, size_t leave = 0, size_t max_bytes = 100) {
    std::vector<InputLine> lines;
    InputPart part;
    while (!part.ended) {
      auto read = store->read(seq, part.next, max_bytes);
      REQUIRE_MESSAGE(read.ok(), read.error().message);
      part = std::move(read).value();
      CHECK((part.ended || !part.lines.empty()));
      std::move(part.lines.begin(), part.lines.end(), std::back_inserter(lines));
    }
    for (size_t i = 0; i + leave < lines.size(); ++i) {
      const InputLine& line = lines[i];
      REQUIRE(
          store
              ->append(
                  seq, line.number,
                  {.custom_id = line.request.custom_id, .status = 200, .body = line.request.body})
              .ok());
    }
  }
  std::string bytes_of_file() {
    std::string all;
    for (const char* suffix : {"", "-wal"}) {
      std::ifstream in(config().file.string() + suffix, std::ios::binary);
      all.append(std::istreambuf_iterator<char>(in), {});
    }
    return all;
  }

  tests::TempDir dir;
  int64_t now_s = 1000;
  std::unique_ptr<BatchStore> store;
};

TEST_CASE("a file is kept byte by byte for its owner alone, and leaves when it is removed") {
  Rig rig;
  rig.open();
  std::string large(700'000, 'a');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7 % 251);
  const std::string file = rig.upload(1, large);
  const std::string empty = rig.upload(1, "");
  for (int i = 0; i < 2; ++i) {
    CHECK(rig.content(1, file) == large);
    CHECK(rig.content(1, empty).empty());
    CHECK((*rig.ask(1, http::ShowFile{file}))["bytes"] == large.size());
    for (const http::BatchQuery& query :
         {http::BatchQuery(http::ShowFile{file}), http::BatchQuery(http::ReadFile{.id = file}),
          http::BatchQuery(http::RemoveFile{file})}) {
      const auto other = rig.store->ask(2, query);
      REQUIRE_FALSE(other.ok());
      CHECK(other.error().code == ErrorCode::kNotFound);
      CHECK(other.error().field == "file_id");
    }
    CHECK((*rig.ask(2, http::ListFiles{}))["data"].empty());
    CHECK(rig.store->files() == 2);
    rig.open_again();
  }
  const std::string secret = rig.upload(1, "a_secret_in_a_file");
  CHECK(rig.bytes_of_file().find("a_secret_in_a_file") != std::string::npos);
  CHECK((*rig.ask(1, http::RemoveFile{secret}))["deleted"] == true);
  CHECK(rig.bytes_of_file().find("a_secret_in_a_file") == std::string::npos);
  CHECK_FALSE(rig.ask(1, http::ShowFile{secret}).ok());
}

TEST_CASE("lists of files and batches have pages in both directions") {
  Rig rig;
  rig.open();
  std::vector<std::string> files;
  for (int i = 0; i < 5; ++i) files.push_back(rig.upload(1, line_of("a")));
  rig.upload(2, "x");
  const auto ids = [](const Json& list) {
    std::vector<std::string> out;
    for (const Json& each : list["data"]) out.push_back(each["id"]);
    return out;
  };
  Json page = *rig.ask(1, http::ListFiles{.page = {.limit = 2}});
  CHECK(ids(page) == std::vector{files[4], files[3]});
  CHECK(page["has_more"] == true);
  page = *rig.ask(1, http::ListFiles{.page = {.limit = 3, .after = files[3]}});
  CHECK(ids(page) == std::vector{files[2], files[1], files[0]});
  CHECK(page["has_more"] == false);
  page = *rig.ask(1, http::ListFiles{.page = {.limit = 2, .ascending = true, .after = files[0]}});
  CHECK(ids(page) == std::vector{files[1], files[2]});
  CHECK(ids(*rig.ask(1, http::ListFiles{.page = {}, .purpose = "batch_output"})).empty());
  CHECK(rig.ask(1, http::ListFiles{.page = {.after = "file-x"}}).error().field == "after");

  std::vector<std::string> batches;
  for (int i = 0; i < 3; ++i) batches.push_back(rig.create(1, files[0]));
  page = *rig.ask(1, http::ListBatches{.page = {.limit = 2}});
  CHECK(ids(page) == std::vector{batches[2], batches[1]});
  CHECK(page["has_more"] == true);
  page = *rig.ask(1, http::ListBatches{.page = {.after = batches[1]}});
  CHECK(ids(page) == std::vector{batches[0]});
  CHECK(ids(*rig.ask(2, http::ListBatches{})).empty());
  CHECK(rig.ask(2, http::ShowBatch{batches[0]}).error().code == ErrorCode::kNotFound);
  CHECK(rig.ask(2, http::CancelBatch{batches[0]}).error().code == ErrorCode::kNotFound);
}

TEST_CASE("each line gets one result, whatever restarts come between") {
  Rig rig;
  rig.open();
  std::string input;
  for (int i = 0; i < 30; ++i)
    input += line_of(fmt::format("r{}", i)) + (i % 7 == 0 ? " \r\n" : "");
  input += Json({{"custom_id", "last"}, {"url", kEndpoint}, {"body", {{"prompt", "x"}}}}).dump();
  const std::string id = rig.create(1, rig.upload(1, input));
  const int64_t seq = rig.only_live().seq;
  REQUIRE(*rig.store->begin(seq) == "in_progress");
  CHECK(rig.shown(1, id)["request_counts"]["total"] == 31);
  rig.answer(seq, 11);
  rig.open_again();
  CHECK(rig.only_live().status == "in_progress");
  CHECK(*rig.store->begin(seq) == "in_progress");
  rig.answer(seq, 3, 1);
  rig.open_again();
  CHECK(rig.shown(1, id)["output_file_id"].is_null());  // it is not whole
  rig.answer(seq);
  REQUIRE(rig.store->end(seq, "completed").ok());
  REQUIRE(rig.store->end(seq, "cancelled").ok());  // it has ended
  const Json batch = rig.shown(1, id);
  CHECK(batch["status"] == "completed");
  CHECK(batch["request_counts"] == Json({{"total", 31}, {"completed", 31}, {"failed", 0}}));
  CHECK(batch["error_file_id"].is_null());
  const auto results = rig.results(1, batch["output_file_id"]);
  REQUIRE(results.size() == 31);
  CHECK(results.at("r7")["response"]["body"]["prompt"] == "r7");
  std::set<std::string> names;
  for (const auto& [name, line] : results) names.insert(line["id"]);
  CHECK(names.size() == 31);
  CHECK(rig.store->live()->empty());
  CHECK(rig.ask(1, http::CancelBatch{id}).error().field == "batch_id");
}

TEST_CASE("a line that is wrong fails, and the others do not") {
  Rig rig;
  rig.open();
  const std::string id =
      rig.create(1, rig.upload(1, line_of("a") + "{\n" + line_of("a") + line_of("b") + "[]\n" +
                                      R"({"custom_id":"c","url":"/v1/nope","body":{}})"));
  const int64_t seq = rig.only_live().seq;
  REQUIRE(*rig.store->begin(seq) == "in_progress");
  rig.answer(seq);
  REQUIRE(rig.store->end(seq, "completed").ok());
  const Json batch = rig.shown(1, id);
  CHECK(batch["request_counts"] == Json({{"total", 6}, {"completed", 2}, {"failed", 4}}));
  CHECK(rig.results(1, batch["output_file_id"]).size() == 2);
  const std::string errors = rig.content(1, batch["error_file_id"]);
  for (const char* part : {"line 2: ", "line 3: custom_id: an earlier line has it",
                           "line 5: ", R"("custom_id":"c")"}) {
    CHECK_MESSAGE(errors.find(part) != std::string::npos, errors);
  }
}

TEST_CASE("an input that cannot be used as a whole fails the batch") {
  Rig rig;
  BatchStoreConfig config = rig.config();
  config.bytes = config.owner_bytes = 64 << 20;
  rig.open(config);
  std::string many;
  for (int i = 0; i <= 50'000; ++i) many += line_of(std::to_string(i));
  for (const std::string& input : {std::string(), std::string(" \r\n\n"), many}) {
    const std::string id = rig.create(1, rig.upload(1, input));
    CHECK(*rig.store->begin(rig.only_live().seq) == "failed");
    const Json batch = rig.shown(1, id);
    CHECK(batch["status"] == "failed");
    CHECK(batch["errors"]["data"].size() == 1);
    CHECK(rig.store->live()->empty());
  }
  CHECK(rig.ask(1, http::CreateBatch{.input_file_id = "file-x", .endpoint = kEndpoint})
            .error()
            .field == "input_file_id");
}

TEST_CASE("a batch that is cancelled or expires keeps what it has") {
  Rig rig;
  rig.open();
  const std::string file = rig.upload(1, line_of("a") + line_of("b") + line_of("c"));
  const std::string id = rig.create(1, file);
  const int64_t seq = rig.only_live().seq;
  REQUIRE(rig.store->begin(seq).ok());
  rig.answer(seq, 2);
  const Result<Json> refused = rig.ask(1, http::RemoveFile{file});
  REQUIRE_FALSE(refused.ok());  // it is read
  CHECK(refused.error().field == "file_id");
  SUBCASE("cancelled") {
    CHECK((*rig.ask(1, http::CancelBatch{id}))["status"] == "cancelling");
    CHECK((*rig.ask(1, http::CancelBatch{id}))["cancelling_at"] == 1000);
    CHECK(rig.only_live().status == "cancelling");
    REQUIRE(rig.store->end(seq, "cancelled").ok());
    const Json batch = rig.shown(1, id);
    CHECK(batch["status"] == "cancelled");
    CHECK(rig.results(1, batch["output_file_id"]).size() == 1);
    CHECK(batch["error_file_id"].is_null());
  }
  SUBCASE("expired") {
    CHECK(rig.only_live().expires_s == 1000 + 86'400);
    REQUIRE(rig.store->end(seq, "expired").ok());
    const Json batch = rig.shown(1, id);
    CHECK(batch["status"] == "expired");
    CHECK(rig.results(1, batch["output_file_id"]).size() == 1);
    const auto errors = rig.results(1, batch["error_file_id"]);
    REQUIRE(errors.size() == 2);
    CHECK(errors.at("c")["error"]["code"] == "batch_expired");
  }
  CHECK(rig.ask(1, http::RemoveFile{file}).ok());
}

TEST_CASE("files have bounds per owner and over all, which count results, too") {
  Rig rig;
  BatchStoreConfig config = rig.config();
  config.owner_bytes = 10'000;
  config.bytes = 15'000;
  rig.open(config);
  rig.upload(1, std::string(6'000, 'a'));
  const Result<Json> much = rig.try_upload(1, std::string(4'000, 'a'));
  REQUIRE_FALSE(much.ok());
  CHECK(much.error().code == ErrorCode::kTooLarge);
  CHECK(much.error().field == "file");
  rig.upload(2, std::string(6'000, 'a'));
  CHECK(rig.try_upload(3, std::string(6'000, 'a')).error().code == ErrorCode::kTooLarge);
  CHECK(rig.try_upload(3, "a").ok());
  rig.create(1, rig.upload(1, line_of("a") + line_of("b")));
  const int64_t seq = rig.only_live().seq;
  REQUIRE(rig.store->begin(seq).ok());
  const int64_t before = rig.store->bytes();
  const Result<void> full = rig.store->append(
      seq, 0, {.custom_id = "a", .status = 200, .body = "\"" + std::string(5'000, 'a') + "\""});
  REQUIRE_FALSE(full.ok());
  CHECK(full.error().code == ErrorCode::kTooLarge);
  CHECK(full.error().field == "file");
  CHECK(rig.store->bytes() == before);
  CHECK(rig.store->append(seq, 1, {.custom_id = "b", .status = 200, .body = "1"}).ok());
  const int64_t counted = rig.store->bytes();
  rig.store.reset();
  rig.open(config);
  CHECK(rig.store->live().ok());
  CHECK(rig.store->bytes() == counted);
}

TEST_CASE("an owner has a bounded number of batches that have not ended") {
  Rig rig;
  rig.open();
  const std::string file = rig.upload(1, line_of("a"));
  for (int i = 0; i < 64; ++i) rig.create(1, file);
  const Result<Json> more =
      rig.ask(1, http::CreateBatch{.input_file_id = file, .endpoint = kEndpoint});
  REQUIRE_FALSE(more.ok());
  CHECK(more.error().code == ErrorCode::kBusy);
  rig.create(2, rig.upload(2, line_of("a")));
}

TEST_CASE("files and batches expire, but no file that a batch reads") {
  Rig rig;
  rig.open();
  rig.upload(1, "old_secret_content");
  const std::string read = rig.upload(1, line_of("a"));
  const std::string id = rig.create(1, read);
  const int64_t seq = rig.only_live().seq;
  REQUIRE(rig.store->begin(seq).ok());
  rig.now_s += 100'001;
  REQUIRE(rig.store->sweep().ok());
  CHECK(rig.store->files() == 1);
  CHECK(rig.bytes_of_file().find("old_secret_content") == std::string::npos);
  rig.answer(seq);
  REQUIRE(rig.store->end(seq, "completed").ok());
  CHECK(rig.shown(1, id)["status"] == "completed");
  REQUIRE(rig.store->sweep().ok());  // the input is old by now
  CHECK(rig.store->files() == 1);
  CHECK(rig.results(1, rig.shown(1, id)["output_file_id"]).size() == 1);
  rig.now_s += 100'001;
  REQUIRE(rig.store->sweep().ok());
  CHECK(rig.store->files() == 0);
  CHECK(rig.store->bytes() == 0);
  CHECK(rig.ask(1, http::ShowBatch{id}).error().code == ErrorCode::kNotFound);
}

TEST_CASE("a failing disk loses and doubles no result that was written") {
  Rig rig;
  BatchStoreConfig config = rig.config();
  config.vfs = FaultyVfs::name();
  for (const Fault fault : {Fault::kDiskFull, Fault::kIoError}) {
    for (int64_t nth = 0; nth < 24; ++nth) {
      CAPTURE(nth);
      rig.store.reset();
      fs::remove_all(config.file.parent_path());
      rig.open(config);
      const std::string id = rig.create(1, rig.upload(1, line_of("a") + line_of("b")));
      const int64_t seq = rig.only_live().seq;
      REQUIRE(rig.store->begin(seq).ok());
      FaultyVfs::fail_at(nth, fault, 1000);
      const Result<void> first =
          rig.store->append(seq, 0, {.custom_id = "a", .status = 200, .body = "1"});
      if (!first.ok()) CHECK(first.error().field.empty());
      FaultyVfs::heal();
      rig.answer(seq);
      REQUIRE(rig.store->end(seq, "completed").ok());
      CHECK(rig.results(1, rig.shown(1, id)["output_file_id"]).size() == 2);
    }
  }
}

TEST_CASE("a power cut loses the newest results and damages nothing") {
  Rig rig;
  BatchStoreConfig config = rig.config();
  config.vfs = FaultyVfs::name();
  int cuts = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    rig.store.reset();
    const fs::path folder = config.file.parent_path();
    fs::remove_all(folder);
    rig.open(config);
    const std::string id = rig.create(1, rig.upload(1, line_of("a") + line_of("b") + line_of("c")));
    const int64_t seq = rig.only_live().seq;
    REQUIRE(rig.store->begin(seq).ok());
    rig.store.reset();
    const fs::path cut = rig.dir.path() / "cut";
    fs::remove_all(cut);
    FaultyVfs::cut_at(static_cast<int64_t>(seed), seed, folder, cut);
    rig.open(config);
    rig.answer(seq, 1);
    rig.store.reset();
    FaultyVfs::heal();
    if (!fs::exists(cut)) continue;
    ++cuts;
    fs::remove_all(folder);
    fs::rename(cut, folder);
    rig.open(config);
    CHECK_FALSE(fs::exists(config.file.string() + ".damaged"));
    REQUIRE(rig.only_live().seq == seq);
    rig.answer(seq);
    REQUIRE(rig.store->end(seq, "completed").ok());
    CHECK(rig.results(1, rig.shown(1, id)["output_file_id"]).size() == 3);
  }
  CHECK(cuts > 20);
}

TEST_CASE("a damaged file of batches is moved aside") {
  Rig rig;
  fs::create_directories(rig.config().file.parent_path());
  std::ofstream(rig.config().file) << std::string(20'000, 'x');
  rig.open();
  CHECK((*rig.ask(1, http::ListFiles{}))["data"].empty());
  CHECK(fs::exists(rig.config().file.string() + ".damaged"));
  CHECK(rig.content(1, rig.upload(1, "abc")) == "abc");
  CHECK(rig.store->begin(77).error().code == ErrorCode::kNotFound);
}

TEST_CASE("the answer to an own request is whole or none") {
  const auto answer = parse_inner_answer(
      "HTTP/1.1 429 Too Many Requests\r\nContent-Type: a\r\nContent-Length: 2\r\n"
      "x-request-id: q-1\r\nConnection: close\r\n\r\n{}");
  REQUIRE(answer.ok());
  CHECK(answer->status == 429);
  CHECK(answer->request_id == "q-1");
  CHECK(answer->body == "{}");
  for (const char* broken : {"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 x\r\n\r\n",
                             "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}",
                             "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{}"}) {
    CAPTURE(broken);
    CHECK(parse_inner_answer(broken).error().code == ErrorCode::kProtocol);
  }
}

}  // namespace
}  // namespace hearth::broker
