# Every operation beside a copy and a large matrix product, then what each has of a step.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for dtype in bf16 fp32; do "$build/tests/bench/ops_bench_cuda" "$dtype" ${tiny:+tiny} | tee "$folder/$dtype"; done
[ -z "$tiny" ] || exit 0
for model in gpt2 1.3B; do tests/bench/kernels_gpu.sh --model "$model" --build "$build" --operations "$folder/bf16"; done
