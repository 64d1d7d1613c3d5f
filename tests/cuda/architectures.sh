#!/usr/bin/env bash
# Compiles the CUDA kernels for every architecture of the packages and reads what ptxas made of them: a release build compiles for
# one architecture alone. A product, or attention on the tensor cores, that has a stack or spills registers fails, unless it is
# listed below; other kernels that do are printed.
#   bash tests/cuda/architectures.sh [ARCHITECTURES [OBJECT...]]   default: those of packaging/build_package.sh, all of the kernels
# OBJECT: a file below kernels/, such as cuda/attention/tiles.cu. HEARTH_JOBS sets the parallelism. Without a CUDA toolkit it is
# skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

packaged=$(sed -n 's/.*HEARTH_CUDA_ARCHS="${archs:-\([^}]*\)}".*/\1/p' packaging/build_package.sh)
archs=${1:-$packaged}
if ! command -v nvcc >/dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then
  echo "[hearth-skip] no CUDA toolkit"
  exit 0
fi
# KERNEL ARCHITECTURE BYTES: what a kernel may have, one a line. One of quant_k_low.cu (Q2_K, 9 to 32 rows) spills; attention over q8_0
# spills one or two of its 255 registers, of prompts on 12.0, of few rows on 8.6 and 8.9; the short convolution two on 12.0.
allowed='matmul_super_slices_kernel sm_80 24
matmul_super_slices_kernel sm_90a 16
matmul_super_slices_kernel sm_120 8
few_rows_kernel sm_86 8
few_rows_kernel sm_89 8
many_rows_kernel sm_120 8
conv_rows_kernel sm_120 8'

build=build/cuda-architectures
rm -rf "$build"  # what is up to date prints nothing; ccache has it
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHEARTH_MONITOR=OFF -DHEARTH_TESTS=OFF -DHEARTH_CUDA_ARCHS="$archs" \
  -DCMAKE_CUDA_FLAGS=-Xptxas=-v >/dev/null
targets=(hearth_cuda_objects)
if (($# > 1)); then targets=("${@:2}") && targets=("${targets[@]/#/kernels/CMakeFiles/hearth_cuda_objects.dir/}") && targets=("${targets[@]/%/.o}"); fi
if ! cmake --build "$build" -j "${HEARTH_JOBS:-$(nproc)}" --target "${targets[@]}" -- -k 0 >"$build/log" 2>&1; then
  grep -E 'FAILED|error|warning' "$build/log" | head -n 40
  exit 1
fi
c++filt <"$build/log" | awk -v allowed="$allowed" '
  /Compiling entry function/ {
    name = $0; sub(/.*entry function ./, "", name); arch = name
    sub(/.*for ./, "", arch); sub(/.$/, "", arch); sub(/. for .*/, "", name)
    sub(/^void /, "", name); gsub(/hearth::kernels::|\(anonymous namespace\)::/, "", name)
    sub(/\([A-Z][A-Za-z]*(,.*)?\)$/, "", name)
    ++kernels[arch]
  }
  /bytes stack frame/ {
    bytes = $1 > $5 ? $1 : $5
    if (bytes == 0) next
    kernel = name; sub(/<.*/, "", kernel)
    limit = 0
    count = split(allowed, lines, "\n")
    for (i = 1; i <= count; ++i) {
      split(lines[i], entry, " ")
      if (entry[1] == kernel && entry[2] == arch) limit = entry[3]
    }
    print name ", " arch ":" $0
    if (kernel ~ /^matmul_|_rows_kernel$/ && bytes > limit) ++bad
  }
  /Used [0-9]+ registers/ { for (i = 1; i < NF; ++i) if ($i == "Used" && $(i + 1) > most[arch]) most[arch] = $(i + 1) }
  END {
    for (arch in kernels) {
      printf "%s: %d kernels, at most %d registers\n", arch, kernels[arch], most[arch]
      ++archs
    }
    if (bad) printf "%d kernels have a stack or spill registers\n", bad
    exit bad > 0 || archs == 0
  }'
