// KV that leaves the device and comes back: the engine over a pool for little more than one
// request, with host memory behind it. Tokens are those of an engine that computes everything anew,
// whatever travels beside its steps.

#include <doctest/doctest.h>

#include <map>

#include "engine/engine.h"
#include "engine/store/ram_store.h"
#include "engine/store/store_thread.h"
#include "models/model.h"
#include "tests/cuda/rig.h"
#include "tests/cuda/shim/shim.h"
#include "tests/golden/random_llama.h"

using namespace hearth;          // NOLINT
using namespace hearth::engine;  // NOLINT
using namespace hearth::golden;  // NOLINT
using namespace hearth::tests;   // NOLINT
using kernels::DType;
using kernels::OpTable;

namespace {

const LlamaShape kShape = {.name = "small", .layers = 2, .kv_heads = 2};

struct Answer {
  std::vector<int32_t> tokens;
  int32_t cached = 0;
  int32_t restored = 0;
};

/// An engine and a store that takes its turn after each step.
class Tiered {
 public:
  Tiered(const OpTable& ops, RestoreOverlap overlap, bool with_store)
      : file_(RandomLlama(kShape, 1).file_bytes(DType::kF16)), commands_(1 << 12) {
    EngineConfig config;
    config.context_length = 256;
    config.kv_bytes = 18 * 2 * kernels::kv_layer_bytes(DType::kF16, 16, 2, 16);
    config.scheduler.max_seqs = 3;
    config.scheduler.max_step_tokens = 48;
    config.speculation.enabled = false;
    config.always_restore = true;
    config.restore_overlap = overlap;
    auto model = models::load_model(file_.file, ops, nullptr);
    REQUIRE(model.ok());
    auto made = Engine::create(config, ops, std::move(model).value(), clock_, nullptr,
                               with_store ? &commands_ : nullptr);
    REQUIRE(made.ok());
    engine_ = std::move(made).value();
    if (!with_store) return;
    worker_ = std::make_unique<StoreWorker>(
        std::make_unique<RamStore>(engine_->kv_layout(), 16 << 20, nullptr),
        [this](StoreReply reply) { engine_->inbox().post(std::move(reply)); });
    worker_->tick();
  }

  void submit(const Request& request) {
    answers_[request.id];
    engine_->inbox().post(request);
    ++live_;
  }
  void step() {
    engine_->step();
    engine_->check_integrity();
    for (StoreCommand& command : commands_.drain()) worker_->handle(std::move(command));
    if (worker_ != nullptr) worker_->write_some();
    for (const std::vector<EngineEvent>& events : engine_->outbox().drain()) {
      for (const EngineEvent& event : events) take(event);
    }
  }
  void run_until_idle() {
    for (int i = 0; live_ > 0; ++i) {
      REQUIRE(i < 100'000);
      step();
    }
  }
  const Answer& ask(const Request& request) {
    submit(request);
    run_until_idle();
    return answers_[request.id];
  }
  const Answer& answer(RequestId id) const { return answers_.at(id); }

 private:
  void take(const EngineEvent& event) {
    if (const auto* token = std::get_if<TokenEvent>(&event)) {
      answers_[token->id].tokens.push_back(token->token);
    } else if (const auto* done = std::get_if<RequestDoneEvent>(&event)) {
      answers_[done->id].cached = done->cached_tokens;
      answers_[done->id].restored = done->cached_disk_tokens;
      --live_;
    }
    CHECK_FALSE(std::holds_alternative<RequestFailedEvent>(event));
  }

  OwnedFile file_;
  SteadyClock clock_;
  Mailbox<StoreCommand> commands_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<StoreWorker> worker_;
  std::map<RequestId, Answer> answers_;
  int live_ = 0;
};

Request request(RequestId id, uint32_t seed, int32_t prompt, int32_t output) {
  Request r;
  r.id = id;
  r.prompt = random_tokens(prompt, kShape.vocab, seed);
  r.max_tokens = output;
  r.sampling.temperature = 0;
  return r;
}

/// Prompts that push each other out of the pool, one after another and two at a time.
std::vector<std::vector<int32_t>> serve(Tiered& run, int32_t* restored) {
  std::vector<std::vector<int32_t>> tokens;
  RequestId id = 1;
  *restored = 0;
  const auto keep = [&](const Answer& answer) {
    tokens.push_back(answer.tokens);
    *restored += answer.restored;
  };
  for (const uint32_t seed : {1u, 2u, 1u, 3u, 2u, 1u}) {
    keep(run.ask(request(id++, seed, 150 + static_cast<int32_t>(seed), 5)));
  }
  for (const uint32_t seed : {2u, 3u}) {
    // One is restored, or restoring, while the other's steps write into blocks that were given up.
    run.submit(request(id, seed, 130, 12));
    run.step();
    run.submit(request(id + 1, seed + 10, 60, 20));
    run.run_until_idle();
    keep(run.answer(id));
    keep(run.answer(id + 1));
    id += 2;
  }
  return tokens;
}

}  // namespace

TEST_CASE("tiers: what went to host memory and came back serves the same tokens") {
  HEARTH_CUDA_TABLE(ops);
  int32_t restored = 0;
  Tiered alone(ops, RestoreOverlap::kNever, false);
  const auto want = serve(alone, &restored);
  CHECK(restored == 0);
  for (const RestoreOverlap overlap : {RestoreOverlap::kNever, RestoreOverlap::kAlways}) {
    CAPTURE(static_cast<int>(overlap));
    Tiered run(ops, overlap, true);
    CHECK(serve(run, &restored) == want);
    CHECK(restored > 200);  // the less, the more was computed meanwhile
  }
}

TEST_CASE("tiers: without page-locked memory, or with little of it, the same") {
  HEARTH_CUDA_TABLE(ops);
  int32_t restored = 0;
  OpTable refusing = ops;
  refusing.allocate_host = [](void*, size_t) -> void* { return nullptr; };
  Tiered run(refusing, RestoreOverlap::kNever, true);
  const auto want = serve(run, &restored);
  CHECK(restored > 400);
  OpTable none = ops;
  none.side_copies = nullptr;
  Tiered plain(none, RestoreOverlap::kNever, true);
  CHECK(serve(plain, &restored) == want);
}
