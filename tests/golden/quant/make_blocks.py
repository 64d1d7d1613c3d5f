"""Golden blocks of every quantized type: bytes, and the floats that the gguf package makes of them.

    python tests/golden/quant/make_blocks.py > tests/golden/quant/blocks.json

Needs numpy and gguf. The output is the same on every machine: bytes come from a seeded generator.
"""

import json
import sys

import numpy as np
from gguf import GGMLQuantizationType, quants

# Type, values and bytes per block, and where the f16 fields lie.
TYPES = {
    "Q8_0": (32, 34, [0]),
    "Q4_0": (32, 18, [0]),
    "Q4_1": (32, 20, [0, 2]),
    "Q5_0": (32, 22, [0]),
    "Q5_1": (32, 24, [0, 2]),
    "IQ4_NL": (32, 18, [0]),
    "MXFP4": (32, 17, []),
    "Q2_K": (256, 84, [80, 82]),
    "Q3_K": (256, 110, [108]),
    "Q4_K": (256, 144, [0, 2]),
    "Q5_K": (256, 176, [0, 2]),
    "Q6_K": (256, 210, [208]),
    "IQ4_XS": (256, 136, [0]),
    "TQ1_0": (256, 54, [52]),
    "TQ2_0": (256, 66, [64]),
    "NVFP4": (64, 36, []),
    "IQ2_XXS": (256, 66, [0]),
    "IQ2_XS": (256, 74, [0]),
    "IQ2_S": (256, 82, [0]),
    "IQ3_XXS": (256, 98, [0]),
    "IQ3_S": (256, 110, [0]),
    "IQ1_S": (256, 50, [0]),
    "IQ1_M": (256, 56, []),
}

# f16 fields of each block: usual, of both signs, largest, least, zero; infinite last.
HALVES = [0.0123, -0.37, 65504.0, 6e-8, 0.0, np.inf]
# E8M0 instead.
EXPONENTS = [120, 127, 254, 0, 1, 255]
# UE4M3: usual, least and largest, with a bit that is ignored, and what stands for 0.
UE4M3 = [[56, 57, 100, 23], [1, 7, 8, 126], [0, 127, 128, 255], [136, 3, 127, 40], [90, 0, 1, 2], [254, 64, 130, 6]]


def block(rng, name, case):
    _, size, fields = TYPES[name]
    data = rng.integers(0, 256, size, dtype=np.uint8)
    if case == 2:
        data[:] = 0xFF  # every code the largest
    for n, field in enumerate(fields):
        value = np.float16(HALVES[case]) * np.float16(1 if n == 0 else 0.5)
        data[field : field + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
    if name == "MXFP4":
        data[0] = EXPONENTS[case]
    if name == "NVFP4":
        data[:4] = UE4M3[case]
    if name == "IQ1_M":  # d is the top four bits of each scale
        d = int(np.float16(HALVES[case]).view(np.uint16))
        for i in range(4):
            data[49 + 2 * i] = data[49 + 2 * i] & 15 | (d >> 4 * i & 15) << 4
    return data


def main():
    rng = np.random.default_rng(20240607)
    out = {}
    for name, (values, _, _) in TYPES.items():
        blocks = np.stack([block(rng, name, case) for case in range(len(HALVES))])
        if values == 256:
            blocks = blocks[[0, 1, 2, 3]]
        with np.errstate(all="ignore"):
            floats = quants.dequantize(blocks, GGMLQuantizationType[name]).astype("<f4")
        assert floats.shape == (len(blocks), values), floats.shape
        out[name] = [
            {"bytes": b.tobytes().hex(), "f32": f.tobytes().hex()} for b, f in zip(blocks, floats)
        ]
    json.dump(out, sys.stdout, indent=0)
    print()


if __name__ == "__main__":
    main()
