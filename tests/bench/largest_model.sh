#!/usr/bin/env bash
# Largest model that one rank trains within a budget of device memory, per placement of its states (Myelin §V-B,
# ZeRO-Infinity Table 2 and §8.5). The largest model of each placement is trained for a few steps.
#
#   tests/bench/largest_model.sh [--memory 256MiB] [--steps 2] [--most 40] [--only WORDS] [--nvme FOLDER]
#                                [--build build/release]
#
# The models: n layers of 64 n channels and n heads (GPT-2 small is n = 12), bytes as tokens, 128 positions, one sample,
# bf16, every layer recomputed. n grows until `--dry-run` does not fit. One JSON line per placement: parameters, their
# ratio to plain data parallelism at 20 bytes per parameter (Myelin §V-B), planned bytes, and seconds of a step.
source "$(dirname "$0")/measuring.sh"
memory=256MiB steps=2 most=40 only= build=build/release nvme=
read_flags memory steps most only nvme build -- "$@"
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
flags() {  # <n> <a case's flags>: all flags of ranvier-train
  echo --data "$folder/text" --layers "$1" --hidden $((64 * $1)) --heads "$1" --sequence-length 128 --batch-size 1 \
    --microbatch-size 1 --precision bf16 --recompute 1 --shuffle off --steps "$steps" --device-memory "$memory" $2
}
fits() {  # <n> <a case's flags>: --dry-run ends with 1 if the job does not fit
  local status=0
  # shellcheck disable=SC2046  # flags are words
  "$build/apps/ranvier-train" --dry-run $(flags "$1" "$2") >"$folder/plan" 2>&1 || status=$?
  ((status < 2)) || { cat "$folder/plan" >&2; exit "$status"; }
  return "$status"
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
