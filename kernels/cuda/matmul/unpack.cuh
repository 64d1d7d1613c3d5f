#pragma once
// A chunk of quantized weights (kernels/cuda/matmul/quant_layout.cuh) in a warp's registers, and
// the conversion of its parts to numbers.

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/matmul/quant_layout.cuh"

namespace hearth::kernels {

__device__ inline uint32_t word_of(const uint4& four, int i) {
  return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}
__device__ inline int byte_of(uint32_t word, int i) {
  return static_cast<int>(word >> 8 * i & 0xffu);
}
__device__ inline float half_of(const uint4& eight, int i) {
  return to_float(Half{static_cast<uint16_t>(word_of(eight, i / 2) >> 16 * (i % 2))});
}

__device__ inline ActivationBlock activation_block(uint32_t d, uint32_t sums) {
  return {__uint_as_float(d),
          {static_cast<int16_t>(sums & 0xffffu), static_cast<int16_t>(sums >> 16)}};
}

/// The scales of one output in one chunk, as stored.
struct StoredScales {
  uint32_t head = 0;
  uint4 first = {};
  uint4 second = {};
};

template <DType kType>
__device__ StoredScales load_scales(const std::byte* chunk, int output) {
  constexpr QuantForm kForm = quant_form(kType);
  StoredScales out;
  if constexpr (kForm.head_bytes == 4) {
    out.head = load_as<uint32_t>(chunk + 4 * output);
  } else if constexpr (kForm.head_bytes == 2) {
    out.head = load_as<uint16_t>(chunk + 2 * output);
  }
  const std::byte* scales = chunk + kForm.scales_at();
  if constexpr (kForm.scale_bytes == 8) {
    const auto both = load_as<uint2>(scales + 8 * output);
    out.first.x = both.x;
    out.first.y = both.y;
  } else {
    out.first = load_as<uint4>(scales + 16 * output);
  }
  if constexpr (kForm.scale_bytes == 32) {
    out.second = load_as<uint4>(scales + 16 * (kGroupOutputs + output));
  }
  return out;
}

/// d and dmin of a super-block.
template <DType kType>
__device__ float super_scale(const StoredScales& stored) {
  return to_float(Half{static_cast<uint16_t>(stored.head)}) * scale_unit(kType);
}
__device__ inline float super_min(const StoredScales& stored) {
  return to_float(Half{static_cast<uint16_t>(stored.head >> 16)});
}

/// The scales of blocks 4 to 7 in the places of those of blocks 0 to 3.
template <DType kType>
__device__ StoredScales upper_half(const StoredScales& stored) {
  constexpr QuantForm kForm = quant_form(kType);
  StoredScales out = stored;
  if constexpr (kForm.scale_bytes == 8 || (!kForm.of_32 && kForm.has_min && kForm.subs == 1)) {
    out.first.x = stored.first.y;  // words of four scales each, then of four mins
    out.first.z = stored.first.w;
  } else {
    out.first.x = stored.first.z;
    out.first.y = stored.first.w;
    out.second.x = stored.second.z;
    out.second.y = stored.second.w;
  }
  return out;
}

/// The integer of a scale, from its byte; for types with super-blocks.
template <DType kType>
__device__ int scale_integer(std::byte byte) {
  const auto code = static_cast<int>(byte);
  if constexpr (kType == DType::kQ2_K) return code & 15;
  return quant_form(kType).has_min ? code : static_cast<int8_t>(code);
}
/// That of scale s of the chunk.
template <DType kType>
__device__ int scale_code(const StoredScales& stored, int s) {
  return scale_integer<kType>(static_cast<std::byte>(byte_of(word_of(stored.first, s / 4), s % 4)));
}

/// Scale s of the chunk, which has 8, or 16 if there are two per block. Exact in f32.
template <DType kType>
__device__ float scale_of(const StoredScales& stored, int s) {
  constexpr QuantForm kForm = quant_form(kType);
  if constexpr (kType == DType::kMXFP4) {
    const auto e = static_cast<uint32_t>(byte_of(word_of(stored.first, s / 4), s % 4));
    return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  } else if constexpr (kType == DType::kNVFP4) {
    const uint32_t bits = word_of(stored.first, s / 4) >> 8 * (s % 4) & 127u;
    return __uint_as_float(bits << 20) * 0x1p119f;
  } else if constexpr (kForm.of_32) {
    return half_of(stored.first, s);
  } else {
    return super_scale<kType>(stored) * static_cast<float>(scale_code<kType>(stored, s));
  }
}

/// The products of a block whose halves have scales of their own, of types without integer scales.
template <DType kType>
__device__ float sum_of_halves(float low, float high, float low_scale, float high_scale) {
  static_assert(quant_form(kType).subs == 2 && quant_form(kType).offset == 0);
  return fmaf(high, high_scale, low * low_scale);
}

/// The term added to each product of scale s; only for types with mins.
template <DType kType>
__device__ float min_of(const StoredScales& stored, int s) {
  if constexpr (quant_form(kType).of_32) {
    return half_of(stored.second, s);
  } else {
    const int code = kType == DType::kQ2_K ? byte_of(word_of(stored.first, s / 4), s % 4) >> 4
                                           : byte_of(word_of(stored.first, 2 + s / 4), s % 4);
    return -(super_min(stored) * static_cast<float>(code));
  }
}

/// Four entries of a codebook, starting with entry 4 i.
constexpr uint32_t table_word(Codebook book, int i) {
  uint32_t word = 0;
  for (int k = 0; k < 4; ++k) {
    const int8_t value = codebook_values(book)[4 * i + k];
    word |= static_cast<uint32_t>(static_cast<uint8_t>(value)) << 8 * k;
  }
  return word;
}

/// The entries of the four nibbles in the low 16 bits, one per byte.
template <Codebook kBook>
__device__ uint32_t look_up(uint32_t nibbles) {
  constexpr uint32_t kFirst = table_word(kBook, 0);
  constexpr uint32_t kSecond = table_word(kBook, 1);
  constexpr uint32_t kThird = table_word(kBook, 2);
  constexpr uint32_t kFourth = table_word(kBook, 3);
  const uint32_t low = __byte_perm(kFirst, kSecond, nibbles & 0x7777u);
  if constexpr (kThird == 0 && kFourth == 0) return low;  // codes of three bits
  const uint32_t high = __byte_perm(kThird, kFourth, nibbles & 0x7777u);
  return __byte_perm(low, high, 0x3210u | (nibbles & 0x8888u) >> 1);
}

/// Operand A for block b, from a lane's shares of a chunk's planes: codes, without their offset.
template <DType kType>
__device__ void unpack_codes(const uint4* plane, int b, uint32_t (&a)[4]) {
  constexpr QuantForm kForm = quant_form(kType);
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    if constexpr (kForm.bytes) {
      a[r] = word_of(plane[b], r);
    } else {
      uint32_t code = 0;
      if constexpr (kForm.nibbles) code = word_of(plane[b / 2], r) >> 4 * (b % 2) & 0x0f0f0f0fu;
      if constexpr (kForm.twos) {
        const uint32_t two = word_of(plane[kForm.first_two() + b / 4], r) >> 2 * (b % 4);
        code |= (two & 0x03030303u) << (kForm.nibbles ? 4 : 0);
      }
      if constexpr (kForm.ones) {
        const uint32_t one = word_of(plane[kForm.first_one()], r) >> b;
        code |= (one & 0x01010101u) << (kForm.nibbles ? 4 : 2);
      }
      if constexpr (kForm.codebook != Codebook::kNone) {
        // One nibble per byte, packed into 16 bits.
        const uint32_t two = code | code >> 4;
        code = look_up<kForm.codebook>((two & 0xffu) | (two >> 8 & 0xff00u));
      }
      a[r] = code;
    }
  }
}

/// A lane's part of a chunk: its shares of all planes, and the scales of its two outputs, lane / 4
/// and lane / 4 + 8.
template <DType kType>
struct ChunkShare {
  uint4 plane[quant_form(kType).num_planes()];
  StoredScales scales[2];

  __device__ void load_planes(const std::byte* chunk, int lane) {
    constexpr QuantForm kForm = quant_form(kType);
    const std::byte* planes = chunk + kForm.planes_at() + 16 * lane;
#pragma unroll
    for (int i = 0; i < kForm.num_planes(); ++i) {
      plane[i] = load_as<uint4>(planes + i * kPlaneBytes);
    }
  }
  __device__ void load(const std::byte* chunk, int lane) {
    load_planes(chunk, lane);
    scales[0] = load_scales<kType>(chunk, lane / 4);
    scales[1] = load_scales<kType>(chunk, lane / 4 + 8);
  }

  __device__ void codes(int b, uint32_t (&a)[4]) const { unpack_codes<kType>(plane, b, a); }
};

/// One weight at (output of the group, input of the chunk), bit-identical to `dequantize`.
template <DType kType>
__device__ float weight_value(const std::byte* chunk, int output, int input) {
  constexpr QuantForm kForm = quant_form(kType);
  const std::byte* planes = chunk + kForm.planes_at() + share_byte(output, input % 32);
  const int b = input / 32;
  const auto at = [planes](int plane) { return static_cast<int>(planes[plane * kPlaneBytes]); };
  int code = 0;
  if constexpr (kForm.bytes) code = static_cast<int8_t>(at(b));
  if constexpr (kForm.nibbles) code = at(b / 2) >> 4 * (b % 2) & 15;
  if constexpr (kForm.twos) {
    code |= (at(kForm.first_two() + b / 4) >> 2 * (b % 4) & 3) << (kForm.nibbles ? 4 : 0);
  }
  if constexpr (kForm.ones) {
    code |= (at(kForm.first_one()) >> b & 1) << (kForm.nibbles ? 4 : 2);
  }
  if constexpr (kForm.codebook != Codebook::kNone) {
    code = static_cast<int8_t>(byte_of(look_up<kForm.codebook>(static_cast<uint32_t>(code)), 0));
  }
  const StoredScales stored = load_scales<kType>(chunk, output);
  const int s = kForm.subs == 2 ? input / 16 : b;
  const float product = scale_of<kType>(stored, s) * static_cast<float>(code - kForm.offset);
  if constexpr (kForm.has_min) return product + min_of<kType>(stored, s);
  return product;
}

}  // namespace hearth::kernels
