#include "models/gguf/gguf_output.h"

#include "models/gguf/gguf_writer.h"

namespace hearth::models {

Result<GgufOutput> GgufOutput::create(const std::filesystem::path& path, uint64_t bytes_total,
                                      const WriteProgressFn& progress) {
  HEARTH_ASSIGN_OR_RETURN(PartFile file, PartFile::create(path));
  return GgufOutput(std::move(file), bytes_total, progress);
}

Result<void> GgufOutput::append(std::span<const std::byte> bytes) {
  if (progress_ && !progress_(bytes_done_, bytes_total_)) {
    return Error::cancelled("interrupted; nothing was written");
  }
  bytes_done_ += bytes.size();
  return file_.append(bytes);
}

Result<void> GgufOutput::pad() {
  constexpr std::byte kZeros[kGgufAlignment] = {};
  const uint64_t beyond = bytes_done_ % kGgufAlignment;
  return beyond == 0 ? Result<void>() : append({kZeros, kGgufAlignment - beyond});
}

Result<void> GgufOutput::finish() {
  HEARTH_TRY(file_.finish());
  if (progress_) progress_(bytes_done_, bytes_total_);
  return {};
}

}  // namespace hearth::models
