// hearth-prefix-bench [SHAPE|FILE.gguf [TYPE [PART [ROUNDS]]]]: what a kept prefix saves on this
// machine, with a model of random weights (default 0.1B, Q4_K), in one process and without a
// socket.
//
//   TTFT      of a prompt of 2048 known (or as many as a file's context holds) and 32 new tokens:
//             computed (cold), in memory, and from disk in a fresh engine; medians of some rounds
//   restore   bytes restored over the wait for them, and the rate of reading as many bytes from a
//             plain file that the page cache holds
//   0 % hits  prompts that share nothing: tokens per second with the cache off, in memory, and with
//             every one written to disk, until the last is; each round's rates, and their medians
//   talk      a conversation of 10 turns over 4096 first tokens, answers of 64; from turn 6 on in a
//             fresh engine: known tokens that were computed again, and the share of states in the
//             store
//   owners    whether TTFT shows one owner what another has asked for
//   reopen    a process that writes chunks of the 1.2 B shape's KV (512 KiB a block) is killed at a
//             random moment; until the next one writes and has looked up a chain: median and worst
//
// FILE.gguf: an existing model (hearth bench --write-shape), which replaces that of TYPE.
// PART: ttft, hits, talk, owners or reopen alone, or all; ROUNDS: of ttft and hits, default 3;
// kills of reopen are ten a round.
// --smoke: tiny counts, for ctest. Never judges.

#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/kv/chain_hash.h"
#include "engine/store/sqlite_store.h"
#include "engine/store/store_thread.h"
#include "kernels/base/check.h"
#include "kernels/base/random.h"
#include "kernels/database/sqlite.h"
#include "models/random_model.h"
#include "tests/bench/bench_model.h"
#include "tests/temp_dir.h"

namespace hearth::bench {
namespace {

namespace fs = std::filesystem;
using engine::Engine;
using engine::Request;
using engine::RequestDoneEvent;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

enum class Cache { kOff, kMemory, kDisk };

/// An engine on its own thread, with or without a store.
class Rig {
 public:
  Rig(const fs::path& model_file, const fs::path& folder, Cache cache, uint64_t kv_bytes,
      int32_t vocab)
      : vocab_(vocab) {
    auto ops = kernels::cpu_ops({});
    HEARTH_CHECK(ops.ok(), "{}", ops.error().message);
    engine::EngineConfig config;
    config.prefix_cache = cache != Cache::kOff;
    config.speculation.enabled = false;
    config.kv_bytes = kv_bytes;
    config.scheduler.max_seqs = 8;
    auto made = Engine::create(config, *ops, bench_model(model_file, *ops), clock_, nullptr,
                               cache == Cache::kDisk ? &commands_ : nullptr);
    HEARTH_CHECK(made.ok(), "{}", made.error().message);
    engine_ = std::move(made).value();
    engine_->warm_up();
    if (cache == Cache::kDisk) {
      engine::SqliteStoreConfig store;
      store.folder = folder;
      store.min_free_bytes = 0;
      store.now_ms = [] {
        return std::chrono::duration_cast<std::chrono::milliseconds>(
                   std::chrono::system_clock::now().time_since_epoch())
            .count();
      };
      store_ = std::make_unique<engine::StoreThread>(
          std::make_unique<engine::SqliteStore>(std::move(store), engine_->kv_layout()), commands_,
          [this](engine::StoreReply reply) { engine_->inbox().post(std::move(reply)); });
    }
    thread_ = std::thread([this] { engine_->run(); });
    // A worker is ready only when its store is.
    while (cache == Cache::kDisk && store().state != engine::StoreState::kWriting) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ~Rig() {
    engine_->inbox().post(engine::Stop{});
    thread_.join();
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  /// `known` tokens that are the same for one `chain`, then `fresh` tokens that never occurred
  /// before.
  void post(uint64_t chain, int32_t known, int32_t fresh, int32_t max_tokens,
            const char* owner = "bench") {
    Request request;
    request.id = next_id_++;
    request.owner = owner;
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    const auto add = [&](uint64_t seed, int32_t count) {
      for (int32_t i = 0; i < count; ++i) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        request.prompt.push_back(
            static_cast<int32_t>((seed >> 33) % static_cast<uint64_t>(vocab_)));
      }
    };
    add(chain, known);
    static uint64_t never = 1u << 20;
    add(++never, fresh);
    engine_->inbox().post(std::move(request));
  }
  /// `prompt`, whose answer is appended to it.
  RequestDoneEvent converse(std::vector<int32_t>& prompt, int32_t max_tokens) {
    Request request;
    request.id = next_id_++;
    request.owner = "bench";
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    request.prompt = prompt;
    engine_->inbox().post(std::move(request));
    return wait(1, &prompt).front();
  }
  /// Until this many have ended. Their tokens are appended to `tokens`.
  std::vector<RequestDoneEvent> wait(int count, std::vector<int32_t>* tokens = nullptr) {
    std::vector<RequestDoneEvent> out;
    while (static_cast<int>(out.size()) < count) {
      for (const auto& events : engine_->outbox().wait_and_drain(std::chrono::seconds(1))) {
        for (const engine::EngineEvent& event : events) {
          if (const auto* done = std::get_if<RequestDoneEvent>(&event)) out.push_back(*done);
          const auto* token = std::get_if<engine::TokenEvent>(&event);
          if (token != nullptr && tokens != nullptr) tokens->push_back(token->token);
          if (const auto* failed = std::get_if<engine::RequestFailedEvent>(&event)) {
            HEARTH_CHECK(false, "request failed: {}", failed->error.message);
          }
        }
      }
    }
    return out;
  }
  /// Until a prompt with this many stored tokens is on disk, `count` times more than before.
  void wait_until_written(int count, int32_t tokens) {
    const int32_t blocks = tokens / 16;
    const int32_t chunk = engine_->kv_layout().chunk_blocks();
    expected_chunks_ += static_cast<uint64_t>(count * ((blocks + chunk - 1) / chunk));
    while (true) {
      const engine::StoreStats stats = store();
      if (stats.chunks_saved + stats.chunks_dropped >= expected_chunks_) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  engine::KvLayout layout() const { return engine_->kv_layout(); }
  uint64_t chunks_dropped() { return store().chunks_dropped; }
  int32_t context_length() const { return engine_->context_length(); }
  /// Bytes that a prefix of so many blocks restores: a state once.
  uint64_t bytes_of(int32_t blocks) const {
    const engine::KvLayout& layout = engine_->kv_layout();
    int64_t bytes = 0;
    for (int32_t group = 0; group < layout.num_groups(); ++group) {
      bytes += layout.block_bytes[group] * (group == layout.state_group ? 1 : blocks);
    }
    return static_cast<uint64_t>(bytes);
  }

 private:
  engine::StoreStats store() {
    engine_->inbox().post(engine::WantSnapshot{});
    while (true) {
      for (const auto& events : engine_->outbox().wait_and_drain(std::chrono::seconds(1))) {
        for (const engine::EngineEvent& event : events) {
          if (const auto* got = std::get_if<engine::SnapshotEvent>(&event)) {
            return got->snapshot.store;
          }
        }
      }
    }
  }

  SteadyClock clock_;
  Mailbox<engine::StoreCommand> commands_{1 << 16};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<engine::StoreThread> store_;  ///< ends first, after writing what was offered
  std::thread thread_;
  engine::RequestId next_id_ = 1;
  uint64_t expected_chunks_ = 0;
  int32_t vocab_;
};

struct Setup {
  fs::path folder;
  fs::path model;
  uint64_t kv_bytes = 0;
  int32_t vocab = 0;
  int32_t known = 2048;
  int32_t fresh = 32;
  int rounds = 3;
  int prompts = 16;

  std::unique_ptr<Rig> start(Cache cache) const {
    return std::make_unique<Rig>(model, folder, cache, kv_bytes, vocab);
  }
};

double read_rate_gb(const Setup& setup, uint64_t bytes, int rounds) {
  const fs::path file = setup.folder / "plain";
  std::vector<std::byte> data(bytes, std::byte{1});
  std::FILE* out = std::fopen(file.c_str(), "wb");
  HEARTH_CHECK(out != nullptr && std::fwrite(data.data(), 1, bytes, out) == bytes);
  std::fclose(out);
  std::vector<double> rates;
  for (int round = 0; round < rounds + 1; ++round) {
    std::FILE* in = std::fopen(file.c_str(), "rb");
    HEARTH_CHECK(in != nullptr);
    std::setvbuf(in, nullptr, _IONBF, 0);
    const auto begin = std::chrono::steady_clock::now();
    constexpr uint64_t kPiece = 1 << 20;
    for (uint64_t at = 0; at < bytes; at += kPiece) {
      const uint64_t n = std::min(kPiece, bytes - at);
      HEARTH_CHECK(std::fread(data.data() + at, 1, n, in) == n);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::fclose(in);
    if (round > 0) rates.push_back(static_cast<double>(bytes) / took.count() / 1e9);
  }
  fs::remove(file);
  return median(rates);
}

void measure_ttft(const Setup& setup) {
  std::vector<double> cold_ms, memory_ms, disk_ms, restore_gb;
  uint64_t bytes = 0;
  for (int round = 0; round < setup.rounds; ++round) {
    const auto chain = static_cast<uint64_t>(round) + 1;
    const auto ask = [&](Rig& rig) {
      rig.post(chain, setup.known, setup.fresh, 1);
      return rig.wait(1).front();
    };
    {
      const auto rig = setup.start(Cache::kDisk);
      cold_ms.push_back(static_cast<double>(ask(*rig).ttft_us) / 1000);
      memory_ms.push_back(static_cast<double>(ask(*rig).ttft_us) / 1000);
    }
    const auto rig = setup.start(Cache::kDisk);
    const RequestDoneEvent done = ask(*rig);
    disk_ms.push_back(static_cast<double>(done.ttft_us) / 1000);
    fmt::print("  round {}: {} of {} tokens from disk, waited {:.1f} ms\n", round + 1,
               done.cached_disk_tokens, done.prompt_tokens,
               static_cast<double>(done.restore_us) / 1000);
    if (done.cached_disk_tokens == 0) continue;
    bytes = rig->bytes_of(done.cached_disk_tokens / 16);
    restore_gb.push_back(static_cast<double>(bytes) / static_cast<double>(done.restore_us) / 1e3);
  }
  fmt::print(
      "TTFT, {} known + {} new tokens: cold {:.1f} ms, memory {:.1f} ms ({:.1f}x), disk "
      "{:.1f} ms ({:.1f}x)\n",
      setup.known, setup.fresh, median(cold_ms), median(memory_ms),
      median(cold_ms) / median(memory_ms), median(disk_ms), median(cold_ms) / median(disk_ms));
  if (bytes == 0) return;
  const double plain = read_rate_gb(setup, bytes, setup.rounds);
  fmt::print("restore of {:.1f} MiB: {:.2f} GB/s, a plain warm file {:.2f} GB/s: {:.2f} of it\n",
             static_cast<double>(bytes) / (1 << 20), median(restore_gb), plain,
             median(restore_gb) / plain);
}

void measure_no_hits(const Setup& setup) {
  const std::pair<const char*, Cache> kinds[] = {
      {"off", Cache::kOff}, {"memory", Cache::kMemory}, {"disk", Cache::kDisk}};
  std::vector<std::unique_ptr<Rig>> rigs;
  for (const auto& [name, cache] : kinds) rigs.push_back(setup.start(cache));
  std::vector<std::vector<double>> rates(rigs.size());
  // Short rounds: the speed of a machine that is not quiet changes within seconds.
  constexpr int32_t kOutput = 16;
  const int32_t prompt = setup.known / 16;
  for (int round = 0; round < setup.rounds; ++round) {
    // In turns, each first once in three rounds: disturbances affect all of them.
    for (size_t turn = 0; turn < rigs.size(); ++turn) {
      const size_t i = (turn + static_cast<size_t>(round)) % rigs.size();
      const auto begin = std::chrono::steady_clock::now();
      for (int p = 0; p < setup.prompts; ++p) rigs[i]->post(0, 0, prompt, kOutput);
      rigs[i]->wait(setup.prompts);
      // The last token of an answer is not computed.
      if (kinds[i].second == Cache::kDisk) {
        rigs[i]->wait_until_written(setup.prompts, prompt + kOutput - 1);
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      rates[i].push_back(setup.prompts * (prompt + kOutput) / took.count());
    }
    fmt::print("  round {}: off {:.1f}, memory {:.1f}, disk {:.1f} tokens/s\n", round + 1,
               rates[0].back(), rates[1].back(), rates[2].back());
    std::fflush(stdout);  // limited to a minute, it may end before the last round
  }
  std::vector<double> of_off[2];  // each round's rate over that with the cache off
  for (size_t round = 0; round < rates[0].size(); ++round) {
    for (size_t i = 0; i < 2; ++i) of_off[i].push_back(rates[i + 1][round] / rates[0][round]);
  }
  fmt::print(
      "0 % hits, {} prompts of {} + {} tokens: off {:.0f} tokens/s, memory {:.0f}, disk {:.0f} ({} "
      "chunks dropped); over off, medians of the rounds: memory {:.3f}, disk {:.3f}\n",
      setup.prompts, prompt, kOutput, median(rates[0]), median(rates[1]), median(rates[2]),
      rigs[2]->chunks_dropped(), median(of_off[0]), median(of_off[1]));
}

/// Bytes of states, and of all, in the only database of the folder.
std::pair<int64_t, int64_t> stored_bytes(const fs::path& folder, const engine::KvLayout& layout) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".db") continue;
    auto database = Database::open(entry.path());
    HEARTH_CHECK(database.ok(), "{}", database.error().message);
    auto rows = database->prepare("SELECT idx, num_blocks, present, length(data) FROM chunk");
    HEARTH_CHECK(rows.ok(), "{}", rows.error().message);
    int64_t states = 0, all = 0;
    while (rows->step().value()) {
      const std::span<const std::byte> masks = rows->blob(2);
      uint64_t state_mask = 0;
      if (layout.state_group >= 0) {
        std::memcpy(&state_mask, masks.data() + 8 * layout.state_group, sizeof state_mask);
      }
      all += rows->integer(3);
      states += state_mask != 0 ? rows->integer(3) : 0;
    }
    return {states, all};
  }
  return {0, 0};
}

void measure_conversation(const Setup& setup, bool smoke) {
  const int32_t first = smoke ? 256 : 4096, turn_tokens = smoke ? 24 : 64;
  constexpr int kTurns = 10, kRestart = 6;
  std::vector<int32_t> tokens;
  uint64_t seed = 12345;
  const auto add = [&](int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<int32_t>(splitmix(++seed) % static_cast<uint64_t>(setup.vocab)));
    }
  };
  int64_t sent = 0, again = 0, again_after_restart = 0;
  const fs::path folder = setup.folder / "conversation";
  fs::create_directories(folder);
  auto rig = std::make_unique<Rig>(setup.model, folder, Cache::kDisk, setup.kv_bytes, setup.vocab);
  add(first);
  int64_t computed = 0;  // of `tokens`, those before it have been computed once
  for (int turn = 1; turn <= kTurns; ++turn) {
    if (turn == kRestart) {
      rig.reset();
      rig = std::make_unique<Rig>(setup.model, folder, Cache::kDisk, setup.kv_bytes, setup.vocab);
    }
    add(turn_tokens);
    const RequestDoneEvent done = rig->converse(tokens, turn_tokens);
    const int64_t twice = std::max<int64_t>(computed - done.cached_tokens, 0);
    sent += done.prompt_tokens;
    again += twice;
    if (turn == kRestart) again_after_restart = twice;
    computed = std::ssize(tokens) - 1;  // the last token was not computed
  }
  const engine::KvLayout layout = rig->layout();
  rig.reset();
  const auto [states, all] = stored_bytes(folder, layout);
  fmt::print(
      "conversation, {} turns over {} tokens: {} prompt tokens sent, {} computed twice ({:.2f} %), "
      "{} of them in turn {} after a restart; on disk {:.1f} MiB, states {:.1f} MiB ({:.0f} %)\n",
      kTurns, first, sent, again, 100.0 * static_cast<double>(again) / static_cast<double>(sent),
      again_after_restart, kRestart, static_cast<double>(all) / (1 << 20),
      static_cast<double>(states) / (1 << 20),
      all == 0 ? 0.0 : 100.0 * static_cast<double>(states) / static_cast<double>(all));
}

/// What an owner can learn of another's prompts from times: in turns, it requests prompts that the
/// other has requested and random ones, and compares. AUC: how often a requested one was faster.
void measure_owners(const Setup& setup, int count) {
  const auto rig = setup.start(Cache::kDisk);
  constexpr int32_t kPrompt = 64;
  const auto chain_of = [](int i) { return static_cast<uint64_t>(1'000'000 + i); };
  for (int i = 0; i < count; ++i) {
    rig->post(chain_of(i), kPrompt, 1, 1, "victim");
    rig->wait(1);
  }
  std::vector<int64_t> known, random;
  int32_t hits = 0;
  for (int i = 0; i < count; ++i) {
    const auto ask = [&](uint64_t chain) {
      rig->post(chain, kPrompt, 1, 1, "prober");
      const RequestDoneEvent done = rig->wait(1).front();
      hits += done.cached_tokens;
      return done.ttft_us;
    };
    // The order alternates: the second of two may find warmer caches.
    if (i % 2 == 0) known.push_back(ask(chain_of(i)));
    random.push_back(ask(chain_of(count + i)));
    if (i % 2 != 0) known.push_back(ask(chain_of(i)));
  }
  double faster = 0;
  for (const int64_t a : known) {
    for (const int64_t b : random) faster += a < b ? 1.0 : a == b ? 0.5 : 0.0;
  }
  fmt::print("two owners, {} prompts each: {} tokens found across them, AUC of TTFT {:.3f}\n",
             count, hits, faster / count / count);
}

/// Opens the store as a new process does.
std::unique_ptr<engine::SqliteStore> open_store(const fs::path& folder,
                                                const engine::KvLayout& layout) {
  engine::SqliteStoreConfig config;
  config.folder = folder;
  config.budget_bytes = 2ull << 30;
  config.min_free_bytes = 0;
  config.now_ms = [] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  auto store = std::make_unique<engine::SqliteStore>(std::move(config), layout);
  store->tick();
  return store;
}

engine::Chain numbered_chain(const engine::KvLayout& layout, int32_t number) {
  engine::Chain chain;
  chain.owner = "bench";
  chain.root = engine::scope_hash("bench");
  chain.tokens.assign(static_cast<size_t>(4 * layout.chunk_blocks() * layout.block_size), number);
  return chain;
}

/// Writes chains, each in one transaction of 4 MiB, until it is killed.
[[noreturn]] void write_chains(const fs::path& folder, const engine::KvLayout& layout, int cycle) {
  const auto store = open_store(folder, layout);
  for (int32_t number = cycle * 10'000;; ++number) {
    const engine::NamedChain named = store->name(numbered_chain(layout, number));
    const int32_t chunk_blocks = layout.chunk_blocks();
    std::vector<engine::ChunkShape> shapes;
    std::vector<engine::ChunkData> data;
    for (int32_t index = 0; index < named.num_blocks() / chunk_blocks; ++index) {
      shapes.push_back({index, chunk_blocks, {engine::low_bits(chunk_blocks)}});
      data.push_back(engine::ChunkData::of_size(shapes.back().data_bytes(layout)));
      std::ranges::fill(data.back().span(), static_cast<std::byte>(number));
    }
    std::vector<engine::ChunkToSave> chunks;
    for (size_t i = 0; i < shapes.size(); ++i) {
      chunks.push_back({&named, &shapes[i], data[i].span(), 0});
    }
    (void)store->save(chunks);
    store->tick();
  }
}

void measure_reopen(const Setup& setup, int kills) {
  engine::KvLayout layout;
  layout.model = "reopen";
  layout.identity = "bench";
  layout.block_size = 16;
  layout.block_bytes = {512 << 10};
  std::vector<double> open_ms;
  uint64_t entries = 0, wal_bytes_max = 0;
  for (int kill = 0; kill < kills; ++kill) {
    const pid_t child = ::fork();
    HEARTH_CHECK(child >= 0);
    if (child == 0) write_chains(setup.folder, layout, kill);
    ::usleep(static_cast<useconds_t>(20'000 + kill * 7919 % 400 * 1000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (const auto& file : fs::directory_iterator(setup.folder)) {
      if (file.path().extension() != ".db-wal") continue;
      wal_bytes_max = std::max<uint64_t>(wal_bytes_max, file.file_size());
    }
    const auto begin = std::chrono::steady_clock::now();
    const auto store = open_store(setup.folder, layout);
    const auto found = store->find(store->name(numbered_chain(layout, kill * 10'000)), 0, 1 << 20);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    HEARTH_CHECK(found.ok() && store->stats().state == engine::StoreState::kWriting);
    open_ms.push_back(took.count());
    entries = store->stats().entries;
  }
  fmt::print(
      "reopen after {} kills: median {:.1f} ms, worst {:.1f} ms; {} chunks at the end, the log up "
      "to {:.0f} MiB\n",
      kills, median(open_ms), *std::ranges::max_element(open_ms), entries,
      static_cast<double>(wal_bytes_max) / (1 << 20));
}

/// Writes a model with random weights to the folder. Prints an error.
bool write_model(Setup& setup, std::string_view shape_name, std::string_view type_name) {
  const auto found = models::find_shape(shape_name);
  const auto type = models::parse_weight_type(type_name);
  if (!found.ok() || !type.ok()) {
    fmt::print(stderr, "{}\n", !found.ok() ? found.error().message : type.error().message);
    return false;
  }
  setup.model = setup.folder / "model.gguf";
  setup.vocab = found->vocab;
  // Room for every prompt of a round, so that nothing is evicted before the store has written it.
  const uint64_t token_bytes = 2ull * 2 * static_cast<uint64_t>(found->layers) *
                               static_cast<uint64_t>(found->kv_heads) *
                               static_cast<uint64_t>(found->head_dim);
  setup.kv_bytes = 16'384 * token_bytes;
  const auto model = models::RandomModel::create(*found, *type, 1);
  HEARTH_CHECK(model.ok(), "{}", model.error().message);
  const auto written = models::write_random_model(*model, setup.model, 2, nullptr);
  HEARTH_CHECK(written.ok(), "{}", written.error().message);
  fmt::print("shape {}, {}, {} B of KV per token\n", found->name, type_name, token_bytes);
  return true;
}

int run(bool smoke, std::string_view model, std::string_view type_name, std::string_view part,
        int rounds) {
  const tests::TempDir temp;
  Setup setup;
  setup.folder = temp.path();
  setup.rounds = rounds;
  if (smoke) {
    setup.known = 128;
    setup.rounds = 1;
    setup.prompts = 2;
  }
  const auto wants = [&](std::string_view what) { return part == "all" || part == what; };
  // First, because a process with threads must not fork.
  if (wants("reopen")) measure_reopen(setup, smoke ? 2 : 10 * rounds);
  if (part == "reopen") return 0;
  if (model.ends_with(".gguf")) {
    setup.model = model;
    setup.vocab = 1000;  // no model has fewer
    setup.kv_bytes = 512ull << 20;
    setup.prompts = 1;
    const int32_t room = setup.start(Cache::kOff)->context_length() - setup.fresh - 1;
    setup.known = std::min(setup.known, room / 16 * 16);
  } else if (!write_model(setup, model, type_name)) {
    return 2;
  }
  if (wants("ttft")) measure_ttft(setup);
  if (wants("hits")) measure_no_hits(setup);
  if (wants("talk")) measure_conversation(setup, smoke);
  if (wants("owners")) measure_owners(setup, smoke ? 4 : 500);
  return 0;
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) {
  const bool smoke = argc == 2 && std::string_view(argv[1]) == "--smoke";
  const int rounds = argc > 4 ? std::atoi(argv[4]) : 3;
  if (argc > 5 || rounds < 1 || (argc > 1 && argv[1][0] == '-' && !smoke)) {
    std::fputs(
        "usage: hearth-prefix-bench [SHAPE|FILE.gguf [TYPE [all|ttft|hits|talk|owners|reopen "
        "[ROUNDS]]]] | "
        "--smoke\n",
        stderr);
    return 2;
  }
  if (smoke) return hearth::bench::run(true, "tiny", "Q8_0", "all", 1);
  return hearth::bench::run(false, argc > 1 ? argv[1] : "0.1B", argc > 2 ? argv[2] : "Q4_K",
                            argc > 3 ? argv[3] : "all", rounds);
}
