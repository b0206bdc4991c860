#!/usr/bin/env bash
# The largest model that trains on one rank with a budget of device memory, for each way to place its states (Myelin
# §V-B, ZeRO-Infinity Table 2 and §8.5), as a table; the largest one of each way really trains.
#
#   tests/bench/largest_model.sh [--memory 256MiB] [--steps 2] [--most 40] [--only WORDS] [--nvme FOLDER]
#                                [--build build/release]
#
# The family: n layers of 64 n channels and n heads (GPT-2 small is n = 12), bytes as tokens, 128 positions, one sample,
# bf16, every layer computed again in the backward pass. The plan says what fits, `--dry-run` prints it; n grows until
# it does not. One JSON line per case: parameters, what they are of plain data parallelism at 20 bytes a parameter
# (Myelin §V-B), bytes planned on the device, host and files, and the seconds of a step.
source "$(dirname "$0")/measuring.sh"
memory=256MiB steps=2 most=40 only= build=build/release nvme=
read_flags memory steps most only nvme build -- "$@"
: "${nvme:=$folder}"
cat models/*.?pp runtime/*.?pp >"$folder/text"
unset "${!OMPI_@}" 2>/dev/null || true

budget=$(numfmt --from=iec-i "${memory%B}")
small_buckets="--bucket-size 262144 --gradient-dtype half"
cases=(
  "ddp|"
  "ddp, 2-byte gradients|--gradient-dtype half"
  "myelin|--offload myelin $small_buckets"
  "zero-offload|--offload zero-offload $small_buckets"
  "infinity-cpu|--offload infinity-cpu $small_buckets --prefetch 1"
  "infinity-nvme|--offload infinity-nvme $small_buckets --prefetch 1"
  "infinity-nvme, nothing ahead|--offload infinity-nvme $small_buckets --prefetch 0"
  "infinity-nvme, 4 tiles|--offload infinity-nvme $small_buckets --prefetch 1 --tile 4"
)
flags() {  # of ranvier-train, for size n and a case's words
  echo --data "$folder/text" --layers "$1" --hidden $((64 * $1)) --heads "$1" --sequence-length 128 --batch-size 1 \
    --microbatch-size 1 --precision bf16 --recompute 1 --shuffle off --steps "$steps" --device-memory "$memory" $2
}
fits() {
  # shellcheck disable=SC2046  # flags are words
  "$build/apps/ranvier-train" --dry-run $(flags "$1" "$2") >"$folder/plan" 2>&1 || return 1
  [ "$(planned device)" -le "$budget" ]
}
planned() {  # bytes in a space, of the memory table's totals
  awk -v space="$1" '$1 == "total" && $2 == space { unit = $4 == "B" ? 1 : $4 == "KiB" ? 2^10 : $4 == "MiB" ? 2^20 : 2^30
      printf "%.0f", $3 * unit; found = 1 } END { if (!found) print 0 }' "$folder/plan"
}
parameters() { sed -n 's/^gpt .*: \([0-9.]*\)\([kMGT]\?\) parameters.*/\1 \2/p' "$folder/plan" |
  awk '{ print $1 * ($2 == "k" ? 1e3 : $2 == "M" ? 1e6 : $2 == "G" ? 1e9 : 1) }'; }

for case in "${cases[@]}"; do
  name=${case%%|*} words=${case#*|}
  [[ $name == *$only* ]] || continue
  [[ $words == *nvme* ]] && words="$words --nvme $nvme"
  best=0
  for ((n = 1; n <= most; ++n)); do
    fits "$n" "$words" || break
    best=$n
  done
  ((best > 0)) || { cat "$folder/plan" >&2; exit 1; }
  fits "$best" "$words"
  # shellcheck disable=SC2046
  "$build/apps/ranvier-train" $(flags "$best" "$words") --metrics "$folder/metrics" >"$folder/log" 2>&1 ||
    { tail -5 "$folder/log" >&2; exit 1; }
  seconds=$(value seconds "$folder/metrics" | tail -1)
  awk -v name="$name" -v n="$best" -v p="$(parameters)" -v budget="$budget" -v device="$(planned device)" \
    -v host="$(planned pinned)" -v nvme="$(planned nvme)" -v s="$seconds" 'BEGIN {
    printf "{\"placement\": \"%s\", \"layers\": %d, \"hidden\": %d, \"parameters\": %.4g, \"of_20_bytes\": %.2f, ", name, n, 64 * n, p, p / (budget / 20)
    printf "\"device_bytes\": %.0f, \"host_bytes\": %.0f, \"nvme_bytes\": %.0f, \"step_seconds\": %.2f}\n", device, host, nvme, s }'
  rm -f "$folder/metrics"
done
