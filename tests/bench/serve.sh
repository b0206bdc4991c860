#!/usr/bin/env bash
# What the page of a run costs its steps: two ranks with a thread each, with --serve and a client that reads what the page
# reads, once a second (the page: every two), and without either, in turns.
#
#   tests/bench/serve.sh [--rounds 5] [--steps 60] [--apart no|yes] [--build build/release] [-- FLAGS OF ranvier-train]
#
# With --apart yes the client has a core of its own, the last one, as a browser on another machine has: one rank with a
# thread and the page's own thread are bound to the first core.
#
# One JSON line: `seconds` of a step without the page (the median of all rounds' steps but each run's first two), how many
# times as long a step took with it, as the median of the rounds' ratios of medians (`over_none`), the least and the most
# of these ratios, the answers that the client read, and the share of one core that the page's thread took meanwhile
# (`thread`), which is measured more finely than steps can be.
source "$(dirname "$0")/measuring.sh"
rounds=5 steps=60 apart=no build=build/release
read_flags rounds steps apart build -- "$@"
case "$apart" in
  no) ranks=2 first=() ;;
  yes) ranks=1 first=(taskset -c 0) ;;
  *) read_flags -- --help ;;  # prints the usage and ends
esac
cat models/*.?pp runtime/*.?pp >"$folder/text"

train() {  # <metrics> <flags…>
  mpirun --oversubscribe --bind-to none -n "$ranks" "${first[@]}" "$build/apps/ranvier-train" --data "$folder/text" \
    --g-inter "$ranks" --layers 6 --hidden 256 --sequence-length 128 --batch-size 16 --microbatch-size 4 --threads 1 \
    --steps "$steps" --validation-split 0 --metrics "$1" --overwrite "${@:2}" "${more[@]}" >"$folder/log" 2>&1
}
get() {  # <port> <path>
  exec 3<>"/dev/tcp/127.0.0.1/$1" || return
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$2" >&3
  cat <&3
  exec 3>&-
}
look() {  # as long as the page is there: writes a line for each answer
  [ "$apart" = no ] || taskset -cp $(($(nproc) - 1)) "$BASHPID" >"$folder/bound"
  local port=
  while [ -z "$port" ]; do
    sleep 0.1
    port=$(sed -n 's|^page: http://127.0.0.1:\([0-9]*\)/.*|\1|p' "$folder/log")
  done
  local thread
  thread=$(dirname "$(grep -lsx page /proc/[0-9]*/task/[0-9]*/comm | tail -n 1)")
  while get "$port" /status 2>/dev/null | grep -q '"step"'; do
    get "$port" /ranks 2>/dev/null | grep -c '"rank' || true
    get "$port" "/series?first=1&last=$steps&points=600" 2>/dev/null | grep -c '"loss"' || true
    [ ! -r "$thread/schedstat" ] ||
      echo "$(cut -d ' ' -f 1 "$thread/schedstat") $(date +%s%N)" 2>/dev/null >>"$folder/thread"
    sleep 1
  done >>"$folder/answers"
  awk 'NR == 1 { cpu = $1; time = $2 } END { print ($1 - cpu) / ($2 - time) }' "$folder/thread" >>"$folder/shares"
  rm "$folder/thread"
}
seconds_of() {  # <metrics>: the median of a run's steps but the first two
  grep '"step"' "$1" >"$folder/steps"
  value seconds "$folder/steps" | tail -n +3 >"$folder/seconds"
  median "$folder/seconds"
}

train "$folder/warm" || { cat "$folder/log" >&2; exit 1; }
for ((round = 0; round < rounds; ++round)); do
  : >"$folder/log"
  train "$folder/without" || { cat "$folder/log" >&2; exit 1; }
  : >"$folder/log"
  look &
  train "$folder/with" --serve 0 || { cat "$folder/log" >&2; exit 1; }
  wait
  seconds_of "$folder/without" >>"$folder/all-without"
  echo "$(seconds_of "$folder/with") $(tail -n 1 "$folder/all-without")" | awk '{ print $1 / $2 }' >>"$folder/ratios"
done
printf '{"bench": "serve", "seconds": %.4f, "over_none": %.4f, "least": %.4f, "most": %.4f, "answers": %d, "thread": %.5f}\n' \
  "$(median "$folder/all-without")" "$(median "$folder/ratios")" "$(sort -g "$folder/ratios" | head -n 1)" \
  "$(sort -g "$folder/ratios" | tail -n 1)" "$(grep -vc '^0$' "$folder/answers")" "$(median "$folder/shares")"
