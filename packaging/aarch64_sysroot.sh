#!/usr/bin/env bash
# Unpacks Debian's arm64 libraries that hearth links into a directory, for the cpu-aarch64 preset to build
# against. Nothing is installed: an apt of its own below that directory does it, and needs no root.
#   bash packaging/aarch64_sysroot.sh [DIRECTORY]          default: build/aarch64-sysroot
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(
  libc6-dev libstdc++-12-dev libboost1.81-dev libboost-context1.81-dev libzmq3-dev cppzmq-dev libsqlite3-dev
  doctest-dev nlohmann-json3-dev libtomlplusplus-dev libcli11-dev libfmt-dev libspdlog-dev libxxhash-dev
  libutf8proc-dev libcurl4-openssl-dev libedit-dev libpcre2-dev libsodium-dev libssl-dev)

root=$(realpath -m "${1:-build/aarch64-sysroot}")
if [[ -f $root/.complete ]]; then exit 0; fi
mkdir -p "$root/.apt/lists/partial" "$root/.apt/archives/partial"
: >"$root/.apt/status"  # as if nothing were installed
apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$root/.apt"
  -o Dir::State::status="$root/.apt/status" -o Dir::Cache="$root/.apt" -o Dir::Cache::archives="$root/.apt/archives"
  -o Debug::NoLocking=1 -o APT::Sandbox::User=)
"${apt[@]}" update
"${apt[@]}" install -y --download-only --no-install-recommends "${packages[@]}"
for package in "$root"/.apt/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
rm -r "$root/.apt"
# Links of the packages that begin at the root of the file system.
find "$root" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
  ln -sfn "$root$(readlink "$link")" "$link"
done
touch "$root/.complete"
echo "arm64 libraries are in $root"
