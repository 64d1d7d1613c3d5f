#include "models/convert/heads.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "kernels/base/numbers.h"
#include "models/convert/json_file.h"
#include "models/gguf/heads_keys.h"

namespace hearth::models {
namespace {

constexpr const char* kCount = "medusa_num_heads";

Result<uint32_t> count_up_to(const Json& config, const char* key, uint64_t least, uint64_t most) {
  HEARTH_ASSIGN_OR_RETURN(const uint64_t count, want_count(config, key));
  if (count >= least && count <= most) return narrow<uint32_t>(count);
  return Error::corrupt(fmt::format("config.json: {}: {}, want {} to {}", key, count, least, most));
}

class HeadsPlanner {
 public:
  explicit HeadsPlanner(const Checkpoint& checkpoint) : in_(checkpoint) {}

  Result<HeadsPlan> plan() {
    HEARTH_ASSIGN_OR_RETURN(out_.num_heads, count_up_to(in_.config(), kCount, 1, kMostHeadsOfFile));
    HEARTH_ASSIGN_OR_RETURN(out_.num_blocks,
                            count_up_to(in_.config(), "medusa_num_layers", 0, kMostHeadBlocks));
    HEARTH_ASSIGN_OR_RETURN(const auto target, text_at(in_.config(), "base_model_name_or_path"));
    out_.target = std::filesystem::path(target.value_or("")).filename().string();
    HEARTH_TRY(find_sizes());
    for (uint32_t k = 0; k < out_.num_heads; ++k) {
      for (uint32_t i = 0; i < out_.num_blocks; ++i) {
        const std::string from = fmt::format("{}.{}.linear.", k, i);
        const std::string to = fmt::format("head.{}.block.{}.", k, i);
        HEARTH_TRY(add(from + "weight", to + "weight", {out_.width, out_.width}));
        HEARTH_TRY(add(from + "bias", to + "bias", {out_.width}));
      }
      HEARTH_TRY(add(output_of(k), fmt::format("head.{}.output.weight", k),
                     {out_.vocab_size, out_.width}));
    }
    for (const auto& [name, tensor] : in_.tensors()) {
      if (used_.contains(tensor)) continue;
      return Error::unsupported(fmt::format("{}: not a tensor of {} heads of {} blocks",
                                            printable(name), out_.num_heads, out_.num_blocks));
    }
    return std::move(out_);
  }

 private:
  std::string output_of(uint32_t k) const {
    return fmt::format("{}.{}.weight", k, out_.num_blocks);
  }

  const SafeTensor* find(const std::string& name) const {
    const SafeTensor* found = in_.tensor(name);
    return found != nullptr ? found : in_.tensor("medusa_head." + name);
  }

  // config.json often lacks them.
  Result<void> find_sizes() {
    const SafeTensor* output = find(output_of(0));
    if (output == nullptr) return Error::corrupt(fmt::format("{}: missing", output_of(0)));
    constexpr uint64_t kMost = INT32_MAX;
    const bool fine = output->shape.size() == 2 && output->shape[0] > 0 && output->shape[1] > 0 &&
                      output->shape[0] <= kMost && output->shape[1] <= kMost;
    if (!fine) return Error::corrupt(fmt::format("{}: want a matrix", printable(output->name)));
    out_.vocab_size = output->shape[0];
    out_.width = output->shape[1];
    return {};
  }

  Result<void> add(const std::string& from, const std::string& to, std::vector<uint64_t> shape) {
    const SafeTensor* tensor = find(from);
    if (tensor == nullptr) return Error::corrupt(fmt::format("{}: missing", from));
    if (tensor->shape != shape) {
      return Error::corrupt(fmt::format("{}: shape [{}], want [{}]", printable(tensor->name),
                                        fmt::join(tensor->shape, ","), fmt::join(shape, ",")));
    }
    HEARTH_TRY(tensor->dtype());
    used_.insert(tensor);
    PlannedTensor planned;
    planned.name = to;
    planned.dims.assign(shape.rbegin(), shape.rend());
    planned.parts.push_back({tensor, 0, tensor->num_elements()});
    out_.tensors.push_back(std::move(planned));
    return {};
  }

  const Checkpoint& in_;
  HeadsPlan out_;
  std::set<const SafeTensor*> used_;
};

}  // namespace

bool has_heads(const Json& config) { return find(config, kCount) != nullptr; }

void HeadsPlan::describe(GgufWriter& writer) const {
  writer.set_u32("medusa.head_count", num_heads);
  writer.set_u32("medusa.block_count", num_blocks);
  writer.set_u32("medusa.embedding_length", narrow<uint32_t>(width));
  writer.set_u32("medusa.vocab_size", narrow<uint32_t>(vocab_size));
  if (!target.empty()) writer.set_string("general.base_model.0.name", target);
}

Result<HeadsPlan> plan_heads(const Checkpoint& checkpoint) {
  return HeadsPlanner(checkpoint).plan();
}

}  // namespace hearth::models
