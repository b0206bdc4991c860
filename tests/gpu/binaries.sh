#!/usr/bin/env bash
# Builds here what tests/gpu/run.sh would build where the GPU is, and packs the programs: minutes there are dearer. The
# processor there may be another one (x86-64-v3 or newer), the system as new as this one or newer.
#
# usage: tests/gpu/binaries.sh ARCHIVE.tar.xz [--architectures 90-real] [--build FOLDER]
#   --architectures   the GPU's, as in CMake's CMAKE_CUDA_ARCHITECTURES
#   --build           build/gpu-binaries
# Programs find the libraries of tests/gpu/packages.sh where run.sh unpacks both.
set -euo pipefail
cd "$(dirname "$0")/../.."

archive= architectures=90-real build=build/gpu-binaries
while [ $# -gt 0 ]; do
  case "$1" in
    --architectures) architectures=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    -*) echo "binaries.sh: unknown flag '$1'; it takes --architectures and --build" >&2; exit 2 ;;
    *) archive=$(realpath -m "$1"); shift ;;
  esac
done
[ -n "$archive" ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

take() {  # <program in the build folder>
  mkdir -p "$stage/$(dirname "$1")"
  strip -o "$stage/$1" "$build/$1"
}
tests/gpu/build.sh "$build" -DRANVIER_NATIVE=OFF -DCMAKE_CUDA_ARCHITECTURES="$architectures"
grep -q '^RANVIER_CUDNN_FRONTEND_INCLUDE:PATH=/' "$build/CMakeCache.txt" || {
  echo "binaries.sh: built without attention by cuDNN: cmake/install_dependencies.sh --cuda fetches what it needs" >&2
  exit 1
}
for program in apps/ranvier-train apps/ranvier-generate tests/bench/ops_bench tests/bench/file_bench; do
  take "$program"
done
while read -r program; do take "$program"; done < <(
  cd "$build" && find tests -type f -perm -u+x -name 'ranvier_*_gpu_*test*')
git describe --always --dirty >"$stage/commit"

XZ_OPT="-3 -T0" tar -C "$stage" -cJf "$archive" .
echo "$archive: $(du -h "$archive" | cut -f1), unpacked $(du -sh "$stage" | cut -f1)"
