#include <cstring>

#include "kernels/ops/checks.h"
#include "kernels/reference/op_table.h"

namespace hearth::kernels::reference {

void copy_blocks(void*, const CopyBlocksArgs& args) {
  check_args(args);
  for (size_t i = 0; i < args.src.size(); ++i) {
    std::memmove(args.base + args.dst[i] * args.block_bytes,
                 args.base + args.src[i] * args.block_bytes, args.block_bytes);
  }
}

}  // namespace hearth::kernels::reference
