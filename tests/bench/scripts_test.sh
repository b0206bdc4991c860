#!/usr/bin/env bash
# Checks that the scripts of this folder find their figures, and fail if one is missing. A few tiny runs of the real
# programs are recorded; then each script runs over stand-ins that replay them.
#
# usage: tests/bench/scripts_test.sh [BUILD]      build/release
set -euo pipefail
build=$(realpath "${1:-build/release}")
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 RANVIER_PROFILE=none
unset CHANGE
failed=0

# --- the real programs
recorded=$folder/recorded train=$build/apps/ranvier-train
mkdir -p "$recorded" "$folder/build/apps" "$folder/build/tests/bench" "$folder/path"
head -c 100000 models/core/*.cpp >"$folder/text"
model=(--data "$folder/text" --validation-split 0 --threads 1 --layers 2 --hidden 64 --heads 1 --sequence-length 32
       --batch-size 4 --microbatch-size 1 --steps 12)
record() {  # <name> <status> <command…>
  local status=0
  "${@:3}" >"$recorded/$1" 2>&1 </dev/null || status=$?
  [ "$status" -eq "$2" ] || { echo "FAILED: recording $1: status $status instead of $2:"; cat "$recorded/$1"; exit 1; }
}
ranks() { mpirun --oversubscribe --bind-to none -n "$@"; }
record train 0 ranks 2 "$train" "${model[@]}" --g-inter 2 --checkpoint "$folder/steps" --checkpoint-every 4 \
  --metrics "$recorded/metrics" --trace "$recorded/trace" --save "$folder/weights"
record resume 0 ranks 2 "$train" "${model[@]}" --g-data 2 --shard zero3 --resume "$folder/steps"
record plan 0 "$train" "${model[@]}" --g-data 4 --shard zero3 --tile 2 --dry-run --world 4 --node-size 2
record unfit 1 "$train" "${model[@]}" --dry-run --device-memory 1MiB
record generate 0 "$build/apps/ranvier-generate" --weights "$folder/weights" --tokenizer bytes --prompt a --tokens 8
record disk 0 "$build/tests/bench/file_bench" "$folder" 2 2 1
record chunks 0 ranks 2 "$build/tests/bench/chunk_bench" - 1 64 4096 1 device fp32
record collectives 0 ranks 2 "$build/apps/ranvier-bench" --node-size 1 --write-links "$folder/links.json" --sizes 64KiB \
  --repeat 1 --collectives all-gather --algorithms ring,hierarchical,h-ring,ho-ring,mpi

# --- stand-ins: they print what was recorded, changed by the sed program $CHANGE
replay() {  # <program> <record>
  printf '#!/bin/sh\nexec sed -E "${CHANGE:-}" "%s"\n' "$recorded/$2" >"$folder/build/$1"
}
replay tests/bench/file_bench disk
replay tests/bench/chunk_bench chunks
replay apps/ranvier-bench collectives
ln -s "$build/apps/ranvier-report" "$folder/build/apps/"
printf '#!/bin/sh\necho "{}"\n' >"$folder/build/tests/bench/checkpoint_files_bench"
cat >"$folder/build/apps/ranvier-train" <<'END_OF_PROGRAM'
#!/usr/bin/env bash
# --dry-run with a limit of device memory: up to two layers fit.
record=train status=0 layers=0 limit=
while (($# > 0)); do
  case $1 in
    --metrics) sed -E "${CHANGE:-}" "$recorded/metrics" >>"$2" ;;
    --trace) cp "$recorded/trace" "$2" ;;
    --resume) [ "$2" = none ] || record=resume ;;
    --layers) layers=$2 ;;
    --device-memory) limit=$2 ;;
    --dry-run) record=plan ;;
  esac
  shift
done
if [ "$record" = plan ] && [ -n "$limit" ] && ((layers > 2)); then record=unfit status=${UNFIT:-1}; fi
sed -E "${CHANGE:-}" "$recorded/$record"
exit "$status"
END_OF_PROGRAM
cat >"$folder/path/mpirun" <<'END_OF_PROGRAM'
#!/bin/sh
while [ "${1#/}" = "$1" ]; do shift; done
exec "$@"
END_OF_PROGRAM
cat >"$folder/path/cluster" <<'END_OF_PROGRAM'
#!/usr/bin/env bash
bytes=4000  # twice as many with --rate, which only the run between limited links has
while [ "$1" != -- ]; do
  [ "$1" != --rate ] || bytes=8000
  [ "$1" != --counters ] ||
    printf '{"hosts": 2, "links": [\n  {"name": "0", "bytes_out": %d},\n  {"name": "1", "bytes_out": %d}]}\n' \
      $bytes $bytes | sed -E "${CHANGE:-}" >"$2"
  shift
done
shift
exec "$@"
END_OF_PROGRAM
cat >"$folder/path/fio" <<'END_OF_PROGRAM'
#!/bin/sh
echo '{"jobs": [{"read": {"bw_bytes": 2000000000}, "write": {"bw_bytes": 1000000000}}]}'
END_OF_PROGRAM
chmod +x "$folder"/build/apps/ranvier-* "$folder"/build/tests/bench/* "$folder"/path/*
export recorded PATH=$folder/path:$PWD/tests/gpu/rehearsal:$PATH

# --- each script
report() {  # <what> <why> <status> <output>
  printf 'FAILED: %s: %s (status %d):\n%s\n' "$@"
  failed=1
}
finds() {  # <pattern of its output> <command…>
  local said status=0
  said=$("${@:2}" 2>&1 </dev/null) || status=$?
  if [ "$status" -ne 0 ] || ! grep -qE -e "$1" <<<"$said"; then report "${*:2}" "no figure '$1'" "$status" "$said"; fi
}
misses() {  # <sed program that takes a figure away> <word of the message> <command…>: fails, and prints no figure
  local said status=0
  said=$(CHANGE=$1 "${@:3}" 2>&1 </dev/null) || status=$?
  if [ "$status" -eq 0 ] || ! grep -qF -e "$2" <<<"$said" || grep -q '^{"' <<<"$said"; then
    report "CHANGE='$1' ${*:3}" "expected an error with '$2' and no figure" "$status" "$said"
  fi
}
number='[0-9]+(\.[0-9]+)?'
positive='(0\.0*)?[1-9][0-9.]*'
given=(--build "$folder/build")
no_seconds='s/"seconds":/"took":/'
no_table='s/^( *rank  )stage/\1place/'
no_memory='s/"memory":/"held":/'
bench=tests/bench

short=("${given[@]}" --rounds 1) tiling=("${given[@]}" --rounds 1 --tiles "1 2")
finds "\"tile\": 2, \"seconds\": $positive, .*\"gathered\": [1-9][0-9]*, \"gradients\": [1-9][0-9]*, \"device\": [1-9]" \
  $bench/tiling.sh "${tiling[@]}"
misses "$no_seconds" "no line with step" $bench/tiling.sh "${tiling[@]}"
misses 's/gathered//' "gathered" $bench/tiling.sh "${tiling[@]}"
misses 's/microbatch//' "microbatch" $bench/tiling.sh "${tiling[@]}"
misses "$no_memory" "memory" $bench/tiling.sh "${tiling[@]}"

largest=("${given[@]}" --only "ddp, 2-byte")
finds '"layers": 2, "hidden": 128, "parameters": 4\.46e\+05, .*"device_bytes": [1-9].*"host_bytes": [1-9].*"step_seconds"' \
  $bench/largest_model.sh "${largest[@]}"
misses "$no_seconds" "no line with step" $bench/largest_model.sh "${largest[@]}"
UNFIT=64 misses "" "does not fit" $bench/largest_model.sh "${largest[@]}"

host=("${given[@]}" --only "zero-offload, bf16" --host-memory)
finds '"placement": "zero-offload, bf16", "layers": 2' $bench/largest_model.sh "${host[@]}" 1GiB
misses "" "needs more than --host-memory 1KiB" $bench/largest_model.sh "${host[@]}" 1KiB
misses 's/memory per node/memory/' "invalid number" $bench/largest_model.sh "${host[@]}" 1GiB

pipeline=("${given[@]}" --repeats 1 --precision fp32)
finds "\"case\": \"pipeline\".*\"ms\": $number, .*\"imbalance\": 1\.[0-9]*[1-9].*\"ratio\": $positive" \
  $bench/pipeline.sh "${pipeline[@]}"
misses 's/^(stage .*)cost/\1share/' "'cost'" $bench/pipeline.sh "${pipeline[@]}"

tiers=("${given[@]}" --rounds 1 --only everything)
finds "\"everything in files\", \"seconds\": $positive, .*\"losses_same\": true, .*\"file_bytes\": 1048576, \"disk_seconds\": $number" \
  env CHANGE='s/"nvme":0/"nvme":1048576/' $bench/tiers.sh "${tiers[@]}"
finds "\"int8 moments, half on host\", \"seconds\": $positive" $bench/tiers.sh "${given[@]}" --rounds 1 --only '^int8.*half'
misses "$no_memory" "memory" $bench/tiers.sh "${tiers[@]}"
misses 's/file tier/tier/' "file tier" $bench/tiers.sh "${tiers[@]}"

finds "\"shard\": \"mics --group-size 2\", \"seconds\": $positive, \"over_ddp\": 1.000" $bench/sharding.sh "${short[@]}"
cluster=("${given[@]}" --cluster "$folder/path/cluster" --shards zero3)
finds "\"shard\": \"zero3\", .*\"bytes\": 2000, \"planned_bytes\": [1-9].*\"memory\": [1-9].*\"loss\": [0-9]+\." \
  $bench/sharding_cluster.sh "${cluster[@]}"
misses 's/^([* ]) zero3 .*/\1 zero3 –/' "zero3" $bench/sharding_cluster.sh "${cluster[@]}"
misses 's/bytes_out/out/' "bytes_out" $bench/sharding_cluster.sh "${cluster[@]}"
misses 's/"optimizer":/"moments":/' "optimizer" $bench/sharding_cluster.sh "${cluster[@]}"
finds '"shard": "zero\+\+, all of these", .*"planned_bytes": [1-9].*"over_zero3": 1.000, "bytes_over_zero3": 1.000' \
  $bench/sharding_cluster.sh "${cluster[@]}" --slow-links on
types=("${given[@]}" --models gpt)
finds '"messages": "int8 gathers", "validation_loss": [0-9.]+, "over_same": 0\.00000' \
  env CHANGE='s/"loss":/"validation_loss":/' $bench/message_types.sh "${types[@]}"
misses "" "validation_loss" $bench/message_types.sh "${types[@]}"

stages=("${given[@]}" --rounds 1 --batch 4 --length 32)
finds "\"lost\": 0.000, \"fp32_same\": true, \"rank_0\": .\"waited\": 0\.[0-9]+, \"sending\": 0\.[0-9]+., \"rank_1\"" \
  $bench/stages_on_one_gpu.sh "${stages[@]}"
misses "$no_table" "no table" $bench/stages_on_one_gpu.sh "${stages[@]}"
misses 's/"loss":/"nats":/' "no loss" $bench/stages_on_one_gpu.sh "${stages[@]}"

checkpoint=("${given[@]}" --directory "$folder" --rounds 1 --only gpt2-small)
finds "\"model\": \"gpt2-small\", \"seconds\": $positive, .*\"checkpoint_mib\": 1, .*\"resident_mib_more\": 0.0, \"load_seconds\": $number" \
  $bench/checkpoint.sh "${checkpoint[@]}"
misses 's/resum/start/' "resum" $bench/checkpoint.sh "${checkpoint[@]}"
misses 's/"waited_seconds":/"stall":/' "waited_seconds" $bench/checkpoint.sh "${checkpoint[@]}"
misses "$no_table" "no table" $bench/checkpoint.sh "${checkpoint[@]}"

finds "timeline" $bench/timeline.sh "${given[@]}" --tries 1 --output "$folder/timeline.svg"
misses "$no_seconds" "no line with step" $bench/timeline.sh "${given[@]}" --tries 1 --output "$folder/timeline.svg"

collectives=("${given[@]}" --cluster "$folder/path/cluster")
finds "\"case\": \"own links chunks\", .*\"algorithm\": \"ho-ring\", \"seconds\": $number, \"links_allow\".*\"ratio\": $positive" \
  $bench/collectives_cluster.sh "${collectives[@]}"
misses "$no_seconds" "no seconds" $bench/collectives_cluster.sh "${collectives[@]}"
misses 's/^.*//' "no collective" $bench/collectives_cluster.sh "${collectives[@]}"
finds '"mbit":1000,.*"k":"all".*"over_longer":[0-9]' $bench/chunks_cluster.sh "${collectives[@]}"
misses 's/^.*//' "no case" $bench/chunks_cluster.sh "${collectives[@]}"

gpu() { python3 "$bench/$1" "$folder/build/apps/ranvier-train" "${@:2}"; }
finds "\"tokens_per_second\": $positive, \"mfu\": $positive, .*\"planned_bytes\": [1-9].*\"first_loss\": 5" \
  gpu sizes_on_one_gpu.py --models tiny
finds '"left_out": "[^"]*[0-9.]+ [KMG]iB of 1\.0 MiB' gpu sizes_on_one_gpu.py --models gpt2-small
misses 's/"mfu":/"share":/' "mfu" gpu sizes_on_one_gpu.py --models tiny
host=(optimizer_on_host_gpu.py --model tiny --steps-at host)
finds "\"seconds\": $positive, \"seconds_without_optimizer\": $positive, .*\"device_bytes\": [1-9]" gpu "${host[@]}"
misses 's/  forward  /  passes  /' "'forward'" gpu "${host[@]}"
misses "$no_table" "no table" gpu "${host[@]}"

python() { PYTHONPATH=$bench python3 -c "$1" "${@:2}"; }
llama='import sys, types
sys.modules["numpy"] = sys.modules["safetensors"] = types.ModuleType("stand-in")
import compare_llama_cpp
print("rate", compare_llama_cpp.generated_rate(sys.stdin.read()))'
generated() { sed -E "${CHANGE:-}" "$recorded/generate" | python "$llama"; }
finds "rate $positive" generated
misses 's/tokens.s//' "tokens/s" generated
finds "rate $positive" python 'import argparse, pathlib, sys, compare_pytorch
print("rate", compare_pytorch.run_ranvier(sys.argv[1], "6x384-fp32", 1, 0.001, pathlib.Path(sys.argv[2])))' \
  "$folder/build/apps/ranvier-train" "$folder"
finds "step $positive" python 'import sys, compare_prediction
compare_prediction.SHAPE = "--layers 2 --hidden 64 --heads 1 --sequence-length 32"
case = ("case", 2, "--g-data 2 --batch-size 4 --microbatch-size 2 --precision bf16", "")
print("step", compare_prediction.predicted(sys.argv[1], ".", case, "a100-80g-hdr")["step_seconds"])' "$build"

# A real page: no record can stand in for it.
PATH=${PATH#"$folder/path:"} finds "\"seconds\": $positive, .*\"answers\": [1-9][0-9]*, \"thread\": $number" \
  $bench/serve.sh --build "$build" --rounds 1 --steps 200 --interval 0.1 --layers 2 --hidden 64 --length 32

[ "$failed" -ne 0 ] || echo "all as expected"
exit "$failed"
