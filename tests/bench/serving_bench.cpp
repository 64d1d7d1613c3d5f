// hearth-serving-bench: what streams and owners feel on this machine, in one process, with a model
// of random weights in Q8_0: of the named shape (see `hearth bench --help`), 0.1B by default.
//
//   stretch   4 streams decode while a 4000-token prompt prefills: their worst gap over their
//             plain worst gap and over the plain median
//   cancel    from posting a cancel in mid-prefill to the blocks being free
//   fairness  TTFT of an owner's request, alone and after 100 requests of another owner
//   sharing   tokens per second of 1, 4 and 16 sequences decoding together
//
//   hearth-serving-bench [--shape NAME | --smoke]
// --smoke: a tiny model and tiny counts, for ctest. Prints medians over the rounds; never judges.

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "kernels/base/check.h"
#include "models/gguf/gguf_file.h"
#include "models/random_model.h"
#include "tests/bench/tiny_shape.h"

namespace hearth::bench {
namespace {

using engine::Engine;
using engine::EngineConfig;
using engine::Request;
using engine::RequestId;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Seen {
  int64_t posted_us = 0;
  std::vector<int64_t> token_us;
  bool ended = false;
};

/// An engine stepped by this thread, and the times of its events.
class Rig {
 public:
  Rig(const std::filesystem::path& file, int32_t vocab) : vocab_(vocab) {
    auto parsed = models::GgufFile::open(file);
    HEARTH_CHECK(parsed.ok(), "{}", parsed.error().message);
    auto ops = kernels::cpu_ops({});
    HEARTH_CHECK(ops.ok(), "{}", ops.error().message);
    auto model = models::load_model(*parsed, *ops, {});
    HEARTH_CHECK(model.ok(), "{}", model.error().message);
    EngineConfig config;
    config.prefix_cache = false;  // random prompts share no prefix
    config.speculation.enabled = false;
    config.scheduler.max_seqs = 16;
    auto made = Engine::create(config, *ops, std::move(model).value(), clock_);
    HEARTH_CHECK(made.ok(), "{}", made.error().message);
    engine_ = std::move(made).value();
    engine_->warm_up();  // as a worker does before it is ready
  }

  RequestId post(const std::string& owner, int32_t prompt_tokens, int32_t max_tokens) {
    Request request;
    request.id = next_id_++;
    request.owner = owner;
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    for (int32_t i = 0; i < prompt_tokens; ++i) {
      request.prompt.push_back(static_cast<int32_t>(
          (request.id * 7919 + static_cast<uint64_t>(i) * 104729) % static_cast<uint64_t>(vocab_)));
    }
    const RequestId id = request.id;
    seen_[id].posted_us = clock_.now_us();
    engine_->inbox().post(std::move(request));
    return id;
  }
  void cancel(RequestId id) { engine_->inbox().post(engine::CancelRequest{id}); }

  bool step() {
    const bool computed = engine_->step();
    const int64_t now_us = clock_.now_us();
    for (const auto& events : engine_->outbox().drain()) {
      for (const engine::EngineEvent& event : events) {
        if (const auto* token = std::get_if<engine::TokenEvent>(&event)) {
          seen_[token->id].token_us.push_back(now_us);
        } else if (const auto* done = std::get_if<engine::RequestDoneEvent>(&event)) {
          seen_[done->id].ended = true;
        } else if (const auto* failed = std::get_if<engine::RequestFailedEvent>(&event)) {
          HEARTH_CHECK(false, "request failed: {}", failed->error.message);
        }
      }
    }
    return computed;
  }
  void finish_all() {
    while (step()) {
    }
  }
  const Seen& seen(RequestId id) { return seen_[id]; }
  int32_t blocks_used() const { return engine_->snapshot().kv_blocks_used.front(); }
  int64_t now_us() const { return clock_.now_us(); }
  double ttft_ms(RequestId id) {
    return static_cast<double>(seen_[id].token_us.front() - seen_[id].posted_us) / 1000;
  }

 private:
  SteadyClock clock_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, Seen> seen_;
  RequestId next_id_ = 1;
  int32_t vocab_;
};

void gaps_within(const std::vector<int64_t>& times, int64_t from, int64_t to,
                 std::vector<double>* out) {
  for (size_t i = 1; i < times.size(); ++i) {
    if (times[i] >= from && times[i - 1] <= to) {
      out->push_back(static_cast<double>(times[i] - times[i - 1]) / 1000);
    }
  }
}

void measure_stretch(Rig& rig, int32_t prompt_tokens, int rounds) {
  std::vector<double> over_worst, over_median, worst_ms, plain_ms, ttft_ms;
  for (int round = 0; round < rounds; ++round) {
    std::vector<RequestId> streams;
    for (int i = 0; i < 4; ++i) streams.push_back(rig.post(fmt::format("s{}", i), 32, 2000));
    while (rig.seen(streams.back()).token_us.size() < 60) rig.step();
    const int64_t begin_us = rig.now_us();
    const RequestId prompt = rig.post("long", prompt_tokens, 1);
    while (!rig.seen(prompt).ended) rig.step();
    const int64_t end_us = rig.now_us();
    for (int i = 0; i < 60; ++i) rig.step();
    std::vector<double> plain, stretched;
    for (const RequestId id : streams) {
      const std::vector<int64_t>& times = rig.seen(id).token_us;
      gaps_within(times, times.front(), begin_us - 1, &plain);
      gaps_within(times, begin_us, end_us, &stretched);
      rig.cancel(id);
    }
    rig.finish_all();
    const double worst = *std::ranges::max_element(stretched);
    over_worst.push_back(worst / *std::ranges::max_element(plain));
    over_median.push_back(worst / median(plain));
    worst_ms.push_back(worst);
    plain_ms.push_back(median(plain));
    ttft_ms.push_back(rig.ttft_ms(prompt));
  }
  fmt::print(
      "stretch   {} tokens prefill during 4 streams: worst gap {:.1f} ms, plain median {:.1f} ms, "
      "worst/plain worst {:.2f}, worst/plain median {:.2f}, prompt TTFT {:.0f} ms\n",
      prompt_tokens, median(worst_ms), median(plain_ms), median(over_worst), median(over_median),
      median(ttft_ms));
}

void measure_cancel(Rig& rig, int32_t prompt_tokens, int rounds) {
  std::vector<double> ms;
  for (int round = 0; round < rounds; ++round) {
    const RequestId id = rig.post("c", prompt_tokens, 100);
    rig.step();
    rig.step();
    HEARTH_CHECK(rig.blocks_used() > 0);
    const int64_t begin_us = rig.now_us();
    rig.cancel(id);
    // The worst case: the cancel arrives when a step has just begun.
    while (rig.blocks_used() > 0) rig.step();
    ms.push_back(static_cast<double>(rig.now_us() - begin_us) / 1000);
  }
  fmt::print(
      "cancel    blocks free after {:.2f} ms beyond the running step (which lasts at most 250 "
      "ms)\n",
      median(ms));
}

void measure_fairness(Rig& rig, int rounds, int others) {
  std::vector<double> alone, queued;
  for (int round = 0; round < rounds; ++round) {
    RequestId id = rig.post("b", 200, 8);
    rig.finish_all();
    alone.push_back(rig.ttft_ms(id));
    for (int i = 0; i < others; ++i) rig.post("a", 200, 8);
    for (int i = 0; i < 5; ++i) rig.step();
    id = rig.post("b", 200, 8);
    rig.finish_all();
    queued.push_back(rig.ttft_ms(id));
  }
  fmt::print(
      "fairness  TTFT of one request: alone {:.0f} ms, after {} requests of another owner {:.0f} "
      "ms, "
      "ratio {:.2f}\n",
      median(alone), others, median(queued), median(queued) / median(alone));
}

void measure_sharing(Rig& rig, int rounds, int32_t tokens) {
  std::map<int, std::vector<double>> rates;
  for (int round = 0; round < rounds; ++round) {
    for (const int streams : {1, 4, 16}) {
      std::vector<RequestId> ids;
      for (int i = 0; i < streams; ++i) ids.push_back(rig.post("o", 16, tokens));
      rig.finish_all();
      int64_t first = 0, last = 0;
      for (const RequestId id : ids) {
        first = std::max(first, rig.seen(id).token_us.front());
        last = std::max(last, rig.seen(id).token_us.back());
      }
      const double seconds = static_cast<double>(last - first) / 1e6;
      rates[streams].push_back(static_cast<double>(streams) * (tokens - 1) / seconds);
    }
  }
  for (auto& [streams, rate] : rates) {
    fmt::print("sharing   {:2} sequences decode together: {:.1f} tokens/s\n", streams,
               median(rate));
  }
}

int run(bool smoke, std::string_view name) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("hearth-bench-{}.gguf", ::getpid());
  const Result<models::ModelShape> shape =
      smoke ? Result<models::ModelShape>(kTinyShape) : models::find_shape(name);
  if (!shape) {
    fmt::print(stderr, "{}\n", shape.error().message);
    return 2;
  }
  const auto model = models::RandomModel::create(*shape, kernels::DType::kQ8_0, 1);
  HEARTH_CHECK(model.ok(), "{}", model.error().message);
  const auto written = models::write_random_model(*model, file, 2, nullptr);
  HEARTH_CHECK(written.ok(), "{}", written.error().message);
  const int rounds = smoke ? 1 : 5;
  {
    Rig rig(file, shape->vocab);
    measure_sharing(rig, rounds, smoke ? 8 : 128);
    measure_stretch(rig, 4000, rounds);
    measure_cancel(rig, 4000, rounds);
    measure_fairness(rig, rounds, smoke ? 10 : 100);
  }
  std::filesystem::remove(file);
  return 0;
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) {
  const std::string_view option = argc > 1 ? argv[1] : "";
  const bool smoke = argc == 2 && option == "--smoke";
  const bool shape = argc == 3 && option == "--shape";
  if (argc > 1 && !smoke && !shape) {
    std::fputs("usage: hearth-serving-bench [--shape NAME | --smoke]\n", stderr);
    return 2;
  }
  return hearth::bench::run(smoke, shape ? argv[2] : "0.1B");
}
