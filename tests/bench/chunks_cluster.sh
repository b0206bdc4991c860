#!/usr/bin/env bash
# The data-parallel and optimizer phase in chunks of 1, 2, 4, 8 and all buckets (chunk_bench.cpp) between two emulated
# hosts of one rank (tests/cluster), whose link bounds the reduction.
#
#   tests/bench/chunks_cluster.sh [--rate MBIT] [--layers 4] [--hidden 512] [--bucket-size 262144] [--repeats 5]
#                                 [--nvme DIR] [--step device|host] [--precision fp32|bf16] [--build build/release]
#
# One JSON line per case: chunk_bench's, whose `over_longer` is the phase over the longer one of its parts alone, with
# the rate of the link. With bf16, whose master weights lie apart, states that flip too.
set -euo pipefail
cd "$(dirname "$0")/../.."
rate=1000 layers=4 hidden=512 bucket=262144 repeats=5 nvme=- step=device precision=fp32 build=build/release
while (($# > 0)); do
  case $1 in
    --rate) rate=${2%mbit} ;;
    --layers) layers=$2 ;;
    --hidden) hidden=$2 ;;
    --bucket-size) bucket=$2 ;;
    --repeats) repeats=$2 ;;
    --nvme) nvme=$2 ;;
    --step) step=$2 ;;
    --precision) precision=$2 ;;
    --build) build=$2 ;;
    *)
      sed -n 's/^# \{0,1\}//; 5,6p' "$0" >&2
      exit 2
      ;;
  esac
  shift 2
done
tests/cluster/run.sh --hosts 2 --ranks-per-host 1 --rate "${rate}mbit" --timeout 3000 -- \
  "$build/tests/bench/chunk_bench" "$nvme" "$layers" "$hidden" "$bucket" "$repeats" "$step" "$precision" |
  sed -u "s/^{\"bench\":\"chunks\",/&\"mbit\":$rate,/"
