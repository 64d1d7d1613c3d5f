#!/usr/bin/env bash
# hearth on a bare Debian 12: a root made by debootstrap (minbase), with no package that the tree does not install itself.
#   bash tests/packaging/bare.sh          packaging/install_deps.sh, then every preset that the documentation names is
#                                         configured; the same again with --test
#   ... --presets     the same, and the presets that need more packages
#   ... --demo        packaging/demo.sh
#   ... --tests       tests/run.sh --release
#   ... --packages    the deb and the tarball: built, installed into a bare root, asked for a tale, removed
#   ... --full        all of this, each in a root of its own
# Needs root, debootstrap, mount namespaces and a mirror of Debian; without one of them it is skipped with the reason.
# Mirror and proxy are those of this machine's apt. The root and the downloaded packages are kept for the next run in
# ${XDG_CACHE_HOME:-~/.cache}/hearth-tests/bare. Builds share this machine's compiler cache: the tree has the path in the
# root that it has here, and a cached object counts only where compiler, sources and headers are the same.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tree=$PWD
release=bookworm
downloads=${XDG_CACHE_HOME:-$HOME/.cache}/hearth-tests
cache=$downloads/bare

skip() { echo "[hearth-skip] bare machine: $*"; exit 0; }
note() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# The presets that a reader of the documentation, or a script that it names, configures.
documented_presets() {
  local preset
  sed -n '/"configurePresets"/,/\]/s/.*"name": "\([a-z0-9-]*\)".*/\1/p' CMakePresets.json | while read -r preset; do
    if git_files | grep -zE '\.(md|sh|[1-8])$|^\.ci/run$' | xargs -0 grep -qE -- \
      "(--preset[ =]\"?|run_preset |build/)$preset([^a-z0-9-]|\$)"; then echo "$preset"; fi
  done
}
# The tree's own files, without what was built in it.
git_files() {
  git -C "$tree" ls-files -z --cached --others --exclude-standard 2>/dev/null ||
    find . -path ./build -prune -o -type f -printf '%P\0'
}

# Everything below `case` runs inside a mount namespace of its own, which takes its mounts away when it ends.
# fresh_root NAME: unpacks the cached root as $work/NAME and makes it one that programs can run in.
fresh_root() {
  root=$work/$1
  mkdir "$root"
  chmod 755 "$root"
  tar -C "$root" -xf "$cache/$release.tar"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --rbind /sys "$root/sys"
  mount --bind "$cache/debs" "$root/var/cache/apt/archives"
  mkdir -p "$root/var/cache/ccache"
  mount --bind "$compiler_cache" "$root/var/cache/ccache"
  # What tests download, at the same path: a Python environment holds its own.
  mkdir -p "$root$downloads"
  mount --bind "$downloads" "$root$downloads"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  apt-config dump Acquire | grep -E '^Acquire::[A-Za-z:-]+ "' | grep -vE '^Acquire::(IndexTargets|Changelogs)' \
    >"$root/etc/apt/apt.conf.d/00host" || true
  cp "$work/sources.list" "$root/etc/apt/sources.list"
  # Speed: nothing of this root outlives a power cut.
  echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
  start_in=/mnt
  run "apt-get -qq -o APT::Update::Error-Mode=any update" || skip "the mirror of Debian does not answer"
}
copy_tree() {
  mkdir -p "$root$tree"
  git_files | tar -C "$tree" --null -T - --ignore-failed-read -cf - | tar -C "$root$tree" -xf -
  start_in=$tree
}
# run COMMAND: in the root, in the tree's copy where there is one.
run() {
  chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
    HEARTH_IN_BARE_ROOT=1 CCACHE_DIR=/var/cache/ccache XDG_CACHE_HOME="${downloads%/*}" \
    ${HEARTH_JOBS:+HEARTH_JOBS="$HEARTH_JOBS"} \
    ${HEARTH_FUZZ_SECONDS:+HEARTH_FUZZ_SECONDS="$HEARTH_FUZZ_SECONDS"} bash -c "cd $start_in && $1" </dev/null
}
configure() {
  local preset=$1 log=$work/configure.log env=
  [[ $preset == fuzz ]] && env="CC=clang-14 CXX=clang++-14 "
  run "rm -rf build/$preset && ${env}cmake --preset $preset" >"$log" 2>&1 || { cat "$log"; fail "cmake --preset $preset, $2"; }
  echo "cmake --preset $preset, $2: configured"
}

check_presets() {
  local preset presets other=()
  mapfile -t presets < <(documented_presets)
  [[ " ${presets[*]} " == *" cpu "* && " ${presets[*]} " == *" demo "* ]] || fail "documented presets: met '${presets[*]}'"
  fresh_root presets
  copy_tree
  note "install_deps.sh"
  run "bash packaging/install_deps.sh"
  for preset in "${presets[@]}"; do
    case $preset in
      cpu-aarch64 | fuzz) other+=("$preset") ;;
      *) configure "$preset" "packages of install_deps.sh" ;;
    esac
  done
  [[ $(run "ctest --test-dir build/cpu -N") == *": not built"* ]] || fail "ctest names no test that is not built"
  [[ $(run "ctest --test-dir build/demo -N") == *"Total Tests: 0"* ]] || fail "the demo's build configures tests"
  note "install_deps.sh --test"
  run "bash packaging/install_deps.sh --test"
  for preset in "${presets[@]}"; do
    case $preset in
      cpu-aarch64 | fuzz) ;;
      *) configure "$preset" "packages of install_deps.sh --test" ;;
    esac
  done
  if [[ $(run "ctest --test-dir build/cpu -N") == *": not built"* ]]; then
    fail "install_deps.sh --test leaves tests out"
  fi
  if [[ $part == short ]]; then
    if [[ ${#other[@]} -gt 0 ]]; then echo "Left to --presets: ${other[*]}, with packages of their own"; fi
    return
  fi
  for preset in "${other[@]}"; do
    note "install_deps.sh for $preset"
    run "bash packaging/install_deps.sh --${preset/cpu-/}"
    configure "$preset" "packages of install_deps.sh --${preset/cpu-/}"
  done
}

# ask_for_a_tale HEARTH: as a user of the system, from the installed programs.
ask_for_a_tale() {
  run "cd / && useradd --create-home reader 2>/dev/null; su - reader -c 'export PATH=/usr/bin:/bin &&
       $1 run tales --seed 7 --max-tokens 40 \"Once upon a time\" && $1 stop'" | tee "$work/tale"
  (($(wc -c <"$work/tale") > 80)) || fail "$1 run tales wrote less than a sentence"
}

check_packages() {
  local built left
  note "building the packages"
  fresh_root packages
  built=$root$tree/build/package
  copy_tree
  run "bash packaging/build_deb.sh && bash packaging/build_tarball.sh"
  note "the deb in a bare root"
  fresh_root deb
  cp "$built"/hearth_*.deb "$root/mnt/"
  run "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ./hearth_*.deb >/dev/null"
  ask_for_a_tale hearth
  run "DEBIAN_FRONTEND=noninteractive apt-get purge -y -qq hearth >/dev/null"
  left=$(run "find / -xdev -name '*hearth*' -not -path '/mnt/*' -not -path '$downloads*' -not -path '/home/*' \
    -not -path '/var/log/*' -not -path '/var/cache/*' -not -path '/tmp/*'")
  [[ -z $left ]] || fail "purging the package leaves: $left"
  note "the tarball in a bare root"
  fresh_root tarball
  cp "$built"/hearth-*.tar.gz "$root/mnt/"
  run "mkdir /opt/hearth && tar -C /opt/hearth --strip-components=1 -xf hearth-*.tar.gz && chmod 755 /opt/hearth"
  ask_for_a_tale /opt/hearth/bin/hearth
  run "rm -r /opt/hearth"
}

# check_script NAME COMMAND: in a root of its own.
check_script() {
  note "$2"
  fresh_root "$1"
  copy_tree
  run "$2"
}

inside() {
  if [[ $part == short || $part == presets || $part == full ]]; then check_presets; fi
  if [[ $part == demo || $part == full ]]; then check_script demo "bash packaging/demo.sh"; fi
  if [[ $part == packages || $part == full ]]; then check_packages; fi
  if [[ $part == tests || $part == full ]]; then check_script tests "bash tests/run.sh --release"; fi
  note "done on a bare machine: $part"
}

part=short
case ${1:-} in
  "") ;;
  --presets | --demo | --tests | --packages | --full) part=${1#--} ;;
  --inside) part=$2 work=$3 compiler_cache=$4; inside; exit ;;
  *) echo "usage: bash tests/packaging/bare.sh [--presets|--demo|--tests|--packages|--full]" >&2; exit 2 ;;
esac

[[ -z ${HEARTH_IN_BARE_ROOT:-} ]] || skip "this is one already"
[[ $(id -u) == 0 ]] || skip "needs root"
command -v debootstrap >/dev/null || skip "needs the package debootstrap (packaging/install_deps.sh --test)"
(($(df --output=avail -k "${TMPDIR:-/tmp}" | tail -n 1) > 4000000)) || skip "needs 4 GB of room for temporary files"
unshare --mount --pid --fork true 2>/dev/null || skip "needs mount namespaces"

work=$(mktemp -d "${TMPDIR:-/tmp}/hearth-bare.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
chmod 755 "$work"
# The sources of this system's apt, and of them Debian 12's.
apt-get indextargets --no-release-info --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
  grep -E " $release(-updates|-security)? main\$" | sort -u >"$work/sources.list" || true
mirror=$(awk -v r=$release '$3 == r { print $2; exit }' "$work/sources.list")
[[ -n $mirror ]] || skip "apt has no source of Debian 12 here"

compiler_cache=$(ccache --get-config cache_dir 2>/dev/null || echo "$cache/ccache")
mkdir -p "$cache/debs/partial" "$compiler_cache"
find "$cache" -type f -mtime +30 -delete  # security updates make them old
if [[ ! -s $cache/$release.tar ]]; then
  proxy=
  eval "$(apt-config shell proxy Acquire::http::Proxy)"
  SECONDS=0
  note "debootstrap"
  http_proxy=${proxy:-${http_proxy:-}} debootstrap --variant=minbase \
    $([[ $mirror != https* ]] || echo --include=ca-certificates) $release "$work/base" "$mirror" >"$work/log" 2>&1 ||
    { tail -n 5 "$work/log"; skip "debootstrap could not make the root"; }
  rm -rf "$work/base/var/cache/apt/archives"/*.deb
  tar -C "$work/base" -cf "$cache/$release.tar.part" .
  mv "$cache/$release.tar.part" "$cache/$release.tar"
  rm -rf --one-file-system "$work/base"
fi
unshare --mount --pid --fork --kill-child bash "${BASH_SOURCE[0]}" --inside "$part" "$work" "$compiler_cache"
