#pragma once
// The broker's logic in a simulation: workers that compute nothing, clients that record what they
// were sent, a clock that the test moves. One seed replays a run.

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/broker/requests/dispatcher.h"
#include "daemon/broker/requests/model_verbs.h"
#include "daemon/broker/residency/residency.h"
#include "tests/temp_dir.h"

namespace hearth::broker {

/// Properties of a simulated model.
struct ModelTraits {
  uint64_t weight_bytes = 10;
  uint64_t kv_bytes = 10;
  int load_steps = 3;
  uint64_t host_bytes = 0;          ///< that it may take in addition to a device's memory
  uint64_t host_bytes_taken = 0;    ///< of them
  std::optional<Error> fails = {};  ///< instead of `ready`
  bool can_sleep = true;
  /// Of kv_bytes, what is taken at start; the rest as requests and cached prefixes fill it. Absent:
  /// all of it.
  std::optional<uint64_t> kv_floor_bytes = {};
  std::vector<ipc::StageUse> stages = {};  ///< of a model in stages
};

class BrokerSim;

/// Sends what a worker sends, one message per step.
class FakeWorker final : public Worker {
 public:
  FakeWorker(BrokerSim& sim, const ModelFile& file, pid_t pid, WorkerListener& listener);
  ~FakeWorker() override;
  std::string draft;                       ///< it was started with
  std::vector<std::string> adapter_paths;  ///< of the last request that it received
  /// What it reports to have in memory.
  void set_adapters(std::vector<ipc::AdapterUse> adapters) {
    snapshot_.adapters = std::move(adapters);
  }

  /// The resident's: of a replica, MODEL@DEVICE.
  const std::string& name() const { return name_; }
  size_t num_live() const { return live_.size(); }
  /// Of these, requests whose reasoning is to end.
  size_t num_end_reasoning() const;
  /// May destroy it.
  void step();
  /// As the kernel would: the broker notices at the next step.
  void die() { state_ = State::kEnding; }
  /// Holds the memory that it planned.
  bool holds_memory() const { return plan_.has_value() && state_ != State::kEnding; }
  /// Times that it was woken.
  int wakes() const { return wakes_; }
  /// Backs as much of its pools as the bound allows and `wanted` needs; what is missing stalls it.
  void fill_pools(uint64_t wanted);
  /// A busy machine does not let it run: bounds of its pools take effect at catch_up().
  void fall_behind() { late_ = true; }
  void catch_up();
  uint64_t kv_backed_bytes() const { return snapshot_.kv_backed_bytes; }
  uint64_t kv_bound_bytes() const { return snapshot_.kv_bound_bytes; }

  void send_request(uint64_t number, std::string json) override;
  void send_cancel(uint64_t number) override;
  void send_end_reasoning(uint64_t number) override;
  void send_kv_bound(uint64_t bytes) override;
  void send_drop_adapter(const std::string& name) override;
  void sleep() override;
  void wake() override;
  void drain() override;
  void stop() override;
  void kill(const std::string& why) override;
  void watch(bool on) override { watched_ = on; }
  void check_timeouts() override {}

 private:
  struct Live {
    ipc::WorkerRequest request;
    uint32_t sent = 0;
    bool started = false;
    bool cancelled = false;
  };
  void load_on();
  bool serve(uint64_t number, Live& live);
  /// The events of its end; the broker may send a request of the same number from within.
  void end(uint64_t number, const Live& live);
  void answer(uint64_t number, const ipc::Event& event);

  BrokerSim& sim_;
  std::string name_;
  std::string model_;
  WorkerListener& listener_;
  std::map<uint64_t, Live> live_;
  int steps_ = 0;
  int wakes_ = 0;
  uint64_t kv_wanted_ = 0;
  bool late_ = false;
  std::optional<uint64_t> late_bound_;
};

/// All answers to one request or verb.
struct SimAnswer {
  std::vector<int32_t> ids;
  std::string text;                ///< of deltas without tokens
  std::vector<ipc::Event> events;  ///< without the last
  std::optional<ipc::Event> last;  ///< done, error or a reply
  std::string last_json;           ///< as it came
  int ends = 0;

  const Error* error() const;
  template <class T>
  const T* as() const {
    return last ? std::get_if<T>(&*last) : nullptr;
  }
};

class BrokerSim {
 public:
  /// `models`: name, or MODEL@DEVICE for what is different there -> properties. Settings are read
  /// through `config`.
  BrokerSim(std::map<std::string, ModelTraits> models, Config config, uint64_t seed = 1);

  static Caller admin(const PeerId& peer = {.door = Door::kIpc, .uid = 0, .number = 1}) {
    return {.peer = peer, .uid = 0, .is_admin = true};
  }
  static Caller user(uint32_t uid, uint64_t connection = 0) {
    return {.peer = {.door = Door::kIpc, .uid = uid, .number = 10'000 * (1 + connection) + uid},
            .uid = uid,
            .is_admin = false};
  }

  void generate(const Caller& caller, const std::string& id, const std::string& model,
                int32_t max_tokens, uint64_t seed = 7, const std::string& prompt = "x");
  void cancel(const Caller& caller, const std::string& id);
  void load(const std::string& id, const std::string& model, int64_t keep_alive_ms = -1,
            const std::string& draft = "auto");
  void unload(const std::string& id, const std::string& model, bool keep = false);
  void swap(const std::string& id, const std::string& role, const std::string& model);

  /// One turn of everything, `ms` later.
  void step(int64_t ms = 20);
  /// Steps until `done` returns true; false after this many steps.
  bool run_until(const std::function<bool()>& done, int steps = 5000);

  SimAnswer& answer(const PeerId& peer, const std::string& id) { return answers[{peer, id}]; }
  FakeWorker* worker(const std::string& model) const;
  /// Bytes that workers hold now.
  uint64_t bytes_held() const;
  /// The token at `index` of an undisturbed run of this model and seed.
  static int32_t token(const std::string& model, uint64_t seed, uint32_t index);

  FakeClock clock;
  std::mt19937_64 random;
  Config config;
  std::map<std::string, ModelTraits> traits;
  std::vector<FakeWorker*> workers;
  std::map<uint64_t, uint32_t> deadly;  ///< seed -> tokens after which that request ends its worker
  std::map<std::string, std::string> fingerprints;  ///< of the models' files
  uint64_t device_bytes = 0;     ///< of a device with memory of its own; 0: there is none
  uint64_t host_free_bytes = 0;  ///< as the host reports; 0: not reported
  std::set<PeerId> gone;         ///< connections that no client reads any more
  std::map<std::pair<PeerId, std::string>, SimAnswer> answers;
  uint64_t starts = 0;

 private:
  ipc::SendOutcome receive(const PeerId& peer, const OutgoingView& outgoing);
  std::filesystem::path make_models();

  tests::TempDir dir_;
  uint64_t cancels_ = 0;

 public:
  ModelDirectory models;
  Admission admission;
  OutputBuffer output;
  Residency residency;
  Dispatcher dispatcher;
  ModelVerbs verbs;
};

}  // namespace hearth::broker
