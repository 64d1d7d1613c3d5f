#include "models/gguf/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"
#include "models/gguf/byte_cursor.h"
#include "models/gguf/foreign_file.h"

// Layout, all little endian. Source: the GGUF specification (ggml project, docs/gguf.md).
//
//   header     "GGUF"  u32 version (2 or 3)  u64 num_tensors  u64 num_metadata
//   metadata   num_metadata times:  string key  u32 type  value
//                value  fixed-width number, bool (one byte, 0 or 1), string, or
//                       array: u32 element type  u64 count  that many values without a type
//   tensors    num_tensors times:   string name  u32 num_dims  u64 dims[num_dims] (contiguous
//                                   dimension first)  u32 type id  u64 offset
//   padding    to the next multiple of general.alignment (32 if the key is missing)
//   data       tensor i at data + offset[i], each offset a multiple of the alignment
//
//   string     u64 length, that many bytes, no terminator
//
// Version 1 (32-bit counts) dates from August 2023 and was never common; in files of the other byte
// order the version's bytes are swapped. Both are rejected with an error that names the reason.

namespace hearth::models {
namespace {

// Bounds far above any real file; they limit the work on a hostile one.
constexpr uint64_t kMaxMetadata = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 16;
constexpr uint64_t kMaxGgufKeyBytes = (1 << 16) - 1;  // from the specification
constexpr uint64_t kMaxTensorNameBytes = 255;         // the specification says 64
constexpr uint64_t kMaxStringBytes = 64 << 20;        // chat templates, licences
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr int kMaxArrayDepth = 4;
constexpr uint32_t kMaxTensorDims = 4;
constexpr uint32_t kMagic = 0x46554747;  // "GGUF"

// The shortest entry: a one-byte key with a one-byte value; a one-byte name with one dimension.
constexpr uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

/// The usual reason why a file ends too early.
constexpr std::string_view kUnfinished =
    ": an unfinished download? Download it again (hearth pull continues where it stopped)";

template <typename... Args>
Error corrupt_gguf(fmt::format_string<Args...> format, Args&&... args) {
  return Error::corrupt(fmt::format(format, std::forward<Args>(args)...));
}

bool multiply(uint64_t a, uint64_t b, uint64_t* product) {
  return !__builtin_mul_overflow(a, b, product);
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr size_t kMost = 128;
  std::string out;
  for (const char c : text.substr(0, kMost)) {
    const auto byte = byte_of(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out.push_back(c);
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  if (text.size() > kMost) out += "...";
  return out;
}

std::string GgufTensor::shape() const {
  return fmt::format("[{}]", fmt::join(dims.begin(), dims.begin() + num_dims, ","));
}

std::string GgufTensor::type_name() const {
  return dtype ? std::string(kernels::info(*dtype).name) : fmt::format("type {}", type_id);
}

// ---- Parsing --------------------------------------------------------------------------------

class GgufFile::Parser {
 public:
  explicit Parser(GgufFile* file)
      : file_(*file), content_(file->parts_.front().content), in_(content_) {}

  Result<void> run() {
    uint64_t num_tensors = 0, num_metadata = 0;
    HEARTH_TRY(header(&num_tensors, &num_metadata));
    file_.metadata_.reserve(num_metadata);
    for (uint64_t i = 0; i < num_metadata; ++i) HEARTH_TRY(metadata_entry(i));
    HEARTH_TRY(alignment());
    file_.tensors_.reserve(num_tensors);
    for (uint64_t i = 0; i < num_tensors; ++i) HEARTH_TRY(tensor_entry(i));
    return tensor_data();
  }
  /// Something refers past the end of the file.
  bool ended_early() const { return ended_early_; }

 private:
  Result<void> header(uint64_t* num_tensors, uint64_t* num_metadata);
  Result<void> metadata_entry(uint64_t index);
  Result<void> value(GgufEntry* entry);
  Result<void> skip_values(std::string_view key, GgufType type, uint64_t count, int depth);
  Result<void> alignment();
  Result<void> tensor_entry(uint64_t index);
  Result<uint64_t> tensor_bytes(const GgufTensor& tensor) const;
  Result<void> tensor_data();

  template <typename T>
  Result<void> read(T* out, std::string_view owner, std::string_view what) {
    if (!in_.read(out)) return cut_short(owner, what, sizeof(T));
    return {};
  }
  Result<std::string_view> string(uint64_t max_bytes, std::string_view owner,
                                  std::string_view what) {
    uint64_t length = 0;
    HEARTH_TRY(read(&length, owner, what));
    if (length > max_bytes) {
      return corrupt_gguf("{}: {} of {} bytes at byte {}, want at most {}", printable(owner), what,
                          length, in_.offset() - sizeof(length), max_bytes);
    }
    std::span<const std::byte> bytes;
    if (!in_.take(length, &bytes)) return cut_short(owner, what, length);
    return as_text(bytes);
  }
  Error cut_short(std::string_view owner, std::string_view what, uint64_t wanted) {
    ended_early_ = true;
    return corrupt_gguf("{}: {} at byte {} wants {} bytes, the file has {} left", printable(owner),
                        what, in_.offset(), wanted, in_.remaining());
  }

  GgufFile& file_;
  const std::span<const std::byte> content_;
  ByteCursor in_;
  bool ended_early_ = false;
  std::vector<uint64_t> offsets_;  // of tensors, relative to the data section
};

Result<void> GgufFile::Parser::header(uint64_t* num_tensors, uint64_t* num_metadata) {
  uint32_t magic = 0, version = 0;
  const bool some = in_.read(&magic);
  if (!some || magic != kMagic) {
    const std::string known = describe_foreign_file(content_);
    if (!known.empty()) return corrupt_gguf("no GGUF file: {}", known);
    if (!some) return cut_short("header", "magic", sizeof magic);
    return corrupt_gguf("header: magic {:#010x}, want {:#010x} (GGUF)", magic, kMagic);
  }
  HEARTH_TRY(read(&version, "header", "version"));
  if (version != 2 && version != 3) {
    const uint32_t swapped = __builtin_bswap32(version);
    return Error::unsupported(
        swapped >= 1 && swapped <= 3
            ? fmt::format("header: version {} in big-endian byte order, want little-endian",
                          swapped)
            : fmt::format("header: GGUF version {}, want 2 or 3", version));
  }
  HEARTH_TRY(read(num_tensors, "header", "tensor count"));
  HEARTH_TRY(read(num_metadata, "header", "metadata count"));
  const uint64_t most_tensors = std::min(kMaxTensors, in_.remaining() / kMinTensorBytes);
  const uint64_t most_metadata = std::min(kMaxMetadata, in_.remaining() / kMinMetadataBytes);
  if (*num_tensors > most_tensors) {
    return corrupt_gguf("header: {} tensors, want at most {}", *num_tensors, most_tensors);
  }
  if (*num_metadata > most_metadata) {
    return corrupt_gguf("header: {} metadata entries, want at most {}", *num_metadata,
                        most_metadata);
  }
  file_.version_ = version;
  return {};
}

Result<void> GgufFile::Parser::metadata_entry(uint64_t index) {
  GgufEntry entry;
  const std::string place = fmt::format("metadata entry {}", index);
  HEARTH_ASSIGN_OR_RETURN(entry.key, string(kMaxGgufKeyBytes, place, "key"));
  if (entry.key.empty()) return corrupt_gguf("{}: empty key", place);
  uint32_t type = 0;
  HEARTH_TRY(read(&type, entry.key, "type"));
  entry.type = entry.element_type = static_cast<GgufType>(type);
  HEARTH_TRY(value(&entry));
  if (!file_.metadata_index_.emplace(entry.key, file_.metadata_.size()).second) {
    return corrupt_gguf("{}: the key is there twice", printable(entry.key));
  }
  file_.metadata_.push_back(entry);
  return {};
}

Result<void> GgufFile::Parser::value(GgufEntry* entry) {
  if (entry->type == GgufType::kString) {
    HEARTH_ASSIGN_OR_RETURN(const std::string_view text,
                            string(kMaxStringBytes, entry->key, "string"));
    entry->payload = std::as_bytes(std::span(text.data(), text.size()));
    return {};
  }
  if (entry->type == GgufType::kArray) {
    uint32_t element_type = 0;
    HEARTH_TRY(read(&element_type, entry->key, "element type"));
    HEARTH_TRY(read(&entry->count, entry->key, "element count"));
    entry->element_type = static_cast<GgufType>(element_type);
  }
  const uint64_t begin = in_.offset();
  HEARTH_TRY(skip_values(entry->key, entry->element_type, entry->count, 1));
  entry->payload = content_.subspan(begin, in_.offset() - begin);
  return {};
}

// Skips `count` values of one type. Every element takes at least one byte of the file (a string 8,
// an array 12), so the file's size bounds the work for any `count`.
Result<void> GgufFile::Parser::skip_values(std::string_view key, GgufType type, uint64_t count,
                                           int depth) {
  if (const uint32_t width = fixed_bytes(type); width != 0) {
    std::span<const std::byte> bytes;
    uint64_t total = 0;
    if (!multiply(count, width, &total) || !in_.take(total, &bytes)) {
      return corrupt_gguf("{}: {} values of type {} at byte {}, the file has {} bytes left",
                          printable(key), count, models::name(type), in_.offset(), in_.remaining());
    }
    if (type == GgufType::kBool) {
      for (const std::byte b : bytes) {
        if (b > std::byte{1}) {
          return corrupt_gguf("{}: bool of value {}, want 0 or 1", printable(key),
                              std::to_integer<int>(b));
        }
      }
    }
    return {};
  }
  if (type == GgufType::kString) {
    for (uint64_t i = 0; i < count; ++i) {
      HEARTH_TRY(string(kMaxStringBytes, key, "string"));
    }
    return {};
  }
  if (type != GgufType::kArray) {
    return corrupt_gguf("{}: value type {}, want 0 to 12", printable(key), to_underlying(type));
  }
  if (depth == kMaxArrayDepth) {
    return corrupt_gguf("{}: arrays nested more than {} deep", printable(key), kMaxArrayDepth);
  }
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t inner_type = 0;
    uint64_t inner_count = 0;
    HEARTH_TRY(read(&inner_type, key, "element type"));
    HEARTH_TRY(read(&inner_count, key, "element count"));
    HEARTH_TRY(skip_values(key, static_cast<GgufType>(inner_type), inner_count, depth + 1));
  }
  return {};
}

Result<void> GgufFile::Parser::alignment() {
  HEARTH_ASSIGN_OR_RETURN(const uint32_t value, file_.get_or<uint32_t>("general.alignment", 32));
  if (value == 0 || value > kMaxAlignment || (value & (value - 1)) != 0) {
    return corrupt_gguf("general.alignment: {}, want a power of two up to {}", value,
                        kMaxAlignment);
  }
  file_.alignment_ = value;
  return {};
}

Result<void> GgufFile::Parser::tensor_entry(uint64_t index) {
  GgufTensor tensor;
  const std::string place = fmt::format("tensor entry {}", index);
  HEARTH_ASSIGN_OR_RETURN(tensor.name, string(kMaxTensorNameBytes, place, "name"));
  if (tensor.name.empty()) return corrupt_gguf("{}: empty name", place);
  HEARTH_TRY(read(&tensor.num_dims, tensor.name, "dimension count"));
  if (tensor.num_dims == 0 || tensor.num_dims > kMaxTensorDims) {
    return corrupt_gguf("{}: {} dimensions, want 1 to {}", printable(tensor.name), tensor.num_dims,
                        kMaxTensorDims);
  }
  uint64_t elements = 1;
  for (uint32_t d = 0; d < tensor.num_dims; ++d) {
    HEARTH_TRY(read(&tensor.dims[d], tensor.name, "dimension"));
    if (tensor.dims[d] == 0 || !multiply(elements, tensor.dims[d], &elements) ||
        elements > uint64_t{INT64_MAX}) {
      return corrupt_gguf("{}: shape [{}], want dimensions of at least 1 and a product below 2^63",
                          printable(tensor.name),
                          fmt::join(tensor.dims.begin(), tensor.dims.begin() + d + 1, ","));
    }
  }
  uint64_t offset = 0;
  HEARTH_TRY(read(&tensor.type_id, tensor.name, "type"));
  HEARTH_TRY(read(&offset, tensor.name, "offset"));
  if (offset % file_.alignment_ != 0) {
    return corrupt_gguf("{}: offset {}, want a multiple of {}", printable(tensor.name), offset,
                        file_.alignment_);
  }
  tensor.dtype = kernels::dtype_from_gguf(tensor.type_id);
  if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
    return corrupt_gguf("{}: the tensor is there twice", printable(tensor.name));
  }
  file_.tensors_.push_back(tensor);
  offsets_.push_back(offset);
  return {};
}

Result<uint64_t> GgufFile::Parser::tensor_bytes(const GgufTensor& tensor) const {
  const kernels::DTypeInfo& type = kernels::info(*tensor.dtype);
  const uint64_t block = type.block_elements;
  if (tensor.dims[0] % block != 0) {
    return corrupt_gguf("{}: {} with rows of {} elements, want a multiple of {}",
                        printable(tensor.name), type.name, tensor.dims[0], block);
  }
  uint64_t bytes = 0;
  if (!multiply(tensor.num_elements() / block, type.block_bytes, &bytes)) {
    return corrupt_gguf("{}: shape {} of {} is too large to count", printable(tensor.name),
                        tensor.shape(), type.name);
  }
  return bytes;
}

// Checks that every tensor lies inside the file and no two share bytes.
Result<void> GgufFile::Parser::tensor_data() {
  if (file_.tensors_.empty()) return {};  // such files may end without the padding
  const uint64_t size = content_.size();
  const uint64_t data = (in_.offset() + file_.alignment_ - 1) / file_.alignment_ * file_.alignment_;
  const uint64_t room = data < size ? size - data : 0;
  std::vector<size_t> placed;
  for (size_t i = 0; i < file_.tensors_.size(); ++i) {
    GgufTensor& tensor = file_.tensors_[i];
    if (!tensor.dtype) {
      if (offsets_[i] < room) continue;  // its size is unknown; only using it is an error
      return corrupt_gguf("{}: data at offset {}, the file has {} bytes of tensor data",
                          printable(tensor.name), offsets_[i], room);
    }
    HEARTH_ASSIGN_OR_RETURN(const uint64_t bytes, tensor_bytes(tensor));
    if (offsets_[i] > room || bytes > room - offsets_[i]) {
      ended_early_ = true;
      return corrupt_gguf("{}: {} bytes at offset {}, the file has {} bytes of tensor data",
                          printable(tensor.name), bytes, offsets_[i], room);
    }
    tensor.bytes = content_.subspan(data + offsets_[i], bytes);
    placed.push_back(i);
  }
  std::sort(placed.begin(), placed.end(),
            [this](size_t a, size_t b) { return offsets_[a] < offsets_[b]; });
  for (size_t k = 1; k < placed.size(); ++k) {
    const GgufTensor& before = file_.tensors_[placed[k - 1]];
    if (offsets_[placed[k - 1]] + before.bytes.size() > offsets_[placed[k]]) {
      return corrupt_gguf("{}: data at offset {} overlaps that of {}",
                          printable(file_.tensors_[placed[k]].name), offsets_[placed[k]],
                          printable(before.name));
    }
  }
  return {};
}

Result<GgufFile> GgufFile::parse_part(GgufPart part) {
  GgufFile file;
  file.parts_.push_back(std::move(part));
  Parser parser(&file);
  if (Result<void> parsed = parser.run(); !parsed.ok()) {
    Error error = parsed.take_error();
    if (parser.ended_early() && file.parts_.front().mapping != nullptr) {
      error.message += kUnfinished;
    }
    return error;
  }
  return file;
}

// ---- Access ---------------------------------------------------------------------------------

const GgufEntry* GgufFile::find(std::string_view key) const {
  const auto at = metadata_index_.find(key);
  return at == metadata_index_.end() ? nullptr : &metadata_[at->second];
}

const GgufTensor* GgufFile::find_tensor(std::string_view tensor_name) const {
  const auto at = tensor_index_.find(tensor_name);
  return at == tensor_index_.end() ? nullptr : &tensors_[at->second];
}

namespace {

Error wrong_type(const GgufEntry& entry, std::string_view wanted) {
  if (entry.type == GgufType::kArray) {
    return corrupt_gguf("{}: array of {}, want {}", printable(entry.key), name(entry.element_type),
                        wanted);
  }
  return corrupt_gguf("{}: {}, want {}", printable(entry.key), name(entry.type), wanted);
}

std::string text_of(GgufInteger value) {
  return value.negative ? fmt::format("{}", static_cast<int64_t>(value.bits))
                        : fmt::format("{}", value.bits);
}

template <typename T>
Result<void> check_integer(const GgufEntry& entry, GgufInteger value) {
  if (value.fits<T>()) return {};
  return corrupt_gguf("{}: {}, want {} to {}", printable(entry.key), text_of(value),
                      std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
}

template <typename T>
Result<void> convert_integer(const GgufEntry& entry, T* out) {
  if (!is_integer(entry.type)) return wrong_type(entry, "an integer");
  const GgufInteger value = load_integer(entry.type, entry.payload.data());
  HEARTH_TRY(check_integer<T>(entry, value));
  *out = static_cast<T>(value.bits);
  return {};
}

Result<void> convert(const GgufEntry& entry, uint32_t* out) { return convert_integer(entry, out); }
Result<void> convert(const GgufEntry& entry, int32_t* out) { return convert_integer(entry, out); }
Result<void> convert(const GgufEntry& entry, uint64_t* out) { return convert_integer(entry, out); }

Result<void> convert(const GgufEntry& entry, float* out) {
  if (entry.type != GgufType::kF32 && entry.type != GgufType::kF64) {
    return wrong_type(entry, "a floating-point number");
  }
  *out = GgufNumbers<float>(entry)[0];
  if (!std::isfinite(*out)) {
    return corrupt_gguf("{}: {}, want a finite number", printable(entry.key), *out);
  }
  return {};
}

Result<void> convert(const GgufEntry& entry, bool* out) {
  if (entry.type != GgufType::kBool) return wrong_type(entry, "a bool");
  *out = entry.payload[0] == std::byte{1};
  return {};
}

Result<void> convert(const GgufEntry& entry, std::string_view* out) {
  if (entry.type != GgufType::kString) return wrong_type(entry, "a string");
  *out = as_text(entry.payload);
  return {};
}

Result<void> convert(const GgufEntry& entry, GgufStrings* out) {
  if (entry.type != GgufType::kArray || entry.element_type != GgufType::kString) {
    return wrong_type(entry, "an array of strings");
  }
  *out = GgufStrings(entry);
  return {};
}

Result<void> convert(const GgufEntry& entry, GgufNumbers<int32_t>* out) {
  if (entry.type != GgufType::kArray || !is_integer(entry.element_type)) {
    return wrong_type(entry, "an array of integers");
  }
  const uint32_t width = fixed_bytes(entry.element_type);
  for (uint64_t i = 0; i < entry.count; ++i) {
    HEARTH_TRY(check_integer<int32_t>(
        entry, load_integer(entry.element_type, entry.payload.data() + i * width)));
  }
  *out = GgufNumbers<int32_t>(entry);
  return {};
}

Result<void> convert(const GgufEntry& entry, GgufNumbers<float>* out) {
  if (entry.type != GgufType::kArray ||
      (entry.element_type != GgufType::kF32 && entry.element_type != GgufType::kF64)) {
    return wrong_type(entry, "an array of floating-point numbers");
  }
  const GgufNumbers<float> numbers(entry);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!std::isfinite(numbers[i])) {
      return corrupt_gguf("{}: element {} is {}, want finite numbers", printable(entry.key), i,
                          numbers[i]);
    }
  }
  *out = numbers;
  return {};
}

}  // namespace

template <typename T>
Result<T> GgufFile::get(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return corrupt_gguf("{}: missing", printable(key));
  T value{};
  HEARTH_TRY(convert(*entry, &value));
  return value;
}

template Result<uint32_t> GgufFile::get(std::string_view) const;
template Result<int32_t> GgufFile::get(std::string_view) const;
template Result<uint64_t> GgufFile::get(std::string_view) const;
template Result<float> GgufFile::get(std::string_view) const;
template Result<bool> GgufFile::get(std::string_view) const;
template Result<std::string_view> GgufFile::get(std::string_view) const;
template Result<GgufStrings> GgufFile::get(std::string_view) const;
template Result<GgufNumbers<int32_t>> GgufFile::get(std::string_view) const;
template Result<GgufNumbers<float>> GgufFile::get(std::string_view) const;

}  // namespace hearth::models
