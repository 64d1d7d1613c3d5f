// hearth-speculation-bench: decoding with guesses against decoding without, in one engine in this
// process, one after the other in each round with the order changing, so that a busy machine meets
// both. The text is compared too: a difference ends the program.
//
//   --shape NAME --type T   random weights (default tiny, Q8_0), or --file FILE --prompt TEXT
//   --acceptance A          guesses come from the plain run's tokens, each right with chance A
//   --pattern 11101         or right where the pattern, repeated over positions, has a 1
//   --draft FILE            or from a draft model; without any of the three: from lookup alone
//   --width W               guesses verified per step; 0: as many as pay
//   --streams N --tokens N --rounds N
//
// --smoke: tiny counts, for ctest. Prints medians over the rounds and the ratios; never judges.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/speculation/draft_model.h"
#include "engine/speculation/replay_proposer.h"
#include "kernels/base/check.h"
#include "models/gguf/gguf_file.h"
#include "models/random_model.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::bench {
namespace {

struct Options {
  std::string file, draft, prompt = "Once upon a time", pattern;
  std::string shape = "tiny", type = "Q8_0";
  double acceptance = -1;
  int32_t width = 0, streams = 1, tokens = 256, rounds = 5, threads = 0;
  bool smoke = false;
};

template <typename T>
T must(Result<T> result) {
  HEARTH_CHECK(result.ok(), "{}", result.error().message);
  return std::move(result).value();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

class Rig {
 public:
  explicit Rig(const Options& options) : options_(options) {
    const std::filesystem::path random =
        std::filesystem::temp_directory_path() / fmt::format("hearth-spec-{}.gguf", ::getpid());
    ops_ = must(kernels::cpu_ops({.num_threads = options.threads, .variant = ""}));
    if (options.file.empty()) {
      const auto model =
          must(models::RandomModel::create(must(models::find_shape(options.shape)),
                                           must(models::parse_weight_type(options.type)), 1));
      const auto written = models::write_random_model(model, random, ops_.device.num_threads,
                                                      [](uint64_t, uint64_t) { return true; });
      HEARTH_CHECK(written.ok(), "{}", written.error().message);
    }
    const auto file = must(models::GgufFile::open(
        options.file.empty() ? random : std::filesystem::path(options.file)));
    auto model = must(models::load_model(file, ops_, nullptr));
    if (!options.file.empty()) tokenizer_ = must(models::load_tokenizer(file));
    vocab_ = model->info().vocab_size;

    engine::EngineConfig config;
    config.prefix_cache = false;
    config.scheduler.max_seqs = options.streams;
    config.context_length = std::min(model->info().context_length, 512 + options.tokens);
    config.speculation.fixed_width = options.width;
    config.speculation.lookup = options.pattern.empty() && options.acceptance < 0;
    std::unique_ptr<engine::Proposer> proposer;
    if (!options.draft.empty()) {
      const auto draft = must(models::GgufFile::open(options.draft));
      proposer = must(engine::DraftModel::create(
          config, model->info(), ops_, must(models::load_model(draft, ops_, nullptr)), clock_));
    } else if (!config.speculation.lookup) {
      std::vector<bool> pattern;
      for (const char c : options.pattern) pattern.push_back(c == '1');
      if (pattern.empty()) {
        pattern = engine::ReplayProposer::random_pattern(options.acceptance, 4099, 11);
      }
      auto replay = std::make_unique<engine::ReplayProposer>(std::move(pattern), vocab_);
      replay_ = replay.get();
      proposer = std::move(replay);
    }
    engine_ =
        must(engine::Engine::create(config, ops_, std::move(model), clock_, std::move(proposer)));
    engine_->warm_up();
    if (options.file.empty()) std::filesystem::remove(random);
  }

  std::vector<int32_t> prompt(int32_t stream) const {
    if (tokenizer_ != nullptr) return tokenizer_->encode(options_.prompt, {});
    std::vector<int32_t> out;
    for (int32_t i = 0; i < 32; ++i) {
      out.push_back(static_cast<int32_t>((int64_t{stream} * 7919 + int64_t{i} * 104'729) % vocab_));
    }
    return out;
  }

  /// Tokens per second of all streams together, from the last first token to the last of all.
  double run(bool speculate) {
    struct Stream {
      std::vector<int32_t> tokens;
      std::vector<int64_t> at_us;
    };
    std::map<engine::RequestId, Stream> streams;
    const engine::RequestId first_id = next_id_;
    for (int32_t i = 0; i < options_.streams; ++i) {
      engine::Request request;
      request.id = next_id_++;
      request.owner = "bench";
      request.prompt = prompt(i);
      request.max_tokens = options_.tokens;
      // Sampled, each stream from its own seed: random weights fall into loops otherwise.
      request.sampling.temperature = 0.8f;
      request.sampling.seed = static_cast<uint64_t>(i) + 1;
      request.speculate = speculate;
      streams[request.id];
      if (speculate && replay_ != nullptr) {
        replay_->know(request.id, 0, plain_.at(static_cast<size_t>(i)));
      }
      engine_->inbox().post(std::move(request));
    }
    while (engine_->step()) {
      const int64_t now_us = clock_.now_us();
      for (const auto& events : engine_->outbox().drain()) {
        for (const engine::EngineEvent& event : events) {
          if (const auto* token = std::get_if<engine::TokenEvent>(&event)) {
            streams[token->id].tokens.push_back(token->token);
            streams[token->id].at_us.push_back(now_us);
          } else if (const auto* failed = std::get_if<engine::RequestFailedEvent>(&event)) {
            HEARTH_CHECK(false, "{}", failed->error.message);
          }
        }
      }
    }
    int64_t begin_us = 0, end_us = 0;
    for (const auto& [id, stream] : streams) {
      begin_us = std::max(begin_us, stream.at_us.front());
      end_us = std::max(end_us, stream.at_us.back());
      const auto index = static_cast<size_t>(id - first_id);
      if (plain_.size() == index) plain_.push_back(stream.tokens);
      HEARTH_CHECK(plain_[index] == stream.tokens, "stream {} said something else", index);
    }
    double tokens = 0;
    for (const auto& [id, stream] : streams) {
      tokens += static_cast<double>(
          std::ranges::count_if(stream.at_us, [begin_us](int64_t at) { return at > begin_us; }));
    }
    return tokens / (static_cast<double>(end_us - begin_us) * 1e-6);
  }

  engine::SpeculationCounts counts() const { return engine_->snapshot().speculation; }

 private:
  const Options options_;
  SteadyClock clock_;
  kernels::OpTable ops_;
  std::unique_ptr<models::Tokenizer> tokenizer_;
  engine::ReplayProposer* replay_ = nullptr;
  std::unique_ptr<engine::Engine> engine_;
  engine::RequestId next_id_ = 1;
  int32_t vocab_ = 0;
  std::vector<std::vector<int32_t>> plain_;  ///< what each stream says
};

void measure(const Options& options) {
  Rig rig(options);
  rig.run(false);
  rig.run(true);
  std::vector<double> plain, guessed, ratios;
  for (int32_t round = 0; round < options.rounds; ++round) {
    double first = rig.run(round % 2 != 0);
    double second = rig.run(round % 2 == 0);
    if (round % 2 != 0) std::swap(first, second);
    plain.push_back(first);
    guessed.push_back(second);
    ratios.push_back(second / first);
  }
  const engine::SpeculationCounts counts = rig.counts();
  const auto share = [](uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  fmt::print(
      "{} sequences: plain {:.1f} tokens/s, with guesses {:.1f}; ratio {:.2f} ({:.2f} to {:.2f})\n",
      options.streams, median(plain), median(guessed), median(ratios),
      *std::ranges::min_element(ratios), *std::ranges::max_element(ratios));
  fmt::print("drafted {}, accepted {} ({:.0f} %), {:.2f} per verification; by place",
             counts.drafted_tokens, counts.accepted_tokens,
             100 * share(counts.accepted_tokens, counts.drafted_tokens),
             share(counts.accepted_tokens, counts.verifications));
  for (size_t i = 0; i < counts.drafted_at.size() && counts.drafted_at[i] > 0; ++i) {
    fmt::print(" {:.2f}", share(counts.accepted_at[i], counts.drafted_at[i]));
  }
  fmt::print("\n");
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("hearth-speculation-bench: decoding with guesses against decoding without");
  app.add_option("--file", options.file, "a model file");
  app.add_option("--prompt", options.prompt, "of a model file");
  app.add_option("--shape", options.shape, "random weights of this shape");
  app.add_option("--type", options.type, "of random weights");
  app.add_option("--acceptance", options.acceptance)->check(CLI::Range(0.0, 1.0));
  app.add_option("--pattern", options.pattern);
  app.add_option("--draft", options.draft, "a draft model's file");
  app.add_option("--width", options.width)->check(CLI::Range(0, 32));
  app.add_option("--streams", options.streams)->check(CLI::Range(1, 64));
  app.add_option("--tokens", options.tokens)->check(CLI::Range(2, 4096));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 100));
  app.add_option("--threads", options.threads);
  app.add_flag("--smoke", options.smoke);
  CLI11_PARSE(app, argc, argv);
  if (!options.smoke) {
    measure(options);
    return 0;
  }
  options.tokens = 16;
  options.rounds = 1;
  measure(options);
  options.acceptance = 0.8;
  options.streams = 2;
  measure(options);
  return 0;
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) { return hearth::bench::run(argc, argv); }
