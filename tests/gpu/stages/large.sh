# 7B parameters at 128k tokens per step with optimizer states on the host, AdamW on the device: 84 GB of pinned memory.
model=7B microbatches=16
[ -z "$tiny" ] || model=tiny microbatches=2
# shellcheck disable=SC2086  # words
python3 tests/bench/optimizer_on_host_gpu.py "$build/apps/ranvier-train" --model "$model" \
  --microbatches "$microbatches" --steps-at device --limit 270 --products-file "$products" --metrics "$results/metrics.jsonl" \
  -- $common_flags
