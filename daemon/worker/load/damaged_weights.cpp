#include "daemon/worker/load/damaged_weights.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "engine/sampling/sampler.h"
#include "kernels/base/log.h"
#include "models/gguf/bad_weight.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {
namespace {

// The broker gives an engine that says nothing a minute.
constexpr auto kPatience = std::chrono::seconds(10);

std::string look(const std::filesystem::path& model) {
  const auto file = models::GgufFile::open(model);
  if (!file.ok()) return "";
  const auto end = std::chrono::steady_clock::now() + kPatience;
  const auto late = [end] { return std::chrono::steady_clock::now() > end; };
  return models::find_bad_weight(*file, late).value_or("");
}

}  // namespace

Error DamagedWeights::explain(Error error) {
  if (!error.message.starts_with(engine::kNotFinite)) return error;
  if (!found_) {
    found_ = look(model_);
    log_error("damaged_weights", "model={} found=\"{}\"", model_.string(), *found_);
  }
  if (found_->empty()) return error;
  return Error{ErrorCode::kCorrupt,
               fmt::format("{}; the model's weights are damaged: {}. Fetch the file again, or make "
                           "it anew from whole weights",
                           error.message, *found_),
               "model"};
}

}  // namespace hearth::worker
