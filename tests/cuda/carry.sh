#!/usr/bin/env bash
# Builds what runs on a machine with a GPU and packs it into build/carry/: the device's op tests, the
# whole-model tests, the bench (these need nothing but the C++ runtime), the engine's tests, hearth-worker-cuda, the
# daemon and its client with their libraries, in one archive. Copy the folder to that machine and run `bash run.sh 1` there, then 2 and 3.
#   bash tests/cuda/carry.sh [ARCHITECTURES]      default: 90a-real (H100, H200)
# Fails if the folder is larger than 45 MiB, or if a library is missing. HEARTH_JOBS sets the parallelism;
# HEARTH_CARRY_BUILD another build folder (default build/carry-build).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

most_mib=45
archs=${1:-90a-real}
build=${HEARTH_CARRY_BUILD:-build/carry-build}
out=build/carry
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHEARTH_MONITOR=OFF \
  -DHEARTH_CUDA_ARCHS="$archs" >/dev/null
programs=(cuda_gpu_test cuda_gpu_golden_test cuda_gpu_engine_test hearth-cuda-bench hearth-worker-cuda hearthd hearth)
cmake --build "$build" -j "${HEARTH_JOBS:-$(nproc)}" --target "${programs[@]}"

rm -rf "$out"
mkdir -p "$out/lib"
for program in "${programs[@]}"; do
  cp "$build/bin/$program" "$out/"
  strip "$out/$program"
done
# What a machine with another system may lack; the C and C++ runtimes are its own.
own='linux-vdso|ld-linux|libc\.so|libm\.so|libdl\.so|libpthread|librt\.so|libresolv|libstdc\+\+|libgcc_s'
needed=$(ldd "$out"/{hearth-worker-cuda,cuda_gpu_engine_test,hearthd,hearth})
if grep 'not found' <<<"$needed"; then
  echo "carry.sh: these libraries are missing" >&2
  exit 1
fi
awk '$3 ~ "^/" {print $3}' <<<"$needed" | sort -u | grep -Ev "/($own)" |
  while read -r library; do cp -L "$library" "$out/lib/"; done
cp tests/cuda/run_on_device.sh "$out/run.sh"
mkdir "$out/demo"
cp models/demo/tales.gguf tests/golden/tales.json "$out/demo/"
cp -r tests/golden/{families,eagle3} "$out/"
tar -C "$out" -czf "$out/programs.tar.gz" "${programs[@]}" lib
(cd "$out" && rm -r "${programs[@]}" lib)
size=$(du -sm "$out" | cut -f1)
echo "$out, $size MiB: ${programs[*]}"
if ((size > most_mib)); then
  echo "carry.sh: more than $most_mib MiB" >&2
  exit 1
fi
