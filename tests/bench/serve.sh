#!/usr/bin/env bash
# Cost of --serve per step: two ranks with a thread each, with --serve and a client that polls once per --interval, 1 s
# (the page: every 2 s), and without, in turns.
#
#   tests/bench/serve.sh [--rounds 5] [--steps 60] [--interval SECONDS] [--layers 6] [--hidden 256] [--length 128]
#                        [--apart no|yes] [--build build/release] [-- FLAGS OF ranvier-train]
#
# --apart yes gives the client the last core, like a browser on another machine: one rank with a thread and the page's
# thread are bound to the first core.
#
# One JSON line. `seconds`: median step without the page, without the first two steps of each run. `over_none`: ratio of
# the medians with and without the page, median of all rounds, with `least` and `most`. `answers`: responses that the
# client read. `thread`: share of one core that the page's thread used, a finer measure than the steps.
source "$(dirname "$0")/measuring.sh"
rounds=5 steps=60 interval=1 layers=6 hidden=256 length=128 apart=no build=build/release
read_flags rounds steps interval layers hidden length apart build -- "$@"
case "$apart" in
  no) ranks=2 first=() ;;
  yes) ranks=1 first=(taskset -c 0) ;;
  *) read_flags -- --help ;;  # prints the usage and ends
esac
cat models/{core,families}/*.?pp runtime/*/*.?pp >"$folder/text"

train() {  # <metrics> <flags…>
  mpirun --oversubscribe --bind-to none -n "$ranks" "${first[@]}" "$build/apps/ranvier-train" --data "$folder/text" \
    --g-inter "$ranks" --layers "$layers" --hidden "$hidden" --sequence-length "$length" --batch-size 16 --microbatch-size 4 \
    --threads 1 --steps "$steps" --validation-split 0 --metrics "$1" --overwrite "${@:2}" "${more[@]}" >"$folder/log" 2>&1
}
get() {  # <port> <path>
  exec 3<>"/dev/tcp/127.0.0.1/$1" || return
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$2" >&3
  cat <&3
  exec 3>&-
}
look() {  # <process of the run>: polls the page until it is gone; writes a line per response
  [ "$apart" = no ] || taskset -cp $(($(nproc) - 1)) "$BASHPID" >"$folder/bound"
  local port=
  while [ -z "$port" ]; do
    kill -0 "$1" 2>/dev/null || return 0  # the run ended without a page
    sleep 0.1
    port=$(sed -n 's|.*http://127\.0\.0\.1:\([0-9]*\)/.*|\1|p' "$folder/log")
  done
  local thread=none name cpu
  for name in $(grep -lsx page /proc/[0-9]*/task/[0-9]*/comm); do
    ! grep -qsaF "$folder/with" "${name%/task/*}/cmdline" || thread=${name%/comm}
  done
  while get "$port" /status 2>/dev/null | grep -q '"step"'; do
    get "$port" /ranks 2>/dev/null | grep -c '"rank' || true
    get "$port" "/series?first=1&last=$steps&points=600" 2>/dev/null | grep -c '"loss"' || true
    if cpu=$(cut -d ' ' -f 1 "$thread/schedstat" 2>/dev/null); then echo "$cpu $(date +%s%N)" >>"$folder/thread"; fi
    sleep "$interval"
  done >>"$folder/answers"
  awk 'NR == 1 { cpu = $1; time = $2 } END { print ($1 - cpu) / ($2 - time) }' "$folder/thread" >>"$folder/shares"
  rm "$folder/thread"
}
seconds_of() {  # <metrics>: median step, without the first two
  value seconds "$1" | tail -n +3 >"$folder/seconds"
  median "$folder/seconds"
}

train "$folder/warm" || { cat "$folder/log" >&2; exit 1; }
for ((round = 0; round < rounds; ++round)); do
  train "$folder/without" || { cat "$folder/log" >&2; exit 1; }
  : >"$folder/log"
  train "$folder/with" --serve 0 &
  run=$!
  (look "$run")
  wait "$run" || { cat "$folder/log" >&2; exit 1; }
  seconds_of "$folder/without" >>"$folder/all-without"
  seconds_of "$folder/with" >"$folder/one-with"
  tail -n 1 "$folder/all-without" | paste "$folder/one-with" - | awk '{ print $1 / $2 }' >>"$folder/ratios"
done
seconds=$(median "$folder/all-without")
over=$(median "$folder/ratios")
thread=$(median "$folder/shares")
answers=$(grep -vc '^0$' "$folder/answers")
printf '{"bench": "serve", "seconds": %.4f, "over_none": %.4f, "least": %.4f, "most": %.4f, "answers": %d, "thread": %.5f}\n' \
  "$seconds" "$over" "$(sort -g "$folder/ratios" | head -n 1)" "$(sort -g "$folder/ratios" | tail -n 1)" "$answers" "$thread"
