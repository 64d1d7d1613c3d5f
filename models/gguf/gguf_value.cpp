#include "models/gguf/gguf_value.h"

#include <array>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"

namespace hearth::models {
namespace {

struct TypeFacts {
  std::string_view name;
  uint32_t bytes;
  bool integer;
};

// In the order of the ids.
constexpr std::array<TypeFacts, 13> kValueTypes = {{
    {"u8", 1, true},
    {"i8", 1, true},
    {"u16", 2, true},
    {"i16", 2, true},
    {"u32", 4, true},
    {"i32", 4, true},
    {"f32", 4, false},
    {"bool", 1, false},
    {"string", 0, false},
    {"array", 0, false},
    {"u64", 8, true},
    {"i64", 8, true},
    {"f64", 8, false},
}};

constexpr TypeFacts kUnknownType = {"unknown", 0, false};

const TypeFacts& facts(GgufType type) {
  const auto id = to_underlying(type);
  return id < kValueTypes.size() ? kValueTypes[id] : kUnknownType;
}

template <typename T>
GgufInteger integer_of(T value) {
  return {static_cast<uint64_t>(value), value < 0};
}

}  // namespace

std::string_view name(GgufType type) { return facts(type).name; }
uint32_t fixed_bytes(GgufType type) { return facts(type).bytes; }
bool is_integer(GgufType type) { return facts(type).integer; }

GgufInteger load_integer(GgufType type, const std::byte* from) {
  switch (type) {
    case GgufType::kU8: return {load_unaligned<uint8_t>(from), false};
    case GgufType::kI8: return integer_of(load_unaligned<int8_t>(from));
    case GgufType::kU16: return {load_unaligned<uint16_t>(from), false};
    case GgufType::kI16: return integer_of(load_unaligned<int16_t>(from));
    case GgufType::kU32: return {load_unaligned<uint32_t>(from), false};
    case GgufType::kI32: return integer_of(load_unaligned<int32_t>(from));
    case GgufType::kU64: return {load_unaligned<uint64_t>(from), false};
    case GgufType::kI64: return integer_of(load_unaligned<int64_t>(from));
    default: break;
  }
  HEARTH_CHECK(false, "{} is not an integer", name(type));
  return {};
}

}  // namespace hearth::models
