#!/usr/bin/env bash
# What two ranks with a thread each make of one rank's work with two threads: 6 layers × 384, 16 microbatches of 1.
#
#   tests/bench/pipeline.sh [--repeats 3] [--steps 9] [--precision "fp32 bf16"] [--build build/release]
#
# The three kinds of run take turns. A figure is the median of all steady steps of a kind; a pipeline's is then
# divided by its theoretical bubble, (m + p - 1) / m, and by the imbalance of its stages' costs. Prints one JSON line
# per kind; `ratio` is to the single rank.
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
  # The start table's lines of stages: number, layers, share of the cost.
  imbalance=$(awk '/%/ && /^ +[0-9]+  [a-z]/ { for (i = 1; i <= NF; ++i) if ($i ~ /%$/) { c = $i + 0; s += c; n++; if (c > m) m = c; break } }
                   /^step/ { exit } END { print m * n / s }' "$folder/pipeline.log")
  for name in single pipeline data; do
    awk -v name="$name" -v precision="$precision" -v seconds="$(median "$folder/$name")" \
        -v single="$(median "$folder/single")" -v steps="$(wc -l <"$folder/$name")" -v imbalance="$imbalance" \
        -v load="$(cut -d ' ' -f 1 /proc/loadavg)" 'BEGIN {
      grid = name == "pipeline" ? "2 x 1" : name == "data" ? "1 x 2" : "1 x 1"
      threads = name == "single" ? 2 : 1
      bubble = name == "pipeline" ? (16 + 2 - 1) / 16 : 1
      if (name != "pipeline") imbalance = 1
      printf "{\"bench\": \"pipeline\", \"case\": \"%s\", \"grid\": \"%s\", \"threads_per_rank\": %d, \"precision\": \"%s\", ", name, grid, threads, precision
      printf "\"steps\": %d, \"ms\": %.1f, \"tokens_per_second\": %.0f, \"bubble\": %.4f, \"imbalance\": %.3f, ", steps, seconds * 1e3, 16 * 256 / seconds, bubble, imbalance
      printf "\"ratio\": %.3f, \"load\": %s}\n", single / (seconds / bubble / imbalance), load }'
  done
done
