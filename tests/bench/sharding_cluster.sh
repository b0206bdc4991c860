#!/usr/bin/env bash
# Training with every named sharding on two emulated hosts of two ranks (tests/cluster), beside what its bytes need.
#
#   tests/bench/sharding_cluster.sh [--rate MBIT] [--steps 4] [--repeats 1] [--shards "zero3 mics paro-iig"]
#                                   [--build build/release] [-- FLAGS OF ranvier-train]
#
# 6 layers of 384, microbatches of 1, 4 of them a step and rank. Shardings take turns, as often as --repeats says. One
# JSON line for each: `seconds` of a step, the median with the limited link; `unlimited_seconds` without a limit; `bytes`, Ethernet frames that left both hosts
# in a step, and `planned_bytes`, what --dry-run says, which counts a gather for every use (`-- --reuse off`);
# `links_allow`, the seconds that the busiest direction of the link needs for the bytes; `share`, the larger of that
# and of the unlimited seconds, over the seconds, which is 1 where the link and the processors always work at the same
# time; `memory`, what --dry-run says a rank holds in parameters, gradients and optimizer states; `loss` after the last
# step.
source "$(dirname "$0")/measuring.sh"
rate=200 steps=4 repeats=1 build=build/release
shards="ddp zero1 zero2 zero3 mics paro-igg paro-iig paro-nig zero++"
read_flags rate steps repeats shards build -- "$@"
rate=${rate%mbit}
free_steps=3  # their bytes are taken off, so that what only the start sends is not counted

train=("$build/apps/ranvier-train" --data models --g-data 4 --layers 6 --hidden 384 --heads 6 --sequence-length 256
       --batch-size 16 --microbatch-size 1 --threads 1 "${more[@]}")

on_cluster() {  # <name> <flags of run.sh> <flags of ranvier-train…>
  local name=$1 limit=$2
  shift 2
  rm -f "$folder/metrics"
  tests/cluster/run.sh --hosts 2 --ranks-per-host 2 $limit --timeout 3000 --counters "$folder/$name.links" -- \
    "${train[@]}" "$@" --metrics "$folder/metrics" >"$folder/log" 2>&1 || {
    local status=$?
    cat "$folder/log" >&2
    exit $status
  }
  value seconds "$folder/metrics" | tail -n +2 >>"$folder/$name.seconds"  # the first step warms up
}

out() { sed -n 's/.*"bytes_out": \([0-9]*\).*/\1/p' "$1"; }  # of each host

# What --dry-run's table says of each sharding: its name, bytes held, bytes between nodes.
"${train[@]}" --dry-run --world 4 --node-size 2 >"$folder/plan"
planned() {
  awk -v shard="$1" '
    BEGIN { unit["B"] = 1; unit["KiB"] = 1024; unit["MiB"] = 1048576; unit["GiB"] = 1073741824 }
    /stored per rank/ { table = 1 }
    table && ($1 == shard || ($1 == "*" && $2 == shard)) {
      for (i = $1 == "*" ? 3 : 2; i <= NF; ++i) {
        if ($(i + 1) in unit) { value[++n] = $i * unit[$(i + 1)]; ++i } else value[++n] = 0
      }
      printf "%.0f %.0f\n", value[4], value[5] + value[6] + value[7]
    }' "$folder/plan"
}

for ((r = 0; r < repeats; ++r)); do
  for shard in $shards; do
    on_cluster "$shard.free" "" --shard "$shard" --steps "$free_steps"
    on_cluster "$shard.limited" "--rate ${rate}mbit" --shard "$shard" --steps $((free_steps + steps))
    value loss "$folder/metrics" | tail -n 1 >"$folder/$shard.loss"
  done
done

for shard in $shards; do
  read -r memory bytes <<<"$(planned "$shard")"
  paste <(out "$folder/$shard.free.links") <(out "$folder/$shard.limited.links") | awk -v shard="$shard" -v rate="$rate" \
    -v steps="$steps" -v seconds="$(median "$folder/$shard.limited.seconds")" -v free="$(median "$folder/$shard.free.seconds")" \
    -v memory="$memory" -v planned="$bytes" -v load="$(cut -d ' ' -f 1 /proc/loadavg)" \
    -v loss="$(<"$folder/$shard.loss")" '
    { step = ($2 - $1) / steps; sum += step; if (step > most) most = step }
    END {
      allowed = most / (rate * 1e6 / 8)
      printf "{\"bench\": \"sharding\", \"shard\": \"%s\", \"mbit\": %s, \"seconds\": %.3f, \"unlimited_seconds\": %.3f, ", shard, rate, seconds, free
      printf "\"bytes\": %.0f, \"planned_bytes\": %.0f, \"links_allow\": %.3f, \"share\": %.3f, ", sum, planned, allowed, (allowed > free ? allowed : free) / seconds
      printf "\"memory\": %.0f, \"loss\": %s, \"load\": %s}\n", memory, loss, load
    }'
done
