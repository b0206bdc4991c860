#!/usr/bin/env bash
# Largest model that one rank trains within a budget of device memory, per placement of its states (Myelin §V-B,
# ZeRO-Infinity Table 2 and §8.5). The largest model of each placement is trained for a few steps.
#
#   tests/bench/largest_model.sh [--memory 256MiB] [--host-memory SIZE] [--steps 2] [--most 40] [--only WORDS]
#                                [--nvme FOLDER] [--build build/release]
#
# --host-memory: only placements on the host, in types of 18, 10, 8 and 6 bytes per parameter (apps/guides/tiers.md;
# infinity-cpu: 18, 12, 10 and 8). n grows until the planned host memory, without the device's, exceeds SIZE.
# The models: n layers of 64 n channels and n heads (GPT-2 small is n = 12), bytes as tokens, 128 positions, one sample,
# bf16, every layer recomputed. n grows until `--dry-run` does not fit. One JSON line per placement: parameters, their
# ratio to plain data parallelism at 20 bytes per parameter (Myelin §V-B), planned bytes, and seconds of a step.
source "$(dirname "$0")/measuring.sh"
memory=256MiB host_memory= steps=2 most=40 only= build=build/release nvme=
read_flags memory host_memory steps most only nvme build -- "$@"
: "${nvme:=$folder}"
cat models/{core,families}/*.?pp runtime/*/*.?pp >"$folder/text"
unset "${!OMPI_@}" 2>/dev/null || true

budget=$(numfmt --from=iec-i "${memory%B}")
small_buckets="--bucket-size 262144 --gradient-dtype half"
cases=(
  "ddp|"
  "ddp, 2-byte gradients|--gradient-dtype half"
  "ddp, 8-byte states|--gradient-dtype half --moment-dtype bf16 --master-dtype bf16"
  "ddp, 6-byte states|--gradient-dtype half --moment-dtype int8 --master-dtype bf16"
  "myelin|--offload myelin $small_buckets"
  "zero-offload|--offload zero-offload $small_buckets"
  "infinity-cpu|--offload infinity-cpu $small_buckets --prefetch 1"
  "infinity-nvme|--offload infinity-nvme $small_buckets --prefetch 1"
  "infinity-nvme, nothing ahead|--offload infinity-nvme $small_buckets --prefetch 0"
  "infinity-nvme, 4 tiles|--offload infinity-nvme $small_buckets --prefetch 1 --tile 4"
)
if [ -n "$host_memory" ]; then
  host_budget=$(numfmt --from=iec-i "${host_memory%B}")
  cases=()
  for placement in zero-offload infinity-cpu; do
    words="--offload $placement --bucket-size 262144 --prefetch 1"
    bf16="--moment-dtype bf16 --master-dtype bf16" int8="--moment-dtype int8 --master-dtype bf16"
    cases+=("$placement, fp32|$words"
      "$placement, bf16|$words $bf16"
      "$placement, bf16, 2-byte gradients|$words $bf16 --gradient-dtype half"
      "$placement, int8, 2-byte gradients|$words $int8 --gradient-dtype half")
  done
fi
flags() {  # <n> <a case's flags>: all flags of ranvier-train
  echo --data "$folder/text" --layers "$1" --hidden $((64 * $1)) --heads "$1" --sequence-length 128 --batch-size 1 \
    --microbatch-size 1 --precision bf16 --recompute 1 --shuffle off --steps "$steps" --device-memory "$memory" $2
}
in_bytes() {  # <what>: the fit check's number
  numfmt --from=iec-i "$(sed -n "s/^  $1 *\([0-9.]*\) \([KMGT]i\)B.*/\1\2/p" "$folder/plan")"
}
fits() {  # <n> <a case's flags>: --dry-run ends with 1 if the job does not fit
  local status=0
  # shellcheck disable=SC2046  # flags are words
  "$build/apps/ranvier-train" --dry-run $(flags "$1" "$2") >"$folder/plan" 2>&1 || status=$?
  ((status < 2)) || { cat "$folder/plan" >&2; exit "$status"; }
  if [ -z "$host_memory" ] || ((status > 0)); then return "$status"; fi
  local all device
  all=$(in_bytes "memory per node, with devices") || exit 1
  device=$(in_bytes "device memory per rank") || exit 1
  ((all - device <= host_budget)) || { echo "needs more than --host-memory $host_memory" >>"$folder/plan"; return 1; }
}

found=
for case in "${cases[@]}"; do
  name=${case%%|*} words=${case#*|}
  [[ $name == *$only* ]] || continue
  found=yes
  [[ $words == *nvme* ]] && words="$words --nvme $nvme"
  best=0
  for ((n = 1; n <= most; ++n)); do
    fits "$n" "$words" || break
    best=$n
  done
  ((best > 0)) || { cat "$folder/plan" >&2; exit 1; }
  # shellcheck disable=SC2046
  "$build/apps/ranvier-train" $(flags "$best" "$words") --metrics "$folder/metrics" >"$folder/log" 2>&1 ||
    { tail -5 "$folder/log" >&2; exit 1; }
  seconds=$(value seconds "$folder/metrics" | tail -1)
  device=$(figures memory "$folder/metrics" device)
  host=$(figures memory "$folder/metrics" pinned host)
  nvme_bytes=$(figures memory "$folder/metrics" nvme)
  awk -v name="$name" -v n="$best" -v budget="$budget" -v device="$device" -v host="$host" -v nvme="$nvme_bytes" \
    -v s="$seconds" 'BEGIN {
    h = 64 * n
    p = n * (12 * h * h + 13 * h) + (256 + 128 + 2) * h
    printf "{\"placement\": \"%s\", \"layers\": %d, \"hidden\": %d, \"parameters\": %.4g, \"of_20_bytes\": %.2f, ", name, n, 64 * n, p, p / (budget / 20)
    printf "\"device_bytes\": %.0f, \"host_bytes\": %.0f, \"nvme_bytes\": %.0f, \"step_seconds\": %.2f}\n", device, host, nvme, s }'
  rm -f "$folder/metrics"
done
[ -n "$found" ] || { echo "largest_model.sh: --only $only matches no placement" >&2; exit 2; }
