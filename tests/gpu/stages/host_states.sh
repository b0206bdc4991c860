# 3B parameters at 128k tokens per step: AdamW on the host, on the device with states on the host, all on the device.
model=3B microbatches=16
[ -z "$tiny" ] || model=tiny microbatches=2
# shellcheck disable=SC2086  # words
python3 tests/bench/optimizer_on_host_gpu.py "$build/apps/ranvier-train" --model "$model" \
  --microbatches "$microbatches" --limit 60 --products-file "$products" --metrics "$results/metrics.jsonl" \
  -- $common_flags
