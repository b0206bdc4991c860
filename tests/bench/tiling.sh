#!/usr/bin/env bash
# Cost and memory savings of memory-centric tiling: two ranks with --shard zero3 on this machine, 6 layers of 384,
# numbers of tiles in turns.
#
#   tests/bench/tiling.sh [--rounds 3] [--steps 4] [--tiles "1 2 4 8"] [--build build/release]
#                         [-- FLAGS OF ranvier-train]
#
# One JSON line per number of tiles. `seconds`: median step, without the first step of each run; `over_whole`: ratio to
# the first number. Planned bytes: buffers for `gathered` parameters and for a microbatch's `gradients`, and all on the
# `device`.
source "$(dirname "$0")/measuring.sh"
rounds=3 steps=4 tiles="1 2 4 8" build=build/release
read_flags rounds steps tiles build -- "$@"
cat models/{core,families}/*.?pp runtime/*/*.?pp >"$folder/text"

flags=(--data "$folder/text" --g-data 2 --shard zero3 --layers 6 --hidden 384 --heads 6 --sequence-length 256
  --batch-size 32 --microbatch-size 4 --threads 1 --steps "$steps" --validation-split 0 "${more[@]}")
read -ra cases <<<"$tiles"
for ((round = 0; round < rounds; ++round)); do
  for tile in "${cases[@]}"; do
    mpirun --oversubscribe --bind-to none -n 2 "$build/apps/ranvier-train" "${flags[@]}" --tile "$tile" \
      --metrics "$folder/metrics" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
    value seconds "$folder/metrics" | tail -n +2 >>"$folder/$tile"
    mv "$folder/metrics" "$folder/metrics-$tile"
  done
done
whole=$(median "$folder/${cases[0]}")
for tile in "${cases[@]}"; do
  seconds=$(median "$folder/$tile")
  device=$(figures memory "$folder/metrics-$tile" device)
  "$build/apps/ranvier-train" "${flags[@]}" --tile "$tile" --dry-run --world 2 >"$folder/plan"
  gathered=$(figures amounts "$folder/plan" gathered)
  gradients=$(figures amounts "$folder/plan" "microbatch.*gradients")
  awk -v tile="$tile" -v s="$seconds" -v whole="$whole" -v gathered="$gathered" -v gradients="$gradients" \
    -v device="$device" 'BEGIN {
      printf "{\"tile\": %d, \"seconds\": %.3f, \"over_whole\": %.3f, ", tile, s, s / whole
      printf "\"gathered\": %.0f, \"gradients\": %.0f, \"device\": %.0f}\n", gathered, gradients, device
    }'
done
