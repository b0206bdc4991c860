# Every operation as a share of a copy or a large matrix product, then its share of a step.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$build/tests/bench/ops_bench" cuda bf16 ${tiny:+tiny} | tee "$folder/bf16"
[ -z "$tiny" ] || exit 0
for model in gpt2 1.3B; do tests/bench/kernels_gpu.sh --model "$model" --build "$build" --operations "$folder/bf16"; done
