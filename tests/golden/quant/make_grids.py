"""The grids of IQ1, IQ2 and IQ3 as kernels/quant/grids.cpp has them, from the gguf package.

    python tests/golden/quant/make_grids.py > kernels/quant/grids.cpp
    python tests/golden/quant/make_grids.py --check kernels/quant/grids.cpp

A grid is part of the published format: its entries are the groups of values that a code can stand for. Here an entry is
one number of 16 bits, which holds the level of each value (its place among the type's values, smallest first).
Needs numpy and gguf; without them --check ends with 77, a skipped test.
"""

import pathlib
import sys

NAMES = {
    "IQ2_XXS": "kIq2XxsGrid",
    "IQ2_XS": "kIq2XsGrid",
    "IQ2_S": "kIq2SGrid",
    "IQ3_XXS": "kIq3XxsGrid",
    "IQ3_S": "kIq3SGrid",
    "IQ1_S": "kIq1Grid",
}
HEAD = """\
// Made by tests/golden/quant/make_grids.py.
#include "kernels/quant/grids.h"

namespace hearth::kernels {

// clang-format off
"""
TAIL = """\
// clang-format on

}  // namespace hearth::kernels
"""


def entries(quant):
    """Levels of an entry's values: 2 bits each where there are eight values, 3 bits where there are four."""
    values = list(quant.grid_map)
    assert values == sorted(values)
    count = quant.grid_shape[1]
    bits = 2 if count == 8 else 3
    quant.init_grid()
    for row in quant.grid.reshape(quant.grid_shape):
        yield sum(values.index(int(value)) << bits * i for i, value in enumerate(row))


def make(quants):
    text = HEAD
    for name, grid in NAMES.items():
        words = [f"0x{entry:04x}" for entry in entries(getattr(quants, name))]
        text += f"const uint16_t {grid}[{len(words)}] = {{\n"
        for at in range(0, len(words), 12):
            text += "  " + ", ".join(words[at : at + 12]) + ",\n"
        text += "};\n"
    return text + TAIL


def main():
    try:
        from gguf import quants
    except ImportError as error:
        print(f"skipped: {error}", file=sys.stderr)
        sys.exit(77)
    text = make(quants)
    if sys.argv[1:2] == ["--check"]:
        sys.exit(text != pathlib.Path(sys.argv[2]).read_text())
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
