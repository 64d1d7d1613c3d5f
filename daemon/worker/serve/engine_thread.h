#pragma once
// The thread that owns the device, the model and the engine: loads, reports its progress, and steps
// until stopped.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <variant>

#include "daemon/worker/load/cost_file.h"
#include "daemon/worker/load/device.h"
#include "daemon/worker/load/model_source.h"
#include "daemon/worker/load/options.h"
#include "daemon/worker/observe/gpu_watch.h"
#include "engine/engine.h"
#include "engine/store/store_thread.h"
#include "kernels/base/clock.h"
#include "kernels/base/mailbox.h"
#include "kernels/base/result.h"
#include "models/model.h"
#include "models/ranking/ranker.h"
#include "models/staged_model.h"
#include "models/template/chat_template.h"
#include "models/tokenizer/text/fill_marks.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::engine {
class DraftModel;
}

namespace hearth::worker {

/// Loading is complete. The pointers live as long as the EngineThread.
struct EngineLoaded {
  const models::Tokenizer* tokenizer = nullptr;
  const models::ChatTemplates* templates = nullptr;
  Mailbox<engine::EngineCommand>* commands = nullptr;
  Mailbox<std::vector<engine::EngineEvent>>* events = nullptr;
  engine::WatchPort* watch = nullptr;
  models::ModelInfo info;
  kernels::DeviceInfo device;
  int32_t context_length = 0;
  std::optional<int32_t> text_end;  ///< see models::load_text_end
  std::optional<models::FillMarks> fill_marks;
  std::shared_ptr<const models::Ranker> ranker;  ///< null: the model does not rank
  uint64_t kv_bytes = 0;                         ///< the draft model's included
  int32_t block_size = 0, num_blocks = 0;        ///< see ipc::WorkerReady
  int32_t kv_block_size = 0;                     ///< of all groups below
  std::vector<engine::KvGroup> kv_groups;
  int64_t load_ms = 0;
  std::string draft;  ///< name of the draft model, or kDraftLayerName; "": none
  ipc::SamplingDefaults sampling{};
  ipc::ExpertUse experts{};
  bool can_sleep = false;  ///< see engine::Sleep
  uint64_t draft_weight_bytes = 0;
  std::optional<ipc::DeviceMemory> device_memory;  ///< on a device with its own memory
  ReadGpu read_gpu;                                ///< null: nothing to read
  /// Measures and stores the device's ceilings, which occupies all its threads for some 50 ms.
  /// Null: they are known, or the device is a GPU, which its name identifies.
  std::function<void()> note_ceilings;
};

/// The memory that will be taken, reported before any weight is loaded; includes a draft model if
/// it can be loaded.
struct LoadPlan {
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t other_bytes = 0;        ///< activations, logits, index, a device's driver and scratch
  uint64_t device_free_bytes = 0;  ///< 0: the device has no memory of its own
  uint64_t host_bytes = 0;         ///< in that case, for prefixes evicted from the device
  uint64_t kv_floor_bytes = 0;     ///< of kv_bytes; see MemoryPlan::floor_bytes
  std::vector<ipc::StageUse> stages{};
};
/// The weights are loaded; the engine warms up.
struct WarmingUp {};

/// Messages of the thread before the engine runs.
using LoadMessage = std::variant<LoadPlan, models::LoadProgress, WarmingUp, EngineLoaded, Error>;

/// A draft model only changes speed, so a model is served without one that cannot be loaded.
void warn_no_draft(const std::filesystem::path& draft, const Error& error);

class EngineThread {
 public:
  EngineThread(const ServeOptions& options, const Clock& clock);
  ~EngineThread();  // stops the engine at once and joins; waits for a load in progress
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  /// The plan, progress, and finally EngineLoaded or an Error. Its fd wakes the reader.
  Mailbox<LoadMessage>& messages() { return messages_; }

 private:
  void run();
  Result<EngineLoaded> load();
  /// The engine's table; of a model in stages, that of the first.
  Result<kernels::OpTable> open_tables();
  Result<std::unique_ptr<models::Model>> load_weights(const models::GgufFile& file,
                                                      const kernels::OpTable& ops,
                                                      const models::LoadProgressFn& progress,
                                                      const models::GgufFile* heads);
  /// The engine's table for stages_.
  kernels::OpTable joint_ops() const;
  std::filesystem::path digest_folder() const;
  models::LoadOptions load_options() const;
  /// Restores the step costs measured by earlier workers.
  void restore_costs(const kernels::OpTable& device, const std::string& numerics_id,
                     EngineLoaded* loaded);
  /// `draft` is of the heads if these are not null. It is cleared if no plan can be made with it;
  /// it is not loaded then.
  Result<LoadPlan> plan(const models::GgufFile& file, const models::GgufFile* heads,
                        std::filesystem::path* draft, const kernels::OpTable& ops);
  Result<LoadPlan> plan_stages_or_device(const models::GgufFile& file,
                                         const models::GgufFile* heads,
                                         std::filesystem::path* draft, const kernels::OpTable& ops);
  Result<void> choose_hot_experts(const models::GgufFile& file);
  Result<LoadPlan> plan_with_experts(const models::GgufFile& file, const models::GgufFile* heads,
                                     std::filesystem::path* draft, const kernels::OpTable& ops);
  Result<LoadPlan> plan_in_stages(const models::GgufFile& file, bool heads,
                                  std::filesystem::path* draft, const kernels::OpTable& ops);
  /// Adds a draft model to the first stage, or clears `draft` and warns.
  void add_draft(std::filesystem::path* draft, const models::ModelInfo& target,
                 const kernels::OpTable& ops, LoadPlan* plan);
  /// The model's draft in addition to what it has itself; null if none is chosen or it is unusable.
  std::unique_ptr<engine::DraftModel> load_chosen_draft(const DraftChoice& choice,
                                                        const kernels::OpTable& ops,
                                                        EngineLoaded* out);
  Result<LoadPlan> plan_draft(const std::filesystem::path& path, const models::ModelInfo& target,
                              const kernels::OpTable& ops, PackingMeter* packing) const;
  Result<std::optional<ipc::DeviceMemory>> settle(const kernels::OpTable& ops,
                                                  const LoadPlan& planned) const;
  Result<std::unique_ptr<engine::DraftModel>> load_draft(const std::filesystem::path& path,
                                                         const models::ModelInfo& target,
                                                         const kernels::OpTable& ops);
  /// Host memory for prefixes evicted from the device; 0 if the device computes in host memory.
  uint64_t ram_bytes() const;
  bool wants_store() const { return !options_.prefix_dir.empty() || ram_bytes() > 0; }
  std::unique_ptr<engine::BlockStore> open_database() const;
  void start_store();

  ServeOptions options_;               ///< used by the engine thread; the plan sets its kv_bytes
  std::vector<models::Stage> stages_;  ///< until the weights are loaded; the plan sets their layers
  bool in_stages_ = false;             ///< after planning
  std::optional<kernels::OpTable> expert_ops_;  ///< if the experts are apart
  models::HotExperts hot_experts_;              ///< of these
  std::filesystem::path expert_count_file_;
  models::Model* model_ = nullptr;  ///< the engine's
  const Clock& clock_;
  Mailbox<LoadMessage> messages_;
  std::unique_ptr<models::Tokenizer> tokenizer_;
  models::ChatTemplates templates_;
  Mailbox<engine::StoreCommand> store_commands_;
  std::optional<ModelSource> source_;  ///< outlives the engine, which checks it
  std::unique_ptr<engine::Engine> engine_;
  CostFile costs_;
  std::unique_ptr<engine::StoreThread> store_;  ///< sends its replies to the engine's inbox
  std::atomic<bool> stop_{false};
  std::atomic<engine::Engine*> running_{nullptr};
  std::thread thread_;
};

}  // namespace hearth::worker
