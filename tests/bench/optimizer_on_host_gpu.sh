#!/usr/bin/env bash
# A model whose optimizer states fill the host's memory instead of the GPU's (ZeRO-Infinity §6, Myelin §V-B): what they
# add to a step, and what the device holds beside 4φ + 16 · bucket + activations.
#
#   tests/bench/optimizer_on_host_gpu.sh [--layers 34] [--hidden 4096] [--heads 32] [--vocabulary 50257] [--length 2048]
#                                        [--batch 64] [--microbatch 4] [--bucket 16777216] [--steps 4] [--limit 540]
#                                        [--device cuda:0] [--build build/gpu] [-- FLAGS OF ranvier-train]
#
# The computation alone is the difference between a step of two batches and a step of one: both have the optimizer once.
# A longer step hides no less of it, so that the optimizer's share comes out too large rather than too small. One JSON
# line; `measured_bytes` is the most that nvidia-smi saw taken above what was taken before, the driver's context
# included. A run that takes longer than --limit seconds is ended.
source "$(dirname "$0")/measuring.sh"
layers=34 hidden=4096 heads=32 vocabulary=50257 length=2048 batch=64 microbatch=4 bucket=16777216 steps=4 limit=540
device=cuda:0 build=build/gpu
read_flags layers hidden heads vocabulary length batch microbatch bucket steps limit device build -- "$@"

random_tokens "$folder/tokens" $((2 * batch * length + 1)) "$vocabulary"
gpu=${device#cuda} gpu=${gpu#:}
taken() { nvidia-smi -i "${gpu:-0}" --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null; }

train() {  # <batch> <name>
  "$build/apps/ranvier-train" --data "$folder/tokens" --tokenizer none --layers "$layers" --hidden "$hidden" --heads "$heads" \
    --vocab-size "$vocabulary" --sequence-length "$length" --batch-size "$1" --microbatch-size "$microbatch" \
    --steps "$steps" --precision bf16 --gradient-dtype half --optimizer-tier host --bucket-size "$bucket" \
    --device "$device" "${more[@]}" --metrics "$folder/$2" >"$folder/$2.log" 2>&1 &
  local trainer=$! begin=$SECONDS
  while kill -0 "$trainer" 2>/dev/null; do
    taken >>"$folder/taken" || true
    sleep 0.5
    if ((SECONDS - begin > limit)); then
      echo "$2: ends after this step, $limit s after its start (--limit)" >&2
      kill -USR1 "$trainer"
      begin=$((SECONDS + limit))
    fi
  done
  wait "$trainer" || { tail -5 "$folder/$2.log" >&2; exit 1; }
  value seconds "$folder/$2" | tail -n +2 >"$folder/$2.seconds"
  [ -s "$folder/$2.seconds" ] || { echo "$2: no step but the first was done within --limit $limit" >&2; exit 1; }
  echo "$1 samples: $(median "$folder/$2.seconds") s a step; $(grep -E '^(trained|after the norm)' "$folder/$2.log" | tr '\n' ';')" >&2
}

before=$(taken || echo 0)
train "$batch" one
train $((2 * batch)) two
grep -A2 -E '^ *stage +layers' "$folder/one.log" >&2 || true
sed -n '$p' "$folder/one" | sed 's/.*"memory":{\([^}]*\)}.*/\1/' | tr , '\n' | sed 's/"//g' >"$folder/memory"
parameters=$((layers * (12 * hidden * hidden + 13 * hidden) + (vocabulary + length + 2) * hidden))
awk -v one="$(median "$folder/one.seconds")" -v two="$(median "$folder/two.seconds")" -v p="$parameters" -v bucket="$bucket" \
  -v tokens=$((batch * length)) -v before="$before" -v most="$(sort -n "$folder/taken" 2>/dev/null | tail -1)" \
  -v mfu="$(value mfu "$folder/one" | tail -1)" -F: '
  { bytes[$1] = $2; if ($1 !~ /pinned|host|nvme/) device += $2 }
  END {
    alone = two - one
    printf "{\"bench\": \"optimizer_on_host_gpu\", \"parameters\": %.0f, \"tokens_a_step\": %d, \"seconds\": %.4f, ", p, tokens, one
    printf "\"seconds_without_optimizer\": %.4f, \"over\": %.3f, \"mfu\": %s, ", alone, one / alone, mfu == "" ? "null" : mfu
    printf "\"planned_bytes\": {"
    for (kind in bytes) printf "%s\"%s\": %.0f", n++ ? ", " : "", kind, bytes[kind]
    allowed = 4 * p + 16 * bucket + bytes["activations"]
    printf "}, \"device_bytes\": %.0f, \"allowed_bytes\": %.0f, \"measured_bytes\": ", device, allowed
    if (most > 0) printf "%.0f}\n", (most - before) * 1048576; else print "null}"
  }' "$folder/memory"
