#!/usr/bin/env bash
# Builds what runs on a machine with a GPU and packs it into build/carry/: the device's op tests, the
# whole-model tests, the bench (these need nothing but the C++ runtime) and hearth-worker-cuda with its
# libraries next to it. Copy the folder to that machine and run `bash run.sh` there.
#   bash tests/cuda/carry.sh [ARCHITECTURES]      default: 90a-real (H100, H200)
# HEARTH_JOBS sets the parallelism; HEARTH_CARRY_BUILD another build folder (default build/carry-build).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

archs=${1:-90a-real}
build=${HEARTH_CARRY_BUILD:-build/carry-build}
out=build/carry
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHEARTH_MONITOR=OFF \
  -DHEARTH_CUDA_ARCHS="$archs" >/dev/null
programs=(cuda_gpu_test cuda_gpu_golden_test hearth-cuda-bench hearth-worker-cuda)
cmake --build "$build" -j "${HEARTH_JOBS:-$(nproc)}" --target "${programs[@]}"

rm -rf "$out"
mkdir -p "$out/lib"
for program in "${programs[@]}"; do
  cp "$build/bin/$program" "$out/"
  strip "$out/$program"
done
# What a machine with another system may lack; the C and C++ runtimes are its own.
own='linux-vdso|ld-linux|libc\.so|libm\.so|libdl\.so|libpthread|librt\.so|libresolv|libstdc\+\+|libgcc_s'
ldd "$out/hearth-worker-cuda" | awk '$3 ~ "^/" {print $3}' | grep -Ev "/($own)" |
  while read -r library; do cp -L "$library" "$out/lib/"; done
cp tests/cuda/run_on_device.sh "$out/run.sh"
mkdir "$out/demo"
cp models/demo/tales.gguf tests/golden/tales.json "$out/demo/"
echo "$out, $(du -sh "$out" | cut -f1): ${programs[*]}, $(ls "$out/lib" | wc -l) libraries"
