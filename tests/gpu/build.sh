#!/usr/bin/env bash
# Builds what run.sh needs, or other targets.
#
# usage: tests/gpu/build.sh FOLDER [SETTINGS OF CMAKE…] [-- TARGETS…]
#
# Programs find libraries that were unpacked into FOLDER/packages, also after they were moved, and so do the libraries
# that those open.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:?usage: tests/gpu/build.sh FOLDER [SETTINGS OF CMAKE…] [-- TARGETS…]}
shift

lib=packages/usr/lib/x86_64-linux-gnu
rpath=
for up in .. ../..; do rpath+="\$ORIGIN/$up/$lib;\$ORIGIN/$up/$lib/openmpi/lib;"; done
settings=(-DCMAKE_BUILD_TYPE=Release -DRANVIER_CUDA=ON "-DCMAKE_BUILD_RPATH=${rpath%;}")
command -v ninja >/dev/null && settings+=(-G Ninja)
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  settings+=("$1")
  shift
done
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || targets=(gpu_tests ranvier-train ranvier-generate ops_bench file_bench)
# DT_RPATH, not DT_RUNPATH, which holds for a program's own libraries alone.
LDFLAGS="-Wl,--disable-new-dtags ${LDFLAGS:-}" cmake -S . -B "$build" "${settings[@]}"
cmake --build "$build" -j "$(nproc)" --target "${targets[@]}"
