#!/usr/bin/env bash
# Builds for this machine's GPU, or takes what was built elsewhere, and runs stages: tests, comparisons with the cpu
# device and with PyTorch, measurements. Needs CUDA 12.4 or newer, CMake, a C++ compiler, and the libraries of
# cmake/install_dependencies.sh, which may lie in an archive instead. README.md has a plan for half an hour.
#
# usage: tests/gpu/run.sh [--packages ARCHIVE.tar.xz|FOLDER] [--binaries ARCHIVE.tar.xz] [--build FOLDER]
#                         [--results FOLDER] [--only STAGE,…|all|none] [--limit SECONDS] [--budget SECONDS]
#                         [--others FOLDER] [--without-cudnn] [--tiny]
#   --packages       what tests/gpu/packages.sh packed elsewhere, or that unpacked
#   --binaries       what tests/gpu/binaries.sh built elsewhere; where it does not run, all is built here
#   --build          where to build, or to unpack those; build/gpu
#   --results        where every stage adds what it finds as it goes: log, figures.jsonl, summary and a few more;
#                    build/gpu.results
#   --only           these stages, in this order, instead of tests,train; none: only build. `check` always comes first
#     check        what this machine has; whether programs, two ranks and attention by cuDNN run. Ends all if not
#     tests        what is labelled `gpu`
#     train        the same small model on either device, text drawn from it, and 50 steps beside PyTorch
#     memcheck     the tests of kernels again under compute-sanitizer
#     racecheck    the same for races in shared memory
#     ops          every operation beside a copy and a large matrix product (tests/bench/ops_bench_cuda.cpp)
#     sizes        GPT-2 small to 7 B, 20 steps each (tests/bench/sizes_on_one_gpu.py)
#     ncu          one step of GPT-2 small under Nsight Compute (tests/bench/step_under_ncu.py)
#     pytorch      training beside PyTorch with torch.compile (tests/bench/compare_pytorch_gpu.py)
#     others       every program of --others FOLDER: what it says of its tokens per second
#     ranks        two ranks on one GPU as two stages; four as 2 x 2 (tests/bench/stages_on_one_gpu.sh)
#     tiers        GPT-2 small with states on the host and in files (tests/bench/tiers.sh)
#     large        7 B with optimizer states in the host's memory (tests/bench/optimizer_on_host_gpu.sh)
#     faults       what a user sees of a GPU that is not there or too small, and of a rank that dies
#   --limit          seconds of each stage instead of its own, after which it is ended and the next one begins
#   --budget         seconds of them all: what is left limits a stage, too, and without any it is not begun
#   --others         a folder of programs, each started there without arguments by the stage `others`
#   --without-cudnn  measure although attention by cuDNN is not to be had
#   --tiny           models and counts so small that an emulated GPU is fast enough (tests/gpu/rehearse.sh)
# Fails at its end if a stage failed.
set -euo pipefail
cd "$(dirname "$0")/../.."

packages= binaries= build=build/gpu results= only=tests,train limit= budget= others= without_cudnn= tiny=
declare -A limits=([check]=90 [tests]=200 [train]=120 [memcheck]=150 [racecheck]=150 [ops]=90 [sizes]=330 [ncu]=100
                   [pytorch]=330 [others]=200 [ranks]=120 [tiers]=150 [large]=330 [faults]=90)
all_stages=(check tests train memcheck racecheck ops sizes ncu pytorch others ranks tiers large faults)
while [ $# -gt 0 ]; do
  case "$1" in
    --packages | --binaries | --build | --results | --only | --limit | --budget | --others)
      [ $# -ge 2 ] || { echo "run.sh: $1 needs a value" >&2; exit 2; }
      printf -v "${1#--}" %s "$2"
      shift 2 ;;
    --without-cudnn) without_cudnn=yes; shift ;;
    --tiny) tiny=yes; shift ;;
    *) echo "run.sh: unknown argument '$1'; it takes --packages, --binaries, --build, --results, --only, --limit," \
            "--budget, --others, --without-cudnn and --tiny" >&2
       exit 2 ;;
  esac
done
case "$only" in
  all) stages=("${all_stages[@]:1}") ;;
  none) stages=() ;;
  *) IFS=, read -ra stages <<<"$only" ;;
esac
for stage in "${stages[@]}"; do
  [ -n "${limits[$stage]:-}" ] || { echo "run.sh: --only $stage: one of ${all_stages[*]}, or all or none" >&2; exit 2; }
done
for seconds in ${limit:+"--limit $limit"} ${budget:+"--budget $budget"}; do
  [[ $seconds =~ \ [0-9]+$ ]] || { echo "run.sh: $seconds: a whole number of seconds" >&2; exit 2; }
done
for given in ${packages:+"--packages $packages"} ${binaries:+"--binaries $binaries"} ${others:+"--others $others"}; do
  [ -e "${given#* }" ] || { echo "run.sh: $given: there is no such file" >&2; exit 2; }
done
: "${results:=$build.results}"
mkdir -p "$build" "$results"
build=$(realpath "$build") results=$(realpath "$results")
[ -z "$others" ] || others=$(realpath "$others")

source tests/gpu/environment.sh
if ! binaries_run; then
  [ -z "$tiny" ] || exit 1
  echo "== building in $build"
  timeout "${budget:-0}" tests/gpu/build.sh "$build" "${settings[@]}"
fi
[ ${#stages[@]} -gt 0 ] || exit 0

# What stages read. They run in the repository's root.
export build results others tiny without_cudnn
products=$build/products.json  # what is measured of a GPU's products once holds for all stages
figures=$results/figures.jsonl
slower=1
[ -z "$tiny" ] || slower=4  # than a GPU, even so
# So little that no matrix product is timed, which an emulated GPU would need minutes for.
tiny_flags=${tiny:+--device-memory 64MiB}
export products figures tiny_flags
for stage in "${all_stages[@]}"; do limits[$stage]=${limit:-$((limits[$stage] * slower))}; done

summarize() {
  python3 tests/gpu/summary.py "$results" >"$results/summary.new" && mv "$results/summary.new" "$results/summary"
}

run_stage() {  # <stage>
  local begin=$SECONDS status=0 seconds=${limits[$1]}
  if [ -n "$budget" ] && ((budget - SECONDS < seconds)); then seconds=$((budget - SECONDS)); fi
  if ((seconds < 5)); then
    echo "== $1: not begun, --budget is spent" | tee -a "$results/log"
    printf '{"bench": "stage", "stage": "%s", "status": null, "seconds": 0}\n' "$1" >>"$figures"
    summarize
    return 1
  fi
  echo "== $1, at most $seconds s" | tee -a "$results/log"
  timeout --kill-after=10 "$seconds" bash -euo pipefail "tests/gpu/stages/$1.sh" 2>&1 </dev/null |
    tee -a "$results/log" |
    awk -v figures="$figures" '{ print; fflush() } /^\{"/ { print >>figures; fflush(figures) }' ||
    status=${PIPESTATUS[0]}
  printf '{"bench": "stage", "stage": "%s", "status": %d, "seconds": %d, "limit": %d}\n' "$1" "$status" \
    $((SECONDS - begin)) "$seconds" >>"$figures"
  echo "== $1 took $((SECONDS - begin)) s$([ "$status" -eq 0 ] || echo " and failed ($status; 124: its limit)")" |
    tee -a "$results/log"
  if [ -f "$products" ]; then cp "$products" "$results/"; fi
  summarize
  return "$status"
}

failed=
for stage in check "${stages[@]/#check/}"; do
  [ -n "$stage" ] || continue  # check itself
  run_stage "$stage" && continue
  failed+=" $stage"
  [ "$stage" != check ] || break
done
cat "$results/summary"
[ -z "$failed" ] || { echo "run.sh: failed:$failed" >&2; exit 1; }
