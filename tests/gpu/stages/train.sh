# The same small model on both devices, text generated from it, and 50 steps compared with PyTorch.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
steps=50 tokens=200
sizes=(--layers 4 --hidden 128 --heads 4 --sequence-length 128 --batch-size 8)
if [ -n "$tiny" ]; then
  steps=4 tokens=10
  sizes=(--layers 2 --hidden 64 --heads 1 --sequence-length 32 --batch-size 4)
fi

source tests/gpu/stages/losses.sh
close_losses() {  # <metrics> <metrics> <steps> <what>
  local worst status=0
  worst=$(difference "$1" "$2" "$3") || status=$?
  echo "$4 differ by $worst at most"
  return $status
}

cat README.md models/*/*.cpp runtime/*/*.cpp >"$folder/text"
for device in cpu cuda; do
  "$build/apps/ranvier-train" --data "$folder/text" "${sizes[@]}" --steps "$steps" --precision fp32 --device "$device" \
    $common_flags --metrics "$folder/$device" --save "$folder/weights" --overwrite | tail -3
done
close_losses "$folder/cpu" "$folder/cuda" "$steps" "losses of $steps steps"
for device in cpu cuda; do
  "$build/apps/ranvier-generate" --weights "$folder/weights" --prompt 'The ' --tokens "$tokens" --temperature 0 \
    --device "$device" >"$folder/text.$device"
done
cmp "$folder/text.cpu" "$folder/text.cuda"
echo "$tokens tokens are the same"
if [ "$(nvidia-smi -L | grep -c GPU)" -ge 2 ]; then
  echo "-- 20 steps on two GPUs by plans, by plans that NCCL sends, and by NCCL's own collectives"
  for way in "plans ring" "nccl ring" "nccl auto"; do
    read -r carrier algorithm <<<"$way"
    mpirun -n 2 --bind-to none "$build/apps/ranvier-train" --data "$folder/text" "${sizes[@]}" --steps 20 \
      --precision fp32 --device cuda --collectives "$carrier" --all-reduce "$algorithm" \
      --metrics "$folder/$carrier.$algorithm" | tail -3
    losses "$folder/$carrier.$algorithm"
  done
  cmp "$folder/plans.ring.losses" "$folder/nccl.ring.losses"
  echo "plans give the same losses by NCCL"
  close_losses "$folder/plans.ring" "$folder/nccl.auto" 20 "those of NCCL itself"
fi
[ -n "$torch_python" ] || exit 0
echo "-- compared with PyTorch"
# shellcheck disable=SC2086  # words
"$torch_python" tests/gpu/compare_losses.py "$build/apps/ranvier-train" "$folder/losses" ${tiny:+--tiny} -- $common_flags
