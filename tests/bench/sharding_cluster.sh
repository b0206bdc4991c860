#!/usr/bin/env bash
# Steps of every named sharding on two emulated hosts of two ranks (tests/cluster), compared with the links' limit.
#
#   tests/bench/sharding_cluster.sh [--rate MBIT] [--steps 4] [--repeats 1] [--shards "zero3 mics paro-iig"]
#                                   [--slow-links on] [--build build/release] [--cluster tests/cluster/run.sh]
#                                   [-- FLAGS OF ranvier-train]

# 6 layers of 384, microbatches of 1, four per step and rank; cases take turns. --slow-links on: instead of --shards, the
# means of apps/guides/slow-links.md in bf16. One JSON line per case:
#
#   shard              sharding, and what else differs
#   seconds            median step with the limited link; `unlimited_seconds`: without a limit
#   bytes              Ethernet frames that left both hosts per step
#   planned_bytes      bytes of --dry-run, which counts a gather before every use (`-- --reuse off`)
#   links_allow        seconds that the busiest direction of the link needs for the bytes
#   share              the larger of `links_allow` and `unlimited_seconds`, over `seconds`; 1: full overlap
#   memory             planned bytes of parameters, gradients and optimizer states on a rank
#   loss               loss of the last step
#   over_zero3         seconds, and `bytes_over_zero3`: bytes, as ratios to zero3's if an earlier case is zero3
source "$(dirname "$0")/measuring.sh"
rate=200 steps=4 repeats=1 build=build/release cluster=tests/cluster/run.sh slow_links=off
shards="ddp zero1 zero2 zero3 mics paro-igg paro-iig paro-nig zero++"
read_flags rate steps repeats shards slow_links build cluster -- "$@"
rate=${rate%mbit}
free_steps=3  # subtracted from the limited run's bytes, with the bytes that startup sends

cases=()
for shard in $shards; do cases+=("$shard|--shard $shard"); done
if [ "$slow_links" = on ]; then
  cases=(
    "zero3|--shard zero3"
    "mics|--shard mics"
    "paro-iig|--shard paro-iig"
    "zero++|--shard zero++"
    "zero++, second copy on host|--shard zero++ --secondary-tier host"
    "zero3, int8 gathers|--shard zero3 --gather-dtype int8"
    "zero3, int8 reductions|--shard zero3 --reduce-dtype int8"
    "zero3, int4 reductions between hosts|--shard zero3 --reduce-dtype inter=int4,intra=int8"
    "zero++, all of these|--shard zero++ --secondary-tier host --gather-dtype inter=int8 --reduce-dtype inter=int4,intra=int8"
  )
  more=(--precision bf16 --gradient-dtype half "${more[@]}")
fi

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

for ((r = 0; r < repeats; ++r)); do
  for i in "${!cases[@]}"; do
    read -ra flags <<<"${cases[$i]#*|}"
    [ "$r" -gt 0 ] || "${train[@]}" "${flags[@]}" --dry-run --world 4 --node-size 2 >"$folder/$i.plan"
    on_cluster "$i.free" "" "${flags[@]}" --steps "$free_steps"
    on_cluster "$i.limited" "--rate ${rate}mbit" "${flags[@]}" --steps $((free_steps + steps))
    value loss "$folder/metrics" | tail -n 1 >"$folder/$i.loss"
    figures memory "$folder/metrics" parameters gradients optimizer >"$folder/$i.memory"
  done
done

zero3=
for i in "${!cases[@]}"; do
  name=${cases[$i]%%|*}
  memory=$(<"$folder/$i.memory")
  planned=$(figures traffic "$folder/$i.plan" "${name%%,*}")
  seconds=$(median "$folder/$i.limited.seconds")
  free=$(median "$folder/$i.free.seconds")
  for kind in free limited; do value bytes_out "$folder/$i.$kind.links" bytes_out >"$folder/$kind.bytes"; done
  paste "$folder/free.bytes" "$folder/limited.bytes" | awk -v shard="$name" -v rate="$rate" -v steps="$steps" \
    -v seconds="$seconds" -v free="$free" -v memory="$memory" -v planned="$planned" -v load="$(load)" \
    -v loss="$(<"$folder/$i.loss")" -v zero3="$zero3" '
    { step = ($2 - $1) / steps; sum += step; if (step > most) most = step }
    END {
      allowed = most / (rate * 1e6 / 8)
      if (shard == "zero3") zero3 = seconds " " sum
      if (split(zero3, base, " ") == 2)
        ratios = sprintf(", \"over_zero3\": %.3f, \"bytes_over_zero3\": %.3f", seconds / base[1], sum / base[2])
      printf "{\"bench\": \"sharding\", \"shard\": \"%s\", \"mbit\": %s, \"seconds\": %.3f, \"unlimited_seconds\": %.3f, ", shard, rate, seconds, free
      printf "\"bytes\": %.0f, \"planned_bytes\": %.0f, \"links_allow\": %.3f, \"share\": %.3f, ", sum, planned, allowed, (allowed > free ? allowed : free) / seconds
      printf "\"memory\": %.0f, \"loss\": %s%s, \"load\": %s}\n", memory, loss, ratios, load
    }' >"$folder/line"
  cat "$folder/line"
  [ "$name" != zero3 ] || zero3="$seconds $(value bytes "$folder/line" bench=sharding)"
done
