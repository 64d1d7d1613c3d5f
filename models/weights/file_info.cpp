#include "models/weights/file_info.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>

#include "models/gguf/fingerprint.h"

namespace hearth::models {

Result<ModelInfo> describe_file(const GgufFile& file) {
  ModelInfo info;
  info.name = file.name();
  HEARTH_ASSIGN_OR_RETURN(info.architecture, file.get<std::string_view>("general.architecture"));
  HEARTH_ASSIGN_OR_RETURN(info.title, file.get_or<std::string_view>("general.name", ""));
  info.file_bytes = file.file_bytes();

  // The type of most bytes, because general.file_type is often wrong in converted files.
  std::map<std::string, uint64_t> bytes_by_type;
  for (const GgufTensor& tensor : file.tensors()) {
    info.num_parameters += tensor.num_elements();
    bytes_by_type[tensor.type_name()] += tensor.bytes.size();
  }
  const auto most =
      std::max_element(bytes_by_type.begin(), bytes_by_type.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != bytes_by_type.end()) info.file_type = most->first;

  info.fingerprint = file.fingerprint();
  if (info.fingerprint.empty()) {
    info.fingerprint = fingerprint(file);
    for (const GgufPart& part : file.parts()) file.drop_pages(part.content);
  }
  return info;
}

Result<Pooling> load_pooling(const GgufFile& file, std::string_view architecture) {
  const std::string key = fmt::format("{}.pooling_type", architecture);
  HEARTH_ASSIGN_OR_RETURN(const uint32_t type, file.get_or<uint32_t>(key, 0));
  switch (type) {
    case 0: return Pooling::kNone;
    case 1: return Pooling::kMean;
    case 2: return Pooling::kCls;
    case 3: return Pooling::kLast;
    case 4: return Pooling::kRank;
    default: break;
  }
  return Error::corrupt(fmt::format("{}: {}, want 0 to 4", key, type));
}

}  // namespace hearth::models
