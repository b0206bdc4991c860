# Beside PyTorch, compiled as a whole; deep models, which that takes minutes for, by blocks. Each run has a limit.
run() {
  local status=0
  tests/reference/run.sh ../bench/compare_pytorch_gpu.py "$build/apps/ranvier-train" --products-file "$products" \
    --no-eager --repeats 1 "$@" || status=$?
  [ "$status" -eq 77 ] || return "$status"  # no PyTorch here
}
if [ -n "$tiny" ]; then
  run --cases tiny-bf16 --seconds 0.1 --limit 60 --compile none --pytorch-device cpu -- $tiny_flags
  exit
fi
failed=0
run --cases gpt2-small-bf16 --seconds 5 --limit 100 || failed=1
run --cases 774M-bf16,1.5B-bf16 --seconds 5 --limit 120 --vocabularies padded --compile blocks || failed=1
exit "$failed"
