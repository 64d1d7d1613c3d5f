// Requests with adapters: the text of each is == to its own alone, whatever else runs, is cached,
// drafted or preempted; prefixes are shared only under the same adapters; adapters come and go.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/speculation/draft_model.h"
#include "tests/golden/engine/engine_run.h"
#include "tests/golden/random_adapter.h"
#include "tests/golden/random_heads.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using namespace engine;
using kernels::DType;

EngineConfig adapter_config(bool speculation) {
  EngineConfig config;
  config.kv_bytes = 4 << 20;
  config.context_length = 256;
  config.scheduler.max_seqs = 16;
  config.speculation.enabled = speculation;
  return config;
}

class ParsedAdapter final : public AdapterFile {
 public:
  ParsedAdapter(std::vector<std::byte> bytes, std::string fingerprint) : owned_(std::move(bytes)) {
    owned_.file.set_fingerprint(std::move(fingerprint));
  }
  const models::GgufFile& file() const override { return owned_.file; }
  Result<void> check() override {
    if (changed) return Error::corrupt("changed");
    return {};
  }
  bool changed = false;

 private:
  OwnedFile owned_;
};

/// A model and adapters for it, each with the fingerprint of its name.
class Rig {
 public:
  explicit Rig(DType type = DType::kQ8_0) : model_(llama_shapes().front(), 3) {
    model_file_ = std::make_unique<OwnedFile>(model_.file_bytes(type));
    const std::vector<AdapterShape> shapes = adapter_shapes();
    for (size_t i = 0; i < shapes.size(); ++i) {
      RandomAdapter adapter(shapes[i], model_, static_cast<uint32_t>(10 + i));
      files_.push_back(std::make_shared<ParsedAdapter>(adapter.file_bytes(type), shapes[i].name));
    }
  }

  const models::GgufFile& model() const { return model_file_->file; }
  UsedAdapter adapter(size_t i, float scale = 1) const {
    return {"lora-" + std::to_string(i), files_.at(i), scale};
  }
  Request request(RequestId id, std::vector<UsedAdapter> adapters, uint32_t prompt = 5) const {
    Request out;
    out.id = id;
    out.owner = out.cache_salt = "uid:1000";
    out.prompt = random_tokens(37, llama_shapes().front().vocab, prompt);
    out.max_tokens = 40;
    out.sampling.temperature = 0.9f;
    out.sampling.seed = 7;
    out.adapters = std::move(adapters);
    return out;
  }
  /// Alone, nothing cached and nothing drafted.
  std::vector<std::vector<int32_t>> alone(const kernels::OpTable& ops, Request request) const {
    EngineConfig config = adapter_config(false);
    config.prefix_cache = false;
    return EngineRun(model(), ops, config).ask(request).tokens;
  }

 private:
  RandomLlama model_;
  std::unique_ptr<OwnedFile> model_file_;
  std::vector<std::shared_ptr<ParsedAdapter>> files_;
};

/// Tables on which engines are quick.
std::vector<NamedTable> engine_tables() {
  std::vector<NamedTable> tables = all_tables();
  std::erase_if(tables, [](const NamedTable& table) {
    return table.name == "reference" && !tests::full_counts();
  });
  if (!tests::full_counts()) tables.erase(tables.begin(), tables.end() - 1);
  return tables;
}

TEST_CASE("adapters: the text of each request is that of the request alone") {
  const Rig rig;
  for (const NamedTable& table : engine_tables()) {
    std::vector<Request> requests;
    for (size_t i = 0; i < 4; ++i) {
      requests.push_back(rig.request(2 * i + 1, {rig.adapter(i)}));
      requests.push_back(rig.request(2 * i + 2, {rig.adapter(3 - i, 0.5f)}, 6));
    }
    requests.push_back(rig.request(20, {}));
    requests.push_back(rig.request(21, {rig.adapter(0), rig.adapter(3, -1)}));
    requests.push_back(rig.request(22, {rig.adapter(1)}));
    requests.back().n = 3;
    std::map<RequestId, std::vector<std::vector<int32_t>>> want;
    for (const Request& request : requests) {
      want[request.id] = rig.alone(table.ops, request);
    }
    CHECK(want[1] != want[20]);
    CHECK(want[1] != want[3]);
    CHECK(want[21] != want[1]);
    for (const bool speculation : {false, true}) {
      INFO(table.name << ", speculation " << speculation);
      EngineRun run(rig.model(), table.ops, adapter_config(speculation));
      // Some arrive while others decode.
      for (const Request& request : requests) {
        run.submit(request);
        if (request.id % 3 == 0) run.step();
      }
      run.run_until_idle();
      for (const Request& request : requests) {
        INFO("request " << request.id);
        CHECK(run.answer(request.id).tokens == want[request.id]);
      }
    }
  }
}

TEST_CASE("adapters: a draft model and heads draft without them, and the text stays") {
  const Rig rig;
  const kernels::OpTable ops = all_tables().back().ops;
  const HeadsShape heads_shape = heads_shapes().front();
  const OwnedFile heads(
      RandomHeads(heads_shape, llama_shapes().front(), 6).file_bytes(DType::kF32));
  EngineConfig config = adapter_config(true);
  config.speculation.lookup = false;
  config.speculation.fixed_width = 3;
  for (const bool by_heads : {false, true}) {
    CAPTURE(by_heads);
    std::unique_ptr<Proposer> proposer;
    SteadyClock clock;
    models::LoadOptions options;
    if (by_heads) {
      options.heads = &heads.file;
    } else {
      auto model = models::load_model(rig.model(), ops, nullptr);
      REQUIRE(model.ok());
      const models::ModelInfo info = (*model)->info();
      auto draft = DraftModel::create(config, info, ops, std::move(model).value(), clock);
      REQUIRE(draft.ok());
      proposer = std::move(draft).value();
    }
    EngineRun run(rig.model(), ops, config, std::move(proposer), options);
    std::vector<Request> requests = {rig.request(1, {rig.adapter(0)}), rig.request(2, {}),
                                     rig.request(3, {rig.adapter(3)}, 6)};
    for (const Request& request : requests) run.submit(request);
    run.run_until_idle();
    for (const Request& request : requests) {
      CHECK(run.answer(request.id).tokens == rig.alone(ops, request));
    }
    CHECK(run.engine().snapshot().speculation.drafted_tokens > 10);
  }
}

TEST_CASE("adapters: a prefix is used again only under the same adapters") {
  const Rig rig;
  const kernels::OpTable ops = all_tables().back().ops;
  EngineRun run(rig.model(), ops, adapter_config(true));
  RequestId id = 0;
  const auto cached = [&](std::vector<UsedAdapter> adapters) {
    const Request request = rig.request(++id, std::move(adapters));
    const EngineAnswer answer = run.ask(request);
    CHECK(answer.tokens == rig.alone(ops, request));
    return answer.cached_tokens;
  };
  CHECK(cached({}) == 0);
  CHECK(cached({}) == 32);
  CHECK(cached({rig.adapter(0)}) == 0);
  CHECK(cached({rig.adapter(0)}) == 32);
  CHECK(cached({rig.adapter(0, 0.5f)}) == 0);
  CHECK(cached({rig.adapter(1)}) == 0);
  CHECK(cached({rig.adapter(0), rig.adapter(1)}) == 0);
  CHECK(cached({rig.adapter(0), rig.adapter(1)}) == 32);
  CHECK(cached({rig.adapter(1), rig.adapter(0)}) == 0);
  // One that adds nothing is none.
  CHECK(cached({rig.adapter(2, 0)}) == 32);
}

TEST_CASE("adapters: preempted and resumed requests keep theirs") {
  const Rig rig;
  const kernels::OpTable ops = all_tables().back().ops;
  EngineConfig config = adapter_config(true);
  config.kv_bytes = 64 << 10;
  EngineRun run(rig.model(), ops, config);
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 6; ++id) {
    requests.push_back(rig.request(id, {rig.adapter(id % 4)}, static_cast<uint32_t>(id)));
    run.submit(requests.back());
  }
  run.run_until_idle();
  int32_t preemptions = 0;
  for (const Request& request : requests) {
    CHECK(run.answer(request.id).tokens == rig.alone(ops, request));
    preemptions += run.answer(request.id).preemptions;
  }
  CHECK(preemptions > 0);
  // After a worker's death.
  Request resumed = rig.request(30, {rig.adapter(2)});
  const auto want = rig.alone(ops, resumed);
  resumed.resume = {{want.front().begin(), want.front().begin() + 11}};
  CHECK(run.ask(resumed).tokens == want);
}

TEST_CASE("adapters: memory is bounded, and adapters in use stay") {
  const Rig rig;
  const kernels::OpTable ops = all_tables().back().ops;
  const auto loaded = [](EngineRun& run) {
    std::map<std::string, int32_t> out;
    for (const AdapterState& each : run.engine().snapshot().adapters) {
      CHECK(each.bytes > 0);
      out[each.name] = each.num_requests;
    }
    return out;
  };
  using Loaded = std::map<std::string, int32_t>;
  EngineConfig config = adapter_config(false);
  {
    EngineRun run(rig.model(), ops, config);
    run.ask(rig.request(1, {rig.adapter(0)}));
    run.ask(rig.request(2, {rig.adapter(1)}));
    CHECK(loaded(run) == Loaded{{"lora-0", 0}, {"lora-1", 0}});
    config.adapter_bytes = 0;
    for (const AdapterState& each : run.engine().snapshot().adapters) {
      config.adapter_bytes += each.bytes;
    }
    run.submit(rig.request(3, {rig.adapter(0)}));
    run.step();
    CHECK(loaded(run) == Loaded{{"lora-0", 1}, {"lora-1", 0}});
    run.post(DropAdapters{"lora-0"});
    run.post(DropAdapters{"lora-1"});
    run.step();
    CHECK(loaded(run) == Loaded{{"lora-0", 1}});
    run.run_until_idle();
    CHECK(run.answer(3).tokens == rig.alone(ops, rig.request(3, {rig.adapter(0)})));
    run.post(DropAdapters{});
    run.step();
    CHECK(loaded(run).empty());
  }
  // Room for those two.
  EngineRun run(rig.model(), ops, config);
  run.ask(rig.request(1, {rig.adapter(0)}));
  run.ask(rig.request(2, {rig.adapter(1)}));
  run.ask(rig.request(3, {rig.adapter(0)}));
  run.submit(rig.request(4, {rig.adapter(0)}));
  run.step();
  CHECK(loaded(run) == Loaded{{"lora-0", 1}, {"lora-1", 0}});
  run.submit(rig.request(5, {rig.adapter(2)}));  // too large next to the first
  run.run_until_idle();
  CHECK(run.answer(5).failed);
  CHECK(run.answer(4).tokens == rig.alone(ops, rig.request(4, {rig.adapter(0)})));
}

TEST_CASE("adapters: a request with a wrong one fails alone") {
  const Rig rig;
  const kernels::OpTable ops = all_tables().back().ops;
  EngineRun run(rig.model(), ops, adapter_config(true));
  RandomLlama other(llama_shapes().front(), 3);
  const auto not_adapter = std::make_shared<ParsedAdapter>(other.file_bytes(DType::kF32), "model");
  run.submit(rig.request(1, {{"model", not_adapter, 1}}));
  run.submit(rig.request(2, {rig.adapter(0)}));
  run.submit(rig.request(3, {{"none", nullptr, 1}}));
  run.submit(rig.request(4, {rig.adapter(0, NAN)}));
  run.submit(rig.request(
      5, {rig.adapter(0), rig.adapter(1), rig.adapter(2), rig.adapter(3), rig.adapter(0, 2)}));
  run.run_until_idle();
  for (const RequestId id : {1, 3, 4, 5}) CHECK(run.answer(id).failed);
  const UsedAdapter damaged = rig.adapter(1);
  static_cast<ParsedAdapter&>(*damaged.source).changed = true;
  run.submit(rig.request(6, {damaged}));
  run.run_until_idle();
  CHECK(run.answer(6).failed);
  CHECK_FALSE(run.answer(2).failed);
  CHECK(run.engine().snapshot().adapters.size() == 1);
}

}  // namespace
}  // namespace hearth::golden
