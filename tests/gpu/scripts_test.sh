#!/usr/bin/env bash
# Tests the scripts of this folder without a GPU: syntax, errors, run.sh over stand-ins, and the summary of recorded
# figures. rehearse.sh tests complete stages, and tests/bench/scripts_test.sh the scripts of tests/bench.
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
expect "syntax of Python scripts" "" 0 python3 -c 'import ast, sys; [ast.parse(open(f).read(), f) for f in sys.argv[1:]]' \
  tests/gpu/*.py tests/bench/*.py

run=tests/gpu/run.sh
expect "an unknown flag" "unknown argument '--stages'" 2 $run --stages
expect "an unknown stage" "--only sises: one of check tests" 2 $run --only sises
expect "a flag without its value" "--build needs a value" 2 $run --build
expect "an unknown call" "--call D: A, B or C" 2 $run --call D
expect "a call with stages" "--call A has its own stages: remove --only tests" 2 $run --call A --only tests
expect "a limit in minutes" "--limit 5m: a whole number of seconds" 2 $run --limit 5m
expect "an archive that is not there" "--packages $folder/none: there is no such file" 2 $run --packages "$folder/none"
expect "a folder without figures" "figures.jsonl is not there" 1 python3 tests/gpu/summary.py "$folder"
expect "an unknown model" "--models 8B: one of gpt2-small" 1 python3 tests/bench/sizes_on_one_gpu.py trainer --models 8B
expect "an unknown case" "--cases gpt2: one of gpt2-small" 1 \
  python3 tests/bench/compare_pytorch_gpu.py trainer --cases gpt2

# Stand-ins for the programs.
mkdir -p "$folder/programs/apps" "$folder/path" "$folder/others"
cat >"$folder/programs/apps/ranvier-train" <<'END'
#!/bin/sh
case "$*" in *--version*) ;; *) [ -z "$NO_TRAINING" ] || exit 1 ;; esac
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

NO_TRAINING=yes expect "a machine where nothing trains" "stage check  status 1" 1 seemingly --only ncu
expect "nothing after a check that failed" "0" 1 grep -c '"stage": "ncu"' "$folder/results/figures.jsonl"
rm -r "$folder/results"
NO_CUDNN=yes expect "a machine without cuDNN" "fails: attention was computed by our own kernels" 0 seemingly --only ncu
expect "the stages after that" "" 0 grep -E 'ncu +[0-9]+ +400 +done' "$folder/results/summary"
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
{"bench": "check", "gpu": "Some GPU", "driver": "580", "total_mib": 143771, "free_mib": 143000, "commit": "abcdef1", "attention": "cudnn"}
{"bench":"ceiling","operation":"copy","device":"cuda:0","gbytes_per_second":4300}
{"bench":"ceiling","operation":"matmul","dtype":"bf16","tflops":780.0}
{"bench":"operation","model":"gpt2","dtype":"bf16","operation":"attention_forward","us":300.0,"tflops":300.0,"share_of_matmul":0.385,"tflops_whole":600.0,"share_whole":0.769}
{"bench":"operation","model":"gpt2","dtype":"bf16","operation":"gelu_forward","us":50.0,"gbytes_per_second":3870,"share_of_copy":0.900}
{"bench": "tests", "tool": "", "program": "ranvier_models_gpu_tests", "file": "gelu", "status": 0, "seconds": 9}
{"bench": "tests", "tool": "racecheck", "program": "ranvier_models_gpu_tests", "file": "attention", "status": 1, "seconds": 9}
{"bench": "sizes_on_one_gpu", "model": "gpt2-small", "flags": "--device-memory 64MiB", "microbatches": 8, "tokens_per_second": 500000.0, "tflops": 430.0, "mfu": 0.435, "measured_mfu": 0.551, "planned_bytes": 13421772800, "measured_bytes": 14495514624, "start_seconds": 6.5}
{"bench": "sizes_on_one_gpu", "model": "1.5B", "flags": "--attention-backward fast", "microbatches": 8, "tokens_per_second": 45000.0, "tflops": 480.0, "mfu": 0.485, "measured_mfu": null, "planned_bytes": 13421772800, "measured_bytes": null, "start_seconds": 6.5}
{"bench": "sizes_on_one_gpu", "model": "774M", "flags": "", "failed": "ranvier-train: error: out of memory"}
{"bench": "sizes_on_one_gpu", "model": "7B", "flags": "", "left_out": "device memory per rank 122.1 GiB of 78.0 GiB does not fit"}
{"bench": "optimizer_on_host_gpu", "model": "3B", "step_at": "host", "flags": "", "tokens_per_step": 131072, "tokens_per_second": 21000.5, "seconds": 6.2, "seconds_without_optimizer": 6.0, "device_bytes": 13421772800, "measured_bytes": 14495514624}
{"bench": "compare_losses", "who": "ranvier cuda", "precision": "fp32", "worst_relative_difference": 3e-4, "within": false}
{"bench": "compare_pytorch_gpu_run", "case": "774M-bf16", "who": "padded", "tokens_per_second": 70000.0}
{"bench": "compare_pytorch_gpu", "case": "gpt2-small-bf16", "ranvier_tokens_per_second": 500000.0, "pytorch_tokens_per_second": 400000.0, "pytorch_padded_tokens_per_second": 450000.0, "ratio": 1.111}
{"bench": "tiers", "placement": "optimizer in files", "seconds": 1.5, "over_device": 3.0, "losses_same": false}
{"bench": "faults", "flags": "cuda:1", "expected": "numbered from 0", "as_expected": false, "status": 0, "seconds": 4}
{"bench": "stage", "stage": "sizes", "status": 124, "seconds": 330, "limit": 330}
{"bench": "stage", "stage": "nc
END
expect "the summary of what was recorded" "Some GPU, 139.6 of 140.4 GiB free, commit abcdef1, attention by cudnn" 0 \
  bash -c 'python3 tests/gpu/summary.py "$1" | tee "$2"' - "$folder/recorded" "$folder/tables"
while read -r row; do expect "in the summary" "" 0 grep -E "$row" "$folder/tables"; done <<'END'
sizes +330 +330 +ended by its limit
copy, cuda:0 +4,300 GB/s
gpt2-small +8 +500,000 +430.0 +43.5% +55.1% +13.5 +12.5 +6.5
1.5B --attention-backward fast +8 +45,000 +480.0 +48.5% +– +– +12.5 +6.5
gpt2-small-bf16 +500,000 +400,000 +450,000 +1.111
774M-bf16: padded +70,000
7B +device memory per rank 122.1 GiB of 78.0 GiB does not fit
3B, AdamW at host +21,000 +6.2 +6.0 +13.5 +12.5
racecheck +1 +0
gpt2: attention_forward +300.0 +38.5% +76.9%
gpt2: gelu_forward +50.0 +90.0%
ranvier_models_gpu_tests: attention under racecheck +status 1
774M +ranvier-train: error: out of memory
losses of ranvier cuda, fp32 +differ by 3.0e-04
losses with optimizer in files +differ from those on the device
fault: cuda:1 +not 'numbered from 0'
END
# Rows that can be pasted: under titles and columns that RESULTS.md has.
expect "rows for RESULTS.md" \
  "| gpt2-small | – | 8 | 500,000 | 43.5% | 55.1% | 13.5 | 12.5 | Some GPU | abcdef1 |" 0 \
  bash -c 'python3 tests/gpu/summary.py --markdown "$1" | tee "$2"' - "$folder/recorded" "$folder/rows"
expect "a table for each benchmark" "4" 0 grep -c '^###' "$folder/rows"
while read -r line; do
  expect "in RESULTS.md" "$line" 0 grep -xF -e "$line" tests/bench/RESULTS.md
done < <(grep -A3 '^###' "$folder/rows" | grep -E '^(#|\|)')

# Limits of a call add up to less than its budget, and all calls take 22 minutes at most.
total=0
for call in A B C; do
  read -ra stages < <(sed -n "s/^ *\[$call\]=\"\(.*\)\"$/\1/p" $run)
  sum=20  # to unpack archives
  for stage in "${stages[@]:1}"; do sum=$((sum + ${stage#*:})); done
  expect "limits of call $call: $sum of ${stages[0]} s" "" 0 [ "$sum" -le "${stages[0]}" ]
  total=$((total + stages[0]))
done
expect "$total s of all calls" "" 0 [ "$total" -le 1320 ]
[ "$failed" -ne 0 ] || echo "all as expected"
exit "$failed"
