#!/usr/bin/env bash
# Builds for this machine's GPU, or takes programs that were built elsewhere, and runs stages: tests, comparisons with
# the cpu device and with PyTorch, measurements. Needs CUDA 12.4 or newer, CMake, a C++ compiler, and the libraries of
# cmake/install_dependencies.sh, which may come from an archive instead. README.md has the recipe.
#
# usage: tests/gpu/run.sh --help
set -euo pipefail
cd "$(dirname "$0")/../.."

usage() {
  cat <<'END'
usage: tests/gpu/run.sh [--call A|B|C] [--packages ARCHIVE.tar.xz|FOLDER] [--binaries ARCHIVE.tar.xz|FOLDER]
                        [--build FOLDER] [--results FOLDER] [--only STAGE,…|all|none] [--limit SECONDS]
                        [--budget SECONDS] [--others FOLDER] [--tiny]
  --call           one of the three calls of the recipe, with its stages, budget and limits
  --packages       archive of tests/gpu/packages.sh, or the folder that it unpacks to
  --binaries       archive of tests/gpu/binaries.sh, or such a folder; if it does not run, all is built here
  --build          folder to build in, or to unpack those into; build/gpu
  --results        folder that every stage adds its results to: log, figures.jsonl, summary and a few more;
                   build/gpu.results
  --only           stages, in this order, instead of tests,train; none: only build. `check` always comes first
    check        lists this machine's tools and starts programs, two ranks and cuDNN; ends the call if they fail
    tests        tests with the label `gpu`, a process per file
    train        the same small model on either device, text drawn from it, and 50 steps compared with PyTorch
    gpt2         GPT-2 small, 10 steps (tests/bench/sizes_on_one_gpu.py)
    ops          every operation in bf16 as a share of a copy or a product (tests/bench/ops_bench.cpp)
    sizes        1.5B and 7B, 8 microbatches per step, with either backward pass of cuDNN's attention
    ncu          one step of GPT-2 small under Nsight Compute (tests/bench/step_under_ncu.py)
    pytorch      GPT-2 small compared with PyTorch and torch.compile (tests/bench/compare_pytorch_gpu.py)
    memcheck     tests of our own kernels under compute-sanitizer
    racecheck    the same for races in shared memory
    host_states  3B with optimizer states on the host and on the device (tests/bench/optimizer_on_host_gpu.py)
    faults       a GPU that is missing or too small, and a rank that dies: the message and the end
    more_sizes   774M, 1.3B and 3B as in `sizes`
    more_pytorch 774M and 1.5B as in `pytorch`
    ops_fp32     `ops` in fp32
    others       every program of --others FOLDER: the tokens per second that it prints
    ranks        two ranks on one GPU as two stages; four as 2 x 2 (tests/bench/stages_on_one_gpu.sh)
    tiers        GPT-2 small with states on the host, in files and in other types (tests/bench/tiers.sh)
    large        7B with optimizer states on the host: 84 GB of pinned memory
  --limit          seconds per stage instead of its own limit, after which it is ended and the next one begins
  --budget         seconds for all stages: the rest of it limits a stage, too; a stage without any is not begun
  --others         a folder of programs, each started there without arguments by the stage `others`
  --tiny           models and counts so small that an emulated GPU is fast enough (tests/gpu/rehearse.sh)
Fails at its end if a stage failed.
END
}

# Budget in seconds, then stages with their limits, the most valuable first. Unpacking takes the rest of the budget.
declare -A calls=(
  [A]="360 check:60 tests:115 train:60 gpt2:45 ops:60"
  [B]="540 check:30 sizes:250 ncu:90 pytorch:150"
  [C]="420 check:30 memcheck:90 racecheck:90 host_states:130 faults:60"
)
# Limits in seconds of stages without --call.
declare -A limits=([check]=60 [tests]=200 [train]=120 [gpt2]=60 [ops]=90 [sizes]=330 [ncu]=100 [pytorch]=200 [memcheck]=150
                   [racecheck]=150 [host_states]=200 [faults]=90 [more_sizes]=200 [more_pytorch]=300 [ops_fp32]=60
                   [others]=200 [ranks]=120 [tiers]=270 [large]=300)
all_stages=(check tests train gpt2 ops sizes ncu pytorch memcheck racecheck host_states faults more_sizes more_pytorch
            ops_fp32 others ranks tiers large)
call= packages= binaries= build=build/gpu results= only= limit= budget= others= tiny=
while [ $# -gt 0 ]; do
  case "$1" in
    --call | --packages | --binaries | --build | --results | --only | --limit | --budget | --others)
      [ $# -ge 2 ] || { echo "run.sh: $1 needs a value" >&2; exit 2; }
      printf -v "${1#--}" %s "$2"
      shift 2 ;;
    --tiny) tiny=yes; shift ;;
    --help) usage; exit ;;
    *) echo "run.sh: unknown argument '$1'; it takes --call, --packages, --binaries, --build, --results, --only," \
            "--limit, --budget, --others and --tiny" >&2
       exit 2 ;;
  esac
done
if [ -n "$call" ]; then
  [ -n "${calls[$call]:-}" ] || { echo "run.sh: --call $call: A, B or C" >&2; exit 2; }
  [ -z "$only" ] || { echo "run.sh: --call $call has its own stages: remove --only $only" >&2; exit 2; }
  read -ra stages <<<"${calls[$call]}"
  : "${budget:=$((stages[0] * ${tiny:+4 *} 1))}"
  stages=("${stages[@]:1}")
  for i in "${!stages[@]}"; do
    limits[${stages[i]%:*}]=${stages[i]#*:}
    stages[i]=${stages[i]%:*}
  done
else
  case "${only:=tests,train}" in
    all) stages=("${all_stages[@]}") ;;
    none) stages=() ;;
    *) IFS=, read -ra stages <<<"check,$only" ;;
  esac
fi
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

# Variables that stages read. They run in the repository's root.
products=$build/products.json  # remembers which of the GPU's products were the fastest, for all stages
figures=$results/figures.jsonl
# Tiny: so little memory that no large product is timed, which an emulated GPU would need minutes for.
common_flags=${tiny:+--device-memory 200MiB}
export build results others tiny products figures common_flags
slower=${tiny:+4}  # than a GPU, even so
for stage in "${all_stages[@]}"; do limits[$stage]=${limit:-$((limits[$stage] * ${slower:-1}))}; done

summarize() {
  python3 tests/gpu/summary.py "$results" >"$results/summary.new" && mv "$results/summary.new" "$results/summary"
  python3 tests/gpu/summary.py --markdown "$results" >"$results/rows.md"
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
  timeout --kill-after=5 "$seconds" bash -euo pipefail "tests/gpu/stages/$1.sh" 2>&1 </dev/null |
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

failed= checked=
for stage in "${stages[@]}"; do
  [ "$stage" != check ] || [ -z "$checked" ] || continue
  checked=yes
  if ! run_stage "$stage"; then
    failed+=" $stage"
    [ "$stage" != check ] || break
  fi
  if [ "$stage" = check ] && grep '"bench": "check"' "$figures" | tail -1 | grep -q '"attention": "ranvier"'; then
    common_flags+=" --attention ranvier"  # cuDNN failed
  fi
done
cat "$results/summary"
[ -z "$failed" ] || { echo "run.sh: failed:$failed" >&2; exit 1; }
