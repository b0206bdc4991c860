# One step under Nsight Compute; all that it said goes into ncu.csv.
model=gpt2-small
[ -z "$tiny" ] || model=tiny
# shellcheck disable=SC2086  # words
python3 tests/bench/step_under_ncu.py "$build/apps/ranvier-train" --model "$model" --products-file "$products" \
  --csv "$results/ncu.csv" -- $tiny_flags
