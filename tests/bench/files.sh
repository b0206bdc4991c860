#!/usr/bin/env bash
# File tier compared with fio on the same disk: O_DIRECT, requests of 1 MiB, the same depth, existing bytes overwritten.
# One JSON line per pass, in turns, then the medians and the tier's share of the fastest fio.
#
# fio also runs with buffers that the kernel pinned beforehand: pinning 256 small pages per request can take longer than
# the disk, and the tier's memory is on huge pages.
#
# usage: tests/bench/files.sh DIR [MEBIBYTES [DEPTH [ROUNDS]]]
set -euo pipefail
cd "$(dirname "$0")/../.."
directory=${1:?usage: tests/bench/files.sh DIR [MEBIBYTES [DEPTH [ROUNDS]]]}
mebibytes=${2:-1024} depth=${3:-32} rounds=${4:-5}

cmake/install_dependencies.sh --bench >&2
cmake/build.sh release file_bench >&2
lines=$(mktemp)
file=$(mktemp "$directory/ranvier-fio.XXXXXX")
trap 'rm -f "$lines" "$file"' EXIT

fio_pass() {  # libaio|io_uring|pinned read|write; field 7 or 48 of fio's terse line is KiB/s
  local engine=$1 field=7 options=()
  [ "$1" != pinned ] || { engine=io_uring; options=(--fixedbufs=1); }
  [ "$2" = read ] || field=48
  fio --minimal --name=pass --filename="$file" --size="${mebibytes}M" --bs=1M --direct=1 --iodepth="$depth" \
      --ioengine="$engine" --rw="$2" --overwrite=1 --scramble_buffers=0 "${options[@]}" |
    awk -F';' -v engine="$1" -v kind="$2" -v field=$field -v mib="$mebibytes" -v depth="$depth" \
      '{ printf "{\"bench\":\"fio %s %s\",\"mebibytes\":%d,\"depth\":%d,\"mb_per_second\":%.0f}\n",
                engine, kind, mib, depth, $field * 1.024e-3 }'
}

fio_pass libaio write > /dev/null  # creates the file
for ((round = 0; round < rounds; ++round)); do
  {
    for engine in libaio io_uring pinned; do
      fio_pass "$engine" write
      fio_pass "$engine" read
    done
    build/release/tests/bench/file_bench "$directory" "$mebibytes" "$depth" 1
  } | tee -a "$lines"
done

awk -F'"' '
  { rate = $0; sub(/.*mb_per_second":/, "", rate); n[$4]++; rates[$4, n[$4]] = rate + 0 }
  function median(name,   i, j, swap, count) {
    count = n[name]
    if (count == 0) { print "files.sh: no figure of " name >"/dev/stderr"; failed = 1; exit 1 }
    for (i = 1; i <= count; i++)
      for (j = i + 1; j <= count; j++)
        if (rates[name, j] < rates[name, i]) { swap = rates[name, i]; rates[name, i] = rates[name, j]; rates[name, j] = swap }
    return rates[name, int((count + 1) / 2)]
  }
  END {
    if (failed) exit 1
    split("write read", kinds, " ")
    for (k = 1; k <= 2; k++) {
      tier = median("file tier " kinds[k])
      aio = median("fio libaio " kinds[k]); uring = median("fio io_uring " kinds[k]); pinned = median("fio pinned " kinds[k])
      best = aio > uring ? aio : uring
      if (pinned > best) best = pinned
      printf "{\"bench\":\"files %s, medians\",\"tier_mb_per_second\":%.0f,\"fio_libaio\":%.0f,\"fio_io_uring\":%.0f,\"fio_pinned\":%.0f,\"of_fastest_fio\":%.3f}\n",
             kinds[k], tier, aio, uring, pinned, tier / best
    }
  }' "$lines"
