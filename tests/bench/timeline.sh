#!/usr/bin/env bash
# Draws tests/bench/timeline.svg from a trace: one step of a small GPT on two stages with a core each. Other work on the
# machine delays steps, so the fastest step of all tries is drawn.
#
#   tests/bench/timeline.sh [--tries 5] [--output tests/bench/timeline.svg] [--build build/release]
#                           [-- FLAGS OF ranvier-train]
source "$(dirname "$0")/measuring.sh"
tries=5 output=tests/bench/timeline.svg build=build/release
read_flags tries output build -- "$@"
cat models/{core,families}/*.?pp runtime/*/*.?pp >"$folder/text"

fastest=
for ((try = 0; try < tries; ++try)); do
  mpirun --oversubscribe --bind-to none -n 2 "$build/apps/ranvier-train" --data "$folder/text" --g-inter 2 --layers 6 \
    --hidden 128 --sequence-length 128 --batch-size 16 --microbatch-size 2 --pipeline-limit 3 --threads 1 --steps 60 \
    --validation-split 0 --metrics "$folder/metrics" --overwrite --trace "$folder/trace" "${more[@]}" \
    >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
  value seconds "$folder/metrics" | tail -n 50 >"$folder/seconds"
  value step "$folder/metrics" | tail -n 50 >"$folder/steps"
  read -r seconds step <<<"$(paste -d' ' "$folder/seconds" "$folder/steps" | sort -g | sed -n 1p)"
  if [ -z "$fastest" ] || awk -v a="$seconds" -v b="$fastest" 'BEGIN { exit !(a < b) }'; then
    fastest=$seconds
    mv "$folder/metrics" "$folder/best-metrics"
    # The report draws the last complete step of a trace.
    perl -ne 'print unless /"args":\{"step":(\d+)\}/ && $1 > '"$step" "$folder/trace" >"$folder/best-trace"
  fi
done
"$build/apps/ranvier-report" "$folder/best-metrics,$folder/best-trace" --timeline "$output" --overwrite \
  --title "One step of a GPT of 6 layers on two stages: 8 microbatches, message-driven, as traced"
