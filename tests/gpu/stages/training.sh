# Trainings in bf16 for the stages that source this.
failed=0
train() {  # <models> <steps> <flags of ranvier-train…>
  local models=$1 sizes=(--steps "$2")
  [ -z "$tiny" ] || models=tiny,7B sizes=(--microbatches 2 --steps 3)  # 7B is left out: the emulated GPU is too small
  # shellcheck disable=SC2086  # words
  python3 tests/bench/sizes_on_one_gpu.py "$build/apps/ranvier-train" --models "$models" --limit 75 "${sizes[@]}" \
    --products-file "$products" --metrics "$results/metrics.jsonl" -- "${@:3}" $common_flags || failed=1
}
