#include "kernels/quant/quant_group.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/quant/blocks.h"
#include "kernels/quant/quant_layout.h"

namespace hearth::kernels {
namespace {

constexpr int kGroupLanes = 16;

/// Where one block of one lane lies in its group, for placing rows and for reading them.
struct BlockParts {
  const QuantLayout& layout;
  int lane;
  uint8_t* head;
  uint8_t* body;

  uint8_t* plane(int b) const { return body + b * layout.plane_bytes(); }
  uint8_t* scales() const { return body + layout.block / 32 * layout.plane_bytes() + lane; }
  uint8_t* high_scale(int b) const { return head + 32 + b / 4 * kGroupLanes + lane; }  // kOneSix
  uint8_t* head_scale(int s) const { return head + s * kGroupLanes + lane; }           // kUe4m3
};

void put_half(uint16_t bits, uint8_t* to) { std::memcpy(to, &bits, sizeof bits); }
uint16_t get_half(const uint8_t* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

uint32_t four(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

/// Stores word j of a lane's plane.
void put_word(uint8_t* plane, int j, uint32_t word) { std::memcpy(plane + j * 64, &word, 4); }

/// Shifting a word brings in bits of the neighbouring byte; these masks remove them.
constexpr uint32_t kLow = 0x0f0f0f0f;
constexpr uint32_t kTwo = 0x03030303;
constexpr uint32_t kOne = 0x01010101;

/// 16 stored bytes, value i low and value 16 + i high: stored unchanged as a plane of nibbles.
void put_nibbles(const uint8_t* qs, uint8_t* plane) {
  for (int j = 0; j < 4; ++j) put_word(plane, j, four(qs + 4 * j));
}

/// 32 stored bytes, one sub-block low and the next one high.
void put_nibble_pair(const uint8_t* qs, uint8_t* low, uint8_t* high) {
  for (int j = 0; j < 4; ++j) {
    const uint32_t first = four(qs + 4 * j), second = four(qs + 16 + 4 * j);
    put_word(low, j, (first & kLow) | (second & kLow) << 4);
    put_word(high, j, (first >> 4 & kLow) | (second & ~kLow));
  }
}

/// 32 stored bytes: field f of two bits of each.
void put_twos(const uint8_t* qs, int f, uint8_t* plane) {
  for (int j = 0; j < 2; ++j) {
    uint32_t fields = 0;
    for (int i = 0; i < 4; ++i) fields |= (four(qs + 16 * j + 4 * i) >> 2 * f & kTwo) << 2 * i;
    put_word(plane, j, fields);
  }
}

/// 32 stored bytes, bit `bit` of each.
void put_ones(const uint8_t* qh, int bit, uint8_t* plane) {
  uint32_t bits = 0;
  for (int j = 0; j < 8; ++j) bits |= (four(qh + 4 * j) >> bit & kOne) << j;
  put_word(plane, 0, bits);
}

/// 4 stored bytes, bit i for value i.
void put_ones_of_32(const uint8_t* qh, uint8_t* plane) {
  const uint32_t stored = four(qh);
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) {
    // Every fourth bit, starting with bit i, gathered into a byte.
    uint32_t each = stored >> i & 0x11111111;
    each = (each | each >> 3) & 0x03030303;
    each = (each | each >> 6) & 0x000f000f;
    bits |= ((each | each >> 12) & 0xff) << 8 * i;
  }
  put_word(plane, 0, bits);
}

/// Whether a group has these types' codes in other bits than the file.
template <DType kType>
inline constexpr bool kSpreads = quant_index(kType) >= quant_index(DType::kTQ1_0);

/// 32 codes, one per byte, in all planes that the layout has.
template <DType kType>
void put_apart(const uint8_t* q, uint8_t* plane) {
  static constexpr QuantLayout kLayout = quant_layout(kType);
  if constexpr (kLayout.nibbles) {
    for (int j = 0; j < 4; ++j) put_word(plane, j, four(q + 4 * j) | four(q + 16 + 4 * j) << 4);
  } else {
    put_twos(q, 0, plane);
    if constexpr (kLayout.ones) put_ones(q, 2, plane + 128);
  }
}

/// Stores a block's codes in the planes of its 32-blocks. Copies bytes of the file to bytes of the
/// group with as little work as possible, because loading a model waits for this.
template <DType kType>
void put_codes(const BlockParts& at, const uint8_t* block) {
  const auto plane = [&at](int b) { return at.plane(b) + at.lane * 4; };
  if constexpr (kType == DType::kQ4_0 || kType == DType::kIQ4_NL) {
    put_nibbles(block + offsetof(stored::Q4_0, qs), plane(0));
  } else if constexpr (kType == DType::kQ4_1) {
    put_nibbles(block + offsetof(stored::Q4_1, qs), plane(0));
  } else if constexpr (kType == DType::kMXFP4) {
    put_nibbles(block + offsetof(stored::MXFP4, qs), plane(0));
  } else if constexpr (kType == DType::kQ5_0 || kType == DType::kQ5_1) {
    using Block = std::conditional_t<kType == DType::kQ5_0, stored::Q5_0, stored::Q5_1>;
    put_nibbles(block + offsetof(Block, qs), plane(0));
    put_ones_of_32(block + offsetof(Block, qh), plane(0) + 256);
  } else if constexpr (kType == DType::kIQ4_XS) {
    for (int b = 0; b < 8; ++b) {
      put_nibbles(block + offsetof(stored::IQ4_XS, qs) + 16 * b, plane(b));
    }
  } else if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
    using Block = std::conditional_t<kType == DType::kQ4_K, stored::Q4_K, stored::Q5_K>;
    for (int b = 0; b < 8; b += 2) {
      put_nibble_pair(block + offsetof(Block, qs) + 16 * b, plane(b), plane(b + 1));
    }
    if constexpr (kType == DType::kQ5_K) {
      for (int b = 0; b < 8; ++b) put_ones(block + offsetof(Block, qh), b, plane(b) + 256);
    }
  } else if constexpr (kType == DType::kQ6_K) {
    for (int b = 0; b < 8; ++b) {
      if (b % 4 < 2) {  // its nibbles are the low ones; those of b + 2 are the high ones
        put_nibble_pair(block + b / 4 * 64 + b % 4 * 32, plane(b), plane(b + 2));
      }
      put_twos(block + offsetof(stored::Q6_K, qh) + b / 4 * 32, b % 4, plane(b) + 256);
    }
  } else {
    static_assert(kType == DType::kQ2_K || kType == DType::kQ3_K);
    using Block = std::conditional_t<kType == DType::kQ2_K, stored::Q2_K, stored::Q3_K>;
    for (int b = 0; b < 8; ++b) {
      put_twos(block + offsetof(Block, qs) + b / 4 * 32, b % 4, plane(b));
      if constexpr (kType == DType::kQ3_K) put_ones(block, b, plane(b) + 128);
    }
  }
}

void get_codes(const BlockParts& at, int b, uint8_t* q) {
  const uint8_t* plane = at.plane(b) + at.lane * 4;
  const QuantLayout& layout = at.layout;
  int low_bits = 0;
  if (layout.nibbles) {
    for (int i = 0; i < 32; ++i) {
      q[i] = plane[i % 16 / 4 * 64 + i % 4] >> i / 16 * 4 & 15;
    }
    plane += 256;
    low_bits = 4;
  }
  if (layout.twos) {
    for (int i = 0; i < 32; ++i) {
      const int field = plane[i / 16 * 64 + i % 4] >> i % 16 / 4 * 2 & 3;
      q[i] = static_cast<uint8_t>(q[i] | field << low_bits);
    }
    plane += 128;
    low_bits += 2;
  }
  if (layout.ones) {
    for (int i = 0; i < 32; ++i) {
      q[i] = static_cast<uint8_t>(q[i] | (plane[i % 4] >> i / 4 & 1) << low_bits);
    }
  }
}

uint8_t joined(int low, int high, int shift) { return static_cast<uint8_t>(low | high << shift); }

template <DType kType>
void put_scales(const BlockParts& at, const QuantCodes& codes) {
  static constexpr QuantLayout kLayout = quant_layout(kType);
  uint8_t* scales = at.scales();
  if constexpr (kLayout.sub_scales == SubScales::kTwoSix) {
    const auto first = [&codes](int b) { return codes.scale[kLayout.has_min ? b : 2 * b]; };
    const auto second = [&codes](int b) {
      return kLayout.has_min ? codes.min[b] : codes.scale[2 * b + 1];
    };
    const auto high = [&](int b) { return first(b) >> 4 | second(b) >> 4 << 2; };
    for (int b = 0; b < 8; ++b) scales[b * kGroupLanes] = joined(first(b) & 15, second(b) & 15, 4);
    for (int p = 0; p < 4; ++p)
      scales[128 + p * kGroupLanes] = joined(high(2 * p), high(2 * p + 1), 4);
  } else if constexpr (kLayout.sub_scales == SubScales::kNibbles) {
    for (int s = 0; s < 16; ++s) scales[s * kGroupLanes] = joined(codes.scale[s], codes.min[s], 4);
  } else if constexpr (kLayout.sub_scales == SubScales::kSigned) {
    for (int s = 0; s < 16; ++s) scales[s * kGroupLanes] = codes.scale[s];
  } else if constexpr (kLayout.sub_scales == SubScales::kOneSix) {
    for (int p = 0; p < 4; ++p) {
      scales[p * kGroupLanes] = joined(codes.scale[2 * p] & 15, codes.scale[2 * p + 1] & 15, 4);
    }
    for (int h = 0; h < 8; h += 4) {
      const uint8_t* s = codes.scale + h;
      *at.high_scale(h) =
          static_cast<uint8_t>(s[0] >> 4 | s[1] >> 4 << 2 | s[2] >> 4 << 4 | s[3] >> 4 << 6);
    }
  } else if constexpr (kLayout.sub_scales == SubScales::kOneFour) {
    const auto nibble = [&codes](int b) {
      return kType == DType::kIQ1_S ? codes.scale[b] | codes.min[b] << 3 : codes.scale[b];
    };
    for (int p = 0; p < 4; ++p) {
      scales[p * kGroupLanes] = joined(nibble(2 * p), nibble(2 * p + 1), 4);
    }
  } else if constexpr (kLayout.sub_scales == SubScales::kTwoFour) {
    for (int b = 0; b < 8; ++b) {
      scales[b * kGroupLanes] = joined(codes.scale[2 * b], codes.scale[2 * b + 1], 4);
    }
  } else if constexpr (kLayout.sub_scales == SubScales::kUe4m3) {
    for (int s = 0; s < 4; ++s) *at.head_scale(s) = codes.scale[s];
  }
}

void get_scales(const BlockParts& at, QuantCodes& codes) {
  const uint8_t* scales = at.scales();
  for (int b = 0; b < at.layout.block / 32; ++b) {
    switch (at.layout.sub_scales) {
      case SubScales::kNone: return;
      case SubScales::kUe4m3:
        for (int s = 2 * b; s < 2 * b + 2; ++s) codes.scale[s] = *at.head_scale(s);
        break;
      case SubScales::kOneFour:
        codes.scale[b] = scales[b / 2 * kGroupLanes] >> b % 2 * 4 & 15;
        break;
      case SubScales::kTwoFour:
        codes.scale[2 * b] = scales[b * kGroupLanes] & 15;
        codes.scale[2 * b + 1] = scales[b * kGroupLanes] >> 4;
        break;
      case SubScales::kTwoSix: {
        const int low = scales[b * kGroupLanes];
        const int high = scales[128 + b / 2 * kGroupLanes] >> b % 2 * 4;
        const auto first = static_cast<uint8_t>((low & 15) | (high & 3) << 4);
        const auto second = static_cast<uint8_t>(low >> 4 | (high >> 2 & 3) << 4);
        (at.layout.has_min ? codes.scale[b] : codes.scale[2 * b]) = first;
        (at.layout.has_min ? codes.min[b] : codes.scale[2 * b + 1]) = second;
        break;
      }
      case SubScales::kNibbles:
        for (int s = 2 * b; s < 2 * b + 2; ++s) {
          codes.scale[s] = scales[s * kGroupLanes] & 15;
          codes.min[s] = scales[s * kGroupLanes] >> 4;
        }
        break;
      case SubScales::kSigned:
        for (int s = 2 * b; s < 2 * b + 2; ++s) codes.scale[s] = scales[s * kGroupLanes];
        break;
      case SubScales::kOneSix: {
        const int low = scales[b / 2 * kGroupLanes] >> b % 2 * 4 & 15;
        const int high = *at.high_scale(b) >> b % 4 * 2 & 3;
        codes.scale[b] = static_cast<uint8_t>(low | high << 4);
        break;
      }
    }
  }
}

/// In a group of IQ1 the eighths are above the scales, from bit 3: one bit, or of IQ1_M two, for a
/// part of each scale's inputs.
void eighths_to_scales(QuantCodes& codes) {
  for (int s = 0; s < 16; ++s) {
    const uint8_t* q = codes.q + 16 * s;
    codes.scale[s] = joined(codes.scale[s], q[0] >> 2 | q[8] >> 2 << 1, 3);
  }
}

void eighths_above_levels(QuantCodes& codes, int inputs, int parts) {
  for (int i = 0; i < 256; ++i) {
    const int part = i % inputs * parts / inputs;
    codes.q[i] = joined(codes.q[i], codes.scale[i / inputs] >> (3 + part) & 1, 2);
  }
  for (int s = 0; s < 256 / inputs; ++s) codes.scale[s] &= 7;
}

/// Calls f(block, its parts in the group) for each stored block of a lane.
template <typename Visit>
void for_blocks(const QuantLayout& layout, int64_t cols, int lane, uint8_t* group,
                const Visit& visit) {
  for (int64_t n = 0; n < cols / layout.block; ++n) {
    visit(n, BlockParts{layout, lane, group + layout.head_at(n), group + layout.body_at(n)});
  }
}

}  // namespace

namespace {

template <DType kType>
void place_row_of(const std::byte* row, int64_t cols, int lane, uint8_t* group) {
  static constexpr QuantLayout kLayout = quant_layout(kType);
  const auto* stored = reinterpret_cast<const uint8_t*>(row);
  const int64_t block_bytes = info(kType).block_bytes;
  for_blocks(kLayout, cols, lane, group, [&](int64_t n, const BlockParts& at) {
    const uint8_t* block = stored + n * block_bytes;
    if constexpr (kSpreads<kType>) {
      QuantCodes codes = take_apart(kType, reinterpret_cast<const std::byte*>(block));
      for (int b = 0; b < kLayout.block / 32; ++b) {
        put_apart<kType>(codes.q + 32 * b, at.plane(b) + lane * 4);
      }
      if constexpr (kType != DType::kNVFP4) put_half(codes.d, at.head + 2 * lane);
      if constexpr (kType == DType::kIQ1_M) eighths_to_scales(codes);
      put_scales<kType>(at, codes);
      return;
    } else {
      put_codes<kType>(at, block);
    }
    if constexpr (kType == DType::kMXFP4) {
      at.head[lane] = block[0];
    } else if constexpr (kLayout.block == 32) {  // d comes first, followed by m
      std::memcpy(at.head + 2 * lane, block, 2);
      if constexpr (kLayout.has_min) std::memcpy(at.head + 32 + 2 * lane, block + 2, 2);
    } else if constexpr (!kSpreads<kType>) {
      QuantCodes codes;  // without its codes
      take_scales_apart(kType, reinterpret_cast<const std::byte*>(block), &codes);
      put_half(codes.d, at.head + 2 * lane);
      if constexpr (kLayout.has_min) put_half(codes.dmin, at.head + 32 + 2 * lane);
      put_scales<kType>(at, codes);
    }
  });
}

using PlaceRow = void(const std::byte* row, int64_t cols, int lane, uint8_t* group);

template <size_t... kIndex>
constexpr std::array<PlaceRow*, sizeof...(kIndex)> place_rows(std::index_sequence<kIndex...>) {
  return {place_row_of<kQuantTypes[kIndex]>...};
}
constexpr auto kPlaceRows = place_rows(std::make_index_sequence<kNumQuantTypes>());

}  // namespace

void place_row(DType type, const std::byte* row, int64_t cols, int lane, std::byte* group) {
  kPlaceRows[quant_index(type)](row, cols, lane, reinterpret_cast<uint8_t*>(group));
}

void lane_values(DType type, const std::byte* group, int64_t cols, int lane, float* out) {
  const QuantLayout layout = quant_layout(type);
  for_blocks(layout, cols, lane,
             const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(group)),  // only read
             [&](int64_t n, const BlockParts& at) {
               QuantCodes codes{};
               if (type == DType::kMXFP4) {
                 codes.d = at.head[lane];
               } else if (type != DType::kNVFP4) {
                 codes.d = get_half(at.head + 2 * lane);
                 if (layout.stores_min()) codes.dmin = get_half(at.head + 32 + 2 * lane);
               }
               for (int b = 0; b < layout.block / 32; ++b) get_codes(at, b, codes.q + 32 * b);
               get_scales(at, codes);
               if (type == DType::kIQ1_S) eighths_above_levels(codes, 32, 1);
               if (type == DType::kIQ1_M) eighths_above_levels(codes, 16, 2);
               dequantize_codes(type, codes, out + n * layout.block);
             });
}

}  // namespace hearth::kernels
