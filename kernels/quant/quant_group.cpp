#include "kernels/quant/quant_group.h"

#include <cstring>

#include "kernels/quant/quant_layout.h"

namespace hearth::kernels {
namespace {

constexpr int kLanes = 16;

/// The bytes of one block of one lane: f(which plane's, ..) visits them the same way in and out.
struct BlockParts {
  const QuantLayout& layout;
  int lane;
  uint8_t* head;
  uint8_t* body;

  uint8_t* plane(int b) const { return body + b * layout.plane_bytes(); }
  uint8_t* scales() const { return body + 8 * layout.plane_bytes() + lane; }
  uint8_t* high_scale(int b) const { return head + 32 + b / 4 * kLanes + lane; }  // kOneSix
};

void put_half(uint16_t bits, uint8_t* to) { std::memcpy(to, &bits, sizeof bits); }
uint16_t get_half(const uint8_t* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

uint32_t four_codes(const uint8_t* q) {
  uint32_t four;
  std::memcpy(&four, q, sizeof four);
  return four;
}

/// Codes of 32 inputs into their planes, four bytes at a time: masks keep what a shift brings over
/// from the neighbour out.
void put_codes(const BlockParts& at, int b, const uint8_t* q) {
  uint8_t* plane = at.plane(b) + at.lane * 4;
  const QuantLayout& layout = at.layout;
  const auto put = [&plane](int j, uint32_t four) {
    std::memcpy(plane + j * 64, &four, sizeof four);
  };
  int low_bits = 0;
  if (layout.nibbles) {
    for (int j = 0; j < 4; ++j) {
      put(j, (four_codes(q + 4 * j) & 0x0f0f0f0fu) | (four_codes(q + 16 + 4 * j) & 0x0f0f0f0fu)
                                                         << 4);
    }
    plane += 256;
    low_bits = 4;
  }
  if (layout.twos) {
    for (int j = 0; j < 2; ++j) {
      uint32_t fields = 0;
      for (int f = 0; f < 4; ++f) {
        fields |= (four_codes(q + 16 * j + 4 * f) >> low_bits & 0x03030303u) << 2 * f;
      }
      put(j, fields);
    }
    plane += 128;
    low_bits += 2;
  }
  if (layout.ones) {
    uint32_t bits = 0;
    for (int j = 0; j < 8; ++j) {
      bits |= (four_codes(q + 4 * j) >> low_bits & 0x01010101u) << j;
    }
    put(0, bits);
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

/// Ors one nibble or field into a byte that was zero there.
void put_bits(uint8_t* to, int bits, int shift) { *to = static_cast<uint8_t>(*to | bits << shift); }

void put_scales(const BlockParts& at, const QuantCodes& codes) {
  uint8_t* scales = at.scales();
  for (int b = 0; b < 8; ++b) {
    switch (at.layout.sub_scales) {
      case SubScales::kNone: return;
      case SubScales::kTwoSix: {
        const int first = at.layout.has_min ? codes.scale[b] : codes.scale[2 * b];
        const int second = at.layout.has_min ? codes.min[b] : codes.scale[2 * b + 1];
        put_bits(scales + b * kLanes, (first & 15) | (second & 15) << 4, 0);
        put_bits(scales + 128 + b / 2 * kLanes, first >> 4 | second >> 4 << 2, b % 2 * 4);
        break;
      }
      case SubScales::kNibbles:
        for (int s = 2 * b; s < 2 * b + 2; ++s) {
          put_bits(scales + s * kLanes, codes.scale[s] | codes.min[s] << 4, 0);
        }
        break;
      case SubScales::kSigned:
        for (int s = 2 * b; s < 2 * b + 2; ++s) scales[s * kLanes] = codes.scale[s];
        break;
      case SubScales::kOneSix:
        put_bits(scales + b / 2 * kLanes, codes.scale[b] & 15, b % 2 * 4);
        put_bits(at.high_scale(b), codes.scale[b] >> 4, b % 4 * 2);
        break;
    }
  }
}

void get_scales(const BlockParts& at, QuantCodes& codes) {
  const uint8_t* scales = at.scales();
  for (int b = 0; b < 8; ++b) {
    switch (at.layout.sub_scales) {
      case SubScales::kNone: return;
      case SubScales::kTwoSix: {
        const int low = scales[b * kLanes];
        const int high = scales[128 + b / 2 * kLanes] >> b % 2 * 4;
        const auto first = static_cast<uint8_t>((low & 15) | (high & 3) << 4);
        const auto second = static_cast<uint8_t>(low >> 4 | (high >> 2 & 3) << 4);
        (at.layout.has_min ? codes.scale[b] : codes.scale[2 * b]) = first;
        (at.layout.has_min ? codes.min[b] : codes.scale[2 * b + 1]) = second;
        break;
      }
      case SubScales::kNibbles:
        for (int s = 2 * b; s < 2 * b + 2; ++s) {
          codes.scale[s] = scales[s * kLanes] & 15;
          codes.min[s] = scales[s * kLanes] >> 4;
        }
        break;
      case SubScales::kSigned:
        for (int s = 2 * b; s < 2 * b + 2; ++s) codes.scale[s] = scales[s * kLanes];
        break;
      case SubScales::kOneSix: {
        const int low = scales[b / 2 * kLanes] >> b % 2 * 4 & 15;
        const int high = *at.high_scale(b) >> b % 4 * 2 & 3;
        codes.scale[b] = static_cast<uint8_t>(low | high << 4);
        break;
      }
    }
  }
}

/// f(block, its parts in the group) for each stored block of a lane.
template <typename Visit>
void for_blocks(const QuantLayout& layout, int64_t cols, int lane, uint8_t* group,
                const Visit& visit) {
  uint8_t* bodies = group + layout.bodies_at(cols);
  for (int64_t n = 0; n < cols / layout.block; ++n) {
    visit(n, BlockParts{layout, lane, group + n * layout.head_bytes,
                        bodies + n * layout.body_bytes()});
  }
}

}  // namespace

void place_row(DType type, const std::byte* row, int64_t cols, int lane, std::byte* group) {
  const QuantLayout layout = quant_layout(type);
  const int64_t block_bytes = info(type).block_bytes;
  for_blocks(layout, cols, lane, reinterpret_cast<uint8_t*>(group),
             [&](int64_t n, const BlockParts& at) {
               const QuantCodes codes = take_apart(type, row + n * block_bytes);
               if (type == DType::kMXFP4) {
                 at.head[lane] = static_cast<uint8_t>(codes.d);
               } else {
                 put_half(codes.d, at.head + 2 * lane);
                 if (layout.has_min) put_half(codes.dmin, at.head + 32 + 2 * lane);
               }
               for (int b = 0; b < layout.block / 32; ++b) put_codes(at, b, codes.q + 32 * b);
               put_scales(at, codes);
             });
}

void lane_values(DType type, const std::byte* group, int64_t cols, int lane, float* out) {
  const QuantLayout layout = quant_layout(type);
  for_blocks(layout, cols, lane,
             const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(group)),  // only read
             [&](int64_t n, const BlockParts& at) {
               QuantCodes codes{};
               if (type == DType::kMXFP4) {
                 codes.d = at.head[lane];
               } else {
                 codes.d = get_half(at.head + 2 * lane);
                 if (layout.has_min) codes.dmin = get_half(at.head + 32 + 2 * lane);
               }
               for (int b = 0; b < layout.block / 32; ++b) get_codes(at, b, codes.q + 32 * b);
               get_scales(at, codes);
               dequantize_codes(type, codes, out + n * layout.block);
             });
}

}  // namespace hearth::kernels
