// hearth-adapter-bench [SHAPE [TYPE [RANK [ROUNDS]]]]: what adapters cost when decoding, with a
// model of random weights (default 0.1B, Q4_K) and random adapters of all attention and
// feed-forward matrices (default rank 16, F16), in one process and without a socket.
//
//   one stream      with an adapter and without, in turn
//   eight streams   with four adapters, two streams each, and without; and all with the same one
//
// Medians of some rounds (default 5) of the tokens per second of all streams together, and their
// shares of the rates without adapters.
// --smoke: tiny counts, for ctest. Never judges.

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "kernels/base/check.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"
#include "models/random_model.h"
#include "tests/bench/bench_model.h"
#include "tests/temp_dir.h"

namespace hearth::bench {
namespace {

using engine::Request;
using models::ModelShape;

constexpr size_t kAdapters = 4;

struct Sizes {
  int32_t rank = 16, prompt = 32, tokens = 96, rounds = 5;
};

class RandomAdapterFile final : public engine::AdapterFile {
 public:
  RandomAdapterFile(const ModelShape& shape, int32_t rank, uint32_t seed) {
    models::GgufWriter w;
    w.set_string("general.type", "adapter");
    w.set_string("general.architecture", shape.architecture);
    w.set_string("adapter.type", "lora");
    w.set_f32("adapter.lora.alpha", static_cast<float>(2 * rank));
    std::mt19937 random(seed);
    const auto matrix = [&](const std::string& name, int32_t inputs, int32_t outputs) {
      std::normal_distribution<float> normal(0, 0.1f / std::sqrt(static_cast<float>(inputs)));
      std::vector<float> values(static_cast<size_t>(inputs) * static_cast<size_t>(outputs));
      for (float& value : values) value = normal(random);
      const uint64_t dims[] = {static_cast<uint64_t>(inputs), static_cast<uint64_t>(outputs)};
      w.add_floats(name, dims, kernels::DType::kF16, values);
    };
    const int32_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
    for (int32_t layer = 0; layer < shape.layers; ++layer) {
      const auto pair = [&](const char* part, int32_t inputs, int32_t outputs) {
        const std::string name = fmt::format("blk.{}.{}.weight", layer, part);
        matrix(name + ".lora_a", inputs, rank);
        matrix(name + ".lora_b", rank, outputs);
      };
      pair("attn_q", shape.width, q);
      pair("attn_k", shape.width, kv);
      pair("attn_v", shape.width, kv);
      pair("attn_output", q, shape.width);
      pair("ffn_gate", shape.width, shape.ffn);
      pair("ffn_up", shape.width, shape.ffn);
      pair("ffn_down", shape.ffn, shape.width);
    }
    bytes_ = w.bytes();
    file_ = models::GgufFile::parse(bytes_, fmt::format("adapter {}", seed)).value();
    file_.set_fingerprint(file_.name());
  }
  const models::GgufFile& file() const override { return file_; }

 private:
  std::vector<std::byte> bytes_;
  models::GgufFile file_;
};

class Rig {
 public:
  Rig(const ModelShape& shape, const std::string& type, const Sizes& sizes)
      : shape_(shape), sizes_(sizes) {
    const auto made = models::RandomModel::create(shape, type, 1);
    HEARTH_CHECK(made.ok(), "{}", made.error().message);
    const auto path = temp_.path() / "model.gguf";
    const auto written = models::write_random_model(*made, path, 2, {});
    HEARTH_CHECK(written.ok(), "{}", written.error().message);
    auto ops = kernels::cpu_ops({});
    HEARTH_CHECK(ops.ok(), "{}", ops.error().message);
    engine::EngineConfig config;
    config.prefix_cache = false;
    config.speculation.enabled = false;
    config.scheduler.max_seqs = 8;
    auto engine = engine::Engine::create(config, *ops, bench_model(path, *ops), clock_);
    HEARTH_CHECK(engine.ok(), "{}", engine.error().message);
    engine_ = std::move(engine).value();
    engine_->warm_up();
    for (uint32_t i = 0; i < kAdapters; ++i) {
      adapters_.push_back(std::make_shared<RandomAdapterFile>(shape, sizes.rank, i));
    }
  }

  /// Tokens per second of all streams, from the first token of the last one to begin to the first
  /// end. `adapters`: how many there are, 0 to kAdapters.
  double decode(int streams, size_t adapters) {
    for (int i = 0; i < streams; ++i) post(i, adapters);
    std::map<engine::RequestId, int32_t> tokens;
    int32_t counted = 0;
    int64_t begin_us = 0;
    for (bool ended = false; !ended;) {
      engine_->step();
      const bool all = std::cmp_equal(tokens.size(), streams);
      for (const auto& events : engine_->outbox().drain()) {
        for (const engine::EngineEvent& event : events) {
          if (const auto* token = std::get_if<engine::TokenEvent>(&event)) {
            ++tokens[token->id];
            counted += all ? 1 : 0;
          }
          ended = ended || std::holds_alternative<engine::RequestDoneEvent>(event);
          HEARTH_CHECK(!std::holds_alternative<engine::RequestFailedEvent>(event), "{}",
                       std::get<engine::RequestFailedEvent>(event).error.message);
        }
      }
      if (!all && std::cmp_equal(tokens.size(), streams)) begin_us = clock_.now_us();
    }
    const int64_t us = clock_.now_us() - begin_us;
    while (engine_->step()) {
    }
    engine_->outbox().drain();
    return 1e6 * counted / static_cast<double>(std::max<int64_t>(us, 1));
  }

  uint64_t adapter_bytes() const {
    uint64_t bytes = 0;
    for (const engine::AdapterState& each : engine_->snapshot().adapters) bytes += each.bytes;
    return bytes;
  }

 private:
  void post(int stream, size_t adapters) {
    Request request;
    request.id = next_id_++;
    request.owner = "bench";
    request.max_tokens = sizes_.tokens;
    request.sampling.temperature = 0;
    for (int32_t i = 0; i < sizes_.prompt; ++i) {
      request.prompt.push_back((i * 31 + stream * 7 + 3) % shape_.vocab);
    }
    if (adapters > 0) {
      const size_t which = static_cast<size_t>(stream) % adapters;
      request.adapters.push_back({fmt::format("adapter {}", which), adapters_[which]});
    }
    engine_->inbox().post(std::move(request));
  }

  ModelShape shape_;
  Sizes sizes_;
  SteadyClock clock_;
  tests::TempDir temp_;
  std::unique_ptr<engine::Engine> engine_;
  std::vector<std::shared_ptr<RandomAdapterFile>> adapters_;
  engine::RequestId next_id_ = 1;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(Rig& rig, const Sizes& sizes) {
  struct Case {
    const char* name;
    int streams;
    size_t adapters;
    std::vector<double> rates{};
  };
  Case cases[] = {{"one stream", 1, 0},
                  {"one stream, one adapter", 1, 1},
                  {"eight streams", 8, 0},
                  {"eight streams, one adapter", 8, 1},
                  {"eight streams, four adapters", 8, kAdapters}};
  rig.decode(8, kAdapters);  // loads them
  for (int32_t round = 0; round < sizes.rounds; ++round) {
    for (Case& each : cases) each.rates.push_back(rig.decode(each.streams, each.adapters));
  }
  fmt::print("four adapters take {:.1f} MiB\n", static_cast<double>(rig.adapter_bytes()) / 1048576);
  for (const Case& each : cases) {
    const double without = median(cases[each.streams == 1 ? 0 : 2].rates);
    fmt::print("{:<30} {:8.1f} tokens/s  {:.3f} of the rate without\n", each.name,
               median(each.rates), median(each.rates) / without);
  }
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) {
  using namespace hearth;
  const bool smoke = argc > 1 && std::string(argv[1]) == "--smoke";
  const auto word = [&](int i, const char* fallback) {
    return std::string(!smoke && argc > i ? argv[i] : fallback);
  };
  bench::Sizes sizes;
  sizes.rank = std::atoi(word(3, "16").c_str());
  sizes.rounds = std::atoi(word(4, "5").c_str());
  if (smoke) sizes = {.rank = 4, .prompt = 4, .tokens = 160, .rounds = 1};
  const auto shape = models::find_shape(word(1, smoke ? "tiny" : "0.1B"));
  if (!shape.ok() || sizes.rank < 1 || sizes.rounds < 1) {
    fmt::print(stderr, "usage: hearth-adapter-bench [SHAPE [TYPE [RANK [ROUNDS]]]]\n");
    return 2;
  }
  bench::Rig rig(*shape, word(2, "Q4_K"), sizes);
  bench::measure(rig, sizes);
  return 0;
}
