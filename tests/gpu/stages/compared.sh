# Comparisons with PyTorch for the stages that source this.
[ -n "$torch_python" ] || exit 0
failed=0
compare() {  # <flags of compare_pytorch_gpu.py…>
  # shellcheck disable=SC2086  # words
  "$torch_python" tests/bench/compare_pytorch_gpu.py "$build/apps/ranvier-train" --products-file "$products" \
    --no-eager --repeats 1 "$@" -- $common_flags || failed=1
}
