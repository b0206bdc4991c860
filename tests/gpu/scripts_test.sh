#!/usr/bin/env bash
# Keeps the scripts of this folder and of tests/bench that need a GPU from rotting where there is none, in seconds: their
# syntax, their errors, run.sh over programs that only seem to be ours, and the summary of figures that were recorded.
# Whole stages: rehearse.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
expect() {  # <what> <words that the output has> <status> <command…>
  local said status=0
  said=$("${@:4}" 2>&1) || status=$?
  if [ "$status" -ne "$3" ] || ! grep -qF -e "$2" <<<"$said"; then
    printf 'FAILED: %s: ended with %d instead of %d, or without "%s":\n%s\n' "$1" "$status" "$3" "$2" "$said"
    failed=1
  fi
}

for script in tests/gpu/*.sh tests/gpu/stages/*.sh tests/bench/*.sh; do expect "syntax of $script" "" 0 bash -n "$script"; done
for script in tests/gpu/*.py tests/bench/*.py; do
  expect "syntax of $script" "" 0 python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$script"
done

run=tests/gpu/run.sh
expect "an unknown flag" "unknown argument '--stages'" 2 $run --stages
expect "an unknown stage" "--only sises: one of check tests" 2 $run --only sises
expect "a flag without its value" "--build needs a value" 2 $run --build
expect "a limit in minutes" "--limit 5m: a whole number of seconds" 2 $run --limit 5m
expect "an archive that is not there" "--packages $folder/none: there is no such file" 2 $run --packages "$folder/none"
expect "a folder without figures" "figures.jsonl is not there" 1 python3 tests/gpu/summary.py "$folder"
expect "an unknown model" "--models 8B: one of gpt2-small" 1 python3 tests/bench/sizes_on_one_gpu.py trainer --models 8B
expect "an unknown case" "--cases gpt2: one of gpt2-small" 1 \
  python3 tests/bench/compare_pytorch_gpu.py trainer --cases gpt2

# Programs that only seem to be ours.
mkdir -p "$folder/programs/apps" "$folder/path" "$folder/others"
cat >"$folder/programs/apps/ranvier-train" <<'END'
#!/bin/sh
case "$*" in *"--attention cudnn"*) [ -z "$NO_CUDNN" ] || { echo "no cuDNN here"; exit 1; } ;; esac
echo "ranvier-train $*"
END
cat >"$folder/path/mpirun" <<'END'
#!/bin/sh
while [ "${1#/}" = "$1" ]; do shift; done
exec "$@"
END
cat >"$folder/others/rival" <<'END'
#!/bin/sh
for step in 1 2 3 4 5 6; do echo "step $step | loss 5.0 | ${step}00 tok/s"; done
END
printf '#!/bin/sh\nsleep 60\n' >"$folder/others/slow"
chmod +x "$folder/programs/apps/ranvier-train" "$folder/path/mpirun" "$folder"/others/*
tar -C "$folder/programs" -cf "$folder/programs.tar" .
PATH=$PWD/tests/gpu/rehearsal:$folder/path:$PATH
seemingly() { $run --binaries "$folder/programs.tar" --build "$folder/build" --results "$folder/results" --tiny "$@"; }

NO_CUDNN=yes expect "a machine without cuDNN" "--without-cudnn goes on all the same" 1 seemingly --only ncu
expect "nothing after a check that failed" "0" 1 grep -c '"stage": "ncu"' "$folder/results/figures.jsonl"
NO_CUDNN=yes expect "the same where that is known" "Emulated, attention by ranvier" 0 seemingly --only check --without-cudnn
rm -r "$folder/results"
expect "a stage that hangs" "others  ended by its limit" 1 seemingly --only others,ncu --others "$folder/others" --limit 6
summary=$folder/results/summary
expect "the one after it" "ncu" 0 grep -E 'ncu +[0-9]+ +6 +done' "$summary"
expect "another trainer's rate" "400" 0 grep -E 'rival +400' "$summary"
expect "kernels of the step alone" "nvjet_hsh_256x128" 0 grep -E 'nvjet_hsh_256x128 +2 +380.0 +95.0%' "$summary"
expect "kernels before the step" "" 1 grep measured_before "$summary"
expect "a budget that is spent" "stage check   not begun: --budget was spent" 1 seemingly --only ncu --budget 1

mkdir "$folder/recorded"
cat >"$folder/recorded/figures.jsonl" <<'END'
{"bench": "check", "gpu": "Some GPU", "attention": "cudnn"}
{"bench":"ceiling","operation":"copy","device":"cuda:0","gbytes_per_second":4300}
{"bench":"ceiling","operation":"matmul","dtype":"bf16","tflops":780.0}
{"bench":"operation","model":"gpt2","dtype":"bf16","operation":"attention_forward","us":300.0,"tflops":300.0,"share_of_matmul":0.385,"tflops_whole":600.0,"share_whole":0.769}
{"bench":"operation","model":"gpt2","dtype":"bf16","operation":"gelu_forward","us":50.0,"gbytes_per_second":3870,"share_of_copy":0.900}
{"bench": "tests", "tool": "racecheck", "program": "ranvier_models_gpu_tests", "status": 1, "seconds": 9}
{"bench": "sizes_on_one_gpu", "model": "gpt2-small", "tokens_per_second": 500000.0, "tflops": 430.0, "mfu": 0.551, "planned_bytes": 13421772800, "measured_bytes": 14495514624, "start_seconds": 6.5}
{"bench": "sizes_on_one_gpu", "model": "7B", "failed": "ranvier-train: error: out of memory"}
{"bench": "compare_pytorch_gpu", "case": "gpt2-small-bf16", "ranvier_tokens_per_second": 500000.0, "pytorch_tokens_per_second": 400000.0, "pytorch_padded_tokens_per_second": 450000.0, "ratio": 1.111}
{"bench": "tiers", "placement": "optimizer in files", "seconds": 1.5, "over_device": 3.0, "losses_same": false}
{"bench": "faults", "flags": "cuda:1", "expected": "numbered from 0", "as_expected": false, "status": 0, "seconds": 4}
{"bench": "stage", "stage": "sizes", "status": 124, "seconds": 330, "limit": 330}
{"bench": "stage", "stage": "nc
END
expect "the summary of what was recorded" "Some GPU, attention by cudnn" 0 \
  bash -c 'python3 tests/gpu/summary.py "$1" | tee "$2"' - "$folder/recorded" "$folder/tables"
while read -r row; do expect "in the summary" "" 0 grep -E "$row" "$folder/tables"; done <<'END'
sizes +330 +330 +ended by its limit
copy, cuda:0 +4,300 GB/s
gpt2-small +500,000 +430.0 +55.1% +12.5 +13.5 +6.5 +400,000 +450,000 +1.111
gpt2: attention_forward +300.0 +38.5% +76.9%
gpt2: gelu_forward +50.0 +90.0%
ranvier_models_gpu_tests under racecheck +status 1
7B +ranvier-train: error: out of memory
losses with optimizer in files +differ from those on the device
fault: cuda:1 +not 'numbered from 0'
END
[ "$failed" -ne 0 ] || echo "all as expected"
exit "$failed"
