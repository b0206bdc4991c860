# Several ranks on one GPU: two stages compared with one rank, then two stages of two rows, which shard their states.
sizes=(--rounds 1 --steps 8)
grid=(--layers 12 --hidden 768 --heads 12 --sequence-length 1024 --batch-size 16 --microbatch-size 4)
if [ -n "$tiny" ]; then
  sizes=(--layers 2 --hidden 64 --heads 1 --vocabulary 250 --length 32 --batch 4 --microbatch 1 --rounds 1 --steps 3)
  grid=(--layers 2 --hidden 64 --heads 1 --sequence-length 32 --batch-size 4 --microbatch-size 1)
fi
tests/bench/stages_on_one_gpu.sh --build "$build" "${sizes[@]}" --products-file "$products" -- $common_flags

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat README.md models/*/*.cpp runtime/*/*.cpp >"$folder/text"
for ranks in 1 4; do
  ways=()
  [ "$ranks" -eq 1 ] || ways=(--g-inter 2 --g-data 2 --shard zero3)
  mpirun -n "$ranks" --oversubscribe --bind-to none "$build/apps/ranvier-train" --data "$folder/text" "${grid[@]}" \
    --steps 4 --precision fp32 --device cuda:0 "${ways[@]}" $common_flags --metrics "$folder/$ranks" | tail -2
done
seconds=$(python3 tests/bench/figures.py values "$folder/4" seconds | tail -1)
source tests/gpu/stages/losses.sh
status=0
worst=$(difference "$folder/1" "$folder/4" 4) || status=$?
echo "{\"bench\": \"ranks_on_one_gpu\", \"grid\": \"2 x 2, zero3\", \"seconds_a_step\": $seconds, \"losses_differ_by\": $worst}"
exit $status
