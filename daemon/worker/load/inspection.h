#pragma once
// The content of a model file as plain data: gathered from a parsed file without reading its
// weights, printed by inspection_text.cpp and inspection_json.cpp. Views point into the file.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/result.h"
#include "models/gguf/gguf_file.h"
#include "models/model.h"

namespace hearth::worker {

struct TypeShare {
  std::string type;  ///< "Q8_0"
  uint64_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;
};

struct SpecialToken {
  std::string role;  ///< "bos", "eos", ...
  int32_t id = 0;
  std::string_view entry;  ///< as written in the vocabulary
};

struct TokenizerSummary {
  std::string kind;  ///< "gpt2", "llama", ...; empty: the file has none
  std::string pre;   ///< name of the splitting rule, if the file has one
  uint64_t size = 0;
  uint64_t merges = 0;
  uint64_t control = 0;
  bool adds_bos = false;  ///< even an empty text has a token
  std::vector<SpecialToken> special;
  std::string problem;  ///< why this build cannot use it; empty: no problem
};

struct ChatTemplate {
  std::string name;  ///< "" for the main one
  std::string_view text;
  std::vector<std::string> mentions;  ///< features: "system", "tools", "think"
};

struct Inspection {
  std::string file;
  const models::GgufFile* gguf = nullptr;
  std::string architecture;  ///< empty: not given
  std::string title;
  uint64_t parameters = 0;
  uint64_t tensor_bytes = 0;
  std::vector<TypeShare> types;  ///< most bytes first
  /// Of its family, with the layer groups; nothing if this build refuses the file.
  std::optional<models::ModelInfo> model;
  std::string refused;  ///< then the reason
  TokenizerSummary tokenizer;
  std::vector<ChatTemplate> templates;
};

/// Never fails: reports unknown facts as such. `path` is for display.
Inspection inspect(const models::GgufFile& file, std::string path);

/// KV bytes of one token in one group; an integer, because block sizes are multiples of a tile.
int64_t kv_bytes_per_token(const models::LayerGroup& group, kernels::KvTypes kv_type);
/// Of a recurrent group: the state of one sequence, or one snapshot.
int64_t state_bytes(const models::LayerGroup& group);
/// "full", "sliding 4096"
std::string describe(const models::LayerGroup& group);
/// "24 layers", or "15 layers, shared by 20 more".
std::string layers_of(const models::LayerGroup& group);
/// "8 KV heads of 128", "8 KV heads of 192 and 128", "latent of 576"
std::string describe(const kernels::KvShape& shape);

struct InspectionFormat {
  bool all = false;      ///< arrays and texts in full
  bool tensors = false;  ///< text output: list the tensors too
};
/// A table for people: control characters made visible, arrays and long texts shortened.
std::string as_text(const Inspection& inspection, const InspectionFormat& format);
/// One JSON object. Arrays are shortened to kShownElements unless `all`; invalid UTF-8 becomes
/// U+FFFD.
std::string as_json(const Inspection& inspection, const InspectionFormat& format);

inline constexpr size_t kShownElements = 8;

}  // namespace hearth::worker
