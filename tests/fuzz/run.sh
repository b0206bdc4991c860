#!/usr/bin/env bash
# Fuzzes one reader: for 12 seconds (or RANVIER_FUZZ_SECONDS) with the same inputs every time, or with RANVIER_LONG=1
# for a minute with new ones.
#
# usage: run.sh PROGRAM CORPUS FOUND [FLAG OF LIBFUZZER...]
#   CORPUS   initial inputs; new ones are kept in FOUND, and a failing input next to FOUND
set -euo pipefail
program=$1 corpus=$2 found=$3
shift 3

seconds=${RANVIER_FUZZ_SECONDS:-12} seed=1
[ -z "${RANVIER_LONG:-}" ] || seconds=60 seed=0  # 0: a seed that libFuzzer draws and prints
mkdir -p "$found"
exec "$program" -max_total_time=$seconds -seed=$seed -timeout=10 -rss_limit_mb=2048 -max_len=16384 -use_value_profile=1 \
  -print_final_stats=1 -artifact_prefix="$found-" "$@" "$found" "$corpus"
