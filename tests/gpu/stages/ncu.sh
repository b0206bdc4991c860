# One step under Nsight Compute; its complete output goes to ncu.csv.
model=gpt2-small
[ -z "$tiny" ] || model=tiny
# shellcheck disable=SC2086  # words
python3 tests/bench/step_under_ncu.py "$build/apps/ranvier-train" --model "$model" --products-file "$products" \
  --csv "$results/ncu.csv" -- $common_flags
