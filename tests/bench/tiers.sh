#!/usr/bin/env bash
# Cost of model states off the device, compared with the disk's rate, of types of states, and of optimizers: steps of
# one rank with 16 microbatches, cases in turns (ZeRO-Infinity §4, §6; Myelin §V-B).
#
#   tests/bench/tiers.sh [--rounds 3] [--steps 4] [--layers 6] [--hidden 384] [--length 256] [--batch 64]
#                        [--microbatch 4] [--only REGEX] [--nvme FOLDER] [--build build/release]
#                        [-- FLAGS OF ranvier-train]
#
# --only: only cases whose names match this regular expression, and the device. One JSON line per case. `seconds`:
# median step, without the first step of each run; `over_device`, `over_host`: ratios to the states' other placements.
# `losses_same`: as on the device; not for other types of states and other optimizers. With files also `file_bytes`,
# planned, and `disk_seconds`: time to read and write these bytes once at the rates of file_bench.
# With few tokens per step (--batch 4 --microbatch 4 --length 128), passes hide little of the transfers.
source "$(dirname "$0")/measuring.sh"
rounds=3 steps=4 layers=6 hidden=384 length=256 batch=64 microbatch=4 only= nvme= build=build/release
read_flags rounds steps layers hidden length batch microbatch only nvme build -- "$@"
: "${nvme:=$folder}"
cat models/{core,families}/*.?pp runtime/*/*.?pp >"$folder/text"
"$build/tests/bench/file_bench" "$nvme" 512 32 3 >"$folder/disk"
for way in read write; do value mb_per_second "$folder/disk" "bench=file tier $way" >"$folder/disk.$way"; done
read_rate=$(median "$folder/disk.read")
write_rate=$(median "$folder/disk.write")

# STATES/N: bytes of the optimizer's states in fp32, divided by N; moments in bf16 have 2/3 of them, in int8 about 1/2
cases=(
  "device|"
  "optimizer on host|--optimizer-tier host"
  "optimizer in files|--optimizer-tier nvme"
  "optimizer on host, stepped there|--optimizer-tier host --optimizer-step host"
  "parameters on host|--parameter-tier host --optimizer-tier host"
  "parameters in files|--parameter-tier nvme --optimizer-tier nvme"
  "gradients on host|--gradient-tier host --optimizer-tier host"
  "gradients in files|--gradient-tier nvme --optimizer-tier nvme"
  "activations on host|--recompute 1 --activation-tier host"
  "activations in files|--recompute 1 --activation-tier nvme"
  "activations on device|--recompute 1"
  "everything on host|--offload infinity-cpu"
  "everything in files|--offload infinity-nvme"
  "half of the optimizer on host|--optimizer-tier host --optimizer-budget STATES/2"
  "half of the optimizer in files|--optimizer-tier nvme --optimizer-budget STATES/2"
  "none of the optimizer on host|--optimizer-tier host --optimizer-budget STATES/1"
  "bf16 moments on host|--optimizer-tier host --moment-dtype bf16"
  "bf16 moments, half on host|--optimizer-tier host --moment-dtype bf16 --optimizer-budget STATES/3"
  "bf16 moments, none on host|--optimizer-tier host --moment-dtype bf16 --optimizer-budget STATES/1"
  "int8 moments on host|--optimizer-tier host --moment-dtype int8"
  "int8 moments, half on host|--optimizer-tier host --moment-dtype int8 --optimizer-budget STATES/4"
  "int8 moments, none on host|--optimizer-tier host --moment-dtype int8 --optimizer-budget STATES/1"
  "bf16 moments and master weights on host|--optimizer-tier host --moment-dtype bf16 --master-dtype bf16"
  "int8 moments, bf16 master weights on host|--optimizer-tier host --moment-dtype int8 --master-dtype bf16"
  "bf16 moments on device|--moment-dtype bf16"
  "int8 moments on device|--moment-dtype int8"
  "bf16 moments and master weights on device|--moment-dtype bf16 --master-dtype bf16"
  "int8 moments, bf16 master weights on device|--moment-dtype int8 --master-dtype bf16"
  "SGD on device|--optimizer sgd"
  "Muon on device|--optimizer muon"
)
for i in "${!cases[@]}"; do
  [[ $i == 0 || ${cases[$i]%%|*} =~ $only ]] || unset "cases[$i]"
done
[ -z "$only" ] || [ "${#cases[@]}" -gt 1 ] || { echo "tiers.sh: --only $only matches no placement" >&2; exit 2; }
for ((round = 0; round < rounds; ++round)); do
  for i in "${!cases[@]}"; do
    words=${cases[$i]#*|}
    [[ $words == *nvme* ]] && words="$words --nvme $nvme"
    [[ ! $words =~ STATES/([0-9]) ]] || words=${words/"${BASH_REMATCH[0]}"/$((states / BASH_REMATCH[1]))}
    # shellcheck disable=SC2086  # a case is words
    "$build/apps/ranvier-train" --data "$folder/text" --layers "$layers" --hidden "$hidden" --heads $((hidden / 64)) \
      --sequence-length "$length" --batch-size "$batch" --microbatch-size "$microbatch" --steps "$steps" \
      --precision bf16 $words "${more[@]}" \
      --metrics "$folder/metrics" >"$folder/log" 2>&1 || { tail -5 "$folder/log" >&2; exit 1; }
    value seconds "$folder/metrics" | tail -n +2 >>"$folder/$i"
    [ "$i" -ne 0 ] || states=$(figures memory "$folder/metrics" optimizer)
    figures memory "$folder/metrics" nvme >"$folder/$i.nvme"
    value loss "$folder/metrics" >"$folder/$i.losses"
    rm "$folder/metrics"
  done
done
device=$(median "$folder/0")
host=
for i in "${!cases[@]}"; do
  seconds=$(median "$folder/$i")
  case ${cases[$i]%%|*} in
    *" on host") host=$seconds kind=${cases[$i]%% on host*} ;;
    *" in files") [ "${kind:-}" = "${cases[$i]%% in files*}" ] || host= ;;
  esac
  same=
  if [[ ! ${cases[$i]} =~ -dtype|--optimizer\  ]]; then
    same=$(cmp -s "$folder/0.losses" "$folder/$i.losses" && echo true || echo false)
  fi
  awk -v name="${cases[$i]%%|*}" -v same="$same" -v s="$seconds" -v d="$device" -v h="$host" -v bytes="$(cat "$folder/$i.nvme")" \
    -v read="$read_rate" -v write="$write_rate" 'BEGIN {
    printf "{\"bench\": \"tiers\", \"placement\": \"%s\", \"seconds\": %.3f, \"over_device\": %.3f", name, s, s / d
    if (same != "") printf ", \"losses_same\": %s", same
    if (bytes > 0 && h > 0) printf ", \"over_host\": %.3f", s / h
    if (bytes > 0) printf ", \"file_bytes\": %.0f, \"disk_seconds\": %.3f", bytes, bytes / 1e6 * (1 / read + 1 / write)
    print "}" }'
done
