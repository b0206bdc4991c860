# GPT-2 small to 7 B, each started once.
models=gpt2-small,774M,1.5B,7B steps=20
[ -z "$tiny" ] || models=tiny steps=3
python3 tests/bench/sizes_on_one_gpu.py "$build/apps/ranvier-train" --models "$models" --steps "$steps" --limit 80 \
  --products-file "$products" --metrics "$results/metrics.jsonl" -- $tiny_flags
