// Models with a state: several samples of one prompt, and forks of a running request at any
// position, give the tokens of a request of their own: ==.

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/golden/engine/engine_run.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using namespace engine;

constexpr RequestId kParent = 1;
constexpr int32_t kPromptTokens = 37;

EngineConfig config_with(bool speculation) {
  EngineConfig config;
  config.kv_bytes = 8 << 20;
  config.context_length = 256;
  config.scheduler.max_seqs = 16;
  config.speculation.enabled = speculation;
  return config;
}

Request parent_request() {
  Request request;
  request.id = kParent;
  request.owner = request.cache_salt = "uid:1000";
  request.prompt = random_tokens(kPromptTokens, 128, 5);
  request.max_tokens = 60;
  request.n = 2;
  request.sampling.temperature = 0.9f;
  request.sampling.seed = 3;
  return request;
}

/// A request whose prompt is that of `parent` and the first `taken` tokens of its sample.
Request fork_of(const Request& parent, const EngineAnswer& answer, RequestId id, int32_t sample,
                int32_t taken) {
  const std::vector<int32_t>& tokens = answer.tokens[static_cast<size_t>(sample)];
  Request request = parent;
  request.id = id;
  request.n = 1 + taken % 3;
  request.max_tokens = 20;
  request.sampling.seed = 100 + id;
  request.prompt.insert(request.prompt.end(), tokens.begin(), tokens.begin() + taken);
  request.fork_of = parent.id;
  request.fork_sample = sample;
  return request;
}

size_t shortest(const EngineAnswer& answer) {
  size_t least = SIZE_MAX;
  for (const auto& tokens : answer.tokens) least = std::min(least, tokens.size());
  return least;
}

/// Alone, nothing cached and nothing drafted.
std::vector<std::vector<int32_t>> alone(const models::GgufFile& file, const kernels::OpTable& ops,
                                        Request request) {
  EngineConfig config = config_with(false);
  config.prefix_cache = false;
  request.fork_of = 0;
  return EngineRun(file, ops, config).ask(request).tokens;
}

void check_forks(const models::GgufFile& file, const kernels::OpTable& ops, bool speculation) {
  CAPTURE(speculation);
  EngineRun run(file, ops, config_with(speculation));
  std::vector<Request> requests = {parent_request()};
  run.submit(requests.front());
  while (shortest(run.answer(kParent)) < 45) REQUIRE(run.step());
  // Inside blocks of 16 tokens and at their borders; of the newest tokens, too.
  for (const int32_t taken : {0, 1, 10, 11, 12, 26, 27, 28, 44}) {
    const auto id = static_cast<RequestId>(requests.size() + 1);
    requests.push_back(fork_of(requests.front(), run.answer(kParent), id, taken % 2, taken));
    run.submit(requests.back());
    run.step();
  }
  // A fork of a fork.
  const Request first = requests[1];
  while (shortest(run.answer(first.id)) < 12) REQUIRE(run.step());
  const auto last = static_cast<RequestId>(requests.size() + 1);
  requests.push_back(fork_of(first, run.answer(first.id), last, 0, 12));
  run.submit(requests.back());
  run.run_until_idle();
  for (const Request& request : requests) {
    CAPTURE(request.id);
    const EngineAnswer& answer = run.answer(request.id);
    REQUIRE(answer.ended);
    REQUIRE_FALSE(answer.failed);
    CHECK(answer.tokens == alone(file, ops, request));
    if (request.id == kParent) continue;
    // A snapshot at a border of the parent's text was found; the rest was computed.
    CHECK(answer.cached_tokens >= kPromptTokens / 16 * 16);
  }
}

TEST_CASE("models with a state: samples and forks give the tokens they give alone") {
  const std::vector<std::string> names =
      tests::full_counts() ? family_names() : std::vector<std::string>{"qwen35", "mamba"};
  for (const std::string& name : names) {
    CAPTURE(name);
    const OwnedFile owned(read_family(name).file_bytes(kernels::DType::kQ8_0));
    const bool has_state = EngineRun(owned.file, all_tables().back().ops, config_with(false))
                               .engine()
                               .kv_layout()
                               .state_group >= 0;
    if (!has_state) continue;
    for (const NamedTable& table : all_tables()) {
      if (table.name == "reference" && !tests::full_counts()) continue;
      CAPTURE(table.name);
      for (const bool speculation : {false, true}) {
        check_forks(owned.file, table.ops, speculation);
      }
    }
  }
}

}  // namespace
}  // namespace hearth::golden
