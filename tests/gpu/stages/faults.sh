# A GPU that is missing or too small, and a rank that fails or dies: exit status (runtime/base/error.hpp) and message.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat README.md >"$folder/text"
failed=0

sizes=(--layers 2 --hidden 64 --heads 1)
expect() {  # <status> <a word of the message> <ranks> <device> <flags…>: the job ends with both, in time
  local said status=0 begin=$SECONDS
  said=$(timeout --kill-after=5 40 mpirun -n "$3" --oversubscribe --bind-to none "$build/apps/ranvier-train" \
    --data "$folder/text" "${sizes[@]}" --sequence-length 32 --batch-size 4 --microbatch-size 1 --precision fp32 --timeout 10 \
    --device "${@:4}" 2>&1) || status=$?
  local as_expected=false
  if [ "$status" -eq "$1" ] && grep -qF -e "$2" <<<"$said"; then as_expected=true; fi
  printf '{"bench": "faults", "flags": "%s", "expected": "%s", "as_expected": %s, "status": %d, "seconds": %d}\n' \
    "${*:4}" "status $1, $2" "$as_expected" "$status" $((SECONDS - begin))
  if [ "$as_expected" = false ]; then
    failed=1
    tail -20 <<<"$said"
  fi
}

gpus=$(nvidia-smi -L | grep -c GPU)
# shellcheck disable=SC2086  # words
{
  expect 72 "cuda:$gpus" 1 "cuda:$gpus" --steps 2
  expect 71 "--device-memory" 1 cuda --device-memory 1MiB --steps 2
  RANVIER_FAULT=1:2:throw expect 70 "rank 1" 2 cuda --g-inter 2 --steps 4 $common_flags
  RANVIER_FAULT=1:2:hang expect 76 "rank 1" 2 cuda --g-inter 2 --steps 4 $common_flags
  sizes=(--layers 96 --hidden 12288 --heads 96)
  expect 71 "device memory" 1 cuda --steps 2 $common_flags
}

# A rank is killed: the other one ends, too.
mpirun -n 2 --oversubscribe --bind-to none "$build/apps/ranvier-train" --data "$folder/text" --layers 2 --hidden 64 \
  --heads 1 --sequence-length 32 --batch-size 4 --microbatch-size 1 --steps 1000000 --precision fp32 --g-inter 2 --timeout 10 \
  --device cuda $common_flags --metrics "$folder/metrics" >"$folder/log" 2>&1 &
job=$! begin=$SECONDS
while [ ! -s "$folder/metrics" ] && kill -0 "$job" 2>/dev/null && ((SECONDS - begin < 30)); do sleep 0.2; done
begin=$SECONDS
# pgrep is not everywhere. Processes may end meanwhile: cat omits their files, but some awks would fail.
rank=$(cat /proc/[0-9]*/status 2>/dev/null | awk -v job="$job" '/^Name:/ { ours = /ranvier-train/ } /^Pid:/ { pid = $2 }
  /^PPid:/ && ours && $2 == job { last = pid } END { print last }' || true)
[ -z "$rank" ] || kill -KILL "$rank"
while kill -0 "$job" 2>/dev/null && ((SECONDS - begin < 20)); do sleep 0.2; done
ended=true
if kill "$job" 2>/dev/null; then ended=false failed=1; fi
printf '{"bench": "faults", "flags": "a rank is killed", "expected": "the job ends", "as_expected": %s, "seconds": %d}\n' \
  "$ended" $((SECONDS - begin))
exit "$failed"
