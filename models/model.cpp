#include "models/model.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "models/gguf/gguf_file.h"
#include "models/llama/llama.h"

namespace hearth::models {
namespace {

struct Family {
  std::string_view architecture;  // general.architecture
  Result<std::unique_ptr<Model>> (*load)(const GgufFile&, const kernels::OpTable&,
                                         const LoadProgressFn&);
};

constexpr std::array kFamilies = {
    Family{"llama", load_llama},
};

}  // namespace

Result<std::unique_ptr<Model>> load_model(const GgufFile& file, const kernels::OpTable& ops,
                                          const LoadProgressFn& progress) {
  HEARTH_ASSIGN_OR_RETURN(const auto wanted, file.get<std::string_view>("general.architecture"));
  for (const Family& family : kFamilies) {
    if (family.architecture == wanted) return family.load(file, ops, progress);
  }
  std::string known;
  for (const Family& family : kFamilies) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.architecture);
  }
  return Error{
      ErrorCode::kUnsupported,
      fmt::format("general.architecture: \"{}\", this build knows {}", printable(wanted), known),
      ""};
}

}  // namespace hearth::models
