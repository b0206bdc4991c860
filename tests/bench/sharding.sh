#!/usr/bin/env bash
# Cost of sharding if links do not limit it: four ranks on this machine, 6 layers of 384, shardings in turns.
#
#   tests/bench/sharding.sh [--rounds 3] [--steps 4] [--build build/release] [-- FLAGS OF ranvier-train]
#
# One JSON line per sharding. `seconds`: median step, without the first step of each run; `over_ddp`: ratio to `ddp`.
source "$(dirname "$0")/measuring.sh"
rounds=3 steps=4 build=build/release
read_flags rounds steps build -- "$@"
cat models/{core,families}/*.?pp runtime/*/*.?pp >"$folder/text"

cases=("ddp" "zero1" "zero3" "zero3 --prefetch 0" "zero3 --reuse off" "mics --group-size 2"
       "zero++ --group-size 2" "zero++ --group-size 2 --secondary-tier host")
for ((round = 0; round < rounds; ++round)); do
  for i in "${!cases[@]}"; do
    # shellcheck disable=SC2086  # a case is words
    mpirun --oversubscribe --bind-to none -n 4 "$build/apps/ranvier-train" --data "$folder/text" --g-data 4 --layers 6 \
      --hidden 384 --heads 6 --sequence-length 256 --batch-size 64 --microbatch-size 4 --threads 1 --steps "$steps" \
      --validation-split 0 --shard ${cases[$i]} "${more[@]}" --metrics "$folder/metrics" >"$folder/log" 2>&1 ||
      { cat "$folder/log" >&2; exit 1; }
    value seconds "$folder/metrics" | tail -n +2 >>"$folder/$i"
    rm "$folder/metrics"
  done
done
ddp=$(median "$folder/0")
for i in "${!cases[@]}"; do
  seconds=$(median "$folder/$i")
  awk -v name="${cases[$i]}" -v s="$seconds" -v d="$ddp" \
    'BEGIN { printf "{\"shard\": \"%s\", \"seconds\": %.3f, \"over_ddp\": %.3f}\n", name, s, s / d }'
done
