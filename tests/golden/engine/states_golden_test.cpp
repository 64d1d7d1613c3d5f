// Every family with a state: drafts of any width, any share of them right, give the tokens of plain
// decoding: ==.

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/speculation/replay_proposer.h"
#include "tests/golden/engine/engine_run.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using namespace engine;

constexpr int32_t kTinyVocab = 128;

EngineConfig drafting_config(int32_t width) {
  EngineConfig config;
  config.kv_bytes = 8 << 20;
  config.context_length = 128;
  config.scheduler.max_seqs = 2;
  config.speculation.enabled = width > 0;
  config.speculation.fixed_width = width;
  return config;
}

TEST_CASE("every family with a state: drafts of any width and acceptance give the same tokens") {
  const NamedTable table = all_tables().back();
  Request request;
  request.id = 1;
  request.owner = request.cache_salt = "uid:1000";
  request.prompt = random_tokens(21, kTinyVocab, 4);
  request.max_tokens = 40;
  int families = 0;
  for (const std::string& name : family_names()) {
    CAPTURE(name);
    const OwnedFile owned(read_family(name).file_bytes(kernels::DType::kQ8_0));
    EngineRun plain(owned.file, table.ops, drafting_config(0));
    if (plain.engine().kv_layout().state_group < 0) continue;
    ++families;
    const auto want = plain.ask(request).tokens;
    const int32_t step = tests::kSanitized ? 7 : 1;
    for (int32_t width = 1; width <= 8; width += step) {
      for (const double acceptance : {0.0, 0.4, 0.8, 1.0}) {
        CAPTURE(width);
        CAPTURE(acceptance);
        auto proposer = std::make_unique<ReplayProposer>(
            ReplayProposer::random_pattern(acceptance, 97, static_cast<uint64_t>(width)),
            kTinyVocab);
        proposer->know(1, 0, want.front());
        EngineRun run(owned.file, table.ops, drafting_config(width), std::move(proposer));
        CHECK(run.ask(request).tokens == want);
        const SpeculationCounts counts = run.engine().snapshot().speculation;
        CHECK(counts.drafted_tokens > 0);
        if (acceptance == 0) CHECK(counts.accepted_tokens == 0);
        if (acceptance == 1) CHECK(counts.accepted_tokens == counts.drafted_tokens);
      }
    }
  }
  CHECK(families >= 17);
}

}  // namespace
}  // namespace hearth::golden
