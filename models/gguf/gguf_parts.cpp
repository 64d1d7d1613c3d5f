#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/base/numbers.h"
#include "kernels/base/split_name.h"
#include "models/gguf/gguf_file.h"

// A model that is split into several files. Source: gguf-split (llama.cpp, tools/gguf-split).
//
//   file name  NAME-0000k-of-0000N.gguf, k from 1
//   each part  is a GGUF file with the tensors whose data it holds, and the keys
//                split.no             k - 1
//                split.count          N
//                split.tensors.count  tensors of all parts together
//   part 1     has all other metadata, too; it may have no tensors

namespace hearth::models {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kNumber = "split.no", kCount = "split.count",
                           kTensors = "split.tensors.count", kArchitecture = "general.architecture";
constexpr uint64_t kMaxJoinedTensors = 1 << 16;  // as in one file
constexpr size_t kMaxListed = 8;

Error named(const GgufPart& part, Error error) {
  error.message = fmt::format("{}: {}", part.name, error.message);
  return error;
}

Error disagrees(const GgufPart& part, std::string_view key, const std::string& met,
                const std::string& wanted) {
  return Error::corrupt(fmt::format("{}: {}: {}, want {}", part.name, key, met, wanted));
}

/// The file is the whole model, not one of several parts. A key of another type is ignored.
Result<void> check_whole(const GgufFile& file, const std::string& name) {
  const auto count = file.get_or<uint32_t>(kCount, 1);
  if (!count.ok() || count.value() <= 1) return {};
  const auto number = file.get_or<uint32_t>(kNumber, 0);
  const uint64_t part = uint64_t{number.ok() ? number.value() : 0} + 1;
  return Error::unsupported(fmt::format(
      "this is part {} of {} of a model, want it under the name {}-{:05}-of-{:05}.gguf, next to "
      "the other parts; at most {} parts are read",
      part, count.value(), name, part, count.value(), kMaxModelParts));
}

Result<void> check_number(const GgufFile& file, uint32_t key, std::string_view name) {
  HEARTH_ASSIGN_OR_RETURN(const uint32_t met, file.get<uint32_t>(name));
  if (met == key) return {};
  return Error::corrupt(fmt::format("{}: {}, want {}", name, met, key));
}

/// `file` by itself is part `index`, from 0, of `count`.
Result<void> check_part(const GgufFile& file, uint32_t index, uint32_t count) {
  HEARTH_TRY(check_number(file, count, kCount));
  HEARTH_TRY(check_number(file, index, kNumber));
  HEARTH_TRY(file.get<uint32_t>(kTensors));
  return {};
}

}  // namespace

// Adds one more part, which was parsed by itself, if it belongs to the same model.
Result<void> GgufFile::append(GgufFile next) {
  GgufPart& part = next.parts_.front();
  const uint32_t ours = get<uint32_t>(kTensors).value(), its = next.get<uint32_t>(kTensors).value();
  if (its != ours) {
    return disagrees(
        part, kTensors, fmt::format("{}", its),
        fmt::format("{} as in {}: a part of another model?", ours, parts_.front().name));
  }
  const auto architecture = get<std::string_view>(kArchitecture);
  const auto other = next.get<std::string_view>(kArchitecture);  // usually missing
  if (architecture.ok() && other.ok() && *other != *architecture) {
    return disagrees(part, kArchitecture, printable(*other),
                     fmt::format("{} as in {}: a part of another model?", printable(*architecture),
                                 parts_.front().name));
  }
  part.begin = file_bytes();
  for (const GgufTensor& tensor : next.tensors_) {
    const auto [at, added] = tensor_index_.emplace(tensor.name, tensors_.size());
    if (!added) {
      return Error::corrupt(fmt::format("{}: {}: the tensor is in {}, too", part.name,
                                        printable(tensor.name),
                                        part_of(std::as_bytes(std::span(at->first))).name));
    }
    tensors_.push_back(tensor);
    if (tensors_.size() > std::min<uint64_t>(ours, kMaxJoinedTensors)) {
      return Error::corrupt(fmt::format("{}: {}: one tensor more than {}: {} and the bound of {}",
                                        part.name, printable(tensor.name), kTensors, ours,
                                        kMaxJoinedTensors));
    }
  }
  parts_.push_back(std::move(part));
  return {};
}

Result<void> GgufFile::check_all_there() const {
  const uint32_t wanted = get<uint32_t>(kTensors).value();
  if (tensors_.size() == wanted) return {};
  return disagrees(parts_.front(), kTensors, fmt::format("{}", wanted),
                   fmt::format("{}, the number in all {} parts", tensors_.size(), parts_.size()));
}

void GgufFile::remove_split_keys() {
  std::erase_if(metadata_, [](const GgufEntry& entry) {
    return entry.key == kNumber || entry.key == kCount || entry.key == kTensors;
  });
  metadata_index_.clear();
  for (size_t i = 0; i < metadata_.size(); ++i) metadata_index_.emplace(metadata_[i].key, i);
}

Result<GgufFile> GgufFile::join(std::vector<GgufPart> parts, std::string name) {
  const auto count = narrow<uint32_t>(parts.size());
  if (count == 1) {
    HEARTH_ASSIGN_OR_RETURN(GgufFile file, parse_part(std::move(parts.front())));
    HEARTH_TRY(check_whole(file, name));
    file.name_ = std::move(name);
    return file;
  }
  std::optional<GgufFile> whole;
  for (uint32_t i = 0; i < count; ++i) {
    const GgufPart part = parts[i];
    Result<GgufFile> parsed = parse_part(std::move(parts[i]));
    if (!parsed.ok()) return named(part, parsed.take_error());
    if (Result<void> fits = check_part(*parsed, i, count); !fits.ok()) {
      return named(part, fits.take_error());
    }
    if (whole) {
      HEARTH_TRY(whole->append(std::move(parsed).value()));
    } else {
      whole = std::move(parsed).value();
    }
  }
  HEARTH_TRY(whole->check_all_there());
  whole->remove_split_keys();
  whole->name_ = std::move(name);
  return std::move(*whole);
}

Result<GgufFile> GgufFile::open(const fs::path& given) {
  const fs::path path = find_split_model(given);
  const std::vector<fs::path> files = parts_of_model(path);
  std::vector<GgufPart> parts;
  std::vector<std::string> missing;
  for (const fs::path& file : files) {
    Result<FileMapping> mapping = FileMapping::open(file);
    if (!mapping.ok()) {
      if (files.size() == 1 || mapping.error().code != ErrorCode::kNotFound) return mapping.error();
      missing.push_back(file.filename().string());
      continue;
    }
    auto shared = std::make_shared<const FileMapping>(std::move(mapping).value());
    parts.push_back({.name = file.filename().string(),
                     .content = shared->bytes(),
                     .mapping = std::move(shared)});
  }
  if (!missing.empty()) {
    const size_t left_out = missing.size() - std::min(missing.size(), kMaxListed);
    missing.resize(missing.size() - left_out);
    return Error::not_found(
        fmt::format("{}: missing: {}{}; all {} parts of a model have to be in one folder",
                    path.string(), fmt::join(missing, ", "),
                    left_out > 0 ? fmt::format(" and {} more", left_out) : "", files.size()));
  }
  return join(std::move(parts), model_stem(path.stem().string()));
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> content, std::string name) {
  GgufPart part{.name = name, .content = content};
  return join({std::move(part)}, std::move(name));
}

Result<GgufFile> GgufFile::parse_parts(std::span<const std::span<const std::byte>> contents,
                                       std::string name) {
  const SplitName names{.base = name, .parts = narrow<uint32_t>(contents.size())};
  std::vector<GgufPart> parts;
  for (const std::span<const std::byte> content : contents) {
    parts.push_back(
        {.name = names.stem_of(narrow<uint32_t>(parts.size()) + 1), .content = content});
  }
  return join(std::move(parts), std::move(name));
}

// ---- Parts ----------------------------------------------------------------------------------

const GgufPart& GgufFile::part_of(std::span<const std::byte> bytes) const {
  const auto holds = [bytes](const GgufPart& part) {
    const std::byte* const end = part.content.data() + part.content.size();
    return std::less_equal<>()(part.content.data(), bytes.data()) &&
           std::less<>()(bytes.data(), end);
  };
  const auto found = std::ranges::find_if(parts_, holds);
  return found == parts_.end() ? parts_.front() : *found;
}

Result<std::vector<ReadableFile>> GgufFile::duplicate_files() const {
  std::vector<ReadableFile> out;
  for (const GgufPart& part : parts_) {
    if (part.mapping == nullptr) continue;
    HEARTH_ASSIGN_OR_RETURN(ReadableFile file, part.mapping->file().duplicate());
    out.push_back(std::move(file));
  }
  return out;
}

void GgufFile::drop_pages(std::span<const std::byte> bytes) const {
  const GgufPart& part = part_of(bytes);
  if (part.mapping != nullptr) part.mapping->drop_pages(bytes);
}

bool GgufFile::is_cached(std::span<const std::byte> bytes) const {
  const GgufPart& part = part_of(bytes);
  return part.mapping != nullptr && part.mapping->in_page_cache(bytes);
}

std::shared_ptr<const kernels::TensorSource> GgufFile::keep_mapped(
    std::span<const std::byte> bytes) const {
  return part_of(bytes).mapping;
}

}  // namespace hearth::models
