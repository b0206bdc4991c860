# GPT-2 small with states on the host and in files.
sizes=(--layers 12 --hidden 768 --length 1024 --batch 32 --microbatch 8 --steps 4)
[ -z "$tiny" ] || sizes=(--layers 1 --hidden 64 --length 16 --batch 2 --microbatch 1 --steps 2)
# Products and attention that are not measured: then losses are to be the same wherever states are.
tests/bench/tiers.sh --build "$build" --rounds 1 "${sizes[@]}" -- --device cuda:0 --products first --attention ranvier \
  ${common_flags/--attention ranvier/}
