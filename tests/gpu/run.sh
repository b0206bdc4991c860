#!/usr/bin/env bash
# Builds for this machine's GPU, runs what is labelled `gpu`, and trains the same small model on the cpu and the cuda
# device, and with PyTorch where there is one. Needs CUDA 12.4 or newer, CMake, a C++ compiler, and the libraries of
# cmake/install_dependencies.sh, which may lie in an archive instead.
#
# usage: tests/gpu/run.sh [--packages ARCHIVE.tar.xz|FOLDER] [--build FOLDER] [--sanitize] [--no-train] [--bench]
#                        [--only STAGE,…] [--limit SECONDS]
#   --packages   what tests/gpu/packages.sh packed elsewhere, or that unpacked
#   --sanitize   the tests of kernels again under compute-sanitizer: memcheck, then racecheck
#   --bench      also what there is to measure: the stages from ops on
#   --only       these stages and no others, in this order; none: only build
#     tests      what is labelled `gpu`
#     sanitize   as --sanitize
#     train      the same small model on either device, text drawn from it, and 50 steps beside PyTorch
#     ops        every operation beside a copy and a large matrix product (tests/bench/ops_bench_cuda.cpp)
#     kernels    which kernels a step is made of (tests/bench/kernels_gpu.sh)
#     pytorch    training beside PyTorch with torch.compile (tests/bench/compare_pytorch_gpu.py)
#     large      7 B parameters with optimizer states in the host's memory (tests/bench/optimizer_on_host_gpu.sh)
#     stages     two ranks on one GPU as two stages (tests/bench/stages_on_one_gpu.sh)
#   --limit      of each stage, after which it is ended and the next one begins; the script then fails at its end
set -euo pipefail
cd "$(dirname "$0")/../.."

packages= build=build/gpu sanitize= train=yes bench= only=unset limit=0
all_stages=" tests sanitize train ops kernels pytorch large stages "
while [ $# -gt 0 ]; do
  case "$1" in
    --packages) packages=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    --sanitize) sanitize=yes; shift ;;
    --no-train) train=; shift ;;
    --bench) bench=yes; shift ;;
    --only) only=$2; shift 2 ;;
    --limit) limit=$2; shift 2 ;;
    *) echo "run.sh: unknown argument '$1'; it takes --packages, --build, --sanitize, --no-train, --bench, --only and" \
            "--limit" >&2
       exit 2 ;;
  esac
done
if [ "$only" = unset ]; then
  only=tests${sanitize:+,sanitize}${train:+,train}${bench:+,ops,kernels,pytorch,large,stages}
fi
stages=${only//,/ }
[ "$stages" != none ] || stages=
for stage in $stages; do
  [[ $all_stages == *" $stage "* ]] || { echo "run.sh: --only $stage: one of$all_stages" >&2; exit 2; }
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

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

with_pytorch() {  # what reference/run.sh says of a machine without PyTorch is no failure here
  local status=0
  tests/reference/run.sh "$@" || status=$?
  [ "$status" -eq 77 ] || return "$status"
}
losses() { sed 's/.*"loss": *\([0-9.]*\).*/\1/' "$1"; }
close_losses() {  # <metrics> <metrics> <steps> <what>
  paste <(losses "$1") <(losses "$2") |
    awk -v steps="$3" -v what="$4" '{ d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d }
      END { printf "%s differ by %.6f at most\n", what, worst; exit !(NR == steps && worst < 0.002) }'
}

run_tests() { (cd "$build" && ctest -L gpu --output-on-failure); }

run_sanitize() {
  command -v compute-sanitizer >/dev/null || {
    echo "run.sh: sanitize needs compute-sanitizer, which comes with CUDA: put it on the PATH" >&2
    return 2
  }
  for tool in memcheck racecheck; do
    for program in "$build"/tests/*/ranvier_*_gpu_tests; do
      echo "== $tool: $program"
      compute-sanitizer --tool "$tool" --error-exitcode 1 "$program"
    done
  done
}

run_train() {
  echo "== 50 steps on either device"
  cat README.md */*.cpp > "$results/text"
  for device in cpu cuda; do
    "$build/apps/ranvier-train" --data "$results/text" --layers 4 --hidden 128 --heads 4 --sequence-length 128 \
      --batch-size 8 --steps 50 --precision fp32 --device "$device" --metrics "$results/$device" --overwrite \
      --save "$results/weights" | tail -3
  done
  close_losses "$results/cpu" "$results/cuda" 50 "losses of 50 steps"
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
        --all-reduce "$2" --metrics "$results/$1.$2" --overwrite | grep -E '^(collectives|loss|NCCL)'
    done
    cmp <(losses "$results/plans.ring") <(losses "$results/nccl.ring") && echo "plans give the same losses by NCCL"
    close_losses "$results/plans.ring" "$results/nccl.auto" 20 "those of NCCL itself"
  fi
  echo "== 50 steps beside PyTorch"
  with_pytorch ../gpu/compare_losses.py "$(realpath "$build")/apps/ranvier-train" "$results/losses"
}

run_ops() {
  for dtype in bf16 fp32; do "$build/tests/bench/ops_bench_cuda" "$dtype" | tee "$results/operations.$dtype"; done
}

run_kernels() {
  local known=()
  for model in gpt2 1.3B; do
    # Without nsys, as run_ops has measured them.
    command -v nsys >/dev/null || [ ! -s "$results/operations.bf16" ] || known=(--operations "$results/operations.bf16")
    tests/bench/kernels_gpu.sh --model "$model" --build "$build" "${known[@]}"
  done
}

run_pytorch() {
  with_pytorch ../bench/compare_pytorch_gpu.py "$(realpath "$build")/apps/ranvier-train" \
    --cases gpt2-small-bf16,1.3B-bf16 --repeats 2 --seconds 10
}

run_large() { tests/bench/optimizer_on_host_gpu.sh --build "$build"; }

run_stages() { tests/bench/stages_on_one_gpu.sh --build "$build"; }

export build results
export -f with_pytorch losses close_losses run_tests run_sanitize run_train run_ops run_kernels run_pytorch run_large run_stages
failed=
for stage in $stages; do
  echo "== $stage"
  begin=$SECONDS status=0
  timeout --kill-after=10 "$limit" bash -euo pipefail -c "run_$stage" || status=$?
  echo "== $stage took $((SECONDS - begin)) s$([ "$status" -eq 0 ] || echo " and failed ($status; 124: --limit $limit)")"
  [ "$status" -eq 0 ] || failed+=" $stage"
done
[ -z "$failed" ] || { echo "run.sh: failed:$failed" >&2; exit 1; }
