// The same request gives the same tokens alone, in a batch, with its prefix cached, at any chunk
// size and thread count, after preemption and after a resume, with any drafts: == on every op
// table.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <thread>

#include "engine/speculation/draft_model.h"
#include "engine/speculation/replay_proposer.h"
#include "models/gguf/fingerprint.h"
#include "tests/golden/engine/engine_run.h"
#include "tests/golden/family_model.h"
#include "tests/golden/greedy_reference.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/skip.h"
#include "tests/temp_dir.h"

namespace hearth::golden {
namespace {

using namespace engine;
using kernels::DType;
using kernels::KvType;
using kernels::KvTypes;

constexpr const char* kStories = "models/stories260K-f32.gguf";

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kReduced = true;  // the same ways, over fewer models
#else
constexpr bool kReduced = false;
#endif

EngineConfig config_for(KvTypes kv_type) {
  EngineConfig config;
  config.kv_type = kv_type;
  config.kv_bytes = 8 << 20;
  config.speculation.enabled = false;
  config.context_length = 256;
  config.scheduler.max_seqs = 16;
  return config;
}

/// One greedy and two seeded requests over two prompts.
std::vector<Request> requests(int32_t vocab, int32_t prompt_size, int32_t max_tokens) {
  std::vector<Request> out;
  for (int i = 0; i < 3; ++i) {
    Request request;
    request.owner = request.cache_salt = "uid:1000";
    request.prompt = random_tokens(prompt_size, vocab, static_cast<uint32_t>(i / 2 + 1));
    request.max_tokens = max_tokens;
    request.sampling.temperature = i == 0 ? 0.0f : 0.9f;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.repetition_penalty = i == 2 ? 1.1f : 1.0f;
    request.n = i == 2 ? 2 : 1;
    out.push_back(std::move(request));
  }
  return out;
}

/// Runs the request in every way that must not matter.
void check_same_tokens(const models::GgufFile& file, const NamedTable& table, KvTypes kv_type,
                       const Request& asked, int32_t vocab) {
  INFO(table.name << ", KV " << kernels::kv_type_name(kv_type) << ", temperature "
                  << asked.sampling.temperature << ", n " << asked.n);
  Request request = asked;
  request.id = 1;
  const EngineConfig config = config_for(kv_type);
  const auto want = EngineRun(file, table.ops, config).ask(request).tokens;
  REQUIRE(want.front().size() == static_cast<size_t>(request.max_tokens));

  {
    INFO("among 15 others");
    EngineRun run(file, table.ops, config);
    for (RequestId id = 2; id <= 16; ++id) {
      Request other = asked;
      other.id = id;
      other.n = 1;
      other.sampling.temperature = 1.0f;
      other.sampling.seed = id;
      if (id % 3 != 0) {
        const auto size = static_cast<int32_t>(3 * id);
        other.prompt = random_tokens(size, vocab, static_cast<uint32_t>(id));
      }
      run.submit(other);
      if (id == 7) run.submit(request);
      run.step();
    }
    run.run_until_idle();
    CHECK(run.answer(1).tokens == want);
  }
  {
    INFO("with its prefix cached, whole and in part");
    EngineRun run(file, table.ops, config);
    CHECK(run.ask(request).cached_tokens == 0);
    Request second = request;
    second.id = 2;
    const EngineAnswer again = run.ask(second);
    CHECK(again.cached_tokens >= static_cast<int32_t>(request.prompt.size()) - 16);
    CHECK(again.tokens == want);
    EngineRun part(file, table.ops, config);
    Request shorter = request;
    shorter.prompt.resize(request.prompt.size() / 2);
    part.ask(shorter);
    const EngineAnswer longer = part.ask(second);
    CHECK(longer.cached_tokens > 0);
    CHECK(longer.tokens == want);
  }
  {
    INFO("at any chunk size");
    for (const int32_t chunk : {1, 2, 7, 16, 33, 512}) {
      CAPTURE(chunk);
      EngineConfig chunked = config;
      chunked.scheduler.max_step_tokens = chunk;
      CHECK(EngineRun(file, table.ops, chunked).ask(request).tokens == want);
    }
    EngineConfig whole = config;
    whole.scheduler.chunked_prefill = false;
    CHECK(EngineRun(file, table.ops, whole).ask(request).tokens == want);
  }
  {
    INFO("at any block size");
    EngineConfig larger = config;
    larger.block_size = 32;
    CHECK(EngineRun(file, table.ops, larger).ask(request).tokens == want);
  }
  {
    INFO("after preemption, with its blocks kept and without");
    for (const bool cache : {true, false}) {
      CAPTURE(cache);
      EngineConfig single = config;
      single.prefix_cache = cache;
      single.scheduler.max_seqs = request.n;
      EngineRun run(file, table.ops, single);
      Request batch = request;
      batch.priority = Priority::kBatch;
      run.submit(batch);
      while (run.answer(1).tokens.back().size() < 5) run.step();
      Request urgent = request;
      urgent.id = 2;
      urgent.priority = Priority::kInteractive;
      urgent.prompt = random_tokens(20, vocab, 77);
      run.submit(urgent);
      run.run_until_idle();
      CHECK(run.answer(1).preemptions >= request.n);
      CHECK(run.answer(1).tokens == want);
    }
  }
  {
    INFO("with drafts, alone and among others");
    uint64_t rejected = 0;
    for (const int32_t width : {2, 8}) {
      CAPTURE(width);
      auto proposer = std::make_unique<ReplayProposer>(
          std::vector<bool>{true, true, true, false, true, true, true, true, false, true}, vocab);
      for (int32_t sample = 0; sample < request.n; ++sample) {
        proposer->know(1, sample, want[static_cast<size_t>(sample)]);
      }
      EngineConfig wide = config;
      wide.speculation.enabled = true;
      wide.speculation.fixed_width = width;
      EngineRun run(file, table.ops, wide, std::move(proposer));
      for (RequestId id = 2; id <= 4; ++id) {
        Request other = asked;
        other.id = id;
        other.prompt = random_tokens(static_cast<int32_t>(11 * id), vocab, 9);
        other.sampling.temperature = 0;
        // A small vocabulary: texts repeat, and lookup drafts them.
        other.sampling.logit_bias = {{5, 50.0f}, {6, 50.0f}};
        run.submit(other);
        if (id == 3) run.submit(request);
        run.step();
      }
      run.run_until_idle();
      CHECK(run.answer(1).tokens == want);
      const SpeculationCounts counts = run.engine().snapshot().speculation;
      CHECK(counts.accepted_tokens > 0);
      rejected += counts.drafted_tokens - counts.accepted_tokens;
    }
    CHECK(rejected > 0);
  }
  {
    INFO("after a resume");
    for (const size_t had : {size_t{1}, want.front().size() / 2}) {
      Request resumed = request;
      for (const std::vector<int32_t>& tokens : want) {
        resumed.resume.emplace_back(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(had));
      }
      CHECK(EngineRun(file, table.ops, config).ask(resumed).tokens == want);
    }
  }
}

TEST_CASE("stories260K: the same request, the same tokens") {
  const auto path = tests::test_data(kStories);
  if (path.empty()) HEARTH_SKIP("no HEARTH_TEST_DATA/models/stories260K-f32.gguf");
  const auto file = models::GgufFile::open(path);
  REQUIRE(file.ok());
  const auto asked = requests(512, 45, 20);
  for (const NamedTable& table : all_tables()) {
    if (kReduced && table.name == "reference") continue;
    check_same_tokens(*file, table, DType::kF32, asked[0], 512);
    if (kReduced) continue;
    check_same_tokens(*file, table, DType::kF16, asked[1], 512);
    check_same_tokens(*file, table, DType::kF16, asked[2], 512);
  }
}

TEST_CASE("random models of every shape: the same request, the same tokens") {
  for (const LlamaShape& shape : llama_shapes()) {
    CAPTURE(shape.name);
    if (kReduced && shape.name != "gqa" && shape.name != "window") continue;
    // Q8_0 rows are multiples of 32 wide; the shape of odd sizes stays as floats.
    const bool quantized = shape.width % 32 == 0 && shape.ffn % 32 == 0;
    const RandomLlama model(shape, 3);
    const OwnedFile owned(model.file_bytes(quantized ? DType::kQ8_0 : DType::kF32));
    const auto asked = requests(shape.vocab, 37, 12);
    for (const NamedTable& table : all_tables()) {
      for (const Request& request : asked) {
        check_same_tokens(owned.file, table, DType::kF16, request, shape.vocab);
      }
      if (shape.name != "gqa" || (kReduced && table.name == "reference")) continue;
      check_same_tokens(owned.file, table, KvType::kQ8_0, asked[2], shape.vocab);
      if (!table.ops.any_kv_type) continue;
      check_same_tokens(owned.file, table, KvType::kFp8, asked[2], shape.vocab);
      check_same_tokens(owned.file, table, KvType::kQ4_0, asked[1], shape.vocab);
      check_same_tokens(owned.file, table, {KvType::kQ8_0, KvType::kQ4_0}, asked[2], shape.vocab);
      if (!kReduced) {
        check_same_tokens(owned.file, table, {KvType::kF16, KvType::kFp8}, asked[0], shape.vocab);
      }
    }
  }
}

TEST_CASE("every family: the same request, the same tokens") {
  // On every table those with layer groups, experts and long ropes; the others on the fastest.
  const std::vector<std::string> thorough = {"gemma2", "gemma3", "olmo3", "qwen3moe", "phi3_long"};
  const std::string fastest = all_tables().back().name;
  for (const std::string& name : family_names()) {
    CAPTURE(name);
    if (kReduced && name != "gemma3" && name != "gemma4" && name != "deepseek2") continue;
    const OwnedFile owned(read_family(name).file_bytes(DType::kQ8_0));
    const auto asked = requests(128, 45, 20);
    const bool all = std::ranges::find(thorough, name) != thorough.end();
    for (const NamedTable& table : all_tables()) {
      if (table.name != fastest && !all) continue;
      if (table.name == "reference" && !tests::full_counts()) continue;
      check_same_tokens(owned.file, table, DType::kF16, asked[0], 128);
      // Sliding groups, and latent ones, whose V is the front of K.
      if (table.ops.any_kv_type && name == "gemma3") {
        check_same_tokens(owned.file, table, {KvType::kQ8_0, KvType::kQ4_0}, asked[2], 128);
      }
      if (table.ops.any_kv_type && name == "deepseek2") {
        check_same_tokens(owned.file, table, KvType::kQ4_0, asked[1], 128);
        check_same_tokens(owned.file, table, KvType::kFp8, asked[0], 128);
      }
      if (tests::full_counts()) check_same_tokens(owned.file, table, DType::kF16, asked[2], 128);
    }
  }
}

TEST_CASE("KV types that a model or a table cannot have are refused by name") {
  const auto refusal = [](const std::string& family, kernels::OpTable ops, KvTypes types) {
    const OwnedFile owned(read_family(family).file_bytes(DType::kF32));
    auto model = models::load_model(owned.file, ops, nullptr);
    REQUIRE(model.ok());
    const SteadyClock clock;
    const auto made = Engine::create(config_for(types), ops, std::move(model).value(), clock);
    if (made.ok()) return std::string();
    CHECK(made.error().field == "kv_type");
    return made.error().message;
  };
  kernels::OpTable ops = kernels::reference_ops();
  CHECK(refusal("deepseek2", ops, {KvType::kQ8_0, KvType::kQ4_0}) ==
        "kv_type is Q8_0/Q4_0, want one type: the KV of deepseek2 is latent, its V is the front of "
        "K");
  CHECK(refusal("deepseek2", ops, KvType::kQ4_0).empty());
  ops.any_kv_type = false;
  CHECK(refusal("gemma3", ops, KvType::kFp8).starts_with("KV type FP8 on reference"));
  CHECK(refusal("gemma3", ops, KvType::kQ8_0).empty());
}

TEST_CASE("drafts of a copy of the model are accepted, those of another model partly") {
  const LlamaShape shape = llama_shapes()[1];
  const RandomLlama model(shape, 3);
  const RandomLlama other(shape, 4);
  const OwnedFile target(model.file_bytes(DType::kQ8_0));
  const OwnedFile copy(model.file_bytes(DType::kQ8_0));
  // The same weights before quantization: nearly the same text.
  const OwnedFile near(model.file_bytes(DType::kF32));
  const OwnedFile foreign(other.file_bytes(DType::kQ8_0));
  const auto asked = requests(shape.vocab, 37, 24);
  const EngineConfig config = config_for(DType::kF16);
  EngineConfig drafted = config;
  drafted.speculation.enabled = true;
  drafted.speculation.lookup = false;
  drafted.speculation.fixed_width = 4;
  drafted.speculation.max_rivals = 0;  // all draft tokens can be right
  for (const NamedTable& table : all_tables()) {
    if (kReduced && table.name == "reference") continue;
    CAPTURE(table.name);
    std::vector<std::vector<std::vector<int32_t>>> want;
    for (const Request& request : asked) {
      want.push_back(EngineRun(target.file, table.ops, config).ask(request).tokens);
    }
    std::vector<uint64_t> accepted, rejected;
    for (const OwnedFile* file : {&copy, &near, &foreign}) {
      SteadyClock clock;
      auto loaded = models::load_model(file->file, table.ops, nullptr);
      REQUIRE(loaded.ok());
      const models::ModelInfo info = (*loaded)->info();
      auto draft = DraftModel::create(drafted, info, table.ops, std::move(loaded).value(), clock);
      REQUIRE(draft.ok());
      EngineRun run(target.file, table.ops, drafted, std::move(draft).value());
      for (size_t i = 0; i < asked.size(); ++i) {
        Request request = asked[i];
        request.id = i + 1;
        run.submit(request);
        run.step();
      }
      run.run_until_idle();
      for (size_t i = 0; i < asked.size(); ++i) CHECK(run.answer(i + 1).tokens == want[i]);
      const SpeculationCounts counts = run.engine().snapshot().speculation;
      accepted.push_back(counts.accepted_tokens);
      rejected.push_back(counts.drafted_tokens - counts.accepted_tokens);
    }
    CHECK(accepted[0] > 30);
    CHECK(rejected[0] == 0);
    CHECK(accepted[1] > accepted[2]);
    CHECK(rejected[2] > 0);
  }
}

TEST_CASE("any thread count gives the same tokens") {
  const RandomLlama model(llama_shapes()[0], 3);
  const OwnedFile owned(model.file_bytes(DType::kQ8_0));
  const auto asked = requests(llama_shapes()[0].vocab, 60, 30);
  for (const std::string& variant : kernels::cpu_variants()) {
    CAPTURE(variant);
    std::vector<std::vector<std::vector<int32_t>>> answers;
    for (const int32_t threads : {1, 2, 3, 5}) {
      auto ops = kernels::cpu_ops({.num_threads = threads, .variant = variant});
      REQUIRE(ops.ok());
      EngineRun run(owned.file, *ops, config_for(DType::kF16));
      std::vector<std::vector<int32_t>> all;
      for (size_t i = 0; i < asked.size(); ++i) {
        Request request = asked[i];
        request.id = i + 1;
        if (i == 1) ops->set_num_threads(ops->state.get(), 1);  // in the middle of a run
        for (const auto& tokens : run.ask(request).tokens) all.push_back(tokens);
      }
      answers.push_back(std::move(all));
    }
    for (const auto& tokens : answers) CHECK(tokens == answers.front());
  }
}

TEST_CASE("weights that are packed late, or stay in their file, give the same tokens") {
  const RandomLlama model(llama_shapes()[0], 3);
  const std::vector<std::byte> bytes = model.file_bytes(DType::kQ8_0);
  const tests::TempDir folder;
  const auto path = folder.path() / "model.gguf";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const auto asked = requests(llama_shapes()[0].vocab, 60, 30);
  for (const std::string& variant : kernels::cpu_variants()) {
    CAPTURE(variant);
    const kernels::CpuOptions options{.num_threads = 2, .variant = variant};
    std::vector<std::vector<int32_t>> answers;  // of each way, sample after sample
    // At once; late, and never packed; late, and packed after the first step; half of them at once.
    for (const int way : {0, 1, 2, 3}) {
      CAPTURE(way);
      const bool lates = way == 1 || way == 2;
      const auto packing = lates ? kernels::Packing::kLate : kernels::Packing::kAtOnce;
      kernels::CpuOptions its = options;
      if (way == 3) its.most_packed_bytes = bytes.size() / 2;
      const kernels::OpTable ops = kernels::cpu_ops(its, packing).value();
      auto file = models::GgufFile::open(path);
      REQUIRE(file.ok());
      EngineRun run(*file, ops, config_for(DType::kF16));
      file = Error{};  // late packing keeps what it needs
      const bool late = lates && ops.pack_more(ops.state.get(), 0) > 0;
      if (lates && !late) HEARTH_SKIP("a file system without a page cache to ask");
      if (way == 2) run.engine().warm_up(false);
      for (size_t i = 0; i < asked.size(); ++i) {
        Request request = asked[i];
        request.id = i + 1;
        run.submit(request);
      }
      if (way == 2) {
        run.post(Drain{});
        run.engine().run();
        CHECK(ops.pack_more(ops.state.get(), 0) == 0);
      }
      run.run_until_idle();
      if (way == 1) CHECK(ops.pack_more(ops.state.get(), 0) > 0);
      for (size_t i = 0; i < asked.size(); ++i) {
        CHECK(run.answer(i + 1).ended);
        for (const auto& tokens : run.answer(i + 1).tokens) answers.push_back(tokens);
      }
    }
    const size_t samples = answers.size() / 4;
    for (size_t i = 0; i < samples; ++i) {
      CHECK(answers[i].size() == 30);
      CHECK(answers[samples + i] == answers[i]);
      CHECK(answers[2 * samples + i] == answers[i]);
      CHECK(answers[3 * samples + i] == answers[i]);
    }
  }
}

TEST_CASE(
    "a file that changes while weights are read from it ends requests and never changes their "
    "text") {
  bool stays = false;
  SUBCASE("packed late") {}
  SUBCASE("never packed") { stays = true; }
  const RandomLlama model(llama_shapes()[0], 3);
  const std::vector<std::byte> bytes = model.file_bytes(DType::kQ8_0);
  const tests::TempDir folder;
  const auto path = folder.path() / "model.gguf";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const auto asked = requests(llama_shapes()[0].vocab, 60, 30);
  const kernels::CpuOptions two_threads{.num_threads = 2, .variant = ""};
  kernels::CpuOptions options = two_threads;
  if (stays) options.most_packed_bytes = 0;
  const auto packing = stays ? kernels::Packing::kAtOnce : kernels::Packing::kLate;
  const kernels::OpTable ops = kernels::cpu_ops(options, packing).value();
  auto file = models::GgufFile::open(path);
  REQUIRE(file.ok());
  EngineRun whole(*file, kernels::cpu_ops(two_threads).value(), config_for(DType::kF16));
  EngineRun run(*file, ops, config_for(DType::kF16));
  if (!stays && ops.pack_more(ops.state.get(), 0) == 0) {
    HEARTH_SKIP("a file system without a page cache");
  }
  const auto identity = models::FileIdentity::of(path).value();
  run.engine().set_weights_check([&]() -> Result<void> {
    if (models::FileIdentity::of(path).value() == identity) return {};
    return Error::corrupt("the file changed");
  });
  run.engine().warm_up(false);
  for (size_t i = 0; i < asked.size(); ++i) {
    Request request = asked[i];
    request.id = i + 1;
    run.submit(request);
    whole.submit(request);
  }
  whole.run_until_idle();
  for (int step = 0; step < 6; ++step) REQUIRE(run.step());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the file system's clock ticks
  {
    std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
    const std::vector<char> zeros(bytes.size() / 2);
    out.seekp(static_cast<std::streamoff>(bytes.size() / 2));
    out.write(zeros.data(), static_cast<std::streamsize>(zeros.size()));
  }
  run.run_until_idle();
  bool answered_some = false;
  for (size_t i = 0; i < asked.size(); ++i) {
    CAPTURE(i);
    const EngineAnswer& cut = run.answer(i + 1);
    CHECK(cut.failed);
    for (size_t s = 0; s < cut.tokens.size(); ++s) {
      const auto& right = whole.answer(i + 1).tokens[s];
      REQUIRE(cut.tokens[s].size() < right.size());
      CHECK(std::equal(cut.tokens[s].begin(), cut.tokens[s].end(), right.begin()));
      answered_some = answered_some || !cut.tokens[s].empty();
    }
  }
  CHECK(answered_some);
  Request late = asked[0];
  late.id = 100;
  run.submit(late);
  run.run_until_idle();
  CHECK(run.answer(100).failed);
}

TEST_CASE("stories260K through the engine gives the recorded text") {
  const auto path = tests::test_data(kStories);
  const auto recorded = tests::test_data("models/stories260K-reference.json");
  if (path.empty() || recorded.empty()) HEARTH_SKIP("no HEARTH_TEST_DATA/models/stories260K-*");
  const auto file = models::GgufFile::open(path);
  REQUIRE(file.ok());
  const std::vector<GreedyCase> cases = read_greedy_cases(recorded);
  REQUIRE(cases.size() == 3);
  EngineConfig config = config_for(DType::kF32);
  config.context_length = 0;
  for (const NamedTable& table : all_tables()) {
    CAPTURE(table.name);
    EngineRun run(*file, table.ops, config);
    for (size_t i = 0; i < cases.size(); ++i) {
      Request request;
      request.id = i + 1;
      request.prompt = cases[i].prompt_ids;
      request.max_tokens = static_cast<int32_t>(cases[i].ids.size());
      request.sampling.temperature = 0;
      run.submit(request);
    }
    run.run_until_idle();
    for (size_t i = 0; i < cases.size(); ++i) {
      CHECK(run.answer(i + 1).tokens.front() == cases[i].ids);
    }
  }
}

TEST_CASE("1000 real requests with random cancels leave no block allocated") {
  const LlamaShape shape = llama_shapes()[0];
  const RandomLlama model(shape, 3);
  const OwnedFile owned(model.file_bytes(DType::kQ8_0));
  auto ops = kernels::cpu_ops({.num_threads = 1, .variant = ""});
  REQUIRE(ops.ok());
  EngineConfig config = config_for(DType::kF16);
  config.kv_bytes = 200'000;  // so that blocks are short
  EngineRun run(owned.file, *ops, config);
  std::mt19937 random(1);
  const int32_t total = 1000;
  RequestId next = 1;
  int cancelled = 0;
  bool computed = true;
  while (computed || next <= total) {
    if (next <= total && random() % 2 == 0) {
      Request request;
      request.id = next++;
      request.owner = "uid:" + std::to_string(random() % 3);
      request.prompt = random_tokens(static_cast<int32_t>(1 + random() % 60), shape.vocab,
                                     static_cast<uint32_t>(random() % 5));
      request.max_tokens = static_cast<int32_t>(1 + random() % 12);
      request.n = random() % 6 == 0 ? 3 : 1;
      request.priority = static_cast<Priority>(random() % 3);
      request.sampling.seed = request.id;
      run.submit(request);
      if (random() % 4 == 0) {
        const RequestId id = request.id - std::min<RequestId>(request.id - 1, random() % 3);
        cancelled += run.answer(id).ended ? 0 : 1;
        run.post(CancelRequest{id});
      }
    }
    computed = run.step();
  }
  for (RequestId id = 1; id <= total; ++id) {
    REQUIRE(run.answer(id).ended);
    CHECK_FALSE(run.answer(id).failed);
  }
  CHECK(cancelled > 10);
  const EngineSnapshot snapshot = run.engine().snapshot();
  CHECK(snapshot.kv_blocks_used == std::vector<int32_t>{0});
  CHECK(snapshot.kv_blocks_cached.front() > 0);
  CHECK(snapshot.num_running + snapshot.num_waiting == 0);
}

}  // namespace
}  // namespace hearth::golden
