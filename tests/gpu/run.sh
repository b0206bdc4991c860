#!/usr/bin/env bash
# Builds for this machine's GPU, runs what is labelled `gpu`, and trains the same small model on the cpu and the cuda
# device, and with PyTorch where there is one. Needs CUDA 12.4 or newer, CMake, a C++ compiler, and the libraries of
# cmake/install_dependencies.sh, which may lie in an archive instead.
#
# usage: tests/gpu/run.sh [--packages ARCHIVE.tar.xz|FOLDER] [--build FOLDER] [--sanitize] [--no-train] [--bench]
#   --packages   what tests/gpu/packages.sh packed elsewhere, or that unpacked
#   --sanitize   the tests of kernels again under compute-sanitizer: memcheck, then racecheck
#   --bench      also times each operation, and training beside PyTorch with torch.compile (tests/bench)
set -euo pipefail
cd "$(dirname "$0")/../.."

packages= build=build/gpu sanitize= train=yes bench=
while [ $# -gt 0 ]; do
  case "$1" in
    --packages) packages=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    --sanitize) sanitize=yes; shift ;;
    --no-train) train=; shift ;;
    --bench) bench=yes; shift ;;
    *) echo "run.sh: unknown argument '$1'; it takes --packages, --build, --sanitize, --no-train and --bench" >&2
       exit 2 ;;
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
cmake --build "$build" -j "$(nproc)" --target gpu_tests ranvier-train ranvier-generate ops_bench_cuda

echo "== tests"
(cd "$build" && ctest -L gpu --output-on-failure)

if [ -n "$sanitize" ]; then
  command -v compute-sanitizer >/dev/null || {
    echo "run.sh: --sanitize needs compute-sanitizer, which comes with CUDA: put it on the PATH" >&2
    exit 2
  }
  for tool in memcheck racecheck; do
    for program in "$build"/tests/*/ranvier_*_gpu_tests; do
      echo "== $tool: $program"
      compute-sanitizer --tool "$tool" --error-exitcode 1 "$program"
    done
  done
fi

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

with_pytorch() {  # what reference/run.sh says of a machine without PyTorch is no failure here
  local status=0
  tests/reference/run.sh "$@" || status=$?
  [ "$status" -eq 77 ] || return "$status"
}

if [ -n "$train" ]; then
  echo "== 50 steps on either device"
  results=$(mktemp -d)
  trap 'rm -rf "$results"' EXIT
  cat README.md */*.cpp > "$results/text"
  for device in cpu cuda; do
    "$build/apps/ranvier-train" --data "$results/text" --layers 4 --hidden 128 --heads 4 --sequence-length 128 \
      --batch-size 8 --steps 50 --precision fp32 --device "$device" --metrics "$results/$device" \
      --save "$results/weights" | tail -3
  done
  paste <(sed 's/.*"loss": *\([0-9.]*\).*/\1/' "$results/cpu") <(sed 's/.*"loss": *\([0-9.]*\).*/\1/' "$results/cuda") |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d }
         END { printf "losses of %d steps differ by %.6f at most\n", NR, worst; exit !(NR == 50 && worst < 0.002) }'
  echo "== the same text on either device"
  for device in cpu cuda; do
    "$build/apps/ranvier-generate" --weights "$results/weights" --prompt 'The ' --tokens 200 --temperature 0 \
      --device "$device" > "$results/text.$device"
  done
  cmp "$results/text.cpu" "$results/text.cuda" && echo "200 tokens are the same"
  if [ "$(nvidia-smi -L | grep -c GPU)" -ge 2 ]; then
    echo "== 20 steps on two GPUs by plans, by plans that NCCL sends, and by NCCL's own collectives"
    for way in "plans ring" "nccl ring" "nccl auto"; do
      set -- $way
      mpirun -n 2 --bind-to none "$build/apps/ranvier-train" --data "$results/text" --layers 4 --hidden 128 --heads 4 \
        --sequence-length 128 --batch-size 8 --steps 20 --precision fp32 --device cuda --collectives "$1" \
        --all-reduce "$2" --metrics "$results/$1.$2" | grep -E '^(collectives|loss)'
      sed 's/.*"loss": *\([0-9.]*\).*/\1/' "$results/$1.$2" > "$results/$1.$2.losses"
    done
    cmp "$results/plans.ring.losses" "$results/nccl.ring.losses" && echo "plans give the same losses by NCCL"
    paste "$results/plans.ring.losses" "$results/nccl.auto.losses" |
      awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d }
           END { printf "those of NCCL itself differ by %.6f at most\n", worst; exit !(NR == 20 && worst < 0.002) }'
  fi
  echo "== 50 steps beside PyTorch"
  with_pytorch ../gpu/compare_losses.py "$(realpath "$build")/apps/ranvier-train" "$results/losses"
fi

[ -n "$bench" ] || exit 0
echo "== operations"
for dtype in bf16 fp32; do "$build/tests/bench/ops_bench_cuda" "$dtype"; done
echo "== training beside PyTorch"
with_pytorch ../bench/compare_pytorch_gpu.py "$(realpath "$build")/apps/ranvier-train"
