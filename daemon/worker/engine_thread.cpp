#include "daemon/worker/engine_thread.h"

#include <pthread.h>

#include <utility>

#include "daemon/worker/device.h"
#include "models/gguf/fingerprint.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {
namespace {

constexpr size_t kMailboxMessages = 1 << 16;
constexpr int64_t kProgressEveryUs = 50'000;

}  // namespace

EngineThread::EngineThread(const ServeOptions& options, const Clock& clock)
    : options_(options), clock_(clock), messages_(kMailboxMessages, true), thread_([this] {
        ::pthread_setname_np(::pthread_self(), "engine");
        run();
      }) {}

EngineThread::~EngineThread() {
  // In this order, and in the other one in run(): at least one of the two sees the other's word.
  stop_ = true;
  if (engine::Engine* engine = running_) engine->inbox().post(engine::Stop{});
  thread_.join();
}

void EngineThread::run() {
  Result<EngineLoaded> loaded = load();
  if (!loaded) return messages_.post(loaded.take_error());
  messages_.post(std::move(loaded).value());
  running_ = engine_.get();
  if (!stop_) engine_->run();
}

Result<EngineLoaded> EngineThread::load() {
  const int64_t begin_us = clock_.now_us();
  HEARTH_ASSIGN_OR_RETURN(kernels::OpTable ops, open_device(options_.device));
  HEARTH_ASSIGN_OR_RETURN(models::GgufFile file, models::GgufFile::open(options_.model));
  HEARTH_ASSIGN_OR_RETURN(std::string fingerprint, models::fingerprint_file(options_.model));
  file.set_fingerprint(std::move(fingerprint));
  HEARTH_ASSIGN_OR_RETURN(tokenizer_, models::load_tokenizer(file));

  int64_t next_us = 0;
  const auto progress = [&](const models::LoadProgress& done) {
    if (clock_.now_us() < next_us) return;
    next_us = clock_.now_us() + kProgressEveryUs;
    messages_.post(done);
  };
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<models::Model> model,
                          models::load_model(file, ops, progress));
  EngineLoaded out;
  out.info = model->info();
  out.device = ops.device;
  HEARTH_ASSIGN_OR_RETURN(
      engine_, engine::Engine::create(options_.engine, std::move(ops), std::move(model), clock_));
  engine_->warm_up();
  out.tokenizer = tokenizer_.get();
  out.commands = &engine_->inbox();
  out.events = &engine_->outbox();
  out.context_length = engine_->context_length();
  out.kv_bytes = engine_->kv_bytes();
  out.load_ms = (clock_.now_us() - begin_us) / 1000;
  return out;
}

}  // namespace hearth::worker
