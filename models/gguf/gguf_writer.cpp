#include "models/gguf/gguf_writer.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "models/gguf/encode_floats.h"
#include "models/gguf/part_file.h"

namespace hearth::models {
namespace {

constexpr uint64_t kAlignment = kGgufAlignment;

template <typename T>
void append(std::vector<std::byte>* out, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out->insert(out->end(), bytes, bytes + sizeof(T));
}

void append_string(std::vector<std::byte>* out, std::string_view text) {
  append<uint64_t>(out, text.size());
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  out->insert(out->end(), bytes, bytes + text.size());
}

void append_array_head(std::vector<std::byte>* out, GgufType element_type, size_t count) {
  append(out, to_underlying(element_type));
  append<uint64_t>(out, count);
}

uint64_t padding(uint64_t size) { return (kAlignment - size % kAlignment) % kAlignment; }

}  // namespace

void GgufWriter::begin_entry(std::string_view key, GgufType type) {
  HEARTH_CHECK(std::find(keys_.begin(), keys_.end(), key) == keys_.end(), "{} twice", key);
  keys_.emplace_back(key);
  append_string(&metadata_, key);
  append(&metadata_, to_underlying(type));
}

void GgufWriter::set_u32(std::string_view key, uint32_t value) {
  begin_entry(key, GgufType::kU32);
  append(&metadata_, value);
}

void GgufWriter::set_f32(std::string_view key, float value) {
  begin_entry(key, GgufType::kF32);
  append(&metadata_, value);
}

void GgufWriter::set_bool(std::string_view key, bool value) {
  begin_entry(key, GgufType::kBool);
  append<uint8_t>(&metadata_, value ? 1 : 0);
}

void GgufWriter::set_string(std::string_view key, std::string_view value) {
  begin_entry(key, GgufType::kString);
  append_string(&metadata_, value);
}

void GgufWriter::set_strings(std::string_view key, std::span<const std::string> values) {
  begin_entry(key, GgufType::kArray);
  append_array_head(&metadata_, GgufType::kString, values.size());
  for (const std::string& value : values) append_string(&metadata_, value);
}

void GgufWriter::set_i32s(std::string_view key, std::span<const int32_t> values) {
  begin_entry(key, GgufType::kArray);
  append_array_head(&metadata_, GgufType::kI32, values.size());
  for (const int32_t value : values) append(&metadata_, value);
}

void GgufWriter::set_bools(std::string_view key, const std::vector<bool>& values) {
  begin_entry(key, GgufType::kArray);
  append_array_head(&metadata_, GgufType::kBool, values.size());
  for (const bool value : values) append<uint8_t>(&metadata_, value ? 1 : 0);
}

void GgufWriter::set_f32s(std::string_view key, std::span<const float> values) {
  begin_entry(key, GgufType::kArray);
  append_array_head(&metadata_, GgufType::kF32, values.size());
  for (const float value : values) append(&metadata_, value);
}

void GgufWriter::copy(const GgufEntry& entry) {
  begin_entry(entry.key, entry.type);
  if (entry.type == GgufType::kArray) {
    append_array_head(&metadata_, entry.element_type, entry.count);
  } else if (entry.type == GgufType::kString) {
    append<uint64_t>(&metadata_, entry.payload.size());
  }
  metadata_.insert(metadata_.end(), entry.payload.begin(), entry.payload.end());
}

void GgufWriter::declare_tensor(std::string_view name, std::span<const uint64_t> dims,
                                kernels::DType dtype) {
  HEARTH_CHECK(!dims.empty() && dims.size() <= 4, "{}: {} dims", name, dims.size());
  uint64_t elements = 1;
  for (const uint64_t dim : dims) elements *= dim;
  HEARTH_CHECK(dims[0] % kernels::info(dtype).block_elements == 0, "{}: rows of {} elements of {}",
               name, dims[0], kernels::info(dtype).name);
  for (const Tensor& other : tensors_) HEARTH_CHECK(other.name != name, "{} twice", name);
  tensors_.push_back({std::string(name),
                      {dims.begin(), dims.end()},
                      dtype,
                      kernels::bytes_of(dtype, elements),
                      {}});
}

void GgufWriter::add_tensor(std::string_view name, std::span<const uint64_t> dims,
                            kernels::DType dtype, std::vector<std::byte> bytes) {
  declare_tensor(name, dims, dtype);
  Tensor& tensor = tensors_.back();
  HEARTH_CHECK(bytes.size() == tensor.size, "{}: {} bytes, want {} of {}", name, bytes.size(),
               tensor.size, kernels::info(dtype).name);
  tensor.bytes = std::move(bytes);
}

void GgufWriter::check_complete() const {
  for (const Tensor& tensor : tensors_) {
    HEARTH_CHECK(tensor.bytes.size() == tensor.size, "{} was only declared", tensor.name);
  }
}

void GgufWriter::add_floats(std::string_view name, std::span<const uint64_t> dims,
                            kernels::DType dtype, std::span<const float> values) {
  add_tensor(name, dims, dtype, encode_floats(dtype, values));
}

std::vector<std::byte> GgufWriter::header() const {
  std::vector<std::byte> out;
  for (const char c : {'G', 'G', 'U', 'F'}) append(&out, c);
  append<uint32_t>(&out, 3);
  append<uint64_t>(&out, tensors_.size());
  append<uint64_t>(&out, keys_.size());
  out.insert(out.end(), metadata_.begin(), metadata_.end());
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    append_string(&out, tensor.name);
    append(&out, narrow<uint32_t>(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) append(&out, dim);
    append(&out, uint32_t{to_underlying(tensor.dtype)});
    append(&out, offset);
    offset += tensor.size + padding(tensor.size);
  }
  out.resize(out.size() + padding(out.size()));
  return out;
}

std::vector<std::byte> GgufWriter::bytes() const {
  check_complete();
  std::vector<std::byte> out = header();
  for (const Tensor& tensor : tensors_) {
    out.insert(out.end(), tensor.bytes.begin(), tensor.bytes.end());
    out.resize(out.size() + padding(tensor.bytes.size()));
  }
  return out;
}

Result<void> GgufWriter::write(const std::filesystem::path& path) const {
  check_complete();
  HEARTH_ASSIGN_OR_RETURN(PartFile file, PartFile::create(path));
  HEARTH_TRY(file.append(header()));
  constexpr std::byte kZeros[kAlignment] = {};
  for (const Tensor& tensor : tensors_) {
    HEARTH_TRY(file.append(tensor.bytes));
    HEARTH_TRY(file.append({kZeros, padding(tensor.size)}));
  }
  return file.finish();
}

}  // namespace hearth::models
