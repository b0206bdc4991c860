#!/usr/bin/env bash
# Steps of every named sharding on two emulated hosts of two ranks (tests/cluster), compared with the links' limit.
#
#   tests/bench/sharding_cluster.sh [--rate MBIT] [--steps 4] [--repeats 1] [--shards "zero3 mics paro-iig"]
#                                   [--build build/release] [--cluster tests/cluster/run.sh]
#                                   [-- FLAGS OF ranvier-train]

# 6 layers of 384, microbatches of 1, four per step and rank; shardings take turns. One JSON line per sharding:
#
#   seconds            median step with the limited link; `unlimited_seconds`: without a limit
#   bytes              Ethernet frames that left both hosts per step
#   planned_bytes      bytes of --dry-run, which counts a gather before every use (`-- --reuse off`)
#   links_allow        seconds that the busiest direction of the link needs for the bytes
#   share              the larger of `links_allow` and `unlimited_seconds`, over `seconds`; 1: full overlap
#   memory             planned bytes of parameters, gradients and optimizer states on a rank
#   loss               loss of the last step
source "$(dirname "$0")/measuring.sh"
rate=200 steps=4 repeats=1 build=build/release cluster=tests/cluster/run.sh
shards="ddp zero1 zero2 zero3 mics paro-igg paro-iig paro-nig zero++"
read_flags rate steps repeats shards build cluster -- "$@"
rate=${rate%mbit}
free_steps=3  # subtracted from the limited run's bytes, with the bytes that startup sends

train=("$build/apps/ranvier-train" --data models --g-data 4 --layers 6 --hidden 384 --heads 6 --sequence-length 256
       --batch-size 16 --microbatch-size 1 --threads 1 "${more[@]}")

on_cluster() {  # <name> <flags of run.sh> <flags of ranvier-train…>
  local name=$1 limit=$2
  shift 2
  rm -f "$folder/metrics"
  "$cluster" --hosts 2 --ranks-per-host 2 $limit --timeout 3000 --counters "$folder/$name.links" -- \
    "${train[@]}" "$@" --metrics "$folder/metrics" >"$folder/log" 2>&1 || {
    local status=$?
    cat "$folder/log" >&2
    exit $status
  }
  value seconds "$folder/metrics" | tail -n +2 >>"$folder/$name.seconds"  # the first step warms up
}

"${train[@]}" --dry-run --world 4 --node-size 2 >"$folder/plan"
for ((r = 0; r < repeats; ++r)); do
  for shard in $shards; do
    on_cluster "$shard.free" "" --shard "$shard" --steps "$free_steps"
    on_cluster "$shard.limited" "--rate ${rate}mbit" --shard "$shard" --steps $((free_steps + steps))
    value loss "$folder/metrics" | tail -n 1 >"$folder/$shard.loss"
    figures memory "$folder/metrics" parameters gradients optimizer >"$folder/$shard.memory"
  done
done

for shard in $shards; do
  memory=$(<"$folder/$shard.memory")
  planned=$(figures traffic "$folder/plan" "$shard")
  seconds=$(median "$folder/$shard.limited.seconds")
  free=$(median "$folder/$shard.free.seconds")
  for kind in free limited; do value bytes_out "$folder/$shard.$kind.links" bytes_out >"$folder/$kind.bytes"; done
  paste "$folder/free.bytes" "$folder/limited.bytes" | awk -v shard="$shard" -v rate="$rate" -v steps="$steps" \
    -v seconds="$seconds" -v free="$free" -v memory="$memory" -v planned="$planned" -v load="$(load)" \
    -v loss="$(<"$folder/$shard.loss")" '
    { step = ($2 - $1) / steps; sum += step; if (step > most) most = step }
    END {
      allowed = most / (rate * 1e6 / 8)
      printf "{\"bench\": \"sharding\", \"shard\": \"%s\", \"mbit\": %s, \"seconds\": %.3f, \"unlimited_seconds\": %.3f, ", shard, rate, seconds, free
      printf "\"bytes\": %.0f, \"planned_bytes\": %.0f, \"links_allow\": %.3f, \"share\": %.3f, ", sum, planned, allowed, (allowed > free ? allowed : free) / seconds
      printf "\"memory\": %.0f, \"loss\": %s, \"load\": %s}\n", memory, loss, load
    }'
done
