#pragma once
// A loaded model as the engine sees it: its properties, its layer groups, and one function that
// computes a step.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/ops.h"
#include "models/canvas.h"
#include "models/pooling.h"
#include "models/share.h"

namespace hearth::models {

class GgufFile;

/// Layers whose KV has the same shape and lifetime. Each group has its own block pool, and a
/// physical block holds all layers of its group contiguously.
struct LayerGroup {
  enum class Kind {
    kFull,
    kSliding,
    kRecurrent,  ///< no KV: a block is the state of a sequence, of constant size. The last group,
                 ///< and the only one of its kind.
  };
  Kind kind = Kind::kFull;
  int32_t window = 0;       ///< kSliding: positions attended to
  int32_t num_layers = 0;   ///< that store KV, or have a state
  int32_t num_sharing = 0;  ///< further layers that attend to the KV of one of them and store none
  kernels::KvShape kv;
  int64_t state_bytes = 0;   ///< kRecurrent: of one layer
  int64_t hidden_bytes = 0;  ///< kRecurrent: after the layers' states, a row for the draft layer

  bool recurrent() const { return kind == Kind::kRecurrent; }
  /// Bytes of one block of this group, all layers that store KV. kRecurrent: of one state.
  int64_t block_bytes(kernels::KvTypes kv_type, int32_t block_size) const {
    if (recurrent()) return num_layers * state_bytes + hidden_bytes;
    return num_layers * kernels::kv_layer_bytes(kv_type, block_size, kv);
  }
};

/// Consecutive layers of a model. `end` 0: to the last one.
struct LayerRange {
  int32_t first = 0;
  int32_t end = 0;
};

/// What one device holds of a model in stages (models/staged_model.h), or of one in shares
/// (models/split_model.h).
struct StageInfo {
  std::string device;  ///< its name in the configuration
  LayerRange layers;
  uint64_t weight_bytes = 0;
  std::vector<int32_t> group_layers;  ///< of each group: its layers here that store KV or a state
  std::vector<int32_t> group_heads;   ///< of each group: its heads of KV here; empty: all
  int64_t gathered_columns = 0;       ///< of a share: of the widest rows that it gathers

  /// Of a block of that group, which has `all_bytes` on all devices, the bytes here.
  int64_t block_bytes(const LayerGroup& group, size_t number, int64_t all_bytes) const {
    if (group.num_layers == 0) return 0;
    const int64_t bytes = all_bytes / group.num_layers * group_layers[number];
    return group_heads.empty() ? bytes : bytes / group.kv.num_kv_heads * group_heads[number];
  }
};

struct ModelInfo {
  std::string name;          ///< file name without suffix
  std::string architecture;  ///< general.architecture
  std::string title;         ///< general.name, or empty
  std::string file_type;     ///< dominant weight type, e.g. "Q8_0"
  std::string fingerprint;   ///< hex digest of the file's content; root of every prefix hash
  int32_t context_length = 0;
  int32_t vocab_size = 0;
  int32_t width = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  uint64_t num_parameters = 0;
  uint64_t weight_bytes = 0;  ///< packed, on the device
  uint64_t expert_bytes = 0;  ///< of LoadOptions::experts, in addition
  uint64_t file_bytes = 0;
  std::vector<LayerGroup> groups;
  /// False: an encoder. It has no logits. Every token attends to the whole text, so a text is
  /// computed in one step, and the contents of the KV blocks are worthless afterwards.
  bool generates = true;
  /// mask_token of 0 or more: it denoises. Every token attends to the whole sequence, too, so each
  /// pass computes all of it in one step, and the KV blocks are worthless between two passes.
  CanvasModel canvas;
  /// It drafts (Model::draft): by a layer whose KV is that of one more layer in `groups`, or by
  /// heads, which store nothing.
  bool drafts = false;
  int32_t draft_heads = 0;          ///< tokens that heads draft at most; 0: no heads
  bool eagle3 = false;              ///< that layer is an EAGLE-3 head, from a file of its own
  int32_t draft_block = 0;          ///< of a DFlash drafter, likewise: tokens of one draft at most
  int32_t draft_mask = -1;          ///< the token that stands for each of them
  std::string draft_fingerprint;    ///< of that file, as `fingerprint`
  uint64_t draft_weight_bytes = 0;  ///< of weight_bytes, that of the draft layer or the heads
  int32_t draft_vocab = 0;          ///< tokens among which it drafts: the first ones, or
  std::vector<int32_t> draft_tokens;  ///< these, if not empty
  Pooling pooling = Pooling::kNone;   ///< from the file
  std::vector<StageInfo> stages;      ///< of a decoder; one: one device computes all layers

  bool denoises() const { return canvas.mask_token >= 0; }
};

/// kInvalidArgument, with the field kv_type, if the types differ and the model has a group whose V
/// is the front of K.
Result<void> check_kv_types(const ModelInfo& info, kernels::KvTypes types);

/// One layer group's pool as a step sees it.
struct KvPool {
  std::byte* base = nullptr;  ///< null: KV is divided (Model::divide_kv)
  int64_t block_bytes = 0;
  int32_t block_size = 16;
  kernels::KvTypes types = {};
  int64_t first_byte = 0;  ///< of a stage's blocks: where in a whole block they begin
};

/// A pool that is to be allocated.
struct PoolSize {
  KvPool pool;
  int32_t num_blocks = 0;
  int32_t max_blocks = 0;  ///< of one sequence; 0: recurrent
};

class DividedKv;

/// Consecutive rows of a step to whose products one adapter adds.
struct AdaptedRows {
  int32_t adapter = 0;        ///< as Model::add_adapter returned it
  float scale = 1;            ///< of what it adds, in addition to the scale in its file
  int32_t first_row = 0;      ///< among the step's rows
  int32_t first_output = 0;   ///< among its output rows
  kernels::BatchIndex batch;  ///< these rows alone: num_tokens, num_outputs, `counts`
};

inline constexpr size_t kMostStores = 8;

struct StepArgs {
  const kernels::BatchIndex* batch;
  std::span<const KvPool> pools;  ///< one per layer group
  kernels::TensorView logits;     ///< out: (num_outputs, vocab_size) f32, device memory
  /// K and V of the step's first rows are stored in the slots of each of these, too: of draft
  /// tokens that several branches share. They have counts, num_tokens, groups and no states.
  /// At most kMostStores.
  std::span<const kernels::BatchIndex> also_stored = {};
  /// Rows may be in several. A step with any cannot be captured.
  std::span<const AdaptedRows> adapted = {};
  /// (num_tokens, width) f32, host memory, of a model that has only some of the layers: the rows
  /// that the layers before them made, replaced by their own; by the last ones, by the final rows.
  kernels::TensorView hidden = {};
};

/// Owned by the engine thread. Holds weights and activations, no KV and no sequence.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  /// Sets the longest context that steps will have, if it is not info().context_length: some models
  /// use other rotary frequencies in a short context. Call before the first `forward`.
  virtual void set_context_length(int32_t) {}
  /// Allocates activation memory for steps up to these bounds. Call once, before `forward`.
  virtual Result<void> reserve(int32_t max_tokens, int32_t max_outputs) = 0;
  /// Bytes that `reserve` would allocate.
  virtual uint64_t activation_bytes(int32_t max_tokens, int32_t max_outputs) const = 0;
  /// Host memory that `reserve` takes in addition, for experts on a table of their own.
  virtual uint64_t expert_row_bytes(int32_t max_tokens) const { return (void)max_tokens, 0; }
  /// Of each layer, how often each expert was chosen since loading; empty if all experts are on the
  /// model's own table.
  virtual std::vector<std::vector<uint64_t>> expert_counts() const { return {}; }
  /// Computes one step: stores K and V of every token, writes the logits of the output rows.
  /// A model in stages may return before a step without outputs is computed; `settle` waits.
  virtual void forward(const StepArgs& args) = 0;
  /// Waits until all steps are computed. Call before KV blocks are read, or written to in any other
  /// way than by `forward`.
  virtual void settle() {}
  /// A model in stages that have memories of their own allocates the KV itself, and returns it.
  /// Call before `reserve`. Null: one memory, the engine's table's, has all KV.
  virtual Result<DividedKv*> divide_kv(std::span<const PoolSize>) { return nullptr; }
  /// The rows (num_tokens, width) of the last step after the final norm; embeddings are made from
  /// them. The model's device memory, valid until the next step.
  virtual kernels::TensorView final_rows(const kernels::BatchIndex&) { return {}; }

  // ---- Adapters (models/decoder/adapter.h) --
  /// Loads an adapter for this model into the same device and returns its number. The file and its
  /// bytes may go afterwards. Call after `reserve`. Errors name the file and the key or tensor:
  /// kUnsupported (a kind of model, of adapter or of tensor without support), kCorrupt (malformed,
  /// or made for another model), kOutOfMemory. Values are not checked: see computed_fingerprint.
  virtual Result<int32_t> add_adapter(const GgufFile& file);
  /// Bytes on the device that a loaded adapter takes.
  virtual uint64_t adapter_bytes(int32_t adapter) const;
  /// Frees a loaded adapter. Numbers of others stay as they are; its own may be used again.
  virtual void remove_adapter(int32_t adapter);

  // ---- Drafting, if info().drafts (models/decoder/draft_layer.cpp, draft_heads.cpp,
  // eagle3.cpp, dflash.cpp) --
  /// Loads heads that draft (Medusa, EAGLE-3, DFlash) from a file of their own, into the same
  /// device. Call before `reserve`, at most once. The file and its bytes may go afterwards. Errors
  /// name the key or tensor: kUnsupported (this model cannot have heads, tensor type), kCorrupt
  /// (malformed, or made for a model of other sizes or of another name), kOutOfMemory.
  virtual Result<void> add_heads(const GgufFile& file);
  /// Chooses the hidden rows that the next `draft` continues: of the last `forward`, its final rows
  /// by token row; or `own`, those that the last `draft` made. At most max_outputs of `reserve`.
  virtual void choose_draft_rows(std::span<const int32_t> rows, bool own) { (void)rows, (void)own; }
  /// Computes the draft layer or a head for rows of one token each, the token after the one whose
  /// hidden row was chosen: logits of the token that follows, of the first draft_vocab tokens or of
  /// draft_tokens. `place`: drafts before it since the last `forward`. A layer stores its K and V;
  /// no state and no final row changes.
  /// With info().draft_block, one call drafts a sequence's tokens: its rows are the last token and
  /// draft_mask for each token to be drafted, whose rows have the logits; no row is chosen.
  virtual void draft(const StepArgs& args, int32_t place) { (void)args, (void)place; }
};

struct LoadProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
};
using LoadProgressFn = std::function<void(const LoadProgress&)>;

/// Of each layer, some of its experts, in ascending order.
using HotExperts = std::vector<std::vector<int32_t>>;

struct LoadOptions {
  /// Loads the file's first layer for drafting (nextn), if it has one and the device can compute
  /// it. Such a model has a state (LayerGroup::kRecurrent).
  bool draft_layer = false;
  /// Heads to add (Model::add_heads); null: none.
  const GgufFile* heads = nullptr;
  /// Loads these layers alone: a stage. kUnsupported names what cannot be computed in stages.
  LayerRange layers = {};
  /// Loads this share of every layer. kUnsupported names what cannot be split.
  Share share = {};
  /// Holds and computes the experts of all layers, in host memory (models/decoder/experts.cpp).
  /// Called from the thread that calls the model's table. Null: that does.
  const kernels::OpTable* experts = nullptr;
  /// With `experts`: those that the model's own table holds and computes, too. Null: none.
  const HotExperts* hot_experts = nullptr;
};

/// Loads the model of a parsed GGUF file into the device of `ops`. The family is chosen by
/// general.architecture. Errors name the key or tensor: kUnsupported (architecture, tensor type),
/// kCorrupt (missing or ill-shaped tensor), kOutOfMemory.
Result<std::unique_ptr<Model>> load_model(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress,
                                          const LoadOptions& options = {});

/// `ops` as an engine uses it with a model whose experts are on another table. The numerics_id is
/// that of both, if they differ, and of the division among them: `hot` as in LoadOptions.
kernels::OpTable with_experts_on(kernels::OpTable ops, const kernels::OpTable& experts,
                                 const HotExperts& hot = {});

/// The errors of Model::add_heads for a model of the sizes that the file gives. `ops` may only
/// measure.
Result<void> check_heads(const GgufFile& file, const kernels::OpTable& ops);

}  // namespace hearth::models
