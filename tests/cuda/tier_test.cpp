// KV that leaves the device and returns: the engine with a pool for little more than one request,
// and host memory as a tier. The tokens equal those of an engine that computes everything again,
// whatever is copied during its steps.

#include <doctest/doctest.h>

#include <map>

#include "engine/engine.h"
#include "engine/store/ram_store.h"
#include "engine/store/store_thread.h"
#include "models/model.h"
#include "tests/cuda/rig.h"
#include "tests/golden/random_llama.h"

namespace hearth::tests {

using namespace engine;  // NOLINT
using namespace golden;  // NOLINT

namespace {

const LlamaShape kShape = {.name = "small", .layers = 1, .kv_heads = 2};

struct Answer {
  std::vector<int32_t> tokens;
  int32_t cached = 0;
  int32_t restored = 0;
};

/// What is evicted, and what is computed while the rest is loaded, depends on step times: on our
/// own clock a prompt token takes this long, far longer than loading it.
constexpr int64_t kTokenUs = 10'000;
FakeClock* ticking = nullptr;
void (*real_embed)(void*, const kernels::EmbedArgs&) = nullptr;

OpTable timed(OpTable ops, FakeClock* clock) {
  ticking = clock;
  real_embed = ops.embed;
  ops.embed = [](void* state, const kernels::EmbedArgs& args) {
    ticking->advance_us(kTokenUs * args.batch->num_tokens);
    real_embed(state, args);
  };
  return ops;
}

/// An engine and a store that runs after each step. One at a time.
class Tiered {
 public:
  Tiered(const OpTable& device, RestoreOverlap overlap, bool with_store)
      : file_(RandomLlama(kShape, 1).file_bytes(DType::kF16)), commands_(1 << 12) {
    const OpTable ops = timed(device, &clock_);
    EngineConfig config;
    config.context_length = 96;
    config.kv_bytes = 7 * kernels::kv_layer_bytes(DType::kF16, 16, kernels::KvShape::even(2, 16));
    config.scheduler.max_seqs = 2;
    config.scheduler.max_step_tokens = 16;
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
    clock_.advance_us(1000);
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
  FakeClock clock_;
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

/// Prompts that evict each other from the pool, one after another and two at a time.
std::vector<std::vector<int32_t>> serve(Tiered& run, int32_t* restored) {
  std::vector<std::vector<int32_t>> tokens;
  RequestId id = 1;
  *restored = 0;
  const auto keep = [&](const Answer& answer) {
    tokens.push_back(answer.tokens);
    *restored += answer.restored;
  };
  for (const uint32_t seed : {1u, 2u, 1u}) {
    keep(run.ask(request(id++, seed, 80 + static_cast<int32_t>(seed), 2)));
  }
  // One is restored, or restoring, while the other's steps write into blocks that were freed.
  run.submit(request(id, 2, 50, 4));
  run.step();
  run.submit(request(id + 1, 3, 20, 6));
  run.run_until_idle();
  keep(run.answer(id));
  keep(run.answer(id + 1));
  return tokens;
}

}  // namespace

TEST_CASE("tiers: KV that moved to host memory and back gives the same tokens") {
  HEARTH_CUDA_TABLE(ops);
  int32_t restored = 0;
  std::vector<std::vector<int32_t>> want;
  {
    Tiered alone(ops, RestoreOverlap::kNever, false);
    want = serve(alone, &restored);
  }
  CHECK(restored == 0);
  for (const RestoreOverlap overlap : {RestoreOverlap::kNever, RestoreOverlap::kAlways}) {
    CAPTURE(static_cast<int>(overlap));
    Tiered run(ops, overlap, true);
    CHECK(serve(run, &restored) == want);
    CHECK(restored >= 16);
  }
}

TEST_CASE("tiers: the same without page-locked memory, and without copies during steps") {
  HEARTH_CUDA_TABLE(ops);
  OpTable refusing = ops;
  refusing.allocate_host = [](void*, size_t) -> void* { return nullptr; };
  OpTable none = ops;
  none.side_copies = nullptr;
  std::vector<std::vector<std::vector<int32_t>>> served;
  for (const OpTable* table : {&refusing, &none}) {
    int32_t restored = 0;
    Tiered run(*table, RestoreOverlap::kNever, true);
    served.push_back(serve(run, &restored));
    CHECK(restored >= 16);
  }
  CHECK(served[0] == served[1]);
}

}  // namespace hearth::tests
