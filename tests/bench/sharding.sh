#!/usr/bin/env bash
# What sharding costs where links are no limit: four rows on this machine, 6 layers of 384, shardings in turns.
#
#   tests/bench/sharding.sh [--rounds 3] [--steps 4] [--build build/release] [-- FLAGS OF ranvier-train]
#
# One JSON line per case: `seconds` of a step (the median of all rounds' steps but each run's first) and `over_ddp`.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=3 steps=4 build=build/release
while (($# > 0)); do
  case $1 in
    --rounds) rounds=$2 ;;
    --steps) steps=$2 ;;
    --build) build=$2 ;;
    --) shift; break ;;
    *) echo "usage: $0 [--rounds N] [--steps N] [--build FOLDER] [-- FLAGS]" >&2; exit 2 ;;
  esac
  shift 2
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat models/*.?pp runtime/*.?pp >"$folder/text"

cases=("ddp" "zero1" "zero3" "zero3 --prefetch 0" "zero3 --reuse off" "mics --group-size 2")
for ((round = 0; round < rounds; ++round)); do
  for i in "${!cases[@]}"; do
    # shellcheck disable=SC2086  # a case is words
    mpirun --oversubscribe --bind-to none -n 4 "$build/apps/ranvier-train" --data "$folder/text" --g-data 4 --layers 6 \
      --hidden 384 --heads 6 --sequence-length 256 --batch-size 64 --microbatch-size 4 --threads 1 --steps "$steps" \
      --validation-split 0 --shard ${cases[$i]} "$@" --metrics "$folder/metrics" >"$folder/log" 2>&1 ||
      { cat "$folder/log" >&2; exit 1; }
    sed 's/.*"seconds":\s*\([0-9.e+-]*\).*/\1/' "$folder/metrics" | tail -n +2 >>"$folder/$i"
    rm "$folder/metrics"
  done
done
median() { sort -g "$1" | awk '{ s[NR] = $1 } END { print NR % 2 ? s[(NR + 1) / 2] : (s[NR / 2] + s[NR / 2 + 1]) / 2 }'; }
ddp=$(median "$folder/0")
for i in "${!cases[@]}"; do
  seconds=$(median "$folder/$i")
  awk -v name="${cases[$i]}" -v s="$seconds" -v d="$ddp" \
    'BEGIN { printf "{\"shard\": \"%s\", \"seconds\": %.3f, \"over_ddp\": %.3f}\n", name, s, s / d }'
done
