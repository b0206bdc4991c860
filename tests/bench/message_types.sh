#!/usr/bin/env bash
# Loss with messages in blocks of 8 or 4 bits, compared with messages in bf16: four rows on two imagined nodes, zero3.
#
#   tests/bench/message_types.sh [--data TEXT] [--models "gpt llama"] [--steps 300] [--seeds "5"] [--build build/release]
#                                [-- FLAGS OF ranvier-train]
#
# The models and settings of "Types of optimizer states" in RESULTS.md. Without --data: sources of this repository. One
# JSON line per model, seed and case: `validation_loss` after the last step, and `over_same`: difference from the first
# case.
source "$(dirname "$0")/measuring.sh"
data='' models="gpt llama" steps=300 seeds=5 build=build/release
read_flags data models steps seeds build -- "$@"
[ -n "$data" ] || { data=$folder/text; cat models/{core,families}/*.?pp runtime/*/*.?pp >"$data"; }
cases=(
  "same|"
  "int8 gathers|--gather-dtype int8"
  "int8 reductions|--reduce-dtype int8"
  "int4 reductions between nodes, int8 inside|--reduce-dtype inter=int4,intra=int8"
  "int4 reductions|--reduce-dtype int4"
  "int8 gathers, int4 reductions|--gather-dtype int8 --reduce-dtype int4"
)
for model in $models; do
  for seed in $seeds; do
    same=
    for case in "${cases[@]}"; do
      read -ra flags <<<"${case#*|}"
      rm -f "$folder/metrics"
      mpirun --oversubscribe --bind-to none -n 4 "$build/apps/ranvier-train" --data "$data" --tokenizer bytes \
        --model "$model" --layers 4 --hidden 128 --heads 4 --sequence-length 128 --batch-size 16 --microbatch-size 1 \
        --steps "$steps" --eval-every "$steps" --eval-samples 256 --seed "$seed" --threads 1 --learning-rate 1e-3 \
        --precision bf16 --g-data 4 --node-size 2 --shard zero3 "${flags[@]}" "${more[@]}" \
        --metrics "$folder/metrics" >"$folder/log" 2>&1 </dev/null || { tail -5 "$folder/log" >&2; exit 1; }
      loss=$(value validation_loss "$folder/metrics" validation_loss | tail -n 1)
      : "${same:=$loss}"
      awk -v model="$model" -v seed="$seed" -v name="${case%%|*}" -v loss="$loss" -v same="$same" 'BEGIN {
        printf "{\"bench\": \"message types\", \"model\": \"%s\", \"seed\": %s, \"messages\": \"%s\", ", model, seed, name
        printf "\"validation_loss\": %.5f, \"over_same\": %.5f}\n", loss, loss - same }'
    done
  done
done
