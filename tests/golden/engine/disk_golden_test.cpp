// Every family's prefixes on disk: a restarted engine that reads them gives the tokens of one that
// computes everything. And a trained model: what it recalls came from the stored state.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/store/sqlite_store.h"
#include "engine/store/store_thread.h"
#include "engine/store/stored_row.h"
#include "models/model.h"
#include "tests/golden/engine/engine_run.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/paths.h"
#include "tests/temp_dir.h"

namespace hearth::golden {
namespace {

using namespace engine;

struct Answer {
  std::vector<int32_t> tokens;
  int32_t restored = 0;  ///< tokens of the prompt that were read from disk
  int32_t cached = 0;    ///< those, and those that were in memory
  bool ended = false;
};

/// An engine whose store runs after each step.
class DiskRun {
 public:
  DiskRun(const models::GgufFile& file, const kernels::OpTable& ops,
          const std::filesystem::path& folder, int32_t block_size = 16, bool draft_layer = false,
          kernels::KvTypes kv_type = {}, int32_t stages = 1) {
    EngineConfig config;
    config.kv_type = kv_type;
    config.kv_bytes = 8 << 20;
    config.context_length = 256;
    config.block_size = block_size;
    config.speculation.enabled = draft_layer;
    config.speculation.lookup = false;
    config.speculation.fixed_width = 2;
    config.always_restore = true;
    auto model = stages > 1 ? load_in_stages(file, {ops.device.variant, ops}, stages)
                            : models::load_model(file, ops, nullptr, {.draft_layer = draft_layer});
    REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().message));
    auto made = Engine::create(config, ops, std::move(model).value(), clock_, nullptr, &commands_);
    REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().message));
    engine_ = std::move(made).value();
    database_ = folder / store_file_name(engine_->kv_layout());
    SqliteStoreConfig store;
    store.folder = folder;
    store.min_free_bytes = 0;
    store.now_ms = [] { return int64_t{1'700'000'000'000}; };
    worker_ = std::make_unique<StoreWorker>(
        std::make_unique<SqliteStore>(std::move(store), engine_->kv_layout()),
        [this](StoreReply reply) { engine_->inbox().post(std::move(reply)); });
    worker_->tick();
  }

  /// The layer group of states, or -1.
  int32_t state_group() const { return engine_->kv_layout().state_group; }
  int64_t state_bytes() const { return engine_->kv_layout().block_bytes[state_group()]; }
  const std::filesystem::path& database() const { return database_; }
  SpeculationCounts speculation() const { return engine_->snapshot().speculation; }

  /// Runs the request to its end, and until its blocks are on disk.
  Answer ask(const std::vector<int32_t>& prompt, int32_t max_tokens = 20) {
    Request request;
    request.id = ++last_id_;
    request.owner = request.cache_salt = "uid:1000";
    request.prompt = prompt;
    request.max_tokens = max_tokens;
    engine_->inbox().post(request);
    Answer answer;
    for (int idle = 0, i = 0; idle < 20; ++i) {
      REQUIRE(i < 10'000);
      bool busy = engine_->step();
      engine_->check_integrity();
      for (StoreCommand& command : commands_.drain()) {
        worker_->handle(std::move(command));
        busy = true;
      }
      busy = worker_->write_some() || busy;
      for (const std::vector<EngineEvent>& events : engine_->outbox().drain()) {
        for (const EngineEvent& event : events) take(event, &answer);
      }
      idle = busy || !answer.ended ? 0 : idle + 1;
    }
    return answer;
  }

 private:
  static void take(const EngineEvent& event, Answer* answer) {
    if (const auto* token = std::get_if<TokenEvent>(&event)) {
      answer->tokens.push_back(token->token);
    } else if (const auto* done = std::get_if<RequestDoneEvent>(&event)) {
      answer->restored = done->cached_disk_tokens;
      answer->cached = done->cached_tokens;
      answer->ended = true;
    }
    REQUIRE_FALSE(std::holds_alternative<RequestFailedEvent>(event));
  }

  SteadyClock clock_;
  Mailbox<StoreCommand> commands_{1 << 12};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<StoreWorker> worker_;
  std::filesystem::path database_;
  RequestId last_id_ = 0;
};

/// Flips one bit in the row of each state. Returns how many there are.
int flip_states(const std::filesystem::path& file, int64_t state_bytes, size_t at) {
  auto database = Database::open(file);
  REQUIRE(database.ok());
  std::vector<std::pair<int64_t, std::vector<std::byte>>> rows;
  {
    auto read = database->prepare("SELECT id, data FROM chunk WHERE length(data) = ?");
    REQUIRE(read.ok());
    read->bind(0, state_bytes);
    while (true) {
      const auto more = read->step();
      REQUIRE(more.ok());
      if (!*more) break;
      const std::span<const std::byte> data = read->blob(1);
      rows.emplace_back(read->integer(0), std::vector<std::byte>(data.begin(), data.end()));
    }
  }
  for (auto& [id, data] : rows) {
    data[at % data.size()] ^= std::byte{1} << at % 8;
    auto write = database->prepare("UPDATE chunk SET data = ? WHERE id = ?");
    REQUIRE(write.ok());
    REQUIRE(write->bind(0, std::span<const std::byte>(data)).bind(1, id).run().ok());
  }
  return static_cast<int>(rows.size());
}

TEST_CASE("every family: a prefix from disk after a restart gives the same tokens") {
  const NamedTable table = all_tables().back();
  const auto prompt = random_tokens(90, 128, 3);
  for (const std::string& name : family_names()) {
    CAPTURE(name);
    OwnedFile owned(read_family(name).file_bytes(kernels::DType::kQ8_0));
    owned.file.set_fingerprint(name);
    const tests::TempDir folder;
    const Answer cold = DiskRun(owned.file, table.ops, folder.path()).ask(prompt);
    CHECK(cold.tokens.size() == 20);
    CHECK(cold.restored == 0);
    const Answer again = DiskRun(owned.file, table.ops, folder.path()).ask(prompt);
    CHECK(again.restored >= 64);
    CHECK(again.tokens == cold.tokens);
  }
}

TEST_CASE("stages: prefixes on disk are those of one device, in both directions") {
  const NamedTable table = all_tables().back();
  const auto prompt = random_tokens(90, 128, 3);
  for (const char* name : {"llama", "gemma3", "qwen3moe", "deepseek2", "qwen3next", "mamba"}) {
    CAPTURE(name);
    OwnedFile owned(read_family(name).file_bytes(kernels::DType::kQ8_0));
    owned.file.set_fingerprint(name);
    const auto ask = [&](const tests::TempDir& folder, int32_t stages) {
      return DiskRun(owned.file, table.ops, folder.path(), 16, false, {}, stages).ask(prompt);
    };
    const tests::TempDir first, second;
    const Answer want = ask(first, 1);
    const Answer restored = ask(first, 2);
    CHECK(restored.restored >= 64);
    CHECK(restored.tokens == want.tokens);
    CHECK(ask(second, 2).tokens == want.tokens);
    const Answer back = ask(second, 1);
    CHECK(back.restored >= 64);
    CHECK(back.tokens == want.tokens);
  }
}

TEST_CASE(
    "every KV type: a prefix from disk gives the same tokens, one of another type is not read") {
  using enum kernels::KvType;
  const NamedTable table = all_tables().back();
  const auto prompt = random_tokens(90, 128, 3);
  OwnedFile owned(read_family("gemma3").file_bytes(kernels::DType::kQ8_0));
  owned.file.set_fingerprint("gemma3");
  const tests::TempDir folder;
  std::vector<std::filesystem::path> files;
  // q8_0 and fp8 have blocks of the same size, and so have the last two.
  for (const kernels::KvTypes types :
       {kernels::KvTypes(kQ8_0), kernels::KvTypes(kFp8), kernels::KvTypes(kQ4_0),
        kernels::KvTypes(kQ8_0, kQ4_0), kernels::KvTypes(kQ4_0, kQ8_0)}) {
    CAPTURE(kernels::kv_type_name(types));
    const auto run = [&] {
      return std::make_unique<DiskRun>(owned.file, table.ops, folder.path(), 16, false, types);
    };
    auto first = run();
    const std::filesystem::path file = first->database();
    const Answer cold = first->ask(prompt);
    CHECK(cold.tokens.size() == 20);
    CHECK(cold.restored == 0);
    first.reset();
    const Answer again = run()->ask(prompt);
    CHECK(again.restored >= 64);
    CHECK(again.tokens == cold.tokens);
    CHECK(std::ranges::find(files, file) == files.end());
    if (!files.empty()) {
      // The file of another type under this one's name.
      remove_store_file(file);
      std::filesystem::copy_file(files.back(), file);
      const Answer computed = run()->ask(prompt);
      CHECK(computed.restored == 0);
      CHECK(computed.tokens == cold.tokens);
    }
    files.push_back(file);
  }
}

TEST_CASE("draft layers: a prefix from disk after a restart gives the same drafts") {
  const NamedTable table = all_tables().back();
  int partly_right = 0;
  const auto prompt = random_tokens(90, 128, 3);
  for (const std::string& name : drafting_family_names()) {
    CAPTURE(name);
    OwnedFile owned(read_family(name).drafting_file_bytes());
    owned.file.set_fingerprint(name);
    const tests::TempDir folder;
    // An engine without the layer has blocks of another layout, and a database of its own.
    DiskRun plain(owned.file, table.ops, folder.path());
    const Answer want = plain.ask(prompt, 40);
    DiskRun cold(owned.file, table.ops, folder.path(), 16, true);
    CHECK(cold.database() != plain.database());
    const Answer first = cold.ask(prompt, 40);
    CHECK(first.restored == 0);
    CHECK(first.tokens == want.tokens);
    const SpeculationCounts drafts = cold.speculation();
    CHECK(drafts.accepted_tokens > 2);
    partly_right += drafts.accepted_tokens < drafts.drafted_tokens ? 1 : 0;
    DiskRun warm(owned.file, table.ops, folder.path(), 16, true);
    const Answer again = warm.ask(prompt, 40);
    CHECK(again.restored >= 64);
    CHECK(again.tokens == want.tokens);
    CHECK(warm.speculation().drafted_tokens == drafts.drafted_tokens);
    CHECK(warm.speculation().accepted_at == drafts.accepted_at);
  }
  CHECK(partly_right > 0);
}

TEST_CASE("every family with a state: a damaged state, or one of another layout, is computed") {
  const NamedTable table = all_tables().back();
  const auto prompt = random_tokens(90, 128, 3);
  int families = 0;
  for (const std::string& name : family_names()) {
    CAPTURE(name);
    OwnedFile owned(read_family(name).file_bytes(kernels::DType::kQ8_0));
    owned.file.set_fingerprint(name);
    const tests::TempDir folder;
    const auto run = [&](int32_t block_size) {
      return std::make_unique<DiskRun>(owned.file, table.ops, folder.path(), block_size);
    };
    auto first = run(16);
    if (first->state_group() < 0) continue;
    const Answer cold = first->ask(prompt);
    const std::filesystem::path database = first->database();
    const int64_t state_bytes = first->state_bytes();
    first.reset();
    CHECK(flip_states(database, state_bytes, 1237 * static_cast<size_t>(++families)) >= 2);
    Answer again = run(16)->ask(prompt);
    CHECK(again.restored == 0);
    CHECK(again.tokens == cold.tokens);
    again = run(16)->ask(prompt);  // the damaged rows were replaced
    CHECK(again.restored >= 64);
    CHECK(again.tokens == cold.tokens);

    const std::filesystem::path other = run(32)->database();
    REQUIRE(other != database);
    remove_store_file(other);
    std::filesystem::copy_file(database, other);
    again = run(32)->ask(prompt);
    CHECK(again.restored == 0);
    CHECK(again.tokens == cold.tokens);
  }
  CHECK(families >= 14);
}

TEST_CASE("a state that a sequence found in memory counts as used in the store") {
  const NamedTable table = all_tables().back();
  const auto prompt = random_tokens(90, 128, 3);
  for (const char* name : {"qwen35", "mamba"}) {
    CAPTURE(name);
    OwnedFile owned(read_family(name).file_bytes(kernels::DType::kQ8_0));
    owned.file.set_fingerprint(name);
    const tests::TempDir folder;
    auto run = std::make_unique<DiskRun>(owned.file, table.ops, folder.path());
    run->ask(prompt);
    CHECK(run->ask(prompt).cached == 80);
    const std::filesystem::path file = run->database();
    const int64_t state_bytes = run->state_bytes();
    run.reset();  // writes the uses
    auto database = Database::open(file);
    REQUIRE(database.ok());
    auto uses = database->prepare(
        "SELECT num_blocks, hits FROM chunk WHERE length(data) = ? ORDER BY num_blocks");
    REQUIRE(uses.ok());
    uses->bind(0, state_bytes);
    std::map<int64_t, int64_t> hits;  // of the state after that many blocks
    while (uses->step().value()) hits[uses->integer(0)] = uses->integer(1);
    // After the prompt's last whole block, and after the answer's.
    CHECK(hits == std::map<int64_t, int64_t>{{5, 1}, {6, 0}});
  }
}

// tests/golden/recall.gguf: see models/demo/recall.py.
constexpr int32_t kPairs = 32;  // of two tokens: four blocks
constexpr int32_t kFirstKey = 8;
constexpr int32_t kFirstValue = 64;
constexpr int32_t kRecallVocab = 128;

/// Pairs of a key and its value, the keys distinct.
std::vector<int32_t> random_pairs(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> keys(kFirstValue - kFirstKey);
  std::iota(keys.begin(), keys.end(), kFirstKey);
  std::ranges::shuffle(keys, random);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kPairs; ++i) {
    tokens.push_back(keys[static_cast<size_t>(i)]);
    tokens.push_back(kFirstValue + static_cast<int32_t>(random() % (kRecallVocab - kFirstValue)));
  }
  return tokens;
}

TEST_CASE("a trained hybrid recalls pairs that it read, whether its state was computed or stored") {
  auto file = models::GgufFile::open(std::filesystem::path(hearth::tests::source_dir()) /
                                     "tests/golden/recall.gguf");
  REQUIRE(file.ok());
  file->set_fingerprint("recall");
  EngineConfig nothing_cached;
  nothing_cached.kv_bytes = 8 << 20;
  nothing_cached.prefix_cache = false;
  const NamedTable table = all_tables().back();
  int asked = 0, recalled = 0, recalled_without_pairs = 0;
  RequestId id = 0;
  EngineRun cold(*file, table.ops, nothing_cached);
  const auto ask_cold = [&](const std::vector<int32_t>& prompt) {
    Request request;
    request.id = ++id;
    request.prompt = prompt;
    request.max_tokens = 8;
    return cold.ask(request).tokens.front();
  };
  for (uint32_t seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    const std::vector<int32_t> pairs = random_pairs(seed);
    const tests::TempDir folder;
    DiskRun(*file, table.ops, folder.path()).ask(pairs, 1);
    DiskRun restarted(*file, table.ops, folder.path());
    for (size_t pair = 0; pair < kPairs; pair += 3) {
      CAPTURE(pair);
      std::vector<int32_t> prompt = pairs;
      prompt.push_back(pairs[2 * pair]);
      const Answer stored = restarted.ask(prompt, 8);
      CHECK(stored.cached == 2 * kPairs);  // the state after the pairs, first from disk
      CHECK(stored.restored == (pair == 0 ? 2 * kPairs : 0));
      CHECK(stored.tokens == ask_cold(prompt));
      ++asked;
      recalled += stored.tokens.front() == pairs[2 * pair + 1] ? 1 : 0;
      // Not a trait of the key: without the pairs the answer is another.
      recalled_without_pairs += ask_cold({pairs[2 * pair]}).front() == pairs[2 * pair + 1] ? 1 : 0;
    }
  }
  CAPTURE(asked);
  CHECK(recalled >= asked * 49 / 50);
  CHECK(recalled_without_pairs <= asked / 8);
}

}  // namespace
}  // namespace hearth::golden
