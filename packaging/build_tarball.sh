#!/usr/bin/env bash
# Builds build/package/hearth-VERSION-ARCH.tar.gz: programs with the libraries that they need beyond
# glibc and the compiler's own, and what they read. It runs from wherever it is unpacked (with /proc
# mounted: programs find their libraries by where they lie).
#   bash packaging/build_tarball.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=packaging/build_package.sh
source packaging/build_package.sh

version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
name=hearth-$version-$(uname -m)
work=$(mktemp -d "${TMPDIR:-/tmp}/hearth-tarball.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/$name
DESTDIR=$work/all cmake --install "$build" --component hearth --strip >/dev/null
mkdir -p "$root/lib/hearth"
cp -r "$work/all/usr/." "$root"
cp -r "$work/all/etc" "$root/etc"
rm -rf "$root/share/lintian"

# What every system has, and must have in its own version.
own='linux-vdso|ld-linux|libc\.so|libm\.so|libdl\.so|libpthread|librt\.so|libresolv|libstdc\+\+|libgcc_s'
for program in "$root"/bin/* "$root"/libexec/hearth/*; do
  ldd "$program" | awk '$3 ~ "^/" {print $3}' | grep -Ev "/($own)" || true
done | sort -u | while read -r library; do cp -L "$library" "$root/lib/hearth/"; done
# Libraries need a path of their own: a program's is not theirs.
for library in "$root"/lib/hearth/*; do patchelf --force-rpath --set-rpath '$ORIGIN' "$library"; done
for program in "$root"/bin/*; do patchelf --set-rpath '$ORIGIN/../lib/hearth' "$program"; done
for program in "$root"/libexec/hearth/*; do patchelf --set-rpath '$ORIGIN/../../lib/hearth' "$program"; done

tar -C "$work" --owner=0 --group=0 --sort=name -czf "$build/$name.tar.gz" "$name"
echo "$build/$name.tar.gz, $(ls "$root/lib/hearth" | wc -l) libraries"
