// An engine that slept computes what it did before.

#include <doctest/doctest.h>

#include <fstream>
#include <vector>

#include "tests/golden/engine/engine_run.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/skip.h"
#include "tests/temp_dir.h"

namespace hearth::golden {
namespace {

using namespace engine;
using kernels::DType;

EngineConfig small_config() {
  EngineConfig config;
  config.kv_bytes = 8 << 20;
  config.speculation.enabled = false;
  config.context_length = 256;
  config.scheduler.max_seqs = 16;
  return config;
}

std::vector<Request> seeded_requests(int32_t vocab) {
  std::vector<Request> out;
  for (uint32_t i = 0; i < 3; ++i) {
    Request request;
    request.owner = request.cache_salt = "uid:1000";
    request.prompt = random_tokens(60, vocab, i / 2 + 1);
    request.max_tokens = 30;
    request.sampling.seed = i;
    out.push_back(request);
  }
  return out;
}

TEST_CASE("an engine that slept gives the same tokens, with its cached prefixes") {
  const RandomLlama model(llama_shapes()[0], 3);
  const std::vector<std::byte> bytes = model.file_bytes(DType::kQ8_0);
  const tests::TempDir folder;
  const auto path = folder.path() / "model.gguf";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const auto asked = seeded_requests(llama_shapes()[0].vocab);
  const kernels::OpTable ops =
      kernels::cpu_ops({.num_threads = 2, .variant = ""}, kernels::Packing::kLate).value();
  auto file = models::GgufFile::open(path);
  REQUIRE(file.ok());
  EngineRun run(*file, ops, small_config());
  const uint64_t packed_later = ops.pack_more(ops.state.get(), 0);
  if (packed_later == 0) HEARTH_SKIP("a file system without a page cache to ask");
  RequestId next = 0;
  std::vector<std::vector<std::vector<int32_t>>> first;
  // Awake; asleep before a request, packed or not; asleep while a request runs, which is ignored.
  for (const int round : {0, 1, 2, 3}) {
    CAPTURE(round);
    if (round == 2) ops.pack_more(ops.state.get(), UINT64_MAX);
    if (round == 1 || round == 2) {
      run.post(Sleep{});
      run.step();
      CHECK(ops.pack_more(ops.state.get(), 0) == packed_later);
      const EngineSnapshot held = run.engine().snapshot();
      CHECK(held.kv_bytes_used > 0);  // prefixes stay
      CHECK(held.kv_backed_bytes < held.kv_reserved_bytes);
      if (round == 2) run.post(Wake{});
    }
    for (size_t i = 0; i < asked.size(); ++i) {
      Request request = asked[i];
      request.id = ++next;
      run.submit(request);
      if (round == 3 && i == 0) {
        run.step();
        ops.pack_more(ops.state.get(), UINT64_MAX);
        run.post(Sleep{});
        run.step();
        CHECK(ops.pack_more(ops.state.get(), 0) == 0);
      }
    }
    run.run_until_idle();
    for (size_t i = 0; i < asked.size(); ++i) {
      const EngineAnswer& answer = run.answer(next - asked.size() + i + 1);
      CHECK(answer.ended);
      if (round == 0) first.push_back(answer.tokens);
      CHECK(answer.tokens == first[i]);
    }
    run.engine().check_integrity();
  }
}

}  // namespace
}  // namespace hearth::golden
