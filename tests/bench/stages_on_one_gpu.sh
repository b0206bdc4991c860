#!/usr/bin/env bash
# Two ranks on one GPU as two stages, compared with one rank with all layers. The GPU has the same work, so the
# difference is the cost of messages through pinned memory, of the event loop, and of the GPU's switches between two
# processes.
#
#   tests/bench/stages_on_one_gpu.sh [--layers 12] [--hidden 768] [--heads 12] [--vocabulary 50257] [--length 1024]
#                                    [--batch 64] [--microbatch 8] [--pipeline-limit 4] [--steps 12] [--rounds 2]
#                                    [--p2p staged] [--products-file FILE] [--device cuda:0] [--build build/gpu]
#                                    [-- FLAGS OF ranvier-train]
#
# One JSON line: `lost` is 1 - (seconds of one rank) / (seconds of two), medians of all steps but each run's first.
# Per rank: the shares of time in which it waited and in which it had messages in flight. `fp32_same`: two steps in fp32
# have the same losses.
source "$(dirname "$0")/measuring.sh"
layers=12 hidden=768 heads=12 vocabulary=50257 length=1024 batch=64 microbatch=8 pipeline_limit=4 steps=12 rounds=2
p2p=staged products_file= device=cuda:0 build=build/gpu
read_flags layers hidden heads vocabulary length batch microbatch pipeline_limit steps rounds p2p products_file device \
  build -- "$@"

random_tokens "$folder/tokens" $((4 * batch * length + 1)) "$vocabulary"
train() {  # <ranks> <name> <flags…>
  mpirun -n "$1" --oversubscribe --bind-to none "$build/apps/ranvier-train" --data "$folder/tokens" --tokenizer none \
    --layers "$layers" --hidden "$hidden" --heads "$heads" --vocab-size "$vocabulary" --sequence-length "$length" \
    --batch-size "$batch" --microbatch-size "$microbatch" --pipeline-limit "$pipeline_limit" --g-inter "$1" --p2p "$p2p" \
    --device "$device" "${@:3}" "${more[@]}" --metrics "$folder/$2" >"$folder/$2.log" 2>&1 ||
    { grep -m1 error "$folder/$2.log" >&2 || tail -5 "$folder/$2.log" >&2; exit 1; }
}

for ((round = 0; round < rounds; ++round)); do
  for ranks in 1 2; do
    rm -f "$folder/$ranks"
    train "$ranks" "$ranks" --steps "$steps" --precision bf16 ${products_file:+--products-file "$products_file"}
    value seconds "$folder/$ranks" | tail -n +2 >>"$folder/$ranks.seconds"
    echo "$ranks ranks: seconds per step: $(tail -n 1 "$folder/$ranks.seconds")" >&2
  done
done
one=$(median "$folder/1.seconds")
two=$(median "$folder/2.seconds")
for ranks in 1 2; do
  train "$ranks" "fp32.$ranks" --steps 2 --precision fp32
  value loss "$folder/fp32.$ranks" >"$folder/losses.$ranks"
done
same=$(cmp -s "$folder/losses.1" "$folder/losses.2" && echo true || echo false)
figures column "$folder/2.log" waiting >"$folder/waiting"
figures column "$folder/2.log" sending >"$folder/sending"
paste "$folder/waiting" "$folder/sending" |
  awk -v one="$one" -v two="$two" -v tokens=$((batch * length)) -v same="$same" -v p2p="$p2p" '
  BEGIN {
    printf "{\"bench\": \"stages_on_one_gpu\", \"p2p\": \"%s\", \"tokens_a_step\": %d, \"seconds_one_rank\": %.4f, ", p2p, tokens, one
    printf "\"seconds_two_ranks\": %.4f, \"lost\": %.3f, \"fp32_same\": %s", two, 1 - one / two, same
  }
  { printf ", \"rank_%d\": {\"waited\": %.3f, \"sending\": %.3f}", NR - 1, $1, $2 }
  END {
    if (NR != 2) { print "stages_on_one_gpu.sh: the table has " NR " ranks, not 2" >"/dev/stderr"; exit 1 }
    print "}" }'
