#!/usr/bin/env bash
# Builds here what tests/gpu/run.sh would build where the GPU is, and packs the programs: minutes there are dearer. The
# processor there may be another one (x86-64-v3 or newer), the system as new as this one or newer.
#
# usage: tests/gpu/binaries.sh ARCHIVE.tar.xz [--architectures 90-real] [--emulated] [--build FOLDER]
#   --architectures   of the GPU, as CMake's CMAKE_CUDA_ARCHITECTURES has them
#   --emulated        programs whose GPU is emulated (tests/emulation) under the names of the others, for this machine
#   --build           build/gpu-binaries
# Programs find the libraries of tests/gpu/packages.sh where run.sh unpacks both.
set -euo pipefail
cd "$(dirname "$0")/../.."

archive= architectures=90-real emulated= build=build/gpu-binaries
while [ $# -gt 0 ]; do
  case "$1" in
    --architectures) architectures=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    --emulated) emulated=yes; shift ;;
    -*) echo "binaries.sh: unknown flag '$1'; it takes --architectures, --build and --emulated" >&2; exit 2 ;;
    *) archive=$(realpath -m "$1"); shift ;;
  esac
done
[ -n "$archive" ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

take() {  # <program in the build folder> [<name in the archive>]
  mkdir -p "$stage/$(dirname "${2:-$1}")"
  strip -o "$stage/${2:-$1}" "$build/$1"
}
if [ -n "$emulated" ]; then
  tests/gpu/build.sh "$build" -- ranvier-train-emulated ranvier-generate-emulated ranvier_runtime_emulated_tests \
    ranvier_models_emulated_tests ops_bench_emulated file_bench
  for program in train generate; do take "tests/emulation/ranvier-$program-emulated" "apps/ranvier-$program"; done
  for room in runtime models; do
    take "tests/$room/ranvier_${room}_emulated_tests" "tests/$room/ranvier_${room}_gpu_tests"
  done
  take tests/bench/ops_bench_emulated tests/bench/ops_bench_cuda
else
  tests/gpu/build.sh "$build" -DRANVIER_NATIVE=OFF -DCMAKE_CUDA_ARCHITECTURES="$architectures"
  grep -q '^RANVIER_CUDNN_FRONTEND_INCLUDE:PATH=/' "$build/CMakeCache.txt" || {
    echo "binaries.sh: built without attention by cuDNN: cmake/install_dependencies.sh --cuda fetches what it needs" >&2
    exit 1
  }
  for program in apps/ranvier-train apps/ranvier-generate tests/bench/ops_bench_cuda; do take "$program"; done
  while read -r program; do take "$program"; done < <(
    cd "$build" && find tests -type f -perm -u+x -name 'ranvier_*_gpu_*test*')
fi
take tests/bench/file_bench

XZ_OPT="-3 -T0" tar -C "$stage" -cJf "$archive" .
echo "$archive: $(du -h "$archive" | cut -f1), unpacked $(du -sh "$stage" | cut -f1)"
