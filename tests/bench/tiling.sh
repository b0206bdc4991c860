#!/usr/bin/env bash
# What memory-centric tiling takes and gives: two rows on this machine that share everything out (zero3), 6 layers of
# 384, numbers of tiles in turns.
#
#   tests/bench/tiling.sh [--rounds 3] [--steps 4] [--build build/release] [-- FLAGS OF ranvier-train]
#
# One JSON line per case: `seconds` of a step (the median of all rounds' steps but each run's first), `over_whole`, and as
# planned the bytes of places for `gathered` parameters, for a microbatch's `gradients`, and of all on the `device`.
source "$(dirname "$0")/measuring.sh"
rounds=3 steps=4 build=build/release
read_flags rounds steps build -- "$@"
cat models/*.?pp runtime/*.?pp >"$folder/text"

flags=(--data "$folder/text" --g-data 2 --shard zero3 --layers 6 --hidden 384 --heads 6 --sequence-length 256
  --batch-size 32 --microbatch-size 4 --threads 1 --steps "$steps" --validation-split 0 "${more[@]}")
cases=(1 2 4 8)
for ((round = 0; round < rounds; ++round)); do
  for tile in "${cases[@]}"; do
    mpirun --oversubscribe --bind-to none -n 2 "$build/apps/ranvier-train" "${flags[@]}" --tile "$tile" \
      --metrics "$folder/metrics" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
    value seconds "$folder/metrics" | tail -n +2 >>"$folder/$tile"
    rm "$folder/metrics"
  done
done
whole=$(median "$folder/1")
for tile in "${cases[@]}"; do
  "$build/apps/ranvier-train" "${flags[@]}" --tile "$tile" --dry-run --world 2 >"$folder/plan"
  awk -v tile="$tile" -v s="$(median "$folder/$tile")" -v whole="$whole" '
    function bytes(n, unit) { return n * (unit == "GiB" ? 2 ^ 30 : unit == "MiB" ? 2 ^ 20 : unit == "KiB" ? 2 ^ 10 : 1) }
    /gathered units of/ { gathered += bytes($(NF - 1), $NF) }
    /microbatch.s gradients of/ { gradients += bytes($(NF - 1), $NF) }
    $1 == "total" && $2 == "device" { device = bytes($(NF - 1), $NF) }
    END {
      printf "{\"tile\": %d, \"seconds\": %.3f, \"over_whole\": %.3f, ", tile, s, s / whole
      printf "\"gathered\": %d, \"gradients\": %d, \"device\": %d}\n", gathered, gradients, device
    }' "$folder/plan"
done
