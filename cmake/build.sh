#!/usr/bin/env bash
# Configures and builds a preset, with as many parallel compilers as cores and memory allow.
#
# usage: cmake/build.sh PRESET [-DNAME=VALUE...] [TARGET...]      into build/PRESET; without targets everything
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:?usage: cmake/build.sh PRESET [-DNAME=VALUE...] [TARGET...]}
shift
options=()
while [[ ${1:-} == -D* ]]; do
  options+=("$1")
  shift
done
# A new build folder uses unity builds; add -DRANVIER_JOIN=OFF for development.
[ -e "build/$preset/CMakeCache.txt" ] || options=(-DRANVIER_JOIN=ON "${options[@]}")

gib=1048576
available=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
[ "$limit" = max ] || [ $((limit / 1024)) -gt "$available" ] || available=$((limit / 1024))
jobs=$((available / (gib * 7 / 4)))  # the largest groups of sources take 1.6 GiB each
cores=$(nproc)
[ "$jobs" -le "$cores" ] || jobs=$cores
[ "$jobs" -ge 1 ] || jobs=1

cmake --preset "$preset" "${options[@]}"
targets=()
[ $# -eq 0 ] || targets=(--target "$@")
cmake --build "build/$preset" -j "$jobs" "${targets[@]}"
