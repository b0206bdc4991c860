#!/usr/bin/env bash
# Builds for this machine's GPU, runs what is labelled `gpu`, and trains the same small model on the cpu and the cuda
# device. Needs CUDA 12.4 or newer, CMake, a C++ compiler, and the libraries of cmake/install_dependencies.sh, which
# may lie in an archive instead.
#
# usage: tests/gpu/run.sh [--packages ARCHIVE.tar.xz|FOLDER] [--build FOLDER] [--sanitize] [--no-train]
#   --packages   what tests/gpu/packages.sh packed elsewhere, or that unpacked
#   --sanitize   the tests of kernels again under compute-sanitizer: memcheck, then racecheck
set -euo pipefail
cd "$(dirname "$0")/../.."

packages= build=build/gpu sanitize= train=yes
while [ $# -gt 0 ]; do
  case "$1" in
    --packages) packages=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    --sanitize) sanitize=yes; shift ;;
    --no-train) train=; shift ;;
    *) echo "run.sh: unknown argument '$1'; it takes --packages, --build, --sanitize and --no-train" >&2; exit 2 ;;
  esac
done

settings=(-DCMAKE_BUILD_TYPE=Release -DRANVIER_CUDA=ON)
nvidia-smi -L 2>/dev/null | grep -q GPU && settings+=(-DCMAKE_CUDA_ARCHITECTURES=native)
command -v ninja >/dev/null && settings+=(-G Ninja)

if [ -n "$packages" ]; then
  if [ -f "$packages" ]; then
    mkdir -p "$build.packages"
    tar -C "$build.packages" -xf "$packages"
    packages=$build.packages
  fi
  packages=$(realpath "$packages")
  lib=$packages/usr/lib/x86_64-linux-gnu
  export LD_LIBRARY_PATH=$lib:$lib/openmpi/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export OPAL_PREFIX=$packages/usr PMIX_INSTALL_PREFIX=$packages/usr PATH=$packages/usr/bin:$PATH
  settings+=(-DCMAKE_PREFIX_PATH="$packages/usr" -DMPI_SKIP_COMPILER_WRAPPER=ON -DMPI_C_LIB_NAMES=mpi
             -DMPI_mpi_LIBRARY="$lib/openmpi/lib/libmpi.so" -DMPI_C_HEADER_DIR="$lib/openmpi/include"
             -DMPIEXEC_EXECUTABLE="$packages/usr/bin/orterun")
fi

cmake -S . -B "$build" "${settings[@]}"
cmake --build "$build" -j "$(nproc)" --target gpu_tests ranvier-train

echo "== tests"
(cd "$build" && ctest -L gpu --output-on-failure)

if [ -n "$sanitize" ]; then
  for tool in memcheck racecheck; do
    for program in "$build"/tests/*/ranvier_*_gpu_tests; do
      echo "== $tool: $program"
      compute-sanitizer --tool "$tool" --error-exitcode 1 "$program"
    done
  done
fi

[ -n "$train" ] || exit 0
echo "== 50 steps on either device"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
cat README.md */*.cpp > "$results/text"
for device in cpu cuda; do
  "$build/apps/ranvier-train" --data "$results/text" --layers 4 --hidden 128 --heads 4 --sequence-length 128 \
    --batch-size 8 --steps 50 --precision fp32 --device "$device" --metrics "$results/$device" | tail -3
done
paste <(sed 's/.*"loss": *\([0-9.]*\).*/\1/' "$results/cpu") <(sed 's/.*"loss": *\([0-9.]*\).*/\1/' "$results/cuda") |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d }
       END { printf "losses of %d steps differ by %.6f at most\n", NR, worst; exit !(NR == 50 && worst < 0.002) }'
