#include "daemon/broker/responses/response_store.h"

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <boost/asio/executor_work_guard.hpp>
#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>

#include "daemon/broker/responses/response_keeper.h"
#include "kernels/database/sqlite.h"
#include "tests/temp_dir.h"
#include "tests/unit/daemon/broker_sim.h"
#include "tests/unit/engine/faulty_vfs.h"

namespace hearth::broker {
namespace {

namespace fs = std::filesystem;
using http::KeptQuery;
using http::KeptResponse;
using tests::Fault;
using tests::FaultyVfs;

KeptResponse turn(const std::string& name, const std::string& previous, int64_t created_s = 1000) {
  return {.id = name,
          .previous_id = previous,
          .created_s = created_s,
          .head = fmt::format(R"({{"id":"{}","object":"response"}})", name),
          .output = fmt::format(R"([{{"heard":"{}"}}])", name),
          .input = fmt::format(R"([{{"asked":"{}"}}])", name)};
}

class Rig {
 public:
  ResponseStoreConfig config() {
    ResponseStoreConfig config;
    config.file = dir.path() / "state" / "responses.db";
    config.keep_s = 100;
    config.bytes = 1 << 20;
    config.owner_bytes = 1 << 20;
    config.now_s = [this] { return now_s; };
    return config;
  }
  void open(const ResponseStoreConfig& config) { store = std::make_unique<ResponseStore>(config); }
  void open() { open(config()); }
  std::string bytes_of_file() {
    std::string all;
    for (const char* suffix : {"", "-wal"}) {
      std::ifstream in(config().file.string() + suffix, std::ios::binary);
      all.append(std::istreambuf_iterator<char>(in), {});
    }
    return all;
  }
  Result<std::string> ask(uint32_t owner, const std::string& id,
                          KeptQuery::Kind kind = KeptQuery::Kind::kResponse) {
    return store->ask(owner, {.kind = kind, .id = id});
  }
  bool has(uint32_t owner, const std::string& id) { return ask(owner, id).ok(); }

  tests::TempDir dir;
  int64_t now_s = 1010;
  std::unique_ptr<ResponseStore> store;
};

TEST_CASE("a kept answer is found by its owner, also after a restart, and only by its owner") {
  Rig rig;
  rig.open();
  REQUIRE(rig.store->keep(1, turn("resp_a", "")).ok());
  for (int i = 0; i < 2; ++i) {
    const Result<std::string> body = rig.ask(1, "resp_a");
    REQUIRE(body.ok());
    CHECK(*body == R"({"id":"resp_a","object":"response","output":[{"heard":"resp_a"}]})");
    const Result<std::string> other = rig.ask(2, "resp_a");
    REQUIRE_FALSE(other.ok());
    CHECK(other.error().code == ErrorCode::kNotFound);
    CHECK(other.error().field == "response_id");
    CHECK(other.error().message == "Response with id 'resp_a' not found.");
    CHECK(rig.store->entries() == 1);
    rig.store.reset();
    rig.open();
  }
  struct stat info {};
  REQUIRE(::stat(rig.config().file.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
}

TEST_CASE("a conversation is the inputs and outputs of its answers, oldest first") {
  Rig rig;
  rig.open();
  REQUIRE(rig.store->keep(1, turn("a", "")).ok());
  KeptResponse empty = turn("b", "a");
  empty.input = "[]";
  REQUIRE(rig.store->keep(1, empty).ok());
  REQUIRE(rig.store->keep(1, turn("c", "b")).ok());
  REQUIRE(rig.store->keep(1, turn("fork", "a")).ok());
  CHECK(*rig.ask(1, "c", KeptQuery::Kind::kConversation) ==
        R"({"items":[{"asked":"a"},{"heard":"a"},{"heard":"b"},{"asked":"c"},{"heard":"c"}]})");
  CHECK(*rig.ask(1, "c", KeptQuery::Kind::kInputItems) ==
        R"({"items":[{"asked":"a"},{"heard":"a"},{"heard":"b"},{"asked":"c"}]})");
  CHECK(*rig.ask(1, "fork", KeptQuery::Kind::kConversation) ==
        R"({"items":[{"asked":"a"},{"heard":"a"},{"asked":"fork"},{"heard":"fork"}]})");
  const Result<std::string> large =
      rig.store->ask(1, {.kind = KeptQuery::Kind::kConversation, .id = "c", .max_bytes = 40});
  REQUIRE_FALSE(large.ok());
  CHECK(large.error().code == ErrorCode::kTooLarge);
  CHECK(large.error().field == "previous_response_id");

  // Without its first part it cannot be continued, but what is left is listed.
  REQUIRE(rig.ask(1, "a", KeptQuery::Kind::kRemove).ok());
  const Result<std::string> cut = rig.ask(1, "c", KeptQuery::Kind::kConversation);
  REQUIRE_FALSE(cut.ok());
  CHECK(cut.error().message == "Previous response with id 'a' not found.");
  CHECK(*rig.ask(1, "c", KeptQuery::Kind::kInputItems) ==
        R"({"items":[{"heard":"b"},{"asked":"c"}]})");
  CHECK(rig.ask(2, "c", KeptQuery::Kind::kConversation).error().code == ErrorCode::kNotFound);
  CHECK(rig.ask(2, "c", KeptQuery::Kind::kRemove).error().code == ErrorCode::kNotFound);
  CHECK(rig.has(1, "c"));
}

TEST_CASE("a conversation has a bound on its answers") {
  Rig rig;
  ResponseStoreConfig config = rig.config();
  config.bytes = config.owner_bytes = int64_t{1} << 30;
  rig.open(config);
  std::string previous;
  for (int i = 0; i <= 4096; ++i) {
    const std::string name = std::to_string(i);
    REQUIRE(rig.store->keep(1, turn(name, previous)).ok());
    previous = name;
  }
  CHECK(rig.ask(1, "4095", KeptQuery::Kind::kConversation).ok());
  CHECK(rig.ask(1, "4096", KeptQuery::Kind::kConversation).error().code == ErrorCode::kTooLarge);
  // One that leads back to itself ends, too.
  REQUIRE(rig.store->keep(1, turn("x", "y")).ok());
  REQUIRE(rig.store->keep(1, turn("y", "x")).ok());
  CHECK(rig.ask(1, "x", KeptQuery::Kind::kConversation).error().code == ErrorCode::kTooLarge);
}

TEST_CASE("answers expire, and nothing of an expired or removed one stays in the file") {
  Rig rig;
  rig.open();
  REQUIRE(rig.store->keep(1, turn("resp_old_secret", "", 1000)).ok());
  REQUIRE(rig.store->keep(1, turn("resp_new_secret", "", 1050)).ok());
  rig.now_s = 1099;
  CHECK(rig.has(1, "resp_old_secret"));
  rig.now_s = 1100;
  CHECK_FALSE(rig.has(1, "resp_old_secret"));
  CHECK(rig.bytes_of_file().find("resp_old_secret") != std::string::npos);
  REQUIRE(rig.store->sweep().ok());
  CHECK(rig.bytes_of_file().find("resp_old_secret") == std::string::npos);
  CHECK(rig.store->entries() == 1);
  CHECK(rig.has(1, "resp_new_secret"));
  REQUIRE(rig.ask(1, "resp_new_secret", KeptQuery::Kind::kRemove).ok());
  CHECK(rig.bytes_of_file().find("resp_new_secret") == std::string::npos);
  CHECK(rig.store->bytes() == 0);
}

TEST_CASE("beyond the bounds the oldest answers leave, of the owner with the most") {
  Rig rig;
  ResponseStoreConfig config = rig.config();
  const auto big = [](const std::string& name) {
    KeptResponse response = turn(name, "");
    response.input = "[\"" + std::string(1000, 'a') + "\"]";
    return response;
  };
  config.owner_bytes = 4 * 1300;
  config.bytes = 6 * 1300;
  rig.open(config);
  for (const char* name : {"a1", "a2", "a3", "a4", "a5"}) {
    REQUIRE(rig.store->keep(1, big(name)).ok());
  }
  CHECK_FALSE(rig.has(1, "a1"));
  CHECK(rig.has(1, "a5"));
  CHECK(rig.store->entries() == 4);
  // Another owner's answers push out those of the one with more.
  for (const char* name : {"b1", "b2", "b3"}) REQUIRE(rig.store->keep(2, big(name)).ok());
  CHECK_FALSE(rig.has(1, "a2"));
  CHECK(rig.has(2, "b1"));
  CHECK(rig.store->bytes() <= config.bytes);
  KeptResponse huge = turn("huge", "");
  huge.output = "[\"" + std::string(6000, 'a') + "\"]";
  CHECK(rig.store->keep(3, huge).error().code == ErrorCode::kTooLarge);
  CHECK(rig.has(2, "b3"));
}

TEST_CASE("a damaged or foreign file is moved aside, and an empty one takes its place") {
  Rig rig;
  const fs::path file = rig.config().file;
  fs::create_directories(file.parent_path());
  const auto write = [&file](const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
  };
  SUBCASE("garbage") { write(std::string(50'000, 'x')); }
  SUBCASE("text") { write("hello"); }
  SUBCASE("of another program") {
    auto database = Database::open(file);
    REQUIRE(database.ok());
    REQUIRE(database->execute("CREATE TABLE other(a); PRAGMA application_id=7").ok());
  }
  SUBCASE("a folder") { fs::create_directories(file / "x"); }
  SUBCASE("cut off") {
    rig.open();
    KeptResponse large = turn("large", "");
    large.input = "[\"" + std::string(200'000, 'a') + "\"]";
    REQUIRE(rig.store->keep(1, large).ok());
    rig.store.reset();
    fs::resize_file(file, 20'000);
  }
  rig.open();
  CHECK_FALSE(rig.has(1, "large"));
  REQUIRE(rig.store->keep(1, turn("a", "")).ok());
  CHECK(rig.has(1, "a"));
  CHECK(fs::exists(file.string() + ".damaged"));
  rig.store.reset();
  rig.open();
  CHECK(rig.has(1, "a"));
}

TEST_CASE("a full or failing disk costs the answer and not the store") {
  Rig rig;
  ResponseStoreConfig config = rig.config();
  config.vfs = FaultyVfs::name();
  for (const Fault fault : {Fault::kDiskFull, Fault::kIoError, Fault::kShortWrite}) {
    for (int64_t nth = 0; nth < 40; ++nth) {
      CAPTURE(nth);
      fs::remove_all(config.file.parent_path());
      rig.open(config);
      REQUIRE(rig.store->keep(1, turn("first", "")).ok());
      FaultyVfs::fail_at(nth, fault, 1000);
      const bool kept = rig.store->keep(1, turn("second", "first")).ok();
      (void)rig.store->sweep();
      FaultyVfs::heal();
      CHECK(rig.store->keep(1, turn("third", "first")).ok());
      CHECK(rig.has(1, "third"));
      if (kept) CHECK(rig.has(1, "second"));
      if (rig.has(1, "first")) {
        CHECK(rig.ask(1, "third", KeptQuery::Kind::kConversation).ok());
        CHECK(rig.store->entries() == (rig.has(1, "second") ? 3 : 2));
      }
    }
  }
}

TEST_CASE("the keeper answers in order, and loses answers beyond its queue") {
  Rig rig;
  boost::asio::io_context io;
  const auto open = boost::asio::make_work_guard(io);
  ResponseKeeper keeper(io);
  std::optional<Result<std::string>> answered;
  keeper.ask(1, {.id = "a"}, [&](Result<std::string> text) { answered = std::move(text); });
  REQUIRE(answered.has_value());  // at once: nothing is kept
  CHECK(answered->error().code == ErrorCode::kUnsupported);

  keeper.start(rig.config(), {.owner_bytes = 500, .bytes = 700});
  const auto wait = [&] {
    while (!keeper.idle()) REQUIRE(io.run_one_for(std::chrono::seconds(60)) == 1);
  };
  keeper.keep(1, turn("a", ""));
  answered.reset();
  keeper.ask(1, {.id = "a"}, [&](Result<std::string> text) { answered = std::move(text); });
  KeptResponse large = turn("large", "");
  large.input = "[\"" + std::string(600, 'a') + "\"]";
  keeper.keep(1, large);
  CHECK(keeper.stats().not_kept == 1);
  CHECK_FALSE(keeper.problem().empty());
  wait();
  REQUIRE(answered.has_value());
  CHECK(answered->ok());
  CHECK(keeper.problem().empty());
  CHECK(keeper.stats().entries == 1);
  CHECK(keeper.thread().bytes() == 0);

  rig.now_s = 5000;
  keeper.tick(1);
  wait();
  CHECK(keeper.stats().entries == 0);
  CHECK(keeper.stats().bytes == 0);
}

TEST_CASE("answers that wait to be written count like their owner's requests") {
  Config config;
  config.limits.max_queued_bytes_per_owner = 10'000;
  BrokerSim sim({{"a", {}}}, config);
  boost::asio::io_context io;
  const auto open = boost::asio::make_work_guard(io);
  SideThread side(io), store(io, 0);
  sim.dispatcher.set_side_thread(side, {&store});
  bool written = false;
  store.run(
      7, 8'000, [] {}, [&written] { written = true; });
  CHECK(sim.dispatcher.admit(BrokerSim::user(7), 3'000, 0).error().code == ErrorCode::kBusy);
  CHECK(sim.dispatcher.admit(BrokerSim::user(8), 3'000, 0).ok());
  while (!written) REQUIRE(io.run_one_for(std::chrono::seconds(60)) == 1);
  CHECK(sim.dispatcher.admit(BrokerSim::user(7), 3'000, 0).ok());
}

TEST_CASE("a folder that cannot be made is a problem, and no more") {
  Rig rig;
  std::ofstream(rig.dir.path() / "state") << "a file";
  boost::asio::io_context io;
  const auto open = boost::asio::make_work_guard(io);
  ResponseKeeper keeper(io);
  keeper.start(rig.config(), {.owner_bytes = 5000, .bytes = 5000});
  keeper.keep(1, turn("a", ""));
  std::optional<Result<std::string>> answered;
  keeper.ask(1, {.id = "a"}, [&](Result<std::string> text) { answered = std::move(text); });
  while (!keeper.idle()) REQUIRE(io.run_one_for(std::chrono::seconds(60)) == 1);
  CHECK(keeper.stats().not_kept == 1);
  CHECK_FALSE(keeper.problem().empty());
  CHECK(answered->error().code == ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace hearth::broker
