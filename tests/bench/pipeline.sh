#!/usr/bin/env bash
# Two ranks with one thread each compared with one rank with two threads: 6 layers × 384, 16 microbatches of 1.
#
#   tests/bench/pipeline.sh [--repeats 3] [--steps 9] [--precision "fp32 bf16"] [--build build/release]
#
# Single rank, two stages and two rows take turns. One JSON line per kind: `ms` is the median step, without the first
# three steps of each run. `ratio`: speed relative to the single rank. For the pipeline, its seconds are first divided
# by the `bubble`, (m + p - 1) / m, and by the `imbalance` of the stages' costs.
source "$(dirname "$0")/measuring.sh"
repeats=3 steps=9 precision="fp32 bf16" build=build/release
read_flags repeats steps precision build -- "$@"

train() {  # <name> <ranks> <flags…>
  local name=$1 ranks=$2
  shift 2
  rm -f "$folder/metrics"
  mpirun --oversubscribe --bind-to none -n "$ranks" "$build/apps/ranvier-train" --data models \
    --layers 6 --hidden 384 --heads 6 --sequence-length 256 --batch-size 16 --microbatch-size 1 \
    --steps "$steps" --metrics "$folder/metrics" "$@" >"$folder/$name.log" 2>&1 </dev/null || {
    cat "$folder/$name.log" >&2
    exit 1
  }
  value seconds "$folder/metrics" | tail -n +4 >>"$folder/$name"
}

precisions=$precision
for precision in $precisions; do
  rm -f "$folder"/{single,pipeline,data}
  for ((r = 0; r < repeats; ++r)); do
    train single 1 --threads 2 --precision "$precision"
    train pipeline 2 --threads 1 --g-inter 2 --precision "$precision"
    train data 2 --threads 1 --g-data 2 --precision "$precision"
  done
  imbalance=$(figures column "$folder/pipeline.log" cost |
    awk '{ s += $1; if ($1 > m) m = $1 } END { print m * NR / s }')
  single=$(median "$folder/single")
  for name in single pipeline data; do
    seconds=$(median "$folder/$name")
    awk -v name="$name" -v precision="$precision" -v seconds="$seconds" -v single="$single" \
        -v steps="$(wc -l <"$folder/$name")" -v imbalance="$imbalance" -v load="$(load)" 'BEGIN {
      grid = name == "pipeline" ? "2 x 1" : name == "data" ? "1 x 2" : "1 x 1"
      threads = name == "single" ? 2 : 1
      bubble = name == "pipeline" ? (16 + 2 - 1) / 16 : 1
      if (name != "pipeline") imbalance = 1
      printf "{\"bench\": \"pipeline\", \"case\": \"%s\", \"grid\": \"%s\", \"threads_per_rank\": %d, \"precision\": \"%s\", ", name, grid, threads, precision
      printf "\"steps\": %d, \"ms\": %.1f, \"tokens_per_second\": %.0f, \"bubble\": %.4f, \"imbalance\": %.3f, ", steps, seconds * 1e3, 16 * 256 / seconds, bubble, imbalance
      printf "\"ratio\": %.3f, \"load\": %s}\n", single / (seconds / bubble / imbalance), load }'
  done
done
