# 7 B parameters whose optimizer states are in the host's memory: 84 GB of it.
sizes=(--batch 32 --steps 3 --limit 140)
[ -z "$tiny" ] || sizes=(--layers 2 --hidden 64 --heads 1 --vocabulary 250 --length 32 --batch 4 --microbatch 2 --steps 3)
tests/bench/optimizer_on_host_gpu.sh --build "$build" "${sizes[@]}" -- --products-file "$products" $tiny_flags
