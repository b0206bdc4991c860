#!/usr/bin/env bash
# Gradient reduction and optimizer step in gradient chunks of 1, 2, 4, 8 and all buckets (chunk_bench.cpp) between two
# emulated hosts of one rank (tests/cluster), whose link limits the reduction.
#
#   tests/bench/chunks_cluster.sh [--rate MBIT] [--layers 4] [--hidden 512] [--bucket-size 262144] [--repeats 5]
#                                 [--nvme DIR] [--step device|host] [--precision fp32|bf16] [--build build/release]
#                                 [--cluster tests/cluster/run.sh]
#
# One JSON line per case: chunk_bench's, with the rate of the link (`mbit`). `over_longer` is the time of both over the
# longer one of reduction and optimizer step alone. bf16 has separate master weights: it adds --optimizer-commit flip.
source "$(dirname "$0")/measuring.sh"
rate=1000 layers=4 hidden=512 bucket_size=262144 repeats=5 nvme=- step=device precision=fp32 build=build/release
cluster=tests/cluster/run.sh
read_flags rate layers hidden bucket_size repeats nvme step precision build cluster -- "$@"
rate=${rate%mbit}
"$cluster" --hosts 2 --ranks-per-host 1 --rate "${rate}mbit" --timeout 3000 -- \
  "$build/tests/bench/chunk_bench" "$nvme" "$layers" "$hidden" "$bucket_size" "$repeats" "$step" "$precision" |
  awk -v rate="$rate" '
    /^\{"/ { sub(/^\{/, "{\"mbit\":" rate ","); ++found }
    { print; fflush() }
    END { if (!found) { print "chunks_cluster.sh: chunk_bench printed no case" >"/dev/stderr"; exit 1 } }'
