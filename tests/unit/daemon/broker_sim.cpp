#include "tests/unit/daemon/broker_sim.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "ipc/wire/codec.h"
#include "ipc/wire/worker_codec.h"

namespace hearth::broker {
namespace fs = std::filesystem;

// ---- FakeWorker --------------------------------------------------------------------------------

FakeWorker::FakeWorker(BrokerSim& sim, const ModelFile& file, pid_t pid, WorkerListener& listener)
    : sim_(sim), name_(file.name), model_(file.model()), listener_(listener) {
  pid_ = pid;
  started_us_ = last_sign_us_ = sim.clock.now_us();
  sim.workers.push_back(this);
}

FakeWorker::~FakeWorker() { std::erase(sim_.workers, this); }

void FakeWorker::step() {
  if (state_ == State::kEnding) return listener_.on_worker_ended(*this, "played");
  if (state_ == State::kStarting) return load_on();
  for (auto it = live_.begin(); it != live_.end() && state_ != State::kEnding;) {
    const uint64_t number = it->first;
    if (!serve(number, it->second)) {
      ++it;
      continue;
    }
    const Live ended = std::move(it->second);
    it = live_.erase(it);
    end(number, ended);
  }
  if (state_ == State::kDraining && live_.empty()) {
    said_stopped_ = true;
    state_ = State::kEnding;
  }
  if (state_ == State::kSettling && live_.empty()) {
    put_off_bytes_ = plan_->weight_bytes;
    state_ = State::kAsleep;
    listener_.on_worker_asleep(*this);
  }
}

void FakeWorker::sleep() {
  if (state_ == State::kReady) state_ = State::kSettling;
}

void FakeWorker::wake() {
  CHECK(state_ == State::kAsleep);
  state_ = State::kReady;
  ++wakes_;
}

void FakeWorker::load_on() {
  const auto own = sim_.traits.find(name_);
  const ModelTraits& traits = own != sim_.traits.end() ? own->second : sim_.traits.at(model_);
  if (steps_++ == 0) {
    // Before it holds any memory itself.
    const uint64_t free = sim_.device_bytes > 0
                              ? sim_.device_bytes - std::min(sim_.bytes_held(), sim_.device_bytes)
                              : 0;
    plan_ = ipc::WorkerPlan{traits.weight_bytes,
                            traits.kv_bytes,
                            0,
                            free,
                            traits.host_bytes,
                            traits.kv_floor_bytes.value_or(traits.kv_bytes),
                            traits.stages};
    snapshot_.kv_reserved_bytes = snapshot_.kv_bound_bytes = traits.kv_bytes;
    snapshot_.kv_backed_bytes = plan_->kv_floor_bytes;
    snapshot_.store.ram_bytes = traits.host_bytes_taken;
    return listener_.on_worker_plan(*this);
  }
  if (steps_ < traits.load_steps) {
    progress_ = ipc::WorkerLoadProgress{static_cast<uint64_t>(steps_),
                                        static_cast<uint64_t>(traits.load_steps), "reading"};
    return;
  }
  if (traits.fails) {
    failure_ = *traits.fails;
    state_ = State::kEnding;
    return;
  }
  ready_ = ipc::WorkerReady{};
  ready_->model = model_;
  ready_->device = "cpu played";
  ready_->weight_bytes = traits.weight_bytes;
  ready_->kv_bytes = traits.kv_bytes;
  ready_->load_ms = 60;
  ready_->can_sleep = traits.can_sleep;
  ready_->draft = draft;
  ready_->fingerprint = sim_.fingerprints[model_];
  state_ = State::kReady;
  listener_.on_worker_ready(*this);
}

void FakeWorker::answer(uint64_t number, const ipc::Event& event) {
  const std::string json = ipc::encode_event(event);
  ipc::Answer out;
  out.json = json;
  sim_.dispatcher.on_answer(name_, number, out, sim_.clock.now_us());
}

// True if the request has nothing more to compute.
bool FakeWorker::serve(uint64_t number, Live& live) {
  const ipc::GenerateRequest& request = live.request.generate();
  const auto wanted = static_cast<uint32_t>(request.max_tokens);
  const auto deadly = sim_.deadly.find(*request.seed);
  if (deadly != sim_.deadly.end() && live.sent >= deadly->second) {
    die();
    return false;
  }
  if (!std::exchange(live.started, true)) answer(number, ipc::StartedEvent{model_, 1, 0, 0});
  if (!live.cancelled && live.sent < wanted) {
    std::vector<int32_t> ids;
    for (uint64_t n = 1 + sim_.random() % 3; n > 0 && live.sent + ids.size() < wanted; --n) {
      ids.push_back(
          BrokerSim::token(model_, *request.seed, live.sent + static_cast<uint32_t>(ids.size())));
    }
    const ipc::DeltaHeader header{0, live.sent, static_cast<uint32_t>(ids.size()), 0};
    const std::string payload = ipc::encode_delta_payload(header, "x");
    const std::string encoded = ipc::encode_ids(ids);
    ipc::Answer out;
    out.is_delta = true;
    out.payload = payload;
    out.ids = encoded;
    sim_.dispatcher.on_answer(name_, number, out, sim_.clock.now_us());
    live.sent += static_cast<uint32_t>(ids.size());
    return false;
  }
  return true;
}

void FakeWorker::end(uint64_t number, const Live& live) {
  const std::string reason = live.cancelled ? "cancelled" : "length";
  answer(number, ipc::SampleDoneEvent{0, reason, static_cast<int32_t>(live.sent)});
  ipc::DoneEvent done;
  done.finish_reasons = {reason};
  done.model = model_;
  answer(number, done);
}

void FakeWorker::send_request(uint64_t number, std::string json) {
  if (state_ != State::kReady) return;
  Result<ipc::WorkerRequest> request = ipc::decode_worker_request(number, json);
  REQUIRE(request.ok());
  adapter_paths = request->adapter_paths;
  Live live{std::move(request).value(), 0, false, false};
  if (!live.request.resume.empty()) {
    live.sent = static_cast<uint32_t>(live.request.resume.at(0).size());
  }
  CHECK(live_.emplace(number, std::move(live)).second);
}

size_t FakeWorker::num_end_reasoning() const {
  return static_cast<size_t>(std::ranges::count_if(
      live_, [](const auto& live) { return live.second.request.end_reasoning; }));
}

void FakeWorker::send_end_reasoning(uint64_t number) {
  if (const auto it = live_.find(number); it != live_.end())
    it->second.request.end_reasoning = true;
}

void FakeWorker::fill_pools(uint64_t wanted) {
  kv_wanted_ = wanted;
  uint64_t& backed = snapshot_.kv_backed_bytes;
  backed = std::max(backed, std::min(kv_wanted_, snapshot_.kv_bound_bytes));
  snapshot_.kv_short = snapshot_.kv_stalled = backed < kv_wanted_;
  if (snapshot_.kv_short) listener_.on_worker_short(*this);
}

// Without live requests all that it holds are cached prefixes, which are evicted.
void FakeWorker::send_drop_adapter(const std::string& name) {
  std::erase_if(snapshot_.adapters, [&](const auto& each) { return each.name == name; });
}

void FakeWorker::send_kv_bound(uint64_t bytes) {
  if (late_) {
    late_bound_ = bytes;
    return;
  }
  snapshot_.kv_bound_bytes = bytes;
  if (live_.empty()) {
    kv_wanted_ = std::min(kv_wanted_, bytes);
    snapshot_.kv_backed_bytes = std::min(snapshot_.kv_backed_bytes, bytes);
  }
  uint64_t& backed = snapshot_.kv_backed_bytes;
  backed = std::max(backed, std::min(kv_wanted_, bytes));
  snapshot_.kv_short = snapshot_.kv_stalled = backed < kv_wanted_;
}

void FakeWorker::catch_up() {
  late_ = false;
  if (late_bound_) send_kv_bound(*std::exchange(late_bound_, std::nullopt));
}

void FakeWorker::send_cancel(uint64_t number) {
  if (const auto it = live_.find(number); it != live_.end()) it->second.cancelled = true;
}

void FakeWorker::drain() {
  if (state_ == State::kStarting) return stop();
  if (state_ != State::kEnding) state_ = State::kDraining;
}

void FakeWorker::stop() {
  said_stopped_ = true;
  state_ = State::kEnding;
}

void FakeWorker::kill(const std::string&) { state_ = State::kEnding; }

// ---- BrokerSim ---------------------------------------------------------------------------------

const Error* SimAnswer::error() const {
  const auto* event = as<ipc::ErrorEvent>();
  return event == nullptr ? nullptr : &event->error;
}

fs::path BrokerSim::make_models() {
  for (const auto& [name, model] : traits) std::ofstream(dir_.path() / (name + ".gguf")) << 1;
  return dir_.path();
}

BrokerSim::BrokerSim(std::map<std::string, ModelTraits> given, Config settings, uint64_t seed)
    : random(seed),
      config(std::move(settings)),
      traits(std::move(given)),
      models({make_models()}, config.roles),
      admission(config.limits),
      output(static_cast<size_t>(config.limits.output_buffer_bytes),
             [this](const PeerId& peer, const OutgoingView& outgoing) {
               return receive(peer, outgoing);
             }),
      residency(clock, config,
                MemoryBudget(static_cast<uint64_t>(config.residency.memory_bytes),
                             [this] { return host_free_bytes; }),
                [this](const ModelFile& file,
                       WorkerListener& listener) -> Result<std::unique_ptr<Worker>> {
                  auto worker = std::make_unique<FakeWorker>(
                      *this, file, static_cast<pid_t>(++starts), listener);
                  if (file.draft != "auto") worker->draft = fs::path(file.draft).stem();
                  return std::unique_ptr<Worker>(std::move(worker));
                }),
      dispatcher(clock, admission, models, residency, output),
      verbs(clock, models, residency, dispatcher) {
  residency.add_listener(dispatcher);
  residency.add_listener(verbs);
  clock.advance_us(1'000'000);
}

ipc::SendOutcome BrokerSim::receive(const PeerId& peer, const OutgoingView& outgoing) {
  if (gone.contains(peer)) return ipc::SendOutcome::kUnreachable;
  SimAnswer& to = answers[{peer, std::string(outgoing.request_id)}];
  if (outgoing.is_delta) {
    const Result<ipc::DeltaPayload> payload = ipc::decode_delta_payload(outgoing.payload);
    REQUIRE(payload.ok());
    CHECK(payload->header.first_index == to.ids.size());
    CHECK(to.ends == 0);
    const std::vector<int32_t> ids = ipc::decode_ids(outgoing.ids).value();
    if (ids.empty()) to.text += payload->text;
    to.ids.insert(to.ids.end(), ids.begin(), ids.end());
    return ipc::SendOutcome::kSent;
  }
  Result<ipc::Event> event = ipc::decode_event(outgoing.payload);
  REQUIRE(event.ok());
  const bool more = std::holds_alternative<ipc::QueuedEvent>(*event) ||
                    std::holds_alternative<ipc::StartedEvent>(*event) ||
                    std::holds_alternative<ipc::SampleDoneEvent>(*event) ||
                    std::holds_alternative<ipc::AttachedEvent>(*event) ||
                    std::holds_alternative<ipc::LoadingEvent>(*event);
  CHECK(to.ends == 0);
  if (more) {
    to.events.push_back(std::move(event).value());
  } else {
    to.last = std::move(event).value();
    to.last_json = outgoing.payload;
    ++to.ends;
  }
  return ipc::SendOutcome::kSent;
}

void BrokerSim::generate(const Caller& caller, const std::string& id, const std::string& model,
                         int32_t max_tokens, uint64_t seed, const std::string& prompt) {
  ipc::GenerateRequest request;
  request.model = model;
  request.prompt = prompt;
  request.max_tokens = max_tokens;
  request.seed = seed;
  dispatcher.submit(caller, id, request, 100);
}

void BrokerSim::cancel(const Caller& caller, const std::string& id) {
  dispatcher.cancel(caller, "cancel " + std::to_string(++cancels_), ipc::CancelRequest{id});
}
void BrokerSim::load(const std::string& id, const std::string& model, int64_t keep_alive_ms,
                     const std::string& draft) {
  verbs.load(admin(), id, {.model = model, .keep_alive_ms = keep_alive_ms, .draft = draft});
}
void BrokerSim::unload(const std::string& id, const std::string& model, bool keep) {
  verbs.unload(admin(), id, {.model = model, .keep = keep});
}
void BrokerSim::swap(const std::string& id, const std::string& role, const std::string& model) {
  verbs.swap(admin(), id, {.role = role, .model = model});
}

void BrokerSim::step(int64_t ms) {
  clock.advance_us(ms * 1000);
  const std::vector<FakeWorker*> now = workers;
  for (FakeWorker* worker : now) {
    if (std::find(workers.begin(), workers.end(), worker) != workers.end()) worker->step();
  }
  residency.tick();
  dispatcher.tick();
  verbs.tick();
}

bool BrokerSim::run_until(const std::function<bool()>& done, int steps) {
  for (; steps > 0 && !done(); --steps) step();
  return done();
}

FakeWorker* BrokerSim::worker(const std::string& model) const {
  const auto it = std::find_if(workers.begin(), workers.end(),
                               [&](const FakeWorker* each) { return each->name() == model; });
  return it == workers.end() ? nullptr : *it;
}

uint64_t BrokerSim::bytes_held() const {
  uint64_t bytes = 0;
  for (const FakeWorker* worker : workers) {
    if (!worker->holds_memory()) continue;
    bytes += worker->plan()->weight_bytes + worker->kv_backed_bytes();
  }
  return bytes;
}

int32_t BrokerSim::token(const std::string& model, uint64_t seed, uint32_t index) {
  const size_t value = std::hash<std::string>{}(model) ^ (seed * 0x9E3779B97F4A7C15u) ^
                       (uint64_t{index} * 0xC2B2AE3D27D4EB4Fu);
  return static_cast<int32_t>(value >> 17 & 0xFFFF);
}

}  // namespace hearth::broker
