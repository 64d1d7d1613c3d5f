// The bundled model gives the same text with drafts and without, by every proposer, alone and in a
// batch: 50 prompts, 500 under full counts. With heads also under penalties and stop strings.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "daemon/worker/text/sample_text.h"
#include "engine/speculation/draft_model.h"
#include "engine/speculation/replay_proposer.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/golden/engine/engine_run.h"
#include "tests/golden/greedy_reference.h"
#include "tests/golden/step_runner.h"
#include "tests/paths.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using namespace engine;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kFewPrompts = 6;
#else
constexpr size_t kFewPrompts = 50;
#endif
constexpr int32_t kTokens = 12;
constexpr size_t kTogether = 7;

const std::filesystem::path kRoot = hearth::tests::source_dir();

/// Pieces of recorded tales, one in three continued greedily, the others from a seed.
std::vector<Request> requests(size_t count) {
  std::vector<int32_t> text;
  for (const GreedyCase& c : read_greedy_cases(kRoot / "tests/golden/tales.json")) {
    text.insert(text.end(), c.prompt_ids.begin(), c.prompt_ids.end());
    text.insert(text.end(), c.ids.begin(), c.ids.end());
  }
  std::vector<Request> out;
  for (size_t i = 0; i < count; ++i) {
    const size_t size = 4 + i % 29, first = (i * 37) % (text.size() - size);
    Request request;
    request.id = i + 1;
    request.owner = "uid:1000";
    request.prompt = {1};
    request.prompt.insert(request.prompt.end(), text.begin() + static_cast<ptrdiff_t>(first),
                          text.begin() + static_cast<ptrdiff_t>(first + size));
    request.max_tokens = kTokens;
    request.stop_ids = {2};
    request.sampling.temperature = i % 3 == 0 ? 0.0f : 0.8f;
    request.sampling.seed = i;
    request.use_prefix_cache = i % 2 == 0;
    out.push_back(std::move(request));
  }
  return out;
}

EngineConfig config_for(int32_t width) {
  EngineConfig config;
  config.kv_bytes = 16 << 20;
  config.context_length = 256;
  config.scheduler.max_seqs = kTogether;
  config.speculation.enabled = width >= 0;
  config.speculation.fixed_width = std::max(width, 0);
  config.speculation.draft_kv_bytes = 4 << 20;
  return config;
}

using Texts = std::vector<std::vector<int32_t>>;

Texts ask_all(EngineRun& run, const std::vector<Request>& asked, size_t together) {
  for (size_t i = 0; i < asked.size(); ++i) {
    run.submit(asked[i]);
    if ((i + 1) % together == 0) {
      run.run_until_idle();
    } else {
      run.step();
    }
  }
  run.run_until_idle();
  Texts out;
  for (const Request& request : asked) {
    REQUIRE(run.answer(request.id).ended);
    REQUIRE_FALSE(run.answer(request.id).failed);
    out.push_back(run.answer(request.id).tokens.front());
  }
  return out;
}

TEST_CASE("the bundled model: the same text with drafts and without, by every proposer") {
  const auto path = kRoot / "models/demo/tales.gguf";
  if (!std::filesystem::exists(path)) HEARTH_SKIP("no models/demo/tales.gguf");
  const auto file = models::GgufFile::open(path);
  REQUIRE(file.ok());
  // Without its own draft the model drafts for itself, and is always right.
  const auto draft_path = kRoot / "models/demo/tales-draft.gguf";
  const bool pair = std::filesystem::exists(draft_path);
  const auto draft_file = models::GgufFile::open(pair ? draft_path : path);
  REQUIRE(draft_file.ok());
  const auto heads_file = models::GgufFile::open(kRoot / "models/demo/tales-medusa.gguf");
  REQUIRE_MESSAGE(heads_file.ok(), heads_file.error().message);
  const auto asked = requests(tests::full_counts() ? 500 : kFewPrompts);
  const NamedTable table = all_tables().back();

  EngineRun plain(*file, table.ops, config_for(-1));
  const Texts want = ask_all(plain, asked, 1);
  enum class By { kLookup, kPrediction, kDraft, kReplay, kHeads };
  for (const By by : {By::kLookup, By::kPrediction, By::kDraft, By::kReplay, By::kHeads}) {
    for (const size_t together : {size_t{1}, kTogether}) {
      CAPTURE(static_cast<int>(by));
      CAPTURE(together);
      // Alone an adaptive width, and together a fixed one.
      EngineConfig config = config_for(together == 1 ? 0 : 3);
      config.speculation.lookup = by == By::kLookup || by == By::kPrediction;
      std::vector<Request> with = asked;
      for (size_t i = 0; i < with.size() && by == By::kPrediction; ++i) {
        with[i].prediction = want[i];
        if (want[i].size() > 5) with[i].prediction[5] = 77;  // one token is another
      }
      std::unique_ptr<Proposer> proposer;
      SteadyClock clock;
      if (by == By::kDraft) {
        auto model = models::load_model(*draft_file, table.ops, nullptr);
        REQUIRE(model.ok());
        auto draft = DraftModel::create(config, plain.engine().model_info(), table.ops,
                                        std::move(model).value(), clock);
        REQUIRE(draft.ok());
        proposer = std::move(draft).value();
      } else if (by == By::kReplay) {
        auto replay = std::make_unique<ReplayProposer>(ReplayProposer::random_pattern(0.8, 4099, 3),
                                                       plain.engine().model_info().vocab_size);
        for (size_t i = 0; i < asked.size(); ++i) replay->know(asked[i].id, 0, want[i]);
        proposer = std::move(replay);
      }
      models::LoadOptions options;
      if (by == By::kHeads) options.heads = &*heads_file;
      EngineRun drafted(*file, table.ops, config, std::move(proposer), options);
      drafted.engine().warm_up();
      CHECK(ask_all(drafted, with, together) == want);
      const SpeculationCounts counts = drafted.engine().snapshot().speculation;
      if (together > 1 && by == By::kPrediction) {
        CHECK(counts.accepted_by[to_underlying(DraftedBy::kPrediction)] > 10);
        CHECK(counts.accepted_by[to_underlying(DraftedBy::kPrediction)] <
              counts.drafted_by[to_underlying(DraftedBy::kPrediction)]);
      }
      if (together > 1 && by != By::kLookup) CHECK(counts.accepted_tokens > 10);
    }
  }
}

/// A text as a client gets it, and the stop string that ended it.
struct Ended {
  std::string text, stop;
  int32_t num_tokens = 0;
  bool operator==(const Ended&) const = default;
};

/// The text of each request, which ends before its stop string; "": it has none.
std::vector<Ended> ended_texts(EngineRun& run, const models::Tokenizer& tokenizer,
                               const std::vector<Request>& asked,
                               const std::vector<std::string>& stops, size_t together) {
  std::vector<worker::SampleText> texts;
  for (const std::string& stop : stops) {
    texts.emplace_back(tokenizer, false,
                       stop.empty() ? std::vector<std::string>{} : std::vector{stop});
  }
  std::vector<size_t> read(asked.size());
  // As the worker's front door does, of all tokens of a step.
  const auto step = [&](size_t begun) {
    const bool computed = run.step();
    for (size_t i = 0; i < begun; ++i) {
      const std::vector<int32_t>& tokens = run.answer(asked[i].id).tokens.front();
      for (; read[i] < tokens.size(); ++read[i]) {
        texts[i].push(tokens[read[i]], std::nullopt);
        if (texts[i].stopped()) run.post(FinishSample{asked[i].id, 0});
      }
    }
    return computed;
  };
  for (size_t i = 0; i < asked.size(); ++i) {
    run.submit(asked[i]);
    while (step(i + 1) && (i + 1) % together == 0) {
    }
  }
  while (step(asked.size())) {
  }
  std::vector<Ended> out;
  for (size_t i = 0; i < asked.size(); ++i) {
    REQUIRE(run.answer(asked[i].id).ended);
    REQUIRE_FALSE(run.answer(asked[i].id).failed);
    const auto text = texts[i].take();
    out.push_back({(text ? text->text : "") + texts[i].finish().text, texts[i].stop(),
                   texts[i].num_tokens()});
  }
  return out;
}

TEST_CASE("the bundled model: heads give the same text under penalties, up to the stop string") {
  const auto path = kRoot / "models/demo/tales.gguf";
  if (!std::filesystem::exists(path)) HEARTH_SKIP("no models/demo/tales.gguf");
  const auto file = models::GgufFile::open(path);
  REQUIRE(file.ok());
  const auto heads = models::GgufFile::open(kRoot / "models/demo/tales-medusa.gguf");
  REQUIRE_MESSAGE(heads.ok(), heads.error().message);
  const auto tokenizer = models::load_tokenizer(*file);
  REQUIRE(tokenizer.ok());
  auto asked = requests(tests::full_counts() ? 500 : kFewPrompts);
  for (Request& request : asked) {
    request.max_tokens = 2 * kTokens;
    SamplingParams& sampling = request.sampling;
    if (request.id % 2 == 0) sampling.repetition_penalty = 1.1f;
    if (request.id % 4 < 2) sampling.presence_penalty = 0.3f;
    if (request.id % 4 == 1) sampling.frequency_penalty = 0.2f;
    if (request.id % 5 == 0) sampling.penalty_window = 8;
  }
  const NamedTable table = all_tables().back();
  std::vector<std::string> stops(asked.size());
  EngineRun plain(*file, table.ops, config_for(-1));
  const auto whole = ended_texts(plain, **tokenizer, asked, stops, 1);
  // Four bytes from anywhere in a text, so that a stop string may end inside a draft.
  for (size_t i = 0; i < asked.size(); ++i) {
    const std::string& text = whole[i].text;
    if (text.size() > 8) stops[i] = text.substr(text.size() * (i % 7) / 8, 4);
  }
  EngineRun stopped(*file, table.ops, config_for(-1));
  const auto want = ended_texts(stopped, **tokenizer, asked, stops, 1);
  CHECK(4 * std::ranges::count(want, "", &Ended::stop) < std::ssize(want));
  for (const int32_t width : {1, 4}) {
    for (const size_t together : {size_t{1}, kTogether}) {
      CAPTURE(width);
      CAPTURE(together);
      EngineConfig config = config_for(width);
      config.speculation.lookup = false;
      EngineRun run(*file, table.ops, config, nullptr, {.heads = &*heads});
      CHECK(ended_texts(run, **tokenizer, asked, stops, together) == want);
      const SpeculationCounts counts = run.engine().snapshot().speculation;
      CHECK(counts.drafted_by[to_underlying(DraftedBy::kDraftHeads)] == counts.drafted_tokens);
      CHECK(counts.accepted_tokens > asked.size());
      CHECK(counts.accepted_tokens < counts.drafted_tokens);
    }
  }
}

}  // namespace
}  // namespace hearth::golden
